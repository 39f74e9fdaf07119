//! What the transports over byte streams share: the session, and the thread that accepts connections.

pub(crate) mod channel;
#[cfg(test)]
mod cipher;
mod crossing;
pub(crate) mod dialed;
mod inbox;
pub(crate) mod listener;
mod preamble;
pub(crate) mod session;
pub(crate) mod socket;
