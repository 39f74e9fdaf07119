//! Decides whether to clean, and which segments: cost-benefit by segment age, as in RAMCloud (FAST'14), but with
//! the square root of the age, because copies are already separated by age.

use crate::core::Core;
use crate::format::Stream;
use crate::format::segment::Position;
use crate::segments::State;

/// Segments in use that are not worth compacting: open ones and the like.
const SLACK_SEGMENTS: u64 = 4;
/// Most segments of one round.
const ROUND_SEGMENTS_MAX: usize = 8;

/// How urgently segments are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Only what costs nothing: segments without anything live.
    None,
    /// More of the log is dead than should be.
    Space,
    /// Writers are, or will soon be, waiting.
    Writers,
}

impl Urgency {
    /// Segments with more live bytes than this, in percent, are left alone.
    fn live_percent_max(self) -> u64 {
        match self {
            Urgency::None => 0,
            Urgency::Space => 90,
            Urgency::Writers => 98,
        }
    }
}

/// Use of the sealed segments.
#[derive(Default)]
struct SealedUse {
    /// Segments of index images.
    images: u64,
    /// Bytes of the others' records.
    bytes: u64,
    /// Bytes of live records.
    live: u64,
}

impl Core {
    /// How urgently segments are needed now.
    pub(super) fn urgency(&self) -> Urgency {
        let usage = self.segments.usage();
        if usage.wants_cleaning() {
            return Urgency::Writers;
        }
        let use_of = self.sealed_use(usage.count);
        let in_use = u64::from(usage.count - usage.free).saturating_sub(use_of.images);
        let segment_bytes = u64::from(self.segments.segment_bytes());
        let is_sparse =
            |bytes: u64, live| bytes * u64::from(self.options.live_percent_target) / 100 > live;
        if is_sparse(in_use.saturating_sub(SLACK_SEGMENTS) * segment_bytes, usage.live_bytes) {
            return Urgency::Space;
        }
        // What is dead has memory, too, that what is live may have to do without.
        // One segment more may be filled before a round has ended.
        let soon = (in_use + 1) * segment_bytes;
        let is_short = !self.cache.is_direct() && soon > self.cache.budget();
        if is_short && is_sparse(use_of.bytes, use_of.live) {
            return Urgency::Space;
        }
        Urgency::None
    }

    fn sealed_use(&self, count: u32) -> SealedUse {
        let mut all = SealedUse::default();
        for segment in (0..count).map(|number| self.segments.get(number)) {
            match (segment.state(), segment.stream()) {
                (State::Sealed, Stream::Image) => all.images += 1,
                (State::Sealed, _) => {
                    all.bytes += u64::from(segment.end());
                    all.live += segment.live();
                }
                _ => {}
            }
        }
        all
    }

    /// The segments to empty next, best first.
    pub(super) fn victims(&self, urgency: Urgency) -> Vec<u32> {
        let bound = self.bound();
        let now = self.segments.epoch_next();
        let segment_bytes = u64::from(self.segments.segment_bytes());
        let live_max = segment_bytes * urgency.live_percent_max() / 100;
        let mut candidates = Vec::new();
        for number in 0..self.segments.usage().count {
            let segment = self.segments.get(number);
            let end = Position { epoch: segment.epoch(), offset: segment.end() };
            let is_durable = match segment.stream() {
                // Nothing is lost with an image.
                Stream::Image => urgency == Urgency::Writers,
                stream => bound.covers(stream, end),
            };
            let eligible = segment.state() == State::Sealed
                && is_durable
                && bound.covers_commit(segment.seq_max())
                && !self.pending.pins(number, bound.durable_seq())
                && !(segment.stream() == Stream::User && self.frames.retains(end.epoch));
            // Looked at after the rest: only then nothing new can come to point into it.
            let live = segment.live();
            if eligible && live <= live_max {
                let age = (now.saturating_sub(end.epoch) as f64).sqrt();
                let used = live as f64 / segment_bytes as f64;
                let score = (1.0 - used).max(0.0) * age / (1.0 + used);
                let score = if live == 0 { f64::INFINITY } else { score };
                candidates.push((score, live, number));
            }
        }
        candidates.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let mut victims = Vec::new();
        let mut moved = 0;
        for (_, live, number) in candidates {
            let full = victims.len() >= ROUND_SEGMENTS_MAX || moved + live > segment_bytes;
            if full && live > 0 && !victims.is_empty() {
                break;
            }
            moved += live;
            victims.push(number);
        }
        victims
    }
}
