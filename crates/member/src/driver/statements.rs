//! Which statements of numbered writes were executed, from the frames of the log.

use super::*;
use crate::statements::table::WINDOW_MS;

impl Driver {
    pub(super) fn now_ms(&self) -> u64 {
        self.parts.clock.monotonic().as_millis() as u64
    }

    /// A frame was applied.
    pub(super) fn learn_statements(&self, index: u64) -> Result<(), StorageError> {
        let known = self.consensus.as_ref().and_then(|consensus| consensus.log().known(index));
        if known.is_some_and(|known| !known.has_statements) {
            return Ok(());
        }
        let log = self.parts.engine.replicated_log()?;
        if let Some(frame) = log.read_frame_alone(index)? {
            let statements = entry_log::statements_of(&frame);
            self.parts.member.statements().learn(statements, self.now_ms(), 0);
        }
        Ok(())
    }

    /// Reads the applied frames of the window.
    pub(super) fn read_statements(&self, log: &EngineLog) -> Result<()> {
        let (now_ms, wall_ms) = (self.now_ms(), self.parts.clock.unix_ms());
        let age_since = |when_ms: i64| wall_ms.saturating_sub(when_ms).max(0) as u64;
        let age_ms = |of: &Known| age_since(of.wall_ms);
        checkpoint::read(&*self.parts.directory, |when_ms, unit| {
            self.parts.member.statements().learn(unit, now_ms, age_since(when_ms));
        })?;
        let frames = self.log()?;
        let (mut first, end) = (frames.frames().purged.index + 1, frames.applied().index + 1);
        let mut young = end;
        while first < young {
            let middle = first + (young - first) / 2;
            match log.known(middle).is_some_and(|known| age_ms(&known) <= WINDOW_MS) {
                true => young = middle,
                false => first = middle + 1,
            }
        }
        for index in first..end {
            if let Some(frame) = frames.read_frame_alone(index)?
                && let Some(known) = entry_log::known_of(&frame)
            {
                let statements = entry_log::statements_of(&frame);
                self.parts.member.statements().learn(statements, now_ms, age_ms(&known));
            }
        }
        Ok(())
    }
}
