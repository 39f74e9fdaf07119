//! Crashes at any point of seeded runs. Recovery finds all promised commits and only a prefix of the commit
//! sequence. Units are complete and indexes equal a rebuild. A second crash, during or after recovery, changes
//! nothing.

use crate::crash_target::Target;
use kauri_emulator::EmulatorConfig;
use kauri_testkit::crash::Report;
use kauri_testkit::{Crashes, Run};

/// Crashes a run until there are this many different states.
fn check(name: &str, segments: u32, run: &Run, images: usize) -> Report {
    println!("{name}");
    let seed = kauri_testkit::seed(20_261_120);
    let target = Target::new(segments);
    let crashes = Crashes::new(&target);
    let recording = crashes.record(seed, run);
    let report = crashes.power_losses(&recording, seed, images);
    println!("{report:?}");
    let moved = recording.status_number("cleaner", "movedRecords");
    println!("{} different images, {moved} records moved, {:?}", report.images, recording.counts);
    assert!(report.images >= images * 95 / 100, "only {} different images", report.images);
    assert_eq!(report.second, 2 * report.images);
    // The test proves nothing if all states equal the final or the promised one.
    assert!(report.with_losses > images / 20, "{report:?}");
    // On persistent memory a unit is in progress only until its fence ends.
    let more = if run.medium.mapped { images / 60 } else { images / 20 };
    assert!(report.with_more > more, "{report:?}");
    report
}

#[test]
fn power_losses() {
    check("sectors of 512 bytes", 16, &Run::default(), 900);
}

#[test]
fn runs_cover_their_operations() {
    let target = Target::new(16);
    let crashes = Crashes::new(&target);
    let counts = crashes.record(kauri_testkit::seed(1), &Run::default()).counts;
    assert!(counts.commits.get() > 500 && counts.multi_document.get() > 100);
    assert!(counts.collections.get() > 10 && counts.builds.get() > 5);
    assert!(counts.conflicts.get() > 50 && counts.duplicates.get() > 0);
    let sites = crashes.sites_seen();
    assert!(sites.get("clean.moved.drain").is_some_and(|count| *count > 0), "{sites:?}");
    let full = Run { document_bytes: 400 << 10, definitions_percent: 5, ..Run::default() };
    let counts = Crashes::new(&Target::new(8)).record(1, &full).counts;
    assert!(counts.no_space.get() > 10, "{counts:?}");
}

/// Short runs, and all states that power losses can leave: any subset of the undrained sectors.
#[test]
fn every_power_loss_of_short_runs() {
    every_power_loss(EmulatorConfig::default(), 600);
}

/// The same for cache lines.
#[test]
fn every_power_loss_of_short_runs_on_persistent_memory() {
    every_power_loss(EmulatorConfig { tear_bytes: 64, ..memory() }, 64);
}

fn every_power_loss(medium: EmulatorConfig, most: usize) {
    let seed = kauri_testkit::seed(1);
    let target = Target::new(16);
    let mut images = 0;
    for seed in seed..seed + 15 {
        let crashes = Crashes::new(&target);
        let run = Run { medium, steps: 20, sessions: 2, document_bytes: 0, ..Run::default() };
        let recording = crashes.record(seed, &run);
        let (report, skipped) = crashes.every_power_loss(&recording, most);
        println!("{report:?}, too many states at {skipped} points");
        assert!(skipped < report.events / 2, "seed {seed}: {skipped} of {} points", report.events);
        images += report.images;
    }
    assert!(images > 150, "{images} images");
}

#[test]
fn power_losses_of_sectors_of_4096_bytes() {
    let medium = EmulatorConfig { sector_bytes: 4096, ..EmulatorConfig::default() };
    check("sectors of 4096 bytes", 16, &Run { medium, ..Run::default() }, 400);
}

#[test]
fn power_losses_of_a_log_that_is_nearly_full() {
    let run = Run { document_bytes: 400 << 10, definitions_percent: 5, ..Run::default() };
    check("nearly full", 10, &run, 400);
}

#[test]
fn power_losses_on_media_that_need_persist() {
    let medium = EmulatorConfig { persist_required: true, ..EmulatorConfig::default() };
    check("to be asked for", 16, &Run { medium, ..Run::default() }, 400);
}

/// Persistent memory, where every acknowledgement promises durability.
fn memory() -> EmulatorConfig {
    EmulatorConfig::persistent_memory()
}

#[test]
fn power_losses_of_persistent_memory() {
    check("lines, torn by words", 16, &Run { medium: memory(), ..Run::default() }, 900);
}

#[test]
fn power_losses_of_persistent_memory_that_is_nearly_full() {
    let run = Run { document_bytes: 400 << 10, definitions_percent: 5, ..Run::default() };
    check("lines, nearly full", 8, &Run { medium: memory(), ..run }, 400);
}

