//! A member's life: it leads or follows, gets frames, is told what is committed, applies, is deposed, cleans, purges and
//! starts again. Notes what a crash at each event may leave, and checks that it does.

use super::{BASE, History, Leader, Member, at};
use crate::common::{emulator, status};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_emulator::Emulator;
use kauri_storage::{StorageEngine, StorageError, Truncated};
use kauri_storage_log::verify;

/// What the log holds, from an event on.
struct Held {
    /// Where the change began, and where it was complete.
    began: usize,
    ended: usize,
    history: History,
}

pub struct Run {
    /// The member, and what its log holds.
    pub own: Leader,
    pub leads: bool,
    /// What it gets from others while it follows.
    source: History,
    term: u64,
    held: Vec<Held>,
    /// From which event on which index is durable; the last one counts.
    durable: Vec<(usize, u64)>,
    /// From which event on it was told that which index is committed.
    told: Vec<(usize, u64)>,
    /// From which event on a start applies up to which index, at least.
    marked: Vec<(usize, u64)>,
    /// Events behind which the log was just cut off.
    pub cuts: Vec<usize>,
    pub counts: Counts,
}

#[derive(Default, Debug)]
pub struct Counts {
    pub appended: u64,
    pub applied: u64,
    pub at_once: u64,
    pub at_next_start: u64,
    pub restarts: u64,
    pub purged: u64,
    pub elections: u64,
    pub full: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.appended += other.appended;
        self.applied += other.applied;
        self.at_once += other.at_once;
        self.at_next_start += other.at_next_start;
        self.restarts += other.restarts;
        self.purged += other.purged;
        self.elections += other.elections;
        self.full += other.full;
    }
}

impl Run {
    pub fn new(seed: u64, emulator: Emulator) -> Run {
        let member = Member::new(emulator);
        let events = member.emulator.events();
        let own = Leader::new(member, History::default(), seed);
        let held = Held { began: 0, ended: 0, history: History::default() };
        Run {
            own,
            leads: true,
            source: History::default(),
            term: BASE.term,
            held: vec![held],
            durable: vec![(events, BASE.index)],
            told: vec![(0, BASE.index)],
            marked: vec![(events, BASE.index)],
            cuts: Vec::new(),
            counts: Counts::default(),
        }
    }

    fn below(&self, n: u64) -> u64 {
        self.own.below(n)
    }

    fn member(&self) -> &Member {
        &self.own.member
    }

    fn events(&self) -> usize {
        self.member().emulator.events()
    }

    fn last(&self) -> u64 {
        self.member().log().frames().last.index
    }

    fn committed(&self) -> u64 {
        self.told.last().map_or(BASE.index, |(_, index)| *index)
    }

    /// What the log holds has changed, since this event.
    fn note(&mut self, began: usize) {
        let history = self.own.history.clone();
        self.held.push(Held { began, ended: self.events(), history });
    }

    pub fn step(&mut self) {
        match self.below(30) {
            0..14 if self.leads => drop(self.own.write()),
            14..18 if self.leads => {
                let began = self.events();
                let index = self.last() + 1;
                self.own.close_frame_at(at(self.term, index));
                self.note(began);
            }
            18 if self.leads && self.below(3) == 0 => self.depose(),
            0..9 => self.append(),
            9..14 => drop(self.apply()),
            14 => self.cut_off(),
            15 if self.below(3) == 0 => self.take_over(),
            19..22 => {
                let (committed, last) = (self.committed(), self.last());
                self.commit(committed + self.below(last - committed + 1));
            }
            22 => {
                self.member().engine.sync().expect("sync");
                self.durable.push((self.events(), self.last()));
            }
            23..26 => drop(self.clean()),
            26 => self.member().engine.flush(),
            27 => self.member().engine.flush_round().expect("a round"),
            28 => {
                let most = 1 + self.below(4);
                self.purge(most);
            }
            29 if self.below(3) == 0 => self.restart(),
            _ => {}
        }
    }

    fn clean(&self) -> bool {
        match self.member().engine.clean_once() {
            Ok(changed) => changed,
            Err(StorageError::OutOfDiskSpace) => false,
            Err(error) => panic!("cleaning: {error}"),
        }
    }

    fn commit(&mut self, index: u64) {
        self.told.push((self.events(), index));
        self.member().log().commit_frames(index);
        assert_eq!(self.member().log().committed(), index);
    }

