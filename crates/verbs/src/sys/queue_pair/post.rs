//! Posting: requests are checked, get a slot each, are linked into a chain and passed to the device.
//!
//! Invariants: every request that the device gets has its slot before the call; a request that the device does not
//! get has no slot afterwards. A refused request has no effect.

use super::{
    CompletionKind, Error, GATHER_MAX, Phase, PostError, QpState, QueuePair, ReceiveRequest,
    ReceiveSlot, Result, SendRequest, SendSlot, WorkId, add, ffi,
};
use crate::sys::memory::{Access, Share};
use crate::sys::request::{Operation, RegionSlice, Source, WindowAccess};
use crate::sys::window::WindowInner;
use std::ptr;
use std::sync::Arc;

/// Bytes of one message, as InfiniBand has it.
const MESSAGE_BYTES_MAX: usize = 1 << 31;

/// Chains being built. Kept, so that posting allocates only for a chain longer than all before it.
#[derive(Default)]
pub struct Scratch {
    sends: Vec<ffi::SendWr>,
    receives: Vec<ffi::RecvWr>,
    sges: Vec<ffi::Sge>,
}

// SAFETY: the pointers in it mean something only during a call, under the queue pair's mutex.
unsafe impl Send for Scratch {}

/// What the requests of a chain amount to, for the counters.
#[derive(Default)]
struct Sums {
    inline: u64,
    signalled: u64,
    bytes: u64,
}

pub fn send(pair: &QueuePair, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
    let mut guard = pair.shared.lock();
    let state = &mut *guard;
    match state.phase {
        Phase::Initial => return Err(Error::NotConnected.into()),
        Phase::Failed => return Err(Error::Failed.into()),
        Phase::Ready => {}
    }
    if requests.len() > state.send.room() {
        return Err(Error::QueueFull.into());
    }
    if requests.is_empty() {
        return Ok(());
    }
    state.scratch.sends.clear();
    state.scratch.sges.clear();
    let mut sums = Sums::default();
    for (built, request) in requests.iter().enumerate() {
        if let Err(error) = build(pair, state, request, &mut sums) {
            retract(state, built);
            return Err(error.into());
        }
    }
    let result = hand_over_sends(pair, state);
    let posted = result.as_ref().map_or_else(|error| error.posted, |()| requests.len());
    retract(state, requests.len() - posted);
    for request in requests.iter().take(posted) {
        if let Operation::BindWindow { window, .. } = request.operation {
            window.inner.posted();
        }
    }
    drop(guard);
    let counting = &pair.cq.counting;
    add(&counting.sends_posted, 1);
    add(&counting.send_requests, posted as u64);
    add(&counting.send_requests_inline, sums.inline);
    add(&counting.send_requests_signalled, sums.signalled);
    add(&counting.send_bytes, sums.bytes);
    result
}

/// Takes back the newest `count` slots, whose requests the device does not have.
fn retract(state: &mut QpState, count: usize) {
    if count > 0 {
        state.send.retract(count).for_each(SendSlot::refused);
        state.unsignalled = state.send.newest_while(|slot| !slot.signalled) as u32;
    }
}

/// Links the chain that was built, and posts it.
fn hand_over_sends(pair: &QueuePair, state: &mut QpState) -> Result<(), PostError> {
    let Scratch { sends, sges, .. } = &mut state.scratch;
    // From here on neither vector grows, so places in them keep their addresses.
    let first = sends.as_mut_ptr();
    let mut sge = sges.as_mut_ptr();
    for (i, wr) in sends.iter_mut().enumerate() {
        wr.sg_list = sge;
        sge = sge.wrapping_add(wr.num_sge as usize);
        if i > 0 {
            // SAFETY: `first` and the one before this are within the vector; only this raw pointer
            // is used for that element now.
            unsafe { (*first.add(i - 1)).next = first.wrapping_add(i) };
        }
    }
    let post = pair.pd.device.ops().post_send.ok_or(Error::Argument("a device without sends"))?;
    let mut bad = ptr::null_mut();
    // SAFETY: the queue pair is alive; the chain and its lists live until the call returns, and are
    // copied by it. What the requests refer to is held by their slots, inline bytes by the caller.
    let failed = unsafe { post(pair.qp.as_ptr(), first, &mut bad) };
    if failed == 0 {
        return Ok(());
    }
    let place = (bad.addr().wrapping_sub(first.addr())) / size_of::<ffi::SendWr>();
    // A provider that does not say which one it refused has taken none.
    let posted = if bad.is_null() || place > sends.len() { 0 } else { place };
    Err(PostError { posted, error: Error::number("ibv_post_send", failed) })
}

