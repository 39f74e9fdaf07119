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
