//! Performs operations, and measures two drivers in turns.

use super::mix::{Mix, Operation, Workload};
use super::{Medium, Plan};
use crate::engine::Kind;
use crate::histogram::Histogram;
use kauri_base::Result;
use std::time::{Duration, Instant};

/// Performs operations one after the other. Each returns when it is done: found, or acknowledged as the
/// engine acknowledges by default.
pub trait Driver {
    /// Reads this document whole.
    fn read(&mut self, number: u64) -> Result<()>;

    /// Gives one of its fields a new value.
    fn update(&mut self, number: u64, field: usize) -> Result<()>;

    /// Adds a document.
    fn insert(&mut self, number: u64) -> Result<()>;

    /// Reads so many documents from this one on, or as many as there are.
    fn scan(&mut self, number: u64, length: u64) -> Result<()>;

    /// Performs one of the mix.
    fn perform(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::Read(number) => self.read(number),
            Operation::Update(number, field) => self.update(number, field),
            Operation::Insert(number) => self.insert(number),
            Operation::Scan(number, length) => self.scan(number, length),
            Operation::ReadModifyWrite(number, field) => {
                self.read(number)?;
                self.update(number, field)
            }
        }
    }

    /// Ends as a clean shutdown does.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Where drivers come from: the engines themselves, or servers.
pub trait Level {
    /// In reports.
    fn name(&self) -> &'static str;

    /// Fills a new directory of this engine on this medium.
    fn load(&mut self, kind: Kind, medium: Medium, documents: u64) -> Result<()>;

    /// Opens it with a cache of this size.
    fn open(&mut self, kind: Kind, medium: Medium, cache_bytes: u64) -> Result<Box<dyn Driver>>;
}

/// What a slice took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slice {
    /// Operations.
    pub operations: u64,
    /// Their time.
    pub time: Duration,
}

impl Slice {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// An engine on a medium, and what has been measured of it.
pub struct Side {
    /// The engine.
    pub kind: Kind,
    /// The medium.
    pub medium: Medium,
    /// Documents that it has.
    pub documents: u64,
    driver: Box<dyn Driver>,
}

/// What has been measured of a side in one workload.
#[derive(Clone)]
pub struct Figures {
    /// The engine.
    pub kind: Kind,
    /// The medium.
    pub medium: Medium,
    /// Round by round.
    pub slices: Vec<Slice>,
    /// When each slice began, counted over all sides: that they took turns.
    pub turns: Vec<usize>,
    /// Of all slices.
    pub latency: Histogram,
}

impl Side {
    /// With documents numbered from 0.
    pub fn new(kind: Kind, medium: Medium, documents: u64, driver: Box<dyn Driver>) -> Side {
        Side { kind, medium, documents, driver }
    }

    /// Ends it.
    pub fn close(self) -> Result<()> {
        self.driver.close()
    }

    /// Reads everything: a cache that can hold all has all then, where what workloads happen to ask for would
    /// leave much out.
    fn read_all(&mut self) -> Result<()> {
        (0..self.documents).try_for_each(|number| self.driver.read(number))
    }

    /// Performs a workload until its cache is as that makes it, or for some slices' time.
    fn settle(&mut self, plan: &Plan, workload: Workload) -> Result<()> {
        let mut mix = Mix::new(workload, self.documents, !plan.seed_of(workload))?;
        self.run(&mut mix, plan.documents, plan.slice * WARM_SLICES, None).map(drop)
    }

    /// Performs operations until there are so many or the time is over.
    fn run(
        &mut self,
        mix: &mut Mix,
        most: u64,
        time: Duration,
        latency: Option<&mut Histogram>,
    ) -> Result<Slice> {
        let mut ignored = Histogram::default();
        let latency = latency.unwrap_or(&mut ignored);
        let began = Instant::now();
        let (mut last, mut operations) = (Duration::ZERO, 0);
        while operations < most && last < time {
            self.driver.perform(mix.next()?)?;
            let now = began.elapsed();
            latency.record((now - last).as_nanos() as u64);
            last = now;
            operations += 1;
        }
        self.documents = mix.documents();
        Ok(Slice { operations, time: last })
    }

