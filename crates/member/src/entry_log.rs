//! The engine's log as consensus sees it: an entry is a frame.
//!
//! A frame's data says what its entry is: blank, units, a change of the membership, a configuration; when it was
//! written by the leader's clock; and, behind the entry's content and its length, the notes on its units and their length
//! ([`crate::unit_notes`]), and which statements of numbered writes its units have executed ([`Statements`]). Any
//! entry's frame may have units.
//!
//! - A leader's frame of units is closed first ([`EngineLog::close`]) and proposed then; consensus appends what is there.
//! - Another member's entries come with the bodies of their frames ([`EngineLog::offer`]), which are in memory until
//!   consensus appends the entries or does not.
//! - Term, vote and membership are in the [`StateFile`]. [`EngineLog::store_state`] makes them durable.
//!
//! An append cannot fail in consensus' eyes. What fails is kept ([`EngineLog::failure`]); the driver looks before it
//! sends anything.

use crate::statements::Statements;
use crate::stored::{StateFile, Stored};
use kauri_base::Ticket;
use kauri_replication::{Change, Entry, Frame, HardState, Log, Payload};
use kauri_storage::{
    CommitTicket, Durability, Frame as EngineFrame, FrameRecord, LogPosition, ReplicatedLog,
    StorageEngine, StorageError, Truncated,
};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Entries in memory.
const REMEMBERED_MAX: usize = 16 << 10;

/// Entries that are not in the state file, at most.
const UNSEEN_MAX: u64 = 50_000;

/// What a frame's data says of its entry: nothing but a time.
pub const DATA_BLANK: u8 = 0;
/// Its units.
pub const DATA_UNITS: u8 = 1;
/// A change of the membership.
pub const DATA_MEMBERSHIP: u8 = 2;
/// A configuration.
pub const DATA_CONFIG: u8 = 3;

/// A frame with its units.
pub type Body = (EngineFrame, Vec<FrameRecord>);

/// What is known of an entry.
#[derive(Clone, Debug)]
pub struct Known {
    /// The entry.
    pub entry: Entry,
    /// Its own commit sequence.
    pub seq: u64,
    /// The time of its last commit.
    pub time: u64,
    /// When the leader wrote it, in milliseconds since 1970.
    pub wall_ms: i64,
    /// Whether its units have executed statements of numbered writes.
    pub has_statements: bool,
}

/// Why the log stands still.
#[derive(Clone, Debug)]
pub enum Failure {
    /// What was applied is cut off at the next start.
    Restart,
    /// The engine has failed.
    Engine(StorageError),
    /// The state file cannot be written.
    State(kauri_base::Error),
}

/// A write that may not be durable.
struct Write {
    number: u64,
    /// Of an entry: its index, and what to wait for.
    entry: Option<(u64, Option<Ticket>)>,
}

/// See the module's head.
pub struct EngineLog {
    engine: Arc<dyn StorageEngine>,
    file: StateFile,
    stored: Stored,
    statements: Arc<Statements>,
    /// The state is not in the file as it is.
    is_dirty: bool,
    seen_in_file: u64,
    /// The last entries.
    known: VecDeque<Known>,
    /// Bodies of entries that consensus may append, by index.
    offered: BTreeMap<u64, Body>,
    /// Closed frames that consensus has not appended yet. To consensus they are not there.
    closed: BTreeMap<u64, CommitTicket>,
    last: u64,
    pending: VecDeque<Write>,
    writes: u64,
    durable_writes: u64,
    durable_last: u64,
    /// The time of the next frame that is closed here, and the clock.
    next_time: u64,
    wall_ms: i64,
    failure: Option<Failure>,
}

fn replicated(engine: &dyn StorageEngine) -> Result<&dyn ReplicatedLog, StorageError> {
    engine.replicated_log()
}

impl EngineLog {
    /// The log of a member that has a state. Everything in it is durable.
    pub fn open(
        engine: Arc<dyn StorageEngine>,
        file: StateFile,
        stored: Stored,
        statements: Arc<Statements>,
    ) -> Result<EngineLog, StorageError> {
        engine.sync()?;
        let last = replicated(&*engine)?.frames().last;
        let mut log = EngineLog {
            engine,
            file,
            stored,
            statements,
            is_dirty: false,
            seen_in_file: 0,
            known: VecDeque::new(),
            offered: BTreeMap::new(),
            closed: BTreeMap::new(),
            last: last.index,
            pending: VecDeque::new(),
            writes: 0,
            durable_writes: 0,
            durable_last: last.index,
            next_time: 1,
            wall_ms: 0,
            failure: None,
        };
        if let Some(last) = log.known(last.index) {
            log.next_time = last.time + 1;
        }
        Ok(log)
    }

    fn frames(&self) -> Option<&dyn ReplicatedLog> {
        replicated(&*self.engine).ok()
    }

