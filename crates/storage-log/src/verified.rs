//! Remembers the large documents whose CRC was checked after they were read from the medium, so that a later read
//! from memory need not check again.
//!
//! A lossy table of fingerprints of (segment, epoch, offset, the segment's load count). When a block of the segment
//! is read from the medium again, the load count and so the fingerprint change. Small documents are checked each
//! time.

use kauri_base::sync::atomic::{AtomicU64, Ordering};

/// Documents shorter than this are checked each time: that costs less than a lookup in the table.
pub const LARGE_BYTES: usize = 4096;
const PLACES: usize = 4096;

/// See the module's head.
pub struct Verified {
    places: Box<[AtomicU64]>,
}

impl Verified {
    /// Nothing has been checked.
    pub fn new() -> Self {
        Verified { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Whether `check` has succeeded on these bytes before, or does now.
    pub fn check(
        &self,
        (segment, epoch): (u32, u64),
        offset: u32,
        loads: u32,
        check: impl FnOnce() -> bool,
    ) -> bool {
        let fingerprint = fingerprint(segment, epoch, offset, loads);
        let place = self.places.get(fingerprint as usize % PLACES);
        if place.is_some_and(|place| place.load(Ordering::Relaxed) == fingerprint) {
            return true;
        }
        let whole = check();
        if let Some(place) = place.filter(|_| whole) {
            place.store(fingerprint, Ordering::Relaxed);
        }
        whole
    }
}

fn fingerprint(segment: u32, epoch: u64, offset: u32, loads: u32) -> u64 {
    let mut bits = u64::from(segment) << 32 | u64::from(offset);
    bits ^= (u64::from(loads) ^ epoch.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (bits ^ bits >> 31) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_counts_until_the_segment_is_loaded_from_again() {
        let verified = Verified::new();
        assert!(!verified.check((1, 9), 4096, 1, || false));
        assert!(verified.check((1, 9), 4096, 1, || true), "a failure is not remembered");
        assert!(verified.check((1, 9), 4096, 1, || panic!("it was checked")));
        let others = [(1, 9, 4096, 2), (2, 9, 4096, 1), (1, 9, 4104, 1), (1, 10, 4096, 1)];
        for (segment, epoch, offset, loads) in others {
            assert!(!verified.check((segment, epoch), offset, loads, || false));
        }
    }
}
