//! Detects workers that are blocked in a task.
//!
//! Long work yields regularly. A worker whose task does not return is *held*. New connections go to other workers,
//! or to a spare worker if all are held, so that an operator can inspect the server and kill the operation. The log
//! says when a worker is held and when it resumes.

use super::WorkerHandle;
use kauri_base::log::{self, Attr};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two looks. A worker that has done nothing but one task from one look to the next is held.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Watches until it is dropped.
pub(super) struct Watch {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub fn start(workers: Vec<WorkerHandle>) -> io::Result<Watch> {
        let (stop, stopped) = mpsc::channel();
        let watch = move || {
            let mut seen: Vec<Seen> = workers.into_iter().map(Seen::new).collect();
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                seen.iter_mut().for_each(Seen::look);
            }
        };
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(watch)?;
        Ok(Watch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of a worker at the last check.
struct Seen {
    worker: WorkerHandle,
    turns: u64,
}

impl Seen {
    fn new(worker: WorkerHandle) -> Seen {
        Seen { worker, turns: u64::MAX }
    }

    fn look(&mut self) {
        let shared = &self.worker.shared;
        let turns = shared.stats.turns();
        let held = turns == self.turns && !shared.is_asleep() && self.worker.works();
        self.turns = turns;
        if shared.held.swap(held, Ordering::Relaxed) == held {
            return;
        }
        let attr = Attr::new().num("worker", shared.id);
        if held {
            let msg = "Worker is blocked in a task; new connections go to other workers";
            let attr = attr.num("heldMillis", LOOK_EVERY.as_millis());
            log::warning("NETWORK", 7_100_006, "watch", msg, attr);
        } else {
            log::info("NETWORK", 7_100_007, "watch", "Worker resumed", attr);
        }
    }
}
