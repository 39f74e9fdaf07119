//! What commands ask for.

use super::*;
use kauri_bson::DocBuf;
use kauri_replication::{HardState, Membership};

/// How long a member that is about to end does not lead again.
const LEFT_FROZEN: Duration = Duration::from_secs(60);
/// How long a member that had no room for a write does not lead again.
const WITHOUT_ROOM_FROZEN: Duration = Duration::from_secs(10);
/// How long it waits for another one to have everything.
const CATCH_UP_FOR_ROOM: Duration = Duration::from_secs(1);
/// How long a member that had no room gives no copies.
const NO_COPIES_NS: u64 = 60_000_000_000;
/// Reads that wait for a time, at most.
const REACHING_MAX: usize = 10_000;

/// A step-down under way: the engine accepts no writes, and another member catches up.
pub(super) struct StepDown {
    asker: Option<Asker>,
    until_ns: u64,
    frozen: Duration,
    is_forced: bool,
    /// Whether the leadership is being handed over.
    is_handing_over: bool,
}

fn refused(code: ErrorCode, message: &str) -> Result<()> {
    Err(Error::new(code, message))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Driver {
    pub(super) fn take_request(&mut self, request: Request, asker: Asker) {
        let result = match request {
            Request::Initiate(config) => self.initiate(config),
            Request::Reconfigure { config, force } => {
                return self.reconfigure(config, force, asker);
            }
            Request::StepDown { time, catch_up, force } => {
                return self.begin_stepping_down(time, catch_up, force, asker);
            }
            Request::StepUp => self.step_up(),
            Request::HandOver => {
                self.hand_over_for_room();
                Ok(())
            }
            Request::Freeze(time) => self.freeze(time),
            Request::Maintenance(is_on) => self.maintain(is_on),
            Request::Hold => self.hold(),
            Request::ConfirmPrimary => return self.confirm(asker),
            Request::Reach(time) => return self.reach(time, asker),
        };
        asker.answer(result);
    }

    fn initiate(&mut self, config: SetConfig) -> Result<()> {
        if self.config.is_some() {
            return refused(ErrorCode::AlreadyInitialized, "already initialized");
        }
        let own = config.members.iter().find(|of| self.parts.host.is_self(&of.host));
        let Some(own) = own.map(crate::config::MemberConfig::number) else {
            let message = "No host described in new configuration maps to this node";
            return refused(ErrorCode::NodeNotFound, message);
        };
        let state = HardState { term: BASE.term, ..HardState::default() };
        let origin = (own, 0);
        self.begin(own, &config.to_doc(), origin, state)?;
        let attr = Attr::new().str("setName", &config.name);
        log::info("REPL", 21_356, "member", "replSetInitiate: the set begins", attr);
        Ok(())
    }

    /// The member becomes part of the set that member `origin` began alone, and elects nobody until it has an entry.
    pub(super) fn begin(
        &mut self,
        number: u64,
        config: &DocBuf,
        (origin, until): (u64, u64),
        state: HardState,
    ) -> Result<()> {
        let state = HardState {
            commit: BASE.index,
            membership_index: BASE.index,
            membership: Membership::of([origin]),
            // Above those of an earlier life, if its disk was emptied.
            boot: self.parts.clock.unix_ms().max(0) as u64,
            ..state
        };
        let machine_run = self.parts.host.machine_run();
        let config = config.clone();
        let seen = BASE.index;
        let (is_forced, forgotten, leaving) = (false, BTreeSet::new(), BTreeMap::new());
        let stored = Stored {
            number,
            origin,
            until,
            config,
            seen,
            is_forced,
            forgotten,
            leaving,
            state,
            machine_run,
        };
        self.file.write(&stored)?;
        self.tick_ns = monotonic_ns();
        let started = self.start(stored);
        if started.is_err() {
            self.consensus = None;
            self.file.remove()?;
        }
        started
    }

    fn reconfigure(&mut self, config: SetConfig, force: bool, asker: Asker) {
        if force && !self.is_open {
            return asker.answer(self.force_config(config));
        }
        if self.stands_still() {
            let message = "the files of this member are locked by fsync";
            return asker.answer(refused(ErrorCode::LockBusy, message));
        }
        let Some(consensus) = self.consensus.as_mut().filter(|_| self.is_open) else {
            let message = "New config can only be proposed by a primary";
            return asker.answer(refused(ErrorCode::NotWritablePrimary, message));
        };
        let config = SetConfig { term: consensus.term() as i64, ..config };
        if !self.proposed.is_empty() {
            let message = "another configuration is being proposed";
            return asker.answer(refused(ErrorCode::ConfigurationInProgress, message));
        }
        // Another one may have come into force since the command looked.
        let follows = self.config.as_ref().map_or(Ok(()), |old| config.check_successor(old, force));
        if follows.is_err() {
            return asker.answer(follows);
        }
        match consensus.propose_config(config.to_doc().as_doc().as_bytes()) {
            Ok((index, term)) => self.proposed.push_back((index, term, asker)),
            Err(error) => {
                let error = error.to_string();
                asker.answer(refused(ErrorCode::ConfigurationInProgress, &error));
            }
        }
    }

    /// The majority is lost: this member goes on as the only voter. What is in its log counts as kept, and nothing else.
    /// The configuration's other members follow once they answer, and vote once they have the log.
    fn force_config(&mut self, config: SetConfig) -> Result<()> {
        let me = config.members.iter().find(|of| of.number() == self.number);
        if me.is_none_or(|me| me.votes == 0 || me.priority <= 0.0) {
            let message = "a forced reconfiguration goes to a member that votes and has a priority: it leads first";
            return refused(ErrorCode::NodeNotElectable, message);
        }
        let Some(consensus) = &self.consensus else {
            return refused(
                ErrorCode::NotYetInitialized,
                "the member takes no part in the set now",
            );
        };
        let is_primary =
            |of: &PeerState| of.status.state == MemberState::Primary && !self.is_down(of);
        if consensus.leader().is_some() || self.peers.values().any(is_primary) {
            let message = "the set has a primary: send the configuration there. Force is for a set that has lost the \
                           majority of its members";
            return refused(ErrorCode::ConfigurationInProgress, message);
        }
        if self.is_joining() || self.is_stale {
            let message = "this member lacks a part of the log: force another one";
            return refused(ErrorCode::NodeNotElectable, message);
        }
        let before = consensus.membership().members();
        let mut stored = consensus.log().stored().clone();
        let last = kauri_replication::Log::last(consensus.log());
        stored.state = HardState {
            term: stored.state.term + 1,
            vote: self.number,
            commit: last,
            membership_index: last,
            membership: Membership::of([self.number]),
            ..stored.state
        };
        let config = SetConfig { term: stored.state.term as i64, ..config };
        (stored.config, stored.seen, stored.until) = (config.to_doc(), last, 0);
        let is_named = |number: &u64| config.members.iter().any(|of| of.number() == *number);
        stored.is_forced = true;
        stored.forgotten.extend(before.into_iter().filter(|number| !is_named(number)));
        self.parts.engine.sync()?;
        self.file.write(&stored)?;
        let attr = Attr::new().num("version", config.version).num("members", config.members.len());
        let message = "Forced reconfiguration: this member goes on without the others' votes. Writes that only they have \
                       are lost; before one of them comes back, the contents of its data directory are to be removed";
        log::warning("REPL", 6_400_016, "member", message, attr);
        self.leave_leadership();
        self.consensus = None;
        let started = self.start(stored);
        if let Err(error) = &started {
            self.stand_still(error.message());
        }
        started
    }

    fn begin_stepping_down(
        &mut self,
        time: Duration,
        catch_up: Duration,
        force: bool,
        asker: Asker,
    ) {
        if !self.is_open {
            let message = "not primary so can't step down";
            return asker.answer(refused(ErrorCode::NotWritablePrimary, message));
        }
        if self.stepping_down.is_some() {
            let message = "already in the process of stepping down";
            return asker.answer(refused(ErrorCode::ConflictingOperationInProgress, message));
        }
        self.step_down_for(time, catch_up, force, Some(asker));
    }

    fn step_down_for(
        &mut self,
        time: Duration,
        catch_up: Duration,
        force: bool,
        asker: Option<Asker>,
    ) {
        self.stepping_down = Some(StepDown {
            asker,
            until_ns: monotonic_ns().saturating_add(nanos(catch_up)),
            frozen: time,
            is_forced: force,
            is_handing_over: false,
        });
        self.publish();
        self.pump();
        // Whatever is committed has its frame before another member takes over.
        if let Ok(log) = self.log() {
            log.follow();
        }
        self.close_frames_now();
        self.pump();
    }

    /// A primary whose process is about to end hands over.
    pub(super) fn leave_before_the_end(&mut self) {
        let Some(ends_ms) = self.parts.member.quiesce_ends() else { return };
        if !self.is_open || self.stepping_down.is_some() {
            return;
        }
        let left_ms = ends_ms.saturating_sub(self.parts.clock.unix_ms()).max(0) as u64;
        self.step_down_for(LEFT_FROZEN, Duration::from_millis(left_ms / 2), true, None);
    }

    /// Another member, which is well, leads instead of this one, whose disk is full.
    fn hand_over_for_room(&mut self) {
        // Copies keep space from being used again.
        self.source.clear();
        self.no_copies_until_ns = monotonic_ns() + NO_COPIES_NS;
        if !self.is_open || self.stepping_down.is_some() || self.successor().is_none() {
            return self.parts.member.cannot_hand_over();
        }
        let message = "There is no room for a write. Another member is to lead. Make room on this member's disk";
        log::warning("REPL", 6_400_012, "member", message, Attr::new());
        self.step_down_for(WITHOUT_ROOM_FROZEN, CATCH_UP_FOR_ROOM, false, None);
    }

    pub(super) fn go_on_stepping_down(&mut self, now_ns: u64) {
        let Some(mut step) = self.stepping_down.take() else { return };
        if self.role != Role::Leader {
            self.freeze_until(now_ns.saturating_add(nanos(step.frozen)));
            step.asker.into_iter().for_each(|asker| asker.answer(Ok(())));
            return;
        }
        let is_late = now_ns >= step.until_ns;
        // The successor has not answered: another one may.
        step.is_handing_over &= self.consensus.as_ref().is_some_and(|of| !of.can_propose());
        if is_late && step.is_forced {
            if let Some(consensus) = &mut self.consensus {
                consensus.step_down();
            }
            self.stepping_down = Some(step);
            self.look_at_role();
            return;
        }
        if is_late {
            let reopened = self.log().is_ok_and(|log| log.lead().is_ok());
            if !reopened {
                self.stepping_down = Some(step);
                return;
            }
            let message = "No electable secondaries caught up. Please use the replSetStepDown command with the \
                           argument {force: true} to force node to step down.";
            let refused = refused(ErrorCode::ExceededTimeLimit, message);
            step.asker.into_iter().for_each(|asker| asker.answer(refused.clone()));
            return;
        }
        if !step.is_handing_over
            && let Some(to) = self.successor()
            && let Some(consensus) = &mut self.consensus
        {
            step.is_handing_over = consensus.hand_over(to).is_ok();
        }
        self.stepping_down = Some(step);
    }

    /// The voter that may lead, is well, and has most of the log.
    fn successor(&self) -> Option<u64> {
        let (consensus, config) = (self.consensus.as_ref()?, self.config.as_ref()?);
        let can = config
            .members
            .iter()
            .filter(|of| of.votes > 0 && of.priority > 0.0 && of.number() != self.number);
        let is_well = |of: &PeerState| of.status.may_take_over() && !self.is_down(of);
        let heard = can.filter(|of| self.peers.get(&of.number()).is_some_and(is_well));
        let reached =
            heard.filter_map(|of| Some((consensus.reached_by(of.number())?.0, of.number())));
        reached.max().map(|(_, number)| number)
    }

    fn step_up(&mut self) -> Result<()> {
        let Some(config) = &self.config else {
            return refused(ErrorCode::NotYetInitialized, "no replset config has been received");
        };
        if !config.may_lead(self.number) {
            return refused(ErrorCode::CommandFailed, "Election failed.");
        }
        if self.stands_still() {
            let message = "the files of this member are locked by fsync";
            return refused(ErrorCode::LockBusy, message);
        }
        // Told to the leader with the next sign of life.
        self.wants_to_lead = !self.is_open;
        self.freeze_until(0);
        self.status_ns = 0;
        Ok(())
    }

    fn freeze(&mut self, time: Duration) -> Result<()> {
        if self.config.is_none() {
            return refused(ErrorCode::NotYetInitialized, "no replset config has been received");
        }
        if self.is_open {
            let message = "cannot freeze node when primary or running for election. state: Primary";
            return refused(ErrorCode::NotSecondary, message);
        }
        self.freeze_until(match time.is_zero() {
            true => 0,
            false => monotonic_ns().saturating_add(nanos(time)),
        });
        Ok(())
    }

    fn freeze_until(&mut self, until_ns: u64) {
        self.frozen_until_ns = until_ns;
        self.set_frozen();
    }

    /// A member does not stand while it is frozen, nor before it has the log that it began for.
    pub(super) fn set_frozen(&mut self) {
        let is_frozen = self.frozen_until_ns > 0 || self.is_held || self.is_joining();
        if let Some(consensus) = &mut self.consensus {
            consensus.set_frozen(is_frozen);
        }
    }

    /// Whether the member's view of the membership is older than its beginning.
    pub(super) fn is_joining(&self) -> bool {
        let until = self.consensus.as_ref().map_or(0, |of| of.log().stored().until);
        self.has_entry().map_or(0, |known| known.entry.index) < until
    }

    fn maintain(&mut self, is_on: bool) -> Result<()> {
        if self.config.is_none() {
            return refused(ErrorCode::NotYetInitialized, "no replset config has been received");
        }
        if self.is_open {
            return refused(ErrorCode::NotSecondary, "primaries can't modify maintenance mode");
        }
        // It is left as often as it was entered.
        let after = match is_on {
            true => self.maintenance.checked_add(1),
            false => self.maintenance.checked_sub(1),
        };
        let Some(after) = after else {
            return refused(ErrorCode::OperationFailed, "already out of maintenance mode");
        };
        self.maintenance = after;
        Ok(())
    }

    fn confirm(&mut self, asker: Asker) {
        let number = self.next_read;
        self.next_read += 1;
        let asked = match &mut self.consensus {
            Some(consensus) if self.is_open => consensus.read(number).is_ok(),
            _ => false,
        };
        match asked {
            true => drop(self.reads.insert(number, (asker, None))),
            false => asker.answer(refused(ErrorCode::NotWritablePrimary, "not primary")),
        }
    }

    fn reach(&mut self, time: Timestamp, asker: Asker) {
        let time = u64::from(time.seconds) << 32 | u64::from(time.increment);
        let applied = self.applied.as_ref().map_or(0, |known| known.time);
        if time <= applied {
            return asker.answer(Ok(()));
        }
        if self.reaching.len() >= REACHING_MAX {
            let message = "too many reads wait for their time";
            return asker.answer(refused(ErrorCode::ExceededMemoryLimit, message));
        }
        if self.is_open
            && let Some(consensus) = &mut self.consensus
        {
            consensus.log_for_sync().advance_time(time);
            self.make_entry();
        }
        self.reaching.push((time, asker));
    }
}
