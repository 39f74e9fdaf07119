//! The set's configuration: the document of `rs.conf()`.

use kauri_bson::DocBuf;
use std::collections::BTreeMap;

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
    /// The member's number in consensus, which has no member 0.
    pub fn number(&self) -> u64 {
        u64::from(self.id) + 1
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
