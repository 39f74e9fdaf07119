//! Crashes of members that lead and follow by turns. What opens has a prefix of the frames, has applied them up to what
//! it was told is committed, and goes on.

use super::run::{Counts, Run};
use crate::common::status;
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::Directory;
use std::collections::BTreeMap;

fn run(seed: u64, emulator: Emulator, steps: usize) -> Run {
    let mut run = Run::new(seed, emulator);
    for _ in 0..steps {
        run.step();
    }
    run
}

fn crashes(config: fn() -> EmulatorConfig, seeds: std::ops::Range<u64>) {
    let (mut images, mut moved) = (0, 0);
    let mut all = Counts::default();
    for seed in seeds {
        let run = run(seed, Emulator::new(config()), 260);
        let dice = SeededRandom::new(seed);
        let emulator = &run.own.member.emulator;
        moved += status(&run.own.member.engine, "cleaner.movedRecords");
        let events = emulator.events();
        for n in 0..10 {
            let at = if n == 0 { events } else { dice.next_u64() as usize % (events + 1) };
            let when = format!("seed {seed}, power at {at}");
            run.check(&emulator.crash_seeded(at, seed * 100 + n), at, &dice, &when);
            images += 1;
        }
        run.check(&emulator.process_death_image(), events, &dice, &format!("seed {seed}, death"));
        for n in 0..3 {
            let at = dice.next_u64() as usize % (events + 1);
            let image = emulator.process_death_at(at, dice.next_u64() as usize % 20_000);
            run.check(&image, at, &dice, &format!("seed {seed}, death {n} at {at}"));
        }
        all.add(&run.counts);
    }
    println!("{images} images, {moved} records moved, {all:?}");
    assert!(images > 100 && moved > 100, "{images} images, {moved} records moved");
    assert!(all.at_once > 20 && all.at_next_start > 20 && all.purged > 100, "{all:?}");
    assert!(all.elections > 10 && all.restarts > 20 && all.applied > 200, "{all:?}");
}

/// Crashes right after the log was cut off, with a site switched off. Answers which sites were met.
pub fn sites(without: Option<&str>) -> BTreeMap<String, u64> {
    let mut sites = BTreeMap::new();
    for seed in 1..6 {
        let emulator = Emulator::new(EmulatorConfig::default());
        without.into_iter().for_each(|site| emulator.faults().disable(site));
        let run = run(seed, emulator, 200);
        let emulator = &run.own.member.emulator;
        let dice = SeededRandom::new(seed);
        for at in &run.cuts {
            for n in 0..3 {
                run.check(
                    &emulator.crash_seeded(*at, n),
                    *at,
                    &dice,
                    &format!("{seed}, {at}, {n}"),
                );
            }
        }
        sites.extend(emulator.faults().sites_seen());
    }
    sites
}

#[test]
fn crashes_of_members_on_a_disk() {
    crashes(EmulatorConfig::default, 0..24);
}

#[test]
fn crashes_of_members_with_a_staging_file() {
    crashes(|| EmulatorConfig { staging: true, ..EmulatorConfig::default() }, 100..124);
}

#[test]
fn crashes_of_members_in_persistent_memory() {
    crashes(EmulatorConfig::persistent_memory, 200..224);
}
