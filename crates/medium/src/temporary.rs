//! Temporary files in a directory, for query data beyond the memory limit.
//!
//! A few threads open, write, read and close the files, so that callers do not wait. They start when the directory
//! is opened, because a thread inherits the cores and the scheduling of its creator.
//!
//! Invariants:
//! - A file has a name only while it is being created. A process that dies leaves no named file, except one that
//!   [`remove_files`] removes. Only the holder of the data directory's lock may call that.
//! - A write that would leave less free space on the file system than configured is refused before it starts:
//!   spilling never takes the space that the log needs.
//! - Nothing is ever synced, because no file is read after a crash.

use crate::{Error, IoKind, sys};
use kauri_base::temporary::{Completion, TemporaryFile, TemporaryStore, Transfer};
use kauri_base::{ErrorCode, Result, limits};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The directory's name within a data directory, as in MongoDB's.
pub const TEMPORARY_DIRECTORY: &str = "_tmp";

/// What files' names begin with, while they have one.
const PREFIX: &str = "kauri-spill-";

/// See the module's head. Dropping it ends the threads; what is still asked of its files fails.
pub struct TemporaryDirectory {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    /// What is to stay free of the file system.
    free_min: AtomicU64,
    /// What all files take.
    used: AtomicU64,
    next_name: AtomicU64,
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

enum Job {
    Write { file: Arc<Spill>, offset: u64, bytes: Vec<u8>, done: Completion },
    Read { file: Arc<Spill>, offset: u64, buffer: Vec<u8>, done: Completion },
    Close(File),
}

impl TemporaryDirectory {
    /// The directory of this path, which need not be there yet. What processes that died have left there
    /// is [`remove_files`]' business.
    pub fn open(path: impl Into<PathBuf>) -> crate::Result<TemporaryDirectory> {
        let shared = Shared {
            path: path.into(),
            free_min: AtomicU64::new(limits::SPILL_FREE_BYTES_MIN),
            used: AtomicU64::new(0),
            next_name: AtomicU64::new(0),
            queue: Mutex::default(),
            work: Condvar::new(),
        };
        let directory = TemporaryDirectory { shared: Arc::new(shared) };
        for number in 0..limits::SPILL_THREADS_MAX {
            let shared = directory.shared.clone();
            let builder = thread::Builder::new().name(format!("spill{number}"));
            match builder.spawn(move || shared.work()) {
                Ok(thread) => directory.shared.lock().threads.push(thread),
                // Those that there are do it.
                Err(_) if number > 0 => break,
                Err(error) => return Err(Error::from_io(IoKind::Open, &error)),
            }
        }
        Ok(directory)
    }

