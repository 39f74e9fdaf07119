//! Failpoints: named points in the code where a test can inject a fault.
//!
//! This module is only a registry. The code at a failpoint decides what the failpoint's data means. A server
//! without `enableTestCommands` never sets a failpoint. A failpoint that is not set costs one atomic load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How often a point fires.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Every time until it is switched off.
    AlwaysOn,
    /// This many times.
    Times(u64),
    /// After passing this many times, every time.
    Skip(u64),
    /// Each time with this probability.
    Random(f64),
}

struct Point {
    mode: Mode,
    data: Vec<u8>,
    entered: u64,
}

/// The failpoints of one server.
#[derive(Default)]
pub struct FailPoints {
    active: AtomicUsize,
    points: Mutex<BTreeMap<String, Point>>,
}

impl FailPoints {
    /// Sets a failpoint, replacing its former setting. `data` is opaque here (a raw BSON document). Returns how
    /// often the failpoint had fired before.
    pub fn set(&self, name: &str, mode: Mode, data: Vec<u8>) -> u64 {
        let mut points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = points.get(name).map_or(0, |p| p.entered);
        points.insert(name.to_owned(), Point { mode, data, entered });
        self.active.store(points.len(), Ordering::Release);
        entered
    }

    /// Whether any point is set.
    #[inline]
    pub fn any_active(&self) -> bool {
        self.active.load(Ordering::Acquire) != 0
    }

    /// Switches a point off. Returns how often it had fired.
    pub fn unset(&self, name: &str) -> u64 {
        let mut points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = points.remove(name).map_or(0, |p| p.entered);
        self.active.store(points.len(), Ordering::Release);
        entered
    }

    /// Whether the failpoint is set and `applies` to the event, by its data and mode. If so, returns the data and
    /// counts one firing. `random` is in [0, 1).
    pub fn fire(
        &self,
        name: &str,
        random: impl FnOnce() -> f64,
        applies: impl FnOnce(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        if self.active.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        let point = points.get_mut(name)?;
        if !applies(&point.data) {
            return None;
        }
        let fires = match &mut point.mode {
            Mode::AlwaysOn => true,
            Mode::Times(left) => {
                let fires = *left > 0;
                *left = left.saturating_sub(1);
                fires
            }
            Mode::Skip(left) => {
                let fires = *left == 0;
                *left = left.saturating_sub(1);
                fires
            }
            Mode::Random(probability) => random() < *probability,
        };
        if !fires {
            return None;
        }
        point.entered += 1;
        Some(point.data.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_count_only_applicable_events() {
        let points = FailPoints::default();
        points.set("p", Mode::Times(2), vec![7]);
        assert!(points.fire("p", || 0.0, |_| false).is_none());
        assert_eq!(points.fire("p", || 0.0, |d| d == [7]), Some(vec![7]));
        assert!(points.fire("p", || 0.0, |_| true).is_some());
        assert!(points.fire("p", || 0.0, |_| true).is_none());
        points.set("p", Mode::Skip(1), vec![]);
        assert!(points.fire("p", || 0.0, |_| true).is_none());
        assert!(points.fire("p", || 0.0, |_| true).is_some());
        assert_eq!(points.unset("p"), 3);
        assert!(points.fire("p", || 0.0, |_| true).is_none());
    }
}
