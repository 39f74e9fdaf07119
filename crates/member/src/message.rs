//! What members send each other, as bytes: the argument of the internal command `replSetMessage`.
//!
//! A message is a kind (1 byte), its content, and the CRC32C of both (4 bytes). Numbers are little endian.
//!
//! - *Consensus*: length (4) and bytes of an envelope (`kauri_replication::codec`), then the bodies of its entries, in
//!   order. A body is the frame's fields, its data, and the records of its units.
//! - *Part*: of a message that is longer than a command can be ([`split`], [`Parts`]).
//! - *Status*: a BSON document ([`Status`]).
//! - *Invitation*: a BSON document ([`Invitation`]): a member that is in no set becomes part of one.
//! - *Copy*: a BSON document ([`CopyMessage`]): of an initial sync.
//!
//! Invariants: what [`decode`] accepts needs no more memory than a few times its bytes. Bodies are of the envelope's entries.

use crate::entry_log::Body;
use crate::initial_sync::message::CopyMessage;
use crate::view::{MemberState, Place};
use kauri_base::{CommitSeq, OpTime, Timestamp};
use kauri_bson::{Doc, DocBuf, DocWriter, Value};
use kauri_replication::codec::{self, Envelope};
pub use kauri_replication::reader::Malformed;
use kauri_replication::reader::Reader;
use kauri_storage::{Frame, FrameRecord, LogPosition};
use std::collections::BTreeMap;

const KIND_CONSENSUS: u8 = 1;
const KIND_STATUS: u8 = 2;
const KIND_INVITATION: u8 = 3;
const KIND_PART: u8 = 4;
const KIND_COPY: u8 = 5;
/// Bytes of a part at most.
const PART_BYTES: usize = 16 << 20;
/// Bytes of a message in parts at most: above that of the largest unit.
const WHOLE_BYTES_MAX: u64 = 320 << 20;
const CRC_BYTES: usize = 4;

/// A message.
#[derive(Debug)]
pub enum Message {
    /// Of consensus, with the bodies of its entries.
    Consensus(Envelope, Vec<Body>),
    /// A sign of life.
    Status(Status),
    /// To be part of a set.
    Invitation(Invitation),
    /// A part of a message.
    Part(Part),
    /// Of an initial sync.
    Copy(CopyMessage),
}

/// A part of a message.
#[derive(Debug)]
pub struct Part {
    /// The sender.
    pub from: u64,
    /// Bytes of the whole message.
    pub total: u64,
    /// Where the part begins in it.
    pub offset: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A message as it is, or in parts if it is long.
pub fn split(from: u64, message: Vec<u8>) -> Vec<Vec<u8>> {
    if message.len() <= PART_BYTES {
        return vec![message];
    }
    let total = message.len() as u64;
    let parts = message.chunks(PART_BYTES).enumerate().map(|(nth, bytes)| {
        let mut to = vec![KIND_PART];
        for number in [from, total, (nth * PART_BYTES) as u64] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        to.extend_from_slice(bytes);
        sealed(to)
    });
    parts.collect()
}

/// Messages whose parts are arriving, by sender: one of each.
#[derive(Default)]
pub struct Parts(BTreeMap<u64, Vec<u8>>);

impl Parts {
    /// Takes a part. Answers the message with its last one. A part that does not follow ends the message.
    pub fn take(&mut self, part: Part) -> Option<Vec<u8>> {
        let mut whole = self.0.remove(&part.from).unwrap_or_default();
        if part.offset == 0 {
            whole.clear();
        }
        if whole.len() as u64 != part.offset {
            return None;
        }
        whole.extend_from_slice(&part.bytes);
        if whole.len() as u64 >= part.total {
            return Some(whole);
        }
        self.0.insert(part.from, whole);
        None
    }
}

/// A sign of life, which each member sends to each other one at regular times.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Status {
    /// The set's id.
    pub set: u64,
    /// The sender's number.
    pub from: u64,
    /// Its state.
    pub state: MemberState,
    /// Version and term of its configuration.
    pub config: (i64, i64),
    /// How far its log is.
    pub written: Place,
    /// The same, durable.
    pub durable: Place,
    /// How far its readers see, and the entry's index.
    pub applied: Place,
    /// See above.
    pub seen: u64,
    /// The first entry of its log.
    pub first: u64,
    /// Its clock, in nanoseconds, to be returned.
    pub sent_ns: u64,
    /// The receiver's clock as the sender was told last, and how long ago that was, in nanoseconds; 0 for never.
    pub echo: (u64, u64),
    /// Its log stands still: it cannot lead.
    pub is_held: bool,
    /// Whether it wants the leader to hand over to it (`replSetStepUp`).
    pub wants_to_lead: bool,
    /// When it was elected, as in [`View`](crate::View); of a primary.
    pub elected: Option<(i64, Timestamp)>,
}

