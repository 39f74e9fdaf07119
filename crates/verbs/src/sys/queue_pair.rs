//! Queue pairs of reliable connections: their states, and the requests in their queues.
//!
//! `post` converts requests into the device's form; `complete` ends them. The slots between the two are the basis
//! of the ownership argument at the head of `sys`.

use super::completion::{CompletionQueue, CqInner};
use super::device::{PdInner, ProtectionDomain, mtu_number};
use super::ffi;
use super::memory::Share;
use super::window::WindowInner;
use crate::counters::add;
use crate::error::{Error, PostError, Result};
use crate::gid::GidEntry;
use crate::slots::Slots;
use crate::sys::request::{
    Completion, CompletionKind, Endpoint, ReceiveRequest, SendRequest, Status,
};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

mod post;

/// Parts of a region that one request may have.
pub const GATHER_MAX: usize = 4;

/// The device's id of a request: its queue pair, its queue, and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkId {
    pub place: u32,
    pub receive: bool,
    pub sequence: u32,
}

impl WorkId {
    pub const PLACE_MAX: u32 = (1 << 24) - 1;

    pub fn bits(self) -> u64 {
        u64::from(self.place) << 33 | u64::from(self.receive) << 32 | u64::from(self.sequence)
    }

    pub fn of_bits(bits: u64) -> WorkId {
        WorkId { place: (bits >> 33) as u32, receive: bits >> 32 & 1 == 1, sequence: bits as u32 }
    }
}

/// The options of a queue pair.
#[derive(Clone, Debug)]
pub struct QueuePairOptions {
    /// What its completions are known by; the caller's choice.
    pub key: u64,
    /// Send requests at once.
    pub sends_max: u32,
    /// Receives at once.
    pub receives_max: u32,
    /// Requested inline bytes of a request. The result may be smaller: see [`QueuePair::inline_bytes_max`].
    pub inline_bytes: u32,
    /// At least one in this many consecutive requests has a signalled completion. At most `sends_max`.
    pub signal_interval: u32,
    /// The GID that it sends from, and with it the port.
    pub gid: GidEntry,
    /// The first packet sequence number that it sends; 24 bits, best random.
    pub sequence: u32,
}

/// How a connection handles silence, and how many READs it allows at once.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// An acknowledgement is waited for 4.096 us times two to the power of this.
    pub ack_timeout: u8,
    /// Number of retransmissions after that; at most 7, which is unlimited with Soft-RoCE.
    pub retries: u8,
    /// Number of retransmissions if the peer has no receive; 7 is unlimited.
    pub receiver_retries: u8,
    /// The code of how long that waits in between (12: 0.64 ms).
    pub receiver_wait: u8,
    /// READs at once, in each direction, as far as the device goes along.
    pub reads_max: u8,
}

/// Retransmits unacknowledged packets for 7.5 s (devices may take up to four times as long).
impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            ack_timeout: 18,
            retries: 6,
            receiver_retries: 6,
            receiver_wait: 12,
            reads_max: 16,
        }
    }
}

/// A queue pair: one end of a reliable connection.
pub struct QueuePair {
    qp: NonNull<ffi::Qp>,
    shared: Arc<QpShared>,
    cq: Arc<CqInner>,
    pd: Arc<PdInner>,
    place: u32,
    /// What it has reserved of the completion queue.
    room: u32,
    inline_bytes_max: u32,
    signal_interval: u32,
    gid: GidEntry,
    local: Endpoint,
    reads_incoming_max: u8,
    reads_outgoing_max: u8,
}

// SAFETY: libibverbs' queue pairs may be used by several threads at once; posting here is under the
// queue pair's mutex anyway.
unsafe impl Send for QueuePair {}
// SAFETY: the same.
unsafe impl Sync for QueuePair {}

/// What the completion queue needs of a queue pair.
pub struct QpShared {
    key: u64,
    number: u32,
    state: Mutex<QpState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Receives may be posted.
    Initial,
    /// Everything may be posted.
    Ready,
    /// Nothing is posted any more; posted requests complete as flushed.
    Failed,
}

