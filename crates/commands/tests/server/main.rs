//! Commands against a whole server in memory.

mod aggregate;
mod common;
mod definitions;
mod expiry;
mod express;
mod express_writes;
mod fail_points;
mod locks;
mod malformed;
mod queries;
mod status;
