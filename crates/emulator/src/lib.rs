//! Storage in memory that may lose unsynced data.
//!
//! An [`Emulator`] is a data directory that records every change. A test runs a workload on it, then asks for the
//! possible states after a power loss at any moment. It opens each as an emulator, recovers, and checks the
//! promises. Recovery is recorded, too, so the test can crash again there.
//!
//! The model (see [`crash`]): stores, lengths and names since the last drain or sync that covers them may exist or
//! not, in any combination, torn at the sector; drained ones exist. A drain covers everything stored when it began;
//! other threads run during it. After a failed drain its sectors are readable and never durable, as on Linux. The
//! death of the process alone loses no stored data. Persistent memory ([`EmulatorConfig::persistent_memory`]) is
//! the same model with lines for sectors; a fence covers the stores of its own thread.
//!
//! Deterministic: the same trace and seed give the same images. An event's number is its position in the trace. A
//! test that notes [`Emulator::events`] after an acknowledgement knows at which crash points the acknowledgement
//! counts.
//!
//! Position: above `medium`, whose contracts ([`Directory`](kauri_medium::Directory), [`Medium`]) it implements.
//! For tests only. Must not know the contents of files.

#![deny(missing_docs)]

pub mod crash;
mod directory;
mod disk;
mod images;
mod mapped;
mod pages;
mod trace;

pub use crash::{About, Choice, Chooser};
use disk::Disk;
pub use images::{CrashImage, CrashImages};
use kauri_base::sync::atomic::{AtomicBool, Ordering};
use kauri_base::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use kauri_medium::dax::ObservedMemory;
use kauri_medium::plain_file::GROW_DRAIN;
use kauri_medium::{Error, Faults, IoKind, Mapped, Medium, MediumKind, Result, Site};
use std::collections::BTreeMap;
use std::io::IoSlice;
use trace::{Event, FileId};

/// The options of an emulator.
#[derive(Clone, Copy, Debug)]
pub struct EmulatorConfig {
    /// The atomic unit of writes: 512 or 4096 like disks, 64 like a cache line.
    pub sector_bytes: usize,
    /// The fragments of an undurable sector: 8 like words in persistent memory. By default, and from a sector's
    /// size on, a sector is never torn.
    pub tear_bytes: usize,
    /// Whether a drain makes durable only what [`Medium::persist`] was called for, as on DAX.
    pub persist_required: bool,
    /// Whether the log files are memory ([`Medium::mapped`]).
    pub mapped: bool,
    /// Whether there is memory that outlives the process ([`kauri_medium::Staging`]).
    pub staging: bool,
    /// Bytes that the files may have together; log files that would need more can't grow.
    pub capacity_bytes: u64,
}

impl Default for EmulatorConfig {
    fn default() -> Self {
        EmulatorConfig {
            sector_bytes: 512,
            tear_bytes: usize::MAX,
            persist_required: false,
            mapped: false,
            staging: false,
            capacity_bytes: u64::MAX,
        }
    }
}

impl EmulatorConfig {
    /// Persistent memory: lines of 64 bytes, torn at 8, of which any may be there that were stored and
    /// not fenced by the thread that stored them. Small files are on its file system all the same.
    pub fn persistent_memory() -> Self {
        EmulatorConfig {
            sector_bytes: 64,
            tear_bytes: 8,
            persist_required: true,
            mapped: true,
            ..EmulatorConfig::default()
        }
    }
}

/// Events between disks that are remembered.
const REMEMBERED_EVENTS: usize = 256;

struct State {
    /// After the last.
    disk: Disk,
    trace: Vec<Event>,
    /// Disks after so many events, for those who go back: before the first, and see [`State::disk_at`].
    remembered: BTreeMap<usize, Disk>,
    next_file: FileId,
    locked: bool,
    drains_held: usize,
    /// Memory of the mapped log files.
    mappings: BTreeMap<FileId, Weak<ObservedMemory>>,
}

struct World {
    config: EmulatorConfig,
    faults: Arc<Faults>,
    state: Mutex<State>,
    /// Signalled when drains are let go.
    let_go: Condvar,
}

/// A lock whose holder panicked is as good as any: events are applied whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An emulated data directory. Clones are handles to the same one.
#[derive(Clone)]
pub struct Emulator {
    world: Arc<World>,
}

impl Emulator {
    /// An empty directory.
    pub fn new(config: EmulatorConfig) -> Self {
        let disk = Disk::new(&config);
        Emulator::with_disk(config, disk, 1)
    }

    /// A directory that is found like this, with nothing that could still be lost.
    fn with_disk(config: EmulatorConfig, disk: Disk, next_file: FileId) -> Self {
        Emulator::with_trace(config, disk.clone(), Vec::new(), disk, next_file)
    }

    /// A directory that was `base` before the events of `trace` and is `disk` since.
    fn with_trace(
        config: EmulatorConfig,
        base: Disk,
        trace: Vec<Event>,
        disk: Disk,
        next_file: FileId,
    ) -> Self {
        let faults = Arc::new(Faults::new());
        faults.watch();
        let remembered = BTreeMap::from([(0, base), (trace.len(), disk.clone())]);
        let state = State {
            disk,
            trace,
            remembered,
            next_file,
            locked: false,
            drains_held: 0,
            mappings: BTreeMap::new(),
        };
        let world = World { config, faults, state: Mutex::new(state), let_go: Condvar::new() };
        Emulator { world: Arc::new(world) }
    }

    /// Number of events so far: the number of the next one.
    pub fn events(&self) -> usize {
        self.state().trace.len()
    }

    /// The description of event number `at`, for messages.
    pub fn describe_event(&self, at: usize) -> Option<String> {
        self.state().trace.get(at).map(ToString::to_string)
    }

