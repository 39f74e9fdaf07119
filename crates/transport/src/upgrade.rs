//! A session's change from its byte stream to a faster transport, the part of the command: whether the change is
//! allowed, and the offer until the session takes it.
//!
//! The command prepares an offer and replies with its parameters. The session sends the descriptors with that reply
//! and does the rest (`stream::crossing`).
//!
//! Must not know: BSON, and how the session uses the offer.

use crate::executor::local::Local;
use crate::rdma::{
    Addresses, DialedFabric, HostedFabric, RdmaFabric, RdmaHost, RdmaMembership, RdmaRefusal,
};
use crate::ring::{
    FRAME_HEADER_BYTES, Fabric, FrameToWrite, OFFER_BYTES, PROBE_BYTES, RingEnd, Zone,
};
use crate::shared_memory::{self, Refusal, SharedFabric};
use kauri_base::{Error, ErrorCode, RandomSource, Result};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// The transports that a session can upgrade to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastTransport {
    /// Memory that two processes of one host share.
    SharedMemory,
    /// RDMA.
    Rdma,
}

impl FastTransport {
    const ALL: [FastTransport; 2] = [FastTransport::SharedMemory, FastTransport::Rdma];

    /// As in commands, connection strings and counters.
    pub fn name(self) -> &'static str {
        match self {
            FastTransport::SharedMemory => "sharedMemory",
            FastTransport::Rdma => "rdma",
        }
    }
}

/// A server's treatment of requests for RDMA.
#[derive(Debug, Default)]
pub enum RdmaService {
    /// Refuses them: RDMA is switched off.
    #[default]
    Off,
    /// The same: there is no device, for this reason.
    Absent(String),
    /// Serves them.
    On(Arc<RdmaHost>),
}

/// The outcomes of upgrades to one transport in this process.
#[derive(Default, Debug)]
pub struct UpgradeCounts {
    /// Offers made.
    pub offered: AtomicU64,
    /// Sessions that have changed over.
    pub switched: AtomicU64,
    /// Offers that clients did not take up, and switches that they did not learn of.
    pub withdrawn: AtomicU64,
    /// Requests that got no offer.
    pub refused: AtomicU64,
    /// Sessions that the transport has failed.
    pub failed: AtomicU64,
    /// Sessions with a ring now.
    pub sessions: AtomicU64,
}

/// The outcomes of upgrades in this process.
#[derive(Default, Debug)]
pub struct UpgradeStats {
    shared_memory: UpgradeCounts,
    rdma: UpgradeCounts,
    /// By [`RdmaRefusal::NAMES`].
    pub rdma_refusals: [AtomicU64; RdmaRefusal::NAMES.len()],
}

impl UpgradeStats {
    /// The outcomes for this transport.
    pub fn of(&self, transport: FastTransport) -> &UpgradeCounts {
        match transport {
            FastTransport::SharedMemory => &self.shared_memory,
            FastTransport::Rdma => &self.rdma,
        }
    }
}

/// The fabric of a session's end on a worker: the server's, or that of an outgoing session.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one a session, in memory of its own")]
pub(crate) enum ServerFabric {
    Shared(SharedFabric),
    Rdma(HostedFabric),
    /// An outgoing session's.
    Dialed(DialedFabric),
}

impl ServerFabric {
    /// What fabrics over RDMA have in common.
    pub fn rdma(&mut self) -> Option<&mut RdmaFabric> {
        match self {
            ServerFabric::Shared(_) => None,
            ServerFabric::Rdma(fabric) => Some(fabric.base()),
            ServerFabric::Dialed(fabric) => Some(fabric.base()),
        }
    }
}

/// A server's end of a session that has left its stream.
pub(crate) type ServerEnd = RingEnd<ServerFabric>;

macro_rules! either {
    ($fabric:expr, $it:ident => $do:expr) => {
        match $fabric {
            ServerFabric::Shared($it) => $do,
            ServerFabric::Rdma($it) => $do,
            ServerFabric::Dialed($it) => $do,
        }
    };
}

impl Fabric for ServerFabric {
    fn has_room(&mut self, for_bytes: bool) -> bool {
        either!(self, it => it.has_room(for_bytes))
    }

