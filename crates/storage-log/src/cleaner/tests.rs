//! Cases that depend on the timing of other threads.

use super::*;
use crate::cleaning::Work;
use crate::options::Options;
use crate::recovery;
use kauri_base::{CollectionId, RecordId};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_storage::{OpKind, WriteUnit};

/// A writer finds no segment, and by the time that it looks for something to clean somebody else has
/// freed the last that it could have: it has to look for a segment once more.
#[test]
fn what_others_free_meanwhile_is_not_overlooked() {
    let options = Options {
        segment_bytes: 64 << 10,
        cache_bytes: 256 << 10,
        bytes_max: 8 * (64 << 10),
        read_threads: 0,
        ..Options::default()
    };
    let emulator = Emulator::new(EmulatorConfig::default());
    let core = recovery::open(Arc::new(emulator), options).expect("opening");
    let mut unit = WriteUnit::new();
    unit.push(CollectionId(10), RecordId(0), OpKind::CreateStore);
    core.commit(&mut unit).expect("a commit");
    let taken: Vec<_> =
        std::iter::from_fn(|| core.segments.take(Purpose::Clean).ok()).map(|t| t.segment).collect();
    assert!(taken.len() > 4 && core.acks.stored() < core.visible().0);
    let prepared_ever = core.head.prepared_ever();
    std::thread::scope(|scope| {
        // The writer comes by here when it has found no segment, before it looks for victims.
        let sealing = core.flushing.lock_sealing();
        let writer = scope.spawn(|| core.clean_for(Purpose::Write, prepared_ever));
        while core.acks.stored() < core.visible().0 {
            std::thread::yield_now();
        }
        taken.iter().for_each(|segment| core.segments.free(*segment));
        drop(sealing);
        assert_eq!(writer.join().expect("no panic"), Ok(()));
    });
    assert_eq!(core.head.prepared_ever(), prepared_ever + 1);
}

/// Where all that counts would fit into the cache, and the cleaner is at work, writers that fill it with what
/// they replace are held up, and only then.
#[test]
fn who_fills_the_cache_with_garbage_waits_for_the_cleaner() {
    const STORE: CollectionId = CollectionId(10);
    // One time all of them and a third of them fit into a segment.
    const DOCUMENTS: u64 = 40;
    let options = Options {
        segment_bytes: 64 << 10,
        cache_bytes: 10 * (64 << 10),
        read_threads: 0,
        ..Options::default()
    };
    let emulator = Emulator::new(EmulatorConfig::default());
    let core = recovery::open(Arc::new(emulator), options).expect("opening");
    let commit = |change: &dyn Fn(&mut WriteUnit<'static>)| {
        let mut unit = WriteUnit::new();
        change(&mut unit);
        let ticket = core.commit(&mut unit).expect("a commit");
        core.flush();
        ticket.seq
    };
    commit(&|unit| {
        unit.push(STORE, RecordId(0), OpKind::CreateStore);
    });
    let inserted = commit(&|unit| {
        for _ in 0..DOCUMENTS {
            unit.insert(STORE, vec![7; 1000]);
        }
    });
    let mut seen = vec![inserted; DOCUMENTS as usize];
    // Answers whether the writer is let go at once.
    let mut replace = |documents: u64| {
        let seq = commit(&|unit| {
            (1..=documents).zip(&seen).for_each(|(id, seen)| {
                unit.update(STORE, RecordId(id), *seen, vec![8; 1000]);
            });
        });
        seen[..documents as usize].fill(seq);
        core.acks.written() == core.acks.stored()
    };
    while core.cache.resident() < core.cache.budget() / 100 * 97 {
        assert!(replace(DOCUMENTS), "nobody is at work who could be waited for");
        core.flush_round().expect("sealing");
    }
    assert_eq!(core.room_scarcity(), 0.0);
    // Nor for a cleaner that finds nothing to empty.
    let all = || (0..core.segments.usage().count).map(|number| core.segments.get(number));
    let sealed: Vec<_> = all().filter(|segment| segment.state() == State::Sealed).collect();
    sealed.iter().for_each(|segment| segment.set_state(State::Damaged));
    assert_ne!(core.urgency(), Urgency::None);
    assert_eq!(core.clean_once(), Ok(false));
    assert_eq!(core.room_scarcity(), 0.0);
    sealed.iter().for_each(|segment| segment.set_state(State::Sealed));
    std::thread::scope(|scope| {
        // The cleaner waits here before it gives anything back.
        let syncing = core.flushing.lock_syncing();
        let cleaner = scope.spawn(|| core.clean_once());
        let began = std::time::Instant::now();
        while core.room_scarcity() == 0.0 {
            assert!(began.elapsed().as_secs() < 20, "the cleaner is not waited for");
            std::thread::yield_now();
        }
        assert!(!replace(DOCUMENTS / 3), "not held");
        drop(syncing);
        assert_eq!(cleaner.join().expect("no panic"), Ok(true));
    });
    while core.clean_once().expect("cleaning") {}
    assert!(core.cache.resident() < core.cache.budget() / 2);
    assert_eq!(core.room_scarcity(), 0.0);
    assert!(replace(DOCUMENTS));
    // Nobody gives back anything of a cache that is full while the cleaner has nothing to do.
    (0..3).for_each(|_| assert!(replace(DOCUMENTS)));
    core.cache.set_budget(core.cache.resident() + (16 << 10));
    assert_eq!(core.room_scarcity(), 0.0);
    core.memory.set_cleaning(true);
    assert!(core.room_scarcity() > 0.9);
}

/// In turn: what cleaning took and gave, and whether somebody who needs room should go on.
#[test]
fn cleaning_is_given_up_when_it_gains_nothing() {
    const ROOM: u64 = 1000;
    let work = |emptied, moved_of_each, gap_of_each| Work {
        emptied,
        moved: emptied * moved_of_each,
        gaps: emptied * gap_of_each,
    };
    let cases = [
        ("nothing done", work(0, 0, 0), false),
        ("too early to say", work(15, 600, 400), false),
        ("large records leave gaps wherever they are", work(16, 600, 400), true),
        ("the last gaps are not known yet", work(16, 600, 340), true),
        ("half dead", work(16, 500, 10), false),
        ("85 % live", work(10_000, 850, 5), false),
        ("98 % live, early", work(127, 980, 5), false),
        ("98 % live", work(128, 980, 5), false),
        ("98 % live, for long", work(10_000, 980, 5), false),
        ("the same around and around", work(128, 995, 5), true),
        ("next to nothing", work(10_000, 990, 5), true),
        ("gaps as before", work(10_000, 800, 250), true),
    ];
    for (what, work, expected) in cases {
        assert_eq!(work.is_hopeless(ROOM), expected, "{what}");
    }
}