struct QpState {
    phase: Phase,
    send: Slots<SendSlot>,
    receive: Slots<ReceiveSlot>,
    /// Number of requests since the last one with a signalled completion.
    unsignalled: u32,
    /// Windows that are bound to this queue pair, or were.
    windows: Vec<Weak<WindowInner>>,
    scratch: post::Scratch,
}

/// A send request of the device, and the objects that it keeps alive.
struct SendSlot {
    id: u64,
    kind: CompletionKind,
    /// Whether the caller wants to hear of its success.
    asked: bool,
    /// Whether it completes visibly.
    signalled: bool,
    window: Option<Arc<WindowInner>>,
    _shares: [Option<Arc<Share>>; GATHER_MAX],
}

/// A receive of the device, and the objects that it keeps alive.
struct ReceiveSlot {
    id: u64,
    _share: Option<Arc<Share>>,
}

impl QpShared {
    fn lock(&self) -> MutexGuard<'_, QpState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the request of a completion, and all before it. `None` if the completion was not requested.
    pub fn complete(&self, id: WorkId, wc: &ffi::Wc) -> Option<Completion> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let status = Status::of_number(wc.status);
        if status != Status::Success {
            state.phase = Phase::Failed;
        }
        if id.receive {
            let slot = state.receive.complete(id.sequence, |_| {})?;
            let immediate = wc.opcode == ffi::WC_RECV_RDMA_WITH_IMM;
            let done = status == Status::Success;
            return Some(Completion {
                queue_pair: self.key,
                id: slot.id,
                kind: match immediate && done {
                    true => CompletionKind::ReceiveImmediate,
                    false => CompletionKind::Receive,
                },
                status,
                bytes: if done { wc.byte_len } else { 0 },
                immediate: (done && wc.wc_flags & ffi::WC_WITH_IMM != 0)
                    .then(|| u32::from_be(wc.imm_data)),
                vendor_error: wc.vendor_err,
            });
        }
        let windows = &mut state.windows;
        let slot = state.send.complete(id.sequence, |before| before.succeeded(windows))?;
        let (id, kind, asked) = (slot.id, slot.kind, slot.asked);
        if status == Status::Success {
            slot.succeeded(windows);
            if !asked {
                return None;
            }
        }
        let read = kind == CompletionKind::Read && status == Status::Success;
        Some(Completion {
            queue_pair: self.key,
            id,
            kind,
            status,
            bytes: if read { wc.byte_len } else { 0 },
            immediate: None,
            vendor_error: wc.vendor_err,
        })
    }
}

impl SendSlot {
    fn succeeded(self, windows: &mut Vec<Weak<WindowInner>>) {
        if let (CompletionKind::Invalidate, Some(window)) = (self.kind, &self.window) {
            window.invalidated();
            windows.retain(|known| known.as_ptr() != Arc::as_ptr(window));
        }
    }

    /// The device did not get it.
    fn refused(self) {
        match (self.kind, &self.window) {
            (CompletionKind::BindWindow, Some(window)) => window.unbind(),
            (CompletionKind::Invalidate, Some(window)) => window.keep(),
            _ => {}
        }
    }
}

impl QueuePair {
    /// A queue pair whose endpoint can be sent to a peer, and that receives may be posted to. Its requests complete
    /// in `queue`.
    pub fn new(
        domain: &ProtectionDomain,
        queue: &CompletionQueue,
        options: &QueuePairOptions,
    ) -> Result<QueuePair> {
        check(options)?;
        let device = domain.device();
        if !Arc::ptr_eq(&device.inner, &queue.inner.device) {
            return Err(Error::Argument("a completion queue of another device"));
        }
        let limits = device.limits()?;
        let port = device.port(options.gid.port)?;
        let room = options
            .sends_max
            .checked_add(options.receives_max)
            .ok_or(Error::Argument("too many requests at once"))?;
        let place = queue.inner.reserve(room)?;
        let (qp, inline_bytes_max) = match create(&domain.inner, &queue.inner, options) {
            Ok(created) => created,
            Err(error) => {
                queue.inner.release(place, room);
                return Err(error);
            }
        };
        // SAFETY: just created; the number does not change.
        let number = unsafe { qp.as_ref().qp_num };
        let state = QpState {
            phase: Phase::Initial,
            send: Slots::new(options.sends_max),
            receive: Slots::new(options.receives_max),
            unsignalled: 0,
            windows: Vec::new(),
            scratch: post::Scratch::default(),
        };
        let shared = QpShared { key: options.key, number, state: Mutex::new(state) };
        let pair = QueuePair {
            qp,
            shared: Arc::new(shared),
            cq: queue.inner.clone(),
            pd: domain.inner.clone(),
            place,
            room,
            inline_bytes_max,
            signal_interval: options.signal_interval,
            gid: options.gid,
            local: Endpoint {
                number,
                sequence: options.sequence,
                gid: options.gid.gid,
                lid: port.lid,
                mtu: port.mtu,
            },
            reads_incoming_max: limits.reads_incoming_max,
            reads_outgoing_max: limits.reads_outgoing_max,
        };
        add(&pair.pd.device.counting.queue_pairs_created, 1);
        pair.cq.attach(place, &pair.shared);
        pair.initialise()?;
        Ok(pair)
    }

