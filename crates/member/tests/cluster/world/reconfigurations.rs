//! Changes of the configuration during a run: what is proposed, and what has to be true of it.
//!
//! Whoever is named has a node as soon as a member knows of that. Whoever is removed goes on running.

use super::*;
use crate::client::within;
use kauri_replication::Membership;
use std::collections::BTreeSet;
use std::time::Duration;

/// Numbers that data members may have, and those of arbiters.
const DATA: std::ops::RangeInclusive<u64> = 1..=7;
const ARBITERS: std::ops::RangeInclusive<u64> = 8..=9;
/// Members of a configuration, unless it begins with more.
const NAMED_MAX: usize = 5;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a quiet set may elect another leader: somebody may have a higher priority, or have asked for it.
const LATE_ELECTIONS_MAX: i64 = 2;

/// What clients know of changes.
#[derive(Default)]
pub struct Changes {
    /// By version.
    acknowledged: Mutex<BTreeMap<i64, SetConfig>>,
    /// Members that were removed.
    former: Mutex<BTreeSet<u64>>,
    /// Proposals without an answer.
    open: AtomicU64,
    /// A voter has lost its log: who takes another one's vote away now leaves no majority with the log.
    have_to_wait: AtomicBool,
}

impl Changes {
    /// Nobody proposes anything until all are well again.
    pub fn wait(&self) {
        self.have_to_wait.store(true, Ordering::Relaxed);
    }

    /// Whether the membership is what the configuration says, and nobody has proposed another one.
    pub fn are_over(&self, config: &SetConfig, membership: &Membership) -> bool {
        let voters = config.members.iter().filter(|of| of.is_voter()).map(MemberConfig::number);
        self.open.load(Ordering::Relaxed) == 0
            && voters.collect::<BTreeSet<_>>() == membership.voters
    }
}

/// A change, as its proposal counts it.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Added,
    Removed,
    Arbiter,
    Votes,
    Hidden,
    Priority,
}

/// Another configuration than this one, which the member at `me` leads.
fn draw(config: &SetConfig, me: usize, dice: &Dice) -> Option<(Kind, SetConfig)> {
    let mut next = config.clone();
    next.version += 1;
    let named = |number: u64| config.members.iter().any(|of| of.number() == number);
    let others: Vec<usize> = (0..config.members.len()).filter(|at| *at != me).collect();
    let data: Vec<usize> =
        others.iter().copied().filter(|at| !config.members[*at].is_arbiter).collect();
    let kind = match dice.below(8) {
        0 | 1 if config.members.len() < NAMED_MAX => {
            let free: Vec<u64> = DATA.filter(|number| !named(*number)).collect();
            let number = *dice.pick(&free)?;
            next.members.push(MemberConfig::new((number - 1) as u8, &host_of(number)));
            Kind::Added
        }
        0..=2 => {
            next.members.remove(*dice.pick(&others)?);
            Kind::Removed
        }
        3 => {
            let arbiter = others.iter().copied().find(|at| config.members[*at].is_arbiter);
            match arbiter {
                Some(at) => drop(next.members.remove(at)),
                None => {
                    let number = *dice.pick(&ARBITERS.collect::<Vec<u64>>())?;
                    next.members.push(MemberConfig {
                        is_arbiter: true,
                        priority: 0.0,
                        ..MemberConfig::new((number - 1) as u8, &host_of(number))
                    });
                }
            }
            Kind::Arbiter
        }
        4 | 5 => {
            let of = &mut next.members[*dice.pick(&data)?];
            of.votes = 1 - of.votes;
            (of.priority, of.is_hidden) = (f64::from(of.votes), false);
            Kind::Votes
        }
        6 => {
            let of = &mut next.members[*dice.pick(&data)?];
            of.is_hidden = !of.is_hidden;
            of.priority = if of.is_hidden { 0.0 } else { f64::from(of.votes) };
            Kind::Hidden
        }
        _ => {
            let of = &mut next.members[*dice.pick(&data)?];
            of.priority = if of.priority > 1.0 { 1.0 } else { 2.0 * f64::from(of.votes) };
            of.is_hidden = false;
            Kind::Priority
        }
    };
    let is_sound = next.validate().is_ok() && next.check_successor(config, false).is_ok();
    is_sound.then_some((kind, next))
}

/// A proposal that is on its way.
struct Proposal {
    kind: Kind,
    config: SetConfig,
    answer: kauri_member::Answer,
}

