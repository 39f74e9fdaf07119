//! What a member does as a leader and as a follower, and what it tells of itself.

use super::*;
use kauri_replication::Change;

/// Entries that a member may lack when it begins to vote.
const CAUGHT_UP_WITHIN: u64 = 64;
/// For so long a member is well that was heard of.
const WELL_NS: u64 = 2_000_000_000;

impl Driver {
    /// Follows a change of the role. Whether consensus may have more to do.
    pub(super) fn look_at_role(&mut self) -> bool {
        let Some(consensus) = &self.consensus else { return false };
        let (role, was) = (consensus.role(), self.role);
        if role == Role::Leader && was != Role::Leader {
            let attr = Attr::new().num("term", consensus.term());
            log::info(
                "ELECTION",
                21_450,
                "member",
                "Election succeeded, assuming primary role",
                attr,
            );
        }
        self.role = role;
        if was == Role::Leader && role != Role::Leader {
            self.leave_leadership();
        }
        self.apply();
        if self.role == Role::Leader && !self.is_open {
            self.open_for_writes();
            return self.is_open;
        }
        false
    }

    /// A new leader accepts writes once everything in its log is applied, its own entry included.
    fn open_for_writes(&mut self) {
        let Some(consensus) = &self.consensus else { return };
        let term = consensus.term();
        let Ok(log) = self.log() else { return };
        let (last, applied) = (log.frames().last, log.applied());
        if applied != last || last.term != term || !self.may_open() || log.lead().is_err() {
            return;
        }
        self.is_open = true;
        self.has_caught_up = true;
        self.wants_to_lead = false;
        self.parts.member.acks().begin();
        if let (Some(consensus), Some(config)) = (&mut self.consensus, &self.config)
            && consensus.log().stored().is_forced
        {
            // If it is not possible now, the next start or reconfiguration tells them.
            let _ = consensus.propose_config(config.to_doc().as_doc().as_bytes());
        }
        if let Err(error) = self.parts.host.lead() {
            let attr = Attr::new().str("error", error.message());
            let message = "A new primary could not do its first work";
            log::warning("REPL", 6_400_003, "member", message, attr);
        }
        let time = self.applied.as_ref().map_or(0, |known| known.time);
        self.elected = Some((self.parts.clock.unix_ms(), to_time(time)));
        let attr = Attr::new().num("term", term);
        log::info(
            "REPL",
            21_331,
            "member",
            "Transition to primary complete; database writes are now permitted",
            attr,
        );
    }

    /// Whether this member may be the primary: arbiters and members of priority 0 only keep the log until another can
    /// lead. And a set that has no write yet begins with a majority of its members.
    fn may_open(&self) -> bool {
        let (Some(consensus), Some(config)) = (&self.consensus, &self.config) else { return false };
        let me = config.members.iter().find(|of| of.number() == self.number);
        if me.is_none_or(|of| of.is_arbiter || of.priority <= 0.0) {
            return false;
        }
        let last = self.applied.as_ref();
        let has_writes = last.is_some_and(|of| {
            of.seq.saturating_sub(self.base_seq) > of.entry.index.saturating_sub(BASE.index)
        });
        has_writes || consensus.membership().voters.len() >= config.majority()
    }

    /// The member leads no longer.
    pub(super) fn leave_leadership(&mut self) {
        self.role = Role::Follower;
        self.elected = None;
        self.source.clear();
        // One that is being written has nothing that could be cut off.
        self.checkpoint.take_if(|checkpoint| checkpoint.is_waiting());
        if std::mem::take(&mut self.is_open) {
            if let Ok(log) = self.log() {
                log.follow();
            }
            // Before anybody is told that a write has failed.
            self.publish();
            let attr = Attr::new();
            log::info(
                "REPL",
                21_358,
                "member",
                "Replica set state transition: it is not primary any more",
                attr,
            );
        }
        let why = || Error::new(ErrorCode::PrimarySteppedDown, "primary stepped down");
        self.parts.member.acks().end(why());
        for (_, _, asker) in self.proposed.drain(..) {
            asker.answer(Err(why()));
        }
        for (asker, _) in std::mem::take(&mut self.reads).into_values() {
            asker.answer(Err(why()));
        }
    }

