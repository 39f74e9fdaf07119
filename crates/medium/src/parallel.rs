//! Parallel work on several threads, for recovery and checks of a directory.
//!
//! With one thread, or one part, everything runs on the caller's thread, in order.

use kauri_base::work;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Threads that the machine runs at once.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Calls `work` for each part from 0 on, on up to `threads` threads, and answers what it answered, in
/// the order of the parts. Parts are begun in order. A thread that can't be started is done without.
pub fn map<T: Send>(threads: usize, parts: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = threads.min(parts);
    if threads <= 1 {
        return (0..parts).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= parts {
                return done;
            }
            done.push((part, work(part)));
        }
    };
    let mut results = thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .filter_map(|n| {
                let builder = thread::Builder::new().name(format!("parallel-{n}"));
                let builder = builder.stack_size(work::THREAD_STACK_BYTES);
                let part = || {
                    work::note_stack(work::THREAD_STACK_BYTES);
                    run()
                };
                builder.spawn_scoped(scope, part).ok()
            })
            .collect();
        let mut results = run();
        for other in others {
            match other.join() {
                Ok(done) => results.extend(done),
                Err(panic) => resume_unwind(panic),
            }
        }
        results
    });
    results.sort_unstable_by_key(|(part, _)| *part);
    results.into_iter().map(|(_, result)| result).collect()
}

/// As [`map`], until a part fails: then the failure of the first part that did. Parts that have not
/// been begun by then are not.
pub fn try_map<T: Send, E: Send>(
    threads: usize,
    parts: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let failed = AtomicUsize::new(usize::MAX);
    let results = map(threads, parts, |part| {
        if failed.load(Ordering::Relaxed) < part {
            return None;
        }
        let result = work(part);
        if result.is_err() {
            failed.fetch_min(part, Ordering::Relaxed);
        }
        Some(result)
    });
    // The parts before a failed one have all been worked on.
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn results_come_in_the_order_of_the_parts() {
        for threads in [0, 1, 3, 20] {
            let squares = map(threads, 10, |part| part * part);
            assert_eq!(squares, [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]);
            assert!(map(threads, 0, |part| part).is_empty());
        }
    }

    #[test]
    fn parts_run_in_parallel() {
        // Each part waits for the other one.
        let barrier = Barrier::new(2);
        map(2, 2, |_| barrier.wait());
    }

    #[test]
    fn the_first_failure_is_returned() {
        for threads in [1, 4] {
            let result =
                try_map(threads, 100, |part| if part % 7 == 6 { Err(part) } else { Ok(()) });
            assert_eq!(result, Err(6));
            assert_eq!(try_map(threads, 3, Ok::<_, ()>), Ok(vec![0, 1, 2]));
        }
    }
}
