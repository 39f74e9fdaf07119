//! [`Buffer`]: reusable memory for bytes that are read at once.

/// Alignment of offsets, lengths and addresses of reads that bypass the kernel's cache.
pub const DIRECT_ALIGN: usize = 4096;

/// Bytes that begin at a multiple of [`DIRECT_ALIGN`]. Memory is taken when more is needed than ever
/// before, and kept.
#[derive(Default)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Room for `len` bytes, with whatever was in it.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        if self.memory.len() < self.start + len {
            let memory = vec![0; len + DIRECT_ALIGN];
            self.start = memory.as_ptr().align_offset(DIRECT_ALIGN).min(DIRECT_ALIGN);
            self.memory = memory;
        }
        self.len = len;
        &mut self.memory[self.start..self.start + len]
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the bytes; the memory stays.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_keep_their_memory() {
        let mut buffer = Buffer::default();
        assert!(buffer.is_empty() && buffer.bytes().is_empty());
        let mut place = std::ptr::null();
        for (len, same) in [(100, false), (8192, false), (5, true), (0, true), (8192, true)] {
            let room = buffer.room(len);
            assert_eq!(room.as_ptr().align_offset(DIRECT_ALIGN), 0);
            room.fill(7);
            assert!(!same || room.as_ptr() == place);
            place = room.as_ptr();
            assert_eq!((buffer.len(), buffer.bytes()), (len, &vec![7; len][..]));
        }
        buffer.clear();
        assert!(buffer.is_empty());
    }
}
