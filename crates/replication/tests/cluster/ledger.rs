//! The promises of a set, checked by somebody who looks into all members at once.

use crate::member::Member;
use kauri_replication::codec::{Envelope, Kind};
use kauri_replication::consensus::Acknowledge;
use kauri_replication::quorum::is_quorum;
use kauri_replication::{Entry, Log, Membership};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Ledger {
    pub faults: Vec<String>,
    pub counts: BTreeMap<&'static str, u64>,
    leaders: BTreeMap<u64, u64>,
    /// By voter and term.
    votes: BTreeMap<(u64, u64), u64>,
    /// The committed entries.
    pub chosen: Vec<Entry>,
    /// Acknowledged entries: term, and whether they are acknowledged as durable.
    acknowledged: BTreeMap<u64, (u64, bool)>,
}

impl Ledger {
    pub fn fault(&mut self, text: String) {
        if self.faults.len() < 20 {
            self.faults.push(text);
        }
    }

    pub fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// The last acknowledged entry.
    pub fn last_acknowledged(&self) -> u64 {
        self.acknowledged.keys().next_back().copied().unwrap_or(0)
    }

    /// A member leads.
    pub fn leads(&mut self, member: &Member, term: u64) {
        self.count("leaders");
        let before = self.leaders.insert(term, member.id);
        if before.is_some_and(|id| id != member.id) {
            self.fault(format!("term {term} has two leaders, {before:?} and {}", member.id));
        }
        for (&index, &(of, is_durable)) in self.acknowledged.iter().rev().take(1) {
            if !member.has_written(index, of) {
                let kind = if is_durable { "durable" } else { "written" };
                let id = member.id;
                self.faults.push(format!(
                    "the leader {id} of term {term} lacks entry {index} of term {of}, acknowledged as {kind}"
                ));
            }
        }
    }

    /// A message leaves a member.
    pub fn sends(&mut self, member: &Member, envelope: &Envelope, acknowledge: Acknowledge) {
        let Some(message) = &envelope.message else { return };
        let (id, state) = (member.id, member.log().durable_state());
        let vote = match message.kind {
            Kind::Vote => Some((message.term, id)),
            Kind::Voted if !message.reject => Some((message.term, envelope.to)),
            _ => None,
        };
        if let Some((term, candidate)) = vote {
            let before = self.votes.insert((id, term), candidate);
            if before.is_some_and(|before| before != candidate) {
                self.fault(format!("{id} votes twice in term {term}"));
            }
            let is_durable = state.term > term || (state.term, state.vote) == (term, candidate);
            if !is_durable {
                self.fault(format!("{id} tells of a vote in term {term} that is not durable"));
            }
        }
        if message.kind == Kind::Appended && !message.reject && message.term == envelope.term {
            let last = match acknowledge {
                Acknowledge::Written => member.log().last(),
                Acknowledge::Durable => member.log().durable_last(),
            };
            if message.index > last {
                let index = message.index;
                self.fault(format!("{id} answers for entry {index} while its log ends at {last}"));
            }
        }
    }

    /// A member gives out a committed entry.
    pub fn commits(&mut self, id: u64, entry: &Entry) {
        let at = entry.index as usize - 1;
        match self.chosen.get(at) {
            Some(chosen) if chosen == entry => {}
            Some(chosen) => {
                let chosen = chosen.clone();
                self.fault(format!("{id} has {entry:?} committed, others {chosen:?}"));
            }
            None if at == self.chosen.len() => self.chosen.push(entry.clone()),
            None => self.fault(format!("{id} has entry {} committed before those before", at + 1)),
        }
    }

    /// A leader's commit point has come to `index`. `memberships`: one that was in force.
    pub fn commit_point(
        &mut self,
        members: &[Member],
        memberships: [&Membership; 2],
        (index, term): (u64, u64),
        as_durable: bool,
    ) {
        let has = |id: u64| {
            members.iter().any(|member| {
                member.id == id
                    && match as_durable {
                        true => member.has_durable(index, term),
                        false => member.has_written(index, term) || member.may_lack_entries(),
                    }
            })
        };
        if !memberships.iter().any(|membership| is_quorum(membership, has)) {
            let kind = if as_durable { "durable" } else { "written" };
            let holders: Vec<u64> = members.iter().map(|m| m.id).filter(|&id| has(id)).collect();
            self.fault(format!(
                "entry {index} of term {term} is called {kind} with {holders:?} alone"
            ));
        }
    }

    /// A client has been told.
    pub fn acknowledge(&mut self, index: u64, term: u64, as_durable: bool) {
        self.count(if as_durable { "acknowledged as durable" } else { "acknowledged as written" });
        let (of, is_durable) = self.acknowledged.entry(index).or_insert((term, as_durable));
        *is_durable |= as_durable;
        if *of != term {
            self.fault(format!("entry {index} has been acknowledged in two terms"));
        }
    }

    /// Power was lost: entries that no voter has any more are gone. This must have taken a quorum.
    pub fn power_was_lost(&mut self, members: &[Member]) {
        let newest = members.iter().max_by_key(|m| m.log().hard_state().membership_index);
        let membership = newest.map(|member| member.log().hard_state().membership.clone());
        let membership = membership.unwrap_or_default();
        let lacks = |id: u64| members.iter().any(|m| m.id == id && m.may_lack_entries());
        let keeps = |index, term| {
            members.iter().any(|m| membership.votes(m.id) && m.has_written(index, term))
        };
        while let Some(last) = self.chosen.last()
            && !keeps(last.index, last.term)
        {
            let index = last.index;
            self.chosen.pop();
            self.forget(index, is_quorum(&membership, lacks));
        }
        while let Some((&index, &(term, _))) = self.acknowledged.last_key_value()
            && !keeps(index, term)
        {
            self.forget(index, is_quorum(&membership, lacks));
        }
    }

    fn forget(&mut self, index: u64, a_quorum_was_lost: bool) {
        self.count("written entries gone with a quorum");
        let was = self.acknowledged.remove(&index);
        if was.is_some_and(|(_, is_durable)| is_durable) {
            self.fault(format!("entry {index}, acknowledged as durable, is lost"));
        } else if !a_quorum_was_lost {
            self.fault(format!(
                "entry {index}, acknowledged or committed as written, is lost by a few"
            ));
        }
    }

    /// The set is well, and this is its log.
    pub fn ends(&mut self, leader: &Member) {
        let lost: Vec<u64> = self
            .acknowledged
            .iter()
            .filter(|&(&index, &(term, _))| !leader.has_written(index, term))
            .map(|(&index, _)| index)
            .collect();
        if !lost.is_empty() {
            self.fault(format!("acknowledged entries are lost: {lost:?}"));
        }
        for entry in self.chosen.clone() {
            if leader.log().entry(entry.index).as_ref() != Some(&entry) {
                self.fault(format!("a committed entry is lost: {entry:?}"));
            }
        }
    }
}
