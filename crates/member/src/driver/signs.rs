//! Signs of life, and invitations to members that are in no set yet.

use super::*;
use kauri_replication::HardState;

/// After this long without a sign of life a member may be one that is in no set.
const SILENT_NS: u64 = 1_000_000_000;

/// Bytes of a log, at most, that a new member reads rather than copy the engine's files.
const REPLAYED_BYTES: u64 = 64 << 20;

/// Seconds of silence after which a link is given up, again and again.
const LINK_SILENT_S: u64 = 3;

impl Driver {
    /// Whether nothing has been heard of a member for too long.
    pub(super) fn is_down(&self, of: &PeerState) -> bool {
        let limit =
            self.config.as_ref().map_or(10, |config| config.settings.heartbeat_timeout_secs);
        let limit_ns = limit.max(1) as u64 * 1_000_000_000;
        of.heard_ns > 0 && monotonic_ns().saturating_sub(of.heard_ns) > limit_ns
    }

    /// Tells all others of this member, at regular times, and while it stands still.
    pub(super) fn send_status(&mut self, now_ns: u64) {
        let Some(config) = &self.config else { return };
        if now_ns < self.status_ns {
            return;
        }
        let interval_ms = config.settings.heartbeat_interval_ms.max(1) as u64;
        self.status_ns = now_ns + interval_ms * 1_000_000;
        // Early enough that another way is found before an election is due.
        let election_ms = config.settings.election_timeout_ms.max(1) as u64;
        let quiet_ns = (election_ms / 2).max(2 * interval_ms) * 1_000_000;
        let progress = self.parts.member.progress();
        let first = self.log().map_or(0, |log| log.frames().purged.index + 1);
        for state in self.peers.values() {
            let silent_ns = now_ns.saturating_sub(state.heard_ns + interval_ms * 1_000_000);
            if state.heard_ns > 0 && silent_ns / SILENT_NS % LINK_SILENT_S == LINK_SILENT_S - 1 {
                // Perhaps the network is whole again, and this connection waits to send once more.
                state.peer.give_link_up();
            } else if state.heard_ns > 0 && silent_ns > quiet_ns {
                state.peer.note_silence();
            }
            let status = Status {
                set: set_number(config),
                from: self.number,
                state: self.state(),
                config: (config.version, config.term),
                written: progress.written,
                durable: progress.durable,
                applied: progress.applied,
                seen: self.applied.as_ref().map_or(0, |known| known.entry.index),
                first,
                sent_ns: now_ns,
                echo: (state.status.sent_ns, now_ns.saturating_sub(state.heard_ns)),
                is_held: self.is_held,
                wants_to_lead: self.wants_to_lead,
                elected: self.elected.filter(|_| self.is_open),
            };
            state.peer.send_bytes(message::encode_status(&status));
        }
        if self.role == Role::Leader {
            self.invite();
        }
    }

    /// A member that tells of no state may be in no set yet, or have lost its log.
    fn invite(&self) {
        let Some(consensus) = &self.consensus else { return };
        let (log, membership) = (consensus.log(), consensus.membership());
        let bytes = REPLAYED_BYTES.min(self.parts.log_bytes / 4);
        let is_short = self.log().is_ok_and(|log| log.frames_before(bytes) <= BASE.index);
        let is_whole = kauri_replication::Log::first(log) == BASE.index + 1;
        let copies = !is_whole || !is_short || self.base_seq > 0;
        for (number, state) in &self.peers {
            let silent_ns = monotonic_ns().saturating_sub(state.heard_ns);
            let is_new = silent_ns > SILENT_NS || state.status.state == MemberState::Startup;
            let votes = membership.votes(*number);
            // It is invited once the set has agreed that it follows, so that nothing depends on what it had.
            if !is_new || !membership.contains(*number) || membership.is_joint() {
                continue;
            }
            let invitation = Invitation {
                from: self.number,
                to: *number,
                votes,
                config: log.stored().config.clone(),
                origin: log.stored().origin,
                copies,
                term: consensus.term(),
                // All that it may have acknowledged in an earlier life, and that it votes no more.
                until: consensus.written_commit(),
            };
            state.peer.send_bytes(message::encode_invitation(&invitation));
        }
    }

    pub(super) fn take_status(&mut self, status: Status) {
        let Some(config) = &self.config else { return };
        if status.set != set_number(config) {
            return;
        }
        let (now_ns, now_ms) = (monotonic_ns(), self.parts.clock.unix_ms());
        let down_before = self.peers.get(&status.from).is_none_or(|of| self.is_down(of));
        let Some(state) = self.peers.get_mut(&status.from) else { return };
        if down_before || state.up_since_ms == 0 {
            state.up_since_ms = now_ms;
        }
        (state.heard_ns, state.heard_ms) = (now_ns, now_ms);
        let (echo, held) = status.echo;
        if echo > 0 {
            state.answered_ms = now_ms;
            state.ping_us = now_ns.saturating_sub(echo).saturating_sub(held) / 1000;
        }
        if status.state == MemberState::Startup
            && self.role == Role::Leader
            && let Some(consensus) = &mut self.consensus
            && consensus.membership().votes(status.from)
            && self.wiped.insert(status.from)
        {
            consensus.has_lost_its_log(status.from);
            let attr = Attr::new().num("member", status.from);
            let message =
                "A voting member has lost its data. It does not vote until it has the log again";
            log::warning("REPL", 6_400_008, "member", message, attr);
        }
        let (from, wants) = (status.from, status.wants_to_lead && status.may_take_over());
        let is_primary = status.state == MemberState::Primary;
        let (written, first) = (status.written.optime, status.first);
        state.status = status;
        if is_primary {
            self.look_at_source(from);
            self.look_whether_it_is_stale(first);
        }
        if is_primary && self.has_entry().is_some_and(|of| place_of(&of).optime >= written) {
            self.has_caught_up = true;
        }
        if wants
            && self.is_open
            && self.config.as_ref().is_some_and(|config| config.may_lead(from))
            && let Some(consensus) = &mut self.consensus
        {
            // Not possible now: the member asks again.
            let _ = consensus.hand_over(from);
        }
    }

