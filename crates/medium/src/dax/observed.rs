//! Ordinary memory as the mapping of a log file. It reports every store and fence to an observer, so an emulator of
//! persistent memory needs no unsafe code.

#![allow(unsafe_code)]

use crate::direct::{Direct, Mapped};
use crate::sys::Region;
use crate::{Error, IoKind, Latency, Result, Site};
use kauri_base::sync::Arc;
use std::ptr::NonNull;

/// Learns of what happens to an [`ObservedMemory`], on the thread that does it.
pub trait MappingObserver: Send + Sync {
    /// Bytes that the file has: nothing beyond is looked at or stored to.
    fn file_len(&self) -> u64;

    /// These bytes are at `offset` now. `site` labels the asking for their persistence.
    fn stored(&self, offset: u64, bytes: Vec<u8>, site: Site);

    /// What this thread has stored and asked to be persisted is to be durable.
    fn fenced(&self, site: Site);
}

/// See the module's head.
pub struct ObservedMemory {
    region: Region,
    observer: Box<dyn MappingObserver>,
    latency: Latency,
}

impl ObservedMemory {
    /// Address space for a file of at most so many bytes (a multiple of the page size), all zero.
    pub fn reserve(len_max: usize, observer: Box<dyn MappingObserver>) -> Result<Self> {
        let region = Region::reserve(len_max).map_err(|e| Error::from_io(IoKind::Open, &e))?;
        Ok(ObservedMemory { region, observer, latency: Latency::default() })
    }

    /// Puts what the file holds already there, before the memory is shared; the observer does not learn of
    /// it.
    pub fn fill(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let at = self.within(offset, bytes.len()).ok_or(Error::OutOfBounds)?;
        // SAFETY: within the region, which nobody else knows yet: `&mut self`.
        unsafe { copy(at, bytes) };
        Ok(())
    }

    /// The mapping.
    pub fn mapped(self: &Arc<Self>) -> Mapped {
        Mapped::new(Arc::clone(self) as Arc<dyn Direct>)
    }

    fn within(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(len)? > self.region.len() {
            return None;
        }
        // SAFETY: within the region, as just checked.
        NonNull::new(unsafe { self.region.base().add(offset) })
    }
}

/// # Safety
/// `to` and so many bytes behind it are within a region, and the caller's alone.
unsafe fn copy(to: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: the caller's promise; what is borrowed is not in a region that is the caller's alone.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
}

impl Direct for ObservedMemory {
    fn address(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len as u64)?;
        if end > self.observer.file_len() { None } else { self.within(offset, len) }
    }

    unsafe fn store(&self, offset: u64, len: usize, parts: &[&[u8]], site: Site) {
        let bytes = parts.concat();
        let Some(at) = self.address(offset, len.max(bytes.len())) else { return };
        // SAFETY: within the region, as just checked, and the caller's alone until its fence.
        unsafe { copy(at, &bytes) };
        self.observer.stored(offset, bytes, site);
    }

    fn fence(&self, site: Site) {
        self.observer.fenced(site);
    }

    fn populate(&self, _offset: u64, _len: usize) {}

    fn latency(&self) -> &Latency {
        &self.latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    type Seen = Arc<Mutex<Vec<(u64, Vec<u8>, Site)>>>;

    struct Notes {
        len: u64,
        seen: Seen,
    }

    impl MappingObserver for Notes {
        fn file_len(&self) -> u64 {
            self.len
        }

        fn stored(&self, offset: u64, bytes: Vec<u8>, site: Site) {
            self.seen.lock().unwrap().push((offset, bytes, site));
        }

        fn fenced(&self, site: Site) {
            self.seen.lock().unwrap().push((u64::MAX, Vec::new(), site));
        }
    }

    #[test]
    fn an_observer_learns_of_stores_and_fences_within_the_file() {
        let seen = Seen::default();
        let observer = Box::new(Notes { len: 100, seen: seen.clone() });
        let mut memory = ObservedMemory::reserve(4096, observer).unwrap();
        memory.fill(90, &[7; 20]).unwrap();
        assert_eq!(memory.fill(4090, &[7; 7]), Err(Error::OutOfBounds));
        let memory = Arc::new(memory);
        let store = |offset, parts: &[&[u8]]| {
            let len = parts.iter().map(|part| part.len()).sum();
            // SAFETY: this thread alone has the memory.
            unsafe { memory.store(offset, len, parts, "store") };
        };
        store(94, &[&[1, 2], &[3]]);
        store(98, &[&[4, 5, 6]]);
        store(u64::MAX, &[&[4]]);
        memory.fence("fence");
        assert!(memory.address(90, 11).is_none());
        let start = memory.address(90, 10).unwrap();
        // SAFETY: within the region, and nobody stores.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), 10) };
        assert_eq!(bytes, [7, 7, 7, 7, 1, 2, 3, 7, 7, 7]);
        let expected = [(94, vec![1, 2, 3], "store"), (u64::MAX, Vec::new(), "fence")];
        assert_eq!(*seen.lock().unwrap(), expected);
    }
}
