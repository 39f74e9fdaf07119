//! Random and mutated messages: no reader panics, and accepted messages keep their guarantees.
//!
//! Seeded and bounded by time; a failure prints the seed. `WIRE_FUZZ_SEED` runs one seed only.

use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_wire::{Compressor, Message, MsgWriter, compress, flags, write_query};
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_secs(1);
const CASES_A_SEED: usize = 200;

struct Dice(SeededRandom);

impl Dice {
    fn below(&self, n: usize) -> usize {
        (self.0.next_u64() % n.max(1) as u64) as usize
    }

    fn document(&self) -> Vec<u8> {
        let size = self.below(60);
        let mut bytes = ((size + 5) as i32).to_le_bytes().to_vec();
        bytes.extend((0..size).map(|_| self.0.next_u64() as u8));
        bytes.push(0);
        bytes
    }

    fn message(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.below(4) == 0 {
            let flags = self.0.next_u64() as u32;
            write_query(&mut bytes, 1, flags, "admin.$cmd", -1, &self.document()).unwrap();
            return bytes;
        }
        let known = flags::CHECKSUM_PRESENT | flags::MORE_TO_COME | flags::EXHAUST_ALLOWED;
        let writer = MsgWriter::begin(&mut bytes, 1, 2, self.0.next_u64() as u32 & known);
        bytes.extend_from_slice(&self.document());
        for name in ["documents", "updates"].iter().take(self.below(3)) {
            let sequence = writer.begin_sequence(&mut bytes, name);
            for _ in 0..self.below(4) {
                bytes.extend_from_slice(&self.document());
            }
            sequence.finish(&mut bytes);
        }
        writer.finish(&mut bytes).unwrap();
        bytes
    }

    fn mutate(&self, bytes: &mut Vec<u8>) {
        const EDGES: [i32; 9] = [0, 1, 4, 5, -1, i32::MAX, i32::MIN, 48_000_000, 16];
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 if !bytes.is_empty() => bytes[at] = self.0.next_u64() as u8,
                1 => bytes.truncate(at),
                2 => bytes.insert(at, self.0.next_u64() as u8),
                3 if at + 4 <= bytes.len() => {
                    bytes[at..at + 4]
                        .copy_from_slice(&EDGES[self.below(EDGES.len())].to_le_bytes());
                }
                _ => {
                    let from = self.below(bytes.len());
                    let piece = bytes[from.min(at)..from.max(at)].to_vec();
                    bytes.extend_from_slice(&piece);
                }
            }
        }
        // Mostly with a right length, because otherwise nothing behind the header would be read.
        if self.below(8) > 0 && bytes.len() >= 4 {
            let length = bytes.len() as i32;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// Reads all parts of a message.
fn check(bytes: &[u8]) {
    let Ok((header, message)) = Message::parse(bytes) else { return };
    assert_eq!(header.length as usize, bytes.len());
    let whole = |document: &[u8]| {
        assert_eq!(document[..4], (document.len() as i32).to_le_bytes());
        assert_eq!(document.last(), Some(&0));
    };
    match message {
        Message::Msg(msg) => {
            whole(msg.body);
            for sequence in msg.sequences() {
                assert_eq!(sequence.documents().inspect(|d| whole(d)).count(), sequence.count);
            }
        }
        Message::Query(query) => {
            whole(query.query);
            whole(query.command());
            query.fields.into_iter().for_each(whole);
        }
        Message::Reply(reply) => {
            assert_eq!(reply.documents().inspect(|d| whole(d)).count(), reply.count);
        }
        Message::Compressed(compressed) => {
            let mut out = Vec::new();
            if compressed.decompress(&mut out).is_ok() {
                assert_eq!(out[..4], (out.len() as i32).to_le_bytes());
                check(&out);
            }
        }
        Message::Legacy(legacy) => assert!(legacy.name().starts_with("OP_")),
    }
}

fn run(seed: u64) {
    let dice = Dice(SeededRandom::new(seed));
    for _ in 0..CASES_A_SEED {
        let random: Vec<u8> = (0..dice.below(80)).map(|_| dice.0.next_u64() as u8).collect();
        check(&random);
        let mut bytes = dice.message();
        assert!(Message::parse(&bytes).is_ok(), "what the writers write is read");
        if dice.below(3) == 0 {
            let compressor = Compressor::from_id(dice.below(4) as u8).unwrap();
            let mut compressed = Vec::new();
            compress(&bytes, compressor, &mut compressed).unwrap();
            check(&compressed);
            bytes = compressed;
        }
        dice.mutate(&mut bytes);
        check(&bytes);
    }
}

#[test]
fn no_message_makes_a_reader_panic() {
    if let Some(seed) = std::env::var("WIRE_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run(seed);
    }
    let end = Instant::now() + TIME;
    let first = SeededRandom::from_entropy().next_u64() >> 1;
    let mut seeds = 0;
    for seed in first.. {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            panic!("WIRE_FUZZ_SEED={seed}");
        }
        seeds += 1;
        if Instant::now() >= end {
            break;
        }
    }
    assert!(seeds >= 5, "only {seeds} seeds in {TIME:?}");
}
