//! Reads frames for all readers of the log, on a thread of its own that waits while nobody asks.
//!
//! The frames that were read last are kept, up to a number of bytes: readers that follow the log's end share one read
//! and one decoding. So do all that ask for a frame while it is read. A reader that is given a frame may keep it as long as it likes, and should not do so while it waits
//! for its client.

use super::position::LogPlace;
use super::units::{self, Entry};
use crate::entry_log;
use kauri_base::ticket::TicketSource;
use kauri_base::{Error, ErrorCode, Result, Ticket};
use kauri_storage::{ReplicatedLog, StorageEngine};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

/// Bytes of frames that are kept; a larger frame is kept alone.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// What a frame takes besides its records and data.
const FRAME_BYTES: usize = 512;
/// Requests that wait, at most: more readers than cursors there can be.
const WAITING_MAX: usize = 100_000;

/// A frame, read.
pub struct ReadFrame {
    /// Its entries, in the order of their times.
    pub entries: Vec<Entry>,
    bytes: usize,
}

type FrameSlot = Arc<Slot<Option<Arc<ReadFrame>>>>;

enum Job {
    /// A frame; `None` if it is gone.
    Frame(u64, FrameSlot),
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
    kept: Kept,
    /// Frames that were read from the log.
    reads: u64,
}

/// The frames that were read last.
#[derive(Default)]
struct Kept {
    frames: BTreeMap<u64, Arc<ReadFrame>>,
    /// In the order in which they were read.
    order: VecDeque<u64>,
    bytes: usize,
}

impl Kept {
    fn put(&mut self, index: u64, read: Arc<ReadFrame>) {
        self.bytes += read.bytes;
        if let Some(before) = self.frames.insert(index, read) {
            self.bytes -= before.bytes;
        } else {
            self.order.push_back(index);
        }
        while self.bytes > KEPT_BYTES_MAX && self.order.len() > 1 {
            let oldest = self.order.pop_front().and_then(|index| self.frames.remove(&index));
            self.bytes -= oldest.map_or(0, |oldest| oldest.bytes);
        }
    }
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
        let kept = lock(&self.shared.work).kept.frames.get(&index).cloned();
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
    /// Nobody waits any more.
    fn is_dead(&self) -> bool {
        match self {
            Job::Frame(_, slot) => Arc::strong_count(slot) == 1,
            Job::Seek(_, slot) => Arc::strong_count(slot) == 1,
        }
    }

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
                job if job.is_dead() => {}
                Job::Frame(index, slot) => {
                    let read = caught(|| self.read(index));
                    self.take_equal(index).iter().for_each(|other| other.give(read.clone()));
                    slot.give(read);
                }
                Job::Seek(time, slot) => slot.give(caught(|| self.find(time))),
            }
        }
    }

    /// Others that ask for a frame.
    fn take_equal(&self, wanted: u64) -> Vec<FrameSlot> {
        let mut equal = Vec::new();
        lock(&self.work).jobs.retain(|job| match job {
            Job::Frame(index, slot) if *index == wanted => {
                equal.push(slot.clone());
                false
            }
            _ => true,
        });
        equal
    }

    fn read(&self, index: u64) -> Result<Option<Arc<ReadFrame>>> {
        if let Some(kept) = lock(&self.work).kept.frames.get(&index) {
            return Ok(Some(kept.clone()));
        }
        let log = self.engine.replicated_log()?;
        let before = log.term_of(index.saturating_sub(1));
        let Some((frame, records)) = log.read_frame(index)? else { return Ok(None) };
        let bytes = frame.bytes as usize + frame.data.len() + FRAME_BYTES;
        let begins_term = before.is_some_and(|term| term != frame.position.term);
        let entries = units::entries_of(&frame, records, begins_term)?;
        let read = Arc::new(ReadFrame { entries, bytes });
        let mut work = lock(&self.work);
        work.reads += 1;
        work.kept.put(index, read.clone());
        Ok(Some(read))
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

/// A panic is an error to whoever waits: the thread goes on for the others.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let failed = |_| Err(Error::new(ErrorCode::InternalError, "the log cannot be read: a panic"));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_that_was_read_last_is_kept() {
        let mut kept = Kept::default();
        let mut put = |index, bytes| {
            kept.put(index, Arc::new(ReadFrame { entries: Vec::new(), bytes }));
            (kept.frames.keys().copied().collect::<Vec<_>>(), kept.bytes)
        };
        let half = KEPT_BYTES_MAX / 2;
        assert_eq!(put(7, half), (vec![7], half));
        assert_eq!(put(8, half), (vec![7, 8], 2 * half));
        assert_eq!(put(3, half), (vec![3, 8], 2 * half), "an old frame, read last");
        assert_eq!(put(4, 2 * KEPT_BYTES_MAX), (vec![4], 2 * KEPT_BYTES_MAX));
        assert_eq!(put(5, 1), (vec![5], 1));
    }

    #[test]
    fn a_panic_is_an_error_of_the_reader() {
        let result = caught(|| -> Result<()> { panic!("as a test wants it") });
        assert_eq!(result.map_err(|error| error.code()), Err(ErrorCode::InternalError));
    }
}