    /// The primary's log begins with this entry: a member that lacks earlier ones cannot follow.
    fn look_whether_it_is_stale(&mut self, first: u64) {
        let Some(consensus) = &self.consensus else { return };
        let is_stale = kauri_replication::Log::last(consensus.log()) + 1 < first;
        if is_stale && !self.is_stale {
            let message = "We are too stale to catch up: the other members do not have the entries any more that this \
                           one lacks. Remove the contents of its data directory, then start it again: it copies \
                           another one's data";
            log::warning("REPL", 21_799, "member", message, Attr::new());
        }
        self.is_stale = is_stale;
    }

    /// The set counts this member among its voters, and it has no log: its disk was emptied.
    fn say_that_nothing_is_here(&mut self, invitation: &Invitation, config: &SetConfig) {
        let from = config.members.iter().find(|of| of.number() == invitation.from);
        let Some(from) = from else { return };
        let Parts { worker, dial, engine, .. } = &self.parts;
        let peer = self.inviter.take().filter(|peer| peer.host == from.host).unwrap_or_else(|| {
            Peer::open(worker, dial.clone(), engine.clone(), (invitation.to, &from.host))
        });
        let status = Status {
            set: set_number(config),
            from: invitation.to,
            state: MemberState::Startup,
            ..Status::default()
        };
        peer.send_bytes(message::encode_status(&status));
        self.inviter = Some(peer);
    }

    /// The leader hears nothing of this member, which may not know where the leader is: it came when this one was away.
    fn take_leaders_config(&mut self, invitation: &Invitation) {
        let (Some(known), Ok(config)) =
            (&self.config, SetConfig::parse(invitation.config.as_doc()))
        else {
            return;
        };
        let is_of_set = set_number(known) == set_number(&config);
        let names_both = [self.number, invitation.from]
            .iter()
            .all(|number| config.members.iter().any(|of| of.number() == *number));
        // A term that no leader has had would outrank every later configuration.
        let is_sound = config.validate().is_ok()
            && invitation.term <= u64::from(u32::MAX)
            && config.term <= invitation.term as i64;
        let is_for_me = invitation.to == self.number && is_of_set && names_both;
        if self.consensus.is_some() && is_for_me && is_sound {
            self.take_config(invitation.config.as_doc().as_bytes());
        }
    }

    /// A member that is in no set becomes part of one.
    pub(super) fn take_invitation(&mut self, invitation: Invitation) {
        if self.config.is_some() {
            return self.take_leaders_config(&invitation);
        }
        let Ok(config) = SetConfig::parse(invitation.config.as_doc()) else { return };
        if config.name != self.parts.member.set_name() {
            let attr = Attr::new().str("theirs", &config.name);
            let message = "Another set's member has invited this one: --replSet has another name";
            return log::warning("REPL", 6_400_004, "member", message, attr);
        }
        let is_named = |number| config.members.iter().any(|of| of.number() == number);
        let is_sound = config.validate().is_ok() && invitation.term <= u64::from(u32::MAX);
        if !is_sound || !is_named(invitation.to) || !is_named(invitation.from) {
            return;
        }
        if invitation.votes {
            return self.say_that_nothing_is_here(&invitation, &config);
        }
        let own = self.parts.engine.newest().map_or(0, |newest| newest.seq.0);
        if own > 0 {
            let attr = Attr::new().num("commits", own);
            let message = "This member has other data than the set that invites it: remove the contents of its data \
                           directory, then start it again";
            return log::warning("REPL", 6_400_005, "member", message, attr);
        }
        if invitation.copies {
            return self.begin_copying(&invitation, config);
        }
        let attr = Attr::new().str("setName", &config.name).num("member", invitation.to);
        self.inviter = None;
        // It does not know how it has voted in an earlier life. In the leader's term nobody else is elected.
        let (term, vote) = (invitation.term.max(BASE.term), invitation.from);
        let state = HardState { term, vote, ..HardState::default() };
        let origin = (invitation.origin, invitation.until);
        match self.begin(invitation.to, &invitation.config, origin, state) {
            Ok(()) => log::info("REPL", 6_400_006, "member", "The member is part of the set", attr),
            Err(error) => {
                let attr = attr.str("error", error.message());
                log::warning("REPL", 6_400_007, "member", "The member cannot join the set", attr);
            }
        }
    }
}
