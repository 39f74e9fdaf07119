//! Watches: cursors that wait for the next commit to a collection.
//!
//! Contract: a [`Watch`] begins before its owner reads. It resolves after a commit to the collection (or a commit
//! that drops the collection) that the owner's next reader may not see. A commit that was visible when the watch
//! began does not resolve it.
//!
//! A commit without watchers costs a fence and a load. Watchers of one collection slow down commits to another one
//! only if both share a slot.

use crate::unit::WriteUnit;
use kauri_base::CollectionId;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Counters of watchers; collections share them by their ids.
const SLOTS: usize = 64;

/// See the module's head.
pub struct Watches {
    /// Watchers of the collections of each slot. Changed under the lock of `watchers`.
    counts: [AtomicU32; SLOTS],
    next: AtomicU64,
    watchers: Mutex<HashMap<CollectionId, Vec<Watcher>>>,
}

struct Watcher {
    number: u64,
    waker: Option<Waker>,
}

impl Default for Watches {
    fn default() -> Self {
        Watches {
            counts: std::array::from_fn(|_| AtomicU32::new(0)),
            next: AtomicU64::new(0),
            watchers: Mutex::default(),
        }
    }
}

impl Watches {
    /// Begins to watch a collection.
    pub fn watch(self: &Arc<Self>, collection: CollectionId) -> Watch {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut watchers = self.lock();
        watchers.entry(collection).or_default().push(Watcher { number, waker: None });
        self.count(collection).fetch_add(1, Ordering::Relaxed);
        drop(watchers);
        // Either a commit sees the count, or the owner's next reader sees the commit.
        fence(Ordering::SeqCst);
        Watch { watches: self.clone(), collection, number }
    }

    /// A unit has become visible.
    #[inline]
    pub fn committed(&self, unit: &WriteUnit<'_>) {
        self.changed(unit.ops.iter().map(|op| op.collection));
    }

    /// The same of a unit with these collections.
    pub fn changed(&self, collections: impl Iterator<Item = CollectionId>) {
        fence(Ordering::SeqCst);
        for collection in collections {
            if self.count(collection).load(Ordering::Relaxed) > 0 {
                self.wake(collection);
            }
        }
    }

    #[cold]
    fn wake(&self, collection: CollectionId) {
        let mut watchers = self.lock();
        let woken = watchers.remove(&collection).unwrap_or_default();
        self.count(collection).fetch_sub(woken.len() as u32, Ordering::Relaxed);
        drop(watchers);
        woken.into_iter().filter_map(|watcher| watcher.waker).for_each(Waker::wake);
    }

    fn count(&self, collection: CollectionId) -> &AtomicU32 {
        &self.counts[collection.0 as usize % SLOTS]
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CollectionId, Vec<Watcher>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch of a collection, until it is dropped.
pub struct Watch {
    watches: Arc<Watches>,
    collection: CollectionId,
    number: u64,
}

impl Future for Watch {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut watchers = self.watches.lock();
        let mut of_collection = watchers.get_mut(&self.collection).into_iter().flatten();
        match of_collection.find(|watcher| watcher.number == self.number) {
            None => Poll::Ready(()),
            Some(watcher) => {
                watcher.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watchers = self.watches.lock();
        let Some(of_collection) = watchers.get_mut(&self.collection) else { return };
        let Some(at) = of_collection.iter().position(|w| w.number == self.number) else { return };
        of_collection.swap_remove(at);
        if of_collection.is_empty() {
            watchers.remove(&self.collection);
        }
        self.watches.count(self.collection).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn unit(collection: u32) -> WriteUnit<'static> {
        let mut unit = WriteUnit::new();
        unit.insert(CollectionId(collection), vec![5, 0, 0, 0, 0]);
        unit
    }

    fn is_ready(watch: &mut Watch, waker: &Waker) -> bool {
        pin!(watch).poll(&mut Context::from_waker(waker)).is_ready()
    }

    fn watched(watches: &Watches) -> (u32, usize) {
        let counts = watches.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        (counts, watches.lock().values().map(Vec::len).sum())
    }

    #[test]
    fn a_commit_wakes_a_watcher_of_its_collection_once() {
        let watches = Arc::new(Watches::default());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let woken = || wakes.0.load(Ordering::Relaxed);
        let (mut one, mut other) = (watches.watch(CollectionId(1)), watches.watch(CollectionId(1)));
        assert!(!is_ready(&mut one, &waker) && !is_ready(&mut other, &waker));
        // The second is another collection of the same slot.
        for elsewhere in [2, 1 + SLOTS as u32] {
            watches.committed(&unit(elsewhere));
            assert!(woken() == 0 && !is_ready(&mut one, &waker), "{elsewhere}");
        }
        watches.committed(&unit(1));
        assert_eq!(woken(), 2);
        assert!(is_ready(&mut one, &waker) && is_ready(&mut other, &waker));
        watches.committed(&unit(1));
        assert_eq!((woken(), watched(&watches)), (2, (0, 0)));
    }

    #[test]
    fn a_commit_before_the_first_poll_is_not_missed() {
        let watches = Arc::new(Watches::default());
        let mut watch = watches.watch(CollectionId(1));
        watches.committed(&unit(1));
        assert!(is_ready(&mut watch, Waker::noop()));
    }

    #[test]
    fn a_dropped_watch_leaves_nothing_behind() {
        let watches = Arc::new(Watches::default());
        let mut watch = watches.watch(CollectionId(1));
        assert!(!is_ready(&mut watch, Waker::noop()));
        let other = watches.watch(CollectionId(1));
        drop(watch);
        assert_eq!(watched(&watches), (1, 1));
        drop(other);
        assert_eq!(watched(&watches), (0, 0));
        let fired = watches.watch(CollectionId(1));
        watches.committed(&unit(1));
        drop(fired);
        assert_eq!(watched(&watches), (0, 0));
    }
}
