//! The functions of `kauri.h`.
//!
//! # What is unsafe here, and why it is sound
//!
//! 1. *Pointers from C.* A pointer that is not NULL and is aligned points to what the header says. That is the
//!    caller's promise, which cannot be checked. It is the contract of each function, which is therefore `unsafe`.
//! 2. *Lengths.* A slice is made only with a length within the header's bounds, so never more than half of the
//!    address space. It lives until the call returns.
//! 3. *Connections.* A handle comes from `Box::into_raw` and returns to `Box::from_raw` once, in `kauri_close`,
//!    when no other call is active. Until then it is only borrowed shared; its mutable state is behind its lock.
//! 4. *Results* are written through raw pointers and never read: they may be uninitialized.
//! 5. *Panics* end in `guarded`.
#![allow(unsafe_code)]

use crate::failure::{ErrorInfo, Failure, Result, Status};
use crate::handle::{Handle, Session, TRANSPORTS, View};
use kauri_base::limits::{DOCUMENT_INTERNAL_BYTES_MAX, MESSAGE_BYTES_MAX};
use kauri_bson::Doc;
use kauri_client::Sequence;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// `kauri_sequence_t`.
#[repr(C)]
pub struct RawSequence {
    name: *const c_char,
    documents: *const View,
    count: usize,
}

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

/// The shortest document.
const DOCUMENT_BYTES_MIN: usize = 5;

/// Runs a call, reports its result, and catches panics.
///
/// # Safety
///
/// `error` is NULL or points to a `kauri_error_t`.
unsafe fn guarded(error: *mut ErrorInfo, call: impl FnOnce() -> Result<()>) -> i32 {
    // What a panic left half done is behind a lock, which is poisoned by it.
    let called = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(Failure::panicked()));
    let error = if error.is_aligned() { error } else { ptr::null_mut() };
    match called {
        Ok(()) => {
            if !error.is_null() {
                // SAFETY: `error` points to a `kauri_error_t` (this function's contract).
                unsafe { error.write(ErrorInfo::NONE) };
            }
            Status::Ok as i32
        }
        Err(failure) => {
            if !error.is_null() {
                // SAFETY: as above.
                unsafe { error.write(ErrorInfo::of(&failure)) };
            }
            failure.status as i32
        }
    }
}

