//! Keys (with their payloads) that are too long for a node.

/// A store of long entries under numbers that are used again once freed.
#[derive(Default)]
pub(super) struct Overflow {
    entries: Vec<Option<Long>>,
    free: Vec<u32>,
    bytes: usize,
}

struct Long {
    /// The key, then the payload.
    bytes: Box<[u8]>,
    key_len: usize,
}

impl Overflow {
    /// Keeps a copy.
    pub(super) fn add(&mut self, key: &[u8], payload: &[u8]) -> u32 {
        let mut bytes = Vec::with_capacity(key.len() + payload.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(payload);
        self.bytes += bytes.len();
        let long = Some(Long { bytes: bytes.into_boxed_slice(), key_len: key.len() });
        match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = long;
                place
            }
            None => {
                self.entries.push(long);
                (self.entries.len() - 1) as u32
            }
        }
    }

    /// Frees the entry at this place.
    pub(super) fn remove(&mut self, place: u32) {
        if let Some(long) = self.entries.get_mut(place as usize).and_then(Option::take) {
            self.bytes -= long.bytes.len();
            self.free.push(place);
        }
    }

    fn get(&self, place: u32) -> Option<&Long> {
        self.entries.get(place as usize)?.as_ref()
    }

    pub(super) fn key(&self, place: u32) -> &[u8] {
        self.get(place).map_or(&[], |long| &long.bytes[..long.key_len])
    }

    pub(super) fn payload(&self, place: u32) -> &[u8] {
        self.get(place).map_or(&[], |long| &long.bytes[long.key_len..])
    }

    /// Entries.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
            + self.entries.capacity() * size_of::<Option<Long>>()
            + self.free.capacity() * size_of::<u32>()
    }
}