fn propose(shared: &Shared, target: &Target, dice: &Dice) -> Option<Proposal> {
    if shared.changes.have_to_wait.load(Ordering::Relaxed) {
        return None;
    }
    let view = target.member.view();
    let (config, me) = (view.config.clone()?, view.me?);
    let (kind, config) = draw(&config, me, dice)?;
    let request = Request::Reconfigure { config: config.clone(), force: false };
    let answer = target.member.request(request);
    shared.changes.open.fetch_add(1, Ordering::Relaxed);
    Some(Proposal { kind, config, answer })
}

/// Whether it was acknowledged.
async fn finish(shared: &Shared, worker: &WorkerHandle, proposal: Proposal) -> bool {
    let Proposal { kind, config, answer } = proposal;
    let answer = within(worker, PATIENCE, answer).await;
    shared.changes.open.fetch_sub(1, Ordering::Relaxed);
    if !matches!(answer, Some(Ok(()))) {
        shared.count(|counts| counts.unfinished += 1);
        return false;
    }
    let named: BTreeSet<u64> = config.members.iter().map(MemberConfig::number).collect();
    let mut former = shared.changes.former.lock().unwrap();
    let returned = former.extract_if(.., |number| named.contains(number)).count() as u64;
    let mut acknowledged = shared.changes.acknowledged.lock().unwrap();
    if let Some((_, before)) = acknowledged.range(..config.version).next_back() {
        let gone = before.members.iter().map(MemberConfig::number);
        former.extend(gone.filter(|number| !named.contains(number)));
    }
    let version = config.version;
    let other = acknowledged.insert(version, config.clone());
    if other.is_some_and(|other| other != config) {
        shared.fault(format!("two configurations of version {version} are acknowledged"));
    }
    shared.count(|counts| {
        counts.returned += returned;
        match kind {
            Kind::Added => counts.added += 1,
            Kind::Removed => counts.removed += 1,
            Kind::Arbiter => counts.arbiters += 1,
            Kind::Votes => counts.votes += 1,
            Kind::Hidden => counts.hidden += 1,
            Kind::Priority => counts.priorities += 1,
        }
    });
    true
}

/// Now and then somebody wants another configuration; or two want different ones at the same time.
pub async fn reconfigure(shared: Arc<Shared>, worker: WorkerHandle, dice: Dice) {
    while !shared.is_healing.load(Ordering::Relaxed) {
        worker.sleep(Duration::from_millis(100 + dice.below(2_000))).await;
        let Some(target) = shared.target(&dice).filter(|of| of.member.is_writable()) else {
            continue;
        };
        let Some(one) = propose(&shared, &target, &dice) else { continue };
        let other = if dice.percent(30) { propose(&shared, &target, &dice) } else { None };
        let compete = other.as_ref().is_some_and(|other| other.config != one.config);
        let one = finish(&shared, &worker, one).await;
        if let Some(other) = other {
            let other = finish(&shared, &worker, other).await;
            shared.count(|counts| counts.competing += u64::from(compete && (one || other)));
        }
    }
}

/// What happens to a leader after a few turns.
pub struct Doom {
    number: u64,
    turn: u64,
    is_cut_off: bool,
    loses_power: bool,
}

impl World {
    /// Looks at who leads, and at whom members name.
    pub(super) fn watch(&mut self) -> Result<(), String> {
        if let Some(doom) = self.doom.take_if(|doom| doom.turn <= self.turns) {
            self.meet(&doom);
        }
        for (number, node) in &self.nodes {
            let Some(process) = &node.process else { continue };
            let member = &process.member;
            if member.is_primary() {
                let view = member.view();
                let first = *self.leaders.entry(view.term).or_insert(*number);
                if view.state == MemberState::Primary && first != *number {
                    return Err(format!("{first} and {number} lead in term {}", view.term));
                }
            }
            let topology = member.view().topology;
            if node.topology != topology
                && let Some(config) = &member.view().config
                && (config.term, config.version) > (self.newest.term, self.newest.version)
            {
                self.newest = (**config).clone();
            }
        }
        for node in self.nodes.values_mut() {
            node.topology = node.process.as_ref().map_or(-1, |of| of.member.view().topology);
        }
        let is_well = |number: &u64| {
            let process = self.nodes.get(number).and_then(|node| node.process.as_ref());
            process.is_some_and(|of| {
                let (state, _) = of.member.standing();
                let follows = matches!(state, MemberState::Secondary | MemberState::Arbiter);
                follows || state == MemberState::Primary
            })
        };
        let have_to_wait = &self.shared.changes.have_to_wait;
        if have_to_wait.load(Ordering::Relaxed) && self.named().iter().all(is_well) {
            have_to_wait.store(false, Ordering::Relaxed);
        }
        let fresh: Vec<u64> =
            self.named().into_iter().filter(|number| !self.nodes.contains_key(number)).collect();
        for number in fresh {
            let disk = Emulator::new(draw_disk(&self.dice));
            let down_until_ns = now_ns() + self.dice.below(SECOND_NS);
            self.nodes.insert(number, Node { down_until_ns, ..Node::new(disk) });
        }
        Ok(())
    }

