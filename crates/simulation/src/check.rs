//! Checks whether the clients' observations are possible for one server with one copy of the data.
//!
//! Lists have the order of their own appends. Within one life of the server, all reads of a list must be prefixes
//! of one order, and reads and appends respect real time. A death may lose the last appends, but no append that was
//! promised to survive it, no append before a surviving append, and no lost append may return later. Claimed values
//! are registers: their operations must have an order, each within its time, in which every answer is right.

use crate::history::{Append, Claim, Death, Facts, Known, Moment, Read};
use crate::workload::{LISTS, VALUES};
use kauri_consistency::linearizable::{self, Object, Operation, Verdict};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Everything that is wrong.
pub fn faults(facts: &Facts) -> Vec<String> {
    let mut faults = facts.faults.clone();
    let appends: HashMap<u64, &Append> = facts.appends.iter().map(|a| (a.value, a)).collect();
    let mut lost = Vec::new();
    let mut survivors: BTreeMap<u32, Vec<&Append>> = BTreeMap::new();
    for key in 0..LISTS {
        let list = List { key, facts, appends: &appends };
        list.check(&mut faults, &mut lost, &mut survivors);
    }
    for (life, append) in lost {
        let Known::Done(acked) = append.known else { continue };
        let later = survivors.get(&life).into_iter().flatten().find(|other| other.sent > acked);
        if let Some(later) = later {
            faults.push(format!("{append:?} is lost, but a later one is not: {later:?}"));
        }
    }
    let acked = |known: Known| if let Known::Done(at) = known { Some(at) } else { None };
    let appends = facts.appends.iter().map(|a| (a.sent, acked(a.known)));
    let claims = facts.claims.iter().filter(|c| c.effect).map(|c| (c.sent, acked(c.known)));
    for (sent, acked) in appends.chain(claims) {
        let within =
            |lock: &&(Moment, Moment)| sent > lock.0 && acked.is_some_and(|at| at < lock.1);
        if let Some(lock) = facts.locks.iter().find(within) {
            faults.push(format!("a write from {sent} to {acked:?} during the lock {lock:?}"));
        }
    }
    for value in 0..VALUES {
        let claims: Vec<_> = facts.claims.iter().filter(|claim| claim.value == value).collect();
        if let Err(fault) = register(&claims, &facts.deaths) {
            faults.push(format!("value {value}: {fault}"));
        }
    }
    faults
}

/// One list, over all lives.
struct List<'a> {
    key: u64,
    facts: &'a Facts,
    appends: &'a HashMap<u64, &'a Append>,
}

/// Whether one is the beginning of the other.
fn agree(one: &[u64], other: &[u64]) -> bool {
    one.iter().zip(other).all(|(a, b)| a == b)
}

