//! Errors, by the caller's reaction: serve without RDMA, refuse one session, wait for completions, drop a queue
//! pair.

use std::fmt;
use std::io;
use std::net::IpAddr;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call did nothing. [`PostError`] is the one for chains, of which a part may have been done.
#[derive(Debug)]
pub enum Error {
    /// libibverbs is not installed, or can't be loaded; the dynamic linker's words.
    NoLibrary(String),
    /// libibverbs lacks a function (it is older than rdma-core 32).
    LibraryTooOld(String),
    /// There is no RDMA device.
    NoDevice,
    /// There is no RDMA device of that name.
    NoSuchDevice(String),
    /// No device has a port that is active.
    NoActivePort,
    /// No GID of the port belongs to that address.
    NoGid(IpAddr),
    /// The device has no memory windows of type 2.
    NoWindows,
    /// Memory can't be pinned because the process's limit (RLIMIT_MEMLOCK) is too small.
    LockedMemory {
        /// The size of the registration.
        bytes: usize,
        /// The limit in bytes.
        limit: u64,
    },
    /// An argument that no device accepts; what is wrong with it.
    Argument(&'static str),
    /// A place outside of a region.
    OutOfRange {
        /// Where it begins.
        offset: usize,
        /// Its length.
        len: usize,
        /// The region's length.
        region: usize,
    },
    /// More inline bytes than the queue pair takes.
    InlineTooLong {
        /// How many there are.
        bytes: usize,
        /// How many may be.
        max: usize,
    },
    /// The work queue has no room for the chain until something completes.
    QueueFull,
    /// The completion queue has no room left for another queue pair's completions.
    CompletionQueueFull,
    /// The queue pair is not connected yet.
    NotConnected,
    /// The queue pair has failed or been moved to the error state.
    Failed,
    /// The window is bound where it must be free, or free where it must be bound to this queue pair.
    WindowState,
    /// A call of libibverbs failed.
    Call {
        /// Its name in C.
        name: &'static str,
        /// The system's reason.
        error: io::Error,
    },
}

impl Error {
    /// The last error of the operating system, as that of the call `name`.
    pub(crate) fn last(name: &'static str) -> Error {
        Error::Call { name, error: io::Error::last_os_error() }
    }

    /// A call that returns an error number rather than setting it.
    pub(crate) fn number(name: &'static str, errno: i32) -> Error {
        // Some providers return -1 and set errno.
        let error = match errno {
            -1 => io::Error::last_os_error(),
            errno => io::Error::from_raw_os_error(errno.abs()),
        };
        Error::Call { name, error }
    }

    /// Whether this machine has no RDMA that could be used, rather than that something failed.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Error::NoLibrary(_)
                | Error::LibraryTooOld(_)
                | Error::NoDevice
                | Error::NoSuchDevice(_)
                | Error::NoActivePort
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoLibrary(reason) => write!(f, "cannot load libibverbs: {reason}"),
            Error::LibraryTooOld(symbol) => {
                write!(
                    f,
                    "libibverbs is too old: {symbol} is missing; install rdma-core 32 or newer"
                )
            }
            Error::NoDevice => write!(f, "no RDMA device found"),
            Error::NoSuchDevice(name) => write!(f, "RDMA device {name} not found"),
            Error::NoActivePort => write!(f, "no RDMA device has an active port"),
            Error::NoGid(address) => write!(f, "no GID belongs to the address {address}"),
            Error::NoWindows => write!(f, "the device has no memory windows of type 2"),
            Error::LockedMemory { bytes, limit } => write!(
                f,
                "cannot pin {bytes} bytes: the limit of locked memory (RLIMIT_MEMLOCK, \
                 ulimit -l) is {limit} bytes"
            ),
            Error::Argument(what) => write!(f, "{what}"),
            Error::OutOfRange { offset, len, region } => {
                write!(f, "{len} bytes at {offset} are not within a region of {region} bytes")
            }
            Error::InlineTooLong { bytes, max } => {
                write!(f, "{bytes} bytes inline, where {max} are allowed")
            }
            Error::QueueFull => write!(f, "the work queue is full"),
            Error::CompletionQueueFull => {
                write!(f, "the completion queue has no room for another queue pair")
            }
            Error::NotConnected => write!(f, "the queue pair is not connected"),
            Error::Failed => write!(f, "the queue pair is in the error state"),
            Error::WindowState => write!(f, "the window's state does not allow this"),
            Error::Call { name, error } => write!(f, "{name} failed: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// Why a chain was not posted, or not all of it.
#[derive(Debug)]
pub struct PostError {
    /// The number of work requests from the beginning of the chain that the device has nevertheless.
    pub posted: usize,
    /// Why the next one was refused.
    pub error: Error,
}

impl From<Error> for PostError {
    fn from(error: Error) -> Self {
        PostError { posted: 0, error }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (after {} work requests)", self.error, self.posted)
    }
}

impl std::error::Error for PostError {}