    /// The members that the newest configuration names.
    pub(super) fn named(&self) -> Vec<u64> {
        self.newest.members.iter().map(MemberConfig::number).collect()
    }

    /// Those that have data.
    pub(super) fn with_data(&self) -> Vec<u64> {
        let data = self.newest.members.iter().filter(|of| !of.is_arbiter);
        data.map(MemberConfig::number).collect()
    }

    /// The membership that a member's state file has.
    pub(super) fn membership(&self, number: u64) -> Option<Membership> {
        let disk = self.nodes.get(&number)?.disk.clone();
        let stored = StateFile::new(Arc::new(disk)).read().ok()??;
        Some(stored.state.membership)
    }

    /// A leader is asked for another configuration, and is cut off or dies before it can tell everybody.
    pub(super) fn doom_a_leader(&mut self) {
        let Some(number) = self.leader().filter(|_| self.doom.is_none()) else { return };
        let target = self.target_of(number).expect("it runs");
        let Some(proposal) = propose(&self.shared, &target, &self.dice) else { return };
        let (shared, worker) = (self.shared.clone(), self.clients.executor().workers()[0].clone());
        let on = worker.clone();
        worker.spawn(async move {
            finish(&shared, &on, proposal).await;
        });
        self.doom = Some(Doom {
            number,
            turn: self.turns + self.dice.below(40),
            is_cut_off: self.dice.percent(60),
            loses_power: self.dice.percent(50),
        });
    }

    fn meet(&mut self, doom: &Doom) {
        let long = now_ns() + self.dice.below(4 * SECOND_NS);
        self.shared.count(|counts| counts.doomed += 1);
        if doom.is_cut_off {
            let others = self.numbers().into_iter().filter(|of| *of != doom.number).collect();
            self.wire.network.lock().unwrap().partition(&[vec![doom.number], others]);
        } else {
            self.kill(doom.number, doom.loses_power);
            self.nodes.get_mut(&doom.number).expect("a member").down_until_ns = long;
        }
    }

    /// The set has become what its configuration says, all its members know that, and nobody disturbs it.
    pub(super) fn agree(&mut self) -> Result<(), String> {
        self.until(HEALING_NS, "the membership is not that of the configuration", |world| {
            let votes = |of: &&MemberConfig| of.is_voter();
            let number = |of: &MemberConfig| of.number();
            let voters = world.newest.members.iter().filter(votes).map(number);
            let learners = world.newest.members.iter().filter(|of| !votes(of)).map(number);
            let wanted = Membership { learners: learners.collect(), ..Membership::of(voters) };
            world.named().into_iter().all(|number| {
                let process = world.nodes[&number].process.as_ref();
                let config = process.and_then(|of| of.member.view().config.clone());
                config.is_some_and(|config| *config == world.newest)
                    && world.membership(number).as_ref() == Some(&wanted)
            })
        })?;
        let acknowledged = self.shared.changes.acknowledged.lock().unwrap().clone();
        if let Some((version, config)) = acknowledged.last_key_value() {
            let is_same = SetConfig { term: config.term, ..self.newest.clone() } == *config;
            if *version > self.newest.version || (*version == self.newest.version && !is_same) {
                return Err(format!("{config:?} was acknowledged, and there is {:?}", self.newest));
            }
        }
        Ok(())
    }

    /// A set without faults keeps its leader, sooner or later.
    pub(super) fn be_quiet(&mut self) -> Result<(), String> {
        // What was asked for before may take its time.
        self.elects_rarely().or_else(|_| self.elects_rarely())
    }

    fn elects_rarely(&mut self) -> Result<(), String> {
        let term = |world: &World| {
            let leader = world.leader()?;
            Some(world.nodes[&leader].process.as_ref()?.member.view().term)
        };
        self.until(2 * SECOND_NS, "nobody leads", |world| world.leader().is_some())?;
        let before = term(self).unwrap_or_default();
        let end = now_ns() + 4 * SECOND_NS;
        while now_ns() < end {
            self.turn()?;
        }
        self.until(2 * SECOND_NS, "the leader is gone", |world| world.leader().is_some())?;
        let after = term(self).unwrap_or_default();
        if before == 0 || after > before + LATE_ELECTIONS_MAX {
            return Err(format!("elections: from term {before} to {after}: {}", self.describe()));
        }
        Ok(())
    }
}
