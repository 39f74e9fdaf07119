//! Our messages as raft-rs', and back.

use crate::codec::{Kind, Message};
use crate::store;
use raft::eraftpb::{self, MessageType};

const KINDS: [(Kind, MessageType); 9] = [
    (Kind::Append, MessageType::MsgAppend),
    (Kind::Appended, MessageType::MsgAppendResponse),
    (Kind::Vote, MessageType::MsgRequestVote),
    (Kind::Voted, MessageType::MsgRequestVoteResponse),
    (Kind::PreVote, MessageType::MsgRequestPreVote),
    (Kind::PreVoted, MessageType::MsgRequestPreVoteResponse),
    (Kind::Heartbeat, MessageType::MsgHeartbeat),
    (Kind::HeartbeatSeen, MessageType::MsgHeartbeatResponse),
    (Kind::TakeOver, MessageType::MsgTimeoutNow),
];

/// raft-rs' form of a message.
pub(crate) fn to_raft(from: u64, to: u64, message: Message) -> eraftpb::Message {
    let mut of = eraftpb::Message {
        from,
        to,
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        commit: message.commit,
        commit_term: message.commit_term,
        reject: message.reject,
        reject_hint: message.hint,
        context: message.context.into(),
        ..Default::default()
    };
    if let Some((_, kind)) = KINDS.iter().find(|(kind, _)| *kind == message.kind) {
        of.set_msg_type(*kind);
    }
    let entries: Vec<eraftpb::Entry> = message.entries.iter().map(store::to_raft).collect();
    of.set_entries(entries.into());
    of
}

/// Our form of a message of raft-rs, and the receiver. `None` for what no member sends: proposals and reads that a
/// follower would forward, and snapshots.
pub(crate) fn from_raft(message: eraftpb::Message) -> Option<(Message, u64)> {
    let (kind, _) = KINDS.into_iter().find(|(_, kind)| *kind == message.get_msg_type())?;
    let ours = Message {
        kind,
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        commit: message.commit,
        commit_term: message.commit_term,
        reject: message.reject,
        hint: message.reject_hint,
        context: message.context.to_vec(),
        entries: message.entries.iter().filter_map(store::from_raft).collect(),
    };
    Some((ours, message.to))
}
