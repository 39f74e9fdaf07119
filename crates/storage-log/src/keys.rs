//! Keys of many records for an index build: collected, sorted, merged.

use kauri_base::RecordId;

/// Keys one after the other, with their type bits and records.
#[derive(Default)]
pub struct Keys {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

struct Entry {
    /// The first bytes of the key, as a number of the same order.
    head: u64,
    start: usize,
    key_len: u32,
    bits_len: u32,
    record: RecordId,
}

fn head_of(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut head = [0; 8];
            head.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(head)
        }
    }
}

impl Keys {
    /// Adds one.
    pub fn push(&mut self, key: &[u8], bits: &[u8], record: RecordId) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(bits);
        let (key_len, bits_len) = (key.len() as u32, bits.len() as u32);
        self.entries.push(Entry { head: head_of(key), start, key_len, bits_len, record });
    }

    /// Approximate size of a tree of these keys.
    pub fn tree_bytes(&self) -> u64 {
        crate::memory::tree_bytes(self.bytes.len() as u64, self.entries.len() as u64)
    }

    fn get(&self, at: usize) -> Option<(&Entry, &[u8])> {
        let entry = self.entries.get(at)?;
        Some((entry, key(&self.bytes, entry)))
    }

    fn bits(&self, entry: &Entry) -> &[u8] {
        let start = entry.start + entry.key_len as usize;
        &self.bytes[start..start + entry.bits_len as usize]
    }

    /// Puts them in the order of keys, then records.
    pub fn sort(&mut self) {
        let Keys { bytes, entries } = self;
        entries.sort_unstable_by(|a, b| {
            a.head
                .cmp(&b.head)
                .then_with(|| key(bytes, a).cmp(key(bytes, b)))
                .then(a.record.cmp(&b.record))
        });
    }
}

fn key<'k>(bytes: &'k [u8], entry: &Entry) -> &'k [u8] {
    &bytes[entry.start..entry.start + entry.key_len as usize]
}

/// Sorted runs as one, each entry once.
pub struct Merge<'k> {
    runs: Vec<(&'k Keys, usize)>,
    last: Option<(&'k [u8], RecordId)>,
}

impl<'k> Merge<'k> {
    /// Maximum number of runs that are compared one by one.
    pub fn new(runs: &'k [Keys]) -> Self {
        Merge { runs: runs.iter().map(|keys| (keys, 0)).collect(), last: None }
    }
}

impl<'k> Iterator for Merge<'k> {
    type Item = (&'k [u8], RecordId, &'k [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = self.runs.iter_mut().filter_map(|(keys, at)| {
                let keys: &'k Keys = keys;
                let (entry, key) = keys.get(*at)?;
                Some((key, entry.record, keys.bits(entry), at))
            });
            let (key, record, bits, at) = next.min_by_key(|(key, record, ..)| (*key, *record))?;
            *at += 1;
            if self.last.replace((key, record)) != Some((key, record)) {
                return Some((key, record, bits));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::RandomSource;
    use kauri_base::clock::SeededRandom;
    use std::collections::BTreeSet;

    #[test]
    fn runs_become_one_in_order_without_repetitions() {
        let random = SeededRandom::new(1);
        let (mut runs, mut expected) = (Vec::new(), BTreeSet::new());
        for _ in 0..5 {
            let mut keys = Keys::default();
            for _ in 0..300 {
                let dice = random.next_u64();
                let text = format!("{:x}", dice % 1000).repeat((dice >> 20) as usize % 4);
                let record = RecordId(dice >> 30 & 7);
                let bits = [record.0 as u8];
                keys.push(text.as_bytes(), &bits[..record.0 as usize % 2], record);
                expected.insert((text.into_bytes(), record));
            }
            keys.sort();
            runs.push(keys);
        }
        let merged: Vec<_> =
            Merge::new(&runs).map(|(key, record, _)| (key.to_vec(), record)).collect();
        assert!(merged.iter().eq(&expected));
        assert!(Merge::new(&runs).all(|(_, record, bits)| bits.len() as u64 == record.0 % 2));
        assert!(Merge::new(&[]).next().is_none());
    }
}