/// Adds a request to the chain, and its slot to the queue.
fn build(
    pair: &QueuePair,
    state: &mut QpState,
    request: &SendRequest<'_>,
    sums: &mut Sums,
) -> Result<()> {
    let mut wr = ffi::SendWr::EMPTY;
    let mut gathered = Gathered::default();
    let kind = describe(pair, state, request.operation, &mut wr, &mut gathered)?;
    let inline = gathered.inline || gathered.fits(pair);
    let signalled = request.signalled || state.unsignalled + 1 >= pair.signal_interval;
    state.unsignalled = if signalled { 0 } else { state.unsignalled + 1 };
    let sequence = state.send.next_sequence();
    wr.wr_id = WorkId { place: pair.place, receive: false, sequence }.bits();
    wr.num_sge = gathered.count as i32;
    for (flag, set) in [
        (ffi::SEND_SIGNALED, signalled),
        (ffi::SEND_INLINE, inline && kind != CompletionKind::Read),
        (ffi::SEND_FENCE, request.fenced),
    ] {
        wr.send_flags |= if set { flag } else { 0 };
    }
    sums.inline += u64::from(wr.send_flags & ffi::SEND_INLINE != 0);
    sums.signalled += u64::from(signalled);
    sums.bytes += gathered.bytes as u64;
    state.scratch.sends.push(wr);
    state.send.push(SendSlot {
        id: request.id,
        kind,
        asked: request.signalled,
        signalled,
        window: gathered.window,
        _shares: gathered.shares,
    });
    Ok(())
}

/// Writes down what a request does; the slices that it moves go to the chain's list.
fn describe(
    pair: &QueuePair,
    state: &mut QpState,
    operation: Operation<'_>,
    wr: &mut ffi::SendWr,
    gathered: &mut Gathered,
) -> Result<CompletionKind> {
    let kind = match operation {
        Operation::Write { from, to } => {
            wr.opcode = ffi::WR_RDMA_WRITE;
            (wr.remote_addr, wr.rkey) = (to.address, to.key);
            gathered.source(pair, &mut state.scratch, from)?;
            CompletionKind::Write
        }
        Operation::WriteWithImmediate { from, to, immediate } => {
            wr.opcode = ffi::WR_RDMA_WRITE_WITH_IMM;
            (wr.remote_addr, wr.rkey) = (to.address, to.key);
            wr.imm_data = immediate.to_be();
            gathered.source(pair, &mut state.scratch, from)?;
            CompletionKind::Write
        }
        Operation::Send { from } => {
            wr.opcode = ffi::WR_SEND;
            gathered.source(pair, &mut state.scratch, from)?;
            CompletionKind::Send
        }
        Operation::Read { into, from } => {
            wr.opcode = ffi::WR_RDMA_READ;
            (wr.remote_addr, wr.rkey) = (from.address, from.key);
            written(into)?;
            gathered.slice(pair, &mut state.scratch, into)?;
            CompletionKind::Read
        }
        Operation::BindWindow { window, slice, access } => {
            let share = slice.region.share();
            check_bind(pair, share, &window.inner.pd, access)?;
            let place = share.sge(slice.offset, slice.len);
            let binding = window.inner.bind(pair.shared.number, share)?;
            wr.opcode = ffi::WR_BIND_MW;
            wr.bind_mw = ffi::BindMw {
                mw: binding.mw,
                rkey: binding.key,
                bind_info: ffi::MwBindInfo {
                    mr: share.mr(),
                    addr: place.addr,
                    length: slice.len as u64,
                    mw_access_flags: window_flags(access),
                },
            };
            state.windows.retain(|known| known.strong_count() > 0);
            state.windows.push(Arc::downgrade(&window.inner));
            gathered.window = Some(window.inner.clone());
            CompletionKind::BindWindow
        }
        Operation::Invalidate { window } => {
            wr.opcode = ffi::WR_LOCAL_INV;
            wr.imm_data = window.inner.invalidate(pair.shared.number)?;
            gathered.window = Some(window.inner.clone());
            CompletionKind::Invalidate
        }
    };
    Ok(kind)
}

