//! The state of the emulated storage: current contents, durable contents, and everything in between. Only events
//! change it, so a trace can be replayed up to any point.

use super::EmulatorConfig;
use super::pages::Pages;
use super::trace::{Event, FileId, Thread};
use std::collections::BTreeMap;

/// A state of a sector since it was last made durable.
#[derive(Clone)]
pub(super) struct Version {
    pub(super) bytes: Box<[u8]>,
    /// The event that stored it.
    pub(super) stored_at: usize,
    /// The event that asked for its persistence, and whose it was.
    persisted: Option<(usize, Thread)>,
    /// A drain that should have made it durable failed: the kernel thinks it clean, so no later drain
    /// will, unless the sector is stored to again.
    doomed: bool,
}

/// A log file, or one content of a small file.
#[derive(Clone, Default)]
pub(super) struct File {
    /// As the kernel reads it.
    pub(super) current: Pages,
    /// As it certainly is after a power loss.
    pub(super) durable: Pages,
    /// Lengths that it had since, the last being the current one, and the event of each.
    pub(super) lengths: Vec<(u64, usize)>,
    /// Sectors that were stored to since, by number: their states in order. After a power loss one
    /// of them, or the durable one, is there.
    pub(super) pending: BTreeMap<u64, Vec<Version>>,
}

/// The meaning of a name.
#[derive(Clone, Default)]
pub(super) struct Name {
    pub(super) durable: Option<FileId>,
    /// Its later meanings, the last being the current one.
    pub(super) pending: Vec<Option<FileId>>,
}

impl Name {
    pub(super) fn current(&self) -> Option<FileId> {
        self.pending.last().copied().unwrap_or(self.durable)
    }
}

#[derive(Clone)]
pub(super) struct Disk {
    pub(super) files: BTreeMap<FileId, File>,
    pub(super) names: BTreeMap<String, Name>,
    pub(super) sector_bytes: usize,
    /// Size of the fragments of an undurable sector: at most a sector.
    pub(super) tear_bytes: usize,
    /// Whether drains make durable only what `persist` was called for.
    pub(super) persist_required: bool,
    /// Whether a lock was taken and not released cleanly.
    pub(super) lock_dirty: bool,
}

impl Disk {
    pub(super) fn new(config: &EmulatorConfig) -> Self {
        Disk {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            sector_bytes: config.sector_bytes,
            tear_bytes: config.tear_bytes.clamp(1, config.sector_bytes),
            persist_required: config.persist_required,
            lock_dirty: false,
        }
    }

    /// An empty disk of the same kind.
    pub(super) fn emptied(&self) -> Self {
        Disk { files: BTreeMap::new(), names: BTreeMap::new(), ..*self }
    }

    pub(super) fn file_named(&self, name: &str) -> Option<FileId> {
        self.names.get(name)?.current()
    }

    pub(super) fn file(&self, id: FileId) -> Option<&File> {
        self.files.get(&id)
    }

    /// Bytes of all files that are there.
    pub(super) fn used_bytes(&self) -> u64 {
        let files = self.names.values().filter_map(|name| self.files.get(&name.current()?));
        files.map(|file| file.current.len()).sum()
    }

    /// Applies the event with number `at`.
    pub(super) fn apply(&mut self, at: usize, event: &Event) {
        let sector_bytes = self.sector_bytes;
        match event {
            Event::Create { name, file } => {
                self.files.insert(*file, File::default());
                self.point(name, Some(*file));
            }
            Event::Grow { file, len } => self.with(*file, |file| file.grow(at, *len)),
            Event::GrowSync { file, .. } => self.with(*file, |file| file.drain_lengths(at)),
            Event::Store { file, offset, bytes } => {
                let persisted = !self.persist_required;
                self.with(*file, |file| file.store(at, *offset, bytes, sector_bytes, persisted));
            }
            Event::Persist { file, offset, len, by, .. } => {
                self.with(*file, |file| file.persist((at, *by), *offset, *len, sector_bytes));
            }
            Event::Fence { file, by, .. } => {
                self.with(*file, |file| file.fence(*by, sector_bytes));
            }
            Event::DrainBegin { .. } | Event::Mark { .. } => {}
            Event::DrainEnd { file, begun_at, succeeded } => {
                self.with(*file, |file| file.drain(*begun_at, *succeeded, sector_bytes));
            }
            Event::FileWrite { file, bytes } => {
                self.files.insert(*file, File::default());
                self.with(*file, |file| {
                    file.grow(at, bytes.len() as u64);
                    file.store(at, 0, bytes, sector_bytes, true);
                });
            }
            Event::FileSync { file, .. } => {
                self.with(*file, |file| file.drain(at, true, sector_bytes));
            }
            Event::Rename { name, file } => self.point(name, Some(*file)),
            Event::Remove { name } => self.point(name, None),
            Event::DirectorySync { .. } => {
                for name in self.names.values_mut() {
                    name.durable = name.current();
                    name.pending.clear();
                }
                self.names.retain(|_, name| name.durable.is_some());
            }
            Event::Lock { dirty } => self.lock_dirty = *dirty,
        }
    }

