//! The memory that frames are sent from, and which part of it unfinished requests still use.
//!
//! Positions count bytes from the session's beginning; a position modulo the size is its place. Requests complete
//! in order, so their memory is released in order.

use std::collections::VecDeque;

/// Frames begin at multiples of this: no two share a cache line.
const ALIGN: u64 = 64;

/// See the module's head.
#[derive(Debug)]
pub struct Staging {
    bytes: u64,
    /// Up to here it is taken.
    end: u64,
    /// The released position.
    free: u64,
    /// The number and the end position of each unfinished request.
    held: VecDeque<(u64, u64)>,
}

impl Staging {
    /// All free; at most this many requests hold some at once.
    pub fn new(bytes: u32, requests_max: u32) -> Self {
        let held = VecDeque::with_capacity(requests_max as usize);
        Staging { bytes: u64::from(bytes), end: 0, free: 0, held }
    }

    /// The beginning and the end of a frame of `length` bytes.
    fn place(&self, length: u32) -> Option<(u64, u64)> {
        let at = self.end % self.bytes;
        let start = match at + u64::from(length) <= self.bytes {
            true => self.end,
            false => self.end + (self.bytes - at),
        };
        let end = (start + u64::from(length)).next_multiple_of(ALIGN);
        (end - self.free <= self.bytes).then_some((start, end))
    }

    /// Whether there is room for a frame of this length.
    pub fn fits(&self, length: u32) -> bool {
        self.place(length).is_some()
    }

    /// Allocates a place for the request of this number; numbers grow. Returns the offset.
    pub fn take(&mut self, length: u32, request: u64) -> Option<u32> {
        let (start, end) = self.place(length)?;
        self.end = end;
        self.held.push_back((request, end));
        Some((start % self.bytes) as u32)
    }

    /// The requests up to this one have completed.
    pub fn completed(&mut self, request: u64) {
        while let Some((number, end)) = self.held.front().copied()
            && number <= request
        {
            self.free = end;
            self.held.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_given_twice_before_its_request_has_completed() {
        // Each byte's newest holder, against what is known to have completed.
        let mut staging = Staging::new(1024, 64);
        let mut holder = [0u64; 1024];
        let (mut completed, mut random) = (0, 12_345u64);
        for request in 1..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let length = (random >> 33) as u32 % 256 + 1;
            if !staging.fits(length) {
                completed = (completed + (random >> 50) % 3 + 1).min(request - 1);
                staging.completed(completed);
            }
            let Some(offset) = staging.take(length, request) else { continue };
            assert_eq!(offset % 64, 0);
            for byte in &mut holder[offset as usize..(offset + length) as usize] {
                assert!(*byte <= completed, "request {request} overwrites {byte}");
                *byte = request;
            }
        }
    }

    #[test]
    fn all_of_it_can_be_used() {
        let mut staging = Staging::new(1024, 64);
        for request in 1..=16 {
            assert_eq!(staging.take(64, request), Some(64 * (request as u32 - 1)));
        }
        assert!(!staging.fits(1));
        staging.completed(2);
        assert!(staging.fits(128) && !staging.fits(129));
        staging.completed(16);
        assert_eq!(staging.take(1024, 17), Some(0));
    }
}