impl Status {
    /// Whether the sender, which votes and has a priority, could lead now.
    pub fn may_take_over(&self) -> bool {
        self.state == MemberState::Secondary && !self.is_held
    }
}

/// Where a set begins.
#[derive(Clone, PartialEq, Debug)]
pub struct Invitation {
    /// The sender's number in the set.
    pub from: u64,
    /// The receiver's.
    pub to: u64,
    /// Whether the receiver votes. It has lost its log then, and must not begin: it says that it has none.
    pub votes: bool,
    /// The configuration document.
    pub config: DocBuf,
    /// The number of the member that began the set, and was its only one then.
    pub origin: u64,
    /// Whether the log does not tell everything, or that would take long: the receiver copies the sender's files.
    pub copies: bool,
    /// The sender's term, which it leads, and its last entry: until the receiver has that, it elects nobody.
    pub term: u64,
    /// See above.
    pub until: u64,
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// The bytes of a message of consensus.
pub fn encode_consensus(envelope: &Envelope, bodies: &[Body]) -> Vec<u8> {
    let envelope = codec::encode(envelope);
    let mut to = vec![KIND_CONSENSUS];
    to.extend_from_slice(&(envelope.len() as u32).to_le_bytes());
    to.extend_from_slice(&envelope);
    bodies.iter().for_each(|body| put_body(body, &mut to));
    sealed(to)
}

fn put_body((frame, records): &Body, to: &mut Vec<u8>) {
    for number in [
        frame.position.term,
        frame.position.index,
        frame.first.0,
        frame.seq.0,
        frame.time,
        frame.bytes,
    ] {
        to.extend_from_slice(&number.to_le_bytes());
    }
    for number in [frame.records, frame.data.len() as u32, records.len() as u32] {
        to.extend_from_slice(&number.to_le_bytes());
    }
    to.extend_from_slice(&frame.data);
    for record in records {
        to.extend_from_slice(&[record.kind, u8::from(record.alone)]);
        to.extend_from_slice(&record.collection.to_le_bytes());
        to.extend_from_slice(&record.record.to_le_bytes());
        to.extend_from_slice(&record.seq.0.to_le_bytes());
        to.extend_from_slice(&(record.payload.len() as u32).to_le_bytes());
        to.extend_from_slice(&record.payload);
    }
}

/// Bytes of a body in a message.
pub fn body_bytes((frame, records): &Body) -> usize {
    60 + frame.data.len() + records.iter().map(|record| 26 + record.payload.len()).sum::<usize>()
}

/// The bytes of a sign of life.
pub fn encode_status(status: &Status) -> Vec<u8> {
    let doc = DocBuf::build(|out| {
        out.put("set", status.set as i64);
        out.put("from", status.from as i64);
        out.put("state", status.state as i32);
        out.put("configVersion", status.config.0);
        out.put("configTerm", status.config.1);
        put_place(out, "written", status.written);
        put_place(out, "durable", status.durable);
        put_place(out, "applied", status.applied);
        out.put("seen", status.seen as i64);
        out.put("first", status.first as i64);
        out.put("sent", status.sent_ns as i64);
        out.put("echo", status.echo.0 as i64);
        out.put("held", status.echo.1 as i64);
        out.put("isHeld", status.is_held);
        out.put("wantsToLead", status.wants_to_lead);
        if let Some((wall_ms, time)) = status.elected {
            out.put("electedWall", wall_ms);
            out.put("electedTime", time);
        }
    });
    sealed([&[KIND_STATUS], doc.as_doc().as_bytes()].concat())
}

fn put_place(out: &mut DocWriter<'_>, name: &str, place: Place) {
    let mut out = out.document(name);
    let OpTime { term, timestamp } = place.optime;
    out.put("term", term);
    out.put("time", (u64::from(timestamp.seconds) << 32 | u64::from(timestamp.increment)) as i64);
    out.put("wall", place.wall_ms);
}

/// The bytes of an invitation.
pub fn encode_invitation(invitation: &Invitation) -> Vec<u8> {
    let doc = DocBuf::build(|out| {
        out.put("from", invitation.from as i64);
        out.put("to", invitation.to as i64);
        out.put("votes", invitation.votes);
        out.put("config", &invitation.config);
        out.put("origin", invitation.origin as i64);
        out.put("copies", invitation.copies);
        out.put("leaderTerm", invitation.term as i64);
        out.put("until", invitation.until as i64);
    });
    sealed([&[KIND_INVITATION], doc.as_doc().as_bytes()].concat())
}

/// The bytes of a message of an initial sync.
pub fn encode_copy(message: &CopyMessage) -> Vec<u8> {
    sealed([&[KIND_COPY], message.encode().as_doc().as_bytes()].concat())
}

/// The message in these bytes.
pub fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
    let (body, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(Malformed)?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(Malformed);
    }
    let (&kind, content) = body.split_first().ok_or(Malformed)?;
    match kind {
        KIND_CONSENSUS => decode_consensus(content),
        KIND_STATUS => decode_status(document(content)?).map(Message::Status).ok_or(Malformed),
        KIND_INVITATION => {
            decode_invitation(document(content)?).map(Message::Invitation).ok_or(Malformed)
        }
        KIND_PART => decode_part(content).map(Message::Part),
        KIND_COPY => CopyMessage::decode(document(content)?).map(Message::Copy),
        _ => Err(Malformed),
    }
}

