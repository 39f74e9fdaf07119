//! What a reconfiguration changes while all members run.

use super::scenarios::with_world;
use super::*;

/// A longer election timeout counts at once, on all members.
pub fn slower_elections(seed: u64) -> Result<(), String> {
    with_world(seed, 3, World::wait_for_slow_election)
}

impl World {
    /// Cuts the leader off. Answers how long the others take to elect another one.
    fn election_ns(&mut self) -> Result<u64, String> {
        let leader = self.leader().ok_or("nobody leads")?;
        let others: Vec<u64> = self.numbers().into_iter().filter(|of| *of != leader).collect();
        self.wire.network.lock().unwrap().partition(&[vec![leader], others]);
        let began = now_ns();
        self.until(100 * SECOND_NS, "nobody is elected", |world| {
            let leads = |of: &Node| of.process.as_ref().is_some_and(|of| of.member.is_writable());
            world.nodes.iter().any(|(number, node)| *number != leader && leads(node))
        })?;
        let took = now_ns() - began;
        self.mend();
        self.until(20 * SECOND_NS, "the former leader leads on", |world| {
            world.nodes[&leader].process.as_ref().is_some_and(|of| !of.member.is_writable())
        })?;
        Ok(took)
    }

    fn wait_for_slow_election(&mut self) -> Result<(), String> {
        self.begin()?;
        self.go_on(3)?;
        let quick = self.election_ns()?;
        self.go_on(3)?;
        let leader = self.leader().ok_or("nobody leads")?;
        let mut config = self.config();
        config.version = 2;
        config.settings.election_timeout_ms = 20_000;
        config.settings.heartbeat_interval_ms = 5_000;
        let term = self.target_of(leader).expect("it runs").member.view().term;
        self.ask(leader, Request::Reconfigure { config: config.clone(), force: false })?;
        self.go_on(60)?;
        let now = self.target_of(leader).expect("it runs").member.view();
        if (now.state, now.term) != (MemberState::Primary, term) {
            return Err(format!("its heartbeats come too late: {}", self.describe()));
        }
        let slow = self.election_ns()?;
        if quick >= 10 * SECOND_NS || slow < 15 * SECOND_NS {
            return Err(format!("elections took {quick} and {slow} ns"));
        }
        Ok(())
    }
}