fn usable<T>(pointer: *const T, what: &str) -> Result<()> {
    if pointer.is_null() {
        return Err(Failure::argument(format!("{what} is NULL")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::argument(format!("{what} is not aligned")));
    }
    Ok(())
}

/// # Safety
///
/// `connection` is NULL or one of `kauri_connect`'s that was not closed.
unsafe fn handle<'a>(connection: *const Handle) -> Result<&'a Handle> {
    usable(connection, "connection")?;
    // SAFETY: it is a live handle (this function's contract), which is only ever borrowed shared.
    Ok(unsafe { &*connection })
}

/// # Safety
///
/// `pointer` is NULL or a text that ends in a zero byte, and stays as it is for `'a`.
unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    usable(pointer, what)?;
    // SAFETY: it points to a text with a zero byte (this function's contract).
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// An error is returned as the rest of a sentence.
///
/// # Safety
///
/// `data` is NULL or points to `length` bytes that do not change during `'a`.
unsafe fn document<'a>(data: *const u8, length: usize) -> std::result::Result<Doc<'a>, String> {
    if data.is_null() {
        return Err("is NULL".to_owned());
    }
    if !(DOCUMENT_BYTES_MIN..=DOCUMENT_INTERNAL_BYTES_MAX).contains(&length) {
        return Err(format!("is no document: it has {length} bytes"));
    }
    // SAFETY: there are `length` bytes (this function's contract), far fewer than isize::MAX.
    let bytes = unsafe { std::slice::from_raw_parts(data, length) };
    Doc::from_bytes(bytes)
        .map_err(|_| "is not BSON: its length field or its final zero is wrong".to_owned())
}

/// # Safety
///
/// As for `document`.
unsafe fn command<'a>(data: *const u8, length: usize) -> Result<Doc<'a>> {
    // SAFETY: this function's contract.
    unsafe { document(data, length) }.map_err(|why| Failure::argument(format!("command {why}")))
}

/// # Safety
///
/// `pointer` is NULL or points to `count` values that stay as they are for `'a`.
unsafe fn array<'a, T>(pointer: *const T, count: usize, max: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    usable(pointer, what)?;
    if count > max {
        return Err(Failure::argument(format!("{what}: {count} are more than a message can hold")));
    }
    // SAFETY: there are `count` values (this function's contract), in fewer than isize::MAX bytes.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// # Safety
///
/// As `kauri_sequence_t` says.
unsafe fn documents<'a>(raw: &RawSequence) -> Result<Vec<Doc<'a>>> {
    // SAFETY: the contract of a `kauri_sequence_t`.
    let views = unsafe {
        array(raw.documents, raw.count, MESSAGE_BYTES_MAX / DOCUMENT_BYTES_MIN, "documents")?
    };
    let one = |(at, view): (usize, &View)| {
        // SAFETY: the contract of a `kauri_bson_t`.
        unsafe { document(view.data, view.length) }
            .map_err(|why| Failure::argument(format!("document {at} of a sequence {why}")))
    };
    let total = views.iter().fold(0, |total: usize, view| total.saturating_add(view.length));
    if total > MESSAGE_BYTES_MAX {
        let why = format!("a sequence of {total} bytes exceeds the maximum of {MESSAGE_BYTES_MAX}");
        return Err(Failure::argument(why));
    }
    let mut documents = Vec::new();
    if documents.try_reserve_exact(views.len()).is_err() {
        let why = format!("documents: there is no memory for {} of them", views.len());
        return Err(Failure::argument(why));
    }
    for view in views.iter().enumerate() {
        documents.push(one(view)?);
    }
    Ok(documents)
}

/// Runs what gives a reply.
///
/// # Safety
///
/// As the header says of `connection` and `reply`.
unsafe fn replied(
    connection: *mut Handle,
    reply: *mut View,
    call: impl FnOnce(&mut Session) -> Result<(View, Option<Failure>)>,
) -> Result<()> {
    usable(reply, "reply")?;
    // SAFETY: `reply` points to a `kauri_bson_t` (this function's contract).
    unsafe { reply.write(View::NOTHING) };
    // SAFETY: this function's contract.
    let (view, failure) = call(&mut *unsafe { handle(connection)? }.enter()?)?;
    // SAFETY: as above.
    unsafe { reply.write(view) };
    failure.map_or(Ok(()), Err)
}

#[unsafe(no_mangle)]
pub extern "C" fn kauri_version() -> *const c_char {
    VERSION.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn kauri_status_name(status: i32) -> *const c_char {
    Status::name_of(status).map_or(ptr::null(), CStr::as_ptr)
}

#[unsafe(no_mangle)]
pub extern "C" fn kauri_transport_name(transport: i32) -> *const c_char {
    let found = TRANSPORTS.iter().find(|(number, ..)| *number == transport);
    found.map_or(ptr::null(), |(.., name)| name.as_ptr())
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kauri_connect(
    uri: *const c_char,
    timeout_ms: u32,
    connection: *mut *mut Handle,
    error: *mut ErrorInfo,
) -> i32 {
    let call = || {
        usable(connection, "connection")?;
        // SAFETY: `connection` points to a pointer (the header's contract).
        unsafe { connection.write(ptr::null_mut()) };
        // SAFETY: the header's contract.
        let uri = unsafe { text(uri, "uri")? };
        let handle = Box::into_raw(Box::new(Handle::connect(uri, timeout_ms)?));
        // SAFETY: as above.
        unsafe { connection.write(handle) };
        Ok(())
    };
    // SAFETY: the header's contract.
    unsafe { guarded(error, call) }
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kauri_close(connection: *mut Handle) -> i32 {
    let call = || {
        if connection.is_null() {
            return Ok(());
        }
        // SAFETY: the header's contract.
        unsafe { handle(connection)? }.lock_for_ever()?;
        // SAFETY: it came from `Box::into_raw`, nobody is within, and nobody comes any more: the header's
        // contract, which the lock only helps to keep.
        drop(unsafe { Box::from_raw(connection) });
        Ok(())
    };
    // SAFETY: NULL is allowed.
    unsafe { guarded(ptr::null_mut(), call) }
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kauri_get_transport(connection: *const Handle) -> i32 {
    // SAFETY: the header's contract.
    let handle = unsafe { handle(connection) };
    handle.map_or(0, Handle::transport)
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kauri_get_fallback(connection: *const Handle) -> *const c_char {
    // SAFETY: the header's contract.
    let handle = unsafe { handle(connection) }.ok();
    handle.and_then(Handle::fallback).map_or(ptr::null(), CStr::as_ptr)
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kauri_set_timeout(
    connection: *mut Handle,
    timeout_ms: u32,
    error: *mut ErrorInfo,
) -> i32 {
    // SAFETY: the header's contract.
    let call = || unsafe { handle(connection)? }.enter()?.set_timeout(timeout_ms);
    // SAFETY: the header's contract.
    unsafe { guarded(error, call) }
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kauri_check(connection: *mut Handle, error: *mut ErrorInfo) -> i32 {
    // SAFETY: the header's contract.
    let call = || unsafe { handle(connection)? }.enter()?.check();
    // SAFETY: the header's contract.
    unsafe { guarded(error, call) }
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kauri_command(
    connection: *mut Handle,
    command: *const u8,
    length: usize,
    reply: *mut View,
    error: *mut ErrorInfo,
) -> i32 {
    let call = || {
        // SAFETY: the header's contract.
        let bytes = unsafe { self::command(command, length) };
        // SAFETY: the header's contract.
        unsafe { replied(connection, reply, |session| session.command(bytes?)) }
    };
    // SAFETY: the header's contract.
    unsafe { guarded(error, call) }
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kauri_send(
    connection: *mut Handle,
    command: *const u8,
    length: usize,
    sequences: *const RawSequence,
    sequence_count: usize,
    error: *mut ErrorInfo,
) -> i32 {
    let call = || {
        // SAFETY: the header's contract.
        let mut session = unsafe { handle(connection)? }.enter()?;
        // SAFETY: the header's contract.
        let command = unsafe { self::command(command, length)? };
        // SAFETY: the header's contract.
        let raw = unsafe { array(sequences, sequence_count, 2, "sequences")? };
        let mut parts = Vec::with_capacity(raw.len());
        for one in raw {
            // SAFETY: the contract of a `kauri_sequence_t`.
            parts.push(unsafe { (text(one.name, "the name of a sequence")?, documents(one)?) });
        }
        let parts: Vec<_> =
            parts.iter().map(|(name, documents)| Sequence { name, documents }).collect();
        session.send(command, &parts)
    };
    // SAFETY: the header's contract.
    unsafe { guarded(error, call) }
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kauri_receive(
    connection: *mut Handle,
    reply: *mut View,
    error: *mut ErrorInfo,
) -> i32 {
    // SAFETY: the header's contract.
    let call = || unsafe { replied(connection, reply, |session| session.receive()) };
    // SAFETY: the header's contract.
    unsafe { guarded(error, call) }
}

/// # Safety
///
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kauri_trim(connection: *mut Handle, error: *mut ErrorInfo) -> i32 {
    // SAFETY: the header's contract.
    let call = || unsafe { handle(connection)? }.enter()?.trim();
    // SAFETY: the header's contract.
    unsafe { guarded(error, call) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let mut error = ErrorInfo::NONE;
        // SAFETY: NULL, or a live `ErrorInfo`.
        let [without, with] = [ptr::null_mut(), &raw mut error]
            .map(|error| unsafe { guarded(error, || panic!("planted")) });
        assert_eq!([without, with], [Status::Internal as i32; 2]);
    }

    #[test]
    fn transports_are_named_as_in_connection_strings() {
        for (_, transport, name) in TRANSPORTS {
            assert_eq!(name.to_str(), Ok(transport.name()));
        }
    }
}
