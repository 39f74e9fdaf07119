//! What a reconfiguration changes while all members run.

use super::scenarios::with_world;
use super::*;
use kauri_member::member::Member;
use std::pin::pin;
use std::task::{Context, Poll, Wake};

/// Whoever is told that a configuration is in force sees it.
pub fn answer_after_view(seed: u64) -> Result<(), String> {
    with_world(seed, 3, World::look_when_answered)
}

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

    fn look_when_answered(&mut self) -> Result<(), String> {
        self.begin()?;
        let leader = self.leader().ok_or("nobody leads")?;
        let member = self.target_of(leader).expect("it runs").member.clone();
        let look = Arc::new(Look { member: member.clone(), seen: Mutex::new(None) });
        let config = SetConfig { version: 2, ..self.config() };
        let mut answer = pin!(member.request(Request::Reconfigure { config, force: false }));
        let waker = look.clone().into();
        let poll = answer.as_mut().poll(&mut Context::from_waker(&waker));
        if poll.is_ready() {
            return Err("it is answered at once".to_owned());
        }
        self.until(5 * SECOND_NS, "no answer", |_| look.seen.lock().unwrap().is_some())?;
        match answer.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Ok(())) => {}
            other => return Err(format!("{other:?}")),
        }
        let seen = look.seen.lock().unwrap().take();
        match seen {
            Some(2) => Ok(()),
            seen => Err(format!("who is answered sees version {seen:?}")),
        }
    }
}

/// Looks at the member when it is woken.
struct Look {
    member: Arc<Member>,
    seen: Mutex<Option<i64>>,
}

impl Wake for Look {
    fn wake(self: Arc<Self>) {
        let view = self.member.view();
        *self.seen.lock().unwrap() = Some(view.config.as_ref().map_or(0, |of| of.version));
    }
}
