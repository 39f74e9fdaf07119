//! Commits that are stopped halfway, which no thread can do from outside.

use super::*;
use crate::options::Options;
use crate::recovery;
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use kauri_base::{CollectionId, CommitSeq, RecordId};
use kauri_emulator::{Emulator, EmulatorConfig};

const STORE: CollectionId = CollectionId(10);

fn open(emulator: &Emulator) -> Arc<Core> {
    let options = Options {
        segment_bytes: 64 << 10,
        cache_bytes: 256 << 10,
        read_threads: 0,
        // Nothing happens by itself.
        commit_interval_ms: 1 << 30,
        ..Options::default()
    };
    recovery::open(Arc::new(emulator.clone()), options).expect("opening")
}

/// Some bytes; whether they are a document is not looked at here.
fn document(fill: u8) -> Vec<u8> {
    vec![fill; 900]
}

fn commit(core: &Core, change: impl FnOnce(&mut WriteUnit<'static>)) -> CommitSeq {
    let mut unit = WriteUnit::new();
    change(&mut unit);
    core.commit(&mut unit).expect("a commit").seq
}

/// Does all of a commit but its publication.
fn commit_unpublished<'c>(
    core: &'c Core,
    unit: &mut WriteUnit<'static>,
    scratch: &mut Scratch,
) -> Appended<'c> {
    let Scratch { guard, plan } = scratch;
    guard.enter();
    plan.make(core, unit).expect("a plan");
    plan.look_up(core, unit, guard).expect("known records");
    let latched = plan.latched();
    let _latches = latched.latch();
    assert!(plan.check(core, unit, guard).is_ok());
    let Ok(appended) = core.append(unit, plan) else { panic!("no room") };
    plan.apply(core, unit, guard, appended.seq);
    appended
}

fn live_record(core: &Core, id: u64) -> Option<u8> {
    let store = core.registry.store(STORE)?;
    let mut guard = core.domain.register();
    guard.enter();
    loop {
        match crate::read::document(core, &guard, &store, RecordId(id)).expect("reading") {
            kauri_base::Access::Ready(crate::read::Lookup::Found((_, bytes))) => {
                return bytes.first().copied();
            }
            kauri_base::Access::Ready(crate::read::Lookup::Nothing) => return None,
            kauri_base::Access::WouldBlock(ticket) => ticket.wait().expect("reading"),
        }
    }
}

/// A writer has appended its unit and switched the slots, but not published it yet. By then the
/// cleaner may take the version before for dead, and give its segment away after the next drain: so
/// that drain has to cover the unit.
#[test]
fn what_the_cleaner_takes_for_dead_is_replaced_durably() {
    let emulator = Emulator::new(EmulatorConfig::default());
    let core = open(&emulator);
    commit(&core, |unit| {
        unit.push(STORE, RecordId(0), OpKind::CreateStore);
    });
    let inserted: Vec<_> = (0..200)
        .map(|n| {
            commit(&core, |unit| {
                unit.insert(STORE, document(n as u8));
            })
        })
        .collect();
    core.flush_round().expect("sealing");
    let slots = &core.registry.store(STORE).expect("the store").slots;
    let mut guard = core.domain.register();
    guard.enter();
    let segment_of = |id: u64| slots.load(&guard, id).address().segment;
    let victim = segment_of(100);
    let others: Vec<u64> = (1..=200).filter(|id| *id != 100 && segment_of(*id) == victim).collect();
    guard.leave();
    assert!(
        others.len() > 20 && core.segments.get(victim).state() == crate::segments::State::Sealed
    );
    for id in others {
        commit(&core, |unit| {
            let seen = inserted[id as usize - 1];
            unit.update(STORE, RecordId(id), seen, document(0xee));
        });
    }
    core.flush_round().expect("sync");

    let mut unit = WriteUnit::new();
    unit.update(STORE, RecordId(100), inserted[99], document(0xff));
    let mut scratch = core.scratches.take(&core.domain);
    let appended = commit_unpublished(&core, &mut unit, &mut scratch);
    assert_eq!(core.visible().0, appended.seq - 1);
    assert!(core.clean_once().expect("cleaning"), "the victim holds nothing that counts");
    assert_eq!(core.segments.get(victim).state(), crate::segments::State::Emptying);
    // From here on the victim may be overwritten as soon as the writer has left.
    let image = emulator.crash_at(emulator.events(), &mut |_| 0);
    assert_eq!(live_record(&open(&image), 100), Some(0xff), "only the old version is durable");
    core.head.publish(appended).expect("publishing");
    scratch.guard.leave();
    assert_eq!(live_record(&core, 100), Some(0xff));
}

/// An engine with one document, and the commit that inserted it.
fn with_a_document() -> (Arc<Core>, CommitSeq) {
    let core = open(&Emulator::new(EmulatorConfig::default()));
    commit(&core, |unit| {
        unit.push(STORE, RecordId(0), OpKind::CreateStore);
    });
    let seen = commit(&core, |unit| {
        unit.insert(STORE, document(1));
    });
    (core, seen)
}

