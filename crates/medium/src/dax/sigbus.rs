//! The message after a failed access to mapped memory: damaged persistent memory, or a truncated file. The
//! processor raises SIGBUS, and no error can be returned. So the process ends, but first prints the reason.
//!
//! Invariant: the handler only reads atomics and calls `writev` and `sigaction`. It restores the previous handler,
//! so that the repeated access ends the process as usual.
#![allow(unsafe_code)]

use std::io::IoSlice;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Mappings that are known; a server has one.
const KNOWN_MAX: usize = 32;
/// Decimal digits of a number of 64 bits.
const DIGITS_MAX: usize = 20;

/// An address range and the file behind it.
struct Known {
    /// 0: free.
    start: AtomicUsize,
    len: AtomicUsize,
    /// Never freed, since a handler may be reading it.
    path: AtomicPtr<String>,
}

static KNOWN: [Known; KNOWN_MAX] = [const {
    Known {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        path: AtomicPtr::new(std::ptr::null_mut()),
    }
}; KNOWN_MAX];

/// What handled the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A range that is watched until this is dropped.
pub(crate) struct Watched(Option<&'static Known>);

/// From now on the file is named when its memory, these addresses, can't be reached.
pub(crate) fn watch(start: usize, len: usize, path: &Path) -> Watched {
    install();
    let free = |known: &&Known| {
        let taken = known.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    };
    // Without a place there is no message, and the end is the same.
    let known = KNOWN.iter().find(free);
    if let Some(known) = known {
        let path = Box::leak(Box::new(path.display().to_string()));
        known.path.store(path, Ordering::Release);
        known.len.store(len, Ordering::Release);
        known.start.store(start, Ordering::Release);
    }
    Watched(known)
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(known) = self.0 {
            known.len.store(0, Ordering::Release);
            known.start.store(0, Ordering::Release);
        }
    }
}

fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: all zeros is a valid sigaction; the kernel copies the new one and fills the old one, and
        // both live until after the call. The handler is of the kind that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                handle;
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &action, &mut before);
            before
        }
    });
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over a description that lives during the call, and for SIGBUS it has an
    // address.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    for known in &KNOWN {
        let start = known.start.load(Ordering::Acquire);
        let offset = address.wrapping_sub(start);
        if start > 1 && offset < known.len.load(Ordering::Acquire) {
            // SAFETY: set before `start`, and never freed.
            let path = unsafe { known.path.load(Ordering::Acquire).as_ref() };
            say(path.map_or("?", String::as_str), offset, code);
        }
    }
    // SAFETY: an action that the kernel gave us, or the default; async-signal-safe.
    unsafe {
        match BEFORE.get() {
            Some(before) => libc::sigaction(signal, before, std::ptr::null_mut()),
            None => libc::signal(signal, libc::SIG_DFL) as libc::c_int,
        };
    }
}

/// One line on stderr, made without the allocator and on little stack: a handler's stack may have no more
/// than 8 KB, of which the processor's saved registers take up to a half.
fn say(path: &str, offset: usize, code: libc::c_int) {
    let why = match code {
        libc::BUS_MCEERR_AR | libc::BUS_MCEERR_AO => "the memory is damaged",
        _ => "the file was truncated or its device was removed",
    };
    let mut digits = [0; DIGITS_MAX];
    let parts = [
        "kauri: fatal: ".as_bytes(),
        path.as_bytes(),
        b" cannot be read at byte ",
        decimal(offset, &mut digits),
        b" (SIGBUS): ",
        why.as_bytes(),
        b". The process ends. `kauri check --dbpath DIR --verify full` lists the damage, \
          `kauri check --dbpath DIR --repair` moves damaged records aside.\n",
    ];
    let slices = parts.map(IoSlice::new);
    // SAFETY: an `IoSlice` is laid out as an iovec, and its bytes are borrowed for the call; `writev` is
    // a system call and nothing else.
    unsafe { libc::writev(libc::STDERR_FILENO, slices.as_ptr().cast(), slices.len() as i32) };
}

/// The number's digits, in the buffer's last bytes.
fn decimal(mut number: usize, buffer: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut first = DIGITS_MAX;
    loop {
        first -= 1;
        buffer[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[first..];
        }
    }
}
