//! Staging together with storing, step by step.

use crate::core::Core;
use crate::hooked::{Hook, Hooked};
use crate::options::Options;
use crate::recovery;
use crate::staging::bytes_for;
use kauri_base::sync::Arc;
use kauri_base::{CollectionId, RecordId};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::Directory;
use kauri_storage::{OpKind, WriteUnit};

const STORE: CollectionId = CollectionId(10);

fn open(directory: Arc<dyn Directory>) -> Arc<Core> {
    let options = Options {
        segment_bytes: 256 << 10,
        cache_bytes: 512 << 10,
        read_threads: 0,
        ..Options::default()
    };
    recovery::open(directory, options).expect("opening")
}

fn open_hooked() -> (Arc<Core>, Emulator, Hook) {
    let emulator = Emulator::new(EmulatorConfig { staging: true, ..EmulatorConfig::default() });
    let hooked = Hooked::new(emulator.clone());
    let hook = hooked.stored.clone();
    let core = open(Arc::new(hooked));
    let mut unit = WriteUnit::new();
    unit.push(STORE, RecordId(0), OpKind::CreateStore);
    core.commit(&mut unit).expect("creating");
    core.flush_now().expect("storing");
    (core, emulator, hook)
}

fn insert(core: &Core, bytes: usize) {
    let mut unit = WriteUnit::new();
    unit.insert(STORE, vec![7; bytes]);
    core.commit(&mut unit).expect("a commit");
}

/// The last commit that is there when the process dies now.
fn left(emulator: &Emulator) -> u64 {
    open(Arc::new(emulator.process_death_image())).visible().0
}

#[test]
fn what_is_staged_is_there_when_the_process_dies() {
    let (core, emulator, _) = open_hooked();
    let before = core.visible().0;
    insert(&core, 900);
    assert_eq!(left(&emulator), before, "it is nowhere but in memory");
    assert!(core.stage());
    assert_eq!((left(&emulator), core.acks.written()), (before + 1, before + 1));
}

#[test]
fn entries_that_are_put_while_the_log_is_stored_to_are_kept() {
    let (core, emulator, hook) = open_hooked();
    insert(&core, 900);
    let beside = core.clone();
    *hook.lock().expect("the hook") = Some(Box::new(move || {
        insert(&beside, 4000);
        assert!(beside.stage());
    }));
    core.flush_now().expect("storing");
    assert!(hook.lock().expect("the hook").is_none(), "stored");
    // Round the file, as long as there is room.
    let mut staged = 0;
    while core.stage() && staged < 100 {
        assert_eq!(left(&emulator), core.acks.written());
        insert(&core, 2000);
        staged += 1;
    }
    assert!((5..20).contains(&staged), "{staged} times 2 KB in 32 KB");
    // Storing makes room.
    core.flush_now().expect("storing");
    insert(&core, 2000);
    assert!(core.stage());
    assert_eq!(left(&emulator), core.visible().0);
}

#[test]
fn after_a_segment_that_another_is_about_to_store_nothing_is_staged() {
    let (core, emulator, _) = open_hooked();
    let epoch = |core: &Core| core.head.position().epoch;
    let first = epoch(&core);
    while epoch(&core) == first {
        insert(&core, 30 << 10);
    }
    // As who stores does it first.
    let mut taken = Vec::new();
    core.head.take_full(&mut taken);
    assert_eq!(taken.len(), 1);
    assert!(!core.stage(), "what is in the full segment is not with the kernel");
    for full in &taken {
        full.storer().store_pending("commit.persist").expect("storing");
    }
    core.flush_now().expect("storing");
    insert(&core, 900);
    assert!(core.stage());
    assert_eq!(left(&emulator), core.visible().0);
}

#[test]
fn staging_goes_on_in_the_next_segment() {
    let (core, emulator, _) = open_hooked();
    let epoch = |core: &Core| core.head.position().epoch;
    let first = epoch(&core);
    let mut staged_over_the_end = 0;
    for _ in 0..200 {
        let before = epoch(&core);
        insert(&core, 3000);
        if core.stage() {
            staged_over_the_end += usize::from(epoch(&core) != before);
        } else {
            core.flush_now().expect("storing");
        }
        assert_eq!(left(&emulator), core.visible().0);
    }
    assert!(epoch(&core) > first + 1 && staged_over_the_end > 0, "{staged_over_the_end}");
}

#[test]
fn its_size_follows_from_the_log_and_the_memory() {
    let bytes = |bytes_max, cache_bytes| {
        bytes_for(&Options { bytes_max, cache_bytes, ..Options::default() })
    };
    assert_eq!(bytes(0, 1 << 30), 4 << 20);
    assert_eq!(bytes(4 << 30, 1 << 30), 2 << 20);
    assert_eq!(bytes(100 << 30, 1 << 30), 4 << 20);
    assert_eq!(bytes(100 << 20, 1 << 30), 1 << 20);
    assert_eq!(bytes(100 << 20, 8 << 20), 512 << 10);
    assert_eq!(bytes(0, 200 << 10), 0);
}
