//! An engine under test, with its background threads.

use kauri_storage::StorageEngine;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// An engine under test. Its maintenance runs on threads until the engine is closed.
pub struct Subject {
    // First, so that it is closed before its directory goes, which `open` may own.
    running: Option<Running>,
    open: Box<dyn FnMut() -> Arc<dyn StorageEngine>>,
}

impl Subject {
    /// For the results of `open`: first an engine without data; if the engine is durable, later ones with the data
    /// of the previous one, which has been closed.
    pub fn new<E: StorageEngine + 'static>(mut open: impl FnMut() -> Arc<E> + 'static) -> Self {
        let mut subject = Subject { running: None, open: Box::new(move || open()) };
        subject.reopen();
        subject
    }

    /// The engine. Handles must be dropped before it is opened again.
    pub fn engine(&self) -> Arc<dyn StorageEngine> {
        match &self.running {
            Some(running) => running.engine.clone(),
            None => unreachable!("only reopen() closes the engine, and it opens it again"),
        }
    }

    /// Closes the engine and opens it again.
    pub fn reopen(&mut self) {
        self.running = None;
        self.running = Some(Running::start((self.open)()));
    }
}

/// Dropping it ends the threads, then gives the engine up.
struct Running {
    engine: Arc<dyn StorageEngine>,
    stop: Arc<AtomicBool>,
    threads: Vec<(Box<dyn Fn() + Send + Sync>, JoinHandle<()>)>,
}

impl Running {
    fn start(engine: Arc<dyn StorageEngine>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |maintenance: kauri_storage::Maintenance| {
            let (stop, mut run) = (stop.clone(), maintenance.run);
            (maintenance.wake, std::thread::spawn(move || run(&stop)))
        };
        let threads = engine.maintenance().into_iter().map(start).collect();
        Running { engine, stop, threads }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for (wake, _) in &self.threads {
            wake();
        }
        for (wake, thread) in self.threads.drain(..) {
            wake();
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a maintenance thread panicked");
            }
        }
    }
}
