//! Loading, and one measurement: threads with a connection each, their pace, their counts.
//!
//! Invariants: all threads begin together, after all are connected. Operations that begin before the end of the
//! warm-up are not counted. With a pace, an operation's time is also counted from its due time, whether or not it
//! could begin then: waiting operations count against a server that stalls (coordinated omission). An operation
//! counts only in the phase in which it begins. This module must not know which servers take turns.

use super::failed;
use super::plan::Server;
use super::subject::{Outcome, Subject};
use crate::cpu::cpu_time;
use crate::histogram::Histogram;
use crate::workload::settings::Kind;
use crate::workload::{CoreWorkload, Operation, Seeded, Stream};
use kauri_base::Result;
use kauri_transport::monotonic_ns;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Nearer than this to an operation's time, a thread waits for it by looking at the clock.
const SPIN_NS: u64 = 100_000;
/// Wrong replies that are kept to be shown.
const SHOWN_MAX: usize = 3;
/// How often who waits for a measurement is told how far it is.
pub const TOLD_EACH: Duration = Duration::from_secs(5);

/// The kinds of operations, in the order of reports.
pub const KINDS: [Kind; 5] =
    [Kind::Read, Kind::Update, Kind::Insert, Kind::Scan, Kind::ReadModifyWrite];

/// A kind's name, as in YCSB's reports.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "READ",
        Kind::Update => "UPDATE",
        Kind::Insert => "INSERT",
        Kind::Scan => "SCAN",
        Kind::ReadModifyWrite => "READ-MODIFY-WRITE",
    }
}

fn kind_of(operation: Operation) -> usize {
    match operation {
        Operation::Read { .. } => 0,
        Operation::Update { .. } => 1,
        Operation::Insert { .. } => 2,
        Operation::Scan { .. } => 3,
        Operation::ReadModifyWrite { .. } => 4,
    }
}

/// What was counted of one kind of operations.
#[derive(Clone, Default)]
pub struct Counted {
    /// From an operation's beginning to its end.
    pub latency: Histogram,
    /// From when it was due; empty without a pace.
    pub intended: Histogram,
    /// Those whose reply was another one than it should be. Their times count as well.
    pub errors: u64,
}

/// What was counted by kind, as [`KINDS`] has them.
pub type Kinds = [Counted; 5];

/// How long a measurement counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Length {
    /// So long.
    Time(Duration),
    /// Until all threads of all processes together have performed so many operations.
    Operations(u64),
}

impl Length {
    /// For a reader.
    pub fn text(self) -> String {
        match self {
            Length::Time(time) => format!("{} s", time.as_secs_f64()),
            Length::Operations(count) => format!("{count} operations"),
        }
    }
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug)]
pub struct SoFar {
    /// How many operations have counted.
    pub operations: u64,
    /// Since when operations count.
    pub time: Duration,
}

/// What came of one measurement.
#[derive(Clone, Default)]
pub struct Figures {
    /// How long it counted.
    pub wall: Duration,
    /// All of it.
    pub kinds: Kinds,
    /// The same by phases, which are as long as each other, if there are several.
    pub phases: Vec<Kinds>,
    /// CPU time of the server meanwhile, if its process is here.
    pub server_cpu: Option<Duration>,
    /// CPU time of the client's processes meanwhile.
    pub client_cpu: Duration,
    /// Some of the wrong replies.
    pub shown: Vec<String>,
}

