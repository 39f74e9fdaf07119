//! The set's configuration: the document of `rs.conf()`.
//!
//! - `parse`: reads and writes the document; checks each field by itself.
//! - `check`: what members need of each other, and what a reconfiguration may change.
//!
//! Errors have MongoDB's messages. The commands choose the codes: `replSetInitiate` has one code for everything.

mod check;
mod parse;

pub use check::{WriteMode, default_port};

use kauri_bson::{DocBuf, doc};
use std::collections::BTreeMap;

/// Members at most.
pub const MEMBERS_MAX: usize = 50;
/// Members that vote, at most.
pub const VOTERS_MAX: usize = 7;
/// The greatest version.
pub const VERSION_MAX: i64 = i32::MAX as i64;

/// A set's configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct SetConfig {
    /// The set's name.
    pub name: String,
    /// Ascends with each change.
    pub version: i64,
    /// The term of the primary that made it.
    pub term: i64,
    /// The members, in the order of the document.
    pub members: Vec<MemberConfig>,
    /// `settings`.
    pub settings: Settings,
    /// `writeConcernMajorityJournalDefault`.
    pub majority_is_durable: bool,
}

/// A member in the configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct MemberConfig {
    /// `_id`, 0 to 255.
    pub id: u8,
    /// `host:port`, as members and clients reach it.
    pub host: String,
    /// Keeps the log and votes, has no data.
    pub is_arbiter: bool,
    /// Not told to clients.
    pub is_hidden: bool,
    /// The higher, the rather it leads; 0: never.
    pub priority: f64,
    /// Tags for read preferences and write concerns.
    pub tags: BTreeMap<String, String>,
    /// Seconds that its data is behind.
    pub delay_secs: i64,
    /// 0 or 1.
    pub votes: u8,
}

impl MemberConfig {
    /// A member with data and the defaults of every field.
    pub fn new(id: u8, host: &str) -> MemberConfig {
        MemberConfig {
            id,
            host: host.to_owned(),
            is_arbiter: false,
            is_hidden: false,
            priority: 1.0,
            tags: BTreeMap::new(),
            delay_secs: 0,
            votes: 1,
        }
    }

    /// The member's number in consensus, which has no member 0.
    pub fn number(&self) -> u64 {
        u64::from(self.id) + 1
    }

    /// Whether it votes.
    pub fn is_voter(&self) -> bool {
        self.votes > 0
    }
}

/// `settings`.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Between two signs of life of a primary.
    pub heartbeat_interval_ms: i64,
    /// Until a member that does not answer counts as down.
    pub heartbeat_timeout_secs: i64,
    /// Without a primary until an election.
    pub election_timeout_ms: i64,
    /// Time for a new primary of higher priority to catch up; -1 for no limit.
    pub catch_up_timeout_ms: i64,
    /// See there.
    pub catch_up_takeover_delay_ms: i64,
    /// `chainingAllowed`.
    pub is_chaining_allowed: bool,
    /// Write concerns by name: how many values of each tag.
    pub modes: BTreeMap<String, BTreeMap<String, i32>>,
    /// `getLastErrorDefaults`.
    pub write_concern_defaults: DocBuf,
    /// The set's id.
    pub set_id: [u8; 12],
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            heartbeat_interval_ms: 250,
            heartbeat_timeout_secs: 10,
            election_timeout_ms: 1000,
            catch_up_timeout_ms: -1,
            catch_up_takeover_delay_ms: 30_000,
            is_chaining_allowed: true,
            modes: BTreeMap::new(),
            write_concern_defaults: doc! { "w" => 1, "wtimeout" => 0 },
            set_id: [0; 12],
        }
    }
}

impl SetConfig {
    /// The set of this member alone, as `rs.initiate()` without an argument begins it.
    pub fn alone(name: &str, host: &str, set_id: [u8; 12]) -> SetConfig {
        SetConfig {
            name: name.to_owned(),
            version: 1,
            term: 0,
            members: vec![MemberConfig::new(0, host)],
            settings: Settings { set_id, ..Settings::default() },
            majority_is_durable: true,
        }
    }

    /// Number of members that vote.
    pub fn voters(&self) -> usize {
        self.members.iter().filter(|member| member.is_voter()).count()
    }

    /// Number of members that vote and have data.
    pub fn writable_voters(&self) -> usize {
        self.members.iter().filter(|member| member.is_voter() && !member.is_arbiter).count()
    }

    /// Number of votes that make a majority.
    pub fn majority(&self) -> usize {
        self.voters() / 2 + 1
    }

    /// Whether the member of this number votes, and may be the primary.
    pub fn may_lead(&self, number: u64) -> bool {
        let of = self.members.iter().find(|of| of.number() == number);
        of.is_some_and(|of| of.is_voter() && of.priority > 0.0)
    }

    /// Number of arbiters.
    pub fn arbiters(&self) -> usize {
        self.members.iter().filter(|member| member.is_arbiter).count()
    }

    /// Whether the write concern of a write that names none is `majority`: the members with data make one even if
    /// one of them is missing, or there is no arbiter.
    pub fn default_is_majority(&self) -> bool {
        self.arbiters() == 0 || self.writable_voters() > self.majority()
    }
}
