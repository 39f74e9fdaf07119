//! Keys of index tables: an index key and a record id as bytes that compare like the pair.
//!
//! A zero byte of the key becomes `00 FF`; `00 01` ends it; the id follows, big-endian. So no key is a prefix of
//! another one, whatever its bytes. In a unique index the key is stored without the id, and the id precedes the
//! type bits in the value, so that two writers of one key conflict on one item. (An entry that is exempt from
//! uniqueness is written with its id, as in any other index.)

use kauri_base::RecordId;

const END: [u8; 2] = [0, 1];
const ID_BYTES: usize = 8;

/// Appends the key without its end: the start of a range that begins with the key.
pub fn bound(out: &mut Vec<u8>, key: &[u8]) {
    let mut rest = key;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(0xFF);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
}

/// The key alone.
pub fn alone(out: &mut Vec<u8>, key: &[u8]) {
    out.clear();
    bound(out, key);
    out.extend_from_slice(&END);
}

/// The key with an id.
pub fn with_id(out: &mut Vec<u8>, key: &[u8], id: RecordId) {
    alone(out, key);
    out.extend_from_slice(&id.0.to_be_bytes());
}

/// The value of a key that stands alone.
pub fn value(out: &mut Vec<u8>, id: RecordId, type_bits: &[u8]) {
    out.clear();
    out.extend_from_slice(&id.0.to_be_bytes());
    out.extend_from_slice(type_bits);
}

/// An item taken apart: the id, the type bits, and whether the key stands alone. The key itself goes
/// to `key`. `None`: not an item of an index table.
pub fn decode<'a>(
    item: (&[u8], &'a [u8]),
    key: &mut Vec<u8>,
) -> Option<(RecordId, &'a [u8], bool)> {
    let (mut rest, value) = item;
    key.clear();
    loop {
        let zero = rest.iter().position(|byte| *byte == 0)?;
        key.extend_from_slice(rest.get(..zero)?);
        let mark = *rest.get(zero + 1)?;
        rest = rest.get(zero + 2..)?;
        match mark {
            0xFF => key.push(0),
            1 => break,
            _ => return None,
        }
    }
    match rest.len() {
        0 => {
            let (id, type_bits) = value.split_first_chunk::<ID_BYTES>()?;
            Some((RecordId(u64::from_be_bytes(*id)), type_bits, true))
        }
        ID_BYTES => {
            let id = rest.first_chunk::<ID_BYTES>()?;
            Some((RecordId(u64::from_be_bytes(*id)), value, false))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_compare_as_pairs_do() {
        let parts: &[&[u8]] = &[b"", b"\0", b"\0\0", b"\0\x01", b"\0\xFF", b"\x01", b"a", b"a\0"];
        let more: &[&[u8]] = &[b"a\0b", b"ab", b"\xFF", b"\xFF\xFF\0"];
        let keys: Vec<_> = parts.iter().chain(more).collect();
        let ids = [RecordId(0), RecordId(1), RecordId(0x0100), RecordId(u64::MAX)];
        let mut all = Vec::new();
        for key in keys {
            for id in ids {
                let mut item = Vec::new();
                with_id(&mut item, key, id);
                all.push((key.to_vec(), id, item));
            }
        }
        for (key, id, item) in &all {
            let mut decoded = vec![9];
            assert_eq!(decode((item, b"bits"), &mut decoded), Some((*id, &b"bits"[..], false)));
            assert_eq!(&decoded, key);
            let mut low = Vec::new();
            bound(&mut low, key);
            for (other, other_id, other_item) in &all {
                assert_eq!((key, id).cmp(&(other, other_id)), item.cmp(other_item));
                assert_eq!(key > other, low > *other_item, "{key:?} as a bound for {other:?}");
            }
        }
    }

    #[test]
    fn a_key_alone_has_its_id_in_the_value() {
        let (mut item, mut bits, mut key) = (Vec::new(), Vec::new(), Vec::new());
        alone(&mut item, b"k\0");
        value(&mut bits, RecordId(7), b"tb");
        assert_eq!(decode((&item, &bits), &mut key), Some((RecordId(7), &b"tb"[..], true)));
        assert_eq!(key, b"k\0");
    }

    #[test]
    fn foreign_bytes_are_no_item() {
        let mut key = Vec::new();
        for item in [&b""[..], b"abc", b"\0", b"\0\x02", b"\0\x01short", b"a\0\x01123456789"] {
            assert_eq!(decode((item, b"12345678"), &mut key), None, "{item:?}");
        }
        assert_eq!(decode((b"a\0\x01", b"1234567"), &mut key), None, "a value without an id");
    }
}
