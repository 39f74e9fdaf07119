//! What operations may write to temporary files, by the server's parameters.
//!
//! The values are copied here from the parameter table, because every query reads them.

use crate::parameters::Parameters;
use kauri_base::operation::OperationState;
use kauri_base::temporary::TemporaryStore;
use kauri_base::{Result, limits};
use kauri_bson::Value;
use kauri_query::spill::{SpillPlace, Spilling};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// See the module's head.
pub struct SpillSettings {
    /// The directory for spilled data.
    pub place: Arc<SpillPlace>,
    allowed: Arc<AtomicBool>,
    sort_bytes_max: Arc<AtomicI64>,
    group_bytes_max: Arc<AtomicI64>,
    window_bytes_max: Arc<AtomicI64>,
    bucket_auto_bytes_max: Arc<AtomicI64>,
    densify_bytes_max: Arc<AtomicI64>,
    densify_docs_max: Arc<AtomicI64>,
}

impl SpillSettings {
    /// The defaults, with this store.
    pub fn new(store: Arc<dyn TemporaryStore>) -> SpillSettings {
        let bytes = |bytes: usize| Arc::new(AtomicI64::new(bytes as i64));
        SpillSettings {
            place: Arc::new(SpillPlace::new(store)),
            allowed: Arc::new(AtomicBool::new(true)),
            sort_bytes_max: bytes(limits::SORT_BYTES_MAX),
            group_bytes_max: bytes(limits::GROUP_BYTES_MAX),
            window_bytes_max: bytes(limits::SORT_BYTES_MAX),
            bucket_auto_bytes_max: bytes(limits::SORT_BYTES_MAX),
            densify_bytes_max: bytes(limits::DENSIFY_BYTES_MAX),
            densify_docs_max: Arc::new(AtomicI64::new(limits::DENSIFY_DOCS_MAX.into())),
        }
    }

    /// Follows the parameters from now on.
    pub fn follow(&self, parameters: &Parameters) {
        let allowed = self.allowed.clone();
        let hook = move |value: &Value<'_>| -> Result<()> {
            allowed.store(value.truthy(), Ordering::Relaxed);
            Ok(())
        };
        parameters.on_change("allowDiskUseByDefault", Arc::new(hook));
        for (name, bytes) in self.limits() {
            let bytes = bytes.clone();
            let hook = move |value: &Value<'_>| {
                bytes.store(value.to_i64_saturating().unwrap_or(0), Ordering::Relaxed);
                Ok(())
            };
            parameters.on_change(name, Arc::new(hook));
        }
    }

    /// The limits by their parameters' names.
    fn limits(&self) -> [(&'static str, &Arc<AtomicI64>); 6] {
        [
            ("internalQueryMaxBlockingSortMemoryUsageBytes", &self.sort_bytes_max),
            ("internalDocumentSourceGroupMaxMemoryBytes", &self.group_bytes_max),
            ("internalDocumentSourceSetWindowFieldsMaxMemoryBytes", &self.window_bytes_max),
            ("internalDocumentSourceBucketAutoMaxMemoryBytes", &self.bucket_auto_bytes_max),
            ("internalDocumentSourceDensifyMaxMemoryBytes", &self.densify_bytes_max),
            ("internalQueryMaxAllowedDensifyDocs", &self.densify_docs_max),
        ]
    }

    /// What an operation without `allowDiskUse` may do.
    pub fn of_operation(&self, operation: &Arc<OperationState>) -> Spilling {
        let bytes =
            |bytes: &AtomicI64| usize::try_from(bytes.load(Ordering::Relaxed)).unwrap_or_default();
        Spilling {
            place: Some(self.place.clone()),
            allowed: self.allowed.load(Ordering::Relaxed),
            sort_bytes_max: bytes(&self.sort_bytes_max),
            group_bytes_max: bytes(&self.group_bytes_max),
            window_bytes_max: bytes(&self.window_bytes_max),
            bucket_auto_bytes_max: bytes(&self.bucket_auto_bytes_max),
            densify_bytes_max: bytes(&self.densify_bytes_max),
            densify_docs_max: bytes(&self.densify_docs_max) as u64,
            operation: Some(operation.clone()),
        }
    }
}
