//! The frame record's payload. The record's header has the frame's index as record id, its term as collection, and
//! its commit sequence, so that a summary shows them.

use super::{get_u32, get_u64, put_u32, put_u64};

const FIXED_BYTES: usize = 32;

/// Most bytes of a caller's data: a frame is read and sent as a whole.
pub const FRAME_DATA_BYTES_MAX: usize = 16 << 20;

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FramePayload {
    /// The commit of its first unit; the frame's own if it has none.
    pub first: u64,
    /// The time of its first unit.
    pub time: u64,
    /// Bytes of its units' records in the log.
    pub bytes: u64,
    /// Number of these records.
    pub records: u32,
    /// The caller's bytes.
    pub data: Vec<u8>,
}

impl FramePayload {
    /// Bytes of a payload with this many of the caller's.
    pub fn len(data: &[u8]) -> u32 {
        (FIXED_BYTES + data.len()) as u32
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_BYTES];
        put_u64(&mut bytes, 0, self.first);
        put_u64(&mut bytes, 8, self.time);
        put_u64(&mut bytes, 16, self.bytes);
        put_u32(&mut bytes, 24, self.records);
        bytes.extend_from_slice(&self.data);
        bytes
    }

    /// From a payload whose CRC is right.
    pub fn decode(bytes: &[u8]) -> Option<FramePayload> {
        Some(FramePayload {
            data: bytes.get(FIXED_BYTES..)?.to_vec(),
            first: get_u64(bytes, 0),
            time: get_u64(bytes, 8),
            bytes: get_u64(bytes, 16),
            records: get_u32(bytes, 24),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_read_back_and_short_ones_are_refused() {
        let payload =
            FramePayload { first: 7, time: 1 << 40, bytes: 9000, records: 3, data: vec![1, 2, 3] };
        let bytes = payload.encode();
        assert_eq!(bytes.len() as u32, FramePayload::len(&payload.data));
        assert_eq!(FramePayload::decode(&bytes), Some(payload));
        for length in 0..FIXED_BYTES {
            assert_eq!(FramePayload::decode(&bytes[..length]), None);
        }
    }
}
