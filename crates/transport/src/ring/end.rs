//! One end of a session's two rings: a byte stream over a [`Fabric`].

use super::frame::{
    FRAME_HEADER_BYTES, Immediate, OFFER_BYTES, PIECE_HEAD_BYTES, PROBE_BYTES, decode_header,
};
use super::receiver::{Frame, Receiver};
use super::sender::{Place, Sender};
use super::zone::{Piece, Zone, ZoneReceiver, ZoneSender};
use super::{LARGE_BYTES, RingError, Shape};
use std::collections::VecDeque;
use std::task::Waker;

/// The carrier of frames between two ends.
///
/// The end requests nothing beyond the credit or the available space, so nothing here waits. A fabric may also have
/// zones: those of one end, which *offers* them, in its own memory. Its peer writes pieces into one zone and reads
/// them from the other.
pub trait Fabric {
    /// Whether the next frame can be written now: one of maximum size, or one without bytes. After false, the
    /// caller checks again at the next event.
    fn has_room(&mut self, _for_bytes: bool) -> bool {
        true
    }
    /// The reason if nothing can be sent or received any more.
    fn failure(&self) -> Option<&'static str> {
        None
    }
    /// Puts a frame into the peer's ring at `offset`, its parts one after the other, and then sends the immediate
    /// to the peer. Without a frame all parts are empty.
    fn write(&mut self, offset: u32, parts: [&[u8]; 3], immediate: u32);
    /// The peer's next immediate. The frame that it announces is then readable.
    fn next_immediate(&mut self) -> Option<u32>;
    /// Appends `bytes` bytes of this end's ring from `offset` on. A faulty peer may still be writing there; the
    /// copied bytes do not change any more.
    fn read(&self, offset: u32, bytes: u32, into: &mut Vec<u8>);
    /// The same for a frame's header.
    fn read_header(&self, offset: u32) -> [u8; FRAME_HEADER_BYTES as usize];

    /// Creates zones in this end's memory, for arriving and for departing pieces, and the bytes to send to the
    /// peer. `None` if that is impossible.
    fn offer(&mut self) -> Option<([Zone; 2], [u8; OFFER_BYTES as usize])> {
        None
    }
    /// The peer has offered zones. Returns the zones for its arriving and departing pieces; `None` if that is
    /// impossible.
    fn accept(&mut self, _told: [u8; OFFER_BYTES as usize]) -> Option<[Zone; 2]> {
        None
    }
    /// Whether a piece can be written now; the next call does it.
    fn has_room_for_piece(&mut self) -> bool {
        false
    }
    /// Puts a piece at `at` of the zone, its parts one after the other, and then does what `write` does.
    fn write_piece(&mut self, _at: u32, _piece: [&[u8]; 2], _frame: FrameToWrite<'_>) {}
    /// Copies a piece into memory from which it is written later. False: no memory is free.
    fn keep_piece(&mut self, _piece: [&[u8]; 2]) -> bool {
        false
    }
    /// Whether the first piece that is kept can be written now; the next call does it.
    fn has_room_for_kept(&mut self) -> bool {
        false
    }
    /// Does for the first kept piece, of `length` bytes, what `write_piece` does.
    fn write_kept(&mut self, _at: u32, _length: u32, _frame: FrameToWrite<'_>) {}
    /// Starts to read the next piece. False: impossible now; `waker` is woken when that changes.
    fn fetch(&mut self, _offset: u32, _length: u32, _waker: &Waker) -> bool {
        false
    }
    /// Number of pieces that are being read, or have arrived and are not consumed.
    fn fetches(&self) -> usize {
        0
    }
    /// Whether the first of them is here.
    fn has_piece(&self) -> bool {
        false
    }
    /// Appends the piece, and frees its memory.
    fn take_piece(&mut self, _offset: u32, _length: u32, _into: &mut Vec<u8>) {}
}

/// A frame to write: its place, its bytes, and its immediate.
#[derive(Clone, Copy, Debug)]
pub struct FrameToWrite<'a> {
    /// Its place in the peer's ring.
    pub offset: u32,
    /// Its bytes, one part after the other.
    pub parts: [&'a [u8]; 2],
    /// The immediate for the peer.
    pub immediate: u32,
}

/// An event at an end, from [`RingEnd::look`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// There are bytes of the stream to be received.
    pub readable: bool,
    /// There is credit that there was not before.
    pub credit: bool,
    /// A probe came.
    pub probe: Option<[u8; PROBE_BYTES as usize]>,
}

