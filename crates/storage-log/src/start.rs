//! What recovery found and attaching indexes works with, until the server is about to work.

use crate::images::Images;
use crate::lock;
use crate::recovered::Recovered;
use kauri_base::sync::{Arc, Mutex, MutexGuard};

/// See the module's head.
pub struct Start {
    images: Mutex<Images>,
    recovered: Mutex<Arc<Recovered>>,
}

impl Start {
    /// Index images, and what has been read of segments.
    pub fn new(images: Images, recovered: Recovered) -> Self {
        Start { images: Mutex::new(images), recovered: Mutex::new(Arc::new(recovered)) }
    }

    /// The index images.
    pub fn images(&self) -> MutexGuard<'_, Images> {
        lock(&self.images)
    }

    /// What has been read of segments.
    pub fn recovered(&self) -> Arc<Recovered> {
        lock(&self.recovered).clone()
    }

    /// What was to be attached has been.
    pub fn end(&self) {
        self.images().forget_changes();
        *lock(&self.recovered) = Arc::default();
    }
}
