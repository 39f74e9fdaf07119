//! A cell: the bytes of one entry in a node's heap.
//!
//! ```text
//! control   1 B   form in the upper five bits, width code of the record id in the lower three
//! extra           form 0..=26: none; the form is the suffix's length, there is no payload
//!                 form 27: suffix length (1 B); the payload has one byte
//!                 form 28: suffix length (2 B), payload length (2 B)
//!                 form 29: place in the overflow store (4 B); key and payload are there
//! record          little endian, in as many bytes as the width code says
//! rest            the suffix without its head, which is in the slot
//! payload
//! ```
//!
//! A suffix is the entry's key without the prefix that all keys of the node share. The head is the first four bytes
//! of the suffix in a leaf, the first eight in an inner node: inner nodes are few, so wide heads cost little, and
//! they distinguish bounds with a common beginning. The payload is the type bits in a leaf, the child's number in
//! an inner node.

use std::cmp::Ordering;

/// Bytes of a suffix that the slot of a leaf holds.
pub(super) const LEAF_HEAD: usize = 4;
/// Bytes of a suffix that the slot of an inner node holds.
pub(super) const INNER_HEAD: usize = 8;
/// Longest key with payload that is kept in a node.
pub(super) const INLINE_MAX: usize = 640;

const FORM_DIRECT_MAX: usize = 26;
const FORM_ONE: u8 = 27;
const FORM_LONG: u8 = 28;
const FORM_OVERFLOW: u8 = 29;

/// Bytes of a record id for each width code.
const WIDTHS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 8];
/// The bits of a record id for each width code.
const MASKS: [u64; 8] = {
    let mut masks = [u64::MAX; 8];
    let mut code = 0;
    while code < 7 {
        masks[code] = (1 << (WIDTHS[code] * 8)) - 1;
        code += 1;
    }
    masks
};

/// The first eight bytes as a number of the same order, padded with zeros. Written by hand, because a call of
/// memcmp or memcpy costs more than the rest of a search.
#[inline]
fn start_8(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let Some(start) = bytes.first_chunk() {
        return u64::from_be_bytes(*start);
    }
    if let (Some(start), Some(end)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let start = u64::from(u32::from_be_bytes(*start)) << 32;
        let end = u64::from(u32::from_be_bytes(*end)) << (8 * (8 - len));
        return start | end;
    }
    bytes.iter().enumerate().fold(0, |n, (i, byte)| n | u64::from(*byte) << (56 - 8 * i))
}

/// The first sixteen bytes as a number of the same order, padded with zeros.
#[inline]
pub(super) fn start_16(bytes: &[u8]) -> u128 {
    match bytes.first_chunk() {
        Some(start) => u128::from_be_bytes(*start),
        None => {
            let behind = bytes.get(8..).unwrap_or(&[]);
            u128::from(start_8(bytes)) << 64 | u128::from(start_8(behind))
        }
    }
}

/// As `a.cmp(b)`, fast for short ones.
#[inline]
fn compare_bytes(a: &[u8], b: &[u8]) -> Ordering {
    if a.len() <= 8 && b.len() <= 8 {
        return start_8(a).cmp(&start_8(b)).then(a.len().cmp(&b.len()));
    }
    a.cmp(b)
}

/// The first `head_len` bytes of a suffix as a number of the same order, padded with zeros.
#[inline]
pub(super) fn head_of(suffix: &[u8], head_len: usize) -> u64 {
    start_8(suffix) >> (64 - 8 * head_len)
}

/// The suffix without its head.
#[inline]
pub(super) fn rest_of(suffix: &[u8], head_len: usize) -> &[u8] {
    suffix.get(head_len..).unwrap_or(&[])
}

/// Compares two suffixes with equal heads.
#[inline]
pub(super) fn compare_behind_head(
    (len_a, rest_a): (usize, &[u8]),
    (len_b, rest_b): (usize, &[u8]),
    head_len: usize,
) -> Ordering {
    // With equal heads a suffix that ends within its head is a prefix of the other one.
    len_a.min(head_len).cmp(&len_b.min(head_len)).then_with(|| compare_bytes(rest_a, rest_b))
}

/// A decoded cell.
#[derive(Clone, Copy)]
pub(super) enum Cell<'n> {
    /// An entry that is whole in its node.
    Inline {
        /// Bytes of the suffix, head included.
        suffix_len: usize,
        /// The suffix behind its head.
        rest: &'n [u8],
        /// The record.
        record: u64,
        /// The payload.
        payload: &'n [u8],
    },
    /// An entry whose key and payload are in the overflow store.
    Overflow {
        /// Where.
        place: u32,
        /// The record.
        record: u64,
    },
}

fn width_code(record: u64) -> usize {
    let bytes = (u64::BITS - record.leading_zeros()).div_ceil(8) as usize;
    if bytes > 6 { 7 } else { bytes }
}