    /// Goes on in the mix without performing anything but the inserts, which what comes later asks for.
    fn skip(&mut self, mix: &mut Mix, operations: u64) -> Result<()> {
        for _ in 0..operations {
            if let Operation::Insert(number) = mix.next()? {
                self.driver.insert(number)?;
            }
        }
        self.documents = mix.documents();
        Ok(())
    }
}

/// Slices that may pass before a measurement, while the cache adapts to the workload.
const WARM_SLICES: u32 = 12;
/// Slices may become so many times as long as is asked, for as many operations as the others do.
const PATIENCE: u32 = 4;

/// Makes caches what they are after this workload has run for long, on disks that are not held up meanwhile. (What
/// ran before would be in them otherwise, for minutes on a slow disk.) The `first` time all that fits is read.
pub fn warm(
    plan: &Plan,
    ratio: f64,
    workload: Workload,
    sides: &mut [Side],
    first: bool,
) -> Result<()> {
    match ratio >= 1.0 {
        true if first => sides.iter_mut().try_for_each(Side::read_all)?,
        true => {}
        false => sides.iter_mut().try_for_each(|side| side.settle(plan, workload))?,
    }
    // Who was slower has inserted less.
    let counts: Vec<(Medium, u64)> =
        sides.iter().map(|side| (side.medium, side.documents)).collect();
    for side in sides {
        let same = counts.iter().filter(|(medium, _)| *medium == side.medium);
        let most = same.map(|(_, count)| *count).max().unwrap_or(side.documents);
        (side.documents..most).try_for_each(|number| side.driver.insert(number))?;
        side.documents = most;
    }
    Ok(())
}

/// Measures a workload on all sides in turns. On one medium all do exactly the same operations, as
/// many as the slowest does in the time of a slice; first that is found out, which warms them up too.
/// Who has done less than the others when its time is over goes on where they do.
pub fn measure(plan: &Plan, workload: Workload, sides: &mut [Side]) -> Result<Vec<Figures>> {
    let seed = plan.seed_of(workload);
    let mixes = sides.iter().map(|side| Mix::new(workload, side.documents, seed));
    let mut mixes = mixes.collect::<Result<Vec<Mix>>>()?;
    let counts = probe(plan, workload, sides, &mut mixes)?;
    let mut figures: Vec<Figures> = sides
        .iter()
        .map(|side| Figures {
            kind: side.kind,
            medium: side.medium,
            slices: Vec::new(),
            turns: Vec::new(),
            latency: Histogram::default(),
        })
        .collect();
    let mut turn = 0;
    for round in 0..plan.rounds {
        for step in 0..sides.len() {
            // Who comes first changes.
            let at = (round + step) % sides.len();
            let side = (sides.get_mut(at), mixes.get_mut(at), figures.get_mut(at), counts.get(at));
            let (Some(side), Some(mix), Some(figures), Some(count)) = side else { continue };
            let latency = Some(&mut figures.latency);
            let time = plan.slice_on(side.medium) * PATIENCE;
            let slice = side.run(mix, *count, time, latency)?;
            side.skip(mix, count - slice.operations)?;
            figures.slices.push(slice);
            figures.turns.push(turn);
            turn += 1;
        }
    }
    Ok(figures)
}

/// Finds out how many operations a slice of each side is to have: as many as the slowest on its medium does.
fn probe(
    plan: &Plan,
    workload: Workload,
    sides: &mut [Side],
    mixes: &mut [Mix],
) -> Result<Vec<u64>> {
    let (mut counts, mut done): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    for at in 0..sides.len() {
        let (before, rest) = sides.split_at_mut(at);
        let (Some(side), Some(mix)) = (rest.first_mut(), mixes.get_mut(at)) else { break };
        let mut all = 0;
        let same = before.iter().zip(&counts).filter(|(other, _)| other.medium == side.medium);
        let most = same.map(|(_, count)| *count).min();
        let length = plan.slice_on(side.medium);
        let time = if most.is_some() { length * PATIENCE } else { length };
        // Who was held up by what went before, and would make it void, is asked again.
        let too_few = plan.operations_min(workload) / plan.rounds.max(1) as u64;
        let (mut slice, mut tries) = (Slice::default(), 0);
        while slice.operations <= too_few && tries < PATIENCE {
            slice = side.run(mix, most.unwrap_or(u64::MAX), time, None)?;
            (tries, all) = (tries + 1, all + slice.operations);
        }
        // The rate, not the count: who is slower takes longer for the same count.
        let count = (slice.rate() * length.as_secs_f64()) as u64;
        counts.push(count.clamp(1, slice.operations.max(1)));
        done.push(all);
    }
    let media: Vec<Medium> = sides.iter().map(|side| side.medium).collect();
    let of = |numbers: &[u64], medium: Medium| -> Vec<u64> {
        let all = media.iter().zip(numbers).filter(|(other, _)| **other == medium);
        all.map(|(_, number)| *number).collect()
    };
    for ((side, mix), mine) in sides.iter_mut().zip(mixes).zip(&done) {
        let most = of(&done, side.medium).into_iter().max().unwrap_or(0);
        side.skip(mix, most - mine)?;
    }
    Ok(media.iter().map(|medium| of(&counts, *medium).into_iter().min().unwrap_or(1)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    type Told = Rc<RefCell<Vec<String>>>;

    /// Notes what it is told to do; the slower ones take their time over it.
    struct Noting {
        told: Told,
        takes: Duration,
    }

    impl Noting {
        fn note(&self, text: String) -> Result<()> {
            let began = Instant::now();
            self.told.borrow_mut().push(text);
            while began.elapsed() < self.takes {
                std::hint::spin_loop();
            }
            Ok(())
        }
    }

    impl Driver for Noting {
        fn read(&mut self, number: u64) -> Result<()> {
            self.note(format!("read {number}"))
        }

        fn update(&mut self, number: u64, field: usize) -> Result<()> {
            self.note(format!("update {number} {field}"))
        }

        fn insert(&mut self, number: u64) -> Result<()> {
            self.note(format!("insert {number}"))
        }

        fn scan(&mut self, number: u64, length: u64) -> Result<()> {
            self.note(format!("scan {number} {length}"))
        }

        fn close(self: Box<Self>) -> Result<()> {
            self.note("close".to_owned())
        }
    }

    #[test]
    fn a_read_modify_write_reads_first() {
        let told = Told::default();
        let mut driver = Noting { told: told.clone(), takes: Duration::ZERO };
        driver.perform(Operation::ReadModifyWrite(7, 3)).expect("noting");
        driver.perform(Operation::Scan(1, 2)).expect("noting");
        assert_eq!(*told.borrow(), ["read 7", "update 7 3", "scan 1 2"]);
    }

    /// What a side that takes so long for each operation is told while it is warmed up beside another.
    fn warmed(workload: Workload, ratio: f64, first: bool, takes: u64) -> (Vec<String>, u64) {
        let plan = Plan { documents: 50, slice: Duration::from_millis(2), ..Plan::quick() };
        let told = [takes, 0].map(|takes| (Told::default(), Duration::from_micros(takes)));
        let mut sides = told.clone().map(|(told, takes)| {
            Side::new(Kind::PmLog, Medium::Pm, 50, Box::new(Noting { told, takes }))
        });
        warm(&plan, ratio, workload, &mut sides, first).expect("warming");
        assert_eq!(sides[0].documents, sides[1].documents);
        (told[0].0.take(), sides[0].documents)
    }

    /// Is held up at its first operation.
    struct Stalling {
        by: Duration,
    }

    impl Stalling {
        fn perform_one(&mut self) -> Result<()> {
            let (began, by) = (Instant::now(), std::mem::take(&mut self.by));
            while began.elapsed() < by {
                std::hint::spin_loop();
            }
            Ok(())
        }
    }

    impl Driver for Stalling {
        fn read(&mut self, _number: u64) -> Result<()> {
            self.perform_one()
        }

        fn update(&mut self, _number: u64, _field: usize) -> Result<()> {
            self.perform_one()
        }

        fn insert(&mut self, _number: u64) -> Result<()> {
            self.perform_one()
        }

        fn scan(&mut self, _number: u64, _length: u64) -> Result<()> {
            self.perform_one()
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_was_held_up_while_operations_were_counted_is_asked_again() {
        let slice = Duration::from_millis(5);
        let plan = Plan { slice, operations_min: 30, ..Plan::quick() };
        let driver = Box::new(Stalling { by: 4 * slice });
        let mut sides = [Side::new(Kind::PmLog, Medium::Pm, 50, driver)];
        let figures = measure(&plan, Workload::C, &mut sides).expect("measuring");
        assert!(figures[0].latency.count() >= 30, "{}", figures[0].latency.count());
    }

    #[test]
    fn a_cache_that_can_hold_all_is_given_all_once() {
        let (mut read, _) = warmed(Workload::C, 1.0, true, 0);
        read.sort();
        read.dedup();
        assert_eq!(read.len(), 50);
        assert_eq!(warmed(Workload::C, 1.0, false, 0).0.len(), 0);
    }

    #[test]
    fn a_smaller_cache_is_given_what_the_workload_asks_for() {
        let (told, documents) = warmed(Workload::D, 0.5, false, 0);
        assert_eq!(told.len(), 50);
        let inserts = told.iter().filter(|text| text.starts_with("insert")).count() as u64;
        assert!(inserts > 0 && documents == 50 + inserts);
        // In time for two or three; what it has not inserted by then is made up for.
        let (told, documents) = warmed(Workload::D, 0.5, false, 10_000);
        let inserts = told.iter().filter(|text| text.starts_with("insert")).count() as u64;
        assert!(told.len() < 50 && documents == 50 + inserts, "{told:?}");
    }

    /// Each as many and the same as the others on its medium, one slice of each in every round.
    #[test]
    fn sides_take_turns_at_the_same_operations() {
        const ROUNDS: usize = 4;
        let plan = Plan { rounds: ROUNDS, slice: Duration::from_millis(20), ..Plan::quick() };
        let of = [
            (Kind::PmLog, Medium::Pm, 0),
            (Kind::WiredTiger, Medium::Pm, 400),
            (Kind::PmLog, Medium::Flash, 100),
        ];
        let told = of.map(|_| Told::default());
        let sides = of.iter().zip(&told).map(|((kind, medium, takes), told)| {
            let takes = Duration::from_micros(*takes);
            let driver = Box::new(Noting { told: told.clone(), takes });
            Side::new(*kind, *medium, plan.documents, driver)
        });
        let mut sides: Vec<Side> = sides.collect();
        let figures = measure(&plan, Workload::D, &mut sides).expect("measuring");
        let mut turns: Vec<usize> = figures.iter().flat_map(|all| all.turns.clone()).collect();
        let rounds = |all: &Figures| Vec::from_iter(all.turns.iter().map(|turn| turn / of.len()));
        assert!(figures.iter().all(|all| rounds(all) == Vec::from_iter(0..ROUNDS)), "{turns:?}");
        let first = |round| figures.iter().position(|all| all.turns[round] == round * of.len());
        assert_eq!(Vec::from_iter((0..ROUNDS).map(first)), [0, 1, 2, 0].map(Some));
        turns.sort_unstable();
        assert_eq!(turns, Vec::from_iter(0..ROUNDS * of.len()));
        for (all, told) in figures.iter().zip(&told) {
            let count: u64 = all.slices.iter().map(|slice| slice.operations).sum();
            assert_eq!(all.latency.count(), count);
            assert!(count < told.borrow().len() as u64, "what warms up does not count");
        }
        let inserts = |side: usize| -> Vec<String> {
            let told = told[side].borrow();
            told.iter().filter(|text| text.starts_with("insert")).cloned().collect()
        };
        assert!(!inserts(0).is_empty() && inserts(0) == inserts(1));
        // Where neither was cut short in the end.
        let last = |side: usize| figures[side].slices.last().map(|slice| slice.operations);
        if last(0) == last(1) {
            assert_eq!(told[0].borrow().last(), told[1].borrow().last());
        }
    }
}