/// The slices of one request, and what it holds.
#[derive(Default)]
struct Gathered {
    shares: [Option<Arc<Share>>; GATHER_MAX],
    window: Option<Arc<WindowInner>>,
    count: usize,
    bytes: usize,
    inline: bool,
}

impl Gathered {
    fn source(&mut self, pair: &QueuePair, scratch: &mut Scratch, from: Source<'_>) -> Result<()> {
        match from {
            Source::Nothing => Ok(()),
            Source::Region(slice) => self.slice(pair, scratch, slice),
            Source::Gather(slices) if slices.len() > GATHER_MAX => {
                Err(Error::Argument("more slices than a request may have"))
            }
            Source::Gather(slices) => {
                let begin = scratch.sges.len();
                let added = slices.iter().try_for_each(|slice| self.slice(pair, scratch, *slice));
                if added.is_err() {
                    scratch.sges.truncate(begin);
                }
                added
            }
            Source::Inline(bytes) => {
                let max = pair.inline_bytes_max as usize;
                if bytes.len() > max {
                    return Err(Error::InlineTooLong { bytes: bytes.len(), max });
                }
                if !bytes.is_empty() {
                    let addr = bytes.as_ptr().expose_provenance() as u64;
                    scratch.sges.push(ffi::Sge { addr, length: bytes.len() as u32, lkey: 0 });
                    (self.count, self.bytes, self.inline) = (1, bytes.len(), true);
                }
                Ok(())
            }
        }
    }

    fn slice(
        &mut self,
        pair: &QueuePair,
        scratch: &mut Scratch,
        slice: RegionSlice<'_>,
    ) -> Result<()> {
        let share = slice.region.share();
        own(pair, share)?;
        self.bytes = self.bytes.saturating_add(slice.len);
        if self.bytes > MESSAGE_BYTES_MAX {
            return Err(Error::Argument("a message of more than 2 GiB"));
        }
        let Some(held) = self.shares.get_mut(self.count).filter(|_| slice.len > 0) else {
            return Ok(());
        };
        *held = Some(share.clone());
        scratch.sges.push(share.sge(slice.offset, slice.len));
        self.count += 1;
        Ok(())
    }

    /// Whether the bytes, which lie in regions, may as well go with the request.
    fn fits(&self, pair: &QueuePair) -> bool {
        self.bytes > 0 && self.bytes <= pair.inline_bytes_max as usize
    }
}

fn own(pair: &QueuePair, share: &Share) -> Result<()> {
    if share.is_of(&pair.pd) {
        return Ok(());
    }
    Err(Error::Argument("a region of another protection domain"))
}

fn written(slice: RegionSlice<'_>) -> Result<()> {
    if slice.region.share().access().contains(Access::LOCAL_WRITE) {
        return Ok(());
    }
    Err(Error::Argument("a region that the device may not write to"))
}

