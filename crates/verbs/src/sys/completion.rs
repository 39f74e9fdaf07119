//! Completion queues and the channels that wake a thread for them.
//!
//! A thread without completions arms the queue, polls it once more, and only then sleeps until the channel's
//! descriptor is readable. The second poll sees completions from before the arming; the channel reports later ones.
//! After the wake, the thread takes the channel's event and starts again.

use super::device::{Device, DeviceInner, set_nonblocking};
use super::ffi;
use super::queue_pair::{QpShared, WorkId};
use crate::counters::{Counting, add, add_locked};
use crate::error::{Error, Result};
use crate::sys::request::Completion;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Completions taken from the device at once.
const BATCH: usize = 32;
/// Events of a channel that are acknowledged at once: each acknowledgement takes a lock.
const ACK_BATCH: u32 = 64;

/// The queue of completions of queue pairs.
pub struct CompletionQueue {
    pub(crate) inner: Arc<CqInner>,
}

/// The owner of an `ibv_cq` and of its channel.
pub struct CqInner {
    cq: NonNull<ffi::Cq>,
    channel: Option<CompletionChannel>,
    pub device: Arc<DeviceInner>,
    pub counting: Arc<Counting>,
    state: Mutex<CqState>,
}

struct CqState {
    /// The queue pairs that complete here. A request's number holds its queue pair's place.
    table: Vec<Option<Arc<QpShared>>>,
    /// Places that a queue pair may take.
    free: Vec<u32>,
    /// Places of destroyed queue pairs, and the room they take, of which completions may be left.
    retired: Vec<(u32, u32)>,
    /// Completions that there may be at once.
    capacity: u32,
    reserved: u32,
    raw: [ffi::Wc; BATCH],
}

// SAFETY: libibverbs' completion queues may be used by several threads at once.
unsafe impl Send for CqInner {}
// SAFETY: the same.
unsafe impl Sync for CqInner {}

/// Becomes readable when an armed completion queue has a completion.
pub struct CompletionChannel {
    raw: NonNull<ffi::CompChannel>,
    /// Whether the queue was armed and its report has not been taken yet. There is at most one then.
    armed: Mutex<bool>,
    /// Events that were not acknowledged to libibverbs.
    unacknowledged: AtomicU32,
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the channel's and open as long as it is.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }
}

impl CompletionQueue {
    /// A queue with room for `capacity` completions at once, with a channel if it is to wake anyone.
    pub fn new(device: &Device, capacity: u32, with_channel: bool) -> Result<CompletionQueue> {
        let device = &device.inner;
        let library = &device.library;
        let entries = i32::try_from(capacity).ok().filter(|entries| *entries > 0);
        let entries = entries.ok_or(Error::Argument("a completion queue without room"))?;
        let mut channel = ptr::null_mut();
        if with_channel {
            // SAFETY: the context is open.
            channel = unsafe { (library.create_comp_channel)(device.context.as_ptr()) };
            if channel.is_null() {
                return Err(Error::last("ibv_create_comp_channel"));
            }
        }
        let context = device.context.as_ptr();
        // SAFETY: the context is open, the channel null or just made. No context pointer is handed over.
        let cq = unsafe { (library.create_cq)(context, entries, ptr::null_mut(), channel, 0) };
        let Some(cq) = NonNull::new(cq) else {
            let error = Error::last("ibv_create_cq");
            if !channel.is_null() {
                // SAFETY: just made, and no queue uses it.
                unsafe { (library.destroy_comp_channel)(channel) };
            }
            return Err(error);
        };
        let channel = NonNull::new(channel).map(|raw| CompletionChannel {
            raw,
            armed: Mutex::new(false),
            unacknowledged: AtomicU32::new(0),
        });
        let counting = Arc::new(Counting::default());
        let mut queues = device.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.push(counting.clone());
        drop(queues);
        let state = CqState {
            table: Vec::new(),
            free: Vec::new(),
            retired: Vec::new(),
            capacity,
            reserved: 0,
            raw: [ffi::Wc::default(); BATCH],
        };
        let inner = CqInner { cq, channel, device: device.clone(), counting, state: state.into() };
        let queue = CompletionQueue { inner: Arc::new(inner) };
        if let Some(channel) = &queue.inner.channel {
            set_nonblocking(channel.as_fd())?;
        }
        Ok(queue)
    }

    /// Takes completions into `out`, and returns their number. Fewer than `out` has space for: there were no more.
    /// Unsignalled completions are taken, and returned only if they failed.
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize> {
        self.inner.poll(out)
    }

    /// Arms the channel for the next completion. Poll once more before you sleep. Until the event is taken, further
    /// calls have no effect.
    pub fn arm(&self) -> Result<()> {
        let Some(channel) = &self.inner.channel else {
            return Err(Error::Argument("a completion queue without a channel"));
        };
        let arm = self.inner.device.ops().req_notify_cq;
        let arm = arm.ok_or(Error::Argument("a device without notifications"))?;
        let mut armed = channel.armed.lock().unwrap_or_else(PoisonError::into_inner);
        if *armed {
            return Ok(());
        }
        // SAFETY: the queue is alive.
        let failed = unsafe { arm(self.inner.cq.as_ptr(), 0) };
        if failed != 0 {
            return Err(Error::number("ibv_req_notify_cq", failed));
        }
        *armed = true;
        add(&self.inner.counting.arms, 1);
        Ok(())
    }

