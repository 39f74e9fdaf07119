//! A network between members, by seed.
//!
//! Messages are delayed, lost, duplicated and reordered; links are cut in one direction or both. Time is a number that
//! the owner keeps. For simulations: of this crate's members in its tests, of whole servers in others.

use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use std::collections::{BTreeMap, BTreeSet};

/// The state of all links.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Nanoseconds from sending to arrival.
    pub delay_ns: (u64, u64),
    /// Of a hundred messages, those that never arrive.
    pub lost_percent: u64,
    /// Those that arrive twice.
    pub duplicated_percent: u64,
    /// Those that arrive much later than others.
    pub late_percent: u64,
    /// How late these arrive, at most.
    pub late_ns_max: u64,
}

impl Weather {
    /// A good network: 50 to 300 µs, and no faults.
    pub const FAIR: Weather = Weather {
        delay_ns: (50_000, 300_000),
        lost_percent: 0,
        duplicated_percent: 0,
        late_percent: 0,
        late_ns_max: 0,
    };
}

/// A message that arrives.
#[derive(Debug, PartialEq, Eq)]
pub struct Arrival<T> {
    /// The sender.
    pub from: u64,
    /// The receiver.
    pub to: u64,
    /// The message.
    pub message: T,
}

/// See the module.
pub struct Network<T> {
    random: SeededRandom,
    weather: Weather,
    /// Links that are cut, by sender and receiver.
    cut: BTreeSet<(u64, u64)>,
    /// By time and order of sending.
    under_way: BTreeMap<(u64, u64), Arrival<T>>,
    sent: u64,
}

impl<T: Clone> Network<T> {
    /// A network whose faults follow from `seed`.
    pub fn new(seed: u64) -> Network<T> {
        Network {
            random: SeededRandom::new(seed),
            weather: Weather::FAIR,
            cut: BTreeSet::new(),
            under_way: BTreeMap::new(),
            sent: 0,
        }
    }

    /// From now on the links are like this.
    pub fn set_weather(&mut self, weather: Weather) {
        self.weather = weather;
    }

    /// Cuts the link in this direction.
    pub fn cut(&mut self, from: u64, to: u64) {
        self.cut.insert((from, to));
    }

    /// Leaves only the links between members that have a group in common. A member of two groups is a bridge.
    pub fn partition(&mut self, groups: &[Vec<u64>]) {
        let all: BTreeSet<u64> = groups.iter().flatten().copied().collect();
        for &from in &all {
            for &to in &all {
                if !groups.iter().any(|group| group.contains(&from) && group.contains(&to)) {
                    self.cut(from, to);
                }
            }
        }
    }

    /// Mends all links.
    pub fn heal(&mut self) {
        self.cut.clear();
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.next_u64() % below.max(1)
    }

    /// Sends a message at `now_ns`.
    pub fn send(&mut self, now_ns: u64, from: u64, to: u64, message: T) {
        if self.cut.contains(&(from, to)) || self.draw(100) < self.weather.lost_percent {
            return;
        }
        let copies = if self.draw(100) < self.weather.duplicated_percent { 2 } else { 1 };
        for _ in 0..copies {
            let (least_ns, most_ns) = self.weather.delay_ns;
            let mut at_ns = now_ns + least_ns + self.draw(most_ns - least_ns + 1);
            if self.draw(100) < self.weather.late_percent {
                at_ns += self.draw(self.weather.late_ns_max);
            }
            self.sent += 1;
            let arrival = Arrival { from, to, message: message.clone() };
            self.under_way.insert((at_ns, self.sent), arrival);
        }
    }

    /// The time of the next arrival.
    pub fn next_ns(&self) -> Option<u64> {
        self.under_way.keys().next().map(|&(at_ns, _)| at_ns)
    }

    /// The next message that arrives until `now_ns`.
    pub fn receive(&mut self, now_ns: u64) -> Option<Arrival<T>> {
        let next = self.under_way.first_entry().filter(|next| next.key().0 <= now_ns)?;
        Some(next.remove())
    }

    /// Lets a message arrive later: its receiver is busy.
    pub fn postpone(&mut self, until_ns: u64, arrival: Arrival<T>) {
        self.sent += 1;
        self.under_way.insert((until_ns, self.sent), arrival);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(network: &mut Network<u32>) -> Vec<(u64, u64, u32)> {
        std::iter::from_fn(|| network.receive(u64::MAX))
            .map(|arrival| (arrival.from, arrival.to, arrival.message))
            .collect()
    }

    #[test]
    fn a_bridge_is_heard_by_both_sides_that_do_not_hear_each_other() {
        let mut network = Network::new(1);
        network.partition(&[vec![1, 2, 3], vec![3, 4, 5]]);
        for from in 1..=5 {
            for to in 1..=5 {
                network.send(0, from, to, 0);
            }
        }
        let pairs: BTreeSet<(u64, u64)> =
            arrivals(&mut network).into_iter().map(|(from, to, _)| (from, to)).collect();
        assert!(pairs.contains(&(3, 5)) && pairs.contains(&(1, 3)) && pairs.contains(&(4, 5)));
        assert!(!pairs.contains(&(1, 4)) && !pairs.contains(&(5, 2)));
        network.heal();
        network.cut(1, 2);
        network.send(0, 1, 2, 0);
        network.send(0, 2, 1, 0);
        assert_eq!(arrivals(&mut network), [(2, 1, 0)]);
    }

    #[test]
    fn a_bad_network_loses_duplicates_and_reorders() {
        let bad = Weather {
            delay_ns: (1, 1_000),
            lost_percent: 20,
            duplicated_percent: 20,
            late_percent: 10,
            late_ns_max: 100_000,
        };
        let run = |seed| {
            let mut network = Network::new(seed);
            network.set_weather(bad);
            (0..1000).for_each(|number| network.send(u64::from(number), 1, 2, number));
            arrivals(&mut network).into_iter().map(|(.., number)| number).collect::<Vec<u32>>()
        };
        let one = run(1);
        assert!(one == run(1) && one != run(2) && !one.is_sorted());
        let different: BTreeSet<u32> = one.iter().copied().collect();
        assert!((700..900).contains(&different.len()) && one.len() > different.len() + 100);
    }
}
