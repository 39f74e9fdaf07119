//! Fixture: a `pmlog` engine with a cache much smaller than its data. The test can block reads of the disk and
//! all writes to the log.

use crate::common::{PATIENCE, until};
use kauri_bson::{DocBuf, Value};
use kauri_medium::plain::PlainDirectory;
use kauri_medium::{Directory, DirectoryLock, Faults, Medium, MediumKind, Result, Site};
use kauri_storage::StorageEngine;
use kauri_storage_log::{Options, PmLog};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// The unit in which the cache reads.
const BLOCK: u64 = 4 << 10;
pub const SEGMENT: u32 = 1 << 20;
/// The size of two segments, because one is open for writes.
const CACHE: u64 = 512 * BLOCK;

/// The blocked reads, and whether writes are blocked.
#[derive(Default)]
pub struct Gate {
    held: Mutex<Vec<u64>>,
    changed: Condvar,
    /// All reads so far that reached a blocked position.
    arrivals: Mutex<Vec<u64>>,
    stores: Mutex<Stores>,
    changed_stores: Condvar,
}

#[derive(Default)]
struct Stores {
    held: bool,
    waiting: usize,
}

impl Gate {
    /// Blocks reads of the block that contains this file position.
    pub fn hold(&self, at: u64) {
        self.held.lock().unwrap().push(at);
        self.arrivals.lock().unwrap().retain(|came| *came != at);
    }

    pub fn release(&self, at: u64) {
        self.held.lock().unwrap().retain(|held| *held != at);
        self.changed.notify_all();
    }

    /// The number of reads that have reached this position since it was blocked.
    pub fn arrivals(&self, at: u64) -> usize {
        self.arrivals.lock().unwrap().iter().filter(|came| **came == at).count()
    }

    /// Blocks or releases writes to the log.
    pub fn hold_stores(&self, held: bool) {
        self.stores.lock().unwrap().held = held;
        self.changed_stores.notify_all();
    }

    /// The number of waiting writes.
    pub fn waiting_stores(&self) -> usize {
        self.stores.lock().unwrap().waiting
    }

    fn pass_store(&self) {
        let mut stores = self.stores.lock().unwrap();
        stores.waiting += 1;
        let held = |stores: &mut Stores| stores.held;
        stores = self.changed_stores.wait_timeout_while(stores, PATIENCE * 2, held).unwrap().0;
        stores.waiting -= 1;
    }

    fn pass(&self, offset: u64, len: u64) {
        let covers = |at: &u64| (offset..offset + len).contains(at);
        let mut held = self.held.lock().unwrap();
        self.arrivals.lock().unwrap().extend(held.iter().filter(|at| covers(at)));
        while held.iter().any(covers) {
            let (now_held, waited) = self.changed.wait_timeout(held, PATIENCE).unwrap();
            if waited.timed_out() {
                // A thread waits for this read that must not wait: let the test report it.
                return;
            }
            held = now_held;
        }
    }
}

struct HeldDirectory {
    inner: PlainDirectory,
    gate: Arc<Gate>,
}

impl HeldDirectory {
    fn wrap(&self, inner: Arc<dyn Medium>) -> Arc<dyn Medium> {
        Arc::new(HeldMedium { inner, gate: self.gate.clone() })
    }
}

impl Directory for HeldDirectory {
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn lock(&self) -> Result<DirectoryLock> {
        self.inner.lock()
    }
    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }
    fn read_file(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.inner.read_file(name)
    }
    fn replace_file(&self, name: &str, bytes: &[u8], site: Site) -> Result<()> {
        self.inner.replace_file(name, bytes, site)
    }
    fn remove_file(&self, name: &str, site: Site) -> Result<()> {
        self.inner.remove_file(name, site)
    }
    fn rename_file(&self, from: &str, to: &str, site: Site) -> Result<()> {
        self.inner.rename_file(from, to, site)
    }

    fn create_log(&self, name: &str, site: Site) -> Result<Arc<dyn Medium>> {
        Ok(self.wrap(self.inner.create_log(name, site)?))
    }
    fn open_log(&self, name: &str) -> Result<Arc<dyn Medium>> {
        Ok(self.wrap(self.inner.open_log(name)?))
    }
    fn faults(&self) -> &Arc<Faults> {
        self.inner.faults()
    }
}

