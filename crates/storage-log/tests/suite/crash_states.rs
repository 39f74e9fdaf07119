//! Thousands of crash states, and all crash states of short workloads.
//!
//! `make test` checks ten thousand different media. `make crash` (`KAURI_CRASH=all`) checks a hundred thousand,
//! and the short workloads that take long. Media differ if the contents of their files differ; those of a
//! second crash do not count.

use crate::crash_target::Target;
use kauri_emulator::EmulatorConfig;
use kauri_testkit::crash::Report;
use kauri_testkit::short::{Between, Explored, Fixture, Op, explore, workloads};
use kauri_testkit::{Crashes, Run};

/// Whether to check all states.
fn all() -> bool {
    std::env::var("KAURI_CRASH").is_ok_and(|what| what == "all")
}

/// Persistent memory: lines of 64 bytes, torn by words.
fn memory() -> EmulatorConfig {
    EmulatorConfig::persistent_memory()
}

/// A disk with a staging file, which is never synced.
fn staged() -> EmulatorConfig {
    EmulatorConfig { staging: true, ..EmulatorConfig::default() }
}

/// Checks all workloads of up to `length` of these operations.
fn short(
    of: &[Op],
    length: usize,
    medium: EmulatorConfig,
    waits: &[Between],
    most: usize,
    in_recovery: usize,
) -> Explored {
    let target = Target::new(16);
    let fixture = Fixture::new(&target, medium);
    let crashes = Crashes::new(&target).in_recovery_only(in_recovery).on_one_thread();
    let workloads = workloads(of, length);
    let explored = explore(&crashes, &target, &fixture, &workloads, waits, most);
    println!(
        "workloads of up to {length} of {} operations: {} different media, {explored:?}",
        of.len(),
        crashes.images()
    );
    assert_eq!(explored.workloads + explored.idle, waits.len() * workloads.len());
    explored
}

/// On a disk every point has few states: all are checked. `make crash` also has transactions and pending units
/// among the operations, and every crash in each recovery.
#[test]
fn every_workload_of_three_operations() {
    let (of, in_recovery) =
        if all() { (&Op::ALL[..], 1 << 12) } else { (Op::without_replication(), 0) };
    let explored = short(of, 3, EmulatorConfig::default(), &Between::ALL, 1 << 12, in_recovery);
    assert_eq!(explored.sampled, 0, "points with too many states");
    assert!(explored.workloads > 5000, "{explored:?}");
    assert!(explored.points > 30_000 && explored.report.images > 30_000, "{explored:?}");
    assert!(explored.report.with_more > 3000 && explored.report.with_losses > 20_000);
}

/// Every state at every point of the recovery of every state of short workloads.
#[test]
fn every_crash_in_recovery() {
    let waits = &Between::ALL;
    let explored = short(&Op::ALL, 2, EmulatorConfig::default(), waits, 1 << 12, 1 << 12);
    assert_eq!(explored.sampled, 0);
    assert!(explored.report.images > 3000 && explored.report.second > 5000, "{explored:?}");
}

/// With a staging file each flush leaves sectors that a power loss may keep or not, so some points have too
/// many states. There each sector is lost alone and kept alone.
#[test]
fn workloads_with_a_staging_file() {
    let length = if all() { 3 } else { 2 };
    let explored = short(&Op::ALL, length, staged(), &Between::ALL, 1 << 9, 1 << 6);
    assert!(explored.sampled < explored.points / 10, "{explored:?}");
    assert!(explored.report.images > 3000 && explored.report.second > 5000, "{explored:?}");
}

/// On persistent memory, with every crash in each recovery. At points with more than 64 states each line is
/// lost alone, kept alone and torn; see also [`kauri_emulator::Emulator::crash_one_by_one_at`]. Waiting has no
/// effect there: a committed unit is durable.
#[test]
fn workloads_on_persistent_memory() {
    let length = if all() { 3 } else { 2 };
    let explored = short(&Op::ALL, length, memory(), &[Between::Nothing], 64, 64);
    assert!(explored.report.images > 3000 && explored.report.second > 5000, "{explored:?}");
    assert!(explored.sampled < explored.points && explored.report.with_losses > 3000);
}

