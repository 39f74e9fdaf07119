//! A worker's completion queues: polled while the worker is awake, watched by epoll while it sleeps.

use super::io::{IoSource, READ};
use super::local::Local;
use crate::rdma::WorkerQueues;
use crate::sys::monotonic_ns;
use kauri_verbs::CompletionQueue;
use std::cell::{OnceCell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

/// Maximum time that a stopping worker waits for sessions' last bytes.
const FAREWELL_NS_MAX: u64 = 2_000_000_000;

/// The rest of an ended session, until its peer has received everything.
pub(crate) trait Lingers {
    /// Whether it may go.
    fn is_done(&self, now_ns: u64) -> bool;
}

/// See the module's head. Empty until the worker's first session over RDMA.
#[derive(Default)]
pub(crate) struct Completions {
    queues: OnceCell<Arc<WorkerQueues>>,
    /// Told when the queue of the same place reports something.
    reports: RefCell<Vec<Rc<IoSource>>>,
    lingering: RefCell<Vec<Box<dyn Lingers>>>,
}

impl Completions {
    /// The worker's queues, from now on. False: it has others.
    pub fn set_up(&self, queues: &Arc<WorkerQueues>) -> bool {
        self.queues.set(Arc::clone(queues)).is_ok()
    }

    /// Watches one more queue of them.
    pub fn watch(&self, local: &Local, queue: &CompletionQueue) -> io::Result<()> {
        let report = Rc::new(IoSource::new(Arc::default()));
        if let Some(channel) = queue.channel() {
            local.watch(channel.as_fd(), Rc::clone(&report))?;
        }
        self.reports.borrow_mut().push(report);
        Ok(())
    }

    fn used(&self) -> Option<&Arc<WorkerQueues>> {
        self.queues.get().filter(|queues| !queues.is_empty())
    }

    /// Whether there is no session over RDMA.
    pub fn is_empty(&self) -> bool {
        self.used().is_none()
    }

    /// Keeps the rest of a session until it is done.
    pub fn linger(&self, left: Box<dyn Lingers>) {
        self.lingering.borrow_mut().push(left);
    }

    /// Passes completions to their sessions. Whether there were any.
    pub fn look(&self) -> bool {
        let came = self.used().is_some_and(|queues| queues.look());
        self.let_go();
        came
    }

    /// The same, until nothing is left that had completed before.
    pub fn look_through(&self) {
        let full = self.used().map_or(0, |queues| queues.looks_a_queue());
        let _ = (0..full).take_while(|_| self.look()).count();
    }

    /// Before the worker ends: waits until what lingers is done, but not for long.
    pub fn let_all_go(&self) {
        let ends_ns = monotonic_ns() + FAREWELL_NS_MAX;
        while !self.lingering.borrow().is_empty() && monotonic_ns() < ends_ns {
            self.look();
            std::thread::yield_now();
        }
    }

    /// Called before the worker sleeps. False if there were completions, which were passed to their sessions.
    pub fn fall_asleep(&self) -> bool {
        let sleeps = self.used().is_none_or(|queues| queues.fall_asleep());
        self.let_go();
        sleeps
    }

    fn let_go(&self) {
        if !self.lingering.borrow().is_empty() {
            let now_ns = monotonic_ns();
            self.lingering.borrow_mut().retain(|left| !left.is_done(now_ns));
        }
    }

    /// After it has slept: takes the queues' reports.
    pub fn take_reports(&self) {
        let Some(queues) = self.queues.get() else { return };
        for (index, report) in self.reports.borrow().iter().enumerate() {
            if report.is_ready(READ) {
                report.exhausted(READ);
                queues.heard(index);
            }
        }
    }
}
