//! A member whose log stands still for a while: its files are locked for a copy (`fsync` with `lock`), or a test wants
//! it to lag.
//!
//! It follows, votes and answers as before. Entries of the leader are dropped, which repeats them; a leader closes no
//! frames. A member does not stand for election meanwhile.

use super::*;

impl Driver {
    /// The log stands still until the server's files are not locked any more. Whatever workers have committed has its
    /// frame.
    pub(super) fn hold(&mut self) -> Result<()> {
        self.pump();
        self.close_frames();
        self.pump();
        self.is_held = true;
        self.set_frozen();
        Ok(())
    }

    /// Whether the log stands still.
    pub(super) fn stands_still(&mut self) -> bool {
        if self.is_held && !self.parts.host.is_locked() {
            self.is_held = false;
            self.set_frozen();
        }
        self.is_held
    }

    /// Whether this message's entries are dropped.
    pub(super) fn drops(&mut self, envelope: &kauri_replication::codec::Envelope) -> bool {
        let has_entries =
            envelope.message.as_ref().is_some_and(|message| !message.entries.is_empty());
        has_entries && (self.stands_still() || self.parts.host.stops_producer())
    }
}
