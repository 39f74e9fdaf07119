//! Loading, and one measurement: threads with a connection each, their pace, what they count.
//!
//! Invariants: all threads begin together, once all are connected. What is begun before the warm-up's end
//! counts nowhere. With a pace an operation's time is also counted from when it was due, whether or not it could
//! begin then: a server that stalls is not spared what waits meanwhile (coordinated omission). It must not know
//! which servers take turns.

use super::failed;
use super::plan::Server;
use super::subject::{Outcome, Subject};
use crate::cpu::cpu_time;
use crate::histogram::Histogram;
use crate::workload::settings::Kind;
use crate::workload::{CoreWorkload, Operation, Seeded, Stream};
use kauri_base::Result;
use kauri_transport::monotonic_ns;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Nearer than this to an operation's time, a thread waits for it by looking at the clock.
const SPIN_NS: u64 = 100_000;
/// Wrong replies that are kept to be shown.
const SHOWN_MAX: usize = 3;

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

/// What came of one measurement.
#[derive(Clone, Default)]
pub struct Figures {
    /// How long it counted.
    pub wall: Duration,
    /// By kind, as [`KINDS`] has them.
    pub kinds: [Counted; 5],
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

    /// Adds what other threads, or another process, have counted in the same time.
    pub fn merge(&mut self, other: &Figures) {
        self.wall = self.wall.max(other.wall);
        self.client_cpu += other.client_cpu;
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            mine.latency.merge(&theirs.latency);
            mine.intended.merge(&theirs.intended);
            mine.errors += theirs.errors;
        }
        self.shown.extend(other.shown.iter().cloned());
        self.shown.truncate(SHOWN_MAX);
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
    pub measure: Duration,
    /// Of its random numbers.
    pub seed: u64,
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
    /// says when they begin. It ends early, with what there is, when `stop` is set.
    pub fn run(&self, stop: &AtomicBool, begin: impl FnOnce() -> Result<u64>) -> Result<Figures> {
        // All threads and this one meet when all are connected, and when it is known when they begin.
        let meeting = Barrier::new(self.threads + 1);
        let (connecting, unconnected) = (Mutex::new(()), AtomicBool::new(false));
        let began_ns = OnceLock::new();
        std::thread::scope(|scope| {
            let (meeting, connecting, unconnected) = (&meeting, &connecting, &unconnected);
            let began = &began_ns;
            let running: Vec<_> = (0..self.threads)
                .map(|thread| {
                    scope.spawn(move || {
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
                            Some(began_ns) => self.work(thread, subject, stream, *began_ns, stop),
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
                Ok(Some(began_ns)) => self.watch(*began_ns, stop),
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
    fn watch(&self, began_ns: u64, stop: &AtomicBool) -> Figures {
        let count_from_ns = began_ns + self.warm_up.as_nanos() as u64;
        wait_until(count_from_ns, stop);
        let (own, server) = (cpu_time(std::process::id()), self.pid.and_then(cpu_time));
        wait_until(count_from_ns + self.measure.as_nanos() as u64, stop);
        let since = |pid: u32, then: Option<Duration>| Some(cpu_time(pid)? - then?);
        Figures {
            wall: Duration::from_nanos(monotonic_ns().saturating_sub(count_from_ns)),
            server_cpu: self.pid.and_then(|pid| since(pid, server)),
            client_cpu: since(std::process::id(), own).unwrap_or_default(),
            ..Figures::default()
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
        mut subject: Subject,
        mut stream: Stream<Seeded>,
        began_ns: u64,
        stop: &AtomicBool,
    ) -> Result<Figures> {
        let mut figures = Figures::default();
        let count_from_ns = began_ns + self.warm_up.as_nanos() as u64;
        let end_ns = count_from_ns + self.measure.as_nanos() as u64;
        let (number, all) = (self.number(thread), self.threads * self.processes);
        let mut pace = self.target.map(|target| Pace::new(began_ns, target, number, all));
        wait_until(began_ns, stop);
        while !stop.load(Ordering::Relaxed) {
            let due_ns = pace.as_mut().map(Pace::next);
            if let Some(due_ns) = due_ns {
                wait_until(due_ns.min(end_ns), stop);
            }
            let start_ns = monotonic_ns();
            if start_ns >= end_ns {
                break;
            }
            self.workload.set_elapsed(Duration::from_nanos(start_ns.saturating_sub(began_ns)));
            let operation = stream.next_operation();
            let outcome = subject.perform(operation)?;
            let done_ns = monotonic_ns();
            let Some(counted) = figures.kinds.get_mut(kind_of(operation)) else { continue };
            if start_ns < count_from_ns || done_ns > end_ns {
                continue;
            }
            counted.latency.record(done_ns - start_ns);
            if let Some(due_ns) = due_ns {
                counted.intended.record(done_ns.saturating_sub(due_ns));
            }
            if let Outcome::Wrong(why) = outcome {
                counted.errors += 1;
                if figures.shown.len() < SHOWN_MAX {
                    figures.shown.push(why);
                }
            }
        }
        Ok(figures)
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

/// Waits for this time, or until it is to stop.
fn wait_until(at_ns: u64, stop: &AtomicBool) {
    const LOOK_NS: u64 = 20_000_000;
    loop {
        let left_ns = at_ns.saturating_sub(monotonic_ns());
        if left_ns == 0 || stop.load(Ordering::Relaxed) {
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
}
