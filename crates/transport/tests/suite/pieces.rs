//! Requests of random sizes, sent in random pieces: each gets its reply, complete and in order.
//!
//! Seeded and bounded by time; a failure prints the seed. `PIECES_SEED` runs one seed only.

use crate::common::{Server, op, request};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use std::io::Write;
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_secs(1);
const REQUESTS: usize = 60;

/// Mostly small sizes, and sometimes one larger than each buffer.
fn size(dice: &SeededRandom) -> usize {
    let limit = [40, 1_000, 5_000, 70_000, 400_000][(dice.next_u64() % 5) as usize];
    1 + (dice.next_u64() % limit) as usize
}

fn run(server: &Server, seed: u64) {
    let dice = SeededRandom::new(seed);
    let (mut all, mut expected) = (Vec::new(), Vec::new());
    for i in 0..REQUESTS {
        let mut body = vec![i as u8; size(&dice)];
        body[0] = [op::ECHO, op::ECHO_LATER, op::NO_REPLY][(dice.next_u64() % 3) as usize];
        all.extend_from_slice(&request(&body));
        if body[0] != op::NO_REPLY {
            expected.push(body);
        }
    }
    let mut client = server.connect();
    let mut stream = client.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(size(&dice).min(rest.len()));
            stream.write_all(piece).unwrap();
            rest = more;
        }
    });
    for (i, body) in expected.iter().enumerate() {
        assert!(client.receive() == *body, "reply {i} of {}", expected.len());
    }
    writer.join().unwrap();
}

#[test]
fn requests_in_random_pieces_are_answered_in_order() {
    let server = Server::start();
    if let Some(seed) = std::env::var("PIECES_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run(&server, seed);
    }
    let end = Instant::now() + TIME;
    let first = SeededRandom::from_entropy().next_u64() >> 1;
    for seed in first.. {
        let attempt = std::panic::AssertUnwindSafe(|| run(&server, seed));
        if std::panic::catch_unwind(attempt).is_err() {
            panic!("PIECES_SEED={seed}");
        }
        if Instant::now() >= end {
            break;
        }
    }
}
