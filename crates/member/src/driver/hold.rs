//! A member whose log stands still for a while: its files are locked for a copy (`fsync` with `lock`), or a test wants
//! it to lag.
//!
//! It follows, votes and answers as before. Entries of the leader are dropped, which repeats them; a leader closes no
//! frames. A member does not stand for election meanwhile, and the others hand over to another one.

use super::*;

impl Driver {
    /// The log stands still until the server's files are not locked any more. Whatever workers have committed has its
    /// frame.
    pub(super) fn hold(&mut self) -> Result<()> {
        self.pump();
        self.close_frames_now();
        self.pump();
        self.is_held = true;
        self.wants_to_lead = false;
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

    /// Whether this message is dropped: it has entries, or asks for an election.
    pub(super) fn drops(&mut self, envelope: &kauri_replication::codec::Envelope) -> bool {
        let Some(message) = &envelope.message else { return false };
        let has_entries = !message.entries.is_empty();
        let elects = message.kind == Kind::TakeOver;
        (has_entries || elects) && self.stands_still()
            || has_entries && self.parts.host.stops_producer()
    }
}