#[test]
fn deaths_of_the_process_on_persistent_memory() {
    let run = Run { medium: memory(), ..Run::default() };
    deaths(&run);
}

#[test]
fn power_losses_of_persistent_memory_among_threads() {
    among_threads(&Run { medium: memory(), ..Run::default() });
}

/// Commits are acknowledged once they are in the staging file; a power loss may keep any part of that file.
fn staged() -> EmulatorConfig {
    EmulatorConfig { staging: true, ..EmulatorConfig::default() }
}

#[test]
fn power_losses_with_a_staging_file() {
    let run = Run { medium: staged(), ..Run::default() };
    check("sectors of 512 bytes, staged", 16, &run, 900);
    let sectors = EmulatorConfig { sector_bytes: 4096, ..staged() };
    check("sectors of 4096 bytes, staged", 16, &Run { medium: sectors, ..run }, 300);
}

#[test]
fn power_losses_with_a_staging_file_among_threads() {
    among_threads(&Run { medium: staged(), ..Run::default() });
}

#[test]
fn deaths_of_the_process_with_a_staging_file() {
    deaths(&Run { medium: staged(), ..Run::default() });
}

/// Separate threads stage, store, and release staged entries.
#[test]
fn deaths_of_the_process_with_a_staging_file_among_threads() {
    let run = Run { threads: true, sessions: 4, steps: 4000, medium: staged(), ..Run::default() };
    let seed = kauri_testkit::seed(20_261_126);
    let target = Target::new(14);
    let crashes = Crashes::new(&target);
    for seed in seed..seed + 3 {
        let report = crashes.process_deaths(&crashes.record(seed, &run), seed, 300);
        println!("{report:?}");
        assert!(report.images > 270 && report.with_losses > 25, "{report:?}");
    }
}

#[test]
fn commits_are_staged_and_stored() {
    let crashes = Target::new(16);
    let crashes = Crashes::new(&crashes);
    let recording = crashes.record(1, &Run { medium: staged(), ..Run::default() });
    let number = |name| recording.status_number("log", name);
    let (staged, flushes, bytes) = (number("staged"), number("flushes"), number("recordBytes"));
    // The file is too small for all commits, so it is reused repeatedly.
    assert!(staged > 100 && flushes > 20 && bytes > 20 * (16 << 10), "{staged} {flushes} {bytes}");
}

#[test]
fn power_losses_among_threads() {
    among_threads(&Run::default());
}

fn among_threads(run: &Run) {
    let run = Run { threads: true, sessions: 4, steps: 4000, ..*run };
    let seed = kauri_testkit::seed(20_261_120);
    let target = Target::new(14);
    let crashes = Crashes::new(&target);
    let (mut images, mut moved, mut losses, mut more) = (0, 0, 0, 0);
    let (mut units, mut collections, mut builds) = (0, 0, 0);
    for seed in seed..seed + 3 {
        let recording = crashes.record(seed, &run);
        let report = crashes.power_losses(&recording, seed, 400);
        println!("{report:?}");
        assert_eq!(report.second, 2 * report.images);
        images += report.images;
        losses += report.with_losses;
        more += report.with_more;
        moved += recording.status_number("cleaner", "movedRecords");
        units += recording.counts.multi_document.get();
        collections += recording.counts.collections.get();
        builds += recording.counts.builds.get();
    }
    println!(
        "{images} different images, {losses} lack commits and {more} have more than was promised; of \
         runs with {units} units of many documents, {collections} collections created or dropped, \
         {builds} index builds, {moved} records moved by the cleaner"
    );
    assert!(images >= 1000 && losses > 50 && more > 50);
    assert!(units > 100 && collections > 20 && builds > 10 && moved > 50);
}

#[test]
fn power_losses_around_a_clean_shutdown() {
    let run = Run { steps: 300, close: true, ..Run::default() };
    check("shutdown", 16, &run, 200);
}

#[test]
fn deaths_of_the_process() {
    deaths(&Run::default());
}

fn deaths(run: &Run) {
    let seed = kauri_testkit::seed(7);
    let target = Target::new(14);
    let crashes = Crashes::new(&target);
    let recording = crashes.record(seed, run);
    let report = crashes.process_deaths(&recording, seed, 300);
    println!("{report:?}");
    assert!(report.images >= 290, "only {} different images", report.images);
    assert!(report.with_losses > 50 && report.second >= 580, "{report:?}");
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let target = Target::new(12);
    let record = |seed| {
        let recording = Crashes::new(&target).record(seed, &Run::default());
        let emulator = &recording.emulator;
        (emulator.events(), emulator.content_hash(), recording.timeline.end())
    };
    assert_eq!(record(5), record(5));
    assert_ne!(record(5), record(6));
}