    /// The descriptor that becomes readable when the armed queue has a completion.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.inner.channel.as_ref()
    }

    /// Takes the channel's report, so that it is no longer readable; whether there was one. Never
    /// waits, and calls the kernel once at most.
    pub fn take_event(&self) -> Result<bool> {
        let Some(channel) = &self.inner.channel else {
            return Ok(false);
        };
        let mut armed = channel.armed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*armed {
            return Ok(false);
        }
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        let get = self.inner.device.library.get_cq_event;
        // SAFETY: the channel is alive, the pointers are to live places for the call's results.
        if unsafe { get(channel.raw.as_ptr(), &mut cq, &mut context) } != 0 {
            return match std::io::Error::last_os_error() {
                e if e.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
                error => Err(Error::Call { name: "ibv_get_cq_event", error }),
            };
        }
        *armed = false;
        drop(armed);
        add(&self.inner.counting.channel_events, 1);
        if channel.unacknowledged.fetch_add(1, Ordering::Relaxed) + 1 >= ACK_BATCH {
            self.inner.acknowledge(channel);
        }
        Ok(true)
    }

    /// The capacity for completions, and the part that queue pairs have reserved.
    pub fn room(&self) -> (u32, u32) {
        let state = self.inner.lock();
        (state.capacity, state.reserved)
    }
}

impl CqInner {
    fn lock(&self) -> MutexGuard<'_, CqState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn as_ptr(&self) -> *mut ffi::Cq {
        self.cq.as_ptr()
    }

    fn acknowledge(&self, channel: &CompletionChannel) {
        let count = channel.unacknowledged.swap(0, Ordering::Relaxed);
        if count > 0 {
            // SAFETY: the queue is alive; so many events have been taken and not been acknowledged.
            unsafe { (self.device.library.ack_cq_events)(self.cq.as_ptr(), count) };
        }
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize> {
        let poll = self.device.ops().poll_cq.ok_or(Error::Argument("a device without polling"))?;
        let mut guard = self.lock();
        let state = &mut *guard;
        let mut given = 0;
        let mut seen = 0;
        let mut failures = 0;
        let mut stale = 0;
        while given < out.len() {
            let wanted = (out.len() - given).min(BATCH);
            // SAFETY: the queue is alive; the call writes at most `wanted` completions, for which there
            // is room.
            let got = unsafe { poll(self.cq.as_ptr(), wanted as i32, state.raw.as_mut_ptr()) };
            // What the device wrote before these completions is seen after this.
            fence(Ordering::Acquire);
            let Ok(got) = usize::try_from(got) else {
                return Err(Error::number("ibv_poll_cq", got));
            };
            seen += got;
            for wc in state.raw.iter().take(got) {
                failures += u64::from(wc.status != 0);
                let id = WorkId::of_bits(wc.wr_id);
                let shared = state.table.get(id.place as usize).and_then(Option::as_ref);
                match shared.map(|shared| shared.complete(id, wc)) {
                    None => stale += 1,
                    Some(None) => {}
                    Some(Some(completion)) => {
                        if let Some(slot) = out.get_mut(given) {
                            *slot = completion;
                            given += 1;
                        }
                    }
                }
            }
            if got < wanted {
                // Empty, so no completions of destroyed queue pairs are left.
                while let Some((place, room)) = state.retired.pop() {
                    state.free.push(place);
                    state.reserved -= room;
                }
                break;
            }
        }
        add_locked(&self.counting.polls, 1);
        add_locked(&self.counting.polls_empty, u64::from(seen == 0));
        add_locked(&self.counting.completions, seen as u64);
        add_locked(&self.counting.completion_errors, failures);
        add_locked(&self.counting.completions_stale, stale);
        Ok(given)
    }

    /// Reserves room for `room` completions, and a place in the table.
    pub fn reserve(&self, room: u32) -> Result<u32> {
        let mut state = self.lock();
        match state.reserved.checked_add(room) {
            Some(sum) if sum <= state.capacity => state.reserved = sum,
            _ => return Err(Error::CompletionQueueFull),
        }
        if let Some(place) = state.free.pop() {
            return Ok(place);
        }
        if state.table.len() > WorkId::PLACE_MAX as usize {
            state.reserved -= room;
            return Err(Error::CompletionQueueFull);
        }
        state.table.push(None);
        Ok(state.table.len() as u32 - 1)
    }

    /// Releases a place that no request was posted for.
    pub fn release(&self, place: u32, room: u32) {
        let mut state = self.lock();
        state.free.push(place);
        state.reserved -= room;
    }

    /// Lets the requests of a queue pair complete.
    pub fn attach(&self, place: u32, shared: &Arc<QpShared>) {
        if let Some(entry) = self.lock().table.get_mut(place as usize) {
            *entry = Some(shared.clone());
        }
    }

    /// After the queue pair was destroyed: its remaining completions are skipped.
    pub fn detach(&self, place: u32, room: u32) {
        let mut state = self.lock();
        if let Some(entry) = state.table.get_mut(place as usize) {
            *entry = None;
        }
        state.retired.push((place, room));
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        let library = &self.device.library;
        if let Some(channel) = &self.channel {
            // Destroying the queue waits for the acknowledgements.
            self.acknowledge(channel);
        }
        // SAFETY: queue pairs hold a reference to `self`, so none uses the queue.
        let failed = unsafe { (library.destroy_cq)(self.cq.as_ptr()) } != 0;
        if failed {
            add(&self.device.counting.leaks, 1);
        } else if let Some(channel) = &self.channel {
            // SAFETY: its only queue is destroyed.
            unsafe { (library.destroy_comp_channel)(channel.raw.as_ptr()) };
        }
        let mut queues = self.device.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|counting| !Arc::ptr_eq(counting, &self.counting));
        self.device.counting.absorb(&self.counting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_s_number_holds_place_kind_and_sequence() {
        for (place, receive, sequence) in
            [(0, false, 0), (1, true, u32::MAX), (WorkId::PLACE_MAX, false, 7)]
        {
            let id = WorkId { place, receive, sequence };
            assert_eq!(WorkId::of_bits(id.bits()), id);
        }
    }
}
