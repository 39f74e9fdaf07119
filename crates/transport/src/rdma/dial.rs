//! The client's side: a device, and connections. Each connection has a protection domain and a completion queue of
//! its own. So a client needs no memory windows: the protection domain has only the server's queue pair. A connection
//! of a worker completes in the worker's queues instead.
//!
//! Large messages go through two zones that a connection registers before its first large message. The server
//! writes into one zone and reads from the other.

use super::fabric::RdmaFabric;
use super::parameters::{Answer, Parameters};
use super::queues::{AllQueues, Membership};
use super::{COMPLETIONS, Mailbox, READS_MAX, SHAPE, queue_pair_options};
use crate::executor::local::Local;
use crate::ring::{
    FRAME_HEADER_BYTES, Fabric, FrameToWrite, OFFER_BYTES, PROBE_BYTES, RingEnd, Shape, Zone,
};
use kauri_verbs::{
    Access, Completion, CompletionQueue, Device, Error, GidEntry, MemoryRegion, ProtectionDomain,
    QueuePair, Result, Verbs, choose_gid,
};
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Completions taken at once.
const BATCH: usize = 4;

/// Zones of a connection: both together.
const ZONES_BYTES: u64 = 2 * Zone::LARGEST.bytes() as u64;
/// Zones of all connections of a device in this process. Beyond that large messages go through the rings.
const ZONES_BYTES_MAX: u64 = 256 << 20;

/// A client's end of a session over RDMA.
pub type DialedEnd = RingEnd<DialedFabric>;

/// An RDMA device that connections are made by.
pub struct Dialer {
    device: Device,
    /// Bytes of zones that there are.
    zone_bytes: Arc<AtomicU64>,
    /// Of connections of workers.
    queues: AllQueues,
}

impl Dialer {
    /// Opens the device of that name, or the first that has an active port.
    pub fn open(device: Option<&str>) -> Result<Dialer> {
        let verbs = Verbs::load()?;
        let device = match device {
            Some(name) => verbs.open(name)?,
            None => verbs.open_active()?.0,
        };
        Ok(Dialer { device, zone_bytes: Arc::default(), queues: AllQueues::default() })
    }

    /// Makes everything for a connection from this address. `random` should be.
    pub fn prepare(&self, address: IpAddr, random: u64) -> Result<Dialing> {
        let queue = CompletionQueue::new(&self.device, COMPLETIONS, true)?;
        let pair_of = |domain: &ProtectionDomain, gid| {
            QueuePair::new(domain, &queue, &queue_pair_options(0, gid, random))
        };
        let (domain, pair) = self.pair(address, pair_of)?;
        let (taken, fresh) = (RefCell::new([Completion::EMPTY; BATCH]), Cell::new(false));
        let completions = Completions::Own { queue, taken, fresh };
        self.dialing(domain, pair, Arc::default(), completions)
    }

    /// The same for a connection of the calling thread's worker.
    pub(crate) fn prepare_on(
        &self,
        local: &Rc<Local>,
        address: IpAddr,
        random: u64,
    ) -> Result<Dialing> {
        let mailbox = Arc::new(Mailbox::default());
        let (queue, member) = self.queues.join(&self.device, local, &mailbox)?;
        let pair_of = |domain: &ProtectionDomain, gid| {
            QueuePair::new(domain, &queue, &queue_pair_options(member.key(), gid, random))
        };
        let (domain, pair) = self.pair(address, pair_of)?;
        self.dialing(domain, pair, mailbox, Completions::Worker { _member: member })
    }

    fn pair(
        &self,
        address: IpAddr,
        pair_of: impl FnOnce(&ProtectionDomain, GidEntry) -> Result<QueuePair>,
    ) -> Result<(ProtectionDomain, QueuePair)> {
        let address = address.to_canonical();
        let gid = choose_gid(&self.device.gids()?, address).ok_or(Error::NoGid(address))?;
        let domain = self.device.protection_domain()?;
        let pair = pair_of(&domain, gid)?;
        Ok((domain, pair))
    }

