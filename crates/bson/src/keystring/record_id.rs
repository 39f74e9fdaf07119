//! Record ids after keys: two to nine bytes that order like the numbers and can be found from the end.
//!
//! Of `n` bytes the first three bits and the last three bits are `n - 2`; the `8n - 6` bits between them are the
//! number.

use kauri_base::RecordId;

const BYTES_MIN: usize = 2;
const BYTES_MAX: usize = 9;

/// Appends a record id to a key.
pub fn append_record_id(out: &mut Vec<u8>, id: RecordId) {
    let bits = 64 - id.0.leading_zeros() as usize;
    let extra = (bits + 6).div_ceil(8).max(BYTES_MIN) - BYTES_MIN;
    let length = extra + BYTES_MIN;
    let framed = u128::from(id.0) << 3 | (extra as u128) << (8 * length - 3) | extra as u128;
    out.extend_from_slice(&framed.to_be_bytes()[16 - length..]);
}

/// The record id at the end of these bytes.
pub fn decode_record_id_at_end(bytes: &[u8]) -> Option<RecordId> {
    let (_, suffix) = split(bytes)?;
    let framed = suffix.iter().fold(0u128, |n, byte| n << 8 | u128::from(*byte));
    let number = framed >> 3 & ((1 << (8 * suffix.len() - 6)) - 1);
    u64::try_from(number).ok().map(RecordId)
}

/// The key before the record id at the end of these bytes.
pub fn strip_record_id(bytes: &[u8]) -> Option<&[u8]> {
    split(bytes).map(|(key, _)| key)
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(bytes.last()? & 7) + BYTES_MIN;
    debug_assert!(length <= BYTES_MAX);
    let (key, suffix) = bytes.split_at_checked(bytes.len().checked_sub(length)?)?;
    (usize::from(suffix.first()? >> 5) + BYTES_MIN == length).then_some((key, suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_and_stay_in_order() {
        let mut ids: Vec<u64> =
            (0..64).flat_map(|b| [1u64 << b, (1u64 << b) - 1, (1u64 << b) + 1]).collect();
        ids.extend([0, 1000, u64::MAX, u64::MAX - 1]);
        ids.sort_unstable();
        ids.dedup();
        let mut previous = Vec::new();
        for id in ids {
            let mut suffix = Vec::new();
            append_record_id(&mut suffix, RecordId(id));
            assert!(previous < suffix, "{id}");
            assert!(suffix.len() <= BYTES_MAX);
            let mut bytes = b"key".to_vec();
            bytes.extend_from_slice(&suffix);
            assert_eq!(decode_record_id_at_end(&bytes), Some(RecordId(id)));
            assert_eq!(strip_record_id(&bytes), Some(&b"key"[..]));
            previous = suffix;
        }
        assert_eq!(decode_record_id_at_end(&[]), None);
        assert_eq!(decode_record_id_at_end(&[7]), None);
        assert_eq!(decode_record_id_at_end(&[0, 7]), None);
    }
}
