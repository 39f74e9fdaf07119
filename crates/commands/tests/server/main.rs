//! Commands against a whole server in memory, and what they share by itself.

mod aggregate;
mod cold;
mod cold_disk;
mod common;
mod cursor_limits;
mod definitions;
mod densify;
mod dropped;
mod expiry;
mod express;
mod express_writes;
mod fail_points;
mod find_and_modify;
mod granularity;
mod hostile;
mod hostile_requests;
mod locks;
mod malformed;
mod memory;
mod parameters;
mod queries;
mod sessions;
mod spilling;
mod statements;
mod status;
mod whole;
