//! The streams of operations for threads: `CoreWorkload` and the distribution by YCSB's `Client`.
//!
//! [`CoreWorkload`] has what the threads of a run share (settings and counters). Each thread has a [`Stream`],
//! which chooses operations and records, and [`Values`], which chooses the values to write.
//!
//! Invariants: except inserts, an operation is drawn only on an acknowledged record; the numbers of inserts begin
//! after `recordcount` and have no gap; values have a separate random source, so that operations do not depend on
//! the use of values. This module must not know how an operation is performed, nor how long it takes: a
//! distribution that moves with time gets the time from the caller.

use super::generator::{
    AcknowledgedCounter, Counter, Exponential, KeyChoice, MovingHotspot, ScrambledZipfian,
    Sequential, SkewedLatest, Uniform,
};
use super::properties::Properties;
use super::random::{Random, Seeded};
use super::record::{append_deterministic, append_random};
use super::settings::{Kind, Request, Settings};
use kauri_base::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Which fields an operation reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fields {
    /// The record as it is; in YCSB no names are given then.
    Whole,
    /// All, by name.
    All,
    /// This one of [`Settings::fields`].
    One(usize),
}

/// What is to be done on which record, by the record's number ([`CoreWorkload::key`] is its key).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Add it, with all fields. Then [`CoreWorkload::acknowledge`] has to be called.
    Insert {
        /// The record.
        record: i64,
    },
    /// Read it.
    Read {
        /// The record.
        record: i64,
        /// What of it.
        fields: Fields,
    },
    /// Write fields of it.
    Update {
        /// The record.
        record: i64,
        /// Which; [`Fields::All`] or one.
        fields: Fields,
    },
    /// Read so many from its key on, in the order of keys.
    Scan {
        /// The record.
        record: i64,
        /// How many.
        length: i64,
        /// What of each.
        fields: Fields,
    },
    /// Read it, then write fields of it.
    ReadModifyWrite {
        /// The record.
        record: i64,
        /// What is read.
        read: Fields,
        /// What is written; [`Fields::All`] or one.
        written: Fields,
    },
}

/// The two phases of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Inserts the records.
    Load,
    /// Performs the operations.
    Transactions,
}

/// Which of several processes this is that perform a workload together.
///
/// Each counts the records that it inserts by itself, one after the other from `inserts_from` on, and their keys
/// are those of every `of`th number: two processes never insert the same, and none chooses a record of another's
/// that may not be there yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessShare {
    /// Of the processes, the first being 0.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    /// The first number that is not there yet.
    pub inserts_from: i64,
}

impl ProcessShare {
    /// The number of a record, by which its key is made, where this process counts `record`.
    pub fn number_of(&self, record: i64) -> i64 {
        match record - self.inserts_from {
            ..0 => record,
            own => self.inserts_from + own * i64::from(self.of) + i64::from(self.number),
        }
    }
}

/// What the threads of a run share.
#[derive(Debug)]
pub struct CoreWorkload {
    settings: Settings,
    share: ProcessShare,
    to_load: Counter,
    inserts: AcknowledgedCounter,
    sequence: Sequential,
    choice: KeyChoice,
    /// Operations asked for, and nanoseconds told; counted only where a hot set moves by them.
    drawn: AtomicU64,
    elapsed_ns: AtomicU64,
}

impl CoreWorkload {
    /// Of these settings.
    pub fn new(settings: Settings) -> CoreWorkload {
        let whole = ProcessShare { number: 0, of: 1, inserts_from: settings.records };
        CoreWorkload::of_process(settings, whole)
    }

    /// One process's share of it.
    pub fn of_process(settings: Settings, share: ProcessShare) -> CoreWorkload {
        let last = settings.insert_start + settings.insert_count - 1;
        CoreWorkload {
            share,
            to_load: Counter::new(settings.insert_start),
            inserts: AcknowledgedCounter::new(share.inserts_from),
            sequence: Sequential::new(settings.insert_start, last),
            choice: key_choice(&settings),
            drawn: AtomicU64::new(0),
            elapsed_ns: AtomicU64::new(0),
            settings,
        }
    }

