//! The part of a worker that only its own thread uses: tasks, run queue, descriptors, buffers.

use super::completions::Completions;
use super::io::IoSource;
use super::outbox::Outbox;
use super::rings::HotRings;
use super::shared::WorkerShared;
use super::slab::{Key, Slab};
use super::task::TaskHeader;
use crate::pool::BufferPool;
use crate::sys::{Epoll, Event, monotonic_ns};
use kauri_base::work;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// The future of a task. It never leaves its worker, so it need not be `Send`.
pub(crate) type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    future: LocalFuture,
    header: Arc<TaskHeader>,
    waker: Waker,
    /// Its last poll took longer than replies may be delayed.
    is_long: bool,
    /// Its last poll ended because its time slice was over: it has more to do.
    gave_way: bool,
}

/// The result of `run_one`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ran {
    /// The run queue is empty.
    Nothing,
    /// The task has used up a time slice: it waits for its turn among such tasks.
    Deferred,
    Polled,
}

pub(crate) struct Local {
    pub shared: Arc<WorkerShared>,
    run_queue: RefCell<VecDeque<Key>>,
    /// Tasks that have used up a slice of time, and have more to do.
    long_queue: RefCell<VecDeque<Key>>,
    tasks: RefCell<Slab<Task>>,
    io: RefCell<Slab<Rc<IoSource>>>,
    pub epoll: Epoll,
    pub pool: BufferPool,
    pub rings: HotRings,
    pub completions: Completions,
    pub outbox: Outbox,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

impl Local {
    pub fn new(shared: Arc<WorkerShared>) -> io::Result<Rc<Self>> {
        Ok(Rc::new(Local {
            shared,
            run_queue: RefCell::default(),
            long_queue: RefCell::default(),
            tasks: RefCell::new(Slab::new()),
            io: RefCell::new(Slab::new()),
            epoll: Epoll::new()?,
            pool: BufferPool::new(),
            rings: HotRings::default(),
            completions: Completions::default(),
            outbox: Outbox::new(),
        }))
    }

    /// Makes this the worker of the calling thread, or, with `None`, makes it no worker's.
    pub fn set_current(local: Option<Rc<Local>>) {
        CURRENT.with(|current| *current.borrow_mut() = local);
    }

    fn with_current<R>(worker: &WorkerShared, f: impl FnOnce(&Rc<Local>) -> R) -> Option<R> {
        CURRENT
            .try_with(|current| {
                let current = current.borrow();
                let local = current.as_ref()?;
                std::ptr::eq(Arc::as_ptr(&local.shared), worker).then(|| f(local))
            })
            .ok()
            .flatten()
    }