    fn initialise(&self) -> Result<()> {
        let mut attr = ffi::QpAttr {
            qp_state: ffi::QPS_INIT,
            port_num: self.gid.port,
            // What regions and windows allow is narrower; this only lets their rights count.
            qp_access_flags: (ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_REMOTE_READ) as u32,
            ..Default::default()
        };
        let mask = ffi::QP_STATE | ffi::QP_PKEY_INDEX | ffi::QP_PORT | ffi::QP_ACCESS_FLAGS;
        self.modify(&mut attr, mask)
    }

    /// What the peer needs to connect to it.
    pub fn endpoint(&self) -> Endpoint {
        self.local
    }

    /// Its number, which its asynchronous events have.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// The key that it was created with.
    pub fn key(&self) -> u64 {
        self.shared.key
    }

    /// Maximum inline bytes of a request.
    pub fn inline_bytes_max(&self) -> u32 {
        self.inline_bytes_max
    }

    /// Number of send requests and receives that may be posted now.
    pub fn room(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.send.room(), state.receive.room())
    }

    /// Connects it: from now on it may send, and does so as soon as the peer is connected too.
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<()> {
        let mtu = mtu_number(peer.mtu.min(self.local.mtu));
        let mtu = mtu.ok_or(Error::Argument("a peer's MTU below 256 bytes"))?;
        if peer.number > 0xff_ffff || peer.sequence > 0xff_ffff {
            return Err(Error::Argument("a peer's number of more than 24 bits"));
        }
        if self.shared.lock().phase != Phase::Initial {
            return Err(Error::Argument("a queue pair that was connected already"));
        }
        let mut attr = ffi::QpAttr {
            qp_state: ffi::QPS_RTR,
            path_mtu: mtu,
            dest_qp_num: peer.number,
            rq_psn: peer.sequence,
            max_dest_rd_atomic: options.reads_max.min(self.reads_incoming_max),
            min_rnr_timer: options.receiver_wait,
            ..Default::default()
        };
        attr.ah_attr.grh.dgid = peer.gid.0;
        attr.ah_attr.grh.sgid_index = self.gid.index;
        attr.ah_attr.grh.hop_limit = 64;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.dlid = peer.lid;
        attr.ah_attr.port_num = self.gid.port;
        let mask = ffi::QP_STATE
            | ffi::QP_AV
            | ffi::QP_PATH_MTU
            | ffi::QP_DEST_QPN
            | ffi::QP_RQ_PSN
            | ffi::QP_MAX_DEST_RD_ATOMIC
            | ffi::QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask)?;
        let mut attr = ffi::QpAttr {
            qp_state: ffi::QPS_RTS,
            sq_psn: self.local.sequence,
            timeout: options.ack_timeout,
            retry_cnt: options.retries,
            rnr_retry: options.receiver_retries,
            max_rd_atomic: options.reads_max.min(self.reads_outgoing_max),
            ..Default::default()
        };
        let mask = ffi::QP_STATE
            | ffi::QP_SQ_PSN
            | ffi::QP_TIMEOUT
            | ffi::QP_RETRY_CNT
            | ffi::QP_RNR_RETRY
            | ffi::QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, mask)?;
        let mut state = self.shared.lock();
        // A receive that failed meanwhile has failed the queue pair.
        if state.phase == Phase::Initial {
            state.phase = Phase::Ready;
        }
        Ok(())
    }

    /// Moves it to the error state: posted requests complete as flushed, nothing more can be posted.
    pub fn fail(&self) -> Result<()> {
        self.shared.lock().phase = Phase::Failed;
        let mut attr = ffi::QpAttr { qp_state: ffi::QPS_ERR, ..Default::default() };
        self.modify(&mut attr, ffi::QP_STATE)
    }

    fn modify(&self, attr: &mut ffi::QpAttr, mask: i32) -> Result<()> {
        // SAFETY: the queue pair is alive, the attributes too.
        let failed = unsafe { (self.pd.device.library.modify_qp)(self.qp.as_ptr(), attr, mask) };
        if failed != 0 {
            return Err(Error::number("ibv_modify_qp", failed));
        }
        Ok(())
    }

    /// Posts a chain of requests with one call. If it fails, the error says how many are posted.
    pub fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        post::send(self, requests)
    }

    /// Posts receives with one call.
    pub fn post_receive(&self, requests: &[ReceiveRequest<'_>]) -> Result<(), PostError> {
        post::receive(self, requests)
    }

    /// Posts `count` receives without buffers, for WRITEs WITH IMMEDIATE, all with this id.
    pub fn post_empty_receives(&self, count: u32, id: u64) -> Result<(), PostError> {
        post::empty_receives(self, count as usize, id)
    }
}