fn decode_part(content: &[u8]) -> Result<Part, Malformed> {
    let mut from = Reader(content);
    let (sender, total, offset) = (from.long()?, from.long()?, from.long()?);
    let end = offset.checked_add(from.0.len() as u64).ok_or(Malformed)?;
    if total > WHOLE_BYTES_MAX || end > total || from.0.is_empty() {
        return Err(Malformed);
    }
    Ok(Part { from: sender, total, offset, bytes: from.0.to_vec() })
}

fn document(bytes: &[u8]) -> Result<Doc<'_>, Malformed> {
    let doc = Doc::from_bytes(bytes).map_err(|_| Malformed)?;
    if doc.as_bytes().len() == bytes.len() { Ok(doc) } else { Err(Malformed) }
}

fn decode_consensus(content: &[u8]) -> Result<Message, Malformed> {
    let mut from = Reader(content);
    let length = from.int()? as usize;
    let envelope = codec::decode(from.take(length)?).map_err(|_| Malformed)?;
    let entries = envelope.message.as_ref().map(|message| &message.entries[..]);
    let mut bodies = Vec::new();
    for entry in entries.unwrap_or_default() {
        let body = take_body(&mut from)?;
        let LogPosition { term, index } = body.0.position;
        let is_it = (term, index) == (entry.term, entry.index);
        let known = crate::entry_log::known_of(&body.0).filter(|_| is_it).ok_or(Malformed)?;
        if known.entry != *entry {
            return Err(Malformed);
        }
        bodies.push(body);
    }
    if from.0.is_empty() { Ok(Message::Consensus(envelope, bodies)) } else { Err(Malformed) }
}

fn take_body(from: &mut Reader<'_>) -> Result<Body, Malformed> {
    let position = LogPosition { term: from.long()?, index: from.long()? };
    let (first, seq) = (CommitSeq(from.long()?), CommitSeq(from.long()?));
    let (time, bytes) = (from.long()?, from.long()?);
    let (records, data, count) = (from.int()?, from.int()? as usize, from.int()? as usize);
    // Numbers that cannot be added are nobody's.
    if first > seq || seq.0 >= 1 << 50 || time >= 1 << 63 {
        return Err(Malformed);
    }
    let data = from.take(data)?.to_vec();
    let frame = Frame { position, first, seq, time, records, bytes, data };
    // A record has 26 bytes at least.
    let mut found = Vec::with_capacity(count.min(from.0.len() / 26));
    for _ in 0..count {
        let [kind, alone] = *from.take(2)? else { return Err(Malformed) };
        let (collection, record, seq) = (from.int()?, from.long()?, CommitSeq(from.long()?));
        let length = from.int()? as usize;
        let payload = from.take(length)?.to_vec();
        if alone > 1 {
            return Err(Malformed);
        }
        found.push(FrameRecord { kind, alone: alone == 1, collection, record, seq, payload });
    }
    Ok((frame, found))
}

