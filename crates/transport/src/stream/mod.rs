//! What the transports over byte streams share: the session, and the thread that accepts.

mod http;
pub(crate) mod listener;
pub(crate) mod session;
mod socket;