    fn failure(&self) -> Option<&'static str> {
        either!(self, it => it.failure())
    }

    fn write(&mut self, offset: u32, parts: [&[u8]; 3], immediate: u32) {
        either!(self, it => it.write(offset, parts, immediate));
    }

    fn next_immediate(&mut self) -> Option<u32> {
        either!(self, it => it.next_immediate())
    }

    fn read(&self, offset: u32, bytes: u32, into: &mut Vec<u8>) {
        either!(self, it => it.read(offset, bytes, into));
    }

    fn read_header(&self, offset: u32) -> [u8; FRAME_HEADER_BYTES as usize] {
        either!(self, it => it.read_header(offset))
    }

    fn offer(&mut self) -> Option<([Zone; 2], [u8; OFFER_BYTES as usize])> {
        either!(self, it => it.offer())
    }

    fn accept(&mut self, told: [u8; OFFER_BYTES as usize]) -> Option<[Zone; 2]> {
        either!(self, it => it.accept(told))
    }

    fn has_room_for_piece(&mut self) -> bool {
        either!(self, it => it.has_room_for_piece())
    }

    fn write_piece(&mut self, at: u32, piece: [&[u8]; 2], frame: FrameToWrite<'_>) {
        either!(self, it => it.write_piece(at, piece, frame));
    }

    fn keep_piece(&mut self, piece: [&[u8]; 2]) -> bool {
        either!(self, it => it.keep_piece(piece))
    }

    fn has_room_for_kept(&mut self) -> bool {
        either!(self, it => it.has_room_for_kept())
    }

    fn write_kept(&mut self, at: u32, length: u32, frame: FrameToWrite<'_>) {
        either!(self, it => it.write_kept(at, length, frame));
    }

    fn fetch(&mut self, offset: u32, length: u32, waker: &Waker) -> bool {
        either!(self, it => it.fetch(offset, length, waker))
    }

    fn fetches(&self) -> usize {
        either!(self, it => it.fetches())
    }

    fn has_piece(&self) -> bool {
        either!(self, it => it.has_piece())
    }

    fn take_piece(&mut self, offset: u32, length: u32, into: &mut Vec<u8>) {
        either!(self, it => it.take_piece(offset, length, into));
    }
}

/// The server's part of an upgrade for a client.
#[derive(Debug)]
pub(crate) struct Offer {
    pub transport: FastTransport,
    pub end: ServerEnd,
    /// The contents of probes.
    pub probe: [u8; PROBE_BYTES as usize],
    /// The descriptors that go with the reply.
    pub descriptors: Vec<OwnedFd>,
    /// Its part of the device.
    pub rdma: Option<RdmaMembership>,
}

#[derive(Debug, Default)]
enum Progress {
    #[default]
    Stream,
    Prepared(Box<Offer>),
    /// The session has it.
    Taken(FastTransport),
    /// The session's channel transforms bytes, and nothing else carries them.
    Never,
}

/// See the module's head. One for each session.
#[derive(Debug, Default)]
pub struct UpgradePoint {
    /// Why shared memory is not for this session, if it isn't.
    shared_memory_refusal: Option<&'static str>,
    rdma: Arc<RdmaService>,
    /// The addresses of a session over TCP.
    addresses: Option<Addresses>,
    pub(crate) stats: Arc<UpgradeStats>,
    progress: Mutex<Progress>,
    is_prepared: AtomicBool,
}

