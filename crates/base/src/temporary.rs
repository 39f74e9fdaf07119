//! Temporary files for code that must not do I/O: data that exceeds the memory limit goes to a [`TemporaryStore`]
//! and is read back from there.
//!
//! No call here blocks. A read or write returns a [`Transfer`]: a ticket to wait for, and the buffer after the
//! store has finished. A file without an owner is deleted, together with its unfinished transfers. So the spilled
//! data of an operation ends with the operation.

use crate::codes::ErrorCode;
use crate::error::{Error, Result};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::ticket::{Access, Ticket, TicketSource};
use std::task::{Poll, Waker};

/// Makes temporary files.
pub trait TemporaryStore: Send + Sync {
    /// An empty file. Takes no space, and cannot fail, before something is written.
    fn file(&self) -> Arc<dyn TemporaryFile>;

    /// Bytes that all files take now.
    fn bytes_used(&self) -> u64;
}

/// A file that is deleted when its last owner drops it.
pub trait TemporaryFile: Send + Sync {
    /// Puts the bytes at `offset`, which others may do elsewhere at the same time. Gives the buffer back.
    fn write(&self, offset: u64, bytes: Vec<u8>) -> Transfer;

    /// Fills the buffer with the bytes at `offset`, and returns it.
    fn read(&self, offset: u64, buffer: Vec<u8>) -> Transfer;
}

/// An unfinished read or write of a file. Dropping it cancels the wait, and the work if that has not begun.
pub struct Transfer {
    slot: Arc<Slot>,
}

/// The store's half of a [`Transfer`]. Dropping it fails the transfer.
pub struct Completion {
    slot: Arc<Slot>,
}

struct Slot {
    state: Mutex<State>,
}

enum State {
    UnderWay(Vec<Waker>),
    Done(Result<Vec<u8>>),
    Taken,
}

impl Transfer {
    /// Both halves.
    pub fn new() -> (Transfer, Completion) {
        let slot = Arc::new(Slot { state: Mutex::new(State::UnderWay(Vec::new())) });
        (Transfer { slot: slot.clone() }, Completion { slot })
    }

    /// A finished transfer.
    pub fn done(result: Result<Vec<u8>>) -> Transfer {
        Transfer { slot: Arc::new(Slot { state: Mutex::new(State::Done(result)) }) }
    }

    /// The buffer, which can be had once, or what to wait for.
    pub fn take(&self) -> Result<Access<Vec<u8>>> {
        let mut state = self.slot.lock();
        if let State::UnderWay(_) = &*state {
            let source: Arc<dyn TicketSource> = self.slot.clone();
            return Ok(Access::WouldBlock(Ticket::new(source, 0)));
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(result) => result.map(Access::Ready),
            _ => Err(Error::new(ErrorCode::InternalError, "a buffer was taken twice")),
        }
    }
}

