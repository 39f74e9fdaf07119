//! Sets of members by seed: faults of networks, disks, processes and clocks, and what must hold.
//!
//! A world ([`world`]) has the members of one set, a network and clients on one thread in virtual time. It ends with a
//! phase without faults, in which the set must become well: one leader, and equal, committed logs. A ledger
//! ([`ledger`]) looks into all members and checks each promise when it is made.

mod ledger;
mod member;
mod nemesis;
mod world;

use kauri_replication::consensus::Acknowledge;
use kauri_testkit::seeds::{each_seed, seeds};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use world::{Outcome, Settings, run};

const WITH_RULE: Settings = Settings { acknowledge: None, power_loss_rule: true };
const WITHOUT_RULE: Settings =
    Settings { acknowledge: Some(Acknowledge::Written), power_loss_rule: false };

/// A run in which a panic is a fault, too.
fn outcome(seed: u64, settings: Settings) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| run(seed, settings))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Outcome::of_panic(text.unwrap_or_default())
    })
}

#[test]
fn nothing_that_was_acknowledged_is_lost_and_the_set_becomes_well() {
    let (first, end) = seeds(1_000);
    let sums = std::sync::Mutex::new(BTreeMap::<&'static str, u64>::new());
    each_seed((first, end), |seed| {
        let outcome = outcome(seed, WITH_RULE);
        let faults = outcome.faults.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
        assert!(outcome.faults.is_empty(), "KAURI_SEED={seed} repeats it:\n{faults}");
        let mut sums = sums.lock().unwrap();
        for (name, count) in outcome.counts {
            *sums.entry(name).or_default() += count;
        }
    });
    let sums = sums.into_inner().unwrap();
    println!("{sums:?}");
    if end - first >= 1_000 {
        // The worlds had what they are for.
        for name in [
            "acknowledged as written",
            "acknowledged as durable",
            "reads",
            "leaders",
            "membership changes",
            "joint memberships",
            "processes killed",
            "power losses",
            "power losses of a majority",
            "power losses of all",
            "marks taken away",
            "written entries gone with a quorum",
            "stale messages refused",
            "partitions",
            "bridges",
            "one-way cuts",
            "pauses",
            "hand-overs",
        ] {
            assert!(sums.get(name).is_some_and(|&count| count >= 20), "too few {name}: {sums:?}");
        }
    }
}

#[test]
fn without_the_rule_for_power_losses_acknowledged_entries_are_lost() {
    let lost = AtomicU64::new(0);
    each_seed((1, 301), |seed| {
        let faults = outcome(seed, WITHOUT_RULE).faults;
        if faults.iter().any(|fault| fault.contains("acknowledged")) {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(lost.into_inner() >= 3);
}

#[test]
fn a_seed_decides_everything() {
    for seed in 1..=25 {
        let (one, other) = (outcome(seed, WITH_RULE), outcome(seed, WITH_RULE));
        assert_eq!((one.hash, one.events), (other.hash, other.events), "seed {seed}");
    }
    assert_ne!(outcome(1, WITH_RULE).hash, outcome(2, WITH_RULE).hash);
}
