//! The completion queues of one worker, and the assignment of completions to sessions.
//!
//! One queue serves many sessions. When it is full, another queue is created. Only the worker's thread uses them;
//! the mutex only satisfies the type system.

use super::mailbox::Mailbox;
use super::{COMPLETIONS, SESSIONS_A_QUEUE};
use crate::executor::local::Local;
use crate::executor::slab::{Key, Slab};
use crate::sys::monotonic_ns;
use kauri_verbs::{Completion, CompletionQueue, Device, Error, Result};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Completions taken at once.
const BATCH: usize = 32;
/// Maximum number of consecutive full polls of one queue.
const BATCHES_MAX: usize = 8;

/// See the module's head.
pub(crate) struct WorkerQueues {
    device: Device,
    /// Completions that a queue of this device can have.
    capacity: u32,
    state: Mutex<State>,
    members: AtomicUsize,
}

struct State {
    queues: Vec<Arc<CompletionQueue>>,
    mailboxes: Slab<Arc<Mailbox>>,
    taken: [Completion; BATCH],
}

impl WorkerQueues {
    pub fn new(device: &Device) -> Result<Self> {
        let capacity = device.limits()?.completions_max.min(COMPLETIONS * SESSIONS_A_QUEUE);
        Ok(WorkerQueues {
            device: device.clone(),
            capacity,
            state: Mutex::new(State {
                queues: Vec::new(),
                mailboxes: Slab::new(),
                taken: [Completion::EMPTY; BATCH],
            }),
            members: AtomicUsize::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no session has anything here.
    pub fn is_empty(&self) -> bool {
        self.members.load(Ordering::Relaxed) == 0
    }

    /// A queue that has room for one more session, and whether it is new and has to be watched.
    pub fn queue(&self) -> Result<(Arc<CompletionQueue>, bool)> {
        let mut state = self.lock();
        let has_room = |queue: &&Arc<CompletionQueue>| {
            let (capacity, reserved) = queue.room();
            capacity - reserved >= COMPLETIONS
        };
        if let Some(queue) = state.queues.iter().find(has_room) {
            return Ok((Arc::clone(queue), false));
        }
        let queue = Arc::new(CompletionQueue::new(&self.device, self.capacity, true)?);
        state.queues.push(Arc::clone(&queue));
        Ok((queue, true))
    }

    /// Removes the newest queue, which has no user.
    pub fn retract(&self) {
        self.lock().queues.pop();
    }

    /// Number of polls that empty a full queue.
    pub fn looks_a_queue(&self) -> usize {
        (self.capacity as usize).div_ceil(BATCH * BATCHES_MAX)
    }

    /// Has what completes under the key that this answers put into a mailbox, as long as the answer
    /// lives.
    pub fn join(self: &Arc<Self>, mailbox: &Arc<Mailbox>) -> Membership {
        let mut state = self.lock();
        let key = state.mailboxes.reserve();
        state.mailboxes.put(key, Arc::clone(mailbox));
        self.members.fetch_add(1, Ordering::Relaxed);
        Membership { queues: Arc::clone(self), key }
    }

    /// Takes completions. Whether there were any.
    pub fn look(&self) -> bool {
        let mut state = self.lock();
        let State { queues, mailboxes, taken } = &mut *state;
        let mut any = false;
        for queue in queues {
            for _ in 0..BATCHES_MAX {
                // A queue that can't be polled any more tells nothing: its sessions end by their sockets.
                let count = queue.poll(taken).unwrap_or(0);
                if count == 0 {
                    break;
                }
                let now_ns = monotonic_ns();
                for completion in taken.iter().take(count) {
                    if let Some(mailbox) = mailboxes.get(completion.queue_pair) {
                        mailbox.deliver(completion, now_ns);
                        any = true;
                    }
                }
                if count < BATCH {
                    break;
                }
            }
        }
        any
    }

    /// From now on the queues report what completes. False: something had completed already, and was
    /// taken.
    pub fn fall_asleep(&self) -> bool {
        // One that can't be armed is no reason to spin for ever.
        self.lock().queues.iter().for_each(|queue| drop(queue.arm()));
        !self.look()
    }

    /// Takes the report of a queue that was watched.
    pub fn heard(&self, index: usize) {
        if let Some(queue) = self.lock().queues.get(index) {
            let _ = queue.take_event();
        }
    }
}

/// A device's queues of all workers.
#[derive(Default)]
pub(crate) struct AllQueues(Mutex<Vec<Option<Arc<WorkerQueues>>>>);

impl AllQueues {
    /// The queues of the calling thread's worker, watched by it.
    fn of(&self, device: &Device, local: &Rc<Local>) -> Result<Arc<WorkerQueues>> {
        let mut workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = local.shared.id;
        if workers.len() <= id {
            workers.resize(id + 1, None);
        }
        let Some(place) = workers.get_mut(id) else {
            return Err(Error::Argument("a worker without a place"));
        };
        if let Some(queues) = place {
            return Ok(Arc::clone(queues));
        }
        let queues = Arc::new(WorkerQueues::new(device)?);
        if !local.completions.set_up(&queues) {
            return Err(Error::Argument("a worker serves sessions of one RDMA device"));
        }
        Ok(Arc::clone(place.insert(queues)))
    }

    /// A queue for one more session of this worker, which takes its completions to the mailbox.
    pub fn join(
        &self,
        device: &Device,
        local: &Rc<Local>,
        mailbox: &Arc<Mailbox>,
    ) -> Result<(Arc<CompletionQueue>, Membership)> {
        let queues = self.of(device, local)?;
        let (queue, is_new) = queues.queue()?;
        if is_new && let Err(error) = local.completions.watch(local, &queue) {
            queues.retract();
            return Err(Error::Call { name: "epoll_ctl", error });
        }
        Ok((queue, queues.join(mailbox)))
    }
}

/// A session's membership in its worker's queues. Dropping it ends deliveries to the mailbox.
pub(crate) struct Membership {
    queues: Arc<WorkerQueues>,
    key: Key,
}

impl Membership {
    /// Takes completions of the worker's sessions, on that worker.
    pub fn look(&self) {
        self.queues.look();
    }

    /// The key of the session's queue pair.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Membership({})", self.key)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.queues.lock().mailboxes.remove(self.key);
        self.queues.members.fetch_sub(1, Ordering::Relaxed);
    }
}