    fn dialing(
        &self,
        domain: ProtectionDomain,
        pair: QueuePair,
        mailbox: Arc<Mailbox>,
        completions: Completions,
    ) -> Result<Dialing> {
        let fabric = RdmaFabric::new(&domain, pair, Access::REMOTE_WRITE, mailbox)?;
        let zone_bytes = Arc::clone(&self.zone_bytes);
        // Fewer READs than the server asks at once would be more than the device takes.
        let may_offer = self.device.limits()?.reads_incoming_max >= READS_MAX;
        let fabric =
            DialedFabric { fabric, zones: None, domain, zone_bytes, may_offer, completions };
        Ok(Dialing { fabric })
    }
}

/// A connection that the server has not answered yet.
pub struct Dialing {
    fabric: DialedFabric,
}

impl Dialing {
    /// The parameters of the request.
    pub fn request(&self) -> Vec<u8> {
        let fabric = &self.fabric.fabric;
        let (endpoint, ring) = (fabric.endpoint(), fabric.ring());
        Parameters { shape: SHAPE, endpoint, ring }.encode()
    }

    /// The client's end and its probe, from the server's reply.
    pub fn accept(
        self,
        answer: &[u8],
    ) -> std::result::Result<(DialedEnd, [u8; PROBE_BYTES as usize]), String> {
        let (shape, fabric, probe) = self.accept_parts(answer)?;
        Ok((RingEnd::new(shape, fabric), probe))
    }

    /// The parts of that end.
    pub(crate) fn accept_parts(
        mut self,
        answer: &[u8],
    ) -> std::result::Result<(Shape, DialedFabric, [u8; PROBE_BYTES as usize]), String> {
        let Answer { parameters: peer, probe, takes_zones } = Parameters::decode_answer(answer)?;
        let connected = self.fabric.fabric.connect(&peer.endpoint, peer.ring);
        connected.map_err(|error| error.to_string())?;
        self.fabric.may_offer &= takes_zones;
        Ok((peer.shape, self.fabric, probe))
    }
}

/// Where sends and arrivals of a connection complete.
#[allow(clippy::large_enum_variant, reason = "one a connection")]
enum Completions {
    /// In a queue of its own, which its user polls.
    Own {
        queue: CompletionQueue,
        /// Where completions are taken to.
        taken: RefCell<[Completion; BATCH]>,
        /// Whether completions were taken since the last unread immediate.
        fresh: Cell<bool>,
    },
    /// In the worker's queues, which the worker polls.
    Worker { _member: Membership },
}

/// The client's fabric.
pub struct DialedFabric {
    // Before the queue, which it completes in, and the zones, which its peer uses.
    fabric: RdmaFabric,
    zones: Option<Zones>,
    domain: ProtectionDomain,
    zone_bytes: Arc<AtomicU64>,
    /// Whether the server takes zones.
    may_offer: bool,
    completions: Completions,
}

/// Memory that pieces of large messages go through.
struct Zones {
    landing: MemoryRegion,
    departure: MemoryRegion,
    _budget: Budget,
}

/// A zone's share of the common limit.
struct Budget(Arc<AtomicU64>);

impl Budget {
    fn take(all: &Arc<AtomicU64>) -> Option<Budget> {
        let budget = Budget(Arc::clone(all));
        let before = all.fetch_add(ZONES_BYTES, Ordering::Relaxed);
        (before + ZONES_BYTES <= ZONES_BYTES_MAX).then_some(budget)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.0.fetch_sub(ZONES_BYTES, Ordering::Relaxed);
    }
}

impl Zones {
    fn make(domain: &ProtectionDomain, all: &Arc<AtomicU64>) -> Option<Zones> {
        let budget = Budget::take(all)?;
        let bytes = Zone::LARGEST.bytes() as usize;
        // What can't be pinned need not be: large messages go through the ring.
        let landing = domain.register(bytes, Access::REMOTE_WRITE).ok()?;
        let departure = domain.register(bytes, Access::REMOTE_READ).ok()?;
        Some(Zones { landing, departure, _budget: budget })
    }

    fn told(&self) -> [u8; OFFER_BYTES as usize] {
        let mut told = [0; OFFER_BYTES as usize];
        let (halves, _) = told.as_chunks_mut::<16>();
        for (half, region) in halves.iter_mut().zip([&self.landing, &self.departure]) {
            let place = region.remote();
            let (address, rest) = half.split_at_mut(8);
            let (key, bytes) = rest.split_at_mut(4);
            address.copy_from_slice(&place.address.to_le_bytes());
            key.copy_from_slice(&place.key.to_le_bytes());
            bytes.copy_from_slice(&Zone::LARGEST.bytes().to_le_bytes());
        }
        told
    }
}