fn number(doc: Doc<'_>, name: &str) -> Option<u64> {
    match doc.value(name) {
        Value::Int64(number) => u64::try_from(number).ok(),
        _ => None,
    }
}

fn decode_status(doc: Doc<'_>) -> Option<Status> {
    let signed = |name| match doc.value(name) {
        Value::Int64(number) => Some(number),
        _ => None,
    };
    let place = |name| {
        let Value::Document(place) = doc.value(name) else { return None };
        let (term, time) = (number(place.as_doc(), "term")?, number(place.as_doc(), "time")?);
        let timestamp = Timestamp { seconds: (time >> 32) as u32, increment: time as u32 };
        let Value::Int64(wall_ms) = place.as_doc().value("wall") else { return None };
        Some(Place { optime: OpTime { term: term as i64, timestamp }, wall_ms })
    };
    let Value::Int32(state) = doc.value("state") else { return None };
    Some(Status {
        set: signed("set")? as u64,
        from: number(doc, "from")?,
        state: MemberState::ALL.into_iter().find(|known| *known as i32 == state)?,
        config: (signed("configVersion")?, signed("configTerm")?),
        written: place("written")?,
        durable: place("durable")?,
        applied: place("applied")?,
        seen: number(doc, "seen")?,
        first: number(doc, "first")?,
        sent_ns: number(doc, "sent")?,
        echo: (number(doc, "echo")?, number(doc, "held")?),
        is_held: matches!(doc.value("isHeld"), Value::Bool(true)),
        wants_to_lead: matches!(doc.value("wantsToLead"), Value::Bool(true)),
        elected: match (doc.value("electedWall"), doc.value("electedTime")) {
            (Value::Int64(wall_ms), Value::Timestamp(time)) => Some((wall_ms, time)),
            _ => None,
        },
    })
}

