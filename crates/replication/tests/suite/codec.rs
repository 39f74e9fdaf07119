//! Messages as bytes.

use crate::set::SET;
use kauri_replication::codec::{ENTRIES_MAX, Envelope, Kind, Message, decode, encode};
use kauri_replication::{Change, Entry, Frame, Payload};
use kauri_testkit::Dice;

fn payload(dice: &Dice) -> Payload {
    match dice.below(4) {
        0 => Payload::Blank,
        1 => Payload::Frame(Frame {
            first: 1 + dice.below(1 << 40),
            units: 1 + dice.below(1 << 20) as u32,
            bytes: dice.bits() as u32,
        }),
        2 => Payload::Config((0..dice.below(40)).map(|_| dice.bits() as u8).collect()),
        _ => Payload::Membership(
            (0..dice.below(4))
                .map(|_| match dice.below(3) {
                    0 => Change::Voter(1 + dice.below(99)),
                    1 => Change::Learner(1 + dice.below(99)),
                    _ => Change::Removed(1 + dice.below(99)),
                })
                .collect(),
        ),
    }
}

/// A message with small numbers that fit each other.
pub fn drawn(dice: &Dice) -> Envelope {
    let kind = Kind::ALL[dice.below(9) as usize];
    let term = 1 + dice.below(5);
    let (index, log_term) = match dice.below(4) {
        0 => (0, 0),
        1 => (dice.below(9), dice.below(term + 1)),
        _ => (1 + dice.below(8), 1 + dice.below(term)),
    };
    let mut before = log_term;
    let count = if kind == Kind::Append { dice.below(4) } else { 0 };
    let entries = (1..=count).map(|ordinal| {
        before = (before + dice.below(term - before + 1)).max(1);
        Entry { index: index + ordinal, term: before, payload: payload(dice) }
    });
    let message = Message {
        kind,
        term,
        log_term,
        index,
        entries: entries.collect(),
        commit: dice.below(9),
        commit_term: dice.below(term + 1),
        reject: kind.is_answer() && dice.percent(30),
        hint: dice.below(9),
        context: (0..dice.below(12)).map(|_| dice.bits() as u8).collect(),
    };
    Envelope {
        set: SET,
        from: 1 + dice.below(4),
        to: 1,
        from_boot: 1 + dice.below(3),
        to_boot: dice.below(2),
        term: term.saturating_sub(dice.below(2)).max(1),
        last: dice.below(9),
        durable: dice.below(9),
        durable_commit: dice.below(9),
        lost_power: dice.percent(20),
        message: dice.percent(95).then_some(message),
    }
}

#[test]
fn a_message_comes_back_from_its_bytes() {
    let dice = Dice::new(1);
    for _ in 0..5_000 {
        let envelope = drawn(&dice);
        assert_eq!(decode(&encode(&envelope)), Ok(envelope));
    }
}

#[test]
fn what_is_read_from_damaged_bytes_is_written_as_the_same_bytes() {
    let (dice, mut read) = (Dice::new(2), 0);
    for _ in 0..100_000 {
        let mut bytes = encode(&drawn(&dice));
        bytes.truncate(bytes.len() - 4);
        for _ in 0..1 + dice.below(3) {
            let at = dice.below(bytes.len() as u64) as usize;
            match dice.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.extend_from_slice(&dice.bits().to_le_bytes()),
                2 => bytes[at] = 0xff,
                _ => bytes[at] ^= 1 << dice.below(8),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let damaged = bytes.clone();
        assert!(decode(&damaged).is_err(), "without a checksum");
        bytes.extend_from_slice(&crc32c::crc32c(&damaged).to_le_bytes());
        if let Ok(envelope) = decode(&bytes) {
            assert_eq!(encode(&envelope), bytes);
            read += 1;
        }
    }
    assert!((10_000..90_000).contains(&read), "{read}");
}

#[test]
fn a_single_changed_bit_is_noticed() {
    let dice = Dice::new(3);
    for _ in 0..200 {
        let bytes = encode(&drawn(&dice));
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged).is_err());
        }
    }
}

#[test]
fn a_message_has_no_more_entries_than_the_limit() {
    let dice = Dice::new(4);
    let mut envelope = drawn(&dice);
    let entry = |index| Entry { index, term: 1, payload: Payload::Blank };
    let mut message = Message {
        kind: Kind::Append,
        term: 1,
        log_term: 0,
        index: 0,
        commit: 0,
        commit_term: 0,
        reject: false,
        hint: 0,
        context: Vec::new(),
        entries: (1..=ENTRIES_MAX as u64).map(entry).collect(),
    };
    envelope.message = Some(message.clone());
    assert_eq!(decode(&encode(&envelope)), Ok(envelope.clone()));
    message.entries.push(entry(ENTRIES_MAX as u64 + 1));
    envelope.message = Some(message);
    assert!(decode(&encode(&envelope)).is_err());
}
