//! Initial sync: see [`crate::initial_sync`].

use super::*;
use crate::initial_sync::message::{Content, CopyMessage};
use crate::initial_sync::receiver::Receiver;
use crate::initial_sync::source::{Begun, MadeCopy, Wanted};
use kauri_replication::HardState;

/// After an attempt that has failed.
const PAUSE_NS: u64 = 3_000_000_000;
/// Between two lines that tell how far it is.
const TOLD_NS: u64 = 10_000_000_000;

/// The initial sync of this member.
pub(super) struct Joining {
    receiver: Receiver,
    /// Until it has applied this entry it elects nobody.
    until: u64,
    told_ns: u64,
}

impl Driver {
    /// This member has no data, and the one that invites it has more than its log tells.
    pub(super) fn begin_copying(&mut self, invitation: &Invitation, config: SetConfig) {
        let now = (monotonic_ns(), self.parts.clock.unix_ms());
        if now.0 < self.next_sync_ns {
            return;
        }
        let Some(from) = config.members.iter().find(|of| of.number() == invitation.from) else {
            return;
        };
        let source = (invitation.from, from.host.as_str());
        let receiver = match Receiver::begin(self.parts.directory.clone(), source, now) {
            Ok(receiver) => receiver,
            Err(error) => {
                self.next_sync_ns = now.0 + PAUSE_NS;
                return self.tell_of_failed_copy(&error);
            }
        };
        let attr = Attr::new().str("source", &from.host).str("setName", &config.name);
        log::info("INITSYNC", 21_164, "member", "Starting initial sync", attr);
        self.number = invitation.to;
        self.inviter = None;
        (self.tick_ns, self.status_ns) = (now.0, 0);
        self.joining = Some(Joining { receiver, until: invitation.until, told_ns: now.0 });
        self.set_config(config);
    }

    fn tell_of_failed_copy(&self, error: &Error) {
        let attr = Attr::new().str("error", error.message());
        let message =
            "Initial sync attempt failed. It begins again when the primary invites this member";
        log::warning("INITSYNC", 21_200, "member", message, attr);
    }

    fn give_copy_up(&mut self, error: &Error) {
        self.tell_of_failed_copy(error);
        if let Some(joining) = self.joining.take() {
            if let Some(number) = joining.receiver.number() {
                self.send_copy(joining.receiver.source, Content::GiveUp(number));
            }
            joining.receiver.abandon();
        }
        self.next_sync_ns = monotonic_ns() + PAUSE_NS;
        self.parts.member.set_sync_progress(None);
        self.number = 0;
        self.config = None;
        self.peers.clear();
    }

    pub(super) fn take_copy_message(&mut self, message: CopyMessage) {
        let now_ns = monotonic_ns();
        let CopyMessage { from, content } = message;
        match content {
            Content::Begin | Content::Read(_) | Content::End(_) | Content::GiveUp(_) => {
                self.serve_copy(from, content);
            }
            Content::Begun { .. } | Content::Data(..) | Content::Gone(_) => {
                let Some(joining) = &mut self.joining else { return };
                if joining.receiver.source != from {
                    return;
                }
                if let Err(error) = joining.receiver.take(content, now_ns) {
                    self.give_copy_up(&error);
                }
            }
        }
    }

    /// A member is the primary. If it is not the source, that one does not lead any more.
    pub(super) fn look_at_source(&mut self, primary: u64) {
        let other = self.joining.as_ref().is_some_and(|of| of.receiver.source != primary);
        if other {
            let message = "the source is not the primary any more";
            self.give_copy_up(&Error::new(ErrorCode::OperationFailed, message));
        }
    }

    /// Goes on with the member's own initial sync.
    pub(super) fn go_on_copying(&mut self, now_ns: u64) {
        let Some(joining) = &mut self.joining else { return };
        let progress = joining.receiver.progress().clone();
        if now_ns.saturating_sub(joining.told_ns) >= TOLD_NS && progress.bytes > 0 {
            joining.told_ns = now_ns;
            let attr = Attr::new().num("bytes", progress.bytes).num("copied", progress.copied);
            log::info("INITSYNC", 6_400_017, "member", "Initial sync: copying", attr);
        }
        self.parts.member.set_sync_progress(Some(progress));
        let asked = joining.receiver.ask(now_ns);
        let complete = joining.receiver.complete();
        let complete = complete.map(|(number, stored)| (number, stored.clone()));
        match (asked, complete) {
            (Err(error), _) => self.give_copy_up(&error),
            (Ok(_), Some((number, stored))) => self.end_copying(number, stored),
            (Ok(asked), None) => {
                let source = joining.receiver.source;
                asked.into_iter().for_each(|content| self.send_copy(source, content));
            }
        }
    }

