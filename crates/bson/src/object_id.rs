//! ObjectIds: 4 bytes of seconds, 5 of the process, 3 of a counter (BSON specification, "ObjectId").

use kauri_base::RandomSource;
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes the ObjectIds of one server.
pub struct ObjectIds {
    process: [u8; 5],
    counter: AtomicU32,
}

impl ObjectIds {
    /// Those of a server that tells itself from others by this randomness.
    pub fn new(random: &dyn RandomSource) -> Self {
        let mut process = [0; 5];
        process.copy_from_slice(&random.next_u64().to_le_bytes()[..5]);
        ObjectIds { process, counter: AtomicU32::new(random.next_u64() as u32) }
    }

    /// A new one, at so many seconds since 1970.
    pub fn next(&self, seconds: u32) -> [u8; 12] {
        let count = self.counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut id = [0; 12];
        id[..4].copy_from_slice(&seconds.to_be_bytes());
        id[4..9].copy_from_slice(&self.process);
        id[9..].copy_from_slice(&count[1..]);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::clock::SeededRandom;

    #[test]
    fn ids_begin_with_the_time_and_differ() {
        let ids = ObjectIds::new(&SeededRandom::new(1));
        let (a, b) = (ids.next(0x0102_0304), ids.next(0x0102_0304));
        assert_eq!(a[..9], b[..9]);
        assert_eq!(a[..4], [1, 2, 3, 4]);
        assert_ne!(a, b);
        let other = ObjectIds::new(&SeededRandom::new(2)).next(0x0102_0304);
        assert_ne!(a[4..9], other[4..9]);
    }
}