impl Figures {
    /// All operations that counted.
    pub fn operations(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.latency.count()).sum()
    }

    /// Those of them with a wrong reply.
    pub fn errors(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.errors).sum()
    }

    /// Operations a second.
    pub fn per_s(&self) -> f64 {
        self.operations() as f64 / self.wall.as_secs_f64().max(1e-9)
    }

    /// How long each phase was that was begun, with what was counted in it. The last one may have been stopped.
    pub fn timed_phases(&self, length: Length) -> impl Iterator<Item = (Duration, &Kinds)> {
        let whole = match length {
            Length::Time(time) => time / (self.phases.len().max(1) as u32),
            Length::Operations(_) => self.wall,
        };
        let began = self.phases.iter().scan(Duration::ZERO, move |begins, phase| {
            let left = self.wall.saturating_sub(*begins);
            *begins += whole;
            Some((left.min(whole), phase))
        });
        began.filter(|(time, _)| !time.is_zero())
    }

    /// Adds what other threads, or another process, have counted in the same time.
    pub fn merge(&mut self, other: &Figures) {
        self.wall = self.wall.max(other.wall);
        self.client_cpu += other.client_cpu;
        merge_kinds(&mut self.kinds, &other.kinds);
        if self.phases.len() < other.phases.len() {
            self.phases.resize_with(other.phases.len(), Kinds::default);
        }
        for (mine, theirs) in self.phases.iter_mut().zip(&other.phases) {
            merge_kinds(mine, theirs);
        }
        self.shown.extend(other.shown.iter().cloned());
        self.shown.truncate(SHOWN_MAX);
    }

    /// What was counted in these phases.
    pub(super) fn of_phases(phases: Vec<Kinds>) -> Figures {
        let mut kinds = Kinds::default();
        phases.iter().for_each(|phase| merge_kinds(&mut kinds, phase));
        let phases = if phases.len() > 1 { phases } else { Vec::new() };
        Figures { kinds, phases, ..Figures::default() }
    }
}

fn merge_kinds(mine: &mut Kinds, others: &Kinds) {
    for (mine, theirs) in mine.iter_mut().zip(others) {
        mine.latency.merge(&theirs.latency);
        mine.intended.merge(&theirs.intended);
        mine.errors += theirs.errors;
    }
}

/// A measurement to be made.
pub struct Measurement<'m> {
    /// Of this server.
    pub server: &'m Server,
    /// The server's process, if it is here.
    pub pid: Option<u32>,
    /// What has to be gone through.
    pub transport: &'m str,
    /// Asked for.
    pub workload: &'m Arc<CoreWorkload>,
    /// Threads of each process, each with a connection.
    pub threads: usize,
    /// Processes at once.
    pub processes: usize,
    /// Which of them this is, the first being 0.
    pub process: usize,
    /// Operations a second of all threads of all processes together.
    pub target: Option<f64>,
    /// How long it goes on before anything counts.
    pub warm_up: Duration,
    /// How long it counts.
    pub length: Length,
    /// Into how many phases of the same length its time falls.
    pub phases: usize,
    /// Of its random numbers.
    pub seed: u64,
    /// How often it is told how far it is.
    pub told_each: Duration,
}

/// What a thread tells while it works. Each has a line of the processor's cache of its own.
#[derive(Default)]
#[repr(align(128))]
struct Told(AtomicU64);

/// Counts a thread that has ended, however it has.
struct Ended<'e>(&'e AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Fills the server's collection anew. `loaded` is told how many records there are so far.
pub fn load(
    server: &Server,
    workload: &Arc<CoreWorkload>,
    threads: usize,
    seed: u64,
    stop: &AtomicBool,
    loaded: &AtomicU64,
) -> Result<()> {
    let threads = threads as u64;
    let subject = |thread: u64| -> Result<Subject> {
        let (_, values) = workload.thread(seed, thread);
        Subject::open(&server.uri, Arc::clone(workload), values)
    };
    subject(0)?.clear()?;
    let fill = |thread: u64| -> Result<()> {
        let mut subject = subject(thread)?;
        let mut records = workload.loading(thread, threads).inspect(|_| {
            loaded.fetch_add(1, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            match subject.load(&mut records)? {
                None => break,
                Some(Outcome::Done) => {}
                Some(Outcome::Wrong(why)) => return Err(failed(&server.label, why)),
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || fill(thread))).collect();
        running.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(failed(&server.label, "a thread panicked")))
        })
    })
}

