//! The server's fabric: it reads large requests from the client's memory and writes large replies into it. Both go
//! through the pool.
//!
//! Invariant: a chunk returns to the pool when its request has completed, or when the queue pair is destroyed.

use super::fabric::{RdmaFabric, within};
use super::mailbox::Mailbox;
use super::pool::{Chunk, Pool};
use crate::ring::{FRAME_HEADER_BYTES, Fabric, FrameToWrite, OFFER_BYTES, Zone};
use kauri_verbs::RemoteAddress;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

/// Pieces that one session fetches at once: while one is copied the next is on its way.
const FETCHES_MAX: usize = super::READS_MAX as usize;
/// Pieces that one session has on their way to its client.
const WRITES_MAX: usize = 4;

/// A piece on its way here, or here.
#[derive(Debug)]
struct Fetch {
    /// The number of the READ.
    number: u64,
    chunk: Chunk,
}

/// See the module's head.
#[derive(Debug)]
pub struct HostedFabric {
    // Before all that holds chunks: with it ends what the device may do with them.
    fabric: RdmaFabric,
    fetches: VecDeque<Fetch>,
    /// For the piece that is written next.
    ready: Option<Chunk>,
    /// Pieces that wait for the peer's credit, filled.
    kept: VecDeque<Chunk>,
    _lent: Lent,
    pool: Arc<Pool>,
    /// The places of the client's pieces.
    zones: Option<[RemoteAddress; 2]>,
}

