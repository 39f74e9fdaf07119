//! Sessions through memory that two processes on one host share: the fabric, its layout, and the handshake
//! (docs/design/rdma.md).
//!
//! Invariants:
//! - Each side writes only the ring and the slots that the other receives from, clears the slots that it receives
//!   from, and sets only its own one of the two wake words.
//! - The n-th immediate is in slot n modulo their number. The ring's credits keep a slot from being reused before
//!   it is clear.
//! - A side sets its wake word and checks once more before it sleeps. After sending an immediate, a side checks
//!   whether the other sleeps.
//!
//! Position: below sessions and clients, above `ring`.

pub mod bell;
mod signal;
pub mod sys;
#[cfg(test)]
mod tests;

use crate::ring::{FRAME_HEADER_BYTES, Fabric, PROBE_BYTES, RingEnd, Shape};
use crate::sys::EventFd;
use bell::Bell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use sys::SharedMemory;

/// The module that [`signal`] is compiled against; a model checker's in its test.
mod sync {
    pub use std::sync::atomic;
}

/// The version of layout and parameters.
const VERSION: u32 = 1;
/// Bytes of a ring, unless the client wants something else.
pub const RING_BYTES: u32 = 256 << 10;
/// Frames of a ring.
const FRAMES: u32 = 64;
/// Words that both write lie so far apart.
const LINE_BYTES: usize = 64;
/// Descriptors that go with an offer: the memory, the server's bell, the end at which the client hears its own.
const DESCRIPTORS: usize = 3;

/// An end of a session through shared memory.
pub type SharedEnd = RingEnd<SharedFabric>;

/// One of the two sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Server,
    Client,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Server => Side::Client,
            Side::Client => Side::Server,
        }
    }

    fn index(self) -> usize {
        match self {
            Side::Server => 0,
            Side::Client => 1,
        }
    }
}

/// The layout of the memory.
#[derive(Clone, Copy, Debug)]
struct Layout {
    shape: Shape,
}

impl Layout {
    /// The word that is 1 if this side wants to be woken.
    fn sleeps(self, side: Side) -> usize {
        side.index() * LINE_BYTES
    }

    /// The slot of the n-th immediate to this side.
    fn slot(self, side: Side, n: u32) -> usize {
        let frames = self.shape.frames() as usize;
        let at = side.index() * frames + (n % self.shape.frames()) as usize;
        2 * LINE_BYTES + at * size_of::<u32>()
    }

    /// The ring that this side receives from.
    fn ring(self, side: Side) -> usize {
        const PAGE_BYTES: usize = 4096;
        let slots_end = 2 * LINE_BYTES + 2 * self.shape.frames() as usize * size_of::<u32>();
        slots_end.next_multiple_of(PAGE_BYTES) + side.index() * self.shape.bytes() as usize
    }

    fn length(self) -> usize {
        self.ring(Side::Client) + self.shape.bytes() as usize
    }
}

/// One side of the shared memory.
#[derive(Debug)]
pub struct SharedFabric {
    memory: SharedMemory,
    layout: Layout,
    side: Side,
    told: u32,
    heard: u32,
    own_bell: Bell,
    peers_bell: Bell,
}

impl SharedFabric {
    fn peer(&self) -> Side {
        self.side.other()
    }

    fn sleeps(&self, side: Side) -> &AtomicU32 {
        self.memory.word(self.layout.sleeps(side))
    }

    /// The slot of the immediate that this side hears next.
    fn next_slot(&self) -> &AtomicU32 {
        self.memory.word(self.layout.slot(self.side, self.heard))
    }

    /// Whether there are unread immediates.
    pub fn has_immediate(&self) -> bool {
        signal::has_come(self.next_slot())
    }

    /// Says that this side is about to sleep until its bell is rung. False: there is something to
    /// hear, and it must not.
    pub fn fall_asleep(&self) -> bool {
        signal::fall_asleep(self.sleeps(self.side), self.next_slot())
    }

    /// Whether this side sleeps and the peer has sent nothing since.
    pub fn is_asleep(&self) -> bool {
        signal::is_asleep(self.sleeps(self.side))
    }

    /// Takes back what `fall_asleep` said.
    pub fn wake_up(&self) {
        signal::wake_up(self.sleeps(self.side));
    }

    /// Nothing is on the way, and nothing is expected soon: this process keeps no pages of the rings. The words that
    /// wake it stay.
    pub fn rest(&self) {
        self.memory.unmap_pages(self.layout.ring(Side::Server));
    }

    /// The bell that wakes this side.
    pub fn bell(&self) -> &Bell {
        &self.own_bell
    }
}

impl Fabric for SharedFabric {
    fn write(&mut self, offset: u32, parts: [&[u8]; 3], immediate: u32) {
        let mut at = self.layout.ring(self.peer()) + offset as usize;
        for part in parts {
            self.memory.write(at, part);
            at += part.len();
        }
        let slot = self.memory.word(self.layout.slot(self.peer(), self.told));
        self.told = self.told.wrapping_add(1);
        if signal::tell(slot, self.sleeps(self.peer()), immediate) {
            self.peers_bell.ring();
        }
    }

