//! A medium that fails once, at each I/O of the workloads. The engine reports an error or stops, and never
//! returns a wrong result. All acknowledged commits survive.

use crate::crash_target::Target;
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::faults::Fault;
use kauri_medium::{Directory, IoKind};
use kauri_testkit::Crashes;
use kauri_testkit::history::Loss;
use kauri_testkit::short::{Between, Fixture, Op};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// All kinds of operations.
const WORK: [Op; 22] = [
    Op::Insert,
    Op::Create,
    Op::Unit,
    Op::Clean,
    Op::BuildIndex,
    Op::Update,
    Op::Sync,
    Op::Restart,
    Op::Delete,
    Op::Append,
    Op::Transaction,
    Op::CommitPending,
    Op::Append,
    Op::Round,
    Op::DropIndex,
    Op::Clean,
    Op::Insert,
    Op::Drop,
    Op::Restart,
    Op::Truncate,
    Op::Transaction,
    Op::Update,
];

#[derive(Default, Debug)]
struct Found {
    /// Faults that occurred.
    faults: usize,
    /// Of these: the directory could not be opened at first.
    not_opened: usize,
    /// Operations that ended with an error.
    errors: usize,
    /// Runs in which the engine continued unaffected.
    unharmed: usize,
}

fn sweep(medium: EmulatorConfig, between: Between) -> Found {
    let target = Target::new(16);
    let fixture = Fixture::new(&target, medium);
    let crashes = Crashes::new(&target);
    let counts = RefCell::new(None);
    let whole = fixture.perform(&target, &WORK, between, |emulator| {
        emulator.faults().watch();
        *counts.borrow_mut() = Some(emulator.clone());
    });
    let whole = whole.unwrap_or_else(|error| panic!("without faults: {error}"));
    assert_eq!((whole.idle, whole.error), (None, None), "without faults");
    let watched = counts.borrow_mut().take().expect("an emulator");
    let io: BTreeMap<IoKind, u64> =
        IoKind::ALL.into_iter().map(|kind| (kind, watched.faults().io_count(kind))).collect();
    println!("{io:?}");
    // Stores to memory have no call that could fail.
    assert!(IoKind::ALL.iter().all(|kind| io[kind] > 0 || *kind == IoKind::Store), "{io:?}");
    let mut found = Found::default();
    for (kind, count) in io {
        for index in 0..count {
            for fault in [Fault::Eio, Fault::Enospc] {
                let inject = |emulator: &Emulator| emulator.faults().inject(kind, index, 1, fault);
                found.faults += 1;
                match fixture.perform(&target, &WORK, between, inject) {
                    Err(error) => {
                        assert!(!error.message().is_empty());
                        found.not_opened += 1;
                    }
                    Ok(done) => {
                        match done.error {
                            Some(_) => found.errors += 1,
                            None => found.unharmed += 1,
                        }
                        let (emulator, timeline) =
                            (&done.recording.emulator, &done.recording.timeline);
                        let events = emulator.events();
                        println!("{fault:?} at {kind:?} {index}");
                        for (image, loss) in [
                            (emulator.process_death_image(), Loss::Process),
                            (emulator.crash_seeded(events, index), Loss::Power),
                            (emulator.crash_at(events, &mut |_| 0), Loss::Power),
                        ] {
                            let states = timeline.promised(events, loss)..=timeline.begun(events);
                            crashes.recover(&image, timeline, states);
                        }
                    }
                }
            }
        }
    }
    println!("{found:?}");
    found
}

#[test]
fn at_every_io_of_a_disk() {
    for between in [Between::Nothing, Between::Sync] {
        let found = sweep(EmulatorConfig::default(), between);
        assert!(found.faults > 200 && found.errors > 100 && found.not_opened > 5, "{found:?}");
        assert_eq!(found.faults, found.errors + found.not_opened + found.unharmed);
    }
}

#[test]
fn at_every_io_of_persistent_memory() {
    let found = sweep(EmulatorConfig::persistent_memory(), Between::Nothing);
    assert!(found.errors > 20 && found.not_opened > 5, "{found:?}");
}
