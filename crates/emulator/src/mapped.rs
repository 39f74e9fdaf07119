//! Emulated persistent memory: a log file whose bytes the cache accesses directly, and that still sees every store,
//! persist and fence.

use crate::trace::{Event, FileId, Thread};
use crate::{EmulatedLog, State, World, lock};
use kauri_base::sync::{Arc, Weak};
use kauri_medium::dax::{MappingObserver, ObservedMemory};
use kauri_medium::{Mapped, Site};
use std::sync::atomic::{AtomicU32, Ordering};

/// Address space for one file: tests' logs are far smaller.
const RESERVED_BYTES: usize = 4 << 30;

/// The number of this thread.
pub(super) fn this_thread() -> Thread {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local!(static NUMBER: Thread = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

/// Records the accesses to a file's memory in the trace, which determines what is durable.
struct Recorder {
    world: Arc<World>,
    file: FileId,
}

impl State {
    /// The memory of a file, if it is mapped.
    pub(super) fn mapping(&self, file: FileId) -> Option<Arc<ObservedMemory>> {
        self.mappings.get(&file).and_then(Weak::upgrade)
    }
}

impl EmulatedLog {
    /// The file's memory, filled with what the file holds now.
    pub(super) fn map(&self) -> Option<Mapped> {
        let mut state = self.state();
        if let Some(memory) = state.mapping(self.file) {
            return Some(memory.mapped());
        }
        let recorder = Recorder { world: Arc::clone(&self.world), file: self.file };
        let mut memory = ObservedMemory::reserve(RESERVED_BYTES, Box::new(recorder)).ok()?;
        let pages = &state.disk.file(self.file)?.current;
        if pages.len() > RESERVED_BYTES as u64 {
            return None;
        }
        let mut filled = Ok(());
        pages.for_each_page(|offset, bytes| {
            if filled.is_ok() {
                filled = memory.fill(offset, bytes);
            }
        });
        filled.ok()?;
        let memory = Arc::new(memory);
        state.mappings.insert(self.file, Arc::downgrade(&memory));
        Some(memory.mapped())
    }
}

impl MappingObserver for Recorder {
    fn file_len(&self) -> u64 {
        lock(&self.world.state).disk.file(self.file).map_or(0, |file| file.current.len())
    }

    fn stored(&self, offset: u64, bytes: Vec<u8>, site: Site) {
        let persisted = self.world.faults.enabled(site);
        let mut state = lock(&self.world.state);
        let (file, len, by) = (self.file, bytes.len() as u64, this_thread());
        state.record(Event::Store { file, offset, bytes: bytes.into() });
        if persisted {
            state.record(Event::Persist { file, offset, len, by, site });
        }
    }

    fn fenced(&self, site: Site) {
        if self.world.faults.enabled(site) {
            let event = Event::Fence { file: self.file, by: this_thread(), site };
            lock(&self.world.state).record(event);
        }
    }
}
