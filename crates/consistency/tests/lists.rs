//! The list checker on handmade histories. It finds and names each anomaly, and reports nothing for valid
//! histories.

use kauri_consistency::cycles::{Anomaly, Order, Promise};
use kauri_consistency::lists::{Fault, Key, Outcome, Step, Transaction, Value, check, check_each};

const STRICT: Promise = Promise::STRICT_SERIALIZABLE;
const SERIALIZABLE: Promise = Promise { order: Order::Data, serializable: true };
const SESSION: Promise = Promise { order: Order::Session, serializable: true };

fn append(key: Key, value: Value) -> Step {
    Step::Append(key, value)
}

fn read(key: Key, list: &[Value]) -> Step {
    Step::Read(key, Some(list.to_vec()))
}

/// A transaction with its own client.
fn transaction(sent: u64, outcome: Outcome, steps: &[Step]) -> Transaction {
    Transaction { client: sent, sent, outcome, steps: steps.to_vec() }
}

fn committed(sent: u64, at: u64, steps: &[Step]) -> Transaction {
    transaction(sent, Outcome::Committed(at), steps)
}

/// Concurrent transactions: only the data orders them.
fn at_once(all: &[&[Step]]) -> Vec<Transaction> {
    all.iter()
        .map(|steps| Transaction { client: 0, ..committed(0, 100, steps) })
        .enumerate()
        .map(own)
        .collect()
}

fn own((client, transaction): (usize, Transaction)) -> Transaction {
    Transaction { client: client as u64, ..transaction }
}