impl Completion {
    /// Whether a caller still waits for the transfer.
    pub fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.slot) > 1
    }

    /// Ends the transfer with its buffer, or with why not.
    pub fn complete(self, result: Result<Vec<u8>>) {
        self.slot.finish(result);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let message = "a temporary file's transfer was given up";
        self.slot.finish(Err(Error::new(ErrorCode::FileStreamFailed, message)));
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only the first result counts.
    fn finish(&self, result: Result<Vec<u8>>) {
        let mut state = self.lock();
        let State::UnderWay(wakers) = &mut *state else { return };
        let wakers = std::mem::take(wakers);
        *state = State::Done(result);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl TicketSource for Slot {
    fn poll_ticket(&self, _number: u64, waker: &Waker) -> Poll<Result<()>> {
        match &mut *self.lock() {
            State::UnderWay(wakers) => {
                if !wakers.iter().any(|known| known.will_wake(waker)) {
                    wakers.push(waker.clone());
                }
                Poll::Pending
            }
            // Whether it failed shows when the buffer is taken.
            State::Done(_) | State::Taken => Poll::Ready(Ok(())),
        }
    }
}

/// A store in memory, for tests: transfers are done at once, and it can be made to fail.
#[derive(Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    bytes: u64,
    files: usize,
    /// Transfers until one fails.
    fails_in: Option<(u64, Error)>,
}

impl MemoryStore {
    /// An empty one.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// Has every transfer after the next `count` fail like this.
    pub fn fail_after(&self, count: u64, error: Error) {
        self.shared.lock().fails_in = Some((count, error));
    }

    /// Number of existing files.
    pub fn files(&self) -> usize {
        self.shared.lock().files
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<()> {
        match &mut self.lock().fails_in {
            Some((0, error)) => Err(error.clone()),
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl TemporaryStore for MemoryStore {
    fn file(&self) -> Arc<dyn TemporaryFile> {
        self.shared.lock().files += 1;
        Arc::new(MemoryFile { shared: self.shared.clone(), bytes: Mutex::default() })
    }

    fn bytes_used(&self) -> u64 {
        self.shared.lock().bytes
    }
}

struct MemoryFile {
    shared: Arc<Shared>,
    bytes: Mutex<Vec<u8>>,
}

impl MemoryFile {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TemporaryFile for MemoryFile {
    fn write(&self, offset: u64, bytes: Vec<u8>) -> Transfer {
        if let Err(error) = self.shared.check() {
            return Transfer::done(Err(error));
        }
        let mut all = self.lock();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if all.len() < end {
            self.shared.lock().bytes += (end - all.len()) as u64;
            all.resize(end, 0);
        }
        all[start..end].copy_from_slice(&bytes);
        Transfer::done(Ok(bytes))
    }

    fn read(&self, offset: u64, mut buffer: Vec<u8>) -> Transfer {
        if let Err(error) = self.shared.check() {
            return Transfer::done(Err(error));
        }
        let (all, start) = (self.lock(), offset as usize);
        let Some(bytes) = all.get(start..start + buffer.len()) else {
            let message = "read beyond the end of a temporary file";
            return Transfer::done(Err(Error::new(ErrorCode::FileStreamFailed, message)));
        };
        buffer.copy_from_slice(bytes);
        Transfer::done(Ok(buffer))
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let bytes = self.lock().len() as u64;
        let mut used = self.shared.lock();
        used.bytes -= bytes;
        used.files -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_transfer_wakes_its_waiter() {
        let (transfer, completion) = Transfer::new();
        assert!(completion.is_wanted());
        let Ok(Access::WouldBlock(ticket)) = transfer.take() else { panic!("done at once") };
        let thread = std::thread::spawn(move || completion.complete(Ok(vec![1])));
        ticket.wait().unwrap();
        assert!(matches!(transfer.take(), Ok(Access::Ready(bytes)) if bytes == [1]));
        assert!(transfer.take().is_err());
        thread.join().unwrap();
    }

    #[test]
    fn a_dropped_transfer_fails() {
        let (transfer, completion) = Transfer::new();
        drop(completion);
        assert_eq!(
            transfer.take().map(|_| ()).map_err(|e| e.code()),
            Err(ErrorCode::FileStreamFailed)
        );
        let (transfer, completion) = Transfer::new();
        drop(transfer);
        assert!(!completion.is_wanted());
    }

    #[test]
    fn files_in_memory_are_counted() {
        let store = MemoryStore::new();
        let file = store.file();
        file.write(0, vec![7; 10]).take().map(|_| ()).unwrap();
        file.write(5, vec![8; 10]).take().map(|_| ()).unwrap();
        assert_eq!((store.bytes_used(), store.files()), (15, 1));
        let Ok(Access::Ready(read)) = file.read(4, vec![0; 3]).take() else { panic!("no bytes") };
        assert_eq!(read, [7, 8, 8]);
        assert!(file.read(14, vec![0; 2]).take().is_err());
        drop(file);
        assert_eq!((store.bytes_used(), store.files()), (0, 0));
    }
}
