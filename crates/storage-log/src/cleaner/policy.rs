//! Whether to clean, and which segments: cost-benefit by segment age (as RAMCloud, FAST'14, but by the
//! age's root: what is kept apart by age needs less patience).

use crate::core::Core;
use crate::format::Stream;
use crate::format::segment::Position;
use crate::segments::State;
use kauri_base::sync::atomic::Ordering;

/// Segments in use that are not worth compacting: open ones and the like.
const SLACK_SEGMENTS: u64 = 4;
/// Most segments of one round.
const ROUND_SEGMENTS_MAX: usize = 8;

/// How badly segments are wanted.
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

impl Core {
    /// How badly segments are wanted now.
    pub(super) fn urgency(&self) -> Urgency {
        let usage = self.segments.usage();
        if usage.wants_cleaning() {
            return Urgency::Writers;
        }
        let of_images = |number: &u32| {
            let segment = self.segments.get(*number);
            segment.stream() == Stream::Image && segment.state() == State::Sealed
        };
        let images = (0..usage.count).filter(of_images).count() as u64;
        let in_use = u64::from(usage.count - usage.free).saturating_sub(SLACK_SEGMENTS + images);
        let bytes = in_use * u64::from(self.segments.segment_bytes());
        if bytes * u64::from(self.options.live_percent_target) / 100 > usage.live_bytes {
            return Urgency::Space;
        }
        Urgency::None
    }

    /// The segments to empty next, best first.
    pub(super) fn victims(&self, urgency: Urgency) -> Vec<u32> {
        let durable = self.horizon();
        let visible = self.visible.load(Ordering::Acquire);
        let now = self.epoch_next.load(Ordering::Acquire);
        let segment_bytes = u64::from(self.segments.segment_bytes());
        let live_max = segment_bytes * urgency.live_percent_max() / 100;
        let mut candidates = Vec::new();
        for number in 0..self.segments.usage().count {
            let segment = self.segments.get(number);
            let end = Position { epoch: segment.epoch(), offset: segment.end() };
            let is_durable = match segment.stream() {
                // Nothing is lost with an image.
                Stream::Image => urgency == Urgency::Writers,
                stream => end <= durable.stream(stream),
            };
            let eligible = segment.state() == State::Sealed
                && is_durable
                && segment.seq_max() <= visible
                && !self.pending.pins(number, durable.seq);
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
