//! What requests and replies have on a member of a replica set, and not on a server alone: times, waits for other
//! members, defaults of the set, read preferences.

pub mod cluster_time;
pub mod defaults;
pub mod read_preference;
pub mod reads;
pub mod reply;
pub mod retries;
pub mod write_wait;