    /// Of these properties.
    pub fn of(properties: &Properties) -> Result<CoreWorkload> {
        Ok(CoreWorkload::new(Settings::of(properties)?))
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How many operations a phase has in all; None is without end.
    ///
    /// Where `insertstart` is set and `insertcount` is not, YCSB's client loads `recordcount` records, beyond
    /// those that there are for its workload; here those from `insertstart` on to `recordcount` are loaded.
    pub fn operations(&self, phase: Phase) -> Option<u64> {
        let settings = &self.settings;
        let unbounded = !settings.records_given && settings.insert_count == settings.records;
        let count = match phase {
            Phase::Load if unbounded => 0,
            Phase::Load => settings.insert_count,
            Phase::Transactions => settings.operations,
        };
        (count > 0).then_some(count.unsigned_abs())
    }

    /// How many of them are this thread's, the first being 0: the same for all, and one more for the first
    /// ones if that leaves a rest.
    pub fn share(&self, phase: Phase, thread: u64, threads: u64) -> Option<u64> {
        let threads = threads.max(1);
        let all = self.operations(phase)?;
        Some(all / threads + u64::from(thread < all % threads))
    }

    /// The number of the record to load next, for all threads together.
    pub fn next_to_load(&self) -> i64 {
        self.to_load.next()
    }

    /// The records that this thread loads: its share of them, each the next one at the time.
    pub fn loading(&self, thread: u64, threads: u64) -> impl Iterator<Item = i64> + '_ {
        let mut left = self.share(Phase::Load, thread, threads);
        std::iter::from_fn(move || {
            if let Some(left) = &mut left {
                *left = left.checked_sub(1)?;
            }
            Some(self.next_to_load())
        })
    }

    /// Says that a drawn insert has been performed, or has failed for good: the record may be chosen from
    /// now on. (YCSB makes no difference between the two either.)
    pub fn acknowledge(&self, record: i64) -> Result<()> {
        self.inserts.acknowledge(record)
    }

    /// The number of the newest record that may be chosen.
    pub fn newest(&self) -> i64 {
        self.inserts.newest()
    }

    /// The number of the record that is inserted next.
    pub fn next_insert(&self) -> i64 {
        self.inserts.upcoming()
    }

    /// Says that other processes have inserted all records below this one. Never while an insert is drawn and
    /// not acknowledged.
    pub fn insert_from(&self, record: i64) {
        self.inserts.go_on_at(record);
    }

    /// Says how long the run has taken so far. Only a hot set that moves with time asks for it.
    pub fn set_elapsed(&self, elapsed: Duration) {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.elapsed_ns.store(elapsed_ns, Ordering::Relaxed);
    }

    /// A record's key.
    pub fn key(&self, record: i64) -> String {
        self.settings.keys.name(self.share.number_of(record))
    }

    /// Appends a record's key.
    pub fn append_key(&self, record: i64, out: &mut String) {
        self.settings.keys.append(self.share.number_of(record), out);
    }

    /// Appends the value that this field of this key has, where values can be verified.
    fn append_expected(&self, key: &str, field: usize, length: i64, out: &mut Vec<u8>) {
        let name = self.settings.fields.get(field).map_or("", String::as_str);
        append_deterministic(out, key, name, length.max(0).unsigned_abs() as usize);
    }

    /// Whether what was read of this field of this key is what was written (`verifyRow`). `buffer` is for its
    /// use. True where values can't be verified.
    pub fn verify(&self, key: &str, field: usize, found: &[u8], buffer: &mut Vec<u8>) -> bool {
        use super::generator::Length;
        match self.settings.field_length {
            Length::Constant(length) if self.settings.data_integrity => {
                buffer.clear();
                self.append_expected(key, field, length, buffer);
                buffer == found
            }
            _ => true,
        }
    }

    /// The operations and the values of one thread of a run with this seed.
    pub fn thread(self: &Arc<Self>, seed: u64, thread: u64) -> (Stream<Seeded>, Values<Seeded>) {
        let operations = Seeded::of_thread(seed, thread * 2);
        let values = Seeded::of_thread(seed, thread * 2 + 1);
        (Stream::new(self.clone(), operations), Values::new(self.clone(), values))
    }
}

fn key_choice(settings: &Settings) -> KeyChoice {
    let (first, last) = (settings.insert_start, settings.insert_start + settings.insert_count - 1);
    match settings.request {
        Request::Uniform => KeyChoice::Uniform(Uniform::new(first, last)),
        Request::Zipfian => {
            // Twice as many as are to be expected, so that they are there from the beginning; and one more,
            // as in YCSB.
            let inserted = settings.operations as f64 * settings.insert_proportion * 2.0;
            KeyChoice::Zipfian(ScrambledZipfian::new(first, last + 1 + inserted as i64))
        }
        Request::Latest => KeyChoice::Latest(SkewedLatest::new(settings.records - 1)),
        Request::Hotspot | Request::MovingHotspot { .. } => match settings.hot_set() {
            // Settings don't come with a hot set that can't be drawn from.
            None => KeyChoice::Uniform(Uniform::new(first, last)),
            Some(hotspot) => match settings.request {
                Request::MovingHotspot { step, every } => {
                    let step = step.unwrap_or(hotspot.hot());
                    KeyChoice::MovingHotspot(MovingHotspot::new(hotspot, step, every))
                }
                _ => KeyChoice::Hotspot(hotspot),
            },
        },
        Request::Exponential => KeyChoice::Exponential(Exponential::of_percentile(
            settings.exponential_percentile,
            settings.records as f64 * settings.exponential_fraction,
        )),
        Request::Sequential => KeyChoice::Sequential,
    }
}