/// A unit has its number and is not applied yet when a snapshot is taken that is to show it.
#[test]
fn a_snapshot_waits_for_units_that_have_their_number() {
    let (core, seen) = with_a_document();
    let mut unit = WriteUnit::new();
    unit.update(STORE, RecordId(1), seen, document(2));
    let Scratch { mut guard, mut plan } = core.scratches.take(&core.domain);
    guard.enter();
    plan.make(&core, &unit).expect("a plan");
    plan.look_up(&core, &unit, &mut guard).expect("known records");
    let Ok(appended) = core.append(&unit, &mut plan) else { panic!("no room") };
    let seq = appended.seq;
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let hold = core.hold().expect("holding");
            (hold.seq, live_record(&core, 1), hold)
        });
        while core.snapshots.stats().held == 0 {
            kauri_base::sync::thread::yield_now();
        }
        plan.apply(&core, &mut unit, &guard, seq);
        core.head.publish(appended).expect("publishing");
        let (shows, found, hold) = holder.join().expect("the holder");
        assert_eq!((shows, found), (seq, Some(2)), "it shows a commit, but not what that changed");
        core.release(hold);
    });
}

/// Its number would keep all later commits from becoming visible.
#[test]
fn a_unit_that_is_appended_and_not_published_ends_the_engine() {
    let (core, seen) = with_a_document();
    let mut unit = WriteUnit::new();
    unit.update(STORE, RecordId(1), seen, document(2));
    let mut scratch = core.scratches.take(&core.domain);
    let appended = commit_unpublished(&core, &mut unit, &mut scratch);
    scratch.guard.leave();
    assert!(core.check_alive().is_ok());
    drop(appended);
    assert!(core.check_alive().is_err());
    let mut later = WriteUnit::new();
    later.insert(STORE, document(3));
    assert!(matches!(core.commit(&mut later), Err(StorageError::Io(_))));
    assert_eq!(core.visible(), seen);
}

/// A commit becomes visible after the one before it, and never if that can't become visible any more.
#[test]
fn commits_become_visible_in_the_order_of_their_numbers() {
    let (core, seen) = with_a_document();
    let mut first = WriteUnit::new();
    first.update(STORE, RecordId(1), seen, document(2));
    let mut second = WriteUnit::new();
    second.insert(STORE, document(3));
    let [mut scratch, mut other] = [0, 1].map(|_| core.scratches.take(&core.domain));
    let appended = commit_unpublished(&core, &mut first, &mut scratch);
    scratch.guard.leave();
    let later = commit_unpublished(&core, &mut second, &mut other);
    other.guard.leave();
    drop(appended);
    assert!(matches!(core.head.publish(later), Err(StorageError::Io(_))));
    assert_eq!(core.visible(), seen);
}

/// A unit that gets its number after a snapshot was taken keeps what that needs, one that had its
/// number before keeps nothing, whichever of them is applied when.
#[test]
fn units_keep_versions_for_the_snapshots_before_them() {
    let (core, seen) = with_a_document();
    let hold = core.hold().expect("holding");
    let seen = commit(&core, |unit| {
        unit.update(STORE, RecordId(1), seen, document(2));
    });
    assert_eq!(core.snapshots.stats().kept, 1);
    let mut unit = WriteUnit::new();
    unit.update(STORE, RecordId(1), seen, document(3));
    let mut scratch = core.scratches.take(&core.domain);
    // Between the number and its use the snapshot goes.
    let appended = {
        let Scratch { guard, plan } = &mut scratch;
        guard.enter();
        plan.make(&core, &unit).expect("a plan");
        plan.look_up(&core, &unit, guard).expect("known records");
        let Ok(appended) = core.append(&unit, plan) else { panic!("no room") };
        core.release(hold);
        plan.apply(&core, &mut unit, guard, appended.seq);
        appended
    };
    core.head.publish(appended).expect("publishing");
    scratch.guard.leave();
    assert_eq!(core.snapshots.stats().kept, 0);
    assert_eq!(live_record(&core, 1), Some(3));
}

#[test]
fn who_flushes_does_not_do_so_for_others_for_ever() {
    let emulator = Emulator::new(EmulatorConfig::default());
    let core = open(&emulator);
    commit(&core, |unit| {
        unit.push(STORE, RecordId(0), OpKind::CreateStore);
    });
    // As if somebody asked for more whenever something has been stored.
    core.flushing.set_asked(u64::MAX);
    core.acks.set_flusher_runs(true);
    let before = core.counters.flushes.get();
    core.flush();
    assert!(core.acks.stored() >= core.visible().0);
    assert!((1..10).contains(&(core.counters.flushes.get() - before)));
    // The flusher has been told.
    let began = std::time::Instant::now();
    core.acks.wait_for_wake(std::time::Duration::from_secs(60));
    assert!(began.elapsed() < std::time::Duration::from_secs(30));
    // And does what is left: here a commit that nobody else will store.
    let CommitSeq(seq) = commit(&core, |unit| {
        unit.insert(STORE, document(1));
    });
    core.flushing.set_asked(seq);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    std::thread::scope(|scope| {
        scope.spawn(|| core.run_flusher(&stop));
        while core.acks.stored() < seq && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        let stored = core.acks.stored();
        stop.store(true, Ordering::Release);
        core.acks.wake_flusher();
        assert!(stored >= seq, "the flusher stores for nobody");
    });
}
