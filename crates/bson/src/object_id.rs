//! ObjectIds: 4 bytes of seconds, 5 of the process, 3 of a counter (BSON specification, "ObjectId").

use kauri_base::RandomSource;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

struct Process {
    bytes: [u8; 5],
    counter: AtomicU32,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// A new ObjectId of this process. `random` is asked once in the life of the process.
pub fn new_object_id(seconds: u32, random: &dyn RandomSource) -> [u8; 12] {
    let process = PROCESS.get_or_init(|| {
        let mut bytes = [0; 5];
        bytes.copy_from_slice(&random.next_u64().to_le_bytes()[..5]);
        Process { bytes, counter: AtomicU32::new(random.next_u64() as u32) }
    });
    let count = process.counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let mut id = [0; 12];
    id[..4].copy_from_slice(&seconds.to_be_bytes());
    id[4..9].copy_from_slice(&process.bytes);
    id[9..].copy_from_slice(&count[1..]);
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::clock::SeededRandom;

    #[test]
    fn ids_begin_with_the_time_and_differ() {
        let random = SeededRandom::new(1);
        let (a, b) = (new_object_id(0x0102_0304, &random), new_object_id(0x0102_0304, &random));
        assert_eq!(a[..9], b[..9]);
        assert_eq!(a[..4], [1, 2, 3, 4]);
        assert_ne!(a, b);
    }
}