/// The operations of one thread.
pub struct Stream<R> {
    workload: Arc<CoreWorkload>,
    choice: KeyChoice,
    field: Uniform,
    random: R,
}

impl<R: Random> Stream<R> {
    /// Drawn with these random numbers.
    pub fn new(workload: Arc<CoreWorkload>, random: R) -> Stream<R> {
        let fields = workload.settings.fields.len().max(1) as i64;
        let choice = workload.choice.clone();
        Stream { choice, field: Uniform::new(0, fields - 1), random, workload }
    }

    /// Its random numbers.
    pub fn random(&mut self) -> &mut R {
        &mut self.random
    }

    /// The next one of the transaction phase (`doTransaction`).
    pub fn next_operation(&mut self) -> Operation {
        let kind = self.workload.settings.mix.next(&mut self.random);
        match kind.unwrap_or(Kind::Read) {
            Kind::Insert => Operation::Insert { record: self.workload.inserts.next() },
            Kind::Read => {
                let record = self.choose();
                let settings = &self.workload.settings;
                let by_name = settings.data_integrity || settings.read_all_fields_by_name;
                let all = if by_name { Fields::All } else { Fields::Whole };
                Operation::Read { record, fields: self.read_fields(all) }
            }
            Kind::Update => {
                Operation::Update { record: self.choose(), fields: self.written_fields() }
            }
            Kind::Scan => {
                let record = self.choose();
                let length = self.workload.settings.scan_length.next(&mut self.random);
                Operation::Scan { record, length, fields: self.read_fields(Fields::Whole) }
            }
            Kind::ReadModifyWrite => Operation::ReadModifyWrite {
                record: self.choose(),
                read: self.read_fields(Fields::Whole),
                written: self.written_fields(),
            },
        }
    }

    fn read_fields(&mut self, all: Fields) -> Fields {
        if self.workload.settings.read_all_fields { all } else { self.one_field() }
    }

    fn written_fields(&mut self) -> Fields {
        if self.workload.settings.write_all_fields { Fields::All } else { self.one_field() }
    }

    fn one_field(&mut self) -> Fields {
        Fields::One(self.field.next(&mut self.random).unsigned_abs() as usize)
    }

    /// A record that is there (`nextKeynum`).
    fn choose(&mut self) -> i64 {
        let Stream { workload, choice, random, .. } = self;
        if let KeyChoice::Exponential(ages) = choice {
            loop {
                let age = ages.next(random) as i64;
                let record = workload.newest().saturating_sub(age);
                if record >= 0 {
                    return record;
                }
            }
        }
        loop {
            let record = match choice {
                KeyChoice::Uniform(uniform) => uniform.next(random),
                KeyChoice::Zipfian(zipfian) => zipfian.next(random),
                KeyChoice::Latest(latest) => latest.next(workload.newest(), random),
                KeyChoice::Hotspot(hotspot) => hotspot.next(random),
                KeyChoice::MovingHotspot(moving) => {
                    // The other processes perform as many, as far as is known here.
                    let drawn =
                        workload.drawn.fetch_add(workload.share.of.into(), Ordering::Relaxed);
                    let elapsed = Duration::from_nanos(workload.elapsed_ns.load(Ordering::Relaxed));
                    moving.next(drawn, elapsed, random)
                }
                KeyChoice::Sequential | KeyChoice::Exponential(_) => workload.sequence.next(),
            };
            if record <= workload.newest() {
                return record;
            }
        }
    }
}

/// The values that one thread writes.
pub struct Values<R> {
    workload: Arc<CoreWorkload>,
    random: R,
}

impl<R: Random> Values<R> {
    /// Drawn with these random numbers.
    pub fn new(workload: Arc<CoreWorkload>, random: R) -> Values<R> {
        Values { workload, random }
    }

    /// Appends a value for this field of this key: of the next length, random, or the one that can be
    /// verified.
    pub fn append(&mut self, key: &str, field: usize, out: &mut Vec<u8>) {
        let settings = &self.workload.settings;
        let length = settings.field_length.next(&mut self.random);
        if settings.data_integrity {
            self.workload.append_expected(key, field, length, out);
        } else {
            append_random(out, length.max(0).unsigned_abs() as usize, &mut self.random);
        }
    }
}

#[cfg(test)]
mod tests;
