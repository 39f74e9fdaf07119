//! Which of the committed entries readers may see.
//!
//! A delayed member's log goes on as any other's, and so do its acknowledgements to the leader. The engine is told that
//! an entry is committed once that is as old as the configuration says, by the clock of the member that led. So a start
//! applies no more than that either.

use super::*;

impl Driver {
    /// How old an entry has to be.
    fn delay_ms(&self) -> i64 {
        let config = self.config.as_ref();
        let me =
            config.and_then(|config| config.members.iter().find(|of| of.number() == self.number));
        me.map_or(0, |me| me.delay_secs.saturating_mul(1000))
    }

    /// Whether this member is a delayed one.
    pub(super) fn is_delayed(&self) -> bool {
        self.delay_ms() > 0
    }

    /// Lets the engine apply what is committed and old enough.
    pub(super) fn release(&self) {
        let (Some(consensus), Ok(log)) = (&self.consensus, self.log()) else { return };
        let delay_ms = self.delay_ms();
        if delay_ms == 0 {
            return log.commit_frames(self.kept);
        }
        let newest_ms = self.parts.clock.unix_ms().saturating_sub(delay_ms);
        let before = log.committed();
        let is_old = |index: u64| {
            consensus.log().known(index).is_some_and(|known| known.wall_ms <= newest_ms)
        };
        let most = self.kept.min(before + APPLIED_AT_ONCE as u64);
        let old = (before + 1..=most).take_while(|index| is_old(*index)).last();
        old.into_iter().for_each(|index| log.commit_frames(index));
    }

    /// The last entry of which this member has everything: that readers see, or that a delayed one has in its log.
    pub(super) fn has_entry(&self) -> Option<Known> {
        match &self.consensus {
            Some(consensus) if self.is_delayed() && self.given > 0 => {
                consensus.log().known(self.given)
            }
            _ => self.applied.clone(),
        }
    }
}
