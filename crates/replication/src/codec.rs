//! Messages between members, as bytes.
//!
//! A message is an *envelope*: what its sender tells with each message, and at most one message of Raft. All numbers
//! are little endian. The last four bytes are the CRC32C of the others.
//!
//! |offset|bytes|field|
//! |---|---|---|
//! |0|1|version, 1|
//! |1|1|kind of the message; 0: none|
//! |2|1|flags: 1 lost power, 2 rejection|
//! |3|1|bytes of the context|
//! |4|2|number of entries|
//! |6|2|0|
//! |8|72|set, from, to, boot of the sender, of the receiver, term, last, durable, durable commit|
//! |80|48|with a message: its term, log term, index, commit, commit term, hint|
//! ||n|context|
//! |||each entry: term (8), tag (1), and by its tag nothing, a frame (16), a count and 9 bytes for each change, or a length (4) and a configuration|
//!
//! Invariants: what [`decode`] accepts has contiguous entries with ascending terms, and no number so great that one can
//! not be added. Its memory is bounded by the bytes that it is given.

use crate::entry::{self, CONFIG_BYTES_MAX, Entry, Frame, Payload};
pub use crate::reader::Malformed;
use crate::reader::Reader;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 80;
const CRC_BYTES: usize = 4;
/// Bytes of a context at most.
pub const CONTEXT_BYTES_MAX: usize = 32;
/// Entries in a message at most.
pub const ENTRIES_MAX: usize = 4096;
/// Terms are at most this: an engine's record has 32 bits for one. A member that believes in a greater one could write no
/// entry any more.
pub const TERM_MAX: u64 = u32::MAX as u64;
/// Indexes are below this.
pub const NUMBER_MAX: u64 = 1 << 62;

const FLAG_LOST_POWER: u8 = 1;
const FLAG_REJECT: u8 = 2;
const TAG_BLANK: u8 = 0;
const TAG_FRAME: u8 = 1;
const TAG_MEMBERSHIP: u8 = 2;
const TAG_CONFIG: u8 = 3;

/// Raft's messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Entries for a follower.
    Append = 1,
    /// A follower has, or has not, appended them.
    Appended = 2,
    /// A candidate asks for a vote.
    Vote = 3,
    /// The answer.
    Voted = 4,
    /// A member asks whether it would get a vote.
    PreVote = 5,
    /// The answer.
    PreVoted = 6,
    /// The leader is alive.
    Heartbeat = 7,
    /// The follower is, too.
    HeartbeatSeen = 8,
    /// The leader asks a follower to take over.
    TakeOver = 9,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 9] = [
        Kind::Append,
        Kind::Appended,
        Kind::Vote,
        Kind::Voted,
        Kind::PreVote,
        Kind::PreVoted,
        Kind::Heartbeat,
        Kind::HeartbeatSeen,
        Kind::TakeOver,
    ];

    /// Whether it answers another message.
    pub fn is_answer(self) -> bool {
        matches!(self, Kind::Appended | Kind::Voted | Kind::PreVoted | Kind::HeartbeatSeen)
    }

    /// Whether only a leader sends it.
    pub fn is_leaders(self) -> bool {
        matches!(self, Kind::Append | Kind::Heartbeat | Kind::TakeOver)
    }
}

/// A message of Raft. The fields are those of raft-rs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// The term that it belongs to.
    pub term: u64,
    /// The term of the entry at `index`; of a rejection, at `hint`.
    pub log_term: u64,
    /// The entry before the first of `entries`; of an answer, the last one appended or refused.
    pub index: u64,
    /// The sender's commit point.
    pub commit: u64,
    /// The term of the entry there, with requests and refusals of votes.
    pub commit_term: u64,
    /// A refusal.
    pub reject: bool,
    /// Where the follower's log may match.
    pub hint: u64,
    /// Returned by the receiver.
    pub context: Vec<u8>,
    /// The entries from `index + 1` on.
    pub entries: Vec<Entry>,
}

impl Message {
    /// A message of this kind and term about nothing else.
    pub fn new(kind: Kind, term: u64) -> Message {
        Message {
            kind,
            term,
            log_term: 0,
            index: 0,
            commit: 0,
            commit_term: 0,
            reject: false,
            hint: 0,
            context: Vec::new(),
            entries: Vec::new(),
        }
    }
}

/// What goes from a member to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The set's id: members of other sets are refused.
    pub set: u64,
    /// The sender.
    pub from: u64,
    /// The receiver.
    pub to: u64,
    /// The number of the sender's start.
    pub from_boot: u64,
    /// The start of the receiver that the sender has heard of last; 0 for none.
    pub to_boot: u64,
    /// The sender's term.
    pub term: u64,
    /// The last index of the sender's log.
    pub last: u64,
    /// The sender's log is durable up to here, and is that of the leader of `term`.
    pub durable: u64,
    /// The leader's durable commit point, as the sender knows it.
    pub durable_commit: u64,
    /// The sender may have lost written entries, and answers as such a member.
    pub lost_power: bool,
    /// A message of Raft.
    pub message: Option<Message>,
}