    /// If the leader's process has ended, the election need not wait for its silence.
    pub(super) fn watch_leader(&mut self) {
        let leader = self.consensus.as_ref().and_then(Consensus::leader);
        for (number, state) in &mut self.peers {
            let (losses, fails) = state.peer.losses();
            if losses > state.losses && fails {
                state.losses = losses;
                if Some(*number) == leader
                    && let Some(consensus) = &mut self.consensus
                {
                    consensus.suspect_leader();
                }
            }
        }
    }

    /// What follows from what was done: acknowledgements, changes of the membership.
    pub(super) fn after(&mut self, now_ns: u64) {
        self.go_on_stepping_down(now_ns);
        if self.role == Role::Leader {
            self.follow_config();
        }
        if self.is_open {
            self.acknowledge();
            if now_ns.saturating_sub(self.last_proposal_ns) >= IDLE_NS {
                self.make_entry();
            }
        }
        self.pump();
    }

    /// An entry of nothing but its time.
    pub(super) fn make_entry(&mut self) {
        if self.stands_still() {
            return;
        }
        self.last_proposal_ns = monotonic_ns();
        if let Some(consensus) = self.consensus.as_mut().filter(|of| of.can_propose()) {
            let _ = consensus.propose_blank();
        }
    }

    /// Lets go of what has been acknowledged by as many members as it waits for.
    fn acknowledge(&mut self) {
        let (Some(consensus), Some(config)) = (&self.consensus, &self.config) else { return };
        let log = consensus.log();
        let seq_of = |index: u64| log.known(index).map_or(0, |known| known.seq);
        let own_last =
            (kauri_replication::Log::last(log), kauri_replication::Log::durable_last(log));
        let own = self.number;
        let seen = |of: &crate::config::MemberConfig| match of.delay_secs {
            0 => u64::MAX,
            // It acknowledges to clients what its readers see.
            _ => self.peers.get(&of.number()).map_or(0, |state| state.status.seen),
        };
        let reached: Vec<(&crate::config::MemberConfig, (u64, u64))> = config
            .members
            .iter()
            .filter(|of| !of.is_arbiter)
            .filter_map(|of| match of.number() == own {
                true => Some((of, own_last)),
                false => {
                    let (written, durable) = consensus.reached_by(of.number())?;
                    Some((of, (written.min(seen(of)), durable.min(seen(of)))))
                }
            })
            .collect();
        // A member that has more than what is committed has entries that may still be replaced.
        let committed = consensus.written_commit();
        let end = |durable: bool, (written, on_medium): (u64, u64)| {
            if durable { on_medium } else { written }.min(committed)
        };
        let (committed_seq, durable_seq) = (seq_of(committed), seq_of(consensus.durable_commit()));
        self.parts.member.acks().reach(|concern| match concern {
            Concern::Committed => committed_seq,
            Concern::Majority => durable_seq,
            Concern::Members { count, durable } => {
                let mut ends: Vec<u64> = reached.iter().map(|(_, at)| end(*durable, *at)).collect();
                ends.sort_unstable_by(|a, b| b.cmp(a));
                ends.get(count.saturating_sub(1)).map_or(0, |index| seq_of(*index))
            }
            Concern::Tagged { values, durable } => {
                let by_tag = values.iter().map(|(tag, count)| {
                    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
                    for (of, at) in &reached {
                        if let Some(value) = of.tags.get(tag) {
                            let known = ends.entry(value).or_default();
                            *known = (*known).max(end(*durable, *at));
                        }
                    }
                    let mut ends: Vec<u64> = ends.into_values().collect();
                    ends.sort_unstable_by(|a, b| b.cmp(a));
                    let at = usize::try_from(*count).unwrap_or(0).saturating_sub(1);
                    ends.get(at).copied().unwrap_or(0)
                });
                by_tag.min().map_or(0, seq_of)
            }
        });
    }

    /// Whether a member has the log, but for its last entries.
    fn has_log(&self, number: u64) -> bool {
        let Some(consensus) = &self.consensus else { return false };
        let log = consensus.log();
        let (first, last) = (kauri_replication::Log::first(log), kauri_replication::Log::last(log));
        consensus.reached_by(number).is_some_and(|(written, _)| {
            written > BASE.index && written + 1 >= first && written + CAUGHT_UP_WITHIN >= last
        })
    }

