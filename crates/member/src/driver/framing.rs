//! When a leader closes a frame of what its workers have committed.

use super::{Driver, Log};
use kauri_base::CommitSeq;
use kauri_transport::monotonic_ns;

/// How long a leader gathers commits at most while its last frame is not committed.
const GATHER_NS: u64 = 2_000_000;

impl Driver {
    /// Until when commits wait for the next frame, if they do: that the last one is committed ends it.
    pub(super) fn gathers_until(&self) -> Option<u64> {
        let log = self.consensus.as_ref().filter(|_| self.is_open)?.log();
        let until = self.last_proposal_ns + GATHER_NS;
        (self.kept < Log::last(log) && monotonic_ns() < until).then_some(until)
    }

    /// Proposes what workers have committed, unless it is gathered.
    pub(super) fn close_frames(&mut self) {
        if self.gathers_until().is_none() {
            self.close_frames_now();
        }
    }

    /// Proposes what workers have committed.
    pub(super) fn close_frames_now(&mut self) {
        if self.stands_still() {
            return;
        }
        let Some(consensus) = &mut self.consensus else { return };
        if !self.is_open || !consensus.can_propose() {
            return;
        }
        let term = consensus.term();
        if let Some(frame) = consensus.log_for_sync().close(term) {
            self.last_proposal_ns = monotonic_ns();
            let log = consensus.log();
            if let Some(of) = log.last_known() {
                let seq = CommitSeq(of.seq);
                self.parts.member.set_times(seq, of.time, log.next_time());
            }
            if let Err(error) = consensus.propose(frame) {
                // The frame is in the log, and consensus does not know.
                self.stand_still(&format!("a frame was not proposed: {error}"));
            }
        }
    }
}
