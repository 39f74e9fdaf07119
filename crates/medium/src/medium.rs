//! [`Medium`]: one log file ("tier"), a growing array of bytes.
//!
//! The steps to durability, on every kind of medium:
//!
//! 1. [`store`](Medium::store): the kernel (or the mapped memory) has the bytes. From now on they are readable and
//!    survive the death of the process.
//! 2. [`persist`](Medium::persist) names the ranges that the next drain must make durable: no action on plain
//!    files, write-back of cache lines on DAX.
//! 3. [`drain`](Medium::drain): when it returns, everything that was stored and persisted before the call, and the
//!    file's length, survives a power loss: `fdatasync`, or one `sfence`.
//!
//! Between 1 and 3 a power loss may keep any part of the bytes, torn at the medium's unit.
//!
//! A file that is memory has a shorter path as well: see [`crate::direct`].

use crate::{Mapped, Result, Site};
use std::io::IoSlice;

/// What a medium is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediumKind {
    /// A file, read and written by system calls.
    PlainFile,
    /// Memory that survives power loss, mapped with `MAP_SYNC`.
    Dax,
    /// Ordinary memory that stands in for it: [`crate::Dax::Simulated`].
    SimulatedDax,
    /// The emulator of the tests.
    Emulated,
}

impl MediumKind {
    /// Its name in logs and status.
    pub fn name(self) -> &'static str {
        match self {
            MediumKind::PlainFile => "file",
            MediumKind::Dax => "dax",
            MediumKind::SimulatedDax => "simulatedDax",
            MediumKind::Emulated => "emulated",
        }
    }

    /// What makes stored bytes durable.
    pub fn durable_by(self) -> &'static str {
        match self {
            MediumKind::PlainFile | MediumKind::Emulated => "fdatasync",
            MediumKind::Dax => "sfence",
            MediumKind::SimulatedDax => "nothing",
        }
    }

    /// Which acknowledged writes survive the loss of power.
    pub fn power_loss(self) -> &'static str {
        match self {
            MediumKind::PlainFile | MediumKind::Emulated => {
                "writes acknowledged with j:true or w:\"majority\", others after the commit interval"
            }
            MediumKind::Dax => "every acknowledged write; ADR is assumed of the platform",
            MediumKind::SimulatedDax => {
                "no write for certain: ordinary memory simulates persistent memory"
            }
        }
    }
}

/// One log file. Any number of threads may use it at once; stores to overlapping ranges at the same
/// time leave either's bytes.
///
/// Labels (`site`) name the call for tests: see [`crate::faults`].
pub trait Medium: Send + Sync {
    /// What it is made of.
    fn kind(&self) -> MediumKind;

    /// One line for the start-up log.
    fn describe(&self) -> String;

    /// Bytes that the file has.
    fn len(&self) -> u64;

    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the file at least `new_len` bytes long, with the space really allocated: lack of it
    /// shows here and not in a later store. What the new bytes read as before they are stored is
    /// undefined after a crash, zero otherwise. Durable with the next drain, and at once if the file is
    /// mapped. Never shrinks.
    fn grow(&self, new_len: u64) -> Result<()>;

    /// Puts `parts`, one after the other, at `offset`, within the file's length. On an error some of
    /// the bytes may have been stored.
    fn store(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()>;

    /// Asks that these stored bytes be made durable by drains that begin after this call.
    fn persist(&self, offset: u64, len: u64, site: Site) -> Result<()>;

    /// Waits until everything stored and persisted before this call is durable. An error is final:
    /// see [`crate::Error::DrainFailed`].
    fn drain(&self, site: Site) -> Result<()>;

    /// Fills `into` from `offset`. All of it or an error.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// As [`read`](Medium::read), for bytes that nobody will want again soon: from the device itself, past
    /// the kernel's memory, where that can be done and `offset`, `into` and its length are multiples of
    /// [`crate::DIRECT_ALIGN`].
    fn read_once(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read(offset, into)
    }

    /// Fills `into` from `offset` if that takes no waiting for a device, and answers whether it has. If
    /// not, or if anything is wrong, [`read`](Medium::read) does it or says what.
    fn read_now(&self, _offset: u64, _into: &mut [u8]) -> bool {
        false
    }

    /// The file's own memory, if it is mapped: for a [`crate::SegmentCache`], which stores to it
    /// without another call of this trait. From then on [`store`](Medium::store) is refused. None on
    /// files that are not.
    fn mapped(&self) -> Option<Mapped> {
        None
    }
}
