//! The client's side: a device, and connections that have each a protection domain and a completion
//! queue of their own. So a client needs no windows: nothing but its server's queue pair is in there.

use super::parameters::Parameters;
use super::{COMPLETIONS, Mailbox, RdmaFabric, SHAPE, queue_pair_options};
use crate::ring::{FRAME_HEADER_BYTES, Fabric, PROBE_BYTES, RingEnd};
use kauri_verbs::{
    Access, Completion, CompletionQueue, Device, Error, QueuePair, Result, Verbs, choose_gid,
};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Completions taken at once.
const BATCH: usize = 4;

/// A client's end of a session over RDMA.
pub type DialedEnd = RingEnd<DialedFabric>;

/// An RDMA device that connections are made by.
pub struct Dialer {
    device: Device,
}

impl Dialer {
    /// Opens the device of that name, or the first that has an active port.
    pub fn open(device: Option<&str>) -> Result<Dialer> {
        let verbs = Verbs::load()?;
        let device = match device {
            Some(name) => verbs.open(name)?,
            None => verbs.open_active()?.0,
        };
        Ok(Dialer { device })
    }

    /// Makes everything for a connection from this address. `random` should be.
    pub fn prepare(&self, address: IpAddr, random: u64) -> Result<Dialing> {
        let address = address.to_canonical();
        let gid = choose_gid(&self.device.gids()?, address).ok_or(Error::NoGid(address))?;
        let domain = self.device.protection_domain()?;
        let queue = CompletionQueue::new(&self.device, COMPLETIONS, true)?;
        let pair = QueuePair::new(&domain, &queue, &queue_pair_options(0, gid, random))?;
        let mailbox = Arc::new(Mailbox::default());
        let fabric = RdmaFabric::new(&domain, pair, Access::REMOTE_WRITE, mailbox)?;
        Ok(Dialing { fabric: DialedFabric { fabric, queue } })
    }
}

/// A connection that the server has not answered yet.
pub struct Dialing {
    fabric: DialedFabric,
}

impl Dialing {
    /// The parameters that ask for it.
    pub fn request(&self) -> Vec<u8> {
        let fabric = &self.fabric.fabric;
        let (endpoint, ring) = (fabric.endpoint(), fabric.ring());
        Parameters { shape: SHAPE, endpoint, ring }.encode()
    }

    /// The client's end, and what it has to probe with, from the server's answer.
    pub fn accept(
        mut self,
        answer: &[u8],
    ) -> std::result::Result<(DialedEnd, [u8; PROBE_BYTES as usize]), String> {
        let (peer, probe) = Parameters::decode_answer(answer)?;
        let connected = self.fabric.fabric.connect(&peer.endpoint, peer.ring);
        connected.map_err(|error| error.to_string())?;
        Ok((RingEnd::new(peer.shape, self.fabric), probe))
    }
}

/// A fabric with the completion queue that is its alone.
pub struct DialedFabric {
    // Before the queue, which it completes in.
    fabric: RdmaFabric,
    queue: CompletionQueue,
}

impl std::fmt::Debug for DialedFabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fabric.fmt(f)
    }
}

impl DialedFabric {
    /// Takes what has completed. Whether there was anything.
    fn take(&self) -> bool {
        let mut taken = [Completion::EMPTY; BATCH];
        let count = self.queue.poll(&mut taken).unwrap_or(0);
        taken.iter().take(count).for_each(|one| self.fabric.mailbox().deliver(one, 0));
        count > 0
    }

    /// Whether something has happened that was not looked at yet.
    pub fn has_arrivals(&self) -> bool {
        self.take() || self.fabric.mailbox().has_news()
    }

    /// From now on the bell is rung when something completes. False: it has, and nobody must sleep.
    pub fn fall_asleep(&self) -> bool {
        self.queue.arm().is_ok() && !self.has_arrivals()
    }

    /// Forgets that the bell was rung.
    pub fn reset_bell(&self) {
        let _ = self.queue.take_event();
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

    /// Readable when something has completed for who has fallen asleep.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.queue.channel().map(AsFd::as_fd)
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
        self.fabric.next_immediate().or_else(|| {
            self.take();
            self.fabric.next_immediate()
        })
    }

    fn read(&self, offset: u32, bytes: u32, into: &mut Vec<u8>) {
        self.fabric.read(offset, bytes, into);
    }

    fn read_header(&self, offset: u32) -> [u8; FRAME_HEADER_BYTES as usize] {
        self.fabric.read_header(offset)
    }
}