fn form(suffix_len: usize, payload_len: usize) -> u8 {
    match payload_len {
        0 if suffix_len <= FORM_DIRECT_MAX => suffix_len as u8,
        1 if suffix_len <= u8::MAX as usize => FORM_ONE,
        _ => FORM_LONG,
    }
}

#[inline]
fn extra_len(form: u8) -> usize {
    match form {
        FORM_ONE => 1,
        FORM_LONG | FORM_OVERFLOW => 4,
        _ => 0,
    }
}

/// Bytes of the cell of an inline entry.
pub(super) fn inline_len(
    suffix_len: usize,
    head_len: usize,
    record: u64,
    payload_len: usize,
) -> usize {
    1 + extra_len(form(suffix_len, payload_len))
        + WIDTHS[width_code(record)]
        + suffix_len.saturating_sub(head_len)
        + payload_len
}

/// Bytes of the cell of an overflow entry.
pub(super) fn overflow_len(record: u64) -> usize {
    1 + extra_len(FORM_OVERFLOW) + WIDTHS[width_code(record)]
}

/// Writes an inline entry's cell at the start of `out`.
pub(super) fn write_inline(
    out: &mut [u8],
    suffix: &[u8],
    head_len: usize,
    record: u64,
    payload: &[u8],
) {
    let form = form(suffix.len(), payload.len());
    let mut writer = Writer { out, at: 0 };
    writer.put(&[form << 3 | width_code(record) as u8]);
    match form {
        FORM_ONE => writer.put(&[suffix.len() as u8]),
        FORM_LONG => {
            writer.put(&(suffix.len() as u16).to_le_bytes());
            writer.put(&(payload.len() as u16).to_le_bytes());
        }
        _ => {}
    }
    writer.put(&record.to_le_bytes()[..WIDTHS[width_code(record)]]);
    writer.put(rest_of(suffix, head_len));
    writer.put(payload);
}

/// Writes an overflow entry's cell at the start of `out`.
pub(super) fn write_overflow(out: &mut [u8], place: u32, record: u64) {
    let mut writer = Writer { out, at: 0 };
    writer.put(&[FORM_OVERFLOW << 3 | width_code(record) as u8]);
    writer.put(&place.to_le_bytes());
    writer.put(&record.to_le_bytes()[..WIDTHS[width_code(record)]]);
}

struct Writer<'o> {
    out: &'o mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

/// Reads the cell at the start of these bytes.
#[inline]
pub(super) fn read(bytes: &[u8], head_len: usize) -> Cell<'_> {
    let (form, code) = (bytes[0] >> 3, usize::from(bytes[0] & 7));
    let payload_len = match form {
        FORM_ONE => 1,
        FORM_LONG => u16_at(bytes, 3),
        _ => 0,
    };
    let at = 1 + extra_len(form);
    let record = number(&bytes[at..], code);
    if form == FORM_OVERFLOW {
        let place = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        return Cell::Overflow { place, record };
    }
    let suffix_len = suffix_len(bytes, form);
    let rest_start = at + WIDTHS[code];
    let rest_end = rest_start + suffix_len.saturating_sub(head_len);
    Cell::Inline {
        suffix_len,
        rest: &bytes[rest_start..rest_end],
        record,
        payload: &bytes[rest_end..rest_end + payload_len],
    }
}

/// The number of this width code at the start of these bytes.
#[inline]
fn number(bytes: &[u8], code: usize) -> u64 {
    match bytes.first_chunk() {
        Some(eight) => u64::from_le_bytes(*eight) & MASKS[code],
        // Near the end of the page there may be fewer than eight bytes.
        None => bytes[..WIDTHS[code]].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)),
    }
}

/// Bytes of the cell at the start of these bytes.
pub(super) fn len(bytes: &[u8], head_len: usize) -> usize {
    match read(bytes, head_len) {
        Cell::Inline { suffix_len, record, payload, .. } => {
            inline_len(suffix_len, head_len, record, payload.len())
        }
        Cell::Overflow { record, .. } => overflow_len(record),
    }
}

/// Bytes of the suffix of the inline cell of this form at the start of these bytes.
#[inline]
fn suffix_len(bytes: &[u8], form: u8) -> usize {
    match form {
        FORM_ONE => usize::from(bytes[1]),
        FORM_LONG => u16_at(bytes, 1),
        direct => usize::from(direct),
    }
}

/// The offset of the payload of the cell at the start of these bytes, if it is inline.
#[inline]
pub(super) fn payload_start(bytes: &[u8], head_len: usize) -> Option<usize> {
    let (form, code) = (bytes[0] >> 3, usize::from(bytes[0] & 7));
    let rest_len = suffix_len(bytes, form).saturating_sub(head_len);
    (form != FORM_OVERFLOW).then(|| 1 + extra_len(form) + WIDTHS[code] + rest_len)
}