impl Measurement<'_> {
    /// Makes it: the part of it that is this process's. When all threads are connected `begin` is called, which
    /// says when they begin; then every now and then `tell`. It ends early, with what there is, when `stop` is set.
    pub fn run(
        &self,
        stop: &AtomicBool,
        begin: impl FnOnce() -> Result<u64>,
        tell: &mut dyn FnMut(SoFar),
    ) -> Result<Figures> {
        // All threads and this one meet when all are connected, and when it is known when they begin.
        let meeting = Barrier::new(self.threads + 1);
        let (connecting, unconnected) = (Mutex::new(()), AtomicBool::new(false));
        let began_ns = OnceLock::new();
        let told: Vec<Told> = (0..self.threads).map(|_| Told::default()).collect();
        let ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let (meeting, connecting, unconnected) = (&meeting, &connecting, &unconnected);
            let (began, ended) = (&began_ns, &ended);
            let running: Vec<_> = (0..self.threads)
                .zip(&told)
                .map(|(thread, told)| {
                    scope.spawn(move || {
                        let _ended = Ended(ended);
                        let subject = {
                            // One after the other, so that every round spreads them alike.
                            let _turn = connecting.lock().unwrap_or_else(PoisonError::into_inner);
                            self.subject(thread)
                        };
                        unconnected.fetch_or(subject.is_err(), Ordering::Relaxed);
                        meeting.wait();
                        meeting.wait();
                        let (subject, stream) = subject?;
                        match began.get() {
                            Some(began_ns) => {
                                let session = (subject, stream);
                                self.work(thread, session, *began_ns, stop, &told.0)
                            }
                            None => Ok(Figures::default()),
                        }
                    })
                })
                .collect();
            meeting.wait();
            let begun = match unconnected.load(Ordering::Relaxed) {
                true => None,
                false => Some(begin().map(|at_ns| *began.get_or_init(|| at_ns))),
            };
            meeting.wait();
            let begun = begun.transpose();
            let mut figures = match &begun {
                Ok(Some(began_ns)) => {
                    let over = || is_set(stop) || ended.load(Ordering::Relaxed) == self.threads;
                    self.watch(*began_ns, over, &told, tell)
                }
                _ => Figures::default(),
            };
            for thread in running {
                let counted = thread
                    .join()
                    .unwrap_or_else(|_| Err(failed(&self.server.label, "a thread panicked")))?;
                figures.merge(&counted);
            }
            begun.map(|_| figures)
        })
    }

    /// Waits until the end. What can be told from beside the threads.
    fn watch(
        &self,
        began_ns: u64,
        over: impl Fn() -> bool,
        told: &[Told],
        tell: &mut dyn FnMut(SoFar),
    ) -> Figures {
        let count_from_ns = began_ns + self.warm_up.as_nanos() as u64;
        wait_until(count_from_ns, &over);
        let (own, server) = (cpu_time(std::process::id()), self.pid.and_then(cpu_time));
        let end_ns = self.end_ns(count_from_ns);
        let counted = || Duration::from_nanos(monotonic_ns().saturating_sub(count_from_ns));
        let mut next_ns = count_from_ns;
        while monotonic_ns() < end_ns && !over() {
            next_ns = next_ns.saturating_add(self.told_each.as_nanos() as u64);
            wait_until(next_ns.min(end_ns), &over);
            if next_ns < end_ns && !over() {
                let operations = told.iter().map(|one| one.0.load(Ordering::Relaxed)).sum();
                tell(SoFar { operations, time: counted() });
            }
        }
        let since = |pid: u32, then: Option<Duration>| Some(cpu_time(pid)? - then?);
        // How long operations that are counted take is for the last thread to say.
        let wall = match self.length {
            Length::Time(_) => counted(),
            Length::Operations(_) => Duration::ZERO,
        };
        Figures {
            wall,
            server_cpu: self.pid.and_then(|pid| since(pid, server)),
            client_cpu: since(std::process::id(), own).unwrap_or_default(),
            ..Figures::default()
        }
    }

    /// When operations end to count, if that is a matter of time.
    pub(super) fn end_ns(&self, count_from_ns: u64) -> u64 {
        match self.length {
            Length::Time(time) => count_from_ns.saturating_add(time.as_nanos() as u64),
            Length::Operations(_) => u64::MAX,
        }
    }

    /// How many operations of this thread count at most.
    fn operations_max(&self, thread: usize) -> u64 {
        let (number, all) = (self.number(thread) as u64, (self.threads * self.processes) as u64);
        match self.length {
            Length::Time(_) => u64::MAX,
            Length::Operations(count) => count / all + u64::from(number < count % all),
        }
    }

    /// A thread's number among those of all processes.
    fn number(&self, thread: usize) -> usize {
        self.process * self.threads + thread
    }

    fn subject(&self, thread: usize) -> Result<(Subject, Stream<Seeded>)> {
        let (stream, values) = self.workload.thread(self.seed, self.number(thread) as u64);
        let subject = Subject::open(&self.server.uri, Arc::clone(self.workload), values)?;
        // A connection may come out otherwise than the one before.
        if subject.transport() != self.transport {
            let why = format!("a connection goes over {} now", subject.transport());
            return Err(failed(&self.server.label, why));
        }
        Ok((subject, stream))
    }

    /// One thread's operations. Named in `scripts/client_instructions`.
    #[inline(never)]
    fn work(
        &self,
        thread: usize,
        (mut subject, mut stream): (Subject, Stream<Seeded>),
        began_ns: u64,
        stop: &AtomicBool,
        told: &AtomicU64,
    ) -> Result<Figures> {
        let mut phases = vec![Kinds::default(); self.phases.max(1)];
        let mut shown = Vec::new();
        let count_from_ns = began_ns + self.warm_up.as_nanos() as u64;
        let end_ns = self.end_ns(count_from_ns);
        let phase_ns = ((end_ns - count_from_ns) / phases.len() as u64).max(1);
        let (max, mut count, mut last_ns) = (self.operations_max(thread), 0, count_from_ns);
        let (number, all) = (self.number(thread), self.threads * self.processes);
        let mut pace = self.target.map(|target| Pace::new(began_ns, target, number, all));
        wait_until(began_ns, || is_set(stop));
        while count < max && !is_set(stop) {
            let due_ns = pace.as_mut().map(Pace::next);
            if let Some(due_ns) = due_ns {
                wait_until(due_ns.min(end_ns), || is_set(stop));
            }
            let start_ns = monotonic_ns();
            if start_ns >= end_ns {
                break;
            }
            self.workload.set_elapsed(Duration::from_nanos(start_ns.saturating_sub(began_ns)));
            let operation = stream.next_operation();
            let outcome = subject.perform(operation)?;
            let done_ns = monotonic_ns();
            if start_ns < count_from_ns || done_ns > end_ns {
                continue;
            }
            // What is left by the division belongs to the last one.
            let phase = ((start_ns - count_from_ns) / phase_ns).min(phases.len() as u64 - 1);
            let kinds = phases.get_mut(phase as usize);
            let Some(counted) = kinds.and_then(|kinds| kinds.get_mut(kind_of(operation))) else {
                continue;
            };
            counted.latency.record(done_ns - start_ns);
            if let Some(due_ns) = due_ns {
                counted.intended.record(done_ns.saturating_sub(due_ns));
            }
            if let Outcome::Wrong(why) = outcome {
                counted.errors += 1;
                if shown.len() < SHOWN_MAX {
                    shown.push(why);
                }
            }
            (count, last_ns) = (count + 1, done_ns);
            told.store(count, Ordering::Relaxed);
        }
        let wall = match self.length {
            Length::Time(_) => Duration::ZERO,
            Length::Operations(_) => Duration::from_nanos(last_ns - count_from_ns),
        };
        Ok(Figures { wall, shown, ..Figures::of_phases(phases) })
    }
}