    /// Sets what is to stay free of the file system, in bytes.
    pub fn keep_free(&self, bytes: u64) {
        self.shared.free_min.store(bytes, Ordering::Relaxed);
    }
}

/// Removes the files that processes which died have left in a directory that nobody uses now. Others'
/// files stay; so does all that is in a directory that is a symbolic link.
pub fn remove_files(path: &Path) -> crate::Result<()> {
    let failed = |e: std::io::Error| Error::from_io(IoKind::FileRead, &e);
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        metadata => {
            if !metadata.map_err(failed)?.is_dir() {
                return Ok(());
            }
        }
    }
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        if is_ours && entry.file_type().map_err(failed)?.is_file() {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

impl TemporaryStore for TemporaryDirectory {
    fn file(&self) -> Arc<dyn TemporaryFile> {
        Arc::new(SpillFile(Arc::new(Spill {
            shared: self.shared.clone(),
            opened: Mutex::default(),
            bytes: AtomicU64::new(0),
        })))
    }

    fn bytes_used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let (jobs, threads) = {
            let mut queue = self.shared.lock();
            queue.closed = true;
            (std::mem::take(&mut queue.jobs), std::mem::take(&mut queue.threads))
        };
        jobs.into_iter().for_each(Job::give_up);
        self.shared.work.notify_all();
        for thread in threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// What holders have of a file.
struct SpillFile(Arc<Spill>);

impl TemporaryFile for SpillFile {
    fn write(&self, offset: u64, bytes: Vec<u8>) -> Transfer {
        let (transfer, done) = Transfer::new();
        self.0.shared.submit(Job::Write { file: self.0.clone(), offset, bytes, done });
        transfer
    }

    fn read(&self, offset: u64, buffer: Vec<u8>) -> Transfer {
        let (transfer, done) = Transfer::new();
        self.0.shared.submit(Job::Read { file: self.0.clone(), offset, buffer, done });
        transfer
    }
}

/// A file, open from its first write on.
struct Spill {
    shared: Arc<Shared>,
    opened: Mutex<Option<Arc<File>>>,
    /// What is counted for it.
    bytes: AtomicU64,
}

impl Spill {
    fn opened(&self) -> crate::Result<Arc<File>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*opened {
            return Ok(file.clone());
        }
        let file = Arc::new(self.shared.create()?);
        *opened = Some(file.clone());
        Ok(file)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> crate::Result<()> {
        let file = self.opened()?;
        let failed = |e: std::io::Error| Error::from_io(IoKind::FileWrite, &e);
        let more = bytes.len() as u64;
        let free = sys::file_system_available(&file).map_err(failed)?;
        if free.saturating_sub(more) < self.shared.free_min.load(Ordering::Relaxed) {
            return Err(Error::NoSpace);
        }
        // No offset is written twice, so this is what the file takes.
        self.bytes.fetch_add(more, Ordering::Relaxed);
        self.shared.used.fetch_add(more, Ordering::Relaxed);
        file.write_all_at(bytes, offset).map_err(failed)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> crate::Result<()> {
        let failed = |e: std::io::Error| Error::from_io(IoKind::FileRead, &e);
        self.opened()?.read_exact_at(buffer, offset).map_err(failed)
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        self.shared.used.fetch_sub(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        let opened = self.opened.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Giving a large file's blocks back takes a while.
        if let Some(file) = opened.and_then(Arc::into_inner) {
            self.shared.submit(Job::Close(file));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new file whose name is gone already.
    fn create(&self) -> crate::Result<File> {
        let failed = |e: std::io::Error| Error::from_io(IoKind::Open, &e);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let mut is_made = false;
        let (path, file) = loop {
            let number = self.next_name.fetch_add(1, Ordering::Relaxed);
            let path = self.path.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match options.open(&path) {
                // A process of the same number, elsewhere or before, has left it.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound && !is_made => {
                    let mut directory = fs::DirBuilder::new();
                    directory.recursive(true).mode(0o700).create(&self.path).map_err(failed)?;
                    is_made = true;
                }
                file => break (path, file.map_err(failed)?),
            }
        };
        fs::remove_file(&path).map_err(failed)?;
        Ok(file)
    }

    fn submit(&self, job: Job) {
        let mut queue = self.lock();
        if queue.closed {
            drop(queue);
            job.give_up();
            return;
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.work.notify_one();
    }

    /// A thread's life.
    fn work(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job.run();
                queue = self.lock();
            } else if queue.closed {
                return;
            } else {
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Job {
    fn run(self) {
        match self {
            Job::Write { file, offset, bytes, done } => {
                if done.is_wanted() {
                    let result = told(file.write(offset, &bytes)).map(|()| bytes);
                    // Whoever has the buffer back is the only one who holds the file.
                    drop(file);
                    done.complete(result);
                }
            }
            Job::Read { file, offset, mut buffer, done } => {
                if done.is_wanted() {
                    let result = told(file.read(offset, &mut buffer)).map(|()| buffer);
                    drop(file);
                    done.complete(result);
                }
            }
            Job::Close(file) => drop(file),
        }
    }

    /// Nobody does it any more.
    fn give_up(self) {
        if let Job::Write { done, .. } | Job::Read { done, .. } = self {
            let message = "interrupted at shutdown";
            done.complete(Err(kauri_base::Error::new(ErrorCode::InterruptedAtShutdown, message)));
        }
    }
}

/// As the client is told.
fn told(result: crate::Result<()>) -> Result<()> {
    result.map_err(|error| kauri_base::Error::from(error).context("Cannot spill to disk"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::Access;

    /// A directory of a test's own, gone with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("kauri-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Scratch(path)
        }

        fn names(&self) -> Vec<String> {
            let Ok(entries) = fs::read_dir(self.0.join(TEMPORARY_DIRECTORY)) else {
                return Vec::new();
            };
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }

        fn open(&self) -> TemporaryDirectory {
            let path = self.0.join(TEMPORARY_DIRECTORY);
            remove_files(&path).unwrap();
            let directory = TemporaryDirectory::open(path).unwrap();
            directory.keep_free(0);
            directory
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn wait(transfer: &Transfer) -> Result<Vec<u8>> {
        loop {
            match transfer.take()? {
                Access::Ready(bytes) => return Ok(bytes),
                Access::WouldBlock(ticket) => ticket.wait()?,
            }
        }
    }

    #[test]
    fn temporary_files_are_readable_and_have_no_name() {
        let scratch = Scratch::new("temporary-read");
        let store = scratch.open();
        let file = store.file();
        let writes: Vec<Transfer> =
            (0..50u8).map(|n| file.write(u64::from(n) * 100, vec![n; 100])).collect();
        for (n, write) in writes.iter().enumerate() {
            assert_eq!(wait(write).unwrap(), [n as u8; 100]);
        }
        assert_eq!(scratch.names(), [""; 0]);
        assert_eq!(store.bytes_used(), 5000);
        assert_eq!(wait(&file.read(1950, vec![0; 100])).unwrap(), [[19; 50], [20; 50]].concat());
        assert!(wait(&file.read(4950, vec![0; 100])).is_err());
        drop(file);
        assert_eq!(store.bytes_used(), 0);
    }

    #[test]
    fn files_of_dead_processes_are_removed() {
        let scratch = Scratch::new("temporary-died");
        let path = scratch.0.join(TEMPORARY_DIRECTORY);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("kauri-spill-1-0"), "left").unwrap();
        fs::write(path.join("others"), "kept").unwrap();
        drop(scratch.open());
        assert_eq!(scratch.names(), ["others"]);
    }

    #[test]
    fn files_behind_a_symbolic_link_are_not_removed() {
        let scratch = Scratch::new("temporary-link");
        let elsewhere = scratch.0.join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("kauri-spill-1-0"), "another's").unwrap();
        std::os::unix::fs::symlink(&elsewhere, scratch.0.join(TEMPORARY_DIRECTORY)).unwrap();
        let file = scratch.open().file();
        assert_eq!(scratch.names(), ["kauri-spill-1-0"]);
        drop(file);
    }

    #[test]
    fn existing_names_are_skipped() {
        let scratch = Scratch::new("temporary-taken");
        let store = scratch.open();
        let path = scratch.0.join(TEMPORARY_DIRECTORY);
        fs::create_dir(&path).unwrap();
        for number in 0..3 {
            let name = format!("{PREFIX}{}-{number}", std::process::id());
            fs::write(path.join(name), "another's").unwrap();
        }
        wait(&store.file().write(0, vec![1; 10])).unwrap();
        assert_eq!(scratch.names().len(), 3);
    }

    #[test]
    fn threads_start_when_the_directory_is_opened() {
        let scratch = Scratch::new("temporary-threads");
        let store = scratch.open();
        assert_eq!(store.shared.lock().threads.len(), limits::SPILL_THREADS_MAX);
    }

    #[test]
    fn spilling_leaves_the_configured_space_free() {
        let scratch = Scratch::new("temporary-free");
        let store = scratch.open();
        store.keep_free(u64::MAX);
        let file = store.file();
        let refused = wait(&file.write(0, vec![1; 10])).map_err(|e| e.code());
        assert_eq!(refused, Err(ErrorCode::OutOfDiskSpace));
        assert_eq!(store.bytes_used(), 0);
        store.keep_free(0);
        wait(&file.write(0, vec![1; 10])).unwrap();
    }

    #[test]
    fn files_that_outlive_their_store_only_fail() {
        let scratch = Scratch::new("temporary-closed");
        let store = scratch.open();
        let file = store.file();
        wait(&file.write(0, vec![1; 10])).unwrap();
        drop(store);
        let closed = Err(ErrorCode::InterruptedAtShutdown);
        assert_eq!(wait(&file.read(0, vec![0; 10])).map_err(|e| e.code()), closed);
        assert_eq!(wait(&file.write(10, vec![1; 10])).map_err(|e| e.code()), closed);
    }
}
