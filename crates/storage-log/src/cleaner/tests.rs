//! What depends on when others act.

use super::*;
use crate::options::Options;
use crate::recovery;
use kauri_base::{CollectionId, RecordId};
use kauri_medium::emulator::{Emulator, EmulatorConfig};
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
    let prepared_ever = lock(&core.head).prepared_ever();
    std::thread::scope(|scope| {
        // The writer comes by here when it has found no segment, before it looks for victims.
        let sealing = lock(&core.sealing);
        let writer = scope.spawn(|| core.clean_for(Purpose::Write, prepared_ever));
        while core.acks.stored() < core.visible().0 {
            std::thread::yield_now();
        }
        taken.iter().for_each(|segment| core.segments.free(*segment));
        drop(sealing);
        assert_eq!(writer.join().expect("no panic"), Ok(()));
    });
    assert_eq!(lock(&core.head).prepared_ever(), prepared_ever + 1);
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
