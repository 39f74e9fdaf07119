//! [`Chunked`]: an array that grows and never moves, read without a lock.
//!
//! Chunk *n* has 2^n places and is made when the first of them is needed.

use std::sync::OnceLock;

const CHUNKS: usize = 40;

/// See the module's head.
pub struct Chunked<T> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
}

impl<T> Chunked<T> {
    /// No places.
    pub fn new() -> Self {
        Chunked { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// The object at this index, if its chunk has been made.
    #[inline]
    pub fn get(&self, index: u64) -> Option<&T> {
        let (chunk, place) = place(index);
        self.chunks.get(chunk)?.get()?.get(place)
    }

    /// The object at this index; `make` makes all of a new chunk. `None` beyond 2^40 objects.
    pub fn get_or_make(&self, index: u64, make: impl FnMut() -> T) -> Option<&T> {
        let (chunk, place) = place(index);
        let mut make = make;
        let objects =
            self.chunks.get(chunk)?.get_or_init(|| (0..1usize << chunk).map(|_| make()).collect());
        objects.get(place)
    }
}

#[inline]
fn place(index: u64) -> (usize, usize) {
    let number = index.saturating_add(1);
    let chunk = number.ilog2();
    (chunk as usize, (number - (1 << chunk)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let array = Chunked::<std::sync::atomic::AtomicU64>::new();
        for i in 0..1000u64 {
            let object = array.get_or_make(i, Default::default).unwrap();
            object.store(i + 1, std::sync::atomic::Ordering::Relaxed);
        }
        for i in 0..1000u64 {
            let object = array.get(i).unwrap();
            assert_eq!(object.load(std::sync::atomic::Ordering::Relaxed), i + 1);
        }
        assert!(array.get(5000).is_none() && array.get(u64::MAX).is_none());
        assert!(array.get_or_make(1 << 50, Default::default).is_none());
    }
}
