//! Histories as text: every part of a line is read, and a line that is none is told.

use kauri_consistency::cycles::Order;
use kauri_consistency::history::{Malformed, parse};
use kauri_consistency::lists::{Outcome, Step, Transaction};

#[test]
fn lines_are_transactions() {
    let text =
        "7 100 120 realtime a3=17 r3=15,17\n\n8 101 ? session r4= r5=?\n9 102 - data a3=18\n";
    let steps = [
        vec![Step::Append(3, 17), Step::Read(3, Some(vec![15, 17]))],
        vec![Step::Read(4, Some(vec![])), Step::Read(5, None)],
        vec![Step::Append(3, 18)],
    ];
    let [one, two, three] = steps;
    let transaction = |client, sent, outcome, steps| Transaction { client, sent, outcome, steps };
    let expected = vec![
        (transaction(7, 100, Outcome::Committed(120), one), Order::RealTime),
        (transaction(8, 101, Outcome::Unknown, two), Order::Session),
        (transaction(9, 102, Outcome::Aborted, three), Order::Data),
    ];
    assert_eq!(parse(text), Ok(expected));
}

#[test]
fn a_line_that_is_none_is_told() {
    for line in [
        "x 1 2 data",
        "1 x 2 data",
        "1 1 x data",
        "1 1 2 x",
        "1 1 2",
        "1 1 2 data a3",
        "1 1 2 data b3=1",
        "1 1 2 data a3=",
        "1 1 2 data r3=1,",
        "1 1 2 data ax=1",
    ] {
        let text = format!("1 1 2 data\n{line}\n1 1 2 data");
        assert_eq!(parse(&text), Err(Malformed { line: 2 }), "{line}");
    }
}