/// When the operations of one thread are due.
struct Pace {
    began_ns: u64,
    /// Between two of this thread, in nanoseconds.
    interval_ns: f64,
    /// Of this thread's first, so that threads take turns.
    offset_ns: f64,
    count: u64,
}

impl Pace {
    fn new(began_ns: u64, target: f64, thread: usize, threads: usize) -> Pace {
        let interval_ns = threads as f64 * 1e9 / target;
        let offset_ns = interval_ns * thread as f64 / threads as f64;
        Pace { began_ns, interval_ns, offset_ns, count: 0 }
    }

    /// When the next is.
    fn next(&mut self) -> u64 {
        let after_ns = self.offset_ns + self.interval_ns * self.count as f64;
        self.count += 1;
        self.began_ns.saturating_add(after_ns as u64)
    }
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

/// Waits for this time, or until it is over.
fn wait_until(at_ns: u64, over: impl Fn() -> bool) {
    const LOOK_NS: u64 = 20_000_000;
    loop {
        let left_ns = at_ns.saturating_sub(monotonic_ns());
        if left_ns == 0 || over() {
            return;
        }
        match left_ns {
            ..=SPIN_NS => std::hint::spin_loop(),
            _ => std::thread::sleep(Duration::from_nanos((left_ns - SPIN_NS).min(LOOK_NS))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_kept_by_all_threads_together() {
        let mut due: Vec<u64> = (0..4)
            .flat_map(|thread| {
                let mut pace = Pace::new(1_000, 2_000.0, thread, 4);
                (0..5).map(|_| pace.next()).collect::<Vec<_>>()
            })
            .collect();
        due.sort_unstable();
        let expected: Vec<u64> = (0..20).map(|at| 1_000 + at * 500_000).collect();
        assert_eq!(due, expected);
    }

    #[test]
    fn what_waits_behind_a_stall_is_counted_from_when_it_was_due() {
        // One operation a millisecond, the first of which takes ten.
        let mut pace = Pace::new(0, 1_000.0, 0, 1);
        let (mut now_ns, mut intended, mut latency) = (0, Vec::new(), Vec::new());
        for takes_ns in [10_000_000, 1_000, 1_000] {
            let due_ns = pace.next();
            let start_ns = now_ns.max(due_ns);
            now_ns = start_ns + takes_ns;
            latency.push(now_ns - start_ns);
            intended.push(now_ns - due_ns);
        }
        assert_eq!(latency, [10_000_000, 1_000, 1_000]);
        assert_eq!(intended, [10_000_000, 9_001_000, 8_002_000]);
    }

    #[test]
    fn a_stopped_measurement_has_the_phases_that_it_has_begun() {
        let phases = vec![Kinds::default(); 4];
        let figures = Figures { wall: Duration::from_millis(2_500), ..Figures::of_phases(phases) };
        let ms = |length: Duration| -> Vec<u128> {
            let timed = figures.timed_phases(Length::Time(length));
            timed.map(|(time, _)| time.as_millis()).collect()
        };
        assert_eq!(ms(Duration::from_secs(4)), [1000, 1000, 500]);
        assert_eq!(ms(Duration::from_secs(2)), [500; 4]);
        let whole = Figures::of_phases(vec![Kinds::default()]);
        assert_eq!(whole.timed_phases(Length::Operations(1)).count(), 0);
    }

    #[test]
    fn others_phases_are_added_to_their_own() {
        let phase = |count| {
            let mut kinds = Kinds::default();
            (0..count).for_each(|_| kinds[2].latency.record(5));
            kinds
        };
        let mut figures = Figures::default();
        figures.merge(&Figures::of_phases(vec![phase(1), phase(0)]));
        figures.merge(&Figures::of_phases(vec![phase(2), phase(4)]));
        let counts: Vec<u64> =
            figures.phases.iter().map(|kinds| kinds[2].latency.count()).collect();
        assert_eq!((counts, figures.operations()), (vec![3, 4], 7));
    }
}
