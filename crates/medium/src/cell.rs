//! [`EpochCell`]: an optional object that readers access under a guard without a lock while a writer may replace or
//! remove it.

#![allow(unsafe_code)]

use crate::{EpochDomain, Guard};
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::{AtomicPtr, Ordering};

/// A place for one object, or none. What is replaced is dropped when every guard that was inside
/// has left.
pub struct EpochCell<T: Send + Sync + 'static> {
    domain: Arc<EpochDomain>,
    /// Null, or from `Box::into_raw`; owned by the cell until it is swapped out.
    pointer: AtomicPtr<T>,
}

impl<T: Send + Sync + 'static> EpochCell<T> {
    /// An empty place, for guards of this domain.
    pub fn empty(domain: Arc<EpochDomain>) -> Self {
        EpochCell { domain, pointer: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The object that is there now.
    ///
    /// # Panics
    /// If the guard is of another domain or has not entered.
    #[inline]
    pub fn load<'g>(&'g self, guard: &'g Guard) -> Option<&'g T> {
        assert!(
            guard.protects(&self.domain),
            "a cell is read under an entered guard of its domain"
        );
        let pointer = self.pointer.load(Ordering::Acquire);
        // SAFETY: the pointer is null or came from `Box::into_raw` (`replace`). It is freed either by
        // `drop` of the cell, which `&'g self` excludes, or by a closure deferred after it was swapped
        // out; the guard had entered before we loaded it, so that closure runs after the guard leaves,
        // which needs `&mut Guard` and so comes after `'g`. Only shared references are ever made.
        unsafe { pointer.as_ref() }
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.pointer.load(Ordering::Acquire).is_null()
    }

    /// Puts another object there, or none.
    pub fn replace(&self, object: Option<Box<T>>) {
        let new = object.map_or(std::ptr::null_mut(), Box::into_raw);
        let old = self.pointer.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: it came from `Box::into_raw` and the swap made us its only owner; see `load`
            // for who may still look at it. Moving the box does not move the object.
            let old = Retired(old);
            self.domain.defer(Box::new(move || drop(old)));
        }
    }
}

impl<T: Send + Sync + 'static> Drop for EpochCell<T> {
    fn drop(&mut self) {
        drop(Retired(*self.pointer.get_mut()));
    }
}

/// Frees what a cell held.
struct Retired<T>(*mut T);

// SAFETY: it stands for a `Box<T>` that somebody may still look at through `&T`.
unsafe impl<T: Send + Sync> Send for Retired<T> {}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by `Box::into_raw`, swapped out of its cell (or the cell is going), and
            // dropped once: by the deferred closure, when no guard protects it any more.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::sync::atomic::AtomicUsize;

    struct Counted(Arc<AtomicUsize>, u32);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn an_object_under_a_guard_outlives_its_replacement() {
        let domain = EpochDomain::new();
        let drops = Arc::new(AtomicUsize::new(0));
        let cell = EpochCell::empty(domain.clone());
        let mut guard = domain.register();
        guard.enter();
        assert!(cell.load(&guard).is_none());
        cell.replace(Some(Box::new(Counted(drops.clone(), 1))));
        let first = cell.load(&guard).map(|c| c.1);
        assert_eq!(first, Some(1));
        {
            let seen = cell.load(&guard).unwrap();
            cell.replace(Some(Box::new(Counted(drops.clone(), 2))));
            domain.collect();
            assert_eq!((seen.1, drops.load(Ordering::SeqCst)), (1, 0));
        }
        guard.leave();
        domain.collect();
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        drop(cell);
        assert_eq!(drops.load(Ordering::SeqCst), 2);
    }
}
