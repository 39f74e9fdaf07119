//! The bytes of an emulated file: copy-on-write pages, so that thousands of crash images of one file cost little.

use std::sync::{Arc, OnceLock};

/// Bytes of a page of the emulator's own memory; nothing to do with what tears.
pub(super) const PAGE_BYTES: usize = 4096;

pub(super) struct Page {
    bytes: [u8; PAGE_BYTES],
    hash: OnceLock<u64>,
}

impl Page {
    fn zeros() -> Self {
        Page { bytes: [0; PAGE_BYTES], hash: OnceLock::new() }
    }

    /// 0 for a page of zeros.
    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| {
            if self.bytes.iter().all(|byte| *byte == 0) { 0 } else { hash_bytes(&self.bytes) }
        })
    }
}

impl Clone for Page {
    /// For writing to: the hash is not taken along.
    fn clone(&self) -> Self {
        Page { bytes: self.bytes, hash: OnceLock::new() }
    }
}

/// A file's bytes. Unwritten bytes are zeros.
#[derive(Clone, Default)]
pub(super) struct Pages {
    pages: Vec<Option<Arc<Page>>>,
    len: u64,
}

impl Pages {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Cuts the file off, or adds zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let within = (len % PAGE_BYTES as u64) as usize;
            if within > 0 {
                self.write(len, &[0; PAGE_BYTES][within..]);
            }
        }
        self.pages.resize((len as usize).div_ceil(PAGE_BYTES), None);
        self.len = len;
    }

    /// Overwrites bytes; those beyond the last page are dropped.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, part) in parts(offset, bytes.len()) {
            let Some(slot) = self.pages.get_mut(page) else { return };
            let page = Arc::make_mut(slot.get_or_insert_with(|| Arc::new(Page::zeros())));
            page.hash = OnceLock::new();
            page.bytes[within..within + part.len()].copy_from_slice(&bytes[part]);
        }
    }

    /// Copies bytes out; zeros beyond the end.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        for (page, within, part) in parts(offset, into.len()) {
            let into = &mut into[part];
            match self.pages.get(page).and_then(Option::as_ref) {
                Some(page) => into.copy_from_slice(&page.bytes[within..within + into.len()]),
                None => into.fill(0),
            }
        }
    }

    /// Whether these bytes are there.
    pub(super) fn holds(&self, offset: u64, bytes: &[u8]) -> bool {
        parts(offset, bytes.len()).all(|(page, within, part)| {
            let bytes = &bytes[part];
            match self.pages.get(page).and_then(Option::as_ref) {
                Some(page) => page.bytes[within..within + bytes.len()] == *bytes,
                None => bytes.iter().all(|byte| *byte == 0),
            }
        })
    }

    /// Calls `visit` with the offset and bytes of every page that was written to, cut off at the end.
    pub(super) fn for_each_page(&self, mut visit: impl FnMut(u64, &[u8])) {
        for (number, page) in self.pages.iter().enumerate() {
            let offset = (number * PAGE_BYTES) as u64;
            let len = self.len.saturating_sub(offset).min(PAGE_BYTES as u64) as usize;
            if let Some(bytes) = page.as_ref().and_then(|page| page.bytes.get(..len)) {
                visit(offset, bytes);
            }
        }
    }

    /// All bytes.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes);
        bytes
    }

    /// Lays whole pages of `source`, over and over, from `offset` (rounded up to a page) to the end.
    pub(super) fn fill_with(&mut self, offset: u64, source: &Pages) {
        if source.pages.is_empty() {
            return;
        }
        let first = (offset as usize).div_ceil(PAGE_BYTES);
        for (slot, page) in self.pages.iter_mut().skip(first).zip(source.pages.iter().cycle()) {
            slot.clone_from(page);
        }
    }

    /// Equal for equal bytes and length; different for nearly all others.
    pub(super) fn hash(&self) -> u64 {
        let hashes = self.pages.iter().enumerate().map(|(index, page)| {
            let hash = page.as_ref().map_or(0, |page| page.hash());
            if hash == 0 { 0 } else { mix(hash ^ mix(index as u64 + 1)) }
        });
        mix(self.len ^ hashes.fold(0u64, u64::wrapping_add))
    }
}

/// The pages of a range of bytes: page, offset within it, and which of the bytes.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset as usize + done;
        let within = at % PAGE_BYTES;
        let part = done..(done + PAGE_BYTES - within).min(len);
        done = part.end;
        (!part.is_empty()).then_some((at / PAGE_BYTES, within, part))
    })
}

/// Scrambles a word (SplitMix64's finish).
pub(super) fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_copies_are_independent() {
        let mut pages = Pages::default();
        pages.set_len(10_000);
        pages.write(4000, &[1; 200]);
        let copy = pages.clone();
        pages.write(4100, &[2; 5]);
        let mut into = [9; 6];
        pages.read(4099, &mut into);
        assert_eq!(into, [1, 2, 2, 2, 2, 2]);
        assert!(pages.holds(4099, &into) && pages.holds(4200, &[0; 9000]));
        assert!(!pages.holds(4098, &into));
        copy.read(4195, &mut into);
        assert_eq!(into, [1, 1, 1, 1, 1, 0]);
        assert_ne!(pages.hash(), copy.hash());
        pages.write(4100, &[1; 5]);
        assert_eq!(pages.hash(), copy.hash());
    }

    #[test]
    fn what_is_cut_off_comes_back_as_zeros() {
        let mut pages = Pages::default();
        pages.set_len(9000);
        pages.write(0, &[7; 9000]);
        pages.set_len(5000);
        pages.set_len(9000);
        let bytes = pages.to_vec();
        assert!(bytes[..5000].iter().all(|byte| *byte == 7));
        assert!(bytes[5000..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn zeros_that_were_written_are_as_zeros_that_were_not() {
        let (mut written, mut unwritten) = (Pages::default(), Pages::default());
        written.set_len(8192);
        unwritten.set_len(8192);
        written.write(100, &[0; 5000]);
        assert_eq!(written.hash(), unwritten.hash());
    }
}