/// The bytes of an envelope.
pub fn encode(envelope: &Envelope) -> Vec<u8> {
    let message = envelope.message.as_ref();
    let entries = message.map_or(0, |message| message.entries.len());
    let mut to = Vec::with_capacity(HEADER_BYTES + 64 + 32 * entries);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    to.push(VERSION);
    to.push(message.map_or(0, |message| message.kind as u8));
    to.push(
        flag(envelope.lost_power, FLAG_LOST_POWER)
            | flag(message.is_some_and(|message| message.reject), FLAG_REJECT),
    );
    to.push(message.map_or(0, |message| message.context.len() as u8));
    to.extend_from_slice(&(entries as u16).to_le_bytes());
    to.extend_from_slice(&[0; 2]);
    for number in [
        envelope.set,
        envelope.from,
        envelope.to,
        envelope.from_boot,
        envelope.to_boot,
        envelope.term,
        envelope.last,
        envelope.durable,
        envelope.durable_commit,
    ] {
        to.extend_from_slice(&number.to_le_bytes());
    }
    if let Some(message) = message {
        encode_message(message, &mut to);
    }
    let crc = crc32c::crc32c(&to);
    to.extend_from_slice(&crc.to_le_bytes());
    to
}

fn encode_message(message: &Message, to: &mut Vec<u8>) {
    for number in [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.hint,
    ] {
        to.extend_from_slice(&number.to_le_bytes());
    }
    to.extend_from_slice(&message.context);
    for entry in &message.entries {
        to.extend_from_slice(&entry.term.to_le_bytes());
        match &entry.payload {
            Payload::Blank => to.push(TAG_BLANK),
            Payload::Frame(frame) => {
                to.push(TAG_FRAME);
                frame.encode(to);
            }
            Payload::Membership(changes) => {
                to.push(TAG_MEMBERSHIP);
                entry::encode_changes(changes, to);
            }
            Payload::Config(config) => {
                to.push(TAG_CONFIG);
                to.extend_from_slice(&(config.len() as u32).to_le_bytes());
                to.extend_from_slice(config);
            }
        }
    }
}

fn term(from: &mut Reader<'_>) -> Result<u64, Malformed> {
    from.long().and_then(|term| if term <= TERM_MAX { Ok(term) } else { Err(Malformed) })
}

fn number(from: &mut Reader<'_>) -> Result<u64, Malformed> {
    from.long().and_then(|number| if number < NUMBER_MAX { Ok(number) } else { Err(Malformed) })
}

/// The envelope in these bytes.
pub fn decode(bytes: &[u8]) -> Result<Envelope, Malformed> {
    let (body, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(Malformed)?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(Malformed);
    }
    let mut from = Reader(body);
    let (version, kind, flags) = (from.byte()?, from.byte()?, from.byte()?);
    let (context, entries, zero) = (from.byte()?, from.short()?, from.short()?);
    if version != VERSION || zero != 0 || flags > (FLAG_LOST_POWER | FLAG_REJECT) {
        return Err(Malformed);
    }
    let mut envelope = Envelope {
        set: from.long()?,
        from: number(&mut from)?,
        to: number(&mut from)?,
        from_boot: number(&mut from)?,
        to_boot: number(&mut from)?,
        term: term(&mut from)?,
        last: number(&mut from)?,
        durable: number(&mut from)?,
        durable_commit: number(&mut from)?,
        lost_power: flags & FLAG_LOST_POWER != 0,
        message: None,
    };
    if kind == 0 {
        let is_empty =
            from.0.is_empty() && context == 0 && entries == 0 && flags & FLAG_REJECT == 0;
        return if is_empty { Ok(envelope) } else { Err(Malformed) };
    }
    let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind).ok_or(Malformed)?;
    let reject = flags & FLAG_REJECT != 0;
    let message = decode_message(&mut from, kind, reject, context.into(), entries.into())?;
    if !from.0.is_empty() {
        return Err(Malformed);
    }
    envelope.message = Some(message);
    Ok(envelope)
}

fn decode_message(
    from: &mut Reader<'_>,
    kind: Kind,
    reject: bool,
    context: usize,
    entries: usize,
) -> Result<Message, Malformed> {
    if context > CONTEXT_BYTES_MAX || entries > ENTRIES_MAX {
        return Err(Malformed);
    }
    if (entries > 0 && kind != Kind::Append) || (reject && !kind.is_answer()) {
        return Err(Malformed);
    }
    let mut message = Message {
        kind,
        term: term(from)?,
        log_term: term(from)?,
        index: number(from)?,
        commit: number(from)?,
        commit_term: number(from)?,
        reject,
        hint: number(from)?,
        context: from.take(context)?.to_vec(),
        // An entry has 9 bytes at least.
        entries: Vec::with_capacity(entries.min(from.0.len() / 9)),
    };
    let mut before = message.log_term;
    for index in (1..=entries as u64).map(|ordinal| message.index + ordinal) {
        let term = number(from)?;
        if term == 0 || term < before || term > message.term {
            return Err(Malformed);
        }
        before = term;
        message.entries.push(Entry { index, term, payload: decode_payload(from)? });
    }
    Ok(message)
}

fn decode_payload(from: &mut Reader<'_>) -> Result<Payload, Malformed> {
    match from.byte()? {
        TAG_BLANK => Ok(Payload::Blank),
        TAG_FRAME => Frame::decode(from.take(Frame::BYTES)?).map(Payload::Frame).ok_or(Malformed),
        TAG_MEMBERSHIP => {
            let count = usize::from(*from.0.first().ok_or(Malformed)?);
            let bytes = from.take(1 + 9 * count)?;
            entry::decode_changes(bytes).map(Payload::Membership).ok_or(Malformed)
        }
        TAG_CONFIG => {
            let length = from.int()?;
            if length as usize > CONFIG_BYTES_MAX {
                return Err(Malformed);
            }
            Ok(Payload::Config(from.take(length as usize)?.to_vec()))
        }
        _ => Err(Malformed),
    }
}