/// The counters of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingCounts {
    /// Frames but probes that were written: with bytes of the stream, of pieces, of offers.
    pub frames_out: u64,
    /// The same, received.
    pub frames_in: u64,
    /// Immediates without frames that were written: credits, and dones.
    pub credits_out: u64,
    /// The same, received.
    pub credits_in: u64,
    /// Pieces of large messages that were written.
    pub pieces_out: u64,
    /// The same, received.
    pub pieces_in: u64,
}

/// A frame that waits to be received.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// The bytes that follow its header.
    Bytes(Frame),
    /// A piece.
    Piece(Frame, Piece),
    /// Nothing: it was processed on arrival.
    Heard(Frame),
}

/// The next step of a large message.
enum Step {
    Frame,
    Piece(Piece),
    Wait,
}

/// See the module's head.
#[derive(Debug)]
pub struct RingEnd<F> {
    shape: Shape,
    pub(super) fabric: F,
    sender: Sender,
    pub(super) receiver: Receiver,
    /// Frames that were announced and not consumed. At most the number of frames.
    waiting: VecDeque<Waiting>,
    /// Through which pieces come, and go.
    pub(super) zones: Option<(ZoneReceiver, ZoneSender)>,
    /// Whether zones are impossible.
    zoneless: bool,
    /// Own pieces that the fabric keeps until there is credit for them. No later byte of the stream overtakes them.
    kept: VecDeque<Piece>,
    /// Pieces among what waits.
    pieces: usize,
    /// Payload bytes of the first of them that have been received.
    taken: u32,
    counts: RingCounts,
}

impl<F: Fabric> RingEnd<F> {
    /// An end without traffic so far.
    pub fn new(shape: Shape, fabric: F) -> Self {
        RingEnd {
            shape,
            fabric,
            sender: Sender::new(shape),
            receiver: Receiver::new(shape),
            waiting: VecDeque::new(),
            zones: None,
            zoneless: false,
            kept: VecDeque::new(),
            pieces: 0,
            taken: 0,
            counts: RingCounts::default(),
        }
    }

    /// The fabric.
    pub fn fabric(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// Why nothing goes through any more, if so.
    pub fn failure(&self) -> Option<&'static str> {
        self.fabric.failure()
    }

    /// Whether announced pieces are not received yet.
    pub fn awaits_pieces(&self) -> bool {
        self.pieces > 0
    }

    /// Whether the peer may still have to read pieces of this end. The peer may not have reported it yet.
    pub fn owns_pieces(&self) -> bool {
        self.zones.as_ref().is_some_and(|(_, out)| !out.is_empty())
    }

    /// Whether there are bytes of the stream to be received.
    pub fn is_readable(&self) -> bool {
        match self.waiting.front() {
            Some(Waiting::Bytes(_)) => true,
            Some(Waiting::Piece(..)) => self.fabric.has_piece(),
            Some(Waiting::Heard(_)) | None => false,
        }
    }

    /// Whether there is nothing to do before an arrival: everything was received and credited, and nothing has
    /// failed.
    pub fn is_idle(&self) -> bool {
        let rests = self.waiting.is_empty() && self.kept.is_empty() && !self.owes_credit();
        rests && self.fabric.failure().is_none()
    }

    fn owes_credit(&self) -> bool {
        let zone_owes = self.zones.as_ref().is_some_and(|(zone, _)| zone.owes_credit());
        zone_owes || self.receiver.owes_credit()
    }

    /// The counters.
    pub fn counts(&self) -> RingCounts {
        self.counts
    }

