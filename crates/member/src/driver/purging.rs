//! Gives space of old frames back.
//!
//! Each member keeps the newest frames of its log, of so many bytes as `--oplogSize` says, for members that lack them. A
//! leader keeps more for members that are behind, up to twice as many; what a majority lacks; and what the copies lack
//! that it gives.
//!
//! Frames tell which statements of numbered writes were executed. Before some are purged, a checkpoint with all that is
//! known is written. It may have statements of units that are not committed in the set, and could be cut off: so it is
//! written once they are. It tells of frames up to the last one then, and no later one is purged with it.

use super::*;
use std::sync::{Mutex, PoisonError};

/// Between two looks.
const LOOK_NS: u64 = 1_000_000_000;
/// Frames are purged when there is more of them than is kept, by this part of it.
const STEP: u64 = 8;
/// Frames that are kept at most: each takes memory.
const FRAMES_MAX: u64 = 4_000_000;

/// What has to be in a file before frames are purged.
pub(super) struct Checkpoint {
    /// Frames up to this one may be purged then: what they tell is in it.
    upto: u64,
    step: Step,
}

enum Step {
    /// Of everything up to this commit, which may be cut off.
    Waiting(Vec<u8>, u64),
    /// It is being written aside.
    Writing(Arc<Mutex<Option<Result<()>>>>),
}

impl Checkpoint {
    /// Whether it waits until all of it is committed in the set.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.step, Step::Waiting(..))
    }
}

impl Driver {
    /// At regular times: purges what may be.
    pub(super) fn purge(&mut self, now_ns: u64) {
        if now_ns < self.purge_ns || self.consensus.is_none() || self.stands_still() {
            return;
        }
        self.purge_ns = now_ns + LOOK_NS;
        self.look_after_copies(now_ns);
        self.look_at_first();
        match self.checkpoint.take() {
            Some(checkpoint) => self.go_on_with(checkpoint),
            None => self.begin_checkpoint(),
        }
    }

    fn begin_checkpoint(&mut self) {
        let more = self.parts.log_bytes / STEP;
        let (Some(index), Ok(log)) = (self.purgeable(more), self.log()) else { return };
        if index <= log.frames().purged.index {
            return;
        }
        let upto = log.applied().index;
        let Parts { engine, clock, member, .. } = &self.parts;
        let times = (self.now_ms(), clock.unix_ms());
        let newest = || engine.newest().map_or(0, |newest| newest.seq.0);
        let (contents, seq) = member.statements().snapshot(times, newest);
        self.checkpoint = Some(Checkpoint { upto, step: Step::Waiting(contents, seq) });
    }

    fn go_on_with(&mut self, Checkpoint { upto, step }: Checkpoint) {
        let Some(consensus) = &self.consensus else { return };
        match step {
            Step::Waiting(contents, seq) => {
                let committed = consensus.log().known(consensus.durable_commit());
                let step = match committed.is_some_and(|known| known.seq >= seq) {
                    true => self.write_aside(contents),
                    false => Step::Waiting(contents, seq),
                };
                self.checkpoint = Some(Checkpoint { upto, step });
            }
            Step::Writing(written) => {
                let result = written.lock().unwrap_or_else(PoisonError::into_inner).take();
                match result {
                    Some(result) => self.end_checkpoint(upto, result),
                    None => {
                        self.checkpoint = Some(Checkpoint { upto, step: Step::Writing(written) });
                    }
                }
            }
        }
    }

    fn write_aside(&self, contents: Vec<u8>) -> Step {
        let (directory, written) = (self.parts.directory.clone(), Arc::new(Mutex::new(None)));
        let told = written.clone();
        self.parts.host.aside(Box::new(move || {
            let result = checkpoint::write(&*directory, contents);
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }));
        Step::Writing(written)
    }

    /// The file is there: frames go.
    fn end_checkpoint(&mut self, upto: u64, written: Result<()>) {
        let Some(index) = self.purgeable(0) else { return };
        let purged = written.and_then(|()| {
            if let Some(consensus) = &mut self.consensus {
                let log = consensus.log_for_sync();
                log.want_state();
                log.store_state();
                if log.failure().is_some() {
                    // The driver looks at it.
                    return Ok(());
                }
            }
            Ok(self.log()?.purge_frames(index.min(upto))?)
        });
        if let Err(error) = purged {
            let attr = Attr::new().str("error", error.message());
            let message = "Old entries of the log cannot be removed";
            log::warning("REPL", 6_400_014, "member", message, attr);
        }
    }

    fn look_at_first(&mut self) {
        let Some(consensus) = &self.consensus else { return };
        let first = kauri_replication::Log::first(consensus.log());
        if first != self.first.0
            && let Some(known) = consensus.log().known(first)
        {
            self.first = (first, place_of(&known));
        }
    }

    /// The last frame that may be purged, if so many bytes more are kept than have to be.
    fn purgeable(&self, more: u64) -> Option<u64> {
        let (consensus, log) = (self.consensus.as_ref()?, self.log().ok()?);
        let kept = self.parts.log_bytes;
        let last = log.frames().last.index;
        let mut index = log.frames_before(kept + more).max(last.saturating_sub(FRAMES_MAX));
        if self.role == Role::Leader {
            let most = log.frames_before(2 * kept).max(last.saturating_sub(FRAMES_MAX));
            let up = self.peers.iter().filter(|(_, of)| of.heard_ns > 0 && !self.is_down(of));
            let reached = up.filter_map(|(number, _)| Some(consensus.reached_by(*number)?.0));
            index = index.min(reached.min().unwrap_or(u64::MAX).max(most));
            // What a majority lacks it could not get from anybody, and the set would stand still. Before a change of the
            // membership another majority has committed it.
            index = index.min(consensus.reached_by_quorum());
        }
        let committed = self.given.min(log.applied().index);
        Some(index.min(committed).min(self.source.keeps().unwrap_or(u64::MAX)))
    }
}
