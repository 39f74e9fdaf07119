//! A malicious client that changes the bytes of its requests after it has announced them to the server.
//!
//! It implements the ring protocol itself (docs/design/rdma.md), because no client of this project can do this.
//! It sends a credit with extra bytes, which overwrite a frame that was announced before.

use super::{Server, eventually};
use kauri_bson::{Doc, Value, doc};
use kauri_transport::ring::Fabric;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const RING_BYTES: u64 = 64 << 10;
const FRAME_HEADER_BYTES: u32 = 8;
const STREAM: u32 = 1 << 28;
const CREDIT: u32 = 2 << 28;
const PROBE: u32 = 3 << 28;
const TEXT_BYTES: usize = 11_000;
/// Changed requests have ids above this.
const OTHER_ID: i32 = 1_000_000;

/// The offset of the next frame of this length after this position, and the position after it.
fn place(position: u64, length: u32) -> (u32, u64) {
    let (at, length) = (position % RING_BYTES, u64::from(length));
    let start = if at + length <= RING_BYTES { position } else { position + RING_BYTES - at };
    ((start % RING_BYTES) as u32, start + length.next_multiple_of(16))
}

/// The client's end of the rings.
struct Liar<'f, F> {
    fabric: &'f mut F,
    sent: u64,
    consumed: u64,
    consumed_frames: u64,
}

impl<F: Fabric> Liar<'_, F> {
    fn write(&mut self, offset: u32, parts: [&[u8]; 2], immediate: u32) {
        eventually("there is room", || {
            self.fabric.has_room(true) || self.fabric.failure().is_some()
        });
        self.fabric.write(offset, [parts[0], parts[1], &[]], immediate);
    }

    /// Writes a frame into the ring and signals it. Returns the offset of its bytes.
    fn announce(&mut self, kind: u32, bytes: &[u8]) -> u32 {
        let length = FRAME_HEADER_BYTES + bytes.len() as u32;
        let (offset, end) = place(self.sent, length);
        self.sent = end;
        let mut header = ((self.consumed / 16) as u32).to_le_bytes().to_vec();
        header.extend_from_slice(&(self.consumed_frames as u32).to_le_bytes());
        self.write(offset, [&header, bytes], kind | length);
        offset + FRAME_HEADER_BYTES
    }

    /// Overwrites bytes in the ring without signalling a frame.
    fn change(&mut self, offset: u32, bytes: &[u8]) {
        let told = (self.consumed / 16) as u32 & 0x1_ffff;
        let frames = (self.consumed_frames as u32 & 0x7ff) << 17;
        self.write(offset, [bytes, &[]], CREDIT | frames | told);
    }

    /// The bytes of the next frame that is not a credit, if one has arrived.
    fn receive(&mut self) -> Option<Vec<u8>> {
        while let Some(immediate) = self.fabric.next_immediate() {
            self.consumed_frames += 1;
            if immediate & CREDIT == CREDIT && immediate & PROBE != PROBE {
                continue;
            }
            let length = immediate & 0xfff_ffff;
            let (offset, end) = place(self.consumed, length);
            self.consumed = end;
            let mut bytes = Vec::new();
            self.fabric.read(offset + FRAME_HEADER_BYTES, length - FRAME_HEADER_BYTES, &mut bytes);
            return Some(bytes);
        }
        None
    }
}

fn request(id: i32, letter: &str) -> Vec<u8> {
    let document = doc! { "_id" => id, "x" => letter.repeat(TEXT_BYTES).as_str(), "y" => 7 };
    super::message(&doc! { "insert" => "lies", "documents" => kauri_bson::array![document] })
}

fn find(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).unwrap()
}

/// The announced message, and the bytes that replace it from this offset on.
fn lie(round: i32) -> (Vec<u8>, usize, Vec<u8>) {
    let old = request(round, "a");
    let text = find(&old, b"\x02x\0");
    let (at, new) = match round % 6 {
        // Another valid document.
        0 => (text + 7, b"b".repeat(TEXT_BYTES)),
        // A string that ends outside the document; an element with an invalid type.
        1 => (text + 3, 0x7fff_0000u32.to_le_bytes().to_vec()),
        2 => (text, vec![0x99]),
        // Another command.
        3 => (find(&old, b"insert"), b"delete".to_vec()),
        // A message shorter than any valid one.
        4 => (0, 5u32.to_le_bytes().to_vec()),
        // Another document, by its id.
        _ => (find(&old, b"\x10_id\0") + 5, (round + OTHER_ID).to_le_bytes().to_vec()),
    };
    (old, at, new)
}

