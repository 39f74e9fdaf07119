//! The linearizability checker on handmade histories of registers.

use RegisterOperation::{CompareAndSet, Mismatch, Read, Write};
use kauri_consistency::linearizable::{Operation, Register, RegisterOperation, Verdict, check};

fn operation(sent: u64, answered: u64, what: RegisterOperation) -> Operation<RegisterOperation> {
    Operation { sent, answered: Some(answered), until: None, what }
}

fn unanswered(
    sent: u64,
    until: Option<u64>,
    what: RegisterOperation,
) -> Operation<RegisterOperation> {
    Operation { sent, answered: None, until, what }
}

fn verdict(operations: &[Operation<RegisterOperation>]) -> Verdict {
    check(Register(None), operations)
}

#[test]
fn overlapping_operations_have_any_order() {
    let write = operation(1, 4, Write(Some(1)));
    for value in [None, Some(1)] {
        let read = operation(2, 3, Read(value));
        assert_eq!(verdict(&[write.clone(), read]), Verdict::Linearizable, "{value:?}");
    }
    // Two reads of one write: a value stays visible once it was seen.
    let reads = [operation(2, 3, Read(Some(1))), operation(4, 5, Read(None))];
    let all = [write, reads[0].clone(), reads[1].clone()];
    assert_eq!(verdict(&all), Verdict::Not);
}

#[test]
fn a_read_after_the_reply_sees_the_write() {
    let all = [operation(1, 2, Write(Some(1))), operation(3, 4, Read(None))];
    assert_eq!(verdict(&all), Verdict::Not);
}

#[test]
fn an_unanswered_write_takes_effect_late_or_never_but_not_after_its_server() {
    let seen = |until, at: u64| {
        let all = [
            unanswered(1, until, Write(Some(1))),
            operation(2, 3, Read(None)),
            operation(at, at + 1, Read(Some(1))),
        ];
        verdict(&all)
    };
    assert_eq!(seen(None, 50), Verdict::Linearizable);
    assert_eq!(seen(Some(60), 50), Verdict::Linearizable);
    // The write would take effect between two reads that were both sent after its server had died.
    let all = [
        unanswered(1, Some(5), Write(Some(1))),
        operation(10, 11, Read(None)),
        operation(12, 13, Read(Some(1))),
    ];
    assert_eq!(verdict(&all), Verdict::Not);
    let never = [unanswered(1, None, Write(Some(1))), operation(2, 3, Read(None))];
    assert_eq!(verdict(&never), Verdict::Linearizable);
}

#[test]
fn one_of_two_that_compare_the_same_succeeds() {
    let set = |value| operation(1, 9, CompareAndSet(None, Some(value)));
    assert_eq!(verdict(&[set(1), set(2)]), Verdict::Not);
    let refused = operation(1, 9, Mismatch(None));
    assert_eq!(verdict(&[set(1), refused]), Verdict::Linearizable);
}