/// The record of a cell whose head is this suffix's, if the form has the suffix's length and it is this one. That
/// is the common case, and faster than reading the whole cell.
#[inline]
pub(super) fn record_of_direct(bytes: &[u8], suffix: &[u8], head_len: usize) -> Option<u64> {
    let (form, code) = (usize::from(bytes[0] >> 3), usize::from(bytes[0] & 7));
    if form != suffix.len() || form > FORM_DIRECT_MAX {
        return None;
    }
    let (record, rest) = (&bytes[1..], rest_of(suffix, head_len));
    let found = &record[WIDTHS[code]..][..rest.len()];
    compare_bytes(found, rest).is_eq().then(|| number(record, code))
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come_back(suffix_len: usize, payload_len: usize, record: u64, head_len: usize) {
        let mut out = [0; 2000];
        let suffix: Vec<u8> = (0..suffix_len).map(|i| i as u8).collect();
        let payload = vec![9; payload_len];
        write_inline(&mut out, &suffix, head_len, record, &payload);
        let bytes = len(&out, head_len);
        assert_eq!(bytes, inline_len(suffix_len, head_len, record, payload_len));
        assert_eq!(payload_start(&out, head_len), Some(bytes - payload_len));
        let direct = payload_len == 0 && suffix_len <= FORM_DIRECT_MAX;
        assert_eq!(record_of_direct(&out, &suffix, head_len), direct.then_some(record));
        let mut other = suffix.clone();
        if let Some(last) = other.get_mut(head_len..).and_then(<[u8]>::last_mut) {
            *last ^= 1;
            assert_eq!(record_of_direct(&out, &other, head_len), None);
        }
        other.push(0);
        assert_eq!(record_of_direct(&out, &other, head_len), None);
        // Also at the very end of a page.
        for out in [&out[..], &out[..bytes]] {
            match read(out, head_len) {
                Cell::Inline { suffix_len: found, rest, record: r, payload: p } => {
                    assert_eq!((found, rest), (suffix_len, rest_of(&suffix, head_len)));
                    assert_eq!((r, p), (record, payload.as_slice()));
                }
                Cell::Overflow { .. } => panic!("read as overflow"),
            }
        }
        write_overflow(&mut out, 77, record);
        let out = &out[..overflow_len(record)];
        assert_eq!((len(out, head_len), payload_start(out, head_len)), (out.len(), None));
        assert_eq!(record_of_direct(out, &suffix, head_len), None);
        let read = read(out, head_len);
        assert!(matches!(read, Cell::Overflow { place: 77, record: r } if r == record));
    }

    #[test]
    fn cells_come_back() {
        for suffix_len in [0, 1, 3, 4, 5, 7, 8, 9, 26, 27, 255, 256, 600] {
            for payload_len in [0, 1, 2, 40] {
                for record in [0, 1, 255, 256, 1 << 24, 1 << 40, 1 << 48, u64::MAX] {
                    come_back(suffix_len, payload_len, record, LEAF_HEAD);
                    come_back(suffix_len, payload_len, record, INNER_HEAD);
                }
            }
        }
    }

    #[test]
    fn short_comparisons_are_comparisons() {
        let mut all: Vec<Vec<u8>> = vec![vec![]];
        for length in 1..18_usize {
            for at in 0..length {
                for byte in [0, 1, 0x80, 0xff] {
                    let mut bytes: Vec<u8> = (1..=length as u8).collect();
                    bytes[at] = byte;
                    all.push(bytes);
                }
            }
        }
        for a in &all {
            let mut padded = a.clone();
            padded.resize(20, 0);
            assert_eq!(start_8(a).to_be_bytes(), padded[..8], "{a:?}");
            assert_eq!(start_16(a).to_be_bytes(), padded[..16], "{a:?}");
            for b in &all {
                assert_eq!(compare_bytes(a, b), a.cmp(b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn heads_and_rests_order_as_the_suffixes_do() {
        let mut suffixes: Vec<Vec<u8>> = vec![vec![]];
        for a in [0, 1, 255] {
            for length in 1..11 {
                suffixes.push(vec![a; length]);
                suffixes.push([vec![0; length], vec![a]].concat());
                suffixes.push([vec![a; length], vec![0, 0]].concat());
            }
        }
        for head_len in [LEAF_HEAD, INNER_HEAD] {
            let (head, rest) = (|s| head_of(s, head_len), |s| rest_of(s, head_len));
            for a in &suffixes {
                for b in &suffixes {
                    let behind =
                        || compare_behind_head((a.len(), rest(a)), (b.len(), rest(b)), head_len);
                    let order = head(a).cmp(&head(b)).then_with(behind);
                    assert_eq!(order, a.cmp(b), "{a:?} {b:?}");
                }
            }
        }
    }
}
