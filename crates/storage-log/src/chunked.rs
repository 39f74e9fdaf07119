//! [`Chunked`]: an array that grows, never moves, and is read without a lock.
//!
//! Chunk *n* has 2^n elements. A small chunk is allocated as a whole when its first element is needed, a large one
//! in blocks. So a distant element costs little more than a near one.

use kauri_base::sync::OnceLock;

const CHUNKS: usize = 36;
/// Chunks below this are made whole. A block has as many places as the first that isn't.
const CHUNKS_WHOLE: usize = 15;
const BLOCK: usize = 1 << CHUNKS_WHOLE;

/// Places of the array.
pub const PLACES_MAX: u64 = (1 << CHUNKS) - 1;

type Block<T> = OnceLock<Box<[T]>>;

/// See the module's head.
pub struct Chunked<T> {
    whole: [Block<T>; CHUNKS_WHOLE],
    /// Blocks of the chunks that are allocated in blocks.
    blocks: [OnceLock<Box<[Block<T>]>>; CHUNKS - CHUNKS_WHOLE],
}

/// The position of an element: its chunk, the block there, and the index in the block.
struct Place {
    chunk: usize,
    block: usize,
    at: usize,
}

impl<T> Chunked<T> {
    /// No places.
    pub fn new() -> Self {
        Chunked {
            whole: [const { OnceLock::new() }; CHUNKS_WHOLE],
            blocks: [const { OnceLock::new() }; CHUNKS - CHUNKS_WHOLE],
        }
    }

    /// The object at this index, if its block has been made.
    #[inline]
    pub fn get(&self, index: u64) -> Option<&T> {
        let place = place(index);
        let block = match self.whole.get(place.chunk) {
            Some(block) => block,
            None => self.blocks.get(place.chunk - CHUNKS_WHOLE)?.get()?.get(place.block)?,
        };
        block.get()?.get(place.at)
    }

    /// The object at this index; `make` makes all of a new block. `None` from [`PLACES_MAX`] on.
    pub fn get_or_make(&self, index: u64, mut make: impl FnMut() -> T) -> Option<&T> {
        let place = place(index);
        let (block, len) = match self.whole.get(place.chunk) {
            Some(block) => (block, 1 << place.chunk),
            None => {
                let number = place.chunk - CHUNKS_WHOLE;
                let blocks = self.blocks.get(number)?;
                let blocks =
                    blocks.get_or_init(|| (0..1usize << number).map(|_| OnceLock::new()).collect());
                (blocks.get(place.block)?, BLOCK)
            }
        };
        block.get_or_init(|| (0..len).map(|_| make()).collect()).get(place.at)
    }

    /// The nearest index from this one on, itself included, whose block has been made; with
    /// `backward`, the nearest before. Takes no longer than there are blocks.
    pub fn nearest(&self, index: u64, backward: bool) -> Option<u64> {
        let mut index = index.min(PLACES_MAX - 1);
        loop {
            if self.get(index).is_some() {
                return Some(index);
            }
            let (first, last) = self.gap(index);
            if backward {
                index = first.checked_sub(1)?;
            } else {
                index = last + 1;
                if index >= PLACES_MAX {
                    return None;
                }
            }
        }
    }

    /// The first and the last index of the range that can be skipped around an index whose block is not allocated:
    /// the block, or the chunk if none of it is allocated.
    fn gap(&self, index: u64) -> (u64, u64) {
        let Place { chunk, block, .. } = place(index);
        let first = (1 << chunk) - 1;
        match chunk.checked_sub(CHUNKS_WHOLE).and_then(|number| self.blocks.get(number)) {
            Some(blocks) if blocks.get().is_some() => {
                let first = first + (block * BLOCK) as u64;
                (first, first + BLOCK as u64 - 1)
            }
            _ => (first, 2 * first),
        }
    }
}

#[inline]
fn place(index: u64) -> Place {
    let number = index.saturating_add(1);
    let chunk = number.ilog2();
    let place = number - (1 << chunk);
    Place {
        chunk: chunk as usize,
        block: (place >> CHUNKS_WHOLE) as usize,
        at: place as usize % BLOCK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let array = Chunked::<AtomicU64>::new();
        let last = 3 * BLOCK as u64;
        for i in 0..last {
            let object = array.get_or_make(i, Default::default).unwrap();
            object.store(i + 1, Ordering::Relaxed);
        }
        for i in 0..last {
            assert_eq!(array.get(i).unwrap().load(Ordering::Relaxed), i + 1);
        }
        assert!(array.get(last + BLOCK as u64).is_none() && array.get(u64::MAX).is_none());
        assert!(array.get_or_make(PLACES_MAX, Default::default).is_none());
        assert!(array.get_or_make(u64::MAX, Default::default).is_none());
        assert!(array.get_or_make(PLACES_MAX - 1, Default::default).is_some());
    }

    #[test]
    fn what_has_not_been_made_is_skipped() {
        let array = Chunked::<AtomicU64>::new();
        assert_eq!((array.nearest(0, false), array.nearest(u64::MAX, true)), (None, None));
        let far = 5 << 30;
        for index in [3, far, far + 2 * BLOCK as u64] {
            array.get_or_make(index, Default::default).unwrap();
        }
        assert_eq!(array.nearest(0, false), Some(3));
        assert_eq!(array.nearest(6, false), Some(6), "made with 3");
        let next = array.nearest(7, false).unwrap();
        assert!(next <= far && next + BLOCK as u64 > far, "{next}");
        assert_eq!(array.nearest(next - 1, true), Some(6));
        let third = array.nearest(next + BLOCK as u64, false).unwrap();
        assert_eq!(third, next + 2 * BLOCK as u64);
        assert_eq!(array.nearest(third - 1, true), Some(next + BLOCK as u64 - 1));
        assert_eq!(array.nearest(third + BLOCK as u64, false), None);
    }
}
