//! The server's side: its device, the limits of its sessions, and its offers to sessions.

use super::fabric::RdmaFabric;
use super::hosted::HostedFabric;
use super::parameters::{Answer, Parameters};
use super::pool::{Pool, PoolCounts};
use super::queues::{AllQueues, Membership};
use super::{Mailbox, SESSION_BYTES, queue_pair_options};
use crate::executor::local::Local;
use crate::ring::{PROBE_BYTES, Shape};
use crate::sys::monotonic_ns;
use kauri_base::log::{self, Attr};
use kauri_base::{Error, ErrorCode, RandomSource};
use kauri_verbs::{
    Access, AsyncEvent, Counters, Device, Gid, GidEntry, GidKind, ProtectionDomain, QueuePair,
    Verbs, choose_gid,
};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum time of a device to bind a window: that needs no packet.
const BIND_NS_MAX: u64 = 200_000_000;

/// RDMA options of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RdmaOptions {
    /// The device's name; by default the first with an active port.
    pub device: Option<String>,
    /// Its port; by default the one of the GID.
    pub port: Option<u8>,
    /// The GID's index in the port's table; by default the one of the address that a client connects to.
    pub gid_index: Option<u8>,
    /// Most bytes to be pinned for sessions.
    pub pinned_bytes_max: u64,
    /// Bytes to be pinned for large messages.
    pub pool_bytes: u64,
}

/// Why a session gets no RDMA.
#[derive(Debug)]
pub enum RdmaRefusal {
    /// It is switched off.
    Off,
    /// The server has no device.
    NoDevice(String),
    /// The session is not over TCP.
    NotTcp,
    /// The device does not have the address that the client connects to.
    NoGid(IpAddr),
    /// The client's parameters are invalid.
    Parameters(&'static str),
    /// No more memory may be pinned.
    Memory(u64),
    /// The device refuses.
    Device(kauri_verbs::Error),
}

impl RdmaRefusal {
    /// The names in `serverStatus`.
    pub const NAMES: [&'static str; 7] =
        ["off", "noDevice", "notTcp", "noGid", "parameters", "memory", "device"];

    pub(crate) fn index(&self) -> usize {
        match self {
            RdmaRefusal::Off => 0,
            RdmaRefusal::NoDevice(_) => 1,
            RdmaRefusal::NotTcp => 2,
            RdmaRefusal::NoGid(_) => 3,
            RdmaRefusal::Parameters(_) => 4,
            RdmaRefusal::Memory(_) => 5,
            RdmaRefusal::Device(_) => 6,
        }
    }

    /// The client's error.
    pub fn to_error(&self) -> Error {
        let code = match self {
            RdmaRefusal::Parameters(_) => ErrorCode::BadValue,
            RdmaRefusal::Memory(_) | RdmaRefusal::Device(_) => ErrorCode::ExceededMemoryLimit,
            _ => ErrorCode::IllegalOperation,
        };
        Error::new(code, self.to_string())
    }
}

impl std::fmt::Display for RdmaRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RdmaRefusal::Off => f.write_str("RDMA is switched off (--rdma)"),
            RdmaRefusal::NoDevice(why) => write!(f, "the server has no RDMA: {why}"),
            RdmaRefusal::NotTcp => f.write_str("RDMA is for sessions over TCP"),
            RdmaRefusal::NoGid(address) => {
                write!(f, "the server's RDMA device does not have the address {address}")
            }
            RdmaRefusal::Parameters(why) => f.write_str(why),
            RdmaRefusal::Memory(max) => {
                write!(
                    f,
                    "RDMA sessions have reached the limit of pinned memory, {max} bytes (--rdmaMemoryMB)"
                )
            }
            RdmaRefusal::Device(error) => write!(f, "no RDMA for this session: {error}"),
        }
    }
}

/// The addresses of a TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The server's.
    pub own: IpAddr,
    /// The client's.
    pub peers: IpAddr,
}

/// The server's part of an upgrade for a client.
pub(crate) struct RdmaOffer {
    pub fabric: HostedFabric,
    pub membership: RdmaMembership,
    pub shape: Shape,
    /// The contents of probes.
    pub probe: [u8; PROBE_BYTES as usize],
    /// The parameters for the client.
    pub answer: Vec<u8>,
}

/// A session's part of the device, until it is dropped.
#[derive(Debug)]
pub(crate) struct RdmaMembership {
    host: Arc<RdmaHost>,
    _membership: Option<Membership>,
}

impl Drop for RdmaMembership {
    fn drop(&mut self) {
        self.host.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See the module's head.
pub struct RdmaHost {
    device: Device,
    domain: ProtectionDomain,
    pool: Arc<Pool>,
    options: RdmaOptions,
    /// Sessions that have something of the device.
    sessions: AtomicU64,
    queues: AllQueues,
}

impl std::fmt::Debug for RdmaHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RdmaHost({})", self.device.name())
    }
}

impl RdmaHost {
    /// Opens the device.
    pub fn open(options: RdmaOptions) -> kauri_verbs::Result<RdmaHost> {
        let verbs = Verbs::load()?;
        let device = match &options.device {
            Some(name) => verbs.open(name)?,
            None => verbs.open_active()?.0,
        };
        let limits = device.limits()?;
        if !limits.windows_type_2 {
            return Err(kauri_verbs::Error::NoWindows);
        }
        if let Some(port) = options.port {
            device.port(port)?;
        }
        let domain = device.protection_domain()?;
        let pool_bytes = if limits.reads_outgoing_max > 0 { options.pool_bytes } else { 0 };
        let pool = Arc::new(Self::pool(&device, &domain, pool_bytes)?);
        let sessions = AtomicU64::new(0);
        let queues = AllQueues::default();
        let host = RdmaHost { device, domain, pool, options, sessions, queues };
        if let Some(index) = host.options.gid_index {
            host.given_gid(index).ok_or(kauri_verbs::Error::NoActivePort)?;
        }
        Ok(host)
    }

