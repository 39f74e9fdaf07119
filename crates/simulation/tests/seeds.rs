//! Simulated worlds by seed.

use kauri_simulation::run;
use std::sync::atomic::{AtomicU64, Ordering};

/// Only `KAURI_SEED`, if it is set.
fn seeds() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("KAURI_SEED") {
        Some(seed) => (seed, seed + 1),
        None => (1, 1 + number("KAURI_SEEDS").unwrap_or(1_000)),
    }
}

fn check(seed: u64) {
    let outcome = run(seed);
    if std::env::var_os("KAURI_SEED").is_some() {
        println!("{} turns, {} deaths, {:?}", outcome.turns, outcome.deaths, outcome.counts);
    }
    assert!(
        outcome.faults.is_empty(),
        "KAURI_SEED={seed} repeats it; {} faults, the first of them:\n{}",
        outcome.faults.len(),
        outcome.faults.iter().take(5).cloned().collect::<Vec<_>>().join("\n"),
    );
}

#[test]
fn clients_see_valid_replies_of_one_server() {
    let (first, end) = seeds();
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let seed = next.fetch_add(1, Ordering::Relaxed)
                    && seed < end
                {
                    check(seed);
                }
            });
        }
    });
}

#[test]
fn a_seed_determines_everything() {
    for seed in 1..=50 {
        let (one, other) = (run(seed), run(seed));
        assert_eq!((one.hash, one.turns), (other.hash, other.turns), "seed {seed}");
    }
    assert_ne!(run(1).hash, run(2).hash);
}
