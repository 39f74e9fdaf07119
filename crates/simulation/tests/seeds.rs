//! Simulated worlds by seed.

use kauri_simulation::run;
use kauri_testkit::seeds::{each_seed, seeds};

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
    each_seed(seeds(1_000), check);
}

#[test]
fn a_seed_determines_everything() {
    for seed in 1..=50 {
        let (one, other) = (run(seed), run(seed));
        assert_eq!((one.hash, one.turns), (other.hash, other.turns), "seed {seed}");
    }
    assert_ne!(run(1).hash, run(2).hash);
}
