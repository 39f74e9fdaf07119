//! Fixtures: a device, and pairs of connected queue pairs on it.

use kauri_verbs::{
    Access, Completion, CompletionQueue, ConnectOptions, Device, GidEntry, MemoryRegion, Operation,
    ProtectionDomain, QueuePair, QueuePairOptions, RemoteAddress, SendRequest, Source, Status,
    Verbs, choose_gid,
};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A longer wait is a failure.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const SENDS_MAX: u32 = 64;
pub const RECEIVES_MAX: u32 = 64;
pub const REGION_BYTES: usize = 1 << 17;

/// The guest's address on the device's network (tests/lab/verbs).
pub fn local_address() -> IpAddr {
    let address = std::env::var("KAURI_TEST_RDMA_ADDRESS").unwrap_or_else(|_| "10.0.2.15".into());
    address.parse().expect("an IP address")
}

/// A device with an active port, the GID to use on it, and a protection domain.
pub struct Lab {
    pub device: Device,
    pub gid: GidEntry,
    pub domain: ProtectionDomain,
}

impl Lab {
    pub fn new() -> Lab {
        let (device, port) = Verbs::load().unwrap().open_active().unwrap();
        let gid = choose_gid(&device.gids().unwrap(), local_address()).expect("a GID");
        assert_eq!(gid.port, port);
        let domain = device.protection_domain().unwrap();
        Lab { device, gid, domain }
    }

    pub fn options(&self) -> QueuePairOptions {
        QueuePairOptions {
            key: 0,
            sends_max: SENDS_MAX,
            receives_max: RECEIVES_MAX,
            inline_bytes: 512,
            signal_interval: 32,
            gid: self.gid,
            sequence: 0xabcdef,
        }
    }

    /// One end, with its own completion queue and memory.
    pub fn end(&self, key: u64) -> End {
        let cq = CompletionQueue::new(&self.device, SENDS_MAX + RECEIVES_MAX, true).unwrap();
        let options = QueuePairOptions { key, ..self.options() };
        let qp = QueuePair::new(&self.domain, &cq, &options).unwrap();
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::WINDOW;
        let region = self.domain.register(REGION_BYTES, access).unwrap();
        End { qp, cq, region }
    }

    /// Two ends, connected with each other, with the keys 1 and 2.
    pub fn pair(&self) -> (End, End) {
        let ends = (self.end(1), self.end(2));
        connect(&ends.0.qp, &ends.1.qp, &ConnectOptions::default());
        ends
    }
}

pub fn connect(one: &QueuePair, other: &QueuePair, options: &ConnectOptions) {
    one.connect(&other.endpoint(), options).unwrap();
    other.connect(&one.endpoint(), options).unwrap();
}

/// Options that give up a dead peer soon.
pub fn impatient() -> ConnectOptions {
    ConnectOptions { ack_timeout: 10, retries: 2, receiver_retries: 1, ..Default::default() }
}

pub struct End {
    pub qp: QueuePair,
    pub cq: CompletionQueue,
    pub region: MemoryRegion,
}

impl End {
    /// The next completion.
    pub fn wait(&self) -> Completion {
        wait(&self.cq)
    }

    /// The next completion, which must be a success.
    pub fn done(&self) -> Completion {
        let completion = self.wait();
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        completion
    }

    /// Posts one request, and waits for its completion.
    pub fn run(&self, operation: Operation<'_>) -> Completion {
        self.qp.post_send(&[SendRequest::new(7, operation)]).unwrap();
        self.wait()
    }

    /// Writes bytes at the beginning of its region to the peer.
    pub fn write(&self, len: usize, to: RemoteAddress) -> Completion {
        let from = Source::Region(self.region.slice(0, len).unwrap());
        self.run(Operation::Write { from, to })
    }

    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.region.read(offset, &mut bytes).unwrap();
        bytes
    }
}

/// The next completion of a queue.
pub fn wait(cq: &CompletionQueue) -> Completion {
    let mut out = [Completion::EMPTY];
    until("a completion", || cq.poll(&mut out).unwrap() == 1);
    out[0]
}

/// Polls until the condition holds.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::yield_now();
    }
}

/// Bytes that encode their positions.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + 7) as u8).collect()
}
