//! Worlds without chance faults: what is done in each is written down.

use super::*;
use kauri_member::statements::Known;
use kauri_member::statements::table::Done;
use kauri_storage::{Committer, NumberedWrite};
use std::time::Duration;

/// A set of three loses two members for ever. The one that is left is forced to go on; then two empty ones join.
pub fn force(seed: u64) -> Result<(), String> {
    with_world(seed, 3, World::lose_two_of_three)
}

/// A set of five loses three members, and the first one is forced to go on with the second and an empty third. Then the
/// first one ends, and those two go on.
pub fn force_five(seed: u64) -> Result<(), String> {
    with_world(seed, 5, World::lose_three_of_five)
}

/// What is known of a numbered write survives its frame.
pub fn retry_after_purge(seed: u64) -> Result<(), String> {
    with_world(seed, 3, World::purge_and_retry)
}

/// A leader's commits share frames while one is on its way.
pub fn gather(seed: u64) -> Result<(), String> {
    with_world(seed, 3, World::commit_in_a_row)
}

/// A leader that steps down among writes keeps what it has.
pub fn step_down_among_writes(seed: u64) -> Result<(), String> {
    with_world(seed, 3, World::commit_and_step_down)
}

pub(super) fn with_world(
    seed: u64,
    members: u64,
    run: impl FnOnce(&mut World) -> Result<(), String>,
) -> Result<(), String> {
    virtual_time::begin(seed);
    let mut world = World::of(seed, members);
    let result = run(&mut world);
    world.end();
    virtual_time::end();
    result
}