    /// Without enough memory there is no pool, and large messages go through the rings.
    fn pool(device: &Device, domain: &ProtectionDomain, bytes: u64) -> kauri_verbs::Result<Pool> {
        Pool::new(domain, bytes).or_else(|error| {
            let attr = Attr::new()
                .str("device", device.name())
                .num("bytes", bytes)
                .str("error", error.to_string());
            let msg = "Cannot pin memory for large messages over RDMA: large messages are slower. Raise ulimit -l or \
                       lower --rdmaPoolMB";
            log::warning("NETWORK", 7_100_026, "rdma", msg, attr);
            Pool::new(domain, 0)
        })
    }

    /// The memory for large messages.
    pub fn pool_counts(&self) -> PoolCounts {
        self.pool.counts()
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        self.device.name()
    }

    /// The device's counters.
    pub fn counters(&self) -> Counters {
        self.device.counters()
    }

    fn is_of_port(&self, entry: &GidEntry) -> bool {
        self.options.port.is_none_or(|port| entry.port == port)
    }

    fn given_gid(&self, index: u8) -> Option<GidEntry> {
        let table = self.device.gids().ok()?;
        table.into_iter().find(|entry| self.is_of_port(entry) && entry.index == index)
    }

    fn gid(&self, address: IpAddr) -> Option<GidEntry> {
        match self.options.gid_index {
            Some(index) => self.given_gid(index),
            None => {
                let mut table = self.device.gids().ok()?;
                table.retain(|entry| self.is_of_port(entry));
                choose_gid(&table, address)
            }
        }
    }

    /// Logs asynchronous events of the device.
    pub(crate) fn note_events(&self) {
        while let Ok(Some(event)) = self.device.async_event() {
            let attr = Attr::new().str("device", self.device()).str("event", format!("{event:?}"));
            let msg = "RDMA device event";
            match event {
                AsyncEvent::DeviceFatal
                | AsyncEvent::PortDown { .. }
                | AsyncEvent::QueuePairFatal { .. }
                | AsyncEvent::CompletionQueueError => {
                    log::warning("NETWORK", 7_100_020, "rdma", msg, attr);
                }
                _ => log::info("NETWORK", 7_100_021, "rdma", msg, attr),
            }
        }
    }

    /// Prepares an upgrade for a client that connected from `peer` to this address. Called on the session's worker.
    pub(crate) fn offer(
        self: &Arc<Self>,
        local: &Rc<Local>,
        addresses: Addresses,
        parameters: &[u8],
        random: &dyn RandomSource,
    ) -> Result<RdmaOffer, RdmaRefusal> {
        self.note_events();
        let peer = Parameters::decode_request(parameters).map_err(RdmaRefusal::Parameters)?;
        let Addresses { own, peers } = addresses;
        let gid = self.gid(own.to_canonical()).ok_or(RdmaRefusal::NoGid(own))?;
        // The kernel looks for the peer's GID on the network, and the worker with all its sessions waits
        // for that. The address that the client has come from is known there.
        let known = gid.kind == GidKind::InfiniBand || self.options.gid_index.is_some();
        if !known && peer.endpoint.gid != Gid::of_address(peers.to_canonical()) {
            return Err(RdmaRefusal::Parameters("a GID of another address than the session's"));
        }
        let sessions = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        let mut membership = RdmaMembership { host: Arc::clone(self), _membership: None };
        if sessions * SESSION_BYTES > self.options.pinned_bytes_max {
            return Err(RdmaRefusal::Memory(self.options.pinned_bytes_max));
        }
        let made = self.make(local, gid, &peer, random.next_u64());
        let (fabric, member) = made.map_err(RdmaRefusal::Device)?;
        membership._membership = Some(member);
        let parameters =
            Parameters { shape: peer.shape, endpoint: fabric.endpoint(), ring: fabric.ring() };
        let probe = random.next_u64().to_le_bytes();
        let answer = Answer { parameters, probe, takes_zones: self.pool.counts().bytes > 0 };
        let fabric = HostedFabric::new(fabric, &self.pool);
        Ok(RdmaOffer { fabric, membership, shape: peer.shape, probe, answer: answer.encode() })
    }

    fn make(
        &self,
        local: &Rc<Local>,
        gid: GidEntry,
        peer: &Parameters,
        random: u64,
    ) -> kauri_verbs::Result<(RdmaFabric, Membership)> {
        let mailbox = Arc::new(Mailbox::default());
        let (queue, member) = self.queues.join(&self.device, local, &mailbox)?;
        let options = queue_pair_options(member.key(), gid, random);
        let pair = QueuePair::new(&self.domain, &queue, &options)?;
        let access = Access::WINDOW | Access::LOCAL_WRITE;
        let mut fabric = RdmaFabric::new(&self.domain, pair, access, mailbox)?;
        fabric.connect(&peer.endpoint, peer.ring)?;
        fabric.bind(&self.domain)?;
        let began_ns = monotonic_ns();
        while !fabric.mailbox().is_bound() {
            let now_ns = monotonic_ns();
            member.look();
            if fabric.mailbox().failure().is_some() || now_ns - began_ns > BIND_NS_MAX {
                return Err(kauri_verbs::Error::WindowState);
            }
            std::hint::spin_loop();
        }
        Ok((fabric, member))
    }
}