/// The chunks in a mailbox whose completions are no longer reported.
#[derive(Debug)]
struct Lent(Arc<Mailbox>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl HostedFabric {
    pub(super) fn new(fabric: RdmaFabric, pool: &Arc<Pool>) -> Self {
        let lent = Lent(Arc::clone(fabric.mailbox()));
        HostedFabric {
            fabric,
            fetches: VecDeque::new(),
            ready: None,
            kept: VecDeque::new(),
            _lent: lent,
            pool: Arc::clone(pool),
            zones: None,
        }
    }

    /// What it has in common with a client's.
    pub(crate) fn base(&mut self) -> &mut RdmaFabric {
        &mut self.fabric
    }

    /// Writes a piece from where it lies.
    fn write_chunk(&mut self, chunk: Chunk, at: u32, length: u32, frame: FrameToWrite<'_>) {
        let (Ok(part), Some([landing, _])) = (chunk.part(length), self.zones) else {
            return self.fabric.fail();
        };
        let number = self.fabric.send_piece(part, within(landing, at), frame);
        // Its completion is delivered by this thread, or later than this.
        self.fabric.mailbox().lend(number, chunk);
    }
}

/// A zone as it is offered: address, key, bytes.
fn zone(told: &[u8; 16]) -> Option<(RemoteAddress, Zone)> {
    let (address, rest) = told.split_first_chunk::<8>()?;
    let (key, bytes) = rest.split_first_chunk::<4>()?;
    let address = u64::from_le_bytes(*address);
    let zone = Zone::new(u32::from_le_bytes(bytes.try_into().ok()?))?;
    address.checked_add(u64::from(zone.bytes()))?;
    Some((RemoteAddress { address, key: u32::from_le_bytes(*key) }, zone))
}

impl Fabric for HostedFabric {
    fn has_room(&mut self, for_bytes: bool) -> bool {
        self.fabric.has_room(for_bytes)
    }

    fn failure(&self) -> Option<&'static str> {
        self.fabric.failure()
    }

    fn write(&mut self, offset: u32, parts: [&[u8]; 3], immediate: u32) {
        self.fabric.write(offset, parts, immediate);
    }

    fn next_immediate(&mut self) -> Option<u32> {
        self.fabric.next_immediate()
    }

    fn read(&self, offset: u32, bytes: u32, into: &mut Vec<u8>) {
        self.fabric.read(offset, bytes, into);
    }

    fn read_header(&self, offset: u32) -> [u8; FRAME_HEADER_BYTES as usize] {
        self.fabric.read_header(offset)
    }

    fn accept(&mut self, told: [u8; OFFER_BYTES as usize]) -> Option<[Zone; 2]> {
        if self.pool.counts().bytes == 0 {
            return None;
        }
        let (halves, _) = told.as_chunks::<16>();
        let [landing, departure] = halves else { return None };
        let ((landing, in_bytes), (departure, out_bytes)) = (zone(landing)?, zone(departure)?);
        self.zones = Some([landing, departure]);
        Some([in_bytes, out_bytes])
    }

    fn has_room_for_piece(&mut self) -> bool {
        if self.ready.is_none() && self.has_room_for_kept() {
            self.ready = self.pool.take(None);
        }
        self.ready.is_some()
    }

    fn write_piece(&mut self, at: u32, piece: [&[u8]; 2], frame: FrameToWrite<'_>) {
        let length = (piece[0].len() + piece[1].len()) as u32;
        match self.ready.take().and_then(|chunk| chunk.filled(piece)) {
            Some(chunk) => self.write_chunk(chunk, at, length, frame),
            None => self.fabric.fail(),
        }
    }

    fn keep_piece(&mut self, piece: [&[u8]; 2]) -> bool {
        let chunk = self.pool.take_to_keep().and_then(|chunk| chunk.filled(piece));
        chunk.map(|chunk| self.kept.push_back(chunk)).is_some()
    }

    fn has_room_for_kept(&mut self) -> bool {
        self.fabric.takes_piece() && self.fabric.mailbox().lent() < WRITES_MAX
    }

    fn write_kept(&mut self, at: u32, length: u32, frame: FrameToWrite<'_>) {
        match self.kept.pop_front() {
            Some(chunk) => self.write_chunk(chunk, at, length, frame),
            None => self.fabric.fail(),
        }
    }

    fn fetch(&mut self, offset: u32, length: u32, waker: &Waker) -> bool {
        let Some([_, departure]) = self.zones else { return false };
        // Whatever completes wakes the session.
        if self.fetches.len() >= FETCHES_MAX || !self.fabric.takes_piece() {
            return false;
        }
        let Some(chunk) = self.pool.take(Some(waker)) else { return false };
        let Ok(part) = chunk.part(length) else {
            self.fabric.fail();
            return false;
        };
        let number = self.fabric.read_piece(part, within(departure, offset));
        self.fetches.push_back(Fetch { number, chunk });
        true
    }

    fn fetches(&self) -> usize {
        self.fetches.len()
    }

    fn has_piece(&self) -> bool {
        let sent = self.fabric.mailbox().sent();
        self.fetches.front().is_some_and(|first| first.number <= sent)
    }

    fn take_piece(&mut self, _offset: u32, length: u32, into: &mut Vec<u8>) {
        let Some(fetch) = self.fetches.pop_front() else { return };
        let copied = fetch.chunk.append_to(length, into);
        debug_assert!(copied.is_ok(), "{copied:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_that_cannot_be_is_not_taken() {
        let told = |address: u64, key: u32, bytes: u32| {
            let mut told = [0; 16];
            told[..8].copy_from_slice(&address.to_le_bytes());
            told[8..12].copy_from_slice(&key.to_le_bytes());
            told[12..].copy_from_slice(&bytes.to_le_bytes());
            zone(&told)
        };
        let place = RemoteAddress { address: 0x7f00_0001_0000, key: 7 };
        for bytes in [64 << 10, 1 << 20] {
            let zone = Zone::new(bytes).unwrap();
            assert_eq!(told(place.address, 7, bytes), Some((place, zone)));
        }
        for bytes in [0, 1, 32 << 10, 96 << 10, 2 << 20, u32::MAX] {
            assert_eq!(told(place.address, 7, bytes), None, "{bytes}");
        }
        assert_eq!(told(u64::MAX - 65_535, 7, 64 << 10), None, "it goes round");
    }
}