    /// The state file's contents.
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Another configuration is in force. Durable after [`EngineLog::store_state`].
    pub fn set_config(&mut self, config: kauri_bson::DocBuf) {
        self.stored.config = config;
        self.is_dirty = true;
    }

    /// Configurations and changes of the membership up to this entry are in the state. The file tells so when it is
    /// written next, which is now and then: a start reads the entries behind it.
    pub fn note_seen(&mut self, index: u64) {
        self.stored.seen = self.stored.seen.max(index);
        self.is_dirty |= self.stored.seen > self.seen_in_file + UNSEEN_MAX;
    }

    /// These members are still to leave, at these addresses.
    pub fn set_leaving(&mut self, leaving: BTreeMap<u64, String>) {
        self.is_dirty |= leaving != self.stored.leaving;
        self.stored.leaving = leaving;
    }

    /// The forced configuration has been told.
    pub fn note_told(&mut self) {
        self.is_dirty |= std::mem::take(&mut self.stored.is_forced);
    }

    /// A member from before a forced reconfiguration is in the log's memberships.
    pub fn note_known_again(&mut self, member: u64) {
        self.is_dirty |= self.stored.forgotten.remove(&member);
    }

    /// The file is written by the next [`EngineLog::store_state`], even if it has not changed.
    pub fn want_state(&mut self) {
        self.is_dirty = true;
    }

    /// Why the log stands still.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// The clock: frames that are closed from now on are not before this.
    pub fn set_clock(&mut self, unix_ms: i64) {
        self.wall_ms = unix_ms;
        let now = u64::from((unix_ms / 1000).max(0) as u32) << 32 | 1;
        self.next_time = self.next_time.max(now);
    }

    /// The time that the next unit of this member gets, as a leader.
    pub fn next_time(&self) -> u64 {
        self.next_time
    }

    /// The next frame that is closed here is not before this time.
    pub fn advance_time(&mut self, time: u64) {
        self.next_time = self.next_time.max(time);
    }

    /// Bodies that came with a message's entries. Those that consensus does not append are forgotten with
    /// [`EngineLog::forget_offers`].
    pub fn offer(&mut self, bodies: Vec<Body>) {
        for body in bodies {
            self.offered.insert(body.0.position.index, body);
        }
    }

    /// See [`EngineLog::offer`].
    pub fn forget_offers(&mut self) {
        self.offered.clear();
    }

    /// Closes a frame of what was committed since the last one, for consensus to propose. `None` if that is nothing.
    pub fn close(&mut self, term: u64) -> Option<Frame> {
        let visible = self.engine.newest().map_or(0, |newest| newest.seq.0);
        let last = self.last();
        if self.known(last).is_none_or(|known| known.seq >= visible) {
            return None;
        }
        let position = LogPosition { term, index: last + 1 };
        let (frame, ticket) = self.close_frame(position, DATA_UNITS, &[])?;
        self.closed.insert(position.index, ticket);
        self.remember(&frame);
        match payload_of(&frame) {
            Some(Payload::Frame(of)) => Some(of),
            _ => None,
        }
    }

    fn close_frame(
        &mut self,
        position: LogPosition,
        tag: u8,
        content: &[u8],
    ) -> Option<(EngineFrame, CommitTicket)> {
        let (time, log) = (self.next_time, self.frames()?);
        let closed = self.statements.close(|statements, notes| {
            let data = data_of_frame(tag, self.wall_ms, [content, notes, statements]);
            log.close_frame(position, time, &data)
        });
        self.result(closed)
    }

