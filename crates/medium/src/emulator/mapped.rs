//! Emulated persistent memory: a log file whose bytes the cache has at hand, and that still learns of
//! every store, asking for persistence and fence.
#![allow(unsafe_code)]

use super::trace::{Event, FileId, Thread};
use super::{EmulatedLog, State, World};
use crate::direct::{Direct, Mapped};
use crate::sync::lock;
use crate::sys::Region;
use crate::{Latency, Site};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// Address space for one file: tests' logs are far smaller.
const RESERVED_BYTES: usize = 4 << 30;

/// The number of this thread.
pub(super) fn this_thread() -> Thread {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local!(static NUMBER: Thread = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

/// The bytes of a log file as everybody sees them. What is durable of them the trace tells.
pub(super) struct Memory {
    world: Arc<World>,
    file: FileId,
    region: Region,
    latency: Latency,
}

impl State {
    /// The memory of a file, if it is mapped.
    pub(super) fn mapping(&self, file: FileId) -> Option<Arc<Memory>> {
        self.mappings.get(&file).and_then(Weak::upgrade)
    }
}

impl EmulatedLog {
    /// The file's memory, filled with what the file holds now.
    pub(super) fn map(&self) -> Option<Mapped> {
        let mut state = self.state();
        if let Some(memory) = state.mapping(self.file) {
            return Some(Mapped::new(memory));
        }
        let region = Region::reserve(RESERVED_BYTES).ok()?;
        let pages = &state.disk.file(self.file)?.current;
        if pages.len() > region.len() as u64 {
            return None;
        }
        pages.for_each_page(|offset, bytes| {
            // SAFETY: within the region, as just checked, which nobody knows yet.
            unsafe { copy(&region, offset as usize, bytes) };
        });
        let (world, file) = (Arc::clone(&self.world), self.file);
        let memory = Arc::new(Memory { world, file, region, latency: Latency::default() });
        state.mappings.insert(self.file, Arc::downgrade(&memory));
        Some(Mapped::new(memory))
    }
}

/// # Safety
/// The range is within the region, and the caller's alone.
unsafe fn copy(region: &Region, offset: usize, bytes: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), region.base().add(offset), bytes.len())
    };
}

impl Direct for Memory {
    fn address(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len as u64)?;
        let file_len = lock(&self.world.state).disk.file(self.file)?.current.len();
        if end > file_len || end > self.region.len() as u64 {
            return None;
        }
        // SAFETY: within the region.
        NonNull::new(unsafe { self.region.base().add(offset as usize) })
    }

    unsafe fn store(&self, offset: u64, len: usize, parts: &[&[u8]], site: Site) {
        if self.address(offset, len).is_none() {
            return;
        }
        let bytes = parts.concat();
        let persisted = self.world.faults.enabled(site);
        let mut state = lock(&self.world.state);
        // SAFETY: within the region, as just checked, and the caller's alone until its fence.
        unsafe { copy(&self.region, offset as usize, &bytes) };
        let (file, len, by) = (self.file, bytes.len() as u64, this_thread());
        state.record(Event::Store { file, offset, bytes: bytes.into() });
        if persisted {
            state.record(Event::Persist { file, offset, len, by, site });
        }
    }

    fn fence(&self, site: Site) {
        if self.world.faults.enabled(site) {
            let event = Event::Fence { file: self.file, by: this_thread(), site };
            lock(&self.world.state).record(event);
        }
    }

    fn populate(&self, _offset: u64, _len: usize) {}

    fn latency(&self) -> &Latency {
        &self.latency
    }
}