struct HeldMedium {
    inner: Arc<dyn Medium>,
    gate: Arc<Gate>,
}

impl Medium for HeldMedium {
    fn kind(&self) -> MediumKind {
        self.inner.kind()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn grow(&self, new_len: u64) -> Result<()> {
        self.inner.grow(new_len)
    }
    fn store(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.gate.pass_store();
        self.inner.store(offset, parts)
    }
    fn persist(&self, offset: u64, len: u64, site: Site) -> Result<()> {
        self.inner.persist(offset, len, site)
    }
    fn drain(&self, site: Site) -> Result<()> {
        self.inner.drain(site)
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.gate.pass(offset, into.len() as u64);
        self.inner.read(offset, into)
    }
}

/// See the module's head. Dropping it stops the maintenance threads and removes the files.
pub struct ColdEngine {
    pub engine: Arc<PmLog>,
    pub gate: Arc<Gate>,
    path: PathBuf,
    stop: Arc<AtomicBool>,
    threads: Vec<(JoinHandle<()>, Box<dyn Fn() + Send + Sync>)>,
}

impl ColdEngine {
    pub fn open() -> ColdEngine {
        ColdEngine::open_within(0)
    }

    /// Opens an engine whose log has at most this many bytes.
    pub fn open_within(bytes_max: u64) -> ColdEngine {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kauri-cold-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        ColdEngine::open_at(path, bytes_max)
    }

    fn open_at(path: PathBuf, bytes_max: u64) -> ColdEngine {
        std::fs::create_dir_all(&path).unwrap();
        let gate: Arc<Gate> = Arc::default();
        let inner = PlainDirectory::open(&path).unwrap();
        let directory = HeldDirectory { inner, gate: gate.clone() };
        let (segment_bytes, cache_bytes) = (SEGMENT, CACHE);
        let options = Options { segment_bytes, cache_bytes, bytes_max, ..Options::default() };
        let engine = Arc::new(PmLog::open(Arc::new(directory), options).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let start = |mut m: kauri_storage::Maintenance| {
            let stop = stop.clone();
            (std::thread::spawn(move || (m.run)(&stop)), m.wake)
        };
        let threads = engine.maintenance().into_iter().map(start).collect();
        ColdEngine { engine, gate, path, stop, threads }
    }

    /// The files and their contents.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = std::fs::read_dir(&self.path).unwrap().flatten().map(|entry| entry.path());
        entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    }

    /// Opens a copy of the directory, made file by file.
    pub fn copy(&self) -> ColdEngine {
        let path = self.path.with_extension("copy");
        std::fs::create_dir_all(&path).unwrap();
        for file in self.files().keys().rev() {
            std::fs::copy(file, path.join(file.file_name().unwrap())).unwrap();
        }
        ColdEngine::open_at(path, 0)
    }

    /// The position in the log file of these bytes, which occur once.
    pub fn place_of(&self, bytes: &[u8]) -> u64 {
        let found = self.places_of(bytes);
        assert_eq!(found.len(), 1, "not one place");
        found[0]
    }

    /// All positions of these bytes, in ascending order.
    pub fn places_of(&self, bytes: &[u8]) -> Vec<u64> {
        self.engine.sync().unwrap();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.path).unwrap() {
            let file = std::fs::read(entry.unwrap().path()).unwrap();
            let windows = file.windows(bytes.len()).enumerate();
            found.extend(windows.filter(|(_, w)| *w == bytes).map(|(at, _)| at as u64));
        }
        found
    }

    /// A figure of the cache's statistics.
    pub fn cache(&self, name: &str) -> i64 {
        let status = DocBuf::build(|out| self.engine.write_status(out));
        let cache = status.as_doc().value("cache");
        match cache.as_document().map(|cache| cache.value(name)) {
            Some(Value::Int64(n)) => n,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Waits until the cache is within its budget.
    pub fn wait_for_eviction(&self) {
        until("within the budget", || self.cache("residentBytes") <= CACHE as i64);
    }
}

impl Drop for ColdEngine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for (thread, wake) in self.threads.drain(..) {
            wake();
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
