//! How long a worker polls for events before it sleeps: up to a setting, and less if polling was unsuccessful
//! lately. Polling pays only if an event arrives in time. A worker whose events are further apart than the setting
//! would waste its processor.
//!
//! The time grows and shrinks as in Linux's halt polling (Documentation/virt/kvm/halt-polling.rst).

/// The initial value.
const START_NS: u64 = 5_000;

/// See the module's head. One for each worker.
#[derive(Debug)]
pub(super) struct SpinTime {
    /// The setting.
    max_ns: u64,
    now_ns: u64,
}

impl SpinTime {
    /// As long as the setting says, until it is known to pay or not.
    pub fn new(max_ns: u64) -> Self {
        SpinTime { max_ns, now_ns: max_ns }
    }

    /// The time to poll now, at most `max_ns`.
    pub fn allowed_ns(&mut self, max_ns: u64) -> u64 {
        if max_ns != self.max_ns {
            *self = SpinTime::new(max_ns);
        }
        self.now_ns
    }

    /// An event arrived after this idle time. If the worker slept, it includes the wake-up.
    pub fn came_after(&mut self, idle_ns: u64) {
        if idle_ns > self.max_ns.saturating_mul(2) {
            self.now_ns /= 2;
            if self.now_ns < START_NS {
                self.now_ns = 0;
            }
        } else if idle_ns > self.now_ns {
            self.now_ns = (self.now_ns * 2).max(START_NS).min(self.max_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 50_000;

    fn after(gaps: impl IntoIterator<Item = u64>) -> u64 {
        let mut spin = SpinTime::new(0);
        assert_eq!(spin.allowed_ns(MAX), MAX, "a new setting is tried");
        gaps.into_iter().for_each(|gap| spin.came_after(gap));
        spin.allowed_ns(MAX)
    }

    #[test]
    fn what_comes_in_time_is_looked_for() {
        assert_eq!(after([0, 10_000, MAX]), MAX);
        assert_eq!(after([1_000_000; 20].into_iter().chain([40_000; 4])), 40_000);
        assert_eq!(after([1_000_000; 20].into_iter().chain([40_000; 5])), 40_000, "enough");
        assert_eq!(after([1_000_000; 20].into_iter().chain([45_000; 5])), MAX);
        assert_eq!(
            after([1_000_000; 20].into_iter().chain([MAX + 20_000; 5])),
            MAX,
            "with its waking"
        );
    }

    #[test]
    fn what_comes_seldom_is_slept_for() {
        assert_eq!(after([1_000_000]), MAX / 2, "once is no habit");
        assert_eq!(after([1_000_000; 4]), 0);
        assert_eq!(after([1_000_000, 10_000, 1_000_000, 30_000, 1_000_000, 30_000]), 25_000);
    }

    #[test]
    fn a_setting_without_end_is_always_followed() {
        let mut spin = SpinTime::new(0);
        let busy = 10_000_000_000;
        assert_eq!(spin.allowed_ns(busy), busy);
        spin.came_after(5_000_000_000);
        assert_eq!(spin.allowed_ns(busy), busy);
        assert_eq!(spin.allowed_ns(0), 0, "and switched off");
        spin.came_after(10);
        assert_eq!(spin.allowed_ns(0), 0);
    }
}
