//! A log file in persistent memory, mapped.
//!
//! The file is also a [`PlainFile`]: recovery reads it by `pread`, so that a reader never races with a store;
//! growing writes it; and [`Medium::drain`], which no commit waits for, is an `fdatasync` in addition to the fence.
//! Commits use the mapping ([`Direct`]).
//!
//! Growing writes zeros and syncs them before they are mapped, so that a store allocates no block. With `MAP_SYNC`,
//! the kernel would commit an allocation to the file system's journal in the middle of a page fault.

use super::Dax;
use super::lines::{self, WriteBack, lines_of};
use super::mapping::{Kind, Mapping, is_possible};
use crate::direct::{Direct, Mapped};
use crate::plain_file::PlainFile;
use crate::{Delayed, Error, IoKind, Latency, Medium, MediumKind, Result, Site};
use std::fs::File;
use std::io::IoSlice;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A [`Medium`] whose bytes are memory.
pub struct DaxFile {
    plain: PlainFile,
    memory: Arc<Memory>,
    /// Whether the mapping was given to somebody: from then on nobody stores by other ways.
    claimed: AtomicBool,
}

struct Memory {
    mapping: Mapping,
    kind: MediumKind,
    how: WriteBack,
    latency: Arc<Latency>,
}

impl DaxFile {
    /// Maps the file if that is wanted and possible; otherwise gives it back.
    pub(crate) fn open(
        plain: PlainFile,
        dax: Dax,
        latency: &Arc<Latency>,
    ) -> Result<Result<DaxFile, PlainFile>> {
        let failed = |error: std::io::Error| Error::from_io(IoKind::Open, &error);
        let (kind, medium_kind) = match dax {
            Dax::Off => return Ok(Err(plain)),
            Dax::Auto => (Kind::Synchronous, MediumKind::Dax),
            Dax::Simulated => (Kind::Ordinary, MediumKind::SimulatedDax),
        };
        let how = lines::detect().filter(|_| is_possible(plain.file(), kind).unwrap_or(false));
        let Some(how) = how else {
            // Whoever wants memory to stand in says so, and is told that it can't.
            return match dax {
                Dax::Simulated => Err(Error::Misuse("this file can't be mapped")),
                _ => Ok(Err(plain)),
            };
        };
        let mapping = Mapping::reserve(kind, plain.path()).map_err(failed)?;
        mapping.extend(plain.file(), plain.len()).map_err(failed)?;
        let latency = Arc::clone(latency);
        let memory = Arc::new(Memory { mapping, kind: medium_kind, how, latency });
        Ok(Ok(DaxFile { plain, memory, claimed: AtomicBool::new(false) }))
    }
}

impl Memory {
    fn fence(&self) {
        lines::fence();
        self.latency.take(Delayed::Fence, 1);
    }
}

impl Medium for DaxFile {
    fn kind(&self) -> MediumKind {
        self.memory.kind
    }

    fn describe(&self) -> String {
        let (path, how) = (self.plain.path().display(), self.memory.how.name());
        match self.memory.kind {
            MediumKind::Dax => {
                format!("file {path} (DAX: MAP_SYNC, non-temporal stores, {how}, sfence)")
            }
            _ => format!("file {path} (mapped; ordinary memory simulates persistent memory)"),
        }
    }

    fn len(&self) -> u64 {
        self.plain.len()
    }

    fn grow(&self, new_len: u64) -> Result<()> {
        self.plain.grow_durably(new_len, &|file: &File, len| self.memory.mapping.extend(file, len))
    }

    fn store(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        if self.claimed.load(Ordering::Acquire) {
            return Err(Error::Misuse("storing beside the owner of the mapping"));
        }
        self.plain.store(offset, parts)
    }

    /// Also for what an earlier process stored and never fenced.
    #[allow(unsafe_code)]
    fn persist(&self, offset: u64, len: u64, site: Site) -> Result<()> {
        self.plain.persist(offset, len, site)?;
        let len = usize::try_from(len).map_err(|_| Error::OutOfBounds)?;
        let start = self.memory.mapping.address(offset, len).ok_or(Error::OutOfBounds)?;
        // SAFETY: mapped; and no contents are changed.
        unsafe { lines::write_back(self.memory.how, start.as_ptr(), len) };
        Ok(())
    }

    fn drain(&self, site: Site) -> Result<()> {
        lines::fence();
        self.plain.drain(site)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.plain.read(offset, into)
    }

    fn mapped(&self) -> Option<Mapped> {
        self.claimed.store(true, Ordering::Release);
        Some(Mapped::new(Arc::clone(&self.memory) as Arc<dyn Direct>))
    }
}

impl Direct for Memory {
    #[inline]
    fn address(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        self.mapping.address(offset, len)
    }

    #[allow(unsafe_code)]
    unsafe fn store(&self, offset: u64, len: usize, parts: &[&[u8]], _site: Site) {
        // What is not mapped can't be stored to; the caller has promised that it is.
        let Some(start) = self.mapping.address(offset, len) else { return };
        // SAFETY: mapped for writing, and the caller's alone until its fence.
        unsafe { lines::store(self.how, start.as_ptr(), len, parts) };
        self.latency.take(Delayed::Line, lines_of(start.as_ptr() as usize, len) as u64);
    }

    fn fence(&self, _site: Site) {
        Memory::fence(self);
    }

    fn populate(&self, offset: u64, len: usize) {
        self.mapping.populate(offset, len);
    }

    fn latency(&self) -> &Latency {
        &self.latency
    }
}
