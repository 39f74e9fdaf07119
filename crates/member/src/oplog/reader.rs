//! Reads frames for all readers of the log, on a thread of its own that waits while nobody asks.
//!
//! The newest frames that were read are kept, up to a number of bytes: readers that follow the log's end share one read
//! and one decoding. A reader that is given a frame may keep it as long as it likes, and should not do so while it waits
//! for its client.

use super::position::LogPlace;
use super::units::{self, Entry};
use crate::entry_log;
use kauri_base::ticket::TicketSource;
use kauri_base::{Error, ErrorCode, Result, Ticket};
use kauri_storage::{ReplicatedLog, StorageEngine};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

/// Bytes of frames that are kept.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Requests that wait, at most: more readers than cursors there can be.
const WAITING_MAX: usize = 100_000;

/// A frame, read.
pub struct ReadFrame {
    /// Its entries, in the order of their times.
    pub entries: Vec<Entry>,
    bytes: usize,
}

enum Job {
    /// A frame; `None` if it is gone.
    Frame(u64, Arc<Slot<Option<Arc<ReadFrame>>>>),
    /// The first frame with an entry of this time or a later one.
    Seek(u64, Arc<Slot<u64>>),
}

struct Slot<T>(Mutex<SlotState<T>>);

struct SlotState<T> {
    result: Option<Result<T>>,
    is_done: bool,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    fn new(result: Option<Result<T>>) -> Arc<Slot<T>> {
        let is_done = result.is_some();
        Arc::new(Slot(Mutex::new(SlotState { result, is_done, waker: None })))
    }

    fn give(&self, result: Result<T>) {
        let mut state = lock(&self.0);
        (state.result, state.is_done) = (Some(result), true);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T: Send> TicketSource for Slot<T> {
    fn poll_ticket(&self, _: u64, waker: &Waker) -> Poll<Result<()>> {
        let mut state = lock(&self.0);
        if state.is_done {
            return Poll::Ready(Ok(()));
        }
        state.waker = Some(waker.clone());
        Poll::Pending
    }
}

/// Something that is being read, for one reader.
pub struct Fetch<T>(Arc<Slot<T>>);

impl<T: Send + 'static> Fetch<T> {
    /// What was read; `Err`: the ticket to wait for. Given once.
    pub fn take(&self) -> std::result::Result<Result<T>, Ticket> {
        match lock(&self.0.0).result.take() {
            Some(result) => Ok(result),
            None => {
                let source: Arc<dyn TicketSource> = self.0.clone();
                Err(Ticket::new(source, 0))
            }
        }
    }
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    is_over: bool,
    kept: BTreeMap<u64, Arc<ReadFrame>>,
    kept_bytes: usize,
    /// Frames that were read from the log.
    reads: u64,
}

struct Shared {
    engine: Arc<dyn StorageEngine>,
    place: Arc<LogPlace>,
    work: Mutex<Work>,
    changed: Condvar,
}

/// See the module's head.
pub struct LogReader {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogReader {
    /// A reader of this engine's frames, up to where the place says.
    pub fn new(engine: Arc<dyn StorageEngine>, place: Arc<LogPlace>) -> LogReader {
        let (work, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { engine, place, work, changed });
        LogReader { shared, thread: Mutex::default() }
    }

    /// Where it can be read, and who waits for more.
    pub fn place(&self) -> &Arc<LogPlace> {
        &self.shared.place
    }

    /// The first frame that is there, and the last one that can be read. The first one comes behind the last one if there
    /// is none.
    pub fn range(&self) -> (u64, u64) {
        let last = self.shared.place.readable();
        (self.shared.log().map_or(last, |log| log.frames().purged.index) + 1, last)
    }

    /// Bytes that the log takes, and the number of commits in it; somewhat more than can be read.
    pub fn extent(&self) -> (u64, u64) {
        self.shared.log().map_or((0, 0), |log| log.frames_extent())
    }