impl UpgradePoint {
    pub(crate) fn new(
        shared_memory_refusal: Option<&'static str>,
        rdma: Arc<RdmaService>,
        addresses: Option<Addresses>,
        stats: Arc<UpgradeStats>,
    ) -> Self {
        UpgradePoint { shared_memory_refusal, rdma, addresses, stats, ..UpgradePoint::default() }
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next reply is one that makes an offer, which goes in a way of its own.
    pub(crate) fn is_prepared(&self) -> bool {
        self.is_prepared.load(Ordering::Relaxed)
    }

    /// The server's treatment of requests for RDMA.
    pub fn rdma(&self) -> &Arc<RdmaService> {
        &self.rdma
    }

    /// For the command, on the session's worker: makes an offer. Answers its parameters, which have to be
    /// sent in the reply that comes next.
    pub fn prepare(
        &self,
        transport: &str,
        parameters: &[u8],
        random: &dyn RandomSource,
    ) -> Result<Vec<u8>> {
        let Some(known) = FastTransport::ALL.into_iter().find(|known| known.name() == transport)
        else {
            let why = format!("unknown transport '{transport}': use 'sharedMemory' or 'rdma'");
            return Err(Error::new(ErrorCode::BadValue, why));
        };
        let made = self.make(known, parameters, random);
        let counts = self.stats.of(known);
        let count = if made.is_ok() { &counts.offered } else { &counts.refused };
        count.fetch_add(1, Ordering::Relaxed);
        let (offer, answer) = made?;
        *self.progress() = Progress::Prepared(Box::new(offer));
        self.is_prepared.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    fn make(
        &self,
        transport: FastTransport,
        parameters: &[u8],
        random: &dyn RandomSource,
    ) -> Result<(Offer, Vec<u8>)> {
        let why = match *self.progress() {
            Progress::Stream => None,
            Progress::Never => Some("the session's bytes are encrypted; it stays on its stream"),
            _ => Some("the session has been offered another transport already"),
        };
        if let Some(why) = why {
            return Err(Error::new(ErrorCode::IllegalOperation, why));
        }
        match transport {
            FastTransport::SharedMemory => self.share(parameters, random),
            FastTransport::Rdma => self.connect(parameters, random).map_err(|refusal| {
                if let Some(count) = self.stats.rdma_refusals.get(refusal.index()) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                refusal.to_error()
            }),
        }
    }

    fn share(&self, parameters: &[u8], random: &dyn RandomSource) -> Result<(Offer, Vec<u8>)> {
        if let Some(why) = self.shared_memory_refusal {
            return Err(Error::new(ErrorCode::IllegalOperation, why));
        }
        let probe = random.next_u64().to_le_bytes();
        let made = shared_memory::Offer::make(parameters, probe);
        let made = made.map_err(|refusal| match refusal {
            Refusal::Parameters(why) => Error::new(ErrorCode::BadValue, why),
            Refusal::System(error) => Error::new(
                ErrorCode::ExceededMemoryLimit,
                format!("no shared memory for the session: {error}"),
            ),
        })?;
        let offer = Offer {
            transport: FastTransport::SharedMemory,
            end: RingEnd::new(made.shape, ServerFabric::Shared(made.fabric)),
            probe,
            descriptors: made.descriptors,
            rdma: None,
        };
        Ok((offer, made.answer))
    }

    fn connect(
        &self,
        parameters: &[u8],
        random: &dyn RandomSource,
    ) -> std::result::Result<(Offer, Vec<u8>), RdmaRefusal> {
        let host = match &*self.rdma {
            RdmaService::Off => return Err(RdmaRefusal::Off),
            RdmaService::Absent(why) => return Err(RdmaRefusal::NoDevice(why.clone())),
            RdmaService::On(host) => host,
        };
        let (Some(addresses), Some(local)) = (self.addresses, Local::current()) else {
            return Err(RdmaRefusal::NotTcp);
        };
        let made = host.offer(&local, addresses, parameters, random)?;
        let offer = Offer {
            transport: FastTransport::Rdma,
            end: RingEnd::new(made.shape, ServerFabric::Rdma(made.fabric)),
            probe: made.probe,
            descriptors: Vec::new(),
            rdma: Some(made.membership),
        };
        Ok((offer, made.answer))
    }

    /// For the session: the offer whose parameters the next reply carries.
    pub(crate) fn take(&self) -> Option<Box<Offer>> {
        if !self.is_prepared.load(Ordering::Relaxed) {
            return None;
        }
        self.is_prepared.store(false, Ordering::Relaxed);
        let mut progress = self.progress();
        match std::mem::take(&mut *progress) {
            Progress::Prepared(offer) => {
                *progress = Progress::Taken(offer.transport);
                Some(offer)
            }
            other => {
                *progress = other;
                None
            }
        }
    }

    /// For a session whose channel transforms bytes: no other transport is offered to it.
    pub(crate) fn keep_to_stream(&self) {
        *self.progress() = Progress::Never;
    }

    /// For the session: the client goes on with the stream.
    pub(crate) fn withdraw(&self) {
        let before = std::mem::take(&mut *self.progress());
        if let Progress::Taken(transport) = before {
            self.stats.of(transport).withdrawn.fetch_add(1, Ordering::Relaxed);
        }
    }
}