fn check_bind(
    pair: &QueuePair,
    share: &Share,
    window_pd: &Arc<super::PdInner>,
    access: WindowAccess,
) -> Result<()> {
    own(pair, share)?;
    if !Arc::ptr_eq(window_pd, &pair.pd) {
        return Err(Error::Argument("a window of another protection domain"));
    }
    let needed = match access {
        WindowAccess::Read => Access::WINDOW,
        WindowAccess::Write | WindowAccess::ReadWrite => Access::WINDOW | Access::LOCAL_WRITE,
    };
    if !share.access().contains(needed) {
        return Err(Error::Argument("a region without the rights that the window is to give"));
    }
    Ok(())
}

fn window_flags(access: WindowAccess) -> u32 {
    let flags = match access {
        WindowAccess::Read => ffi::ACCESS_REMOTE_READ,
        WindowAccess::Write => ffi::ACCESS_REMOTE_WRITE,
        WindowAccess::ReadWrite => ffi::ACCESS_REMOTE_READ | ffi::ACCESS_REMOTE_WRITE,
    };
    flags as u32
}

pub fn receive(pair: &QueuePair, requests: &[ReceiveRequest<'_>]) -> Result<(), PostError> {
    for slice in requests.iter().filter_map(|request| request.into) {
        own(pair, slice.region.share())?;
        written(slice)?;
        if slice.len > MESSAGE_BYTES_MAX {
            return Err(Error::Argument("a receive of more than 2 GiB").into());
        }
    }
    receives(pair, requests.len(), |i| requests.get(i).map_or((0, None), |r| (r.id, r.into)))
}

pub fn empty_receives(pair: &QueuePair, count: usize, id: u64) -> Result<(), PostError> {
    receives(pair, count, |_| (id, None))
}

fn receives<'a>(
    pair: &QueuePair,
    count: usize,
    request: impl Fn(usize) -> (u64, Option<RegionSlice<'a>>),
) -> Result<(), PostError> {
    let mut guard = pair.shared.lock();
    let state = &mut *guard;
    if state.phase == Phase::Failed {
        return Err(Error::Failed.into());
    }
    if count > state.receive.room() {
        return Err(Error::QueueFull.into());
    }
    if count == 0 {
        return Ok(());
    }
    let post =
        pair.pd.device.ops().post_recv.ok_or(Error::Argument("a device without receives"))?;
    state.scratch.receives.clear();
    state.scratch.sges.clear();
    for i in 0..count {
        let (id, slice) = request(i);
        let slice = slice.filter(|slice| slice.len > 0);
        let mut wr = ffi::RecvWr::EMPTY;
        let sequence = state.receive.next_sequence();
        wr.wr_id = WorkId { place: pair.place, receive: true, sequence }.bits();
        if let Some(slice) = slice {
            state.scratch.sges.push(slice.region.share().sge(slice.offset, slice.len));
            wr.num_sge = 1;
        }
        state.scratch.receives.push(wr);
        state
            .receive
            .push(ReceiveSlot { id, _share: slice.map(|slice| slice.region.share().clone()) });
    }
    let Scratch { receives, sges, .. } = &mut state.scratch;
    let first = receives.as_mut_ptr();
    let mut sge = sges.as_mut_ptr();
    for (i, wr) in receives.iter_mut().enumerate() {
        wr.sg_list = sge;
        sge = sge.wrapping_add(wr.num_sge as usize);
        wr.next = if i + 1 < count { first.wrapping_add(i + 1) } else { ptr::null_mut() };
    }
    let mut bad = ptr::null_mut();
    // SAFETY: as for sends.
    let failed = unsafe { post(pair.qp.as_ptr(), first, &mut bad) };
    let place = (bad.addr().wrapping_sub(first.addr())) / size_of::<ffi::RecvWr>();
    let posted = match failed {
        0 => count,
        _ if bad.is_null() || place > count => 0,
        _ => place,
    };
    state.receive.retract(count - posted).for_each(drop);
    drop(guard);
    add(&pair.cq.counting.receives_posted, 1);
    add(&pair.cq.counting.receive_requests, posted as u64);
    if failed != 0 {
        return Err(PostError { posted, error: Error::number("ibv_post_recv", failed) });
    }
    Ok(())
}
