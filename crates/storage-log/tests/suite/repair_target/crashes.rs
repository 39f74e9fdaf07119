//! Power losses and deaths of the process during repairs of damaged directories.

use super::{Damaged, Outcome, Whole, repair_all};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::Directory;
use kauri_testkit::Dice;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Number of seeded states at each event, beside the states with all and with none of the volatile bytes.
const SEEDED: u64 = 4;

/// The counters of a campaign.
#[derive(Default, Debug)]
pub struct Looked {
    pub repairs: usize,
    pub images: usize,
    pub second: usize,
    /// The labels of repairs that were reached, and how often.
    pub sites: BTreeMap<String, u64>,
}

/// The states after a power loss at this event, except those already `seen`.
fn states(image: &Emulator, at: usize, dice: &Dice, seen: &mut BTreeSet<u64>) -> Vec<Emulator> {
    let mut states =
        vec![image.crash_at(at, &mut |_| 0), image.crash_at(at, &mut |choice| choice.options - 1)];
    states.extend((0..SEEDED).map(|_| image.crash_seeded(at, dice.bits())));
    states.retain(|state| seen.insert(state.content_hash()));
    states
}

fn crash_everywhere(
    damaged: &Damaged<'_>,
    dice: &Dice,
    without: Option<&str>,
    looked: &mut Looked,
) {
    let (repaired, outcome) = damaged.repaired(without);
    looked.repairs += 1;
    let sites = repaired.faults().sites_seen().into_iter();
    for (site, count) in sites.filter(|(site, _)| site.starts_with("repair.")) {
        *looked.sites.entry(site).or_default() += count;
    }
    damaged.check_salvaged(&repaired.crash_at(outcome.salvaged.at, &mut |_| 0), &outcome);
    // Its work is durable when it reports success.
    damaged.check_repaired(&repaired.crash_at(repaired.events(), &mut |_| 0), &outcome);
    let mut seen = BTreeSet::new();
    for at in 1..repaired.events() {
        for state in states(&repaired, at, dice, &mut seen) {
            looked.images += 1;
            after_crash(damaged, &outcome, &state, dice, without, looked);
        }
        // An existing name need not be durable.
        let event = repaired.describe_event(at - 1).unwrap_or_default();
        if event.starts_with("rename") || dice.percent(5) {
            after_death(damaged, &outcome, &repaired.process_death_at(at, usize::MAX), without);
        }
    }
}

fn after_crash(
    damaged: &Damaged<'_>,
    outcome: &Outcome,
    state: &Emulator,
    dice: &Dice,
    without: Option<&str>,
    looked: &mut Looked,
) {
    damaged.check_crashed(state, outcome);
    without.into_iter().for_each(|label| state.faults().disable(label));
    repair_all(state).unwrap_or_else(|error| panic!("the second repair: {error}"));
    // Sometimes this repair crashes as well.
    if dice.percent(10) {
        let at = dice.below(state.events() as u64) as usize;
        let again = state.crash_seeded(at, dice.bits());
        damaged.check_crashed(&again, outcome);
        repair_all(&again).unwrap_or_else(|error| panic!("the third repair: {error}"));
        damaged.check_repaired(&again, outcome);
        looked.second += 1;
    }
    damaged.check_repaired(&state.crash_at(state.events(), &mut |_| 0), outcome);
}

/// The process dies during a repair, the next repair ends, and then the power fails. If the first repair was
/// complete the second has nothing to do, and the data it read may not have been durable. Then the directory is
/// damaged again, with its copy aside.
fn after_death(damaged: &Damaged<'_>, outcome: &Outcome, state: &Emulator, without: Option<&str>) {
    without.into_iter().for_each(|label| state.faults().disable(label));
    repair_all(state).unwrap_or_else(|error| panic!("the repair after a death: {error}"));
    let lost = state.crash_at(state.events(), &mut |_| 0);
    damaged.check_crashed(&lost, outcome);
    repair_all(&lost).unwrap_or_else(|error| panic!("the repair after that: {error}"));
    damaged.check_repaired(&lost, outcome);
    damaged.check_repaired(state, outcome);
}

/// Damages directories of these seeds in several ways, repairs them, without one safeguard if it is named, and
/// crashes at every event.
pub fn campaign(medium: EmulatorConfig, seeds: Range<u64>, without: Option<&str>) -> Looked {
    let mut looked = Looked::default();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in seeds {
        let whole = Whole::new(medium, seed, seed % 3 > 0);
        for round in 0..4 {
            let dice = Dice::new(seed * 1000 + round);
            let damaged = whole.damaged(&dice);
            damaged.what.iter().for_each(|what| *kinds.entry(what).or_default() += 1);
            if without.is_none() {
                println!("seed {seed}, round {round}: {:?}", damaged.what);
            }
            crash_everywhere(&damaged, &dice, without, &mut looked);
        }
    }
    println!("{looked:?} {kinds:?}");
    looked
}
