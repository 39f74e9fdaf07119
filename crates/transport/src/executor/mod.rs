//! The ServiceExecutor: one worker thread per core, each with its own epoll loop.
//!
//! A task is a future that stays on one worker. Workers share nothing on the path of a request. Other threads reach
//! a worker by its mailbox; that costs an eventfd write only if the worker sleeps.

pub(crate) mod completions;
pub(crate) mod io;
pub(crate) mod local;
pub(crate) mod outbox;
mod placement;
pub(crate) mod rings;
pub(crate) mod seeded;
pub(crate) mod shared;
pub(crate) mod slab;
mod spin;
mod sys;
mod task;
mod timer;
mod watch;
mod worker;

pub use timer::Sleep;

use crate::arrivals::Arrivals;
use crate::stats::WorkerSnapshot;
use crate::steering::Exchange;
use crate::sys::{allowed_cores, monotonic_ns};
use kauri_base::log::{self, Attr};
use kauri_base::{Error, ErrorCode, Result, work};
use local::{Local, LocalFuture};
use placement::{Cores, Placement};
use shared::{Start, WorkerShared};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use watch::Watch;

/// Called at the end of a tick.
pub type TickEndHook = Arc<dyn Fn() + Send + Sync>;

/// Options of an executor.
#[derive(Default)]
pub struct ExecutorOptions {
    /// What the threads are called, before their number; `None`: `worker`.
    pub name: Option<&'static str>,
    /// Worker threads; 0 for one per core.
    pub workers: usize,
    /// Stack of a request at work, in bytes; 0: [`kauri_fiber::STACK_BYTES`].
    pub stack_bytes: usize,
    /// Maximum time that a worker polls for events before it sleeps, in microseconds.
    pub spin_us: u64,
    /// Most bytes that large messages take while they arrive and are at work, together; 0: no limit.
    pub arrivals_bytes_max: u64,
    /// Each worker stays on a core of its own while it has several requests at a time
    /// (`placement`), if there are as many workers as cores that the process may use.
    pub own_cores: bool,
    /// With io_uring, replies that become ready together are sent in one system call: maximum delay of a reply, in
    /// microseconds; 0: each is sent separately.
    pub replies_held_us: u64,
}

pub(crate) struct ExecutorShared {
    name: &'static str,
    spin_us: AtomicU64,
    replies_held_ns: u64,
    tick_end_hooks: RwLock<Arc<[TickEndHook]>>,
}

impl ExecutorShared {
    fn run_tick_end_hooks(&self) {
        let hooks = Arc::clone(&self.tick_end_hooks.read().unwrap_or_else(PoisonError::into_inner));
        for hook in hooks.iter() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook())) {
                crate::panics::log_panic("worker", "Tick-end hook panicked", &*panic);
            }
        }
    }
}