    /// Processes the peer's immediates.
    pub fn look(&mut self) -> Result<Event, RingError> {
        let mut event = Event::default();
        while let Some(word) = self.fabric.next_immediate() {
            let immediate = Immediate::decode(word, self.shape)?;
            match self.receiver.arrived(immediate)? {
                Some(frame) => self.take_frame(immediate, frame, &mut event)?,
                None => self.take_credit(immediate, &mut event)?,
            }
        }
        while let Some(Waiting::Heard(frame)) = self.waiting.front() {
            self.receiver.consumed(frame);
            self.waiting.pop_front();
        }
        event.readable = self.is_readable();
        if !event.readable
            && let Some(why) = self.fabric.failure()
        {
            return Err(RingError::Fabric(why));
        }
        self.tell_if_owed();
        Ok(event)
    }

    fn take_credit(&mut self, told: Immediate, event: &mut Event) -> Result<(), RingError> {
        let more = match (told, &mut self.zones) {
            (Immediate::Credit(told), _) => self.sender.acknowledged(told)?,
            (Immediate::Done(told), Some((_, out))) => out.acknowledged(told)?,
            _ => return Err(RingError::Zones),
        };
        event.credit |= more;
        self.counts.credits_in += 1;
        Ok(())
    }

    fn take_frame(
        &mut self,
        kind: Immediate,
        frame: Frame,
        event: &mut Event,
    ) -> Result<(), RingError> {
        let told = decode_header(self.fabric.read_header(frame.offset));
        event.credit |= self.sender.acknowledged(told)?;
        let waiting = match kind {
            Immediate::Probe if event.probe.is_none() => {
                event.probe = Some(self.take_probe(&frame)?);
                return Ok(());
            }
            Immediate::Probe => return Err(RingError::Probe),
            Immediate::Offer => {
                self.take_offer(&frame)?;
                Waiting::Heard(frame)
            }
            Immediate::Piece => {
                let length = u32::from_le_bytes(self.payload::<4>(&frame));
                let (zone, _) = self.zones.as_mut().ok_or(RingError::Zones)?;
                self.counts.pieces_in += 1;
                self.pieces += 1;
                Waiting::Piece(frame, zone.arrived(length)?)
            }
            _ => Waiting::Bytes(frame),
        };
        self.counts.frames_in += 1;
        self.waiting.push_back(waiting);
        Ok(())
    }

    /// The bytes of a frame of a fixed length.
    fn payload<const N: usize>(&self, frame: &Frame) -> [u8; N] {
        let mut bytes = Vec::with_capacity(N);
        self.fabric.read(frame.offset + FRAME_HEADER_BYTES, N as u32, &mut bytes);
        bytes.try_into().unwrap_or([0; N])
    }

    fn take_offer(&mut self, frame: &Frame) -> Result<(), RingError> {
        if self.zones.is_some() {
            return Err(RingError::Zones);
        }
        let told = self.payload::<{ OFFER_BYTES as usize }>(frame);
        let [landing, departure] = self.fabric.accept(told).ok_or(RingError::Zones)?;
        self.zones = Some((ZoneReceiver::new(departure), ZoneSender::new(landing)));
        Ok(())
    }

    /// Offers zones, if there are none yet and they are possible: large messages are coming.
    pub fn offer(&mut self) {
        let room = self.fabric.has_room(true) && self.sender.has_room(Immediate::Offer);
        if self.zones.is_some() || self.zoneless || !room {
            return;
        }
        let Some(([landing, departure], told)) = self.fabric.offer() else {
            self.zoneless = true;
            return;
        };
        if let Some(place) = self.sender.fixed(Immediate::Offer) {
            self.zones = Some((ZoneReceiver::new(landing), ZoneSender::new(departure)));
            self.counts.frames_out += 1;
            self.write(place, &told, &[]);
        }
    }