    fn result<T>(&mut self, result: Result<T, StorageError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failure.get_or_insert(Failure::Engine(error));
                None
            }
        }
    }

    fn remember(&mut self, frame: &EngineFrame) {
        let Some(known) = known_of(frame) else { return };
        self.next_time = known.time + 1;
        self.known.push_back(known);
        if self.known.len() > REMEMBERED_MAX {
            self.known.pop_front();
        }
    }

    /// The last entry, also one that is closed and not proposed yet.
    pub fn last_known(&self) -> Option<&Known> {
        self.known.back()
    }

    /// What is known of an entry. Reads older ones from the log.
    pub fn known(&self, index: u64) -> Option<Known> {
        let first = self.known.front().map_or(u64::MAX, |first| first.entry.index);
        if index >= first {
            return self.known.get((index - first) as usize).cloned();
        }
        self.frames()?.read_frame_alone(index).ok().flatten().as_ref().and_then(known_of)
    }

    /// A frame with its units, as the log has it.
    pub fn body(&self, index: u64) -> Option<Body> {
        self.frames()?.read_frame(index).ok().flatten()
    }

    fn append_entry(&mut self, entry: &Entry) -> Option<()> {
        let last = self.frames()?.frames().last;
        if entry.index <= last.index {
            let known = self.known(entry.index).map(|known| known.entry);
            if known.as_ref() == Some(entry) {
                self.last = self.last.max(entry.index);
                let ticket = self.closed.remove(&entry.index);
                self.written(entry.index, ticket);
                return Some(());
            }
            if known.is_some_and(|known| known.term == entry.term) {
                let why = format!("entry {} of term {} is another one", entry.index, entry.term);
                self.failure = Some(Failure::Engine(StorageError::OutOfOrder));
                kauri_base::log::warning(
                    "REPL",
                    6_400_009,
                    "member",
                    "The log has another entry in this place",
                    kauri_base::log::Attr::new().str("error", why),
                );
                return None;
            }
            self.frames()?.follow();
            self.cut_off(entry.index - 1)?;
        }
        let position = LogPosition { term: entry.term, index: entry.index };
        let offered = self.offered.remove(&entry.index);
        let (frame, ticket) = match offered.filter(|(frame, _)| frame.position == position) {
            Some((frame, records)) => {
                // Another member leads: this one may not have noticed yet.
                self.frames()?.follow();
                let mut appended = self.frames()?.append_frame(&frame, &records);
                if appended.as_ref().err() == Some(&StorageError::OutOfOrder) {
                    // There are units of this member without a frame, from when it led.
                    self.cut_off(entry.index - 1)?;
                    appended = self.frames()?.append_frame(&frame, &records);
                }
                (frame, self.result(appended)?)
            }
            None => {
                let (tag, content) = data_of(&entry.payload)?;
                self.close_frame(position, tag, &content)?
            }
        };
        self.last = entry.index;
        self.remember(&frame);
        self.written(entry.index, Some(ticket));
        Some(())
    }

    fn written(&mut self, index: u64, ticket: Option<CommitTicket>) {
        self.writes += 1;
        let durable = ticket.and_then(|ticket| ticket.ticket(Durability::Durable).cloned());
        self.pending.push_back(Write { number: self.writes, entry: Some((index, durable)) });
    }

    fn cut_off(&mut self, last: u64) -> Option<()> {
        self.known.retain(|known| known.entry.index <= last);
        self.closed.retain(|&index, _| index <= last);
        self.last = last;
        self.durable_last = self.durable_last.min(last);
        // What was to become durable is replaced; its number counts all the same.
        for write in &mut self.pending {
            if write.entry.as_ref().is_some_and(|(index, _)| *index > last) {
                write.entry = None;
            }
        }
        let cut = self.frames()?.truncate_frames(last);
        match self.result(cut)? {
            Truncated::Done => Some(()),
            Truncated::AtNextStart => {
                self.failure = Some(Failure::Restart);
                None
            }
        }
    }

    /// Writes the state to its file if it has changed.
    pub fn store_state(&mut self) {
        if !std::mem::take(&mut self.is_dirty) {
            return;
        }
        self.seen_in_file = self.stored.seen;
        if let Err(error) = self.file.write(&self.stored) {
            self.failure.get_or_insert(Failure::State(error));
        }
    }

    /// Notes what has become durable. The waker is called when there is more.
    pub fn poll_durable(&mut self, cx: &mut Context<'_>) {
        while let Some(write) = self.pending.front_mut() {
            match &mut write.entry {
                Some((index, ticket)) => {
                    let index = *index;
                    if let Some(ticket) = ticket {
                        match Pin::new(ticket).poll(cx) {
                            Poll::Pending => return,
                            Poll::Ready(Ok(())) => {}
                            Poll::Ready(Err(error)) => {
                                let error = StorageError::Io(error.to_string());
                                self.failure.get_or_insert(Failure::Engine(error));
                                return;
                            }
                        }
                    }
                    self.durable_last = self.durable_last.max(index);
                }
                None if self.is_dirty => return,
                None => {}
            }
            self.durable_writes = write.number;
            self.pending.pop_front();
        }
    }
}

impl Log for EngineLog {
    fn first(&self) -> u64 {
        self.frames().map_or(1, |log| log.frames().purged.index + 1)
    }

    fn last(&self) -> u64 {
        self.last
    }

    fn term(&self, index: u64) -> Option<u64> {
        if index == 0 {
            return Some(0);
        }
        self.frames()?.term_of(index)
    }

    fn entry(&self, index: u64) -> Option<Entry> {
        self.known(index).map(|known| known.entry)
    }

    fn append(&mut self, entries: &[Entry]) {
        for entry in entries {
            if self.failure.is_some() {
                return;
            }
            if self.append_entry(entry).is_none() && self.failure.is_none() {
                let why = format!("entry {} has come without its units", entry.index);
                self.failure = Some(Failure::Engine(StorageError::Io(why)));
            }
        }
    }