    /// Whether the set goes on with this change: of the voters that there are then, a majority is well now and has the
    /// log.
    fn goes_on_with(&self, change: Change) -> bool {
        let Some(consensus) = &self.consensus else { return false };
        let mut voters = consensus.membership().voters.clone();
        match change {
            Change::Voter(number) => voters.insert(number),
            Change::Learner(number) | Change::Removed(number) => voters.remove(&number),
        };
        if voters == consensus.membership().voters {
            return true;
        }
        let now_ns = monotonic_ns();
        let interval_ms =
            self.config.as_ref().map_or(0, |config| config.settings.heartbeat_interval_ms);
        let well_ns = WELL_NS.max(2 * interval_ms.max(0) as u64 * 1_000_000);
        let is_well = |number: &&u64| {
            let heard_ns = self.peers.get(number).map_or(0, |of| of.heard_ns);
            let is_heard = heard_ns > 0 && now_ns.saturating_sub(heard_ns) < well_ns;
            **number == self.number
                || is_heard && self.has_log(**number) && !self.wiped.contains(number)
        };
        2 * voters.iter().filter(is_well).count() > voters.len()
    }

    /// Changes the membership by one step towards the configuration. A member follows before it votes, until it has the
    /// log; so does a voter that has lost its log. Votes change only while a majority is well.
    fn follow_config(&mut self) {
        if self.stands_still() {
            return;
        }
        let (Some(consensus), Some(config)) = (&self.consensus, &self.config) else { return };
        let membership = consensus.membership();
        let mut wanted = None;
        for of in &config.members {
            let (number, votes) = (of.number(), of.votes > 0);
            let is_voter = membership.votes(number);
            let has_log = self.has_log(number);
            let change = match () {
                () if !membership.contains(number) => Change::Learner(number),
                () if is_voter && (!votes || self.wiped.contains(&number)) => {
                    Change::Learner(number)
                }
                () if votes && !is_voter && has_log => Change::Voter(number),
                () => continue,
            };
            if self.goes_on_with(change) {
                wanted.get_or_insert(change);
            }
        }
        let forgotten = consensus.log().stored().forgotten.first().copied();
        if let Some(number) = forgotten {
            // Others learn from the log that it is no voter any more; then it is removed.
            match consensus.membership().contains(number) {
                true => {
                    if let Some(consensus) = &mut self.consensus {
                        consensus.log_for_sync().note_known_again(number);
                    }
                }
                false => wanted = wanted.or(Some(Change::Learner(number))),
            }
        }
        let Some(consensus) = &self.consensus else { return };
        let membership = consensus.membership();
        let is_named = |number: &u64| config.members.iter().any(|of| of.number() == *number);
        let mut gone = membership.members().into_iter().filter(|number| !is_named(number));
        if let Some(gone) = gone.find(|number| self.goes_on_with(Change::Removed(*number))) {
            wanted.get_or_insert(Change::Removed(gone));
        }
        self.wiped.retain(|number| membership.votes(*number));
        if let (Some(change), Some(consensus)) = (wanted, &mut self.consensus) {
            // What is not possible now is at another time.
            let _ = consensus.change(&[change]);
        }
    }

    /// Answers whoever waited for what is done and published.
    pub(super) fn answer_waiting(&mut self) {
        let applied = self.applied.as_ref().map_or((0, 0), |of| (of.entry.index, of.time));
        // Consensus may know of more than it has given out, and what it gives out comes into force.
        let kept = self.kept;
        while let Some((index, term, _)) = self.proposed.front().filter(|of| of.0 <= kept) {
            let known = self
                .consensus
                .as_ref()
                .and_then(|of| kauri_replication::Log::term(of.log(), *index));
            let result = match known == Some(*term) {
                true => Ok(()),
                false => Err(Error::new(ErrorCode::PrimarySteppedDown, "primary stepped down")),
            };
            if let Some((_, _, asker)) = self.proposed.pop_front() {
                asker.answer(result);
            }
        }
        let ready: Vec<u64> = self
            .reads
            .iter()
            .filter(|(_, (_, index))| index.is_some_and(|index| index <= applied.0))
            .map(|(number, _)| *number)
            .collect();
        for number in ready {
            if let Some((asker, _)) = self.reads.remove(&number) {
                asker.answer(Ok(()));
            }
        }
        let mut later = Vec::new();
        for (time, asker) in std::mem::take(&mut self.reaching) {
            if time <= applied.1 { asker.answer(Ok(())) } else { later.push((time, asker)) }
        }
        self.reaching = later;
    }

