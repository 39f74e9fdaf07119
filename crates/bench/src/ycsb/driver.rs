//! What performs operations, and how two of them are measured in turns.

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

    /// Reads until its cache is as it will be, or for some slices' time. A cache that can hold all has all then:
    /// what a workload happens to ask for would leave much out.
    pub fn warm(&mut self, plan: &Plan, ratio: f64) -> Result<()> {
        if ratio >= 1.0 {
            return (0..self.documents).try_for_each(|number| self.driver.read(number));
        }
        let mut mix = Mix::new(Workload::C, self.documents, plan.seed)?;
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

/// Slices that reading before the first measurement may take.
const WARM_SLICES: u32 = 12;
/// Slices may become so many times as long as is asked, for as many operations as the others do.
const PATIENCE: u32 = 4;

/// Measures a workload on all sides in turns. On one medium all do exactly the same operations, as
/// many as the slowest does in the time of a slice; first that is found out, which warms them up too.
/// Who has done less than the others when its time is over goes on where they do.
pub fn measure(plan: &Plan, workload: Workload, sides: &mut [Side]) -> Result<Vec<Figures>> {
    let seed = plan.seed ^ u64::from(u32::from(workload.letter())) << 32;
    let mixes = sides.iter().map(|side| Mix::new(workload, side.documents, seed));
    let mut mixes = mixes.collect::<Result<Vec<Mix>>>()?;
    let (mut counts, mut done): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    for at in 0..sides.len() {
        let (before, rest) = sides.split_at_mut(at);
        let (Some(side), Some(mix)) = (rest.first_mut(), mixes.get_mut(at)) else { break };
        let same = before.iter().zip(&counts).filter(|(other, _)| other.medium == side.medium);
        let most = same.map(|(_, count)| *count).min();
        let length = plan.slice_on(side.medium);
        let time = if most.is_some() { length * PATIENCE } else { length };
        let slice = side.run(mix, most.unwrap_or(u64::MAX), time, None)?;
        // The rate, not the count: who is slower takes longer for the same count.
        let count = (slice.rate() * length.as_secs_f64()) as u64;
        counts.push(count.clamp(1, slice.operations.max(1)));
        done.push(slice.operations);
    }
    let media: Vec<Medium> = sides.iter().map(|side| side.medium).collect();
    let of = |numbers: &[u64], medium: Medium| -> Vec<u64> {
        let all = media.iter().zip(numbers).filter(|(other, _)| **other == medium);
        all.map(|(_, number)| *number).collect()
    };
    let counts: Vec<u64> =
        media.iter().map(|medium| of(&counts, *medium).into_iter().min().unwrap_or(1)).collect();
    for ((side, mix), mine) in sides.iter_mut().zip(&mut mixes).zip(&done) {
        let most = of(&done, side.medium).into_iter().max().unwrap_or(0);
        side.skip(mix, most - mine)?;
    }
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

    #[test]
    fn a_cache_that_can_hold_all_is_given_all() {
        let plan = Plan { documents: 50, ..Plan::quick() };
        let read = |ratio| {
            let told = Told::default();
            let driver = Box::new(Noting { told: told.clone(), takes: Duration::ZERO });
            Side::new(Kind::PmLog, Medium::Pm, 50, driver).warm(&plan, ratio).expect("warming");
            let mut read = told.take();
            read.sort();
            read.dedup();
            read.len()
        };
        assert_eq!(read(1.0), 50);
        assert!(read(0.5) < 50);
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
