//! Faults, drawn.

use crate::world::{MS_NS, World};
use kauri_replication::simulated::Weather;
use kauri_replication::{Change, Log, Role};

impl World {
    /// One drawn fault, or the end of some.
    pub fn fault(&mut self) {
        match self.dice.below(18) {
            0 | 1 => self.kill_some(),
            2..=5 => self.cut_power_of_some(),
            6 | 7 => self.partition(),
            8 => self.cut_one_way(),
            9 | 10 => self.network.heal(),
            11 => self.pause(),
            12 | 13 => self.change_weather(),
            14 | 15 => self.change_membership(),
            16 => self.hand_over(),
            _ => self.restart_all(),
        }
    }

    /// One, a majority, or all of the members.
    fn some(&mut self) -> Vec<usize> {
        let count = self.members.len();
        let many = match self.dice.below(8) {
            0..=4 => 1,
            5 | 6 => count / 2 + 1,
            _ => count,
        };
        let mut some: Vec<usize> = (0..count).collect();
        for at in 0..many {
            let other = at + self.dice.below((count - at) as u64) as usize;
            some.swap(at, other);
        }
        some.truncate(many);
        some
    }

    fn kill_some(&mut self) {
        for at in self.some() {
            self.tell(|| format!("{} is killed", at + 1));
            self.members[at].kill();
            self.ledger.count("processes killed");
            self.restart_later(at);
        }
    }

    fn cut_power_of_some(&mut self) {
        let some = self.some();
        self.ledger.count("power losses");
        if some.len() == self.members.len() {
            self.ledger.count("power losses of all");
        } else if some.len() > 1 {
            self.ledger.count("power losses of a majority");
        }
        for &at in &some {
            let pending = self.members[at].log().pending_writes() as u64;
            let kept = if self.dice.percent(50) { 0 } else { self.dice.below(pending + 1) };
            self.members[at].cut_power(kept as usize);
            self.tell(|| format!("{} loses power, has {}", at + 1, self.members[at].log().last()));
            self.restart_later(at);
        }
        self.ledger.power_was_lost(&self.members);
    }

    fn partition(&mut self) {
        let mut groups = vec![Vec::new(), Vec::new()];
        for member in &self.members {
            groups[self.dice.below(2) as usize].push(member.id);
        }
        if self.dice.percent(30) {
            self.ledger.count("bridges");
            let bridge = self.members[self.dice.below(self.members.len() as u64) as usize].id;
            for group in &mut groups {
                if !group.contains(&bridge) {
                    group.push(bridge);
                }
            }
        }
        self.ledger.count("partitions");
        self.network.heal();
        self.network.partition(&groups);
    }

    fn cut_one_way(&mut self) {
        self.ledger.count("one-way cuts");
        let count = self.members.len() as u64;
        for _ in 0..1 + self.dice.below(3) {
            let (from, to) = (self.dice.below(count), self.dice.below(count));
            self.network.cut(self.members[from as usize].id, self.members[to as usize].id);
        }
    }

    fn pause(&mut self) {
        self.ledger.count("pauses");
        let at = self.dice.below(self.members.len() as u64) as usize;
        let pause_ns = MS_NS * (1 + self.dice.below(600));
        self.members[at].paused_until_ns = self.now_ns + pause_ns;
    }

    fn change_weather(&mut self) {
        let weather = match self.dice.below(4) {
            0 => Weather::FAIR,
            1 => Weather { delay_ns: (MS_NS, 20 * MS_NS), ..Weather::FAIR },
            _ => Weather {
                delay_ns: (50_000, 5 * MS_NS),
                lost_percent: self.dice.below(30),
                duplicated_percent: self.dice.below(20),
                late_percent: self.dice.below(10),
                late_ns_max: 400 * MS_NS,
            },
        };
        self.network.set_weather(weather);
    }

    fn change_membership(&mut self) {
        let Some(at) = (0..self.members.len()).find(|&at| self.members[at].leads()) else { return };
        let member =
            |world: &World| world.members[world.dice.below(world.members.len() as u64) as usize].id;
        let mut changes = Vec::new();
        for _ in 0..if self.dice.percent(60) { 1 } else { 2 } {
            let id = member(self);
            changes.push(match self.dice.below(4) {
                0 | 1 => Change::Voter(id),
                2 => Change::Learner(id),
                _ => Change::Removed(id),
            });
        }
        let Some(process) = &mut self.members[at].process else { return };
        let voters = process.consensus.membership().voters.len();
        let leave = changes.iter().filter(|change| !matches!(change, Change::Voter(_))).count();
        let same = changes.len() == 2 && changes[0].member() == changes[1].member();
        if (leave > 0 && voters < 3 + leave) || same {
            return;
        }
        if process.consensus.change(&changes).is_ok() {
            self.tell(|| format!("{} proposes {changes:?}", at + 1));
            self.ledger.count("membership changes");
            if changes.len() > 1 {
                self.ledger.count("joint memberships");
            }
        }
        self.pump(at);
    }

    fn hand_over(&mut self) {
        let Some(at) = (0..self.members.len()).find(|&at| self.members[at].leads()) else { return };
        let to = self.members[self.dice.below(self.members.len() as u64) as usize].id;
        let Some(process) = &mut self.members[at].process else { return };
        if process.consensus.role() == Role::Leader && process.consensus.hand_over(to).is_ok() {
            self.ledger.count("hand-overs");
        }
        self.pump(at);
    }
}
