//! What the transports over byte streams share: the session, and the thread that accepts.

mod crossing;
mod inbox;
pub(crate) mod listener;
mod preamble;
pub(crate) mod session;
pub(crate) mod socket;
