//! Held files: their bytes do not change, and a copy made piece by piece opens with the engine's state.

use crate::common::{Fixture, SEGMENT_BYTES, bounded, dynamic, kilobyte, open};
use kauri_base::RecordId;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::Directory;
use kauri_medium::plain::PlainDirectory;
use kauri_storage::{Maintenance, MemoryRoom, StorageEngine, StorageError};
use kauri_storage_log::{Options, PmLog};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const LOG: &str = "pmlog.0";
const DOCUMENTS: i64 = 700;

type Files = BTreeMap<String, Vec<u8>>;

fn files(directory: &dyn Directory) -> Files {
    let names = directory.list().expect("listing");
    let read = |name: String| {
        let bytes = directory.read_file(&name).expect("reading").unwrap_or_default();
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

fn emulator_of(files: &Files) -> Emulator {
    let image = Emulator::new(EmulatorConfig::default());
    for (name, bytes) in files {
        if name == LOG {
            let log = image.create_log(LOG, "test").expect("copying");
            log.grow(bytes.len() as u64).expect("growing");
            log.store(0, &[IoSlice::new(bytes)]).expect("storing");
        } else {
            image.replace_file(name, bytes, "test").expect("copying");
        }
    }
    image
}

fn table_of(engine: &Arc<PmLog>) -> Table {
    let table = Table::new(&dynamic(engine), 10, &[TableIndex::new(20, true, "u")]);
    table.attach();
    table
}

fn documents(table: &Table) -> BTreeMap<RecordId, Vec<u8>> {
    table.records().into_iter().map(|(id, record)| (id, record.doc)).collect()
}

/// Documents of which many have been replaced, so that the cleaner has much work and a segment must be sealed.
fn filled(emulator: Emulator) -> Fixture {
    let fixture = Fixture::on(emulator, Options { live_percent_target: 80, ..bounded(60) });
    for u in 0..DOCUMENTS {
        fixture.table.insert(&doc(0, u, &kilobyte(u as u64)));
    }
    fixture.engine.flush_round().expect("sealing");
    for round in 1..=3 {
        for u in (0..DOCUMENTS).filter(|u| u % 4 != 0) {
            let id = RecordId(u as u64 + 1);
            fixture.table.update(id, &doc(round, u, &kilobyte((round * 10_000 + u) as u64)));
        }
        fixture.engine.flush_round().expect("sealing");
    }
    fixture
}

/// The work of background threads, and the engine calls of a server.
fn disturb(engine: &PmLog) {
    engine.clean_once().expect("cleaning");
    engine.flush_round().expect("a round");
    engine.flush();
    engine.sync().expect("a sync");
    let room =
        MemoryRoom { cache_bytes: 64 << 10, scarcity: 0.5, full: false, free_bytes: u64::MAX };
    engine.set_memory(room);
}

fn a_copy_in_pieces_holds_every_record(medium: EmulatorConfig) {
    let emulator = Emulator::new(medium);
    let fixture = filled(emulator.clone());
    let model = fixture.contents();
    let held = fixture.engine.hold_files().expect("holding");
    let before = files(&emulator);
    let segments = before[LOG].len() / SEGMENT_BYTES as usize;
    let mut copy = files(&emulator);
    // From the end: the cleaner refills low segments first.
    for segment in (0..segments).rev() {
        disturb(&fixture.engine);
        assert_eq!(fixture.contents(), model);
        let now = files(&emulator);
        let piece = segment * SEGMENT_BYTES as usize..(segment + 1) * SEGMENT_BYTES as usize;
        copy.get_mut(LOG).expect("the log")[piece.clone()].copy_from_slice(&now[LOG][piece]);
        let changed: Vec<_> =
            now.keys().filter(|name| before.get(*name) != now.get(*name)).collect();
        assert!(changed.is_empty() && now.len() == before.len(), "{medium:?}: {changed:?} changed");
    }
    drop(held);
    assert!(fixture.engine.clean_once().expect("cleaning"), "the cleaner had nothing to do");
    let engine = open(&emulator_of(&copy), fixture.options.clone());
    let table = table_of(&engine);
    assert_eq!(documents(&table), model);
    table.check();
}

#[test]
fn a_copy_of_files_in_pieces_holds_every_record() {
    a_copy_in_pieces_holds_every_record(EmulatorConfig::default());
}

#[test]
fn a_copy_of_persistent_memory_in_pieces_holds_every_record() {
    a_copy_in_pieces_holds_every_record(EmulatorConfig::persistent_memory());
}

#[test]
fn holds_of_files_are_counted() {
    let fixture = filled(Emulator::new(EmulatorConfig::default()));
    let (first, second) = (
        fixture.engine.hold_files().expect("holding"),
        fixture.engine.hold_files().expect("again"),
    );
    let before = files(&fixture.emulator);
    drop(first);
    disturb(&fixture.engine);
    assert_eq!(fixture.table.try_insert(&doc(0, -1, "x")), Err(StorageError::FilesHeld));
    assert!(files(&fixture.emulator) == before, "the first has let go for both");
    drop(second);
    fixture.table.insert(&doc(0, -1, "x"));
    assert!(fixture.engine.clean_once().expect("cleaning"));
}

/// Closing leaves the files as after a clean shutdown, even if a copy holds them.
#[test]
fn a_close_ends_every_hold() {
    let fixture = filled(Emulator::new(EmulatorConfig::default()));
    let model = fixture.contents();
    let held = fixture.engine.hold_files().expect("holding");
    fixture.engine.close().expect("close");
    drop(held);
    let fixture = fixture.reopen();
    assert_eq!(fixture.contents(), model);
    fixture.table.check();
    fixture.table.insert(&doc(0, -1, "x"));
}

struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kauri-held-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        TempDir(path)
    }

    fn open(&self, options: Options) -> Arc<PmLog> {
        let directory = PlainDirectory::open(&self.0).expect("the directory");
        Arc::new(PmLog::open(Arc::new(directory), options).expect("opening"))
    }

    fn files(&self) -> Files {
        let entries = std::fs::read_dir(&self.0).expect("listing").flatten();
        let read = |path: &Path| std::fs::read(path).expect("reading");
        let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
        entries.map(|entry| (name(&entry.path()), read(&entry.path()))).collect()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// With all threads active: writers are rejected from some commit on, and the copy holds all acknowledged
/// commits.
#[test]
fn a_copy_of_real_files_has_all_acknowledged_commits() {
    let (place, copy) = (TempDir::new(), TempDir::new());
    let options = Options { read_threads: 2, live_percent_target: 80, ..bounded(60) };
    let engine = place.open(options.clone());
    let table = Table::create(&dynamic(&engine), 10, &[TableIndex::new(20, true, "u")]);
    for u in 0..DOCUMENTS {
        table.insert(&doc(0, u, &kilobyte(u as u64)));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut wakes = Vec::new();
    thread::scope(|scope| {
        for Maintenance { mut run, wake, .. } in engine.maintenance() {
            let stop = stop.clone();
            wakes.push(wake);
            scope.spawn(move || run(&stop));
        }
        let (refused, refusals) = mpsc::channel();
        for writer in 0..4 {
            let (table, refused) = (&table, refused.clone());
            scope.spawn(move || {
                let mut u = 1_000_000 * (writer + 1);
                while table.try_insert(&doc(1, u, &kilobyte(u as u64))).is_ok() {
                    let id = RecordId(1 + u as u64 % DOCUMENTS as u64);
                    let old = table.record(id);
                    let mut unit = kauri_storage::WriteUnit::new();
                    let new = doc(2, id.0 as i64 - 1, &kilobyte(u as u64));
                    table.update_in(&mut unit, id, &old, &new);
                    // Another writer may have been faster.
                    let _ = table.engine.commit(&mut unit);
                    u += 1;
                }
                let inserted = u - 1_000_000 * (writer + 1);
                refused.send(inserted).expect("a test that waits");
            });
        }
        // The writers run, and the cleaner has work.
        while table.store().stats().expect("figures").records < DOCUMENTS as u64 + 400 {
            thread::yield_now();
        }
        let held = engine.hold_files().expect("holding");
        let before = place.files();
        let all: i64 = (0..4)
            .map(|_| refusals.recv_timeout(Duration::from_secs(60)).expect("a refused writer"))
            .sum();
        let model = documents(&table);
        assert_eq!(model.len() as i64, DOCUMENTS + all);
        for name in before.keys().rev() {
            wakes.iter().for_each(|wake| wake());
            std::fs::copy(place.0.join(name), copy.0.join(name)).expect("copying");
            assert_eq!(documents(&table), model);
        }
        assert!(place.files() == before, "a file has changed");
        drop(held);
        table.insert(&doc(0, -1, "x"));
        stop.store(true, Ordering::Release);
        wakes.iter().for_each(|wake| wake());
        let copied = copy.open(options.clone());
        let copied = table_of(&copied);
        assert_eq!(documents(&copied), model);
        copied.check();
    });
    engine.close().expect("close");
}
