//! A temporary store whose transfers complete late, on a thread.

use kauri_base::temporary::{MemoryStore, TemporaryFile, TemporaryStore, Transfer};
use kauri_base::{Access, Result};
use std::sync::{Arc, Mutex, mpsc};

type Job = Box<dyn FnOnce() + Send>;

/// Transfers of a store in memory that a thread completes later.
pub struct SlowStore {
    pub memory: MemoryStore,
    jobs: Mutex<mpsc::Sender<Job>>,
}

impl SlowStore {
    pub fn new() -> SlowStore {
        let (jobs, received) = mpsc::channel::<Job>();
        std::thread::spawn(move || received.into_iter().for_each(|job| job()));
        SlowStore { memory: MemoryStore::new(), jobs: Mutex::new(jobs) }
    }
}

impl TemporaryStore for SlowStore {
    fn file(&self) -> Arc<dyn TemporaryFile> {
        let jobs = Mutex::new(self.jobs.lock().unwrap().clone());
        Arc::new(SlowFile { file: self.memory.file(), jobs })
    }

    fn bytes_used(&self) -> u64 {
        self.memory.bytes_used()
    }
}

struct SlowFile {
    file: Arc<dyn TemporaryFile>,
    jobs: Mutex<mpsc::Sender<Job>>,
}

impl SlowFile {
    fn later(
        &self,
        work: impl FnOnce(&dyn TemporaryFile) -> Transfer + Send + 'static,
    ) -> Transfer {
        let (transfer, completion) = Transfer::new();
        let file = Arc::downgrade(&self.file);
        let job = move || {
            if let Some(file) = file.upgrade() {
                completion.complete(now(&work(&*file)));
            }
        };
        self.jobs.lock().unwrap().send(Box::new(job)).unwrap();
        transfer
    }
}

fn now(transfer: &Transfer) -> Result<Vec<u8>> {
    match transfer.take()? {
        Access::Ready(bytes) => Ok(bytes),
        Access::WouldBlock(_) => panic!("a store in memory never blocks"),
    }
}

impl TemporaryFile for SlowFile {
    fn write(&self, offset: u64, bytes: Vec<u8>) -> Transfer {
        self.later(move |file| file.write(offset, bytes))
    }

    fn read(&self, offset: u64, buffer: Vec<u8>) -> Transfer {
        self.later(move |file| file.read(offset, buffer))
    }
}