    /// Tells commands what has changed.
    pub(super) fn publish(&mut self) {
        let member = &self.parts.member;
        let mut view = View { state: self.state(), config: self.config.clone(), ..View::default() };
        let place = |number: u64| {
            let config = self.config.as_ref()?;
            config.members.iter().position(|of| of.number() == number)
        };
        view.me = place(self.number);
        view.is_too_stale = self.is_stale;
        view.is_quiescing = member.view().is_quiescing;
        view.is_writable = self.is_open && self.stepping_down.is_none();
        if let Some(consensus) = &self.consensus {
            view.term = consensus.term() as i64;
            view.primary = match self.role {
                Role::Leader if self.is_open => place(self.number),
                Role::Leader => None,
                _ => consensus.leader().filter(|leader| *leader != self.number).and_then(place),
            };
        }
        view.elected = self.elected.filter(|_| self.is_open);
        member.publish(view);
        self.publish_progress();
    }

    fn publish_progress(&self) {
        let Some(consensus) = &self.consensus else { return };
        if let Ok(log) = self.log() {
            self.parts.member.log_place().note(log.committed().min(log.applied().index));
        }
        let log = consensus.log();
        let place = |index| log.known(index).as_ref().map(place_of).unwrap_or_default();
        let member = &self.parts.member;
        let progress = Progress {
            written: place(kauri_replication::Log::last(log)),
            durable: place(kauri_replication::Log::durable_last(log)),
            applied: self.applied.as_ref().map(place_of).unwrap_or_default(),
            committed: place(consensus.durable_commit()),
            first: self.first.1,
        };
        member.set_progress(progress);
        let last = match self.is_open {
            true => log.known(kauri_replication::Log::last(log)),
            false => self.applied.clone(),
        };
        if let Some(last) = last {
            let next = if self.is_open { log.next_time() } else { last.time + 1 };
            member.set_times(CommitSeq(last.seq), last.time, next);
        }
        let config = self.config.as_ref();
        let statuses = config.iter().flat_map(|config| config.members.iter().enumerate());
        member.set_peers(
            statuses
                .filter_map(|(at, of)| self.peers.get(&of.number()).map(|state| (at, state)))
                .map(|(at, state)| self.status_of(at, state))
                .collect(),
        );
    }

    fn status_of(&self, at: usize, of: &PeerState) -> PeerStatus {
        let is_down = self.is_down(of);
        PeerStatus {
            member: at,
            state: if is_down { MemberState::Down } else { of.status.state },
            heard_ms: of.heard_ms,
            answered_ms: of.answered_ms,
            up_since_ms: if is_down { 0 } else { of.up_since_ms },
            ping_us: of.ping_us,
            written: of.status.written,
            durable: of.status.durable,
            applied: of.status.applied,
            config: of.status.config,
            elected: of.status.elected,
            error: of.peer.error().unwrap_or_default(),
        }
    }

    /// Whether readers would see what the set may not keep: writes from when this member led.
    fn shows_too_much(&self) -> bool {
        let Some(consensus) = &self.consensus else { return true };
        let committed = consensus.log().known(consensus.written_commit());
        let seq = committed.map_or(self.base_seq, |known| known.seq);
        self.role != Role::Leader && self.parts.engine.visible().0 > seq
    }

    /// This member's state.
    pub(super) fn state(&self) -> MemberState {
        let Some(config) = &self.config else { return MemberState::Startup };
        let Some(me) = config.members.iter().find(|of| of.number() == self.number) else {
            return MemberState::Removed;
        };
        if self.is_over {
            return MemberState::Rollback;
        }
        match self.role {
            Role::Leader if self.is_open => MemberState::Primary,
            _ if self.joining.is_some() => MemberState::Startup2,
            _ if me.is_arbiter => MemberState::Arbiter,
            _ if self.maintenance > 0 || self.is_stale => MemberState::Recovering,
            _ if !self.has_caught_up => MemberState::Recovering,
            _ if self.parts.member.failure().is_some() => MemberState::Recovering,
            _ if self.consensus.is_none() || self.shows_too_much() => MemberState::Recovering,
            _ => MemberState::Secondary,
        }
    }
}