    /// Threads that asked for persistence have other numbers from now on.
    pub(super) fn rename_threads(&mut self, new: &dyn Fn(Thread) -> Thread) {
        let files = self.files.values_mut();
        let versions = files.flat_map(|file| file.pending.values_mut().flatten());
        for (_, by) in versions.filter_map(|version| version.persisted.as_mut()) {
            *by = new(*by);
        }
    }

    fn with(&mut self, file: FileId, change: impl FnOnce(&mut File)) {
        if let Some(file) = self.files.get_mut(&file) {
            change(file);
        }
    }

    fn point(&mut self, name: &str, file: Option<FileId>) {
        self.names.entry(name.to_owned()).or_default().pending.push(file);
    }
}

impl File {
    /// A file all of whose bytes are durable.
    pub(super) fn durable(bytes: Pages) -> Self {
        File { current: bytes.clone(), durable: bytes, ..File::default() }
    }

    fn grow(&mut self, at: usize, len: u64) {
        self.current.set_len(len);
        self.lengths.push((len, at));
    }

    fn store(
        &mut self,
        at: usize,
        offset: u64,
        bytes: &[u8],
        sector_bytes: usize,
        persisted: bool,
    ) {
        if bytes.is_empty() {
            return;
        }
        let sector = sector_bytes as u64;
        let numbers = offset / sector..=(offset + bytes.len() as u64 - 1) / sector;
        // What is durable and stored again as it is makes no difference.
        let durable_len = self.durable.len();
        let pending = &self.pending;
        let current = &self.current;
        let skipped: Vec<bool> = numbers
            .clone()
            .map(|number| {
                let start = (number * sector).max(offset);
                let end = ((number + 1) * sector).min(offset + bytes.len() as u64);
                let stored = &bytes[(start - offset) as usize..(end - offset) as usize];
                (number + 1) * sector <= durable_len
                    && !pending.contains_key(&number)
                    && current.holds(start, stored)
            })
            .collect();
        self.current.write(offset, bytes);
        for (number, _) in numbers.zip(skipped).filter(|(_, skipped)| !skipped) {
            let mut content = vec![0; sector_bytes].into_boxed_slice();
            self.current.read(number * sector, &mut content);
            // Most sectors have one version: a run of small lines has many sectors.
            let versions = self.pending.entry(number).or_insert_with(|| Vec::with_capacity(1));
            versions.push(Version {
                bytes: content,
                stored_at: at,
                persisted: persisted.then_some((at, 0)),
                doomed: false,
            });
        }
    }

    fn persist(&mut self, asked: (usize, Thread), offset: u64, len: u64, sector_bytes: usize) {
        if len == 0 {
            return;
        }
        let sector = sector_bytes as u64;
        let range = offset / sector..=(offset + len - 1) / sector;
        for (_, versions) in self.pending.range_mut(range) {
            for version in versions.iter_mut().filter(|version| version.persisted.is_none()) {
                version.persisted = Some(asked);
            }
        }
    }

    /// A drain that began at event `begun_at` ends.
    fn drain(&mut self, begun_at: usize, succeeded: bool, sector_bytes: usize) {
        let covered = |version: &Version| version.persisted.is_some_and(|(at, _)| at <= begun_at);
        if !succeeded {
            for version in self.pending.values_mut().flatten().filter(|version| covered(version)) {
                version.doomed = true;
            }
            return;
        }
        self.drain_lengths(begun_at);
        self.settle(sector_bytes, &covered);
    }

    /// The lengths up to event `at` are durable.
    fn drain_lengths(&mut self, at: usize) {
        while self.lengths.first().is_some_and(|(_, grown)| *grown <= at) {
            let (len, _) = self.lengths.remove(0);
            self.durable.set_len(len);
        }
    }

    /// A thread's persisted data is durable. Other threads' data may still be in flight.
    fn fence(&mut self, by: Thread, sector_bytes: usize) {
        self.settle(sector_bytes, &|version| version.persisted.is_some_and(|(_, who)| who == by));
    }

    /// Sectors are durable in their state after the last covered store.
    fn settle(&mut self, sector_bytes: usize, covered: &dyn Fn(&Version) -> bool) {
        let durable = &mut self.durable;
        self.pending.retain(|number, versions| {
            if let Some(last) = versions.iter().rposition(|v| covered(v) && !v.doomed) {
                durable.write(number * sector_bytes as u64, &versions[last].bytes);
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
    }
}