    fn end_copying(&mut self, number: u64, of_source: Stored) {
        let Some(joining) = &mut self.joining else { return };
        let source = joining.receiver.source;
        let state = HardState {
            // The leader's term, and its vote for itself: this member does not know how it has voted in an earlier life, and
            // in this term it elects nobody else. Above those of an earlier life, if its disk was emptied.
            boot: self.parts.clock.unix_ms().max(0) as u64,
            lost_power: false,
            ..of_source.state
        };
        let machine_run = self.parts.host.machine_run();
        let (own, until) = (self.number, joining.until);
        let stored = Stored { number: own, until, state, machine_run, ..of_source };
        if let Err(error) = joining.receiver.end(&stored) {
            return self.give_copy_up(&error);
        }
        let attr = Attr::new().num("bytes", joining.receiver.progress().copied);
        log::info("INITSYNC", 21_163, "member", "Initial sync done", attr);
        self.send_copy(source, Content::End(number));
        self.is_over = true;
        self.publish();
        self.parts.host.restart("the initial sync is complete");
    }

    fn send_copy(&self, to: u64, content: Content) {
        if let Some(state) = self.peers.get(&to) {
            let message = CopyMessage { from: self.number, content };
            state.peer.send_bytes(message::encode_copy(&message));
        }
    }

    /// A member wants something of a copy of this leader.
    fn serve_copy(&mut self, from: u64, content: Content) {
        let now_ns = monotonic_ns();
        match content {
            Content::Begin => self.begin_copy_for(from, now_ns),
            Content::End(number) => self.source.end(from, number, now_ns),
            Content::GiveUp(number) => self.source.drop_copy(from, number),
            Content::Read(piece) => {
                let Some(state) = self.peers.get(&from) else { return };
                let reading = match self.source.read(from, piece, now_ns) {
                    Wanted::Read(reading) => reading,
                    Wanted::Later => return,
                    Wanted::Gone => return self.send_copy(from, Content::Gone(piece.copy)),
                };
                let (to, own) = (state.peer.sender(), self.number);
                self.parts.host.aside(Box::new(move || {
                    let message = CopyMessage { from: own, content: reading.read() };
                    to.send_bytes(message::encode_copy(&message));
                }));
            }
            _ => {}
        }
    }

    fn begin_copy_for(&mut self, to: u64, now_ns: u64) {
        let leads = self.role == Role::Leader;
        let Some(consensus) = self.consensus.as_ref().filter(|_| leads) else {
            return self.send_copy(to, Content::Gone(0));
        };
        let membership = consensus.membership();
        if !membership.contains(to) || membership.votes(to) || now_ns < self.no_copies_until_ns {
            return;
        }
        let statements = || checkpoint::contents(&*self.parts.directory);
        let log = consensus.log();
        // Numbers that go through a signed one.
        let number = self.parts.random.next_u64() >> 1;
        let frames = (kauri_replication::Log::first(log) - 1, kauri_replication::Log::last(log));
        let begun = self.source.begin((to, number), log.stored(), statements, frames, now_ns);
        match begun {
            Err(error) => self.tell_of_no_copy(error.message()),
            Ok(Begun::Wait) => {}
            Ok(Begun::Made(content)) => self.send_copy(to, content),
            Ok(Begun::Make) => {
                let (engine, member) = (self.parts.engine.clone(), self.parts.member.clone());
                self.parts.host.aside(Box::new(move || {
                    let copy = engine.copy_log();
                    member.give_copy(MadeCopy { to, number, copy });
                }));
            }
        }
    }

    pub(super) fn take_made_copy(&mut self, made: MadeCopy) {
        let MadeCopy { to, number, copy } = made;
        match copy {
            Ok(copy) => {
                if let Some(content) = self.source.made(to, number, copy) {
                    self.send_copy(to, content);
                }
            }
            Err(error) => {
                self.source.drop_copy(to, number);
                self.tell_of_no_copy(&error.to_string());
            }
        }
    }

    fn tell_of_no_copy(&self, why: &str) {
        let attr = Attr::new().str("error", why);
        let message = "The data cannot be copied for a new member";
        log::warning("INITSYNC", 6_400_013, "member", message, attr);
    }

    /// Forgets copies that are not needed any more.
    pub(super) fn look_after_copies(&mut self, now_ns: u64) {
        let Some(consensus) = &self.consensus else { return };
        self.source.look_after(now_ns, |to| consensus.reached_by(to).map(|(written, _)| written));
    }
}
