//! Two ends over a fabric in memory.

use super::frame::{Immediate, OFFER_BYTES, encode_header};
use super::*;
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

const SMALL: Shape = Shape { bytes: 64 << 10, frames: 64 };

/// What one end receives.
struct Inbox {
    ring: Vec<u8>,
    immediates: VecDeque<u32>,
    most: usize,
}

/// The first end's zones: where pieces land, and where they depart.
type ZoneMemory = Rc<RefCell<[Vec<u8>; 2]>>;

#[derive(Clone)]
struct Memory {
    own: Rc<RefCell<Inbox>>,
    peers: Rc<RefCell<Inbox>>,
    zones: ZoneMemory,
    /// Whether the zones are the peer's.
    fetches_pieces: bool,
    /// What the second end may fetch and write pieces with.
    chunks: usize,
    /// Pieces that are being fetched: where from, and once they are here what.
    fetching: VecDeque<(u32, u32, Option<Vec<u8>>)>,
    /// Pieces that the second end keeps, and how many it may.
    kept: VecDeque<Vec<u8>>,
    kept_max: usize,
    /// Frames with bytes that there is room for.
    room: usize,
}

impl Memory {
    /// The piece that was asked for first and is not here yet arrives: as it is now.
    fn fetch_one(&mut self) {
        let zones = self.zones.borrow();
        if let Some((offset, length, here)) = self.fetching.iter_mut().find(|f| f.2.is_none()) {
            *here = Some(zones[1][*offset as usize..][..*length as usize].to_vec());
        }
    }
}

impl Fabric for Memory {
    fn has_room(&mut self, for_bytes: bool) -> bool {
        self.room > 0 || !for_bytes
    }