    fn purge(&mut self, most: u64) {
        let purged = self.member().log().frames().purged.index;
        self.member().log().purge_frames(purged + most).expect("purge");
        let now = self.member().log().frames().purged.index;
        assert!(now <= self.committed() && now <= self.member().log().applied().index);
        self.counts.purged += now - purged;
    }

    /// Appends the next frame of the source.
    fn append(&mut self) {
        let next = self.last() + 1;
        let Some(copied) = self.source.frames.get(&next).cloned() else { return self.extend() };
        let began = self.events();
        self.own.history.frames.insert(next, copied.clone());
        self.own.history.states.insert(next, self.source.state(next));
        match self.member().append(&copied) {
            Ok(()) => {
                self.counts.appended += 1;
                self.note(began);
            }
            Err(StorageError::OutOfDiskSpace) => {
                self.own.history = self.own.history.cut(next - 1);
                assert_eq!(self.last(), next - 1);
                self.counts.full += 1;
                self.commit(next - 1);
                while self.apply() {}
                self.purge(u64::MAX - (1 << 32));
                while self.clean() {}
            }
            Err(error) => panic!("append: {error}"),
        }
    }

    /// The other leader writes more, or a third one does.
    fn extend(&mut self) {
        if self.below(3) == 0 {
            let seed = self.below(1 << 40);
            self.source = other_leader(self.source.clone(), &mut self.term, seed);
        }
    }

    fn apply(&mut self) -> bool {
        let Some(index) = self.member().apply() else { return false };
        assert!(index <= self.committed());
        self.member().check(&self.own.history.state(index), &format!("frame {index}"));
        self.counts.applied += 1;
        true
    }

    /// Another leader has other frames behind some index that may be cut off.
    fn cut_off(&mut self) {
        let (committed, last) = (self.committed(), self.last());
        let index = committed + self.below(last - committed + 1);
        let began = self.events();
        let durable = self.durable.last().map_or(index, |(_, before)| index.min(*before));
        self.durable.push((began, durable));
        let old = self.own.history.clone();
        match self.member().log().truncate_frames(index).expect("truncating") {
            Truncated::Done => self.counts.at_once += 1,
            Truncated::AtNextStart => {
                self.counts.at_next_start += 1;
                if let Some(copied) = old.frames.get(&last) {
                    let refused = self.own.member.append(copied);
                    assert!(matches!(refused, Err(StorageError::NotPrimary)), "{refused:?}");
                }
            }
        }
        self.own.history = old.cut(index);
        self.note(began);
        if index < last {
            self.durable.push((self.events(), index));
            self.cuts.push(self.events());
        }
        if self.member().engine.sync().is_err() {
            self.reopen();
        }
        assert_eq!(self.last(), index);
        let history = self.own.history.clone();
        let seed = self.below(1 << 40);
        self.source = other_leader(history, &mut self.term, seed);
    }

    /// Another one leads.
    fn depose(&mut self) {
        self.member().log().follow();
        self.leads = false;
        self.cut_off();
    }

    fn take_over(&mut self) {
        self.commit(self.last());
        while self.apply() {}
        self.counts.elections += 1;
        self.term += 1;
        self.member().log().lead().expect("leading");
        self.leads = true;
    }

    fn restart(&mut self) {
        if self.below(2) == 0 {
            self.member().engine.close().expect("close");
            let (events, committed) = (self.events(), self.committed());
            self.durable.push((events, self.last()));
            self.marked.push((events, committed));
        } else {
            self.member().engine.flush();
        }
        self.leads = false;
        self.source = self.own.history.clone();
        self.reopen();
    }

    fn reopen(&mut self) {
        self.counts.restarts += 1;
        let own = self.member().emulator.clone();
        let empty = Member::new(emulator());
        drop(std::mem::replace(&mut self.own.member, empty));
        self.own.member = Member::open(&own);
        self.durable.push((self.events(), self.last()));
        let applied = self.member().log().applied().index;
        assert!(applied <= self.committed());
        if let Some((_, marked)) = self.marked.last() {
            assert!(applied >= *marked);
        }
        self.member().check(&self.own.history.state(applied), "after a restart");
        // The leader tells again.
        self.member().log().commit_frames(self.committed());
    }