    fn next_immediate(&mut self) -> Option<u32> {
        let immediate = signal::hear(self.next_slot())?;
        self.heard = self.heard.wrapping_add(1);
        Some(immediate)
    }

    fn read(&self, offset: u32, bytes: u32, into: &mut Vec<u8>) {
        let at = self.layout.ring(self.side) + offset as usize;
        self.memory.read(at, bytes as usize, into);
    }

    fn read_header(&self, offset: u32) -> [u8; FRAME_HEADER_BYTES as usize] {
        let at = self.layout.ring(self.side) + offset as usize;
        let half = |at| self.memory.word(at).load(Ordering::Relaxed).to_ne_bytes();
        let ([a, b, c, d], [e, f, g, h]) = (half(at), half(at + 4));
        [a, b, c, d, e, f, g, h]
    }
}

/// The server's part of an upgrade for a client.
#[derive(Debug)]
pub struct Offer {
    /// How large the rings are.
    pub shape: Shape,
    /// The server's side of them.
    pub fabric: SharedFabric,
    /// The parameters for the client.
    pub answer: Vec<u8>,
    /// The descriptors that go with the answer.
    pub descriptors: Vec<OwnedFd>,
}

/// Why there is no offer.
#[derive(Debug)]
pub enum Refusal {
    /// The parameters can't be understood.
    Parameters(&'static str),
    /// The system has no memory or descriptors left.
    System(io::Error),
}

impl Offer {
    /// Prepares an upgrade for a client. `probe` is secret.
    pub fn make(parameters: &[u8], probe: [u8; PROBE_BYTES as usize]) -> Result<Self, Refusal> {
        let Some(([VERSION, wanted], [])) = words::<2>(parameters) else {
            return Err(Refusal::Parameters("shared memory needs version 1 and a ring size"));
        };
        let bytes = if wanted == 0 { RING_BYTES } else { wanted };
        let shape = Shape::new(bytes, FRAMES);
        let shape = shape.ok_or(Refusal::Parameters(
            "the ring size must be a power of two from 64 KB to 1 MB",
        ))?;
        Self::of_shape(shape, probe).map_err(Refusal::System)
    }

    fn of_shape(shape: Shape, probe: [u8; PROBE_BYTES as usize]) -> io::Result<Self> {
        let layout = Layout { shape };
        let (memory, file) = SharedMemory::create(layout.length())?;
        let (own_bell, to_ring) = Bell::of_server()?;
        let (peers_bell, to_hear) = Bell::of_client()?;
        let descriptors = vec![file, to_ring, to_hear];
        let mut answer = Vec::with_capacity(3 * size_of::<u32>() + probe.len());
        for word in [VERSION, shape.bytes(), shape.frames()] {
            answer.extend_from_slice(&word.to_le_bytes());
        }
        answer.extend_from_slice(&probe);
        let side = Side::Server;
        let fabric = SharedFabric { memory, layout, side, told: 0, heard: 0, own_bell, peers_bell };
        Ok(Offer { shape, fabric, answer, descriptors })
    }
}

/// For a client: the parameters that request rings of this size; 0: the server's choice.
pub fn request(ring_bytes: u32) -> Vec<u8> {
    [VERSION, ring_bytes].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// For a client: its end and its probe, from the answer and its descriptors.
pub fn accept(
    answer: &[u8],
    descriptors: Vec<OwnedFd>,
) -> io::Result<(SharedEnd, [u8; PROBE_BYTES as usize])> {
    let Accepted { shape, fabric, probe } = accept_parts(answer, descriptors)?;
    Ok((RingEnd::new(shape, fabric), probe))
}

/// A client's side, from the server's answer.
pub(crate) struct Accepted {
    pub shape: Shape,
    pub fabric: SharedFabric,
    /// What it has to probe with.
    pub probe: [u8; PROBE_BYTES as usize],
}

/// See [`accept`].
pub(crate) fn accept_parts(answer: &[u8], descriptors: Vec<OwnedFd>) -> io::Result<Accepted> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let Some(([VERSION, bytes, frames], probe)) = words::<3>(answer) else {
        return Err(wrong("an answer of another version"));
    };
    let probe = probe.try_into().map_err(|_| wrong("an answer of a wrong length"))?;
    let shape = Shape::new(bytes, frames).ok_or_else(|| wrong("rings of an invalid size"))?;
    let [file, to_ring, to_hear] = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors)
        .map_err(|_| wrong("the descriptors are missing"))?;
    let layout = Layout { shape };
    let memory = SharedMemory::map(&file, layout.length())?;
    let fabric = SharedFabric {
        memory,
        layout,
        side: Side::Client,
        told: 0,
        heard: 0,
        own_bell: Bell::Socket(to_hear),
        peers_bell: Bell::Event(EventFd::from(to_ring)),
    };
    Ok(Accepted { shape, fabric, probe })
}

/// The first little-endian words, and what follows them.
fn words<const N: usize>(bytes: &[u8]) -> Option<([u32; N], &[u8])> {
    let (words, rest) = bytes.split_at_checked(N * size_of::<u32>())?;
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(words.as_chunks::<4>().0) {
        *to = u32::from_le_bytes(*from);
    }
    Some((all, rest))
}