    /// Starts to read pieces, until `wanted` bytes of the stream have arrived or are being read. The waiter is
    /// woken by the fabric, or by this if a read is impossible yet.
    pub fn fetch(&mut self, wanted: usize, waker: &Waker) {
        let begun = self.fabric.fetches();
        if self.pieces == begun {
            return;
        }
        let (mut bytes, mut passed) = (0, 0);
        for waiting in &self.waiting {
            if bytes >= wanted {
                return;
            }
            match waiting {
                Waiting::Heard(_) => {}
                Waiting::Bytes(frame) => bytes += frame.payload as usize,
                Waiting::Piece(_, piece) => {
                    if passed >= begun && !self.fabric.fetch(piece.offset, piece.length, waker) {
                        return;
                    }
                    passed += 1;
                    bytes += piece.length as usize;
                }
            }
        }
    }

    /// Probes come before anything else.
    fn take_probe(&mut self, frame: &Frame) -> Result<[u8; PROBE_BYTES as usize], RingError> {
        if self.counts.frames_in > 0 {
            return Err(RingError::Probe);
        }
        let bytes = self.payload(frame);
        self.receiver.consumed(frame);
        Ok(bytes)
    }

    /// Appends received bytes to `buffer`, up to its capacity; pieces as a whole. Returns the number of bytes.
    pub fn receive(&mut self, buffer: &mut Vec<u8>) -> usize {
        let before = buffer.len();
        while let Some(waiting) = self.waiting.front().copied() {
            let frame = match waiting {
                Waiting::Bytes(frame) => {
                    let room = u32::try_from(buffer.capacity() - buffer.len()).unwrap_or(u32::MAX);
                    let bytes = (frame.payload - self.taken).min(room);
                    let from = frame.offset + FRAME_HEADER_BYTES + self.taken;
                    self.fabric.read(from, bytes, buffer);
                    self.taken += bytes;
                    if self.taken < frame.payload {
                        break;
                    }
                    self.taken = 0;
                    frame
                }
                Waiting::Piece(frame, piece) => {
                    if !self.fabric.has_piece() {
                        break;
                    }
                    self.fabric.take_piece(piece.offset, piece.length, buffer);
                    self.pieces -= 1;
                    if let Some((zone, _)) = &mut self.zones {
                        zone.consumed(&piece);
                    }
                    frame
                }
                Waiting::Heard(frame) => frame,
            };
            self.receiver.consumed(&frame);
            self.waiting.pop_front();
        }
        self.tell_if_owed();
        buffer.len() - before
    }

    fn tell_if_owed(&mut self) {
        if self.receiver.owes_credit() && self.fabric.has_room(false) && self.sender.credit() {
            let immediate = self.receiver.tell_credit();
            self.tell(immediate);
        }
        if self.zones.as_ref().is_some_and(|(zone, _)| zone.owes_credit())
            && self.fabric.has_room(false)
            && self.sender.credit()
            && let Some((zone, _)) = &mut self.zones
        {
            let immediate = zone.tell();
            self.tell(immediate);
        }
    }

    fn tell(&mut self, immediate: Immediate) {
        self.counts.credits_out += 1;
        self.fabric.write(0, [&[], &[], &[]], immediate.encode());
    }

    /// Sends as much of `first` and then `second` as the credit allows. Returns the number of bytes.
    pub fn send(&mut self, first: &[u8], second: &[u8]) -> usize {
        let all = first.len() + second.len();
        let mut sent = 0;
        self.send_kept();
        while sent < all && self.kept.is_empty() && self.fabric.has_room(true) {
            let count = match self.step(all - sent) {
                Step::Wait => break,
                Step::Piece(piece) => {
                    let end = sent + piece.length as usize;
                    self.send_piece(&piece, parts(first, second, sent, end));
                    piece.length as usize
                }
                Step::Frame => {
                    let Some(place) = self.sender.stream(all - sent) else { break };
                    let [a, b] = parts(first, second, sent, sent + place.payload());
                    self.counts.frames_out += 1;
                    self.write(place, a, b);
                    place.payload()
                }
            };
            sent += count;
        }
        sent
    }

