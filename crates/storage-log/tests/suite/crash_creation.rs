//! Crashes during the creation of a directory, and again during the next opening. The directory is then empty,
//! or its engine is. It is never rejected.

use crate::common::{emulator, open, options};
use kauri_emulator::Emulator;

/// States after a power loss during the first `events` events, all or many of them.
fn power_losses(recorded: &Emulator, events: usize) -> Vec<Emulator> {
    let some = || (0..64).map(|seed| recorded.crash_seeded(events, seed)).collect();
    recorded.crash_all_at(events, 256).unwrap_or_else(some)
}

#[test]
fn a_death_and_then_a_loss_of_power() {
    let first = emulator();
    drop(open(&first, options()));
    let mut opened = 0;
    for at in 0..=first.events() {
        let second = first.process_death_at(at, usize::MAX);
        drop(open(&second, options()));
        for again in 0..=second.events() {
            for image in power_losses(&second, again) {
                drop(open(&image, options()));
                opened += 1;
            }
        }
    }
    assert!(opened > 250, "only {opened}");
}

#[test]
fn a_loss_of_power_and_then_another() {
    let first = emulator();
    drop(open(&first, options()));
    let mut opened = 0;
    for at in 0..=first.events() {
        for second in power_losses(&first, at).into_iter().take(16) {
            drop(open(&second, options()));
            for again in 0..=second.events() {
                for image in power_losses(&second, again).into_iter().take(16) {
                    drop(open(&image, options()));
                    opened += 1;
                }
            }
        }
    }
    assert!(opened > 150, "only {opened}");
}