    /// Checks what a crash at this event has left, of power or of the process, and that it can go on. Some crashes are
    /// followed by others while the log is opened.
    pub fn check(&self, image: &Emulator, at: usize, again: &SeededRandom, when: &str) {
        let before = image.events();
        self.check_once(&Member::open(image), at, when);
        let events = image.events();
        for n in 0..2 {
            let again = again.next_u64();
            let at_event = before + again as usize % (events - before + 1);
            let second = image.crash_seeded(at_event, again);
            let when = format!("{when}, then {n} at event {at_event}");
            let member = Member::open(&second);
            self.check_once(&member, at, &when);
            self.go_on(&member, at, &when);
        }
    }

    /// What the log may hold after a crash at this event.
    fn possible(&self, at: usize) -> impl Iterator<Item = &History> {
        let done = self.held.iter().rposition(|held| held.ended <= at).unwrap_or(0);
        self.held[done..].iter().filter(move |held| held.began <= at).map(|held| &held.history)
    }

    fn held(&self, member: &Member, at: usize, when: &str) -> &History {
        let range = member.log().frames();
        let indexes = range.purged.index + 1..=range.last.index;
        let found: Vec<_> = indexes.clone().map(|index| member.read(index)).collect();
        let fits = |history: &&History| {
            indexes.clone().zip(&found).all(|(index, found)| {
                history.frames.get(&index).is_some_and(|copied| **copied == *found)
            })
        };
        let fitting = self.possible(at).find(fits);
        fitting.unwrap_or_else(|| panic!("{when}: frames {range:?} are not what was appended"))
    }

    fn check_once(&self, member: &Member, at: usize, when: &str) {
        let range = member.log().frames();
        let latest = |list: &[(usize, u64)]| {
            list.iter().rev().find(|(events, _)| *events <= at).map(|(_, index)| *index)
        };
        let Some(durable) = latest(&self.durable) else { return };
        assert!(range.last.index >= durable, "{when}: {range:?}, but {durable} was durable");
        let history = self.held(member, at, when);
        let applied = member.log().applied().index;
        let told = latest(&self.told).unwrap_or(BASE.index);
        assert!(applied <= told, "{when}: {applied} is applied, {told} was committed");
        assert!(applied >= latest(&self.marked).unwrap_or(BASE.index), "{when}: {applied}");
        assert_eq!(member.log().committed(), applied);
        member.check(&history.state(applied), &format!("{when}, applied {applied}"));
    }

    /// Gets all that was committed by then and other frames behind that, while it is cleaned.
    fn go_on(&self, member: &Member, at: usize, when: &str) {
        if self.durable.first().is_none_or(|(events, _)| *events > at) {
            return;
        }
        let history = self.held(member, at, when).clone();
        let applied = member.log().applied().index;
        let last = member.log().frames().last.index;
        let index = applied.max(last.saturating_sub(2));
        assert_eq!(member.log().truncate_frames(index), Ok(Truncated::Done), "{when}");
        let mut term = 1000;
        let history = other_leader(history.cut(index), &mut term, at as u64);
        for copied in history.frames.range(index + 1..).map(|(_, copied)| copied) {
            member.append(copied).unwrap_or_else(|error| panic!("{when}: {error}"));
            let log = member.log();
            log.commit_frames(copied.0.position.index);
            while member.apply().is_some() {}
            log.purge_frames(copied.0.position.index - 1).expect("purge");
            member.engine.sync().expect("sync");
            member.engine.clean_once().expect("cleaning");
            member.check(&history.state(copied.0.position.index), &format!("{when}, going on"));
        }
        member.engine.sync().expect("sync");
        let end = member.emulator.process_death_image();
        let again = Member::open(&end);
        again.catch_up(&history, &format!("{when}, at the end"));
        // Nothing was counted that is cut off.
        let live = [member, &again].map(|member| status(&member.engine, "liveBytes"));
        assert_eq!(live[0], live[1], "{when}");
        drop(again);
        let report = verify(&end, &mut |_, _| {}).expect("the check");
        // A crash may tear a summary.
        let damage = report.damage.iter().find(|damage| damage.current != Some(false));
        assert_eq!(damage, None, "{when}");
    }
}

/// A history that goes on with some frames of another leader.
pub fn other_leader(history: History, term: &mut u64, seed: u64) -> History {
    let member = Member::new(emulator());
    member.catch_up(&history, "another leader");
    let mut other = Leader::new(member, history, seed);
    *term += 1;
    let last = other.history.last().index;
    other.close_frame_at(at(*term, last + 1));
    for _ in 0..2 + other.below(6) {
        for _ in 0..other.below(5) {
            other.write();
        }
        let last = other.history.last().index;
        other.close_frame_at(at(*term, last + 1));
    }
    other.history
}