    /// Notes something in the trace, and answers its number.
    pub fn mark(&self, text: impl Into<String>) -> usize {
        self.state().record(Event::Mark { text: text.into() })
    }

    /// Equal for directories that read the same.
    pub fn content_hash(&self) -> u64 {
        self.state().disk.hash()
    }

    /// From now on requested drains do not end until the returned value is dropped. Their callers wait, all others
    /// continue.
    pub fn hold_drains(&self) -> HeldDrains {
        self.state().drains_held += 1;
        HeldDrains { world: Arc::clone(&self.world) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.world.state)
    }
}

impl State {
    /// Appends an event to the trace and lets it happen. Answers its number.
    fn record(&mut self, event: Event) -> usize {
        let at = self.trace.len();
        self.disk.apply(at, &event);
        self.trace.push(event);
        at
    }

    /// Before the first event.
    fn base(&self) -> &Disk {
        &self.remembered[&0]
    }

    /// The disk after `events` events. Remembers some on the way, so that the next time does not begin at
    /// the beginning.
    fn disk_at(&mut self, events: usize) -> Disk {
        if events >= self.trace.len() {
            return self.disk.clone();
        }
        let last = self.remembered.range(..=events).next_back();
        let (from, mut disk) = last.map(|(from, disk)| (*from, disk.clone())).expect("the first");
        for (at, event) in self.trace.iter().enumerate().take(events).skip(from) {
            if at % REMEMBERED_EVENTS == 0 && at > from {
                self.remembered.insert(at, disk.clone());
            }
            disk.apply(at, event);
        }
        disk
    }
}

/// Drains wait while this exists.
pub struct HeldDrains {
    world: Arc<World>,
}

impl Drop for HeldDrains {
    fn drop(&mut self) {
        lock(&self.world.state).drains_held -= 1;
        self.world.let_go.notify_all();
    }
}

/// An emulated log file.
struct EmulatedLog {
    world: Arc<World>,
    name: String,
    file: FileId,
    drain_failed: AtomicBool,
}

impl EmulatedLog {
    fn new(world: Arc<World>, name: String, file: FileId) -> Self {
        EmulatedLog { world, name, file, drain_failed: AtomicBool::new(false) }
    }

    fn check_range(&self, state: &State, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).ok_or(Error::OutOfBounds)?;
        match state.disk.file(self.file) {
            Some(file) if end <= file.current.len() => Ok(()),
            _ => Err(Error::OutOfBounds),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.world.state)
    }
}

impl Medium for EmulatedLog {
    fn kind(&self) -> MediumKind {
        MediumKind::Emulated
    }

    fn describe(&self) -> String {
        format!("emulated file {} (sectors of {})", self.name, self.world.config.sector_bytes)
    }

    fn len(&self) -> u64 {
        self.state().disk.file(self.file).map_or(0, |file| file.current.len())
    }

    fn grow(&self, new_len: u64) -> Result<()> {
        let mut state = self.state();
        let old_len = state.disk.file(self.file).map_or(0, |file| file.current.len());
        if new_len <= old_len {
            return Ok(());
        }
        self.world.faults.before_io(IoKind::Grow)?;
        let others = state.disk.used_bytes().saturating_sub(old_len);
        if others.saturating_add(new_len) > self.world.config.capacity_bytes {
            return Err(Error::NoSpace);
        }
        state.record(Event::Grow { file: self.file, len: new_len });
        if self.world.config.mapped && self.world.faults.enabled(GROW_DRAIN) {
            state.record(Event::GrowSync { file: self.file, site: GROW_DRAIN });
        }
        Ok(())
    }

    fn store(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let bytes = parts.iter().map(|part| &**part).collect::<Vec<&[u8]>>().concat();
        let mut state = self.state();
        self.check_range(&state, offset, bytes.len() as u64)?;
        if state.mapping(self.file).is_some() {
            return Err(Error::Misuse("storing beside the owner of the mapping"));
        }
        self.world.faults.before_io(IoKind::Store)?;
        state.record(Event::Store { file: self.file, offset, bytes: bytes.into() });
        Ok(())
    }

    fn persist(&self, offset: u64, len: u64, site: Site) -> Result<()> {
        let mut state = self.state();
        self.check_range(&state, offset, len)?;
        if self.world.faults.enabled(site) {
            let by = mapped::this_thread();
            state.record(Event::Persist { file: self.file, offset, len, by, site });
        }
        Ok(())
    }

    fn drain(&self, site: Site) -> Result<()> {
        if !self.world.faults.enabled(site) {
            return Ok(());
        }
        if self.drain_failed.load(Ordering::Acquire) {
            return Err(Error::DrainFailed);
        }
        let result = self.world.faults.before_io(IoKind::Drain);
        let begun_at = self.state().record(Event::DrainBegin { file: self.file, site });
        // What others store meanwhile is not covered.
        kauri_base::sync::thread::yield_now();
        let mut state = self.state();
        while state.drains_held > 0 {
            state = self.world.let_go.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // Another drain may have failed while this one ran, and taken its error.
        let result = match self.drain_failed.load(Ordering::Acquire) {
            true => Err(Error::DrainFailed),
            false => result,
        };
        let succeeded = result.is_ok();
        if !succeeded {
            self.drain_failed.store(true, Ordering::Release);
        }
        state.record(Event::DrainEnd { file: self.file, begun_at, succeeded });
        result
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let state = self.state();
        self.check_range(&state, offset, into.len() as u64)?;
        self.world.faults.before_io(IoKind::Read)?;
        if let Some(file) = state.disk.file(self.file) {
            file.current.read(offset, into);
        }
        Ok(())
    }

    fn mapped(&self) -> Option<Mapped> {
        self.world.config.mapped.then(|| self.map()).flatten()
    }
}
