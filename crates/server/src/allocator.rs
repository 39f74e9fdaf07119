//! The program's allocator. It counts allocations and frees per thread (`work::note_allocated`): the memory of an
//! operation is what its worker allocated while the operation ran.
//!
//! Memory that was free for a second is returned to the kernel, but only at a later free. An idle server would keep
//! all memory of a dropped large collection, so the memory watch (`memory`) triggers the return.
#![allow(unsafe_code)]

use kauri_base::work::note_allocated;
use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

// SAFETY: every call goes to mimalloc as it came; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note_allocated(layout.size() as i64);
        // SAFETY: as the caller's.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note_allocated(-(layout.size() as i64));
        // SAFETY: as the caller's.
        unsafe { MiMalloc.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note_allocated(layout.size() as i64);
        // SAFETY: as the caller's.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note_allocated(size as i64 - layout.size() as i64);
        // SAFETY: as the caller's.
        unsafe { MiMalloc.realloc(memory, layout, size) }
    }
}

/// `mi_option_purge_delay` of mimalloc 2 and 3, which the crate has no name for.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Returns memory to the kernel after it was free for this long, instead of a second.
pub fn give_back_after(delay: Duration) {
    // SAFETY: any thread may set an option at any time; mimalloc reads it when it frees.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, delay.as_millis() as i64) }
}

/// Returns memory to the kernel that was free for a second, whichever thread has freed it.
pub fn give_back() {
    // SAFETY: any thread may call it at any time; it concerns memory that nobody has.
    unsafe { libmimalloc_sys::mi_collect(false) }
}

/// Gives the kernel all that this thread's own heap has free. No other thread can: a heap returns the free pages
/// of its segments when it frees in them, or now.
pub fn give_back_own() {
    // SAFETY: as above; a forced collection concerns the calling thread's heap and what is abandoned.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