    fn write(&mut self, offset: u32, parts: [&[u8]; 3], immediate: u32) {
        if parts.iter().any(|part| !part.is_empty()) {
            self.room = self.room.checked_sub(1).expect("a frame that there is no room for");
        }
        let mut peer = self.peers.borrow_mut();
        let mut at = offset as usize;
        for part in parts {
            peer.ring[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        peer.immediates.push_back(immediate);
        peer.most = peer.most.max(peer.immediates.len());
    }

    fn next_immediate(&mut self) -> Option<u32> {
        self.own.borrow_mut().immediates.pop_front()
    }

    fn read(&self, offset: u32, bytes: u32, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.own.borrow().ring[offset as usize..][..bytes as usize]);
    }

    fn read_header(&self, offset: u32) -> [u8; FRAME_HEADER_BYTES as usize] {
        self.own.borrow().ring[offset as usize..][..8].try_into().unwrap()
    }

    fn offer(&mut self) -> Option<([Zone; 2], [u8; OFFER_BYTES as usize])> {
        let zones = [0, 1].map(|i| Zone::new(self.zones.borrow()[i].len() as u32).unwrap());
        (!self.fetches_pieces).then_some((zones, [0; OFFER_BYTES as usize]))
    }

    fn accept(&mut self, _: [u8; OFFER_BYTES as usize]) -> Option<[Zone; 2]> {
        let zones = [0, 1].map(|i| Zone::new(self.zones.borrow()[i].len() as u32).unwrap());
        self.fetches_pieces.then_some(zones)
    }

    fn has_room_for_piece(&mut self) -> bool {
        !self.fetches_pieces || self.chunks > 0
    }

    fn write_piece(&mut self, at: u32, piece: [&[u8]; 2], frame: FrameToWrite<'_>) {
        let which = usize::from(!self.fetches_pieces);
        let mut at = at as usize;
        for part in piece {
            self.zones.borrow_mut()[which][at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let [header, head] = frame.parts;
        self.write(frame.offset, [header, head, &[]], frame.immediate);
    }

    fn keep_piece(&mut self, piece: [&[u8]; 2]) -> bool {
        let may = self.fetches_pieces && self.kept.len() < self.kept_max;
        may.then(|| self.kept.push_back(piece.concat())).is_some()
    }

    fn has_room_for_kept(&mut self) -> bool {
        true
    }

    fn write_kept(&mut self, at: u32, length: u32, frame: FrameToWrite<'_>) {
        let piece = self.kept.pop_front().unwrap();
        assert_eq!(piece.len(), length as usize);
        self.write_piece(at, [&piece, &[]], frame);
    }

    fn fetch(&mut self, offset: u32, length: u32, _: &Waker) -> bool {
        let may = self.fetches_pieces && self.fetching.len() < self.chunks;
        may.then(|| self.fetching.push_back((offset, length, None))).is_some()
    }

    fn fetches(&self) -> usize {
        self.fetching.len()
    }

    fn has_piece(&self) -> bool {
        !self.fetches_pieces || self.fetching.front().is_some_and(|first| first.2.is_some())
    }

    fn take_piece(&mut self, offset: u32, length: u32, into: &mut Vec<u8>) {
        if self.fetches_pieces {
            let (from, bytes, here) = self.fetching.pop_front().unwrap();
            assert_eq!((from, bytes), (offset, length), "another piece was fetched");
            into.extend(here.unwrap());
        } else {
            into.extend_from_slice(&self.zones.borrow()[0][offset as usize..][..length as usize]);
        }
    }
}

fn pair(shape: Shape) -> [RingEnd<Memory>; 2] {
    pair_with(shape, [64 << 10, 128 << 10])
}

/// Of which the first has zones of these bytes to offer.
fn pair_with(shape: Shape, zones: [usize; 2]) -> [RingEnd<Memory>; 2] {
    let inbox = || {
        let ring = vec![0; shape.bytes as usize];
        Rc::new(RefCell::new(Inbox { ring, immediates: VecDeque::new(), most: 0 }))
    };
    let (a, b) = (inbox(), inbox());
    let zones: ZoneMemory = Rc::new(RefCell::new(zones.map(|bytes| vec![0; bytes])));
    let end = |own: &Rc<_>, peers: &Rc<_>, fetches_pieces| {
        let memory = Memory {
            own: Rc::clone(own),
            peers: Rc::clone(peers),
            zones: Rc::clone(&zones),
            fetches_pieces,
            chunks: 3,
            fetching: VecDeque::new(),
            kept: VecDeque::new(),
            kept_max: 0,
            room: usize::MAX,
        };
        RingEnd::new(shape, memory)
    };
    [end(&a, &b, false), end(&b, &a, true)]
}

/// The stream's byte at a position: no two places of a ring hold the same for long.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// An end with what it has sent and received of the stream that both know.
struct Talker {
    end: RingEnd<Memory>,
    sent: u64,
    received: u64,
}

impl Talker {
    fn pair(shape: Shape) -> [Talker; 2] {
        pair(shape).map(Talker::of)
    }

    fn of(end: RingEnd<Memory>) -> Talker {
        Talker { end, sent: 0, received: 0 }
    }

    fn send(&mut self, bytes: usize, cut: usize) -> usize {
        let all: Vec<u8> = (self.sent..self.sent + bytes as u64).map(byte).collect();
        let (first, second) = all.split_at(cut.min(bytes));
        let mut sent = self.end.send(first, second);
        if sent >= first.len() {
            sent += self.end.keep(&second[sent - first.len()..], b"");
        }
        self.sent += sent as u64;
        sent
    }

    fn look(&mut self) -> Event {
        let event = self.end.look().expect("no violation");
        self.owes_nothing();
        event
    }

    fn owes_nothing(&self) {
        assert!(!self.end.receiver.owes_credit(), "a credit found no room");
        let zone = self.end.zones.as_ref().map(|(zone, _)| zone);
        assert!(!zone.is_some_and(|zone| zone.owes_credit()), "a zone's credit found no room");
    }

    /// Has pieces fetched until so many bytes are here, or there is no memory for more.
    fn fetch(&mut self, wanted: usize) {
        self.end.fetch(wanted, Waker::noop());
        self.end.fabric.fetch_one();
    }

    fn receive(&mut self, capacity: usize) -> usize {
        let mut buffer = Vec::with_capacity(capacity);
        let count = self.end.receive(&mut buffer);
        self.owes_nothing();
        assert_eq!(count, buffer.len());
        for (at, got) in (self.received..).zip(&buffer) {
            assert_eq!(*got, byte(at), "at {at}");
        }
        self.received += count as u64;
        count
    }
}

#[test]
fn whatever_the_order_of_sends_and_receives_the_stream_arrives() {
    for seed in 0..60 {
        let random = SeededRandom::new(seed);
        let below = |n: u64| (random.next_u64() >> 8) % n;
        let shape = Shape { bytes: 64 << 10 << below(3), frames: 64 << below(2) };
        let mut talkers = Talker::pair(shape);
        // One may be lazy: it sends but seldom receives.
        let lazy = below(3);
        for _ in 0..3000 {
            let who = below(2);
            let talker = &mut talkers[who as usize];
            let size = 1 + below(1 << below(18)) as usize;
            match below(4) {
                0 | 1 => {
                    let cut = below(1 + size as u64) as usize;
                    talker.send(size, cut);
                }
                2 => drop(talker.look()),
                _ if who == lazy && below(20) > 0 => {}
                _ => drop(talker.receive(size)),
            }
        }
        let [a, b] = &mut talkers;
        for _ in 0..2 {
            for talker in [&mut *a, &mut *b] {
                talker.look();
                talker.receive(1 << 21);
            }
        }
        assert_eq!((a.sent, b.sent), (b.received, a.received), "seed {seed}");
        let most = [&a.end, &b.end].map(|end| end.fabric.own.borrow().most as u32);
        assert!(most.iter().all(|most| *most <= shape.frames), "seed {seed}: {most:?}");
    }
}

#[test]
fn large_messages_arrive_in_pieces_among_the_frames() {
    let mut pieces = [0; 2];
    for seed in 0..80 {
        let random = SeededRandom::new(seed);
        let below = |n: u64| (random.next_u64() >> 8) % n;
        // In large zones pieces are of all lengths.
        let zones = [(); 2].map(|()| 64 << 10 << below(5));
        let mut talkers = pair_with(SMALL, zones).map(Talker::of);
        talkers[1].end.fabric.chunks = 1 + below(3) as usize;
        talkers[1].end.fabric.kept_max = below(4) as usize;
        let offered = below(400);
        let lazy = below(4);
        for round in 0..1500 {
            if round == offered {
                talkers[0].end.offer();
            }
            let who = below(2);
            let talker = &mut talkers[who as usize];
            talker.end.fabric.room = if below(4) == 0 { below(4) as usize } else { usize::MAX };
            let size = 1 + below(1 << below(20)) as usize;
            match below(5) {
                0 | 1 => drop(talker.send(size, below(1 + size as u64) as usize)),
                2 => drop(talker.look()),
                3 => talker.fetch(size),
                _ if who == lazy && below(20) > 0 => {}
                _ => drop(talker.receive(size)),
            }
        }
        let [a, b] = &mut talkers;
        for _ in 0..200 {
            for talker in [&mut *a, &mut *b] {
                talker.end.fabric.room = usize::MAX;
                talker.look();
                talker.send(0, 0);
                talker.fetch(usize::MAX);
                talker.receive(1 << 21);
            }
        }
        assert_eq!((a.sent, b.sent), (b.received, a.received), "seed {seed}");
        let most = [&a.end, &b.end].map(|end| end.fabric.own.borrow().most as u32);
        assert!(most.iter().all(|most| *most <= SMALL.frames), "seed {seed}: {most:?}");
        let (a, b) = (a.end.counts(), b.end.counts());
        assert_eq!((a.pieces_out, b.pieces_out), (b.pieces_in, a.pieces_in));
        pieces[0] += a.pieces_out;
        pieces[1] += b.pieces_out;
    }
    assert!(pieces.iter().all(|count| *count > 1000), "{pieces:?}");
}

#[test]
fn both_send_large_messages_and_then_both_receive() {
    let [mut client, mut server] = Talker::pair(SMALL);
    client.end.offer();
    server.look();
    for _ in 0..200 {
        for talker in [&mut client, &mut server] {
            while talker.send(1 << 20, 7) > 0 {}
        }
        for talker in [&mut client, &mut server] {
            talker.look();
            for _ in 0..8 {
                talker.fetch(usize::MAX);
                talker.receive(1 << 20);
            }
            assert!(!talker.look().readable);
        }
        client.look();
        assert_eq!((client.sent, server.sent), (server.received, client.received));
    }
    assert!(client.end.counts().pieces_in > 500 && client.end.counts().pieces_out > 500);
    assert_eq!(client.end.counts().frames_out, client.end.counts().pieces_out + 1, "and the offer");
}

#[test]
fn what_is_kept_goes_before_anything_else() {
    let [mut client, mut server] = Talker::pair(SMALL);
    client.end.offer();
    server.look();
    server.end.fabric.kept_max = 5;
    // The zone has 64 KB, and a piece a quarter of that; what is too little for a piece is not kept.
    assert_eq!(server.send(256 << 10, 0), (4 + 5) * (16 << 10));
    assert!(server.end.keeps() && !server.end.is_idle());
    assert_eq!((server.send(1, 1), server.end.fabric.kept.len()), (0, 5));
    client.look();
    assert_eq!(client.receive(1 << 20), 64 << 10);
    server.look();
    // There is credit for it, and no room for what tells of it.
    server.end.fabric.room = 0;
    assert_eq!((server.send(1, 1), server.end.fabric.kept.len()), (0, 5));
    server.end.fabric.room = usize::MAX;
    assert_eq!((server.send(1, 1), server.end.fabric.kept.len()), (0, 1));
    client.look();
    assert_eq!(client.receive(1 << 20), 64 << 10);
    server.look();
    assert_eq!((server.send(1, 1), server.end.keeps()), (1, false));
    client.look();
    assert_eq!(client.receive(1 << 20), (16 << 10) + 1);
    assert_eq!(client.received, server.sent);
    // Without zones there is nothing to keep.
    let [_, mut server] = Talker::pair(SMALL);
    server.end.fabric.kept_max = 5;
    let all = server.send(1 << 20, 0);
    assert!(all <= 64 << 10 && !server.end.keeps(), "{all}");
}

#[test]
fn without_memory_for_pieces_large_replies_go_through_the_ring() {
    let [mut client, mut server] = Talker::pair(SMALL);
    client.end.offer();
    server.end.fabric.chunks = 0;
    let mut left = 3 << 20;
    while left > 0 {
        server.look();
        left -= server.send(left, 0);
        client.look();
        client.receive(1 << 20);
    }
    assert_eq!((client.received, client.end.counts().pieces_in), (3 << 20, 0));
}

#[test]
fn no_more_is_fetched_than_is_wanted() {
    let [mut client, mut server] = Talker::pair(SMALL);
    client.end.offer();
    assert!(client.send(10, 0) == 10 && client.send(1 << 20, 0) > 100 << 10);
    assert!(server.look().readable);
    server.end.fetch(10, Waker::noop());
    assert_eq!(server.end.fabric.fetches(), 0, "ten bytes are here");
    server.end.fetch(11, Waker::noop());
    assert_eq!(server.end.fabric.fetches(), 1);
    server.end.fetch(10 + (32 << 10), Waker::noop());
    assert_eq!(server.end.fabric.fetches(), 1, "a piece has a quarter of the zone's 128 KB");
    assert_eq!(server.receive(4096), 10);
    assert!(!server.look().readable, "the piece is not here");
    server.end.fabric.fetch_one();
    assert!(server.look().readable);
    assert_eq!(server.receive(4096), 32 << 10);
}

#[test]
fn who_lies_about_zones_is_found_out() {
    let [offer, piece] = [Immediate::Offer, Immediate::Piece].map(Immediate::encode);
    // The first of two ends has offered zones of 64 KB (to it) and 128 KB, and has sent nothing else.
    let told = |words: &[u32], length: u32| {
        let [mut client, server] = pair(SMALL);
        client.offer();
        let mut own = server.fabric.peers.borrow_mut();
        for at in (8..SMALL.bytes as usize).step_by(16) {
            own.ring[at..at + 4].copy_from_slice(&length.to_le_bytes());
        }
        own.immediates.extend(words);
        drop(own);
        client.look().map(|_| ())
    };
    assert_eq!(told(&[piece], 4096), Ok(()));
    assert_eq!(told(&[piece; 4], 16 << 10), Ok(()));
    assert_eq!(told(&[piece; 5], 16 << 10), Err(RingError::Overrun));
    for length in [0, 1, 4095, (16 << 10) + 1, u32::MAX] {
        assert_eq!(told(&[piece], length), Err(RingError::Zones), "{length}");
    }
    assert_eq!(told(&[offer], 0), Err(RingError::Zones), "only one end offers");
    assert_eq!(told(&[Immediate::done(0).encode()], 0), Ok(()));
    assert_eq!(told(&[Immediate::done(1).encode()], 0), Err(RingError::Acknowledgement));
    // Without zones.
    for word in [piece, Immediate::done(0).encode(), offer] {
        assert_eq!(lied_to(&[word], 0, 1).map(|_| ()), Err(RingError::Zones), "{word:#x}");
    }
    // Twice.
    let [client, mut server] = pair(SMALL);
    client.fabric.peers.borrow_mut().immediates.extend([offer, offer]);
    assert_eq!(server.look(), Err(RingError::Zones));
}

#[test]
fn who_does_not_receive_still_gets_credit() {
    let [mut server, mut client] = Talker::pair(SMALL);
    // Requests without end, until there is no more credit; the server is busy with one reply.
    while client.send(5000, 0) > 0 {}
    let reply = 20 << 20;
    let mut left = reply;
    while left > 0 {
        let sent = server.send(left, 0);
        left -= sent;
        client.look();
        let got = client.receive(1 << 20);
        assert!(sent > 0 && got > 0, "{left} bytes are left and nothing moves");
        server.look();
    }
    assert!(client.end.counts().credits_out > 100);
    let waiting = client.sent - server.received;
    assert_eq!(server.receive(1 << 20) as u64, waiting);
    client.look();
    assert!(client.send(5000, 0) == 5000);
}

#[test]
fn both_fill_the_other_and_then_both_go_on() {
    let mut talkers = Talker::pair(SMALL);
    for round in 0..200 {
        for talker in &mut talkers {
            while talker.send(1 + round * 97, 0) > 0 {}
        }
        for talker in &mut talkers {
            talker.look();
            assert!(talker.receive(1 << 20) > 0);
        }
        for talker in &mut talkers {
            talker.look();
        }
    }
}

fn pass(from: &mut Talker, to: &mut Talker, size: usize) {
    assert_eq!(from.send(size, 30), size);
    assert!(to.look().readable);
    assert_eq!(to.receive(4096), size);
    assert!(!to.look().readable);
}

#[test]
fn a_request_and_its_reply_are_a_frame_each() {
    const ROUNDS: u64 = 10_000;
    let [mut a, mut b] = Talker::pair(SMALL);
    for _ in 0..ROUNDS {
        pass(&mut a, &mut b, 200);
        pass(&mut b, &mut a, 1080);
    }
    for end in [a.end, b.end] {
        let counts = end.counts();
        assert_eq!((counts.credits_in, counts.credits_out), (0, 0));
        assert!(counts.frames_out == ROUNDS, "{counts:?}");
    }
}

#[test]
fn probes_pass_before_anything_else() {
    let [mut a, mut b] = pair(SMALL);
    assert!(a.probe(*b"whocares"));
    let event = b.look().unwrap();
    assert_eq!(event.probe, Some(*b"whocares"));
    assert!(!event.readable);
    assert!(b.probe(*b"whocares") && a.look().unwrap().probe.is_some());
    assert_eq!(a.send(b"x", b""), 1);
    assert!(a.probe(*b"too late"));
    assert_eq!(b.look(), Err(RingError::Probe));
}

/// A peer that says `words`, after bytes of the ring that are all `fill`.
fn lied_to(words: &[u32], fill: u8, sent: usize) -> Result<Event, RingError> {
    let [mut end, peer] = pair(SMALL);
    assert_eq!(end.send(&vec![1; sent], b""), sent);
    let mut own = peer.fabric.peers.borrow_mut();
    own.ring.fill(fill);
    own.immediates.extend(words);
    drop(own);
    end.look()
}

#[test]
fn a_lying_peer_is_found_out() {
    let stream = |length| Immediate::Stream(length).encode();
    let quarter = SMALL.bytes / 4;
    let table: &[(&str, &[u32], Result<(), RingError>)] = &[
        ("a frame", &[stream(9)], Ok(())),
        ("the longest", &[stream(quarter)], Ok(())),
        ("too long", &[stream(quarter + 1)], Err(RingError::Immediate(stream(quarter + 1)))),
        ("empty", &[stream(8)], Err(RingError::Immediate(stream(8)))),
        ("no header", &[stream(7)], Err(RingError::Immediate(stream(7)))),
        ("nothing", &[0], Err(RingError::Immediate(0))),
        ("a long offer", &[4 << 28 | 100], Err(RingError::Immediate(4 << 28 | 100))),
        ("a long piece", &[5 << 28 | 100], Err(RingError::Immediate(5 << 28 | 100))),
        ("kind 7", &[7 << 28 | 12], Err(RingError::Immediate(7 << 28 | 12))),
        ("a long probe", &[3 << 28 | 17], Err(RingError::Immediate(3 << 28 | 17))),
        ("a ring full", &[stream(quarter); 4], Ok(())),
        (
            "more than a ring",
            &[stream(quarter), stream(quarter), stream(quarter), stream(quarter), stream(9)],
            Err(RingError::Overrun),
        ),
        ("all frames", &[stream(9); 64], Ok(())),
        ("one frame more", &[stream(9); 65], Err(RingError::Overrun)),
        ("a credit for nothing", &[Immediate::credit(0, 0).encode()], Ok(())),
        (
            "bytes that were not sent",
            &[Immediate::credit(2, 0).encode()],
            Err(RingError::Acknowledgement),
        ),
        (
            "frames that were not sent",
            &[Immediate::credit(0, 2).encode()],
            Err(RingError::Acknowledgement),
        ),
        ("what was sent", &[Immediate::credit(1, 1).encode()], Ok(())),
        (
            "less than before",
            &[Immediate::credit(1, 1).encode(), Immediate::credit(0, 1).encode()],
            Err(RingError::Acknowledgement),
        ),
    ];
    for (what, words, expected) in table {
        assert_eq!(lied_to(words, 0, 1).map(|_| ()), *expected, "{what}");
    }
    assert_eq!(lied_to(&[stream(9)], 0xff, 1).map(|_| ()), Err(RingError::Acknowledgement));
    // The header says one unit and one frame: that was sent.
    let [mut end, peer] = pair(SMALL);
    end.send(b"x", b"");
    let mut own = peer.fabric.peers.borrow_mut();
    own.ring[..8].copy_from_slice(&encode_header(1, 1));
    own.immediates.push_back(stream(9));
    drop(own);
    assert!(end.look().expect("no violation").credit);
}

#[test]
fn garbage_ends_a_session_and_nothing_else() {
    let random = SeededRandom::new(11);
    let mut accepted = 0;
    for round in 0..20_000 {
        let words: Vec<u32> = (0..8)
            .map(|_| {
                let word = random.next_u64() as u32;
                match word % 3 {
                    0 => word,
                    _ => Immediate::Stream(word % (SMALL.bytes / 3)).encode(),
                }
            })
            .collect();
        accepted += u32::from(lied_to(&words, (round % 2) as u8, 100).is_ok());
    }
    assert!(accepted > 10, "nothing got as far as the ring's bytes");
}

#[test]
fn frames_lie_where_both_expect_them() {
    // Position, length, offset, end.
    let table = [
        (0, 9, 0, 16),
        (16, 16, 16, 32),
        (65520, 16, 65520, 65536),
        (65520, 17, 0, 65536 + 32),
        (65536, 9, 0, 65552),
        (65536 * 7 - 4096, 4096, 65536 - 4096, 65536 * 7),
        (65536 * 7 - 4080, 4096, 0, 65536 * 7 + 4096),
    ];
    for (position, length, offset, end) in table {
        assert_eq!(place(SMALL.bytes, position, length), (offset, end), "{position} {length}");
    }
}

#[test]
fn shapes_have_bounds() {
    for (bytes, frames, sound) in [
        (64 << 10, 64, true),
        (1 << 20, 1024, true),
        (32 << 10, 64, false),
        (2 << 20, 64, false),
        (96 << 10, 64, false),
        (64 << 10, 32, false),
        (64 << 10, 2048, false),
        (64 << 10, 100, false),
        (0, 0, false),
    ] {
        assert_eq!(Shape::new(bytes, frames).is_some(), sound, "{bytes} {frames}");
    }
}

#[test]
fn counts_are_found_again_by_their_low_bits() {
    let header = |end: u64| super::frame::decode_header(encode_header(end, 0)).end;
    let credit = |end: u64| match Immediate::credit(end, 0) {
        Immediate::Credit(told) => told.end,
        other => panic!("{other:?}"),
    };
    let limit = |before: u64| before + 65_536;
    for before in [0, 65_530, (1 << 17) - 1, (1 << 32) - 5, 1 << 32, (1 << 40) + 131_071] {
        for ahead in [0, 1, 7, 65_535, 65_536] {
            let end = before + ahead;
            assert_eq!(header(end).forward(before, limit(before)), Ok(end), "{before} {ahead}");
            assert_eq!(credit(end).forward(before, limit(before)), Ok(end), "{before} {ahead}");
        }
        let beyond = before + 65_537;
        assert!(header(beyond).forward(before, limit(before)).is_err());
        assert!(credit(beyond).forward(before, limit(before)).is_err());
        if before > 0 {
            assert!(header(before - 1).forward(before, limit(before)).is_err());
            assert!(credit(before - 1).forward(before, limit(before)).is_err());
        }
    }
}