impl<'a> List<'a> {
    fn reads(&self, life: u32) -> impl Iterator<Item = &'a Read> {
        let key = self.key;
        self.facts.reads.iter().filter(move |read| read.key == key && read.life == life)
    }

    /// Its list when a life began; none if it was never read.
    fn at_beginning(&self, life: u32) -> Option<&'a [u64]> {
        self.reads(life).find(|read| read.alone).map(|read| &*read.list)
    }

    fn check(
        &self,
        faults: &mut Vec<String>,
        lost: &mut Vec<(u32, &'a Append)>,
        survivors: &mut BTreeMap<u32, Vec<&'a Append>>,
    ) {
        let mut gone = HashSet::new();
        for life in 0..=self.facts.life {
            let Some(base) = self.at_beginning(life) else { return };
            let next = self.at_beginning(life + 1);
            let longest = self.reads(life).map(|read| &*read.list).max_by_key(|list| list.len());
            let seen = longest.unwrap_or_default();
            let order = next.filter(|next| next.len() > seen.len()).unwrap_or(seen);
            let mut fault =
                |what: String| faults.push(format!("list {}, life {life}: {what}", self.key));
            if !agree(base, order)
                || base.len() > order.len()
                || next.is_some_and(|n| !agree(n, order))
            {
                fault(format!("{base:?} became {order:?} and then {next:?}"));
                return;
            }
            self.check_values(life, base, order, &gone, &mut fault);
            self.check_times(life, order, &mut fault);
            if let Some(next) = next {
                let kept: HashSet<u64> = next.iter().copied().collect();
                for append in self.of_life(life) {
                    match kept.contains(&append.value) {
                        true => survivors.entry(life).or_default().push(append),
                        false => {
                            self.check_loss(append, life, &mut fault);
                            gone.insert(append.value);
                            lost.push((life, append));
                        }
                    }
                }
                // What was there before is durable: it had outlived a death, and was synced by recovery.
                if !base.iter().all(|value| kept.contains(value)) {
                    fault(format!("a list that had been recovered is shorter: {base:?}, {next:?}"));
                }
            }
        }
    }

    fn of_life(&self, life: u32) -> impl Iterator<Item = &'a Append> {
        let key = self.key;
        self.facts.appends.iter().filter(move |append| append.key == key && append.life == life)
    }

    /// Each value is there once, was sent in this life or was there before, and was not refused or lost.
    fn check_values(
        &self,
        life: u32,
        base: &[u64],
        order: &[u64],
        gone: &HashSet<u64>,
        fault: &mut impl FnMut(String),
    ) {
        let mut once = HashSet::new();
        for (at, value) in order.iter().enumerate() {
            if !once.insert(value) {
                fault(format!("{value} is there twice: {order:?}"));
            }
            match self.appends.get(value) {
                None => fault(format!("{value} was never appended: {order:?}")),
                Some(append) if append.key != self.key => {
                    fault(format!("not of this list: {append:?}"))
                }
                Some(append) if append.known == Known::Refused => {
                    fault(format!("refused: {append:?}"))
                }
                Some(append) if at >= base.len() && append.life != life => {
                    fault(format!("of another life: {append:?}"));
                }
                Some(append) if gone.contains(value) => fault(format!("it was lost: {append:?}")),
                Some(_) => {}
            }
        }
    }

    /// The order of real time.
    fn check_times(&self, life: u32, order: &[u64], fault: &mut impl FnMut(String)) {
        let place: HashMap<u64, usize> = order.iter().enumerate().map(|(at, v)| (*v, at)).collect();
        let mut reads: Vec<_> = self.reads(life).collect();
        reads.sort_by_key(|read| read.answered);
        for read in &reads {
            if !agree(&read.list, order) {
                fault(format!("{:?} was read, and {order:?}", read.list));
            }
            for append in self.of_life(life) {
                let seen = place.get(&append.value).is_some_and(|at| *at < read.list.len());
                if seen && append.sent > read.answered {
                    fault(format!("{read:?} sees what was sent later: {append:?}"));
                }
                if !seen && matches!(append.known, Known::Done(acked) if acked < read.sent) {
                    fault(format!("{read:?} misses {append:?}"));
                }
            }
        }
        // The longest list that was answered before each was sent.
        let mut by_sent = reads.clone();
        by_sent.sort_by_key(|read| read.sent);
        let (mut answered, mut least) = (reads.iter().peekable(), 0);
        for read in by_sent {
            while let Some(before) = answered.next_if(|before| before.answered < read.sent) {
                least = least.max(before.list.len());
            }
            if read.list.len() < least {
                fault(format!("{read:?} is shorter than what was read before"));
            }
        }
        let mut placed: Vec<_> =
            self.of_life(life).filter_map(|a| Some((*place.get(&a.value)?, a))).collect();
        placed.sort_by_key(|(at, _)| *at);
        // Whoever comes later in the list was not acknowledged before one that comes earlier was sent.
        let mut sent_last: Moment = 0;
        for (_, append) in placed {
            sent_last = sent_last.max(append.sent);
            if matches!(append.known, Known::Done(acked) if acked < sent_last) {
                fault(format!("{append:?} comes after what was sent later"));
            }
        }
    }

    /// Whether this append might be lost when its life ended.
    fn check_loss(&self, append: &Append, life: u32, fault: &mut impl FnMut(String)) {
        let Some((death, _)) = self.facts.deaths.get(life as usize) else { return };
        let promised = append.durable || *death == Death::Process;
        if promised && matches!(append.known, Known::Done(_)) {
            fault(format!("{append:?} is lost by {death:?}"));
        }
    }
}

/// Whether the document of a claimed value is there.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Present(bool);

impl Object for Present {
    /// Whether it must be there before the operation, and is afterwards.
    type Operation = (bool, bool);

    fn apply(&self, (before, after): &(bool, bool)) -> Option<Present> {
        (self.0 == *before).then_some(Present(*after))
    }
}

/// Finds an order of the operations in which every answer is right.
fn register(claims: &[&Claim], deaths: &[(Death, Moment)]) -> Result<(), String> {
    let operation = |claim: &&Claim| {
        let death = deaths.get(claim.life as usize).map(|(_, at)| *at);
        let (answered, until) = match claim.known {
            Known::Done(at) => (Some(at), None),
            Known::Refused => return None,
            Known::Nothing => (None, death),
        };
        // An insert without an effect found the document, a delete without one did not.
        let before = claim.insert != claim.effect;
        let after = claim.insert;
        Some(Operation { sent: claim.sent, answered, until, what: (before, after) })
    };
    let operations: Vec<_> = claims.iter().filter_map(operation).collect();
    match linearizable::check(Present(false), &operations) {
        Verdict::Linearizable => Ok(()),
        verdict => Err(format!("no order explains ({verdict:?}) {claims:?}")),
    }
}
