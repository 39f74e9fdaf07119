//! A member whose readers see the past.

use super::scenarios::with_world;
use super::*;
use kauri_base::CommitSeq;

const DELAY_SECS: i64 = 6;

/// A delayed member has the log at once, and shows it late, also after a restart. Without its delay it shows everything.
pub fn delayed(seed: u64) -> Result<(), String> {
    with_world(seed, 3, World::delay_the_third)
}

impl World {
    fn shows(&self, number: u64, seq: CommitSeq) -> bool {
        let process = self.nodes[&number].process.as_ref();
        process.is_some_and(|of| of.engine.visible() >= seq)
    }

    fn delay_the_third(&mut self) -> Result<(), String> {
        self.begin()?;
        self.until(20 * SECOND_NS, "not all serve", |world| {
            world.nodes.values().all(|node| {
                let state = node.process.as_ref().map(|of| of.member.view().state);
                matches!(state, Some(MemberState::Primary | MemberState::Secondary))
            })
        })?;
        let leader = self.leader().ok_or("nobody leads")?;
        let late = self.numbers().into_iter().find(|of| *of != leader).ok_or("none follows")?;
        let other = self.numbers().into_iter().find(|of| ![leader, late].contains(of));
        let mut config = self.config();
        config.version = 2;
        let at = (late - 1) as usize;
        (config.members[at].delay_secs, config.members[at].priority) = (DELAY_SECS, 0.0);
        self.ask(leader, Request::Reconfigure { config: config.clone(), force: false })?;
        // A majority of two of three: the delayed member's log counts.
        self.lose(other.ok_or("no third one")?);
        self.go_on(1)?;
        let (began, seq) = (now_ns(), self.write_on(leader, 77)?);
        let target = self.target_of(leader).expect("it runs");
        let all_of_them = Concern::Members { count: 2, durable: true };
        let ticket = target.member.acknowledged(seq, &all_of_them).map_err(|e| e.to_string())?;
        for seconds in [1, 2] {
            self.go_on(seconds)?;
            if self.shows(late, seq) {
                return Err("the delayed member shows it at once".to_owned());
            }
            if matches!(target.member.acknowledged(seq, &all_of_them), Ok(None)) {
                return Err("it counts for a number of members before it is shown".to_owned());
            }
            let state = self.target_of(late).expect("it runs").member.view().state;
            if state != MemberState::Secondary {
                return Err(format!("the delayed member is {state:?}"));
            }
            let loses_power = self.dice.percent(50);
            self.kill(late, loses_power);
            self.start(late)?;
            self.until(SECOND_NS * 2, "it does not serve again", |world| {
                let member = world.target_of(late).map(|of| of.member.view().state);
                member == Some(MemberState::Secondary)
            })?;
        }
        self.until(20 * SECOND_NS, "the delayed member never shows it", |world| {
            world.shows(late, seq)
        })?;
        // The entry's time is in whole milliseconds.
        if now_ns() - began + 1_000_000 < DELAY_SECS as u64 * SECOND_NS {
            return Err(format!("it shows it after {} ns", now_ns() - began));
        }
        self.until(2 * SECOND_NS, "it is not acknowledged then", |_| {
            matches!(target.member.acknowledged(seq, &all_of_them), Ok(None))
        })?;
        drop(ticket);
        let seq = self.write_on(leader, 78)?;
        config.version = 3;
        config.members[at].delay_secs = 0;
        self.ask(leader, Request::Reconfigure { config, force: false })?;
        self.until(SECOND_NS, "it is still late without a delay", |world| world.shows(late, seq))
    }
}
