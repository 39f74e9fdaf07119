//! The faults that the checker finds in handmade histories.

use kauri_simulation::check::faults;
use kauri_simulation::history::{Append, Claim, Death, Facts, Known, Moment, Read};

/// One list, read as empty at its beginning, in the first life of the server.
fn facts() -> Facts {
    let mut facts = Facts::default();
    read(&mut facts, (0, 0), &[], true);
    facts
}

fn append(facts: &mut Facts, value: u64, sent: Moment, known: Known, durable: bool) {
    let life = facts.life;
    facts.appends.push(Append { key: 0, value, sent, known, durable, life });
}

fn read(facts: &mut Facts, (sent, answered): (Moment, Moment), list: &[u64], alone: bool) {
    let life = facts.life;
    facts.reads.push(Read { key: 0, list: list.to_vec(), sent, answered, life, alone });
}

/// The server dies; afterwards the list has these values.
fn dies(facts: &mut Facts, death: Death, at: Moment, list: &[u64]) {
    facts.deaths.push((death, at));
    facts.life += 1;
    read(facts, (at + 1, at + 2), list, true);
}

/// Checks that the history has exactly these faults, by their messages.
#[track_caller]
fn has(facts: &Facts, expected: &[&str]) {
    let found = faults(facts);
    let all = expected.iter().all(|e| found.iter().any(|fault| fault.contains(e)));
    assert!(all && found.is_empty() == expected.is_empty(), "{found:#?}, not {expected:?}");
}

#[test]
fn valid_histories_have_no_fault() {
    let mut facts = facts();
    append(&mut facts, 1, 1, Known::Done(5), false);
    // Concurrent: either order is valid.
    append(&mut facts, 2, 2, Known::Done(6), false);
    read(&mut facts, (3, 4), &[2], false);
    read(&mut facts, (7, 8), &[2, 1], false);
    // Never acknowledged: the value may exist or not.
    append(&mut facts, 3, 9, Known::Nothing, true);
    append(&mut facts, 4, 10, Known::Nothing, true);
    append(&mut facts, 5, 11, Known::Refused, false);
    has(&facts, &[]);
    // The power loss takes the last appends, which were not durable.
    dies(&mut facts, Death::Power, 20, &[2, 1, 4]);
    append(&mut facts, 6, 30, Known::Done(31), true);
    append(&mut facts, 7, 32, Known::Done(33), false);
    dies(&mut facts, Death::Power, 40, &[2, 1, 4, 6]);
    has(&facts, &[]);
}

#[test]
fn reads_of_one_list_have_one_order() {
    let mut facts = facts();
    append(&mut facts, 1, 1, Known::Nothing, false);
    append(&mut facts, 2, 2, Known::Nothing, false);
    read(&mut facts, (3, 4), &[1, 2], false);
    read(&mut facts, (3, 4), &[2, 1], false);
    has(&facts, &["was read, and"]);
}

#[test]
fn reads_see_earlier_acknowledged_values_and_no_later_ones() {
    let mut stale = facts();
    append(&mut stale, 1, 1, Known::Done(2), false);
    read(&mut stale, (3, 4), &[], false);
    has(&stale, &["misses"]);
    let mut early = facts();
    read(&mut early, (1, 2), &[1], false);
    append(&mut early, 1, 3, Known::Done(4), false);
    has(&early, &["sees what was sent later"]);
    let mut backward = facts();
    append(&mut backward, 1, 1, Known::Nothing, false);
    read(&mut backward, (2, 3), &[1], false);
    read(&mut backward, (4, 5), &[], false);
    has(&backward, &["is shorter than what was read before"]);
}

#[test]
fn appends_keep_the_order_of_real_time() {
    let mut facts = facts();
    append(&mut facts, 1, 1, Known::Done(2), false);
    append(&mut facts, 2, 3, Known::Done(4), false);
    read(&mut facts, (5, 6), &[2, 1], false);
    has(&facts, &["comes after what was sent later"]);
}

#[test]
fn values_are_unique_and_were_sent() {
    let mut twice = facts();
    append(&mut twice, 1, 1, Known::Done(2), false);
    read(&mut twice, (3, 4), &[1, 1], false);
    has(&twice, &["is there twice"]);
    let mut unknown = facts();
    read(&mut unknown, (3, 4), &[7], false);
    has(&unknown, &["was never appended"]);
    let mut refused = facts();
    append(&mut refused, 1, 1, Known::Refused, false);
    read(&mut refused, (3, 4), &[1], false);
    has(&refused, &["refused"]);
    let mut elsewhere = facts();
    append(&mut elsewhere, 1, 1, Known::Nothing, false);
    elsewhere.appends[0].key = 1;
    read(&mut elsewhere, (3, 4), &[1], false);
    has(&elsewhere, &["not of this list"]);
}