impl std::fmt::Debug for DialedFabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fabric.fmt(f)
    }
}

impl DialedFabric {
    /// What it has in common with a server's.
    pub(crate) fn base(&mut self) -> &mut RdmaFabric {
        &mut self.fabric
    }

    /// Takes completions. Whether there were any.
    fn take(&self) -> bool {
        let Completions::Own { queue, taken, .. } = &self.completions else { return false };
        let mut taken = taken.borrow_mut();
        let count = queue.poll(&mut *taken).unwrap_or(0);
        taken.iter().take(count).for_each(|one| self.fabric.mailbox().deliver(one, 0));
        count > 0
    }

    /// Whether there are unprocessed arrivals.
    pub fn has_arrivals(&self) -> bool {
        if let Completions::Own { fresh, .. } = &self.completions {
            fresh.set(true);
        }
        self.take() || self.fabric.mailbox().has_news()
    }

    /// From now on the bell rings at a completion. False: there was one, so do not sleep.
    pub fn fall_asleep(&self) -> bool {
        let armed = match &self.completions {
            Completions::Own { queue, .. } => queue.arm().is_ok(),
            Completions::Worker { .. } => true,
        };
        armed && !self.has_arrivals()
    }

    /// Forgets that the bell was rung.
    pub fn reset_bell(&self) {
        if let Completions::Own { queue, .. } = &self.completions {
            let _ = queue.take_event();
        }
    }

    /// Waits until the server has all that was sent, or the connection has failed; not for ever.
    pub fn flush(&mut self, patience: Duration) {
        self.fabric.finish();
        let began = Instant::now();
        while !self.fabric.is_flushed() && began.elapsed() < patience {
            self.take();
            std::thread::yield_now();
        }
    }

    /// Readable after a completion for a caller that has fallen asleep.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        match &self.completions {
            Completions::Own { queue, .. } => queue.channel().map(AsFd::as_fd),
            Completions::Worker { .. } => None,
        }
    }
}

impl Fabric for DialedFabric {
    fn has_room(&mut self, for_bytes: bool) -> bool {
        self.fabric.has_room(for_bytes) || (self.take() && self.fabric.has_room(for_bytes))
    }

    fn failure(&self) -> Option<&'static str> {
        self.fabric.failure()
    }

    fn write(&mut self, offset: u32, parts: [&[u8]; 3], immediate: u32) {
        self.fabric.write(offset, parts, immediate);
    }

    fn next_immediate(&mut self) -> Option<u32> {
        let next = self.fabric.next_immediate();
        let Completions::Own { fresh, .. } = &self.completions else { return next };
        if next.is_some() || fresh.take() {
            return next;
        }
        self.take();
        self.fabric.next_immediate()
    }

    fn read(&self, offset: u32, bytes: u32, into: &mut Vec<u8>) {
        self.fabric.read(offset, bytes, into);
    }

    fn read_header(&self, offset: u32) -> [u8; FRAME_HEADER_BYTES as usize] {
        self.fabric.read_header(offset)
    }

    fn offer(&mut self) -> Option<([Zone; 2], [u8; OFFER_BYTES as usize])> {
        if !self.may_offer {
            return None;
        }
        let zones = Zones::make(&self.domain, &self.zone_bytes)?;
        let told = zones.told();
        self.zones = Some(zones);
        Some(([Zone::LARGEST; 2], told))
    }

    fn has_room_for_piece(&mut self) -> bool {
        true
    }

    fn write_piece(&mut self, at: u32, piece: [&[u8]; 2], frame: FrameToWrite<'_>) {
        let Some(zones) = &mut self.zones else { return };
        let mut at = at as usize;
        for part in piece {
            let written = zones.departure.write(at, part);
            debug_assert!(written.is_ok(), "{written:?}");
            at += part.len();
        }
        let [header, head] = frame.parts;
        self.fabric.write(frame.offset, [header, head, &[]], frame.immediate);
    }

    fn has_piece(&self) -> bool {
        true
    }

    fn take_piece(&mut self, offset: u32, length: u32, into: &mut Vec<u8>) {
        let Some(zones) = &self.zones else { return };
        let read = zones.landing.append_to(offset as usize, length as usize, into);
        debug_assert!(read.is_ok(), "{read:?}");
    }
}
