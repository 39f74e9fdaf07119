//! Errors: the client's error in Rust, and its C structure.

use kauri_bson::{Doc, Value};
use kauri_client::ClientError;
use std::ffi::{CStr, c_char};
use std::io;

/// `kauri_status_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Status {
    Ok = 0,
    InvalidArgument = 1,
    InvalidUri = 2,
    Unavailable = 3,
    Io = 4,
    TimedOut = 5,
    Protocol = 6,
    Command = 7,
    InUse = 8,
    OutOfOrder = 9,
    Internal = 10,
}

impl Status {
    const ALL: [(Status, &CStr); 11] = [
        (Status::Ok, c"ok"),
        (Status::InvalidArgument, c"invalid argument"),
        (Status::InvalidUri, c"invalid connection string"),
        (Status::Unavailable, c"unavailable"),
        (Status::Io, c"connection failed"),
        (Status::TimedOut, c"timed out"),
        (Status::Protocol, c"protocol broken"),
        (Status::Command, c"command failed"),
        (Status::InUse, c"in use"),
        (Status::OutOfOrder, c"out of order"),
        (Status::Internal, c"internal error"),
    ];

    /// The text for a number, if it is one of these.
    pub fn name_of(number: i32) -> Option<&'static CStr> {
        let found = Status::ALL.iter().find(|(status, _)| *status as i32 == number);
        found.map(|(_, name)| *name)
    }

    /// Whether a connection is of no use after it.
    pub fn is_final(self) -> bool {
        matches!(self, Status::Io | Status::TimedOut | Status::Protocol | Status::Internal)
    }
}

/// Why a call failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub status: Status,
    /// The server's code, or the system's.
    pub code: i32,
    pub code_name: String,
    pub message: String,
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Failure { status, code: 0, code_name: String::new(), message: message.into() }
    }

    pub fn argument(message: impl Into<String>) -> Self {
        Failure::new(Status::InvalidArgument, message)
    }

    /// The one of the call that panicked, and of every later one on its connection.
    pub fn panicked() -> Self {
        Failure::new(Status::Internal, "a fault of the library: a call has panicked")
    }

    /// The failure in a reply.
    pub fn of_reply(reply: Doc<'_>) -> Option<Self> {
        if reply.value("ok").truthy() {
            return None;
        }
        let text = |key| match reply.value(key) {
            Value::String(text) => Some(text.into_owned()),
            _ => None,
        };
        Some(Failure {
            status: Status::Command,
            code: clamped(reply.value("code").to_i64_saturating().unwrap_or(0)),
            code_name: text("codeName").unwrap_or_default(),
            message: text("errmsg").unwrap_or_else(|| "the command failed".to_owned()),
        })
    }
}

/// The nearest number that a code can be.
fn clamped(code: i64) -> i32 {
    code.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

/// An error of the system has its number, including the system's own timeouts: they are not the caller's.
fn of_io(error: &io::Error, message: String) -> Failure {
    if let Some(code) = error.raw_os_error() {
        return Failure { code, ..Failure::new(Status::Io, message) };
    }
    match error.kind() {
        io::ErrorKind::TimedOut => {
            Failure::new(Status::TimedOut, "the server did not answer in time")
        }
        io::ErrorKind::UnexpectedEof => {
            Failure::new(Status::Io, "the server has ended the connection")
        }
        _ => Failure::new(Status::Io, message),
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::Uri(_) => Failure::new(Status::InvalidUri, message),
            ClientError::Required(_) => Failure::new(Status::Unavailable, message),
            ClientError::Request(_) => Failure::argument(message),
            ClientError::Protocol(_) => Failure::new(Status::Protocol, message),
            ClientError::Selection(_) => Failure::new(Status::Io, message),
            ClientError::Command(error) => Failure {
                code: error.code().number(),
                code_name: error.code().name().to_string(),
                ..Failure::new(Status::Command, error.message())
            },
            ClientError::Io(error) => of_io(&error, message),
        }
    }
}

/// `kauri_error_t`.
#[repr(C)]
pub struct ErrorInfo {
    status: i32,
    code: i32,
    code_name: [c_char; 64],
    message: [c_char; 440],
}

const _: () = assert!(size_of::<ErrorInfo>() == 512);

impl ErrorInfo {
    pub const NONE: ErrorInfo =
        ErrorInfo { status: 0, code: 0, code_name: [0; 64], message: [0; 440] };

    pub fn of(failure: &Failure) -> Self {
        let mut info = ErrorInfo::NONE;
        info.status = failure.status as i32;
        info.code = failure.code;
        put(&mut info.code_name, &failure.code_name);
        put(&mut info.message, &failure.message);
        info
    }
}

/// As much of a text as fits with a zero byte after it, no character cut.
fn put(room: &mut [c_char], text: &str) {
    let text = text.split('\0').next().unwrap_or_default();
    let end = text.floor_char_boundary(room.len() - 1);
    for (slot, byte) in room.iter_mut().zip(text.bytes().take(end)) {
        *slot = byte as c_char;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(room: &[c_char]) -> String {
        let bytes = room.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        for (message, kept) in [
            ("short".to_owned(), "short".to_owned()),
            ("x".repeat(500), "x".repeat(439)),
            ("ä".repeat(300), "ä".repeat(219)),
            ("before\0after".to_owned(), "before".to_owned()),
        ] {
            let info = ErrorInfo::of(&Failure::new(Status::Io, message));
            assert_eq!(text(&info.message), kept);
            assert_eq!(info.message[439], 0);
        }
    }

    #[test]
    fn what_the_library_finds_has_its_status() {
        let io = |kind: io::ErrorKind| ClientError::Io(kind.into());
        for (error, status) in [
            (ClientError::Uri(String::new()), Status::InvalidUri),
            (ClientError::Required(String::new()), Status::Unavailable),
            (ClientError::Request(String::new()), Status::InvalidArgument),
            (ClientError::Protocol(String::new()), Status::Protocol),
            (ClientError::Selection(String::new()), Status::Io),
            (io(io::ErrorKind::TimedOut), Status::TimedOut),
            (io(io::ErrorKind::UnexpectedEof), Status::Io),
            (io(io::ErrorKind::ConnectionReset), Status::Io),
        ] {
            assert_eq!(Failure::from(error).status, status);
        }
        // ENOMEM, ETIMEDOUT (of keepalive), ECONNREFUSED.
        for code in [12, 110, 111] {
            let failure = Failure::from(ClientError::Io(io::Error::from_raw_os_error(code)));
            assert_eq!((failure.status, failure.code), (Status::Io, code));
        }
    }

    #[test]
    fn a_code_is_the_nearest_that_there_is() {
        for (code, told) in [(59i64, 59), (1 << 40, i32::MAX), (-(1 << 40), i32::MIN)] {
            let reply = kauri_bson::doc! { "ok" => 0.0, "code" => code };
            assert_eq!(Failure::of_reply(reply.as_doc()).unwrap().code, told);
        }
    }
}