#[test]
fn a_death_keeps_all_promised_values() {
    for (durable, death, list, expected) in [
        (true, Death::Power, &[][..], &["is lost by Power"][..]),
        (false, Death::Process, &[], &["is lost by Process"]),
        (false, Death::Power, &[], &[]),
        (true, Death::Power, &[1], &[]),
    ] {
        let mut facts = facts();
        append(&mut facts, 1, 1, Known::Done(2), durable);
        dies(&mut facts, death, 10, list);
        has(&facts, expected);
    }
}

#[test]
fn recovered_values_are_durable() {
    let mut facts = facts();
    append(&mut facts, 1, 1, Known::Done(2), false);
    dies(&mut facts, Death::Power, 10, &[1]);
    dies(&mut facts, Death::Power, 20, &[]);
    has(&facts, &["had been recovered is shorter"]);
}

#[test]
fn lost_values_stay_lost_with_all_later_ones() {
    let mut back = facts();
    append(&mut back, 1, 1, Known::Done(2), false);
    dies(&mut back, Death::Power, 10, &[]);
    read(&mut back, (13, 14), &[1], false);
    has(&back, &["of another life"]);
    // The second was sent after the first was acknowledged, so no prefix has only the second; here in another
    // list.
    let mut torn = facts();
    append(&mut torn, 1, 1, Known::Done(2), false);
    append(&mut torn, 2, 3, Known::Done(4), false);
    torn.appends[1].key = 1;
    let mut other = |at: Moment, list: &[u64], life| {
        let list = list.to_vec();
        torn.reads.push(Read { key: 1, list, sent: at, answered: at, life, alone: true });
    };
    other(0, &[], 0);
    other(12, &[2], 1);
    dies(&mut torn, Death::Power, 10, &[]);
    has(&torn, &["is lost, but a later one is not"]);
}

#[test]
fn no_write_is_acknowledged_during_a_lock() {
    for (sent, acked, expected) in [
        (11, 12, &["during the lock"][..]),
        // In progress when the lock began, or acknowledged after it.
        (9, 12, &[]),
        (11, 21, &[]),
    ] {
        let mut facts = facts();
        facts.locks.push((10, 20));
        append(&mut facts, 1, sent, Known::Done(acked), false);
        has(&facts, expected);
    }
}

/// Operations on one value: insert or delete, sent, known, and whether it changed the value.
fn register(operations: &[(bool, Moment, Known, bool)]) -> Facts {
    let mut facts = facts();
    let claim = |&(insert, sent, known, effect): &(bool, Moment, Known, bool)| Claim {
        value: 0,
        insert,
        sent,
        known,
        effect,
        life: 0,
    };
    facts.claims.extend(operations.iter().map(claim));
    facts
}

#[test]
fn claims_have_an_order_in_which_every_answer_is_right() {
    use Known::{Done, Nothing};
    let (insert, delete) = (true, false);
    for operations in [
        // Serial.
        &[(insert, 1, Done(2), true), (insert, 3, Done(4), false), (delete, 5, Done(6), true)][..],
        // Concurrent: either may have been first.
        &[(insert, 1, Done(5), false), (insert, 2, Done(6), true)],
        // An operation without a reply had its effect or not.
        &[(insert, 1, Nothing, true), (insert, 3, Done(4), false)],
        &[(insert, 1, Nothing, true), (insert, 3, Done(4), true)],
        &[(insert, 1, Done(2), true), (delete, 3, Nothing, true), (insert, 5, Done(6), true)],
    ] {
        has(&register(operations), &[]);
    }
    for operations in [
        // Inserted twice; found although never inserted; deleted twice; not found although present.
        &[(insert, 1, Done(2), true), (insert, 3, Done(4), true)][..],
        &[(insert, 1, Done(2), false)],
        &[(insert, 1, Done(2), true), (delete, 3, Done(4), true), (delete, 5, Done(6), true)],
        &[(insert, 1, Done(2), true), (delete, 3, Done(4), false)],
        // One operation without a reply explains one of the two.
        &[
            (insert, 1, Done(2), true),
            (delete, 3, Nothing, true),
            (insert, 5, Done(6), true),
            (insert, 7, Done(8), true),
        ],
    ] {
        has(&register(operations), &["no order explains"]);
    }
    // It was sent to a life of the server that had already ended: it has had its effect by then, or never.
    let mut late = register(&[(insert, 1, Nothing, true), (delete, 30, Done(31), false)]);
    late.claims.push(Claim { value: 0, insert, sent: 32, known: Done(33), effect: false, life: 1 });
    late.claims[1].life = 1;
    dies(&mut late, Death::Power, 20, &[]);
    has(&late, &["no order explains"]);
}
