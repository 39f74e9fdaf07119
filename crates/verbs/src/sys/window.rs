//! Memory windows of type 2: keys to a part of a region that only the peer of one queue pair can use.
//!
//! A window is free, bound, or being invalidated. The queue pair changes its state: to bound when the bind is
//! posted, to free when an invalidation has completed. In between, the window holds its region.

use super::device::PdInner;
use super::ffi;
use super::memory::Share;
use crate::counters::add;
use crate::error::{Error, Result};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A window. Dropping it ends the peer's access.
pub struct MemoryWindow {
    pub(crate) inner: Arc<WindowInner>,
}

/// The owner of an `ibv_mw`.
pub struct WindowInner {
    pub pd: Arc<PdInner>,
    state: Mutex<State>,
}

struct State {
    /// `None` after the end of the queue pair that it was bound to.
    mw: Option<NonNull<ffi::Mw>>,
    key: u32,
    bound: Option<Bound>,
}

struct Bound {
    /// The number of the queue pair.
    queue_pair: u32,
    /// Held so that it outlives the binding.
    _share: Arc<Share>,
    invalidating: bool,
}

// SAFETY: the `ibv_mw` is used under the mutex only.
unsafe impl Send for WindowInner {}
// SAFETY: the same.
unsafe impl Sync for WindowInner {}

/// What binding needs to know: the window and the key that it is to have.
pub struct Binding {
    pub mw: *mut ffi::Mw,
    pub key: u32,
}

impl MemoryWindow {
    pub(crate) fn new(pd: &Arc<PdInner>) -> Result<MemoryWindow> {
        let alloc = pd.device.ops().alloc_mw.ok_or(Error::NoWindows)?;
        // SAFETY: the protection domain is alive.
        let mw = unsafe { alloc(pd.pd.as_ptr(), ffi::MW_TYPE_2) };
        let mw = NonNull::new(mw).ok_or_else(|| Error::last("ibv_alloc_mw"))?;
        add(&pd.device.counting.windows_allocated, 1);
        // SAFETY: just allocated.
        let key = unsafe { mw.as_ref().rkey };
        let state = Mutex::new(State { mw: Some(mw), key, bound: None });
        Ok(MemoryWindow { inner: Arc::new(WindowInner { pd: pd.clone(), state }) })
    }

    /// The key that the peer needs, once the bind has completed. Each bind changes it.
    pub fn remote_key(&self) -> u32 {
        self.inner.lock().key
    }

    /// Whether it is bound, or was and its invalidation has not completed.
    pub fn is_bound(&self) -> bool {
        self.inner.lock().bound.is_some()
    }
}

impl WindowInner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a free window a bound one, whose bind is about to be posted.
    pub fn bind(&self, queue_pair: u32, share: &Arc<Share>) -> Result<Binding> {
        let mut state = self.lock();
        let Some(mw) = state.mw.filter(|_| state.bound.is_none()) else {
            return Err(Error::WindowState);
        };
        // The key's last byte is the user's, and has to be another one each time.
        state.key = (state.key & !0xff) | (state.key.wrapping_add(1) & 0xff);
        state.bound = Some(Bound { queue_pair, _share: share.clone(), invalidating: false });
        Ok(Binding { mw: mw.as_ptr(), key: state.key })
    }

    /// The bind has been posted: later requests go by the new key.
    pub fn posted(&self) {
        let state = self.lock();
        if let Some(mw) = state.mw {
            // SAFETY: the window is alive, and the field is the user's to keep for type 2. The mutex
            // keeps other threads of this crate away; libibverbs does not read it by itself.
            unsafe { (*mw.as_ptr()).rkey = state.key };
        }
    }

    /// The bind was not posted after all.
    pub fn unbind(&self) {
        self.lock().bound = None;
    }

    /// The key to invalidate, for a window that is bound to this queue pair.
    pub fn invalidate(&self, queue_pair: u32) -> Result<u32> {
        let mut state = self.lock();
        let key = state.key;
        match &mut state.bound {
            Some(bound) if bound.queue_pair == queue_pair && !bound.invalidating => {
                bound.invalidating = true;
                Ok(key)
            }
            _ => Err(Error::WindowState),
        }
    }

    /// The invalidation was not posted after all.
    pub fn keep(&self) {
        if let Some(bound) = &mut self.lock().bound {
            bound.invalidating = false;
        }
    }

    /// The invalidation has completed: the key opens nothing, the region may go.
    pub fn invalidated(&self) {
        self.lock().bound = None;
    }

    /// Deallocates the window, which ends the peer's access, if it is bound to this queue pair. It cannot be used
    /// after that.
    pub fn end_with(&self, queue_pair: u32) {
        let mut state = self.lock();
        if state.bound.as_ref().is_some_and(|bound| bound.queue_pair == queue_pair) {
            self.deallocate(&mut state);
        }
    }

    fn deallocate(&self, state: &mut State) {
        let (Some(mw), Some(dealloc)) = (state.mw.take(), self.pd.device.ops().dealloc_mw) else {
            return;
        };
        let counting = &self.pd.device.counting;
        // SAFETY: allocated by this crate and given back once, since it was just taken.
        if unsafe { dealloc(mw.as_ptr()) } == 0 {
            add(&counting.windows_deallocated, 1);
            state.bound = None;
        } else {
            // The peer may still be let in, so the region stays.
            add(&counting.leaks, 1);
            std::mem::forget(state.bound.take());
        }
    }
}

impl Drop for WindowInner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut last = std::mem::replace(state, State { mw: None, key: 0, bound: None });
        self.deallocate(&mut last);
    }
}
