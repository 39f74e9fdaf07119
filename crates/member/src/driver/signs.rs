//! Signs of life, and invitations to members that are in no set yet.

use super::*;
use kauri_replication::Membership;

impl Driver {
    /// Whether nothing has been heard of a member for too long.
    pub(super) fn is_down(&self, of: &PeerState) -> bool {
        let limit =
            self.config.as_ref().map_or(10, |config| config.settings.heartbeat_timeout_secs);
        let limit_ns = limit.max(1) as u64 * 1_000_000_000;
        of.heard_ns > 0 && monotonic_ns().saturating_sub(of.heard_ns) > limit_ns
    }

    /// Tells all others of this member, at regular times.
    pub(super) fn send_status(&mut self, now_ns: u64) {
        let (Some(config), Some(consensus)) = (&self.config, &self.consensus) else { return };
        if now_ns < self.status_ns {
            return;
        }
        let interval_ms = config.settings.heartbeat_interval_ms.max(1) as u64;
        self.status_ns = now_ns + interval_ms * 1_000_000;
        let progress = self.parts.member.progress();
        for state in self.peers.values() {
            let status = Status {
                set: set_number(config),
                from: self.number,
                state: self.state(),
                config: (config.version, config.term),
                written: progress.written,
                durable: progress.durable,
                sent_ns: now_ns,
                echo: (state.status.sent_ns, now_ns.saturating_sub(state.heard_ns)),
                wants_to_lead: self.wants_to_lead,
            };
            state.peer.send_bytes(message::encode_status(&status));
        }
        // Until a member answers it may be one that has not begun.
        let began = self.role == Role::Leader || consensus.leader().is_none();
        for (number, state) in self.peers.iter().filter(|(_, state)| state.heard_ns == 0 && began) {
            let log = consensus.log();
            let membership = consensus.membership();
            let invitation = Invitation {
                to: *number,
                config: log.stored().config.clone(),
                voters: membership.voters.iter().copied().collect(),
                learners: membership.learners.iter().copied().collect(),
                base: (BASE, 0),
            };
            // Later members begin as the first ones, and read the whole log.
            if kauri_replication::Log::first(log) == BASE.index + 1 && !membership.is_joint() {
                state.peer.send_bytes(message::encode_invitation(&invitation));
            }
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
        let (from, wants, is_primary) =
            (status.from, status.wants_to_lead, status.state == MemberState::Primary);
        let written = status.written.optime;
        state.status = status;
        if is_primary && self.applied.as_ref().is_some_and(|of| place_of(of).optime >= written) {
            self.has_caught_up = true;
        }
        if wants
            && self.is_open
            && let Some(consensus) = &mut self.consensus
        {
            // Not possible now: the member asks again.
            let _ = consensus.hand_over(from);
        }
    }

    /// A member that is in no set becomes part of one.
    pub(super) fn take_invitation(&mut self, invitation: Invitation) {
        if self.config.is_some() {
            return;
        }
        let Ok(config) = SetConfig::parse(invitation.config.as_doc()) else { return };
        if config.name != self.parts.member.set_name() {
            let attr = Attr::new().str("theirs", &config.name);
            let message = "Another set's member has invited this one: --replSet has another name";
            return log::warning("REPL", 6_400_004, "member", message, attr);
        }
        let own = self.parts.engine.newest().map_or(0, |newest| newest.seq.0);
        if (invitation.base.0, invitation.base.1) != (BASE, own) {
            let attr = Attr::new().num("commits", own).num("theirs", invitation.base.1);
            let message = "This member has other data than the set that invites it: remove the contents of its data \
                           directory, then start it again";
            return log::warning("REPL", 6_400_005, "member", message, attr);
        }
        let membership = Membership {
            learners: invitation.learners.into_iter().collect(),
            ..Membership::of(invitation.voters)
        };
        let attr = Attr::new().str("setName", &config.name).num("member", invitation.to);
        match self.begin(invitation.to, &invitation.config, membership) {
            Ok(()) => log::info("REPL", 6_400_006, "member", "The member is part of the set", attr),
            Err(error) => {
                let attr = attr.str("error", error.message());
                log::warning("REPL", 6_400_007, "member", "The member cannot join the set", attr);
            }
        }
    }
}