    /// The worker of the calling thread.
    pub fn current() -> Option<Rc<Local>> {
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    /// Whether the calling thread is this worker's.
    pub fn is_current(worker: &WorkerShared) -> bool {
        Self::with_current(worker, |_| ()).is_some()
    }

    /// Queues a task if the calling thread is its worker's.
    pub fn push_if_current(worker: &WorkerShared, task: Key) -> bool {
        Self::with_current(worker, |local| local.push(task)).is_some()
    }

    /// Starts a task at once if the calling thread is the worker's; otherwise gives it back.
    pub fn start_if_current(worker: &WorkerShared, future: LocalFuture) -> Result<(), LocalFuture> {
        let mut future = Some(future);
        Self::with_current(worker, |local| {
            if let Some(future) = future.take() {
                local.start(future);
            }
        });
        future.map_or(Ok(()), Err)
    }

    pub fn push(&self, task: Key) {
        self.run_queue.borrow_mut().push_back(task);
    }

    pub fn runnable(&self) -> usize {
        self.run_queue.borrow().len() + self.long_queue.borrow().len()
    }

    /// Adds a task; it is polled in this turn or the next.
    pub fn start(&self, future: LocalFuture) {
        let key = self.tasks.borrow_mut().reserve();
        let worker = Arc::clone(&self.shared);
        let header = Arc::new(TaskHeader { worker, key, queued: AtomicBool::new(true) });
        let waker = Waker::from(Arc::clone(&header));
        self.tasks
            .borrow_mut()
            .put(key, Task { future, header, waker, is_long: false, gave_way: false });
        self.push(key);
    }

    /// Has the task that is drawn of those in the run queue come first.
    pub fn bring_forward(&self, draw: &mut dyn FnMut(usize) -> usize) {
        let mut queue = self.run_queue.borrow_mut();
        if queue.len() > 1 {
            let drawn = draw(queue.len());
            queue.swap(0, drawn);
        }
    }

    /// Polls the task at the head of the run queue, unless it has used up a slice.
    pub fn run_one(&self) -> Ran {
        let Some(key) = self.run_queue.borrow_mut().pop_front() else { return Ran::Nothing };
        // Taken out while it runs, so that it may start and wake other tasks.
        let Some(task) = self.tasks.borrow_mut().take(key) else { return Ran::Polled };
        if task.gave_way {
            self.tasks.borrow_mut().put(key, task);
            self.long_queue.borrow_mut().push_back(key);
            return Ran::Deferred;
        }
        self.poll(key, task);
        Ran::Polled
    }

    /// Gives the task that has waited longest of those that have used up a slice another one.
    pub fn run_long(&self) -> Ran {
        let Some(key) = self.long_queue.borrow_mut().pop_front() else { return Ran::Nothing };
        let task = self.tasks.borrow_mut().take(key);
        task.into_iter().for_each(|task| self.poll(key, task));
        Ran::Polled
    }

    // A task is too large to be moved once more for each poll.
    #[inline(always)]
    fn poll(&self, key: Key, mut task: Task) {
        task.header.queued.store(false, Ordering::Release);
        if task.is_long {
            self.outbox.flush();
        }
        // Where replies lie the poll before has looked at the clock.
        let began_ns = match self.outbox.looked_ns() {
            0 if task.is_long => monotonic_ns(),
            looked_ns => looked_ns,
        };
        let mut context = Context::from_waker(&task.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| task.future.as_mut().poll(&mut context)));
        task.gave_way = work::take_gave_way();
        if began_ns > 0 || self.outbox.has_some() {
            let now_ns = monotonic_ns();
            let held_max_ns = self.outbox.note_time(now_ns);
            task.is_long = began_ns > 0 && now_ns.saturating_sub(began_ns) > held_max_ns;
        }
        match polled {
            Ok(Poll::Pending) => self.tasks.borrow_mut().put(key, task),
            Ok(Poll::Ready(())) => {
                self.tasks.borrow_mut().remove(key);
                drop(task);
            }
            Err(panic) => {
                self.tasks.borrow_mut().remove(key);
                crate::panics::log_panic("worker", "Task panicked and was dropped", &*panic);
                // What the panic left behind may panic again when it is dropped.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
            }
        }
    }

    /// Watches a stream's descriptor; `source` gets each change until `unwatch`.
    pub fn watch(&self, fd: BorrowedFd<'_>, source: Rc<IoSource>) -> io::Result<Key> {
        let key = self.io.borrow_mut().reserve();
        if let Err(error) = self.epoll.add_stream(fd, key) {
            self.io.borrow_mut().remove(key);
            return Err(error);
        }
        self.io.borrow_mut().put(key, source);
        Ok(key)
    }

    /// Forgets a descriptor that is about to be closed.
    pub fn unwatch(&self, key: Key) {
        self.io.borrow_mut().remove(key);
    }

    pub fn dispatch(&self, event: Event, now_ns: u64) {
        if let Some(source) = self.io.borrow().get(event.key) {
            source.dispatch(event, now_ns);
        }
    }