fn check(options: &QueuePairOptions) -> Result<()> {
    if options.sends_max == 0 || options.receives_max == 0 {
        return Err(Error::Argument("a queue pair without requests"));
    }
    if options.signal_interval == 0 || options.signal_interval > options.sends_max {
        return Err(Error::Argument("a signal interval of 0, or longer than the send queue"));
    }
    if options.sequence > 0xff_ffff {
        return Err(Error::Argument("a sequence number of more than 24 bits"));
    }
    Ok(())
}

/// Creates it with as many inline bytes as it takes; providers refuse more than they can.
fn create(
    pd: &Arc<PdInner>,
    cq: &Arc<CqInner>,
    options: &QueuePairOptions,
) -> Result<(NonNull<ffi::Qp>, u32)> {
    let mut inline_bytes = options.inline_bytes;
    loop {
        let mut attr = ffi::QpInitAttr {
            qp_context: ptr::null_mut(),
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            srq: ptr::null_mut(),
            cap: ffi::QpCap {
                max_send_wr: options.sends_max,
                max_recv_wr: options.receives_max,
                max_send_sge: GATHER_MAX as u32,
                max_recv_sge: 1,
                max_inline_data: inline_bytes,
            },
            qp_type: ffi::QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: protection domain and completion queue are alive and of one device.
        let qp = unsafe { (pd.device.library.create_qp)(pd.pd.as_ptr(), &mut attr) };
        if let Some(qp) = NonNull::new(qp) {
            return Ok((qp, attr.cap.max_inline_data.min(options.inline_bytes)));
        }
        let error = Error::last("ibv_create_qp");
        if inline_bytes == 0 {
            return Err(error);
        }
        inline_bytes = if inline_bytes > 32 { inline_bytes / 2 } else { 0 };
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // If this fails, destroying it makes up for it.
        let _ = self.fail();
        let windows = std::mem::take(&mut self.shared.lock().windows);
        for window in windows.iter().filter_map(Weak::upgrade) {
            window.end_with(self.shared.number);
        }
        let device = &self.pd.device;
        // SAFETY: ours, destroyed once; nothing is posted to it any more, since that takes `&self`.
        if unsafe { (device.library.destroy_qp)(self.qp.as_ptr()) } != 0 {
            // The device may go on with its requests, so what they hold stays: the table of the
            // completion queue keeps the slots, and this keeps the queue and the rest.
            add(&device.counting.leaks, 1);
            std::mem::forget((self.cq.clone(), self.pd.clone()));
            return;
        }
        add(&device.counting.queue_pairs_destroyed, 1);
        let mut state = self.shared.lock();
        let send = std::mem::replace(&mut state.send, Slots::new(0));
        let receive = std::mem::replace(&mut state.receive, Slots::new(0));
        drop(state);
        drop((send, receive));
        self.cq.detach(self.place, self.room);
    }
}