/// The workers of a server.
pub struct ServiceExecutor {
    shared: Arc<ExecutorShared>,
    workers: Vec<WorkerHandle>,
    /// For new connections while all workers are held.
    spare: WorkerHandle,
    watch: Mutex<Option<Watch>>,
    /// The core of each worker, if they have some.
    cores: Vec<usize>,
    exchange: Exchange,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl ServiceExecutor {
    /// Starts the workers.
    pub fn start(options: &ExecutorOptions) -> Result<Arc<Self>> {
        let count = match options.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        let all = allowed_cores().unwrap_or_default();
        let own = options.own_cores && all.len() == count;
        let cores = if own { all } else { Vec::new() };
        let executor = Arc::new(ServiceExecutor::make(options, count, cores)?);
        let all = &executor.cores;
        for worker in &executor.workers {
            let core = all.get(worker.id());
            let cores = core.map(|&own| Cores { own, all: all.clone() });
            executor.start_thread(worker, Placement::new(cores), options.stack_bytes)?;
        }
        executor.start_thread(&executor.spare, Placement::new(None), options.stack_bytes)?;
        let watch = Watch::start(executor.workers.clone()).map_err(start_error)?;
        *executor.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
        Ok(executor)
    }

    /// Workers without threads, which another driver runs (`seeded`).
    fn without_threads(count: usize) -> Result<Arc<Self>> {
        Ok(Arc::new(ServiceExecutor::make(&ExecutorOptions::default(), count, Vec::new())?))
    }

    fn make(options: &ExecutorOptions, count: usize, cores: Vec<usize>) -> Result<Self> {
        let shared = Arc::new(ExecutorShared {
            name: options.name.unwrap_or("worker"),
            spin_us: AtomicU64::new(options.spin_us),
            replies_held_ns: options.replies_held_us.saturating_mul(1000),
            tick_end_hooks: RwLock::new(Arc::from([])),
        });
        let arrivals = Arrivals::new(options.arrivals_bytes_max);
        let worker = |id| WorkerHandle::new(id, &arrivals);
        Ok(ServiceExecutor {
            shared,
            workers: (0..count).map(worker).collect::<Result<_>>()?,
            spare: WorkerHandle::new(count, &arrivals)?,
            watch: Mutex::default(),
            cores,
            exchange: Exchange::default(),
            threads: Mutex::default(),
        })
    }

    fn start_thread(
        &self,
        worker: &WorkerHandle,
        placement: Placement,
        stack_bytes: usize,
    ) -> Result<()> {
        let (shared, executor) = (Arc::clone(&worker.shared), Arc::clone(&self.shared));
        let (report, started) = std::sync::mpsc::channel();
        let name = match self.workers.get(worker.id()) {
            Some(_) => format!("{}{}", self.shared.name, worker.id()),
            None => "spare".to_owned(),
        };
        let thread = work::thread(name, move || {
            if stack_bytes > 0 {
                kauri_fiber::set_stack_bytes(stack_bytes);
            }
            match worker::Worker::new(shared, executor, placement) {
                Ok(worker) => {
                    let _ = report.send(Ok(()));
                    worker.run();
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                }
            }
        })
        .map_err(start_error)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        match started.recv() {
            Ok(result) => result.map_err(start_error),
            Err(_) => Err(Error::new(ErrorCode::InternalError, "a worker thread ended at start")),
        }
    }

    /// The workers, by number.
    pub fn workers(&self) -> &[WorkerHandle] {
        &self.workers
    }

    /// Makes each worker free its pooled buffers, and then call `collect` on its thread. A pooled buffer among
    /// freed memory would keep the allocator from returning that memory.
    pub fn give_back_memory(&self, collect: fn()) {
        for worker in self.workers.iter().chain([&self.spare]) {
            worker.spawn(async move {
                if let Some(local) = Local::current() {
                    local.pool.let_go();
                }
                collect();
            });
        }
    }

    /// The worker of this number, the spare one included.
    pub(crate) fn worker(&self, id: usize) -> Option<&WorkerHandle> {
        self.workers.iter().chain([&self.spare]).find(|worker| worker.id() == id)
    }

    /// The worker that has the fewest sessions, of those that come back from their tasks.
    pub fn least_loaded(&self) -> Option<&WorkerHandle> {
        let sessions = |w: &&WorkerHandle| w.shared.sessions.load(Ordering::Relaxed);
        let is_held = |worker: &WorkerHandle| worker.shared.held.load(Ordering::Relaxed);
        let free = |worker: &&WorkerHandle| worker.works() && !is_held(worker);
        let spare = Some(&self.spare).filter(|spare| spare.works());
        self.workers.iter().filter(free).min_by_key(sessions).or(spare)
    }

    /// The worker whose own core this is, if it works.
    pub(crate) fn at_home_on(&self, core: usize) -> Option<usize> {
        let worker = self.cores.iter().position(|own| *own == core)?;
        self.workers.get(worker).filter(|worker| worker.works()).map(|_| worker)
    }

    /// The exchange of sessions between workers.
    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Calls `hook` at the end of every tick in which a task called `WorkerHandle::want_tick_end`,
    /// on that worker. Tasks that it wakes on the same worker run before the worker waits again.
    /// It must not block for long: the worker's sessions wait for it.
    pub fn on_tick_end(&self, hook: TickEndHook) {
        let mut hooks = self.shared.tick_end_hooks.write().unwrap_or_else(PoisonError::into_inner);
        *hooks = hooks.iter().cloned().chain([hook]).collect();
    }

    /// Sets how long workers look for events before they sleep.
    pub fn set_spin_us(&self, spin_us: u64) {
        self.shared.spin_us.store(spin_us, Ordering::Relaxed);
    }

    /// The present setting.
    pub fn spin_us(&self) -> u64 {
        self.shared.spin_us.load(Ordering::Relaxed)
    }

    /// Ends the workers; unfinished tasks are dropped at their await. Returns when the threads have ended; a worker
    /// that is blocked in a task is left running. Called from outside of the workers.
    pub fn shutdown(&self) {
        drop(self.watch.lock().unwrap_or_else(PoisonError::into_inner).take());
        for worker in self.workers.iter().chain([&self.spare]) {
            worker.shared.stop.store(true, Ordering::Release);
            worker.shared.call();
        }
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() {
                join_in_time(thread);
            }
        }
    }
}

