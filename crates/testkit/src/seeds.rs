//! Runs of many seeds, on all processors.

use std::sync::atomic::{AtomicU64, Ordering};

/// The first seed, and the one after the last: `KAURI_SEED` alone, if it is set, else the first `KAURI_SEEDS` or
/// `many`.
pub fn seeds(many: u64) -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("KAURI_SEED") {
        Some(seed) => (seed, seed + 1),
        None => (1, 1 + number("KAURI_SEEDS").unwrap_or(many)),
    }
}

/// Calls `of` with each seed, on as many threads as there are processors.
pub fn each_seed((first, end): (u64, u64), of: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let seed = next.fetch_add(1, Ordering::Relaxed)
                    && seed < end
                {
                    of(seed);
                }
            });
        }
    });
}