/// The results of the rounds; each changes a request while the server may process it. Ends with the session.
/// `round` continues its count.
fn session<F: Fabric>(
    fabric: &mut F,
    probe: [u8; 8],
    has_ended: &dyn Fn() -> bool,
    round: &mut i32,
    rounds: i32,
) -> BTreeMap<&'static str, usize> {
    let mut outcomes = BTreeMap::new();
    let mut liar = Liar { fabric, sent: 0, consumed: 0, consumed_frames: 0 };
    liar.announce(PROBE, &probe);
    eventually("the server's probe", || liar.receive().is_some());
    while *round < rounds {
        let (old, at, new) = lie(*round);
        *round += 1;
        let offset = liar.announce(STREAM, &old);
        let began = Instant::now();
        let mut reply = None;
        for change in 0..8 {
            let bytes = if change % 2 == 0 { &new } else { &old[at..at + new.len()] };
            liar.change(offset + at as u32, bytes);
            reply = liar.receive();
            if reply.is_some() || has_ended() {
                break;
            }
        }
        while reply.is_none() && !has_ended() {
            assert!(began.elapsed() < Duration::from_secs(60), "neither a reply nor an end");
            reply = liar.receive();
        }
        let Some(reply) = reply.or_else(|| liar.receive()) else {
            *outcomes.entry("ended").or_default() += 1;
            return outcomes;
        };
        let (_, kauri_wire::Message::Msg(parts)) = kauri_wire::Message::parse(&reply).unwrap()
        else {
            panic!("no OP_MSG")
        };
        let body = Doc::from_bytes(parts.body).unwrap();
        let inserted = body.value("n").to_i64_saturating() == Some(1) && body.value("ok").truthy();
        *outcomes.entry(if inserted { "inserted" } else { "refused" }).or_default() += 1;
    }
    outcomes
}

/// A malicious peer with this many rounds: `with` runs each session over its fabric until it ends.
pub struct Lies {
    pub round: i32,
    pub rounds: i32,
    outcomes: BTreeMap<&'static str, usize>,
}

impl Lies {
    pub fn new(rounds: i32) -> Lies {
        Lies { round: 0, rounds, outcomes: BTreeMap::new() }
    }

    pub fn are_left(&self) -> bool {
        self.round < self.rounds
    }

    pub fn tell<F: Fabric>(
        &mut self,
        fabric: &mut F,
        probe: [u8; 8],
        has_ended: &dyn Fn() -> bool,
    ) {
        let told = session(fabric, probe, has_ended, &mut self.round, self.rounds);
        for (outcome, count) in told {
            *self.outcomes.entry(outcome).or_default() += count;
        }
    }

    /// Only checked documents are stored: each is an announced one, its replacement, or a mixture of both,
    /// letter by letter.
    pub fn check(&self, server: &Server) {
        let mut connection = server.open(super::Way::Unix);
        let (mut stored, mut changed, mut id) = (0, 0, -1);
        loop {
            let filter = doc! { "_id" => doc! { "$gt" => id } };
            let sort = doc! { "_id" => 1 };
            let command = doc! { "find" => "lies", "filter" => filter, "sort" => sort, "limit" => 1, "singleBatch" => true };
            let reply = connection.command("admin", &command).unwrap();
            let cursor = reply.as_doc().get("cursor").unwrap().as_doc().unwrap();
            let batch = cursor.get("firstBatch").unwrap().as_doc().unwrap();
            let Some(document) = batch.first() else { break };
            let document = document.as_doc().unwrap();
            kauri_bson::validate(document.as_bytes(), 10).unwrap();
            let Value::Int32(found) = document.value("_id") else { panic!("{document:?}") };
            assert!((found % OTHER_ID) < self.rounds && found < 2 * OTHER_ID, "{found}");
            let Value::String(text) = document.value("x") else { panic!("{document:?}") };
            assert_eq!(text.len(), TEXT_BYTES);
            assert!(text.bytes().all(|letter| letter == b'a' || letter == b'b'), "{text}");
            assert_eq!(document.value("y").to_i64_saturating(), Some(7));
            assert_eq!(document.count(), 3);
            changed += usize::from(found >= OTHER_ID || text.contains('b'));
            (stored, id) = (stored + 1, found);
        }
        println!("lies: {:?}, {stored} documents, {changed} of them changed", self.outcomes);
        let acknowledged = self.outcomes.get("inserted").copied().unwrap_or(0);
        assert!(stored >= acknowledged && acknowledged > 0, "{stored} of {acknowledged}");
        let reply = connection.command("admin", &doc! { "validate" => "lies" }).unwrap();
        assert!(reply.as_doc().value("valid").truthy(), "{reply:?}");
    }
}
