//! Everything that touches libibverbs or memory that a device may touch; the only unsafe code of this
//! crate.
//!
//! # Who owns what, and for how long
//!
//! Safe code must not be able to make the device use what is gone, nor look at bytes by reference
//! while the device may write to them.
//!
//! 1. *Objects.* Each object of libibverbs has one owner here, whose drop gives it back: region,
//!    window, queue pair, completion queue with its channel, protection domain, context. An owner
//!    holds counted references to those that its own object was made from, so these go later: region
//!    and window → protection domain → context, queue pair → protection domain and completion queue →
//!    context. The library is never unloaded.
//! 2. *Work requests.* A posted request has a slot in its queue pair until its completion, or a later
//!    one of the same queue, has been taken off the completion queue (a queue completes in order). The
//!    slot holds references to the regions and windows that the request names. So memory is neither
//!    unmapped nor deregistered under a request, whatever the caller drops.
//! 3. *Windows.* A bound window holds its region until its invalidation has completed or it is
//!    deallocated, after which its key opens nothing.
//! 4. *The end of a queue pair.* Its drop moves it to the error state, deallocates the windows that
//!    are bound to it, and destroys it; when `ibv_destroy_qp` has returned the device does nothing
//!    for it any more. Only then are the slots given up. Completions of it that are still in the
//!    completion queue are known by their place in the table of queue pairs, which is given to
//!    another queue pair only after the completion queue has been seen empty.
//! 5. *Bytes.* A region's memory is the region's: mapped for it alone, page-aligned, zeroed, unmapped
//!    after deregistration. It is read and written by copies through raw pointers, since the peer or
//!    the device may write at any time; reading takes the one handle by `&`, writing by `&mut`, so that
//!    no two threads of this process race. A slice of it is lent only if its rights let no peer in and
//!    nothing else (slot, window) refers to it; while it is lent the handle is borrowed mutably, and
//!    without the handle nothing can be posted.
//! 6. *Order.* Taking completions ends with an acquire fence, and a request's slot is given up by the
//!    thread that took its completion: what the device wrote before is seen by who sees that.
//! 7. *Failures to give back.* If the device refuses to deregister or destroy something, its memory
//!    and what it refers to are leaked and counted, never reused.
//! 8. *Queues never overrun.* A queue pair takes no more requests than it was made for; it asks for a
//!    completion by itself often enough that a full queue always has one coming; and a completion
//!    queue takes a queue pair only if it has room for all completions that its requests may have.
//!
//! The device's memory accesses are no part of Rust's memory model; like those of any device they are
//! treated as another thread's that only touches the region's bytes.
//!
//! Locks, in this order: completion queue, queue pair, window. None is held while another queue pair is
//! destroyed.
#![allow(unsafe_code)]

pub mod completion;
pub mod device;
pub mod ffi;
pub mod library;
pub mod memory;
pub mod queue_pair;
pub mod request;
pub mod window;