impl World {
    /// Starts the set, and prepares the lists on all members.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        self.begin_with(self.config())
    }

    pub(super) fn begin_with(&mut self, config: SetConfig) -> Result<(), String> {
        for number in self.numbers() {
            self.start(number)?;
        }
        self.ask(1, Request::Initiate(config))?;
        self.until(20 * SECOND_NS, "the set has no leader", |world| world.leader().is_some())?;
        let leader = self.leader().expect("it leads");
        let target = self.target_of(leader).expect("it runs");
        let seq = client::prepare(&target).map_err(|error| error.to_string())?;
        self.until(20 * SECOND_NS, "the lists are not everywhere", |world| {
            world.nodes.values().all(|node| {
                node.process.as_ref().is_some_and(|process| process.engine.visible() >= seq)
            })
        })
    }

    pub(super) fn go_on(&mut self, seconds: u64) -> Result<(), String> {
        let end = now_ns() + seconds * SECOND_NS;
        while now_ns() < end {
            self.turn()?;
        }
        Ok(())
    }

    /// The member ends and does not come back by itself.
    pub(super) fn lose(&mut self, number: u64) {
        self.kill(number, true);
        self.nodes.get_mut(&number).expect("a member").down_until_ns = u64::MAX - 1;
    }

    /// It comes back with an empty disk.
    pub(super) fn replace(&mut self, number: u64) {
        let node = self.nodes.get_mut(&number).expect("a member");
        node.disk = Emulator::new(EmulatorConfig::default());
        node.down_until_ns = 0;
    }

    /// A write on this member is acknowledged by a majority.
    pub(super) fn write_on(
        &mut self,
        number: u64,
        id: i64,
    ) -> Result<kauri_base::CommitSeq, String> {
        let target = self.target_of(number).expect("it runs");
        let mut unit = kauri_storage::WriteUnit::new();
        unit.insert(LISTS, kauri_bson::doc! { "_id" => id }.into_vec());
        let seq = target.engine.commit(&mut unit).map_err(|error| error.to_string())?.seq;
        target.member.note_visible(seq);
        self.until(5 * SECOND_NS, "the write is not acknowledged", |_| {
            matches!(target.member.acknowledged(seq, &Concern::Majority), Ok(None))
        })?;
        Ok(seq)
    }

    /// These members serve, have this commit, and this version of the configuration.
    pub(super) fn all_serve(
        &mut self,
        numbers: &[u64],
        seq: kauri_base::CommitSeq,
        version: i64,
    ) -> Result<(), String> {
        self.until(30 * SECOND_NS, "not all serve", |world| {
            numbers.iter().all(|number| {
                let process = world.nodes[number].process.as_ref();
                process.is_some_and(|of| {
                    let view = of.member.view();
                    let serves =
                        matches!(view.state, MemberState::Primary | MemberState::Secondary);
                    let known = view.config.as_ref().map_or(0, |config| config.version);
                    serves && of.engine.visible() >= seq && known == version
                })
            })
        })
    }

    fn force(&mut self, number: u64, config: SetConfig) -> Result<(), String> {
        self.go_on(5)?;
        if self.leader().is_some() {
            return Err("a minority leads".to_owned());
        }
        self.ask(number, Request::Reconfigure { config, force: true })?;
        let leads = |world: &World| world.leader() == Some(number);
        self.until(5 * SECOND_NS, "it does not lead", leads)
    }

    fn lose_two_of_three(&mut self) -> Result<(), String> {
        self.begin()?;
        let left = self.dice.below(3) + 1;
        let mut config = self.config();
        config.version = 2;
        self.go_on(2)?;
        if self.ask(left, Request::Reconfigure { config: config.clone(), force: true }).is_ok()
            && self.leader() != Some(left)
        {
            return Err("force in a set that is well".to_owned());
        }
        let others: Vec<u64> = self.numbers().into_iter().filter(|of| *of != left).collect();
        others.iter().for_each(|number| self.lose(*number));
        self.go_on(5)?;
        config.version = 3;
        self.force(left, config)?;
        let seq = self.write_on(left, 99)?;
        others.iter().for_each(|number| self.replace(*number));
        self.all_serve(&[1, 2, 3], seq, 3)?;
        // They vote, too: without the first one the set goes on.
        self.go_on(5)?;
        self.lose(left);
        self.until(10 * SECOND_NS, "nobody follows it", |world| world.leader().is_some())
    }

    fn lose_three_of_five(&mut self) -> Result<(), String> {
        self.begin()?;
        for number in [3, 4, 5] {
            self.lose(number);
        }
        let mut config = self.config();
        config.members.truncate(3);
        config.version = 2;
        if self.dice.percent(50) {
            // Its process ends before the others have heard anything.
            self.lose(2);
            self.force(1, config)?;
            self.kill(1, true);
            self.nodes.get_mut(&2).expect("a member").down_until_ns = 0;
            self.until(10 * SECOND_NS, "it leads no more", |world| world.leader() == Some(1))?;
        } else {
            self.force(1, config)?;
        }
        let seq = self.write_on(1, 99)?;
        self.replace(3);
        self.all_serve(&[1, 2, 3], seq, 2)?;
        self.go_on(5)?;
        self.lose(1);
        self.until(10 * SECOND_NS, "two of three do not go on", |world| world.leader().is_some())
    }

    /// A numbered write's frame is purged; its member starts anew, and another one copies it. Both know the statement.
    fn purge_and_retry(&mut self) -> Result<(), String> {
        self.wire.log_bytes = 1 << 16;
        self.begin()?;
        let leader = self.leader().expect("it leads");
        let target = self.target_of(leader).expect("it runs");
        let mut unit = kauri_storage::WriteUnit::new();
        unit.insert(LISTS, kauri_bson::doc! { "_id" => 70_i64 }.into_vec());
        let (session, number) = ([9; 16], 4);
        let statements = vec![(0, Vec::new())];
        unit.numbered = Some(Box::new(NumberedWrite { session, number, statements }));
        let ticket = target.committer.commit(&mut unit).map_err(|error| error.to_string())?;
        target.member.note_visible(ticket.seq);
        let range = |world: &World, number: u64| {
            let process = world.nodes[&number].process.as_ref();
            process.map(|of| of.engine.replicated_log().expect("a log").frames())
        };
        self.go_on(1)?;
        let last = range(self, leader).expect("it runs").last.index;
        let purged = |world: &World| {
            world.nodes.keys().all(|of| range(world, *of).is_some_and(|of| of.purged.index > last))
        };
        for id in 100.. {
            if purged(self) {
                break;
            }
            if id > 2_000 {
                return Err("nothing is purged".to_owned());
            }
            self.write_on(leader, id)?;
            self.go_on(u64::from(id % 50 == 0))?;
        }
        let emptied = self.numbers().into_iter().find(|of| *of != leader).expect("another one");
        self.kill(emptied, true);
        self.replace(emptied);
        let seq = self.target_of(leader).expect("it runs").engine.visible();
        self.all_serve(&[1, 2, 3], seq, 1)?;
        self.kill(leader, true);
        self.all_serve(&[1, 2, 3], seq, 1)?;
        for of in [leader, emptied] {
            let member = self.target_of(of).expect("it runs").member.clone();
            let now_ms = virtual_time::peek_ns() / 1_000_000;
            let known = member.statements().look(&session, number, 0, now_ms);
            if known != Ok(Known::Done(Done::Plain)) {
                return Err(format!("member {of} does not know the statement: {known:?}"));
            }
        }
        Ok(())
    }

    fn commit_in_a_row(&mut self) -> Result<(), String> {
        const COMMITS: i64 = 50;
        self.begin()?;
        let leader = self.leader().expect("it leads");
        let target = self.target_of(leader).expect("it runs");
        let frames = || match target.engine.replicated_log() {
            Ok(log) => Ok(log.frames().last.index),
            Err(error) => Err(error.to_string()),
        };
        let before = frames()?;
        let mut last = kauri_base::CommitSeq(0);
        for id in 0..COMMITS {
            let mut unit = kauri_storage::WriteUnit::new();
            unit.insert(LISTS, kauri_bson::doc! { "_id" => 1_000 + id }.into_vec());
            last = target.engine.commit(&mut unit).map_err(|error| error.to_string())?.seq;
            target.member.note_visible(last);
            self.turn()?;
        }
        self.until(5 * SECOND_NS, "the writes are not acknowledged", |_| {
            matches!(target.member.acknowledged(last, &Concern::Majority), Ok(None))
        })?;
        let made = frames()? - before;
        match made <= COMMITS as u64 / 4 {
            true => Ok(()),
            false => Err(format!("{COMMITS} commits in {made} frames")),
        }
    }

    fn commit_and_step_down(&mut self) -> Result<(), String> {
        self.begin()?;
        self.go_on(3)?;
        let leader = self.leader().expect("it leads");
        let target = self.target_of(leader).expect("it runs");
        let commit = |id: i64| {
            let mut unit = kauri_storage::WriteUnit::new();
            unit.insert(LISTS, kauri_bson::doc! { "_id" => id }.into_vec());
            let seq = target.engine.commit(&mut unit).map_err(|error| error.to_string())?.seq;
            target.member.note_visible(seq);
            Ok::<_, String>(seq)
        };
        let last_frame = || target.engine.replicated_log().map_or(0, |log| log.frames().last.index);
        let before = last_frame();
        commit(1_000)?;
        self.until(SECOND_NS, "no frame is closed", |_| last_frame() > before)?;
        let last = commit(1_001)?;
        let (time, catch_up) = (Duration::from_secs(10), Duration::from_secs(5));
        let step_down = Request::StepDown { time, catch_up, force: true };
        self.ask(leader, step_down)?;
        self.until(20 * SECOND_NS, "nobody leads", |world| {
            world.leader().is_some_and(|of| of != leader)
        })?;
        self.go_on(2)?;
        let has_all = |of: &Node| of.process.as_ref().is_some_and(|of| of.engine.visible() >= last);
        let process = self.nodes[&leader].process.as_ref();
        let is_same = process.is_some_and(|of| Arc::ptr_eq(&of.member, &target.member));
        match is_same && self.nodes.values().all(has_all) {
            true => Ok(()),
            false => Err(format!("it began again, or a write is lost: {}", self.describe())),
        }
    }
}