/// The sums over seeded runs.
#[derive(Default)]
struct Sums {
    report: Report,
    threaded: usize,
    units: u64,
    collections: u64,
    builds: u64,
    moved: i64,
    refused: u64,
    transactions: u64,
    large: u64,
    pending: u64,
    resolved: u64,
}

/// The runs, repeated with different seeds: the log's segments, and the operations.
fn runs() -> Vec<(u32, Run)> {
    let run = Run::default();
    let threads = Run { threads: true, sessions: 4, steps: 4000, ..run };
    let large = EmulatorConfig { sector_bytes: 4096, ..EmulatorConfig::default() };
    let full = Run { document_bytes: 400 << 10, definitions_percent: 5, ..run };
    vec![
        (14, threads),
        (16, run),
        (14, Run { medium: large, ..threads }),
        (8, full),
        (14, Run { medium: memory(), ..threads }),
        (14, Run { medium: staged(), ..threads }),
        (16, Run { medium: staged(), ..run }),
        (16, Run { medium: memory(), close: true, ..run }),
        (8, Run { threads: true, sessions: 4, ..full }),
    ]
}

#[test]
fn thousands_of_media() {
    let wanted = if all() { 100_000 } else { 10_000 };
    let each = 500;
    let first = kauri_testkit::seed(20_261_120);
    let runs = runs();
    let target = Target::new(14);
    let counted = Crashes::new(&target);
    let mut sums = Sums::default();
    for seed in first.. {
        if counted.images() >= wanted {
            break;
        }
        let (segments, run) = &runs[(seed - first) as usize % runs.len()];
        let target = Target::new(*segments);
        let crashes = Crashes::new(&target);
        let recording = crashes.record(seed, run);
        let report = match seed % 5 {
            0 => crashes.process_deaths(&recording, seed, each),
            _ => crashes.power_losses(&recording, seed, each),
        };
        assert_eq!(report.second, 2 * report.images);
        counted.count_images_of(&crashes);
        sums.threaded += if run.threads { report.images } else { 0 };
        sums.report.add(&report);
        sums.units += recording.counts.multi_document.get();
        sums.collections += recording.counts.collections.get();
        sums.builds += recording.counts.builds.get();
        sums.refused += recording.counts.conflicts.get() + recording.counts.no_space.get();
        sums.transactions += recording.counts.transactions.get();
        sums.large += recording.counts.large.get();
        sums.pending += recording.counts.pending.get();
        sums.resolved += recording.counts.resolved.get();
        sums.moved += recording.status_number("cleaner", "movedRecords");
    }
    let Sums { report, threaded, units, collections, builds, moved, refused, .. } = sums;
    let Sums { transactions, large, pending, resolved, .. } = sums;
    println!(
        "{} different media, {threaded} of them of runs with writers in threads, {} crashed again: {} \
         lack commits, {} have more than was promised; of runs with {} commits, {units} units of many \
         documents, {collections} collections created or dropped, {builds} index builds, {moved} \
         records moved by the cleaner, {refused} units refused; {transactions} transactions, {large} units \
         longer than a segment, {pending} pending units, resolved in {resolved} steps",
        counted.images(),
        report.second,
        report.with_losses,
        report.with_more,
        report.commits,
    );
    assert!(counted.images() >= wanted && threaded > wanted / 3);
    assert!(report.with_losses > wanted / 3 && report.with_more > wanted / 5, "{report:?}");
    let runs = (wanted / each) as u64;
    assert!(units > 100 * runs && collections > 10 * runs && builds > 5 * runs);
    assert!(moved > 50 * runs as i64 && refused > 10 * runs);
    assert!(transactions > 20 * runs && large > 3 * runs);
    assert!(pending > 20 * runs && resolved > 10 * runs);
}