    /// Drops all tasks where they wait.
    pub fn drop_tasks(&self) {
        // Again while dropping a task started another; bounded, since that may go on.
        for _ in 0..8 {
            let tasks = self.tasks.borrow_mut().drain();
            if tasks.is_empty() {
                break;
            }
            for task in tasks {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::outbox::Slot;
    use crate::stream::socket::StreamSocket;
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    const HELD_NS: u64 = 100_000;

    /// Posts a reply of one byte whenever the last one has been sent.
    async fn posts(local: Rc<Local>, socket: Arc<StreamSocket>) {
        loop {
            let slot = Rc::new(Slot::default());
            poll_fn(|cx| {
                local.outbox.post(&socket, (vec![1], 0), &slot, cx.waker());
                Poll::Ready(())
            })
            .await;
            let sent = poll_fn(|_| slot.take().map_or(Poll::Pending, Poll::Ready)).await;
            assert_eq!(sent.1.unwrap(), 1);
        }
    }

    /// Notes at each poll what has arrived, and takes longer than replies are held back.
    async fn is_long(mut peer: UnixStream, seen: Rc<RefCell<Vec<usize>>>) {
        peer.set_nonblocking(true).unwrap();
        let mut arrived = 0;
        poll_fn(|cx| {
            arrived += peer.read(&mut [0; 8]).unwrap_or(0);
            seen.borrow_mut().push(arrived);
            let end_ns = monotonic_ns() + 2 * HELD_NS;
            while monotonic_ns() < end_ns {
                std::hint::spin_loop();
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    #[test]
    fn no_reply_is_held_back_for_long() {
        let shared = Arc::new(WorkerShared::new(0).unwrap());
        let local = Local::new(Arc::clone(&shared)).unwrap();
        local.outbox.open(HELD_NS);
        Local::set_current(Some(Rc::clone(&local)));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = Arc::new(StreamSocket::new(ours.into(), shared));
        let seen = Rc::default();
        local.start(Box::pin(posts(Rc::clone(&local), socket)));
        local.start(Box::pin(is_long(theirs, Rc::clone(&seen))));
        let run_one = || local.run_one() == Ran::Polled;
        // A reply, which one poll of unknown length holds back.
        assert!(run_one() && local.outbox.has_some());
        assert!(run_one() && !local.outbox.has_some());
        // Another, which one known to be long does not.
        assert!(run_one() && run_one() && local.outbox.has_some());
        assert!(run_one());
        assert_eq!(*seen.borrow(), [0, 1, 2]);
        assert!(local.outbox.end_tick(), "replies were sent");
        assert!(!local.outbox.end_tick());
        local.drop_tasks();
        Local::set_current(None);
    }

    /// Uses up a slice at each poll, and notes its number.
    async fn gives_way(number: u32, polls: Rc<RefCell<Vec<u32>>>) {
        let clock: Arc<dyn kauri_base::Clock> = Arc::new(kauri_base::clock::SystemClock::new());
        let mut op = kauri_base::OperationContext::detached(clock);
        loop {
            polls.borrow_mut().push(number);
            op.yield_now().await.unwrap();
        }
    }

    #[test]
    fn long_work_takes_turns_and_comes_after_the_rest() {
        let local = Local::new(Arc::new(WorkerShared::new(0).unwrap())).unwrap();
        Local::set_current(Some(Rc::clone(&local)));
        let polls = Rc::new(RefCell::new(Vec::new()));
        (0..3).for_each(|number| local.start(Box::pin(gives_way(number, Rc::clone(&polls)))));
        for _ in 0..3 {
            assert_eq!(local.run_one(), Ran::Polled);
        }
        for _ in 0..3 {
            let short = Rc::new(Cell::new(false));
            let ran = Rc::clone(&short);
            local.start(Box::pin(async move { ran.set(true) }));
            while local.run_one() != Ran::Nothing {}
            assert!(short.get());
            assert_eq!(local.run_long(), Ran::Polled);
        }
        assert_eq!(*polls.borrow(), [0, 1, 2, 0, 1, 2]);
        local.drop_tasks();
        Local::set_current(None);
    }
}