impl Drop for ServiceExecutor {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Maximum time for a worker to end.
const JOIN_PATIENCE: Duration = Duration::from_secs(2);

fn join_in_time(thread: JoinHandle<()>) {
    let began_ns = monotonic_ns();
    while !thread.is_finished() {
        if monotonic_ns().saturating_sub(began_ns) > JOIN_PATIENCE.as_nanos() as u64 {
            let attr = Attr::new().str("thread", thread.thread().name().unwrap_or("?"));
            let msg = "Worker is blocked in a task; the shutdown continues without it";
            return log::warning("NETWORK", 7_100_008, "shutdown", msg, attr);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = thread.join();
}

fn start_error(error: std::io::Error) -> Error {
    Error::new(ErrorCode::InternalError, format!("cannot start a worker: {error}"))
}

/// A handle of one worker, to run something on it. Cheap to clone.
#[derive(Clone)]
pub struct WorkerHandle {
    pub(crate) shared: Arc<WorkerShared>,
}

impl WorkerHandle {
    fn new(id: usize, arrivals: &Arc<Arrivals>) -> Result<Self> {
        let shared = WorkerShared::with_arrivals(id, Arc::clone(arrivals)).map_err(start_error)?;
        Ok(WorkerHandle { shared: Arc::new(shared) })
    }

    /// Its number.
    pub fn id(&self) -> usize {
        self.shared.id
    }

    /// Runs a future on this worker until it ends or the executor shuts down.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if Local::is_current(&self.shared) {
            let future: LocalFuture = Box::pin(future);
            let _ = Local::start_if_current(&self.shared, future);
        } else {
            self.start_with(Box::new(move |_| Some(Box::pin(future))));
        }
    }

    /// Whether it has not ended.
    pub(crate) fn works(&self) -> bool {
        !self.shared.stop.load(Ordering::Acquire)
    }

    pub(crate) fn start_with(&self, start: Start) {
        self.shared.post_start(start);
    }

    /// Ready after `duration`.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sleep_until_ns(monotonic_ns().saturating_add(duration_ns))
    }

    /// Ready when [`crate::monotonic_ns`] has reached `deadline_ns`.
    pub fn sleep_until_ns(&self, deadline_ns: u64) -> Sleep {
        Sleep::new(Arc::clone(&self.shared), deadline_ns)
    }

    /// Has the tick-end hooks run at the end of the present tick. For this worker's own tasks; from
    /// elsewhere it is the end of the next tick, whenever that is.
    pub fn want_tick_end(&self) {
        self.shared.tick_end_wanted.store(true, Ordering::Relaxed);
    }

    /// For a service that compresses, on this worker: by how many bytes a request and its reply are longer than
    /// they were on the wire (`network.bytesIn` and `bytesOut`).
    pub fn adjust_logical_bytes(&self, request: i64, reply: i64) {
        let stats = &self.shared.stats;
        stats.logical_in.add(request as u64);
        stats.logical_out.add(reply as u64);
    }

    /// The worker's counters.
    pub fn stats(&self) -> WorkerSnapshot {
        self.shared.stats.snapshot(self.shared.id, self.shared.sessions.load(Ordering::Relaxed))
    }
}

/// Lets the worker's other tasks and sessions run, then continues.
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// See [`yield_now`].
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