    /// Takes bytes beyond the credit as well, as far as the fabric keeps them: later calls of `send` send them
    /// first. Returns the number of bytes.
    pub fn keep(&mut self, first: &[u8], second: &[u8]) -> usize {
        let all = first.len() + second.len();
        let mut taken = 0;
        while all - taken >= LARGE_BYTES
            && let Some((_, zone)) = &mut self.zones
        {
            let piece = zone.next(all - taken);
            let end = taken + piece.length as usize;
            if !self.fabric.keep_piece(parts(first, second, taken, end)) {
                break;
            }
            zone.place(&piece);
            self.kept.push_back(piece);
            taken = end;
        }
        taken
    }

    /// Whether something was taken over that is not sent yet.
    pub fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    fn send_kept(&mut self) {
        while let Some(piece) = self.kept.front().copied() {
            // The frame that tells of it needs room as any.
            let room = self.fabric.has_room(true) && self.fabric.has_room_for_kept();
            let may = self.may_send(&piece) && room;
            let Some(place) = may.then(|| self.take_piece(&piece)).flatten() else { return };
            self.kept.pop_front();
            self.write_piece(place, &piece, |fabric, frame| {
                fabric.write_kept(piece.offset, piece.length, frame);
            });
        }
    }

    /// The next step for the remaining bytes.
    fn step(&mut self, left: usize) -> Step {
        let Some((_, zone)) = self.zones.as_ref().filter(|_| left >= LARGE_BYTES) else {
            return Step::Frame;
        };
        let piece = zone.next(left);
        if !self.may_send(&piece) {
            return Step::Wait;
        }
        // Without memory for it, it goes through the ring: slower, but it goes.
        if self.fabric.has_room_for_piece() { Step::Piece(piece) } else { Step::Frame }
    }

    /// Whether there is credit for a piece and its frame.
    fn may_send(&self, piece: &Piece) -> bool {
        let zone = self.zones.as_ref().is_some_and(|(_, zone)| zone.has_credit(piece));
        zone && self.sender.has_room(Immediate::Piece)
    }

    fn send_piece(&mut self, piece: &Piece, bytes: [&[u8]; 2]) {
        if let Some((_, zone)) = &mut self.zones {
            zone.place(piece);
        }
        if let Some(place) = self.take_piece(piece) {
            self.write_piece(place, piece, |fabric, frame| {
                fabric.write_piece(piece.offset, bytes, frame);
            });
        }
    }

    /// The place of the frame of a piece that is placed and may be sent.
    fn take_piece(&mut self, piece: &Piece) -> Option<Place> {
        let (_, zone) = self.zones.as_mut()?;
        let place = self.sender.fixed(Immediate::Piece)?;
        zone.send(piece);
        Some(place)
    }

    fn write_piece(
        &mut self,
        place: Place,
        piece: &Piece,
        write: impl FnOnce(&mut F, FrameToWrite<'_>),
    ) {
        let head: [u8; PIECE_HEAD_BYTES as usize] = piece.length.to_le_bytes();
        let header = self.receiver.tell();
        self.counts.frames_out += 1;
        self.counts.pieces_out += 1;
        let immediate = place.immediate.encode();
        let frame = FrameToWrite { offset: place.offset, parts: [&header, &head], immediate };
        write(&mut self.fabric, frame);
    }

    /// Sends a probe. False if there is no room, which at a session's beginning there is.
    pub fn probe(&mut self, bytes: [u8; PROBE_BYTES as usize]) -> bool {
        let place = self.sender.fixed(Immediate::Probe);
        place.inspect(|place| self.write(*place, &bytes, &[])).is_some()
    }

    fn write(&mut self, place: Place, first: &[u8], second: &[u8]) {
        let header = self.receiver.tell();
        self.fabric.write(place.offset, [&header, first, second], place.immediate.encode());
    }
}

/// The bytes from `start` to `end` of `first` and `second` one after the other.
fn parts<'a>(first: &'a [u8], second: &'a [u8], start: usize, end: usize) -> [&'a [u8]; 2] {
    let part = |bytes: &'a [u8], before: usize| {
        let within = |at: usize| at.saturating_sub(before).min(bytes.len());
        bytes.get(within(start)..within(end)).unwrap_or_default()
    };
    [part(first, 0), part(second, first.len())]
}
