//! The program's allocator. It gives the kernel what has been free for a second, but looks for that only when
//! something else is freed: a server that has nothing to do after a large collection was dropped would keep all of
//! it. So somebody has to look (`memory`).
#![allow(unsafe_code)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Gives the kernel what has been free for a second, whichever thread has freed it.
pub fn give_back() {
    // SAFETY: any thread may call it at any time; it concerns memory that nobody has.
    unsafe { libmimalloc_sys::mi_collect(false) }
}
