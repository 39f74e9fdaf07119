//! The sorted elements of a constant array, so that `$in` need not scan the array each time.
//!
//! The array is sorted when it pays: when scans have taken as many steps as the sort will.

use crate::ops::compare;
use kauri_base::{Result, sort, work};
use kauri_bson::{Doc, Value};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of arrays that are always gone through.
const SMALL_BYTES: usize = 128;
/// Searches before the elements are sorted.
const SEARCHES_MIN: u32 = 16;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Members {
    searches: AtomicU32,
    sorted: OnceLock<Vec<Value<'static>>>,
}

impl Members {
    /// Whether an element of `items`, always the same array, equals `wanted`.
    pub fn contains(&self, items: Doc<'_>, wanted: &Value<'_>) -> Result<bool> {
        if items.as_bytes().len() > SMALL_BYTES {
            if let Some(sorted) = self.sorted.get() {
                work::tick(1)?;
                return Ok(sorted.binary_search_by(|probe| compare::order(probe, wanted)).is_ok());
            }
            // A count that is lost in a race does no harm.
            let searches = self.searches.load(Ordering::Relaxed);
            self.searches.store(searches.saturating_add(1), Ordering::Relaxed);
            if searches >= SEARCHES_MIN {
                // Not within `get_or_init`: the work may be left in the middle, and others find it begun then.
                let _ = self.sorted.set(sorted(items)?);
                return self.contains(items, wanted);
            }
        }
        any(items, wanted)
    }
}

fn sorted(items: Doc<'_>) -> Result<Vec<Value<'static>>> {
    let mut values = Vec::new();
    for elem in items.ticked() {
        values.push(elem?.value().into_owned());
    }
    sort::sort_by(&mut values, compare::order)?;
    values.dedup_by(|a, b| compare::order(a, b).is_eq());
    Ok(values)
}

/// Whether an element equals `wanted`.
pub(crate) fn any(items: Doc<'_>, wanted: &Value<'_>) -> Result<bool> {
    for elem in items.ticked() {
        if compare::elem_is(elem?, wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}
