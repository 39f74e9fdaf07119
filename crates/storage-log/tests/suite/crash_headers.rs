//! Crashes while segment headers are stored, once and twice. One copy of each header survives, and it is never
//! older than the previous header.

use crate::crash_target::{SEGMENT, Target, of_headers};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::Directory;
use kauri_storage_log::format::segment::{HEADER_COPY_AT, SegmentHeader};
use kauri_testkit::crash::Report;
use kauri_testkit::{Crashes, Loss, Run};

fn run(medium: EmulatorConfig) -> Run {
    Run { medium, steps: 900, ..Run::default() }
}

fn crash(medium: EmulatorConfig, loss: Loss) -> Report {
    let target = Target::new(12);
    let crashes = Crashes::new(&target).again_at(of_headers, 4);
    let recording = crashes.record(1, &run(medium));
    let report = crashes.crashes_at(&recording, loss, of_headers, 4);
    println!("{report:?}");
    assert!(report.images > 100 && report.second > 1000, "{report:?}");
    report
}

#[test]
fn power_losses_in_memory() {
    crash(EmulatorConfig::persistent_memory(), Loss::Power);
}

#[test]
fn deaths_in_memory() {
    crash(EmulatorConfig::persistent_memory(), Loss::Process);
}

#[test]
fn power_losses_on_a_disk() {
    crash(EmulatorConfig::default(), Loss::Power);
}

/// The copies of each header in an emulated log.
fn copies(image: &Emulator) -> Vec<[Option<SegmentHeader>; 2]> {
    let log = image.open_log("pmlog.0").expect("the log");
    let mut bytes = vec![0; log.len() as usize];
    log.read(0, &mut bytes).expect("reading");
    let of = |segment: &[u8]| {
        [0, HEADER_COPY_AT].map(|copy| SegmentHeader::decode(&segment[copy..], true))
    };
    bytes.chunks_exact(SEGMENT).map(of).collect()
}

/// A copy that a crash left torn or old is stored again.
#[test]
fn recovery_restores_both_copies() {
    let target = Target::new(12);
    let crashes = Crashes::new(&target);
    let recording = crashes.record(1, &run(EmulatorConfig::persistent_memory()));
    let (recorded, timeline) = (&recording.emulator, &recording.timeline);
    let (mut torn, mut outdated) = (0, 0);
    for at in 0..recorded.events() {
        if !of_headers(&recorded.describe_event(at).unwrap_or_default()) {
            continue;
        }
        let image = recorded.crash_seeded(at + 1, at as u64);
        let Ok(_) = image.open_log("pmlog.0") else { continue };
        for [first, second] in copies(&image) {
            torn += usize::from(first.is_some() != second.is_some());
            outdated += usize::from(first.is_some() && second.is_some() && first != second);
        }
        let states = timeline.promised(at + 1, Loss::Power)..=timeline.begun(at + 1);
        drop(crashes.recover(&image, timeline, states));
        for [first, second] in copies(&image) {
            assert_eq!(first, second, "after {at} events");
        }
    }
    assert!(torn > 5 && outdated > 5, "{torn} torn, {outdated} outdated");
}