fn anomalies(history: &[Transaction], promise: Promise) -> Vec<Anomaly> {
    let faults = check(history, promise).into_iter();
    faults
        .map(|fault| match fault {
            Fault::Cycle(cycle) => cycle.anomaly,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_serial_history_has_no_fault() {
    let history = [
        committed(1, 2, &[append(1, 1), append(2, 2)]),
        committed(3, 4, &[read(1, &[1]), append(1, 3), read(1, &[1, 3])]),
        committed(5, 6, &[read(2, &[2]), read(1, &[1, 3])]),
        transaction(7, Outcome::Aborted, &[append(1, 4), read(2, &[9])]),
        transaction(8, Outcome::Unknown, &[append(1, 5)]),
        committed(9, 10, &[read(1, &[1, 3, 5]), append(3, 6)]),
    ];
    assert_eq!(check(&history, STRICT), []);
}

#[test]
fn an_unknown_transaction_may_have_no_effect() {
    let history = [
        transaction(1, Outcome::Unknown, &[append(1, 1), read(1, &[1])]),
        committed(2, 3, &[append(1, 2)]),
        committed(4, 5, &[read(1, &[2])]),
    ];
    assert_eq!(check(&history, STRICT), []);
}

#[test]
fn lists_show_faults_of_their_own() {
    let faults = |steps: &[Step], others: &[Transaction]| {
        let mut history = others.to_vec();
        history.push(committed(90, 91, steps));
        check(&history, STRICT)
    };
    let one = committed(1, 2, &[append(1, 1), append(1, 2)]);
    let aborted = transaction(1, Outcome::Aborted, &[append(1, 1)]);
    assert_eq!(faults(&[read(1, &[7])], &[]), [Fault::Phantom { reader: 0, key: 1, value: 7 }]);
    let duplicate = faults(&[read(1, &[1, 2, 1, 2])], std::slice::from_ref(&one));
    assert!(duplicate.contains(&Fault::Duplicate { reader: 1, key: 1, value: 1 }), "{duplicate:?}");
    let aborted = faults(&[read(1, &[1])], &[aborted]);
    assert_eq!(aborted, [Fault::AbortedRead { reader: 1, key: 1, value: 1 }]);
    let torn = faults(&[read(1, &[1])], std::slice::from_ref(&one));
    assert!(torn.contains(&Fault::IntermediateRead { reader: 1, key: 1, value: 1 }), "{torn:?}");
    let internal = Fault::Internal { reader: 0, key: 1 };
    assert!(faults(&[append(1, 8), read(1, &[])], &[]).contains(&internal));
    let changed = [read(1, &[]), append(1, 8), read(1, &[1, 2, 8])];
    let changed = faults(&changed, std::slice::from_ref(&one));
    assert!(changed.contains(&Fault::Internal { reader: 1, key: 1 }), "{changed:?}");
}

#[test]
fn two_orders_of_one_list_are_a_fault() {
    let history =
        at_once(&[&[append(1, 1)], &[append(1, 2)], &[read(1, &[1, 2])], &[read(1, &[2])]]);
    let found = check(&history, SERIALIZABLE);
    assert_eq!(found, [Fault::IncompatibleOrder { readers: (3, 2), key: 1 }]);
}

#[test]
fn writes_in_a_circle_are_g0() {
    let history = at_once(&[
        &[append(1, 1), append(2, 2)],
        &[append(1, 3), append(2, 4)],
        &[read(1, &[1, 3]), read(2, &[4, 2])],
    ]);
    assert!(anomalies(&history, SERIALIZABLE).contains(&Anomaly::G0));
}

#[test]
fn information_in_a_circle_is_g1c() {
    let history = at_once(&[&[append(1, 1), read(2, &[2])], &[append(2, 2), read(1, &[1])]]);
    assert_eq!(anomalies(&history, SERIALIZABLE), [Anomaly::G1c]);
}

#[test]
fn a_lost_update_is_g_single() {
    // Both read the empty list before they append.
    let history = at_once(&[
        &[read(1, &[]), append(1, 1)],
        &[read(1, &[]), append(1, 2)],
        &[read(1, &[1, 2])],
    ]);
    assert_eq!(anomalies(&history, SERIALIZABLE), [Anomaly::GSingle]);
    assert_eq!(anomalies(&history, Promise::SNAPSHOT), [Anomaly::GSingle]);
}

#[test]
fn read_skew_is_g_single() {
    let history = at_once(&[&[append(1, 1), append(2, 2)], &[read(1, &[1]), read(2, &[])]]);
    assert_eq!(anomalies(&history, Promise::SNAPSHOT), [Anomaly::GSingle]);
}

#[test]
fn write_skew_is_g2_and_no_fault_of_snapshots() {
    let history = at_once(&[
        &[read(1, &[]), append(2, 1)],
        &[read(2, &[]), append(1, 2)],
        &[read(1, &[2]), read(2, &[1])],
    ]);
    assert_eq!(anomalies(&history, SERIALIZABLE), [Anomaly::G2]);
    assert_eq!(anomalies(&history, Promise::SNAPSHOT), []);
}

#[test]
fn a_long_fork_is_no_snapshot() {
    // Two readers see two independent writes in different orders.
    let history = at_once(&[
        &[append(1, 1)],
        &[append(2, 2)],
        &[read(1, &[1]), read(2, &[])],
        &[read(1, &[]), read(2, &[2])],
    ]);
    assert_eq!(anomalies(&history, Promise::SNAPSHOT), [Anomaly::GNonadjacent]);
}

#[test]
fn a_stale_read_breaks_the_order_of_real_time_alone() {
    let history = [
        committed(1, 2, &[append(1, 1)]),
        committed(3, 4, &[read(1, &[])]),
        committed(5, 6, &[read(1, &[1])]),
    ];
    assert_eq!(anomalies(&history, STRICT), [Anomaly::GSingle]);
    assert_eq!(anomalies(&history, SERIALIZABLE), []);
    // Transactions of one client also violate the order of their session.
    let own: Vec<_> = history.iter().map(|one| Transaction { client: 1, ..one.clone() }).collect();
    assert_eq!(anomalies(&own, SESSION), [Anomaly::GSingle]);
    assert_eq!(anomalies(&history, SESSION), []);
}

#[test]
fn a_read_beside_a_write_may_miss_it() {
    for sent in [1, 2] {
        let mut history = [committed(1, 2, &[append(1, 1)]), committed(sent, 4, &[read(1, &[])])];
        history[1].client = 100;
        assert_eq!(check(&history, STRICT), [], "sent at {sent}");
    }
}

#[test]
fn an_acknowledged_append_that_is_never_read_is_lost() {
    let history = [
        committed(1, 2, &[append(1, 1)]),
        committed(3, 4, &[append(1, 2)]),
        committed(5, 6, &[read(1, &[1])]),
    ];
    let found = check(&history, STRICT);
    assert_eq!(found.first(), Some(&Fault::Lost { writer: 1, key: 1, value: 2 }), "{found:?}");
    assert!(matches!(&found[1..], [Fault::Cycle(cycle)] if cycle.anomaly == Anomaly::GSingle));
    // A read beside the append may be of before it.
    let mut beside = history.to_vec();
    beside[2].sent = 4;
    assert_eq!(check(&beside, STRICT), []);
    // Without an acknowledgement no append is lost.
    let mut unknown = history.to_vec();
    unknown[1].outcome = Outcome::Unknown;
    assert_eq!(check(&unknown, STRICT), []);
}

#[test]
fn an_append_that_comes_back_is_found() {
    // The append was missing for the second reader, and is visible again to the third one.
    let history = [
        committed(1, 2, &[append(1, 1)]),
        committed(3, 4, &[read(1, &[1])]),
        committed(5, 6, &[read(1, &[])]),
        committed(7, 8, &[read(1, &[1])]),
    ];
    assert_eq!(anomalies(&history, STRICT), [Anomaly::GSingle]);
}

/// The faults where the last transaction follows this order only.
fn with_weaker_last(history: &[Transaction], order: Order) -> Vec<Fault> {
    let last = history.len() - 1;
    check_each(history, STRICT, |index| if index == last { order } else { Order::RealTime })
}

fn is_single(faults: &[Fault]) -> bool {
    matches!(faults, [Fault::Cycle(cycle)] if cycle.anomaly == Anomaly::GSingle)
}

#[test]
fn a_read_that_is_promised_less_may_be_old() {
    let mut history = vec![
        committed(1, 2, &[append(1, 1)]),
        committed(3, 4, &[read(1, &[1])]),
        committed(5, 6, &[read(1, &[])]),
    ];
    assert!(is_single(&check(&history, STRICT)));
    assert_eq!(with_weaker_last(&history, Order::Session), []);
    assert_eq!(with_weaker_last(&history, Order::Data), []);
    // Its own client's transactions are before it by the order of sessions.
    history[2].client = history[1].client;
    assert!(is_single(&with_weaker_last(&history, Order::Session)));
    assert_eq!(with_weaker_last(&history, Order::Data), []);
}

#[test]
fn a_session_goes_on_behind_a_read_that_is_promised_less() {
    let all = [
        committed(1, 2, &[append(1, 1)]),
        committed(3, 4, &[read(1, &[])]),
        committed(5, 6, &[read(1, &[])]),
    ];
    let check = |all: [Transaction; 3]| {
        let history = all.map(|one| Transaction { client: 1, ..one });
        check_each(&history, STRICT, |index| match index {
            0 => Order::RealTime,
            1 => Order::Data,
            _ => Order::Session,
        })
    };
    assert!(is_single(&check(all)));
    // What the read has seen counts, too, for those of its session.
    let seen = [
        transaction(1, Outcome::Unknown, &[append(1, 1)]),
        committed(3, 6, &[read(1, &[1])]),
        committed(6, 7, &[read(1, &[])]),
    ];
    assert!(is_single(&check(seen)));
}

#[test]
fn what_an_old_read_has_seen_stays() {
    // The append is seen, and missing for a reader that comes later.
    let history = [
        transaction(1, Outcome::Unknown, &[append(1, 1)]),
        committed(7, 8, &[read(1, &[])]),
        committed(5, 6, &[read(1, &[1])]),
    ];
    assert!(is_single(&with_weaker_last(&history, Order::Data)));
    // It was answered before the append was sent.
    let history = [
        committed(7, 8, &[append(1, 1)]),
        committed(9, 10, &[read(1, &[1])]),
        committed(5, 6, &[read(1, &[1])]),
    ];
    let faults = with_weaker_last(&history, Order::Data);
    let is_circle = |cycle: &kauri_consistency::cycles::Cycle| cycle.anomaly == Anomaly::G1c;
    assert!(matches!(&faults[..], [Fault::Cycle(cycle)] if is_circle(cycle)), "{faults:?}");
}

#[test]
fn old_reads_do_not_hide_what_is_before_them() {
    // The old read is answered between the append and the read that lacks it.
    let history = [
        committed(1, 2, &[append(1, 1)]),
        committed(5, 6, &[read(1, &[])]),
        committed(9, 10, &[read(1, &[1])]),
        committed(3, 4, &[read(1, &[])]),
    ];
    assert!(is_single(&with_weaker_last(&history, Order::Data)));
}