fn decode_invitation(doc: Doc<'_>) -> Option<Invitation> {
    let Value::Document(config) = doc.value("config") else { return None };
    Some(Invitation {
        from: number(doc, "from")?,
        to: number(doc, "to").filter(|to| *to > 0)?,
        votes: matches!(doc.value("votes"), Value::Bool(true)),
        config: config.as_doc().to_buf(),
        origin: number(doc, "origin").filter(|origin| *origin > 0)?,
        copies: matches!(doc.value("copies"), Value::Bool(true)),
        term: number(doc, "leaderTerm")?,
        until: number(doc, "until")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_replication::codec::{Kind, Message as Raft};
    use kauri_replication::{Entry, Frame as Units, Payload};

    fn consensus() -> (Envelope, Vec<Body>) {
        let frame = Frame {
            position: LogPosition { term: 3, index: 8 },
            first: CommitSeq(20),
            seq: CommitSeq(21),
            time: 77,
            records: 1,
            bytes: 64,
            data: [&[1][..], &5_i64.to_le_bytes(), &[0; 8]].concat(),
        };
        let payload = vec![7; 9];
        let (record, seq) = (5, CommitSeq(20));
        let put = FrameRecord { kind: 1, alone: true, collection: 4, record, seq, payload };
        let units = Payload::Frame(Units { first: 20, units: 1, bytes: 64 + 17 });
        let entries = vec![Entry { index: 8, term: 3, payload: units }];
        let raft = Raft { index: 7, log_term: 2, entries, ..Raft::new(Kind::Append, 3) };
        let envelope = Envelope {
            set: 1,
            from: 1,
            to: 2,
            from_boot: 1,
            to_boot: 1,
            term: 3,
            last: 8,
            durable: 7,
            durable_commit: 6,
            lost_power: false,
            message: Some(raft),
        };
        (envelope, vec![(frame, vec![put])])
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let (envelope, bodies) = consensus();
        let bytes = encode_consensus(&envelope, &bodies);
        assert_eq!(bytes.len(), 9 + codec::encode(&envelope).len() + body_bytes(&bodies[0]));
        match decode(&bytes) {
            Ok(Message::Consensus(of, with)) => assert_eq!((of, with), (envelope, bodies)),
            other => panic!("{other:?}"),
        }
        let status =
            Status { set: 9, from: 2, first: 3, seen: 8, echo: (4, 5), ..Status::default() };
        let elected = Some((7, Timestamp { seconds: 1, increment: 2 }));
        for status in [Status { elected, ..status }, status] {
            let read = decode(&encode_status(&status));
            assert!(matches!(read, Ok(Message::Status(of)) if of == status), "{status:?}");
        }
        let invitation = Invitation {
            from: 1,
            to: 2,
            votes: true,
            config: kauri_bson::doc! { "_id" => "rs" },
            origin: 3,
            copies: true,
            term: 5,
            until: 70,
        };
        let bytes = encode_invitation(&invitation);
        assert!(matches!(decode(&bytes), Ok(Message::Invitation(of)) if of == invitation));
    }

    #[test]
    fn messages_of_a_copy_are_read_as_they_were_written() {
        use crate::initial_sync::message::{Content, File, PIECE_BYTES, Piece};
        use kauri_storage::CopyPart;
        let piece = |bytes| Piece { copy: 9, file: 1, offset: 77, bytes };
        let part = |offset, bytes| CopyPart { offset, bytes };
        let (name, parts) = ("pmlog.0".to_owned(), vec![part(0, 3), part(5, 4)]);
        let file = File { name, bytes: 9, parts, is_log: true };
        let begun = |files| {
            let stored = Box::new(crate::stored::tests::stored());
            Content::Begun { copy: 9, stored, files }
        };
        let read = |content| {
            let bytes = encode_copy(&CopyMessage { from: 4, content });
            match decode(&bytes) {
                Ok(Message::Copy(CopyMessage { from: 4, content })) => Some(content),
                _ => None,
            }
        };
        for content in [
            Content::Begin,
            begun(vec![file.clone(), File { is_log: false, ..file.clone() }]),
            Content::Read(piece(PIECE_BYTES)),
            Content::Data(piece(3), vec![1, 2, 3]),
            Content::Gone(9),
            Content::End(9),
            Content::GiveUp(9),
        ] {
            assert_eq!(read(content.clone()), Some(content));
        }
        let with_parts = |parts| File { parts, ..file.clone() };
        for wrong in [
            Content::Read(piece(PIECE_BYTES + 1)),
            Content::Data(piece(3), vec![1]),
            begun(vec![with_parts(vec![part(0, 10)])]),
            begun(vec![with_parts(vec![part(0, 3), part(2, 3)])]),
            begun(vec![with_parts(vec![part(u64::MAX, 3)])]),
            begun(vec![File { name: "../x".to_owned(), ..file.clone() }]),
            begun(vec![File { bytes: 1 << 40, is_log: false, ..file.clone() }]),
            begun(vec![File { bytes: 200 << 20, is_log: false, ..file.clone() }; 2]),
            begun(vec![file.clone(); 9]),
        ] {
            assert_eq!(read(wrong.clone()), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_long_message_goes_in_parts() {
        let whole: Vec<u8> = (0..2 * PART_BYTES + 9).map(|at| at as u8).collect();
        assert_eq!(split(7, whole[..9].to_vec()), [whole[..9].to_vec()]);
        let parts = split(7, whole.clone());
        assert_eq!(parts.len(), 3);
        let part = |bytes: &[u8]| match decode(bytes) {
            Ok(Message::Part(part)) => part,
            other => panic!("{other:?}"),
        };
        let mut arriving = Parts::default();
        assert_eq!(arriving.take(part(&parts[1])), None, "its beginning is missing");
        assert_eq!(arriving.take(part(&parts[0])), None);
        assert_eq!(arriving.take(part(&parts[2])), None, "its middle is missing");
        let all: Vec<_> = parts.iter().map(|bytes| arriving.take(part(bytes))).collect();
        assert_eq!(all, [None, None, Some(whole)]);
        assert!(arriving.0.is_empty());
    }

    #[test]
    fn what_is_cut_short_or_of_other_entries_is_refused() {
        let (mut envelope, bodies) = consensus();
        let bytes = encode_consensus(&envelope, &bodies);
        for length in 0..bytes.len() - CRC_BYTES {
            assert!(decode(&bytes[..length]).is_err());
            // With a checksum that is right.
            assert!(decode(&sealed(bytes[..length].to_vec())).is_err());
        }
        if let Some(raft) = &mut envelope.message {
            raft.entries[0].term = 2;
        }
        assert!(decode(&encode_consensus(&envelope, &bodies)).is_err());
    }
}