    fn hard_state(&self) -> &HardState {
        &self.stored.state
    }

    fn set_hard_state(&mut self, state: HardState) {
        let before = &self.stored.state;
        // The commit point alone need not be durable.
        let is_same = HardState { commit: before.commit, ..state.clone() } == *before;
        self.stored.state = state;
        if !is_same {
            self.is_dirty = true;
            self.writes += 1;
            self.pending.push_back(Write { number: self.writes, entry: None });
        }
    }

    fn writes(&self) -> u64 {
        self.writes
    }

    fn durable_writes(&self) -> u64 {
        self.durable_writes
    }

    fn durable_last(&self) -> u64 {
        self.durable_last
    }

    fn sync(&mut self) {
        let synced = self.engine.sync();
        if self.result(synced).is_none() {
            return;
        }
        self.store_state();
        self.poll_durable(&mut Context::from_waker(std::task::Waker::noop()));
    }
}

fn data_of(payload: &Payload) -> Option<(u8, Vec<u8>)> {
    match payload {
        Payload::Blank => Some((DATA_BLANK, Vec::new())),
        Payload::Membership(changes) => {
            let mut content = Vec::with_capacity(9 * changes.len());
            for change in changes {
                let (tag, id) = match *change {
                    Change::Voter(id) => (1, id),
                    Change::Learner(id) => (2, id),
                    Change::Removed(id) => (3, id),
                };
                content.push(tag);
                content.extend_from_slice(&id.to_le_bytes());
            }
            Some((DATA_MEMBERSHIP, content))
        }
        Payload::Config(config) => Some((DATA_CONFIG, config.clone())),
        // Only with its units.
        Payload::Frame(_) => None,
    }
}

fn payload_of(frame: &EngineFrame) -> Option<Payload> {
    let &tag = frame.data.first()?;
    let (content, ..) = parts_of(frame)?;
    match tag {
        DATA_BLANK if content.is_empty() => Some(Payload::Blank),
        DATA_UNITS if content.is_empty() && frame.seq > frame.first => {
            Some(Payload::Frame(Frame {
                first: frame.first.0,
                units: u32::try_from(frame.seq.0 - frame.first.0).ok()?,
                bytes: u32::try_from(frame.bytes + frame.data.len() as u64).unwrap_or(u32::MAX),
            }))
        }
        DATA_MEMBERSHIP => {
            let changes = content.chunks(9).map(|bytes| {
                let (&tag, id) = bytes.split_first()?;
                let id = u64::from_le_bytes(id.try_into().ok()?);
                match tag {
                    1 => Some(Change::Voter(id)),
                    2 => Some(Change::Learner(id)),
                    3 => Some(Change::Removed(id)),
                    _ => None,
                }
            });
            changes.collect::<Option<Vec<_>>>().map(Payload::Membership)
        }
        DATA_CONFIG => Some(Payload::Config(content.to_vec())),
        _ => None,
    }
}

/// The data of a frame: what its entry is, when it was written, and its content, notes and statements.
pub fn data_of_frame(tag: u8, wall_ms: i64, [content, notes, statements]: [&[u8]; 3]) -> Vec<u8> {
    let mut data = vec![tag];
    data.extend_from_slice(&wall_ms.to_le_bytes());
    for part in [content, notes] {
        data.extend_from_slice(&(part.len() as u32).to_le_bytes());
        data.extend_from_slice(part);
    }
    data.extend_from_slice(statements);
    data
}

/// A frame's content, notes and statements.
fn parts_of(frame: &EngineFrame) -> Option<(&[u8], &[u8], &[u8])> {
    fn part(from: &[u8]) -> Option<(&[u8], &[u8])> {
        let (len, rest) = from.split_first_chunk()?;
        rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
    }
    let (content, rest) = part(frame.data.get(9..)?)?;
    let (notes, statements) = part(rest)?;
    Some((content, notes, statements))
}

/// What a frame notes of its units.
pub fn notes_of(frame: &EngineFrame) -> &[u8] {
    parts_of(frame).map_or(&[], |(_, notes, _)| notes)
}

/// What a frame says of the statements that its units have executed.
pub fn statements_of(frame: &EngineFrame) -> &[u8] {
    parts_of(frame).map_or(&[], |(_, _, statements)| statements)
}

/// What a frame says. `None` if no member has made it.
pub fn known_of(frame: &EngineFrame) -> Option<Known> {
    let wall_ms = frame.data.get(1..9)?.try_into().map(i64::from_le_bytes).ok()?;
    let LogPosition { term, index } = frame.position;
    Some(Known {
        entry: Entry { index, term, payload: payload_of(frame)? },
        seq: frame.seq.0,
        time: frame.time + (frame.seq.0 - frame.first.0),
        wall_ms,
        has_statements: !statements_of(frame).is_empty(),
    })
}
