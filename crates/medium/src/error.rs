//! The errors of a medium, a directory or the cache. Small and `Copy`: callers decide by the kind (fail, free
//! space, stop the server), and tickets pass it on.

use kauri_base::ErrorCode;
use std::fmt;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of I/O that can fail, and that tests make fail ([`crate::Faults::inject`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum IoKind {
    /// Bytes read from a log file.
    Read,
    /// Bytes given to the kernel.
    Store,
    /// Stored bytes made durable.
    Drain,
    /// A log file made longer.
    Grow,
    /// A log file opened or created.
    Open,
    /// A small file read, or the directory listed.
    FileRead,
    /// A small file written beside the one that it is to replace.
    FileWrite,
    /// A small file's bytes made durable.
    FileSync,
    /// A small file put in place of another, or removed.
    FileRename,
    /// The directory's entries made durable.
    DirectorySync,
    /// The lock file.
    Lock,
}

impl IoKind {
    /// Every kind, for tests that fail each in turn.
    pub const ALL: [IoKind; 11] = [
        IoKind::Read,
        IoKind::Store,
        IoKind::Drain,
        IoKind::Grow,
        IoKind::Open,
        IoKind::FileRead,
        IoKind::FileWrite,
        IoKind::FileSync,
        IoKind::FileRename,
        IoKind::DirectorySync,
        IoKind::Lock,
    ];
}

impl fmt::Display for IoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoKind::Read => "reading the log file",
            IoKind::Store => "writing the log file",
            IoKind::Drain => "syncing the log file",
            IoKind::Grow => "growing the log file",
            IoKind::Open => "opening a file or directory",
            IoKind::FileRead => "reading a file or directory",
            IoKind::FileWrite => "writing a file",
            IoKind::FileSync => "syncing a file",
            IoKind::FileRename => "renaming or removing a file",
            IoKind::DirectorySync => "syncing the directory",
            IoKind::Lock => "locking the directory",
        })
    }
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The file system is full (ENOSPC, EDQUOT, EFBIG).
    NoSpace,
    /// The operating system refused.
    Io {
        /// What was being done.
        kind: IoKind,
        /// Its `errno`.
        errno: i32,
    },
    /// An earlier drain failed, so nobody knows what of it is durable. For good.
    DrainFailed,
    /// An offset and length beyond the file, the segment or what has been appended.
    OutOfBounds,
    /// There is no file of that name.
    NotFound,
    /// A name that isn't a plain file name.
    InvalidName,
    /// The directory belongs to another server (its process id, if it could be read).
    AlreadyLocked {
        /// Process id as the other server wrote it.
        pid: Option<i32>,
    },
    /// The caller broke the protocol: the text says which rule.
    Misuse(&'static str),
    /// There is no such thing here.
    Unsupported,
    /// The object has been shut down.
    Closed,
}

impl Error {
    /// The error that this `errno` of an operation of this kind stands for.
    pub fn from_errno(kind: IoKind, errno: i32) -> Self {
        match errno {
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Error::NoSpace,
            libc::ENOENT => Error::NotFound,
            _ => Error::Io { kind, errno },
        }
    }

    pub(crate) fn from_io(kind: IoKind, error: &std::io::Error) -> Self {
        Error::from_errno(kind, error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoSpace => write!(f, "no space left on device"),
            Error::Io { kind, errno } => {
                write!(f, "{kind} failed: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Error::DrainFailed => write!(f, "an earlier sync of this file failed"),
            Error::OutOfBounds => write!(f, "address out of bounds"),
            Error::NotFound => write!(f, "no such file"),
            Error::InvalidName => write!(f, "invalid file name"),
            Error::AlreadyLocked { pid: Some(pid) } => write!(f, "locked by process {pid}"),
            Error::AlreadyLocked { pid: None } => write!(f, "locked by another process"),
            Error::Misuse(rule) => write!(f, "misuse of the medium: {rule}"),
            Error::Unsupported => write!(f, "not supported by this medium"),
            Error::Closed => write!(f, "closed"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for kauri_base::Error {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::NoSpace => ErrorCode::OutOfDiskSpace,
            Error::Io { kind: IoKind::Open, .. } => ErrorCode::FileOpenFailed,
            Error::Io { kind: IoKind::FileRename, .. } => ErrorCode::FileRenameFailed,
            Error::Io { .. } | Error::DrainFailed => ErrorCode::FileStreamFailed,
            Error::NotFound => ErrorCode::FileNotOpen,
            Error::InvalidName => ErrorCode::InvalidPath,
            Error::AlreadyLocked { .. } => ErrorCode::DBPathInUse,
            Error::OutOfBounds | Error::Misuse(_) | Error::Unsupported => ErrorCode::InternalError,
            Error::Closed => ErrorCode::InterruptedAtShutdown,
        };
        kauri_base::Error::new(code, error.to_string())
    }
}
