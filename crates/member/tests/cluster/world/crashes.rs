//! Worlds in which one thing goes wrong at the worst time.

use super::scenarios::with_world;
use super::*;
use kauri_base::CommitSeq;
use kauri_bson::doc;
use kauri_member::statements::Known;
use kauri_member::statements::table::Done;
use kauri_storage::{Committer, NumberedWrite, WriteUnit};

/// Bytes of a document that fills a log.
const PADDING: usize = 8_000;

/// A leader is cut off with a statement that nobody has heard of, and is about to purge frames. It forgets the statement.
pub fn cut_off_while_purging(seed: u64) -> Result<(), String> {
    with_world(seed, 3, World::cut_off_while_purging)
}

/// A new member stands still while it copies, and the log goes on. The copy is of use all the same.
pub fn copy_slowly(seed: u64) -> Result<(), String> {
    with_world(seed, 3, World::copy_slowly)
}

/// Frames are purged as fast as they come. All members know all statements after they have lost their power.
pub fn purge_fast(seed: u64) -> Result<(), String> {
    with_world(seed, 3, World::purge_fast)
}

/// A member learns of a configuration, alone or with the membership that follows from it. Whenever its process ends, it
/// knows the configuration if it knows of what comes later.
pub fn die_while_reconfiguring(seed: u64, members: u64) -> Result<(), String> {
    with_world(seed, members, World::die_while_reconfiguring)
}

/// A member that was away comes back to a leader that it does not know, and to which it is needed.
pub fn come_back_to_strangers(seed: u64) -> Result<(), String> {
    with_world(seed, 3, World::come_back_to_strangers)
}

impl World {
    /// A padded document of this leader, as a statement of the session that has the document's number.
    fn write_statement(&mut self, number: u64, id: i64) -> Result<CommitSeq, String> {
        let target = self.target_of(number).expect("it runs");
        let mut unit = WriteUnit::new();
        let padding = kauri_bson::Value::Binary { subtype: 0, bytes: vec![7; PADDING].into() };
        unit.insert(LISTS, doc! { "_id" => id, "padding" => padding }.into_vec());
        let statements = vec![(0, Vec::new())];
        unit.numbered =
            Some(Box::new(NumberedWrite { session: session(id), number: 1, statements }));
        let seq = target.committer.commit(&mut unit).map_err(|error| error.to_string())?.seq;
        target.member.note_visible(seq);
        Ok(seq)
    }

    fn knows(&self, number: u64, id: i64) -> bool {
        let member = self.target_of(number).expect("it runs").member.clone();
        let known = member.statements().look(&session(id), 1, 0, now_ns() / 1_000_000);
        known == Ok(Known::Done(Done::Plain))
    }

    /// The purged frame of a member, and the one up to which it may purge more.
    fn purging(&self, number: u64) -> (u64, u64) {
        let target = self.target_of(number).expect("it runs");
        let log = target.engine.replicated_log().expect("a log");
        let kept = self.wire.log_bytes;
        (log.frames().purged.index, log.frames_before(kept + kept / 8))
    }

    fn cut_off_while_purging(&mut self) -> Result<(), String> {
        self.wire.log_bytes = 1 << 14;
        let mut config = self.config();
        // The leader is not in a hurry to see that it is alone.
        config.settings.election_timeout_ms = 6_000;
        self.begin_with(config)?;
        let leader = self.leader().expect("it leads");
        for id in 100.. {
            let (purged, may) = self.purging(leader);
            if purged > 1 && may > purged {
                break;
            }
            self.write_statement(leader, id)?;
            for _ in 0..self.dice.below(400) {
                self.turn()?;
            }
        }
        let others: Vec<u64> = self.numbers().into_iter().filter(|of| *of != leader).collect();
        self.wire.network.lock().unwrap().partition(&[vec![leader], others.clone()]);
        self.write_statement(leader, 7)?;
        let leads = |of: &u64, world: &World| {
            world.nodes[of].process.as_ref().is_some_and(|of| of.member.is_writable())
        };
        self.until(60 * SECOND_NS, "nobody else leads", |world| {
            others.iter().any(|of| leads(of, world))
        })?;
        let next = *others.iter().find(|of| leads(of, self)).expect("one does");
        let seq = self.write_statement(next, 8)?;
        self.mend();
        self.all_serve(&[1, 2, 3], seq, 1)?;
        match self.knows(leader, 7) || !self.knows(leader, 8) {
            true => Err("it remembers what was cut off, or not what was kept".to_owned()),
            false => Ok(()),
        }
    }

    fn copy_slowly(&mut self) -> Result<(), String> {
        self.wire.log_bytes = 1 << 15;
        self.begin_with(self.config())?;
        let leader = self.leader().expect("it leads");
        let mut id = 100;
        let mut fill = |world: &mut World, until: u64| -> Result<CommitSeq, String> {
            loop {
                let seq = world.write_statement(leader, id)?;
                id += 1;
                for _ in 0..60 {
                    world.turn()?;
                }
                if now_ns() >= until && world.purging(leader).0 > 1 {
                    return Ok(seq);
                }
            }
        };
        fill(self, 0)?;
        let new = self.numbers().into_iter().find(|of| *of != leader).expect("another one");
        self.lose(new);
        self.replace(new);
        self.until(20 * SECOND_NS, "no copy is begun", |world| {
            let process = world.nodes[&new].process.as_ref();
            let progress = process.and_then(|of| of.member.sync_progress());
            progress.is_some_and(|of| of.bytes > 0)
        })?;
        let until = now_ns() + 6 * SECOND_NS;
        self.nodes.get_mut(&new).expect("a member").paused_until_ns = until;
        let seq = fill(self, until)?;
        self.all_serve(&[1, 2, 3], seq, 1)?;
        let counts = self.shared.counts.lock().unwrap().clone();
        if (counts.wiped, counts.copies) != (0, 1) {
            return Err(format!("the copy was of no use: {counts:?}"));
        }
        let term = self.nodes[&leader].process.as_ref().expect("it runs").member.view().term as u64;
        let disk = self.nodes[&new].disk.clone();
        let stored = StateFile::new(Arc::new(disk)).read().ok().flatten().expect("a state");
        if (stored.state.term, stored.state.vote) != (term, leader) {
            return Err(format!(
                "it votes in term {} for {}",
                stored.state.term, stored.state.vote
            ));
        }
        Ok(())
    }