    /// A frame that can be read. `None`: it is gone.
    pub fn frame(&self, index: u64) -> Fetch<Option<Arc<ReadFrame>>> {
        let kept = lock(&self.shared.work).kept.get(&index).cloned();
        let slot = Slot::new(kept.map(|kept| Ok(Some(kept))));
        if !lock(&slot.0).is_done {
            self.ask(Job::Frame(index, slot.clone()));
        }
        Fetch(slot)
    }

    /// The first frame that has an entry of this time or a later one. Behind the last one that can be read if none has.
    pub fn seek(&self, time: u64) -> Fetch<u64> {
        let slot = Slot::new(None);
        self.ask(Job::Seek(time, slot.clone()));
        Fetch(slot)
    }

    /// How many frames it has read.
    pub fn reads(&self) -> u64 {
        lock(&self.shared.work).reads
    }

    fn ask(&self, job: Job) {
        let refused = {
            let mut work = lock(&self.shared.work);
            match work.jobs.len() < WAITING_MAX && self.has_thread() {
                true => {
                    work.jobs.push_back(job);
                    None
                }
                false => Some(job),
            }
        };
        match refused {
            None => self.shared.changed.notify_one(),
            Some(job) => job.fail("the log cannot be read: there is no thread for it"),
        }
    }

    fn has_thread(&self) -> bool {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let shared = self.shared.clone();
            let builder = std::thread::Builder::new().name("log-reader".to_owned());
            *thread = builder.spawn(move || shared.run()).ok();
        }
        thread.is_some()
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        lock(&self.shared.work).is_over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic there was told of already.
            let _ = thread.join();
        }
    }
}

impl Job {
    fn fail(self, why: &str) {
        let error = || Error::new(ErrorCode::InternalError, why);
        match self {
            Job::Frame(_, slot) => slot.give(Err(error())),
            Job::Seek(_, slot) => slot.give(Err(error())),
        }
    }
}

impl Shared {
    fn log(&self) -> Option<&dyn ReplicatedLog> {
        self.engine.replicated_log().ok()
    }

    fn run(&self) {
        loop {
            let mut work = lock(&self.work);
            while work.jobs.is_empty() && !work.is_over {
                work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(job) = work.jobs.pop_front() else { return };
            drop(work);
            match job {
                // Nobody waits any more.
                Job::Frame(_, slot) if Arc::strong_count(&slot) == 1 => {}
                Job::Frame(index, slot) => slot.give(self.read(index)),
                Job::Seek(time, slot) => slot.give(self.find(time)),
            }
        }
    }

    fn read(&self, index: u64) -> Result<Option<Arc<ReadFrame>>> {
        if let Some(kept) = lock(&self.work).kept.get(&index) {
            return Ok(Some(kept.clone()));
        }
        let log = self.engine.replicated_log()?;
        let before = log.term_of(index.saturating_sub(1));
        let Some((frame, records)) = log.read_frame(index)? else { return Ok(None) };
        let bytes = frame.bytes as usize + frame.data.len();
        let begins_term = before.is_some_and(|term| term != frame.position.term);
        let entries = units::entries_of(&frame, records, begins_term)?;
        let read = Arc::new(ReadFrame { entries, bytes });
        self.keep(index, read.clone());
        Ok(Some(read))
    }

    /// The oldest ones are forgotten.
    fn keep(&self, index: u64, read: Arc<ReadFrame>) {
        let mut work = lock(&self.work);
        work.reads += 1;
        work.kept_bytes += read.bytes;
        work.kept.insert(index, read);
        while work.kept_bytes > KEPT_BYTES_MAX
            && let Some((_, oldest)) = work.kept.pop_first()
        {
            work.kept_bytes -= oldest.bytes;
        }
    }

    /// By bisection: the last entry of a frame has its time.
    fn find(&self, time: u64) -> Result<u64> {
        let log = self.engine.replicated_log()?;
        let mut end = self.place.readable() + 1;
        let mut first = (log.frames().purged.index + 1).min(end);
        while first < end {
            let middle = first + (end - first) / 2;
            let known = log.read_frame_alone(middle)?.as_ref().and_then(entry_log::known_of);
            match known {
                Some(known) if known.time >= time => end = middle,
                // It may have been purged meanwhile.
                _ => first = middle + 1,
            }
        }
        Ok(first)
    }
}
