//! What a member is at the moment, as `hello` and `replSetGetStatus` tell.

use crate::config::SetConfig;
use kauri_base::{OpTime, Timestamp};
use std::sync::Arc;

/// A member's state, as MongoDB numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(i32)]
#[allow(missing_docs, reason = "the names say it")]
pub enum MemberState {
    /// It has no configuration yet.
    #[default]
    Startup = 0,
    Primary = 1,
    Secondary = 2,
    /// It has data and does not serve it: it catches up, or is in maintenance.
    Recovering = 3,
    /// It copies the data of another member.
    Startup2 = 5,
    /// Nothing has been heard of it.
    Unknown = 6,
    Arbiter = 7,
    /// It does not answer.
    Down = 8,
    /// It cuts off writes that the set has not kept.
    Rollback = 9,
    /// The configuration does not name it any more.
    Removed = 10,
}

impl MemberState {
    /// All states.
    pub const ALL: [MemberState; 10] = [
        MemberState::Startup,
        MemberState::Primary,
        MemberState::Secondary,
        MemberState::Recovering,
        MemberState::Startup2,
        MemberState::Unknown,
        MemberState::Arbiter,
        MemberState::Down,
        MemberState::Rollback,
        MemberState::Removed,
    ];

    /// The state of this number; `Unknown` of any other.
    pub fn from_number(number: u32) -> MemberState {
        let mut all = MemberState::ALL.into_iter();
        all.find(|state| *state as u32 == number).unwrap_or(MemberState::Unknown)
    }

    /// `stateStr`.
    pub fn name(self) -> &'static str {
        match self {
            MemberState::Startup => "STARTUP",
            MemberState::Primary => "PRIMARY",
            MemberState::Secondary => "SECONDARY",
            MemberState::Recovering => "RECOVERING",
            MemberState::Startup2 => "STARTUP2",
            MemberState::Unknown => "UNKNOWN",
            MemberState::Arbiter => "ARBITER",
            MemberState::Down => "(not reachable/healthy)",
            MemberState::Rollback => "ROLLBACK",
            MemberState::Removed => "REMOVED",
        }
    }
}

/// A member's own view of the set. Replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The state of this member.
    pub state: MemberState,
    /// The configuration in force; `None` before `replSetInitiate`.
    pub config: Option<Arc<SetConfig>>,
    /// This member's place in `config.members`.
    pub me: Option<usize>,
    /// The primary's place in `config.members`, if one is known.
    pub primary: Option<usize>,
    /// Raft's term.
    pub term: i64,
    /// Whether writes are accepted. A new primary applies what it has first.
    pub is_writable: bool,
    /// Whether the others do not have entries any more that this member lacks.
    pub is_too_stale: bool,
    /// Whether the member is about to end, and wants no new work.
    pub is_quiescing: bool,
    /// `topologyVersion.counter`: higher with each view that differs in what `hello` tells.
    pub topology: i64,
    /// When it was elected, in milliseconds since 1970, and at which time of the log; of a primary.
    pub elected: Option<(i64, Timestamp)>,
}

/// A place in the log, and when it was written by the clock of the member that led.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Term and time.
    pub optime: OpTime,
    /// Milliseconds since 1970.
    pub wall_ms: i64,
}

/// How far the log and its acknowledgement are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The last write here.
    pub written: Place,
    /// The last write here that is durable.
    pub durable: Place,
    /// The last write that readers see.
    pub applied: Place,
    /// The last write that is durable on a majority, as far as this member knows.
    pub committed: Place,
    /// The first write that the log still has.
    pub first: Place,
}

/// What is known of another member.
#[derive(Clone, Debug, Default)]
pub struct PeerStatus {
    /// Its place in the configuration's members.
    pub member: usize,
    /// Its state; `Down` if it does not answer, `Unknown` if it never has.
    pub state: MemberState,
    /// When it was last heard of, in milliseconds since 1970; 0 for never.
    pub heard_ms: i64,
    /// When a message of it last arrived that answers one of ours; 0 for never.
    pub answered_ms: i64,
    /// Since when it answers, in milliseconds since 1970; 0 while it does not.
    pub up_since_ms: i64,
    /// The round trip, in microseconds.
    pub ping_us: u64,
    /// How far its log is written, and durable.
    pub written: Place,
    /// The same, durable.
    pub durable: Place,
    /// How far its readers see.
    pub applied: Place,
    /// Version and term of its configuration.
    pub config: (i64, i64),
    /// When it was elected, as in [`View`]; of a primary.
    pub elected: Option<(i64, Timestamp)>,
    /// Why it does not answer.
    pub error: String,
}