    fn purge_fast(&mut self) -> Result<(), String> {
        self.wire.log_bytes = 1 << 14;
        self.begin_with(self.config())?;
        let leader = self.leader().expect("it leads");
        let (first, end) = (100, 220);
        let mut seq = CommitSeq(0);
        for id in first..end {
            seq = self.write_statement(leader, id)?;
            let until = now_ns() + 20_000_000 + self.dice.below(80_000_000);
            while now_ns() < until {
                self.turn()?;
            }
        }
        self.all_serve(&[1, 2, 3], seq, 1)?;
        for number in self.numbers() {
            self.kill(number, true);
        }
        self.all_serve(&[1, 2, 3], seq, 1)?;
        for number in self.numbers() {
            if let Some(id) = (first..end).find(|id| !self.knows(number, *id)) {
                return Err(format!("member {number} does not know statement {id}"));
            }
        }
        Ok(())
    }

    /// What a member knows that begins on this disk and hears nobody: the version, and up to where it has applied.
    fn knows_alone(&mut self, number: u64, disk: &Emulator) -> Result<(i64, u64), String> {
        let network = Arc::new(Mutex::new(Network::new(1)));
        let wire = Wire { network, lives: Arc::default(), log_bytes: self.wire.log_bytes };
        let run = self.nodes[&number].machine_run;
        let process = Process::start(disk, &self.dice.fork(), &wire, number, run);
        let process = process.map_err(|error| error.to_string())?;
        for _ in 0..4 {
            virtual_time::advance_to(now_ns() + 30_000_000);
            while process.workers.ready().next().is_some() {
                process.workers.turn(0, &mut |_| 0);
            }
        }
        let version = process.member.view().config.as_ref().map_or(0, |config| config.version);
        let applied = process.engine.replicated_log().map_or(0, |log| log.applied().index);
        process.workers.die();
        let stored = StateFile::new(Arc::new(disk.clone())).read().ok().flatten();
        let membership = stored.map_or(0, |stored| stored.state.membership_index);
        Ok((version, applied.max(membership)))
    }

    fn die_while_reconfiguring(&mut self) -> Result<(), String> {
        self.begin_with(self.config())?;
        self.go_on(2)?;
        let leader = self.leader().expect("it leads");
        let away = self.numbers().into_iter().find(|of| *of != leader);
        let mut config = self.config();
        config.version = 2;
        match self.dice.percent(50) {
            true => config.members.push(MemberConfig {
                votes: 0,
                priority: 0.0,
                ..MemberConfig::new(6, &host_of(7))
            }),
            false => config.settings.heartbeat_timeout_secs = 11,
        }
        if let Some(away) = away {
            self.lose(away);
        }
        let last = self.target_of(leader).expect("it runs");
        let last = last.engine.replicated_log().expect("a log").frames().last.index;
        let number = away.unwrap_or(leader);
        let first_event = self.nodes[&number].disk.events();
        self.ask(leader, Request::Reconfigure { config, force: false })?;
        self.go_on(1)?;
        self.nodes.get_mut(&number).expect("a member").down_until_ns = 0;
        self.until(10 * SECOND_NS, "it does not learn of it", |world| {
            let process = world.nodes[&number].process.as_ref();
            let config = process.and_then(|of| of.member.view().config.clone());
            config.is_some_and(|config| config.version == 2)
        })?;
        self.go_on(1)?;
        let disk = self.nodes[&number].disk.clone();
        for event in first_event..=disk.events() {
            let at = disk.process_death_at(event, usize::MAX);
            let (version, known) = self.knows_alone(number, &at)?;
            if known > last && version != 2 {
                return Err(format!("at event {event} it knows of {known}, and version {version}"));
            }
        }
        Ok(())
    }

    fn come_back_to_strangers(&mut self) -> Result<(), String> {
        self.begin_with(self.config())?;
        self.go_on(2)?;
        let leader = self.leader().expect("it leads");
        let others: Vec<u64> = self.numbers().into_iter().filter(|of| *of != leader).collect();
        self.lose(others[0]);
        let mut config = self.config();
        let mut change = |world: &mut World, of: &dyn Fn(&mut SetConfig)| {
            of(&mut config);
            config.version += 1;
            let asked = Request::Reconfigure { config: config.clone(), force: false };
            let asked = world.ask(leader, asked);
            asked.and_then(|()| world.go_on(4))
        };
        change(self, &|config| {
            let stranger = MemberConfig { priority: 5.0, ..MemberConfig::new(6, &host_of(7)) };
            config.members.push(stranger);
        })?;
        self.until(20 * SECOND_NS, "the stranger does not lead", |world| {
            world.leader() == Some(7)
        })?;
        let seq = self.write_on(7, 99)?;
        self.nodes.get_mut(&others[0]).expect("a member").down_until_ns = 0;
        self.lose(others[1]);
        self.all_serve(&[leader, 7, others[0]], seq, 2)
    }
}

fn session(id: i64) -> [u8; 16] {
    let mut session = [3; 16];
    session[..8].copy_from_slice(&id.to_le_bytes());
    session
}
