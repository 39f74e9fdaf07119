//! The 16-byte header of every message.

use kauri_base::limits::MESSAGE_BYTES_MAX;

/// Length of a message header.
pub const HEADER_BYTES: usize = 16;

/// The message header: four little-endian 32-bit integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Length of the whole message, including the header.
    pub length: i32,
    /// The sender's number for this message.
    pub request_id: i32,
    /// The `request_id` that this message answers.
    pub response_to: i32,
    /// The opcode.
    pub op_code: i32,
}

impl Header {
    /// The header at the start of `bytes`; none if there are less than sixteen.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Header {
            length: read_i32(bytes, 0)?,
            request_id: read_i32(bytes, 4)?,
            response_to: read_i32(bytes, 8)?,
            op_code: read_i32(bytes, 12)?,
        })
    }

    /// The header as it is sent.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let fields = [self.length, self.request_id, self.response_to, self.op_code];
        for (slot, field) in bytes.chunks_exact_mut(4).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }
}

/// The message length that `bytes` begin with; none if there are less than four.
pub fn claimed_length(bytes: &[u8]) -> Option<i32> {
    read_i32(bytes, 0)
}

/// A claimed message length as a size, if a message may have it. Otherwise MongoDB closes the
/// connection, since nothing after it can be trusted.
pub fn checked_length(claimed: i32) -> Option<usize> {
    let length = usize::try_from(claimed).ok()?;
    (HEADER_BYTES..=MESSAGE_BYTES_MAX).contains(&length).then_some(length)
}

pub(crate) fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(i32::from_le_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips_little_endian() {
        let header = Header { length: 58, request_id: -2, response_to: 7, op_code: 2013 };
        let bytes = header.to_bytes();
        assert_eq!(bytes[..4], [58, 0, 0, 0]);
        assert_eq!(bytes[12..], [0xDD, 0x07, 0, 0]);
        assert_eq!(Header::parse(&bytes), Some(header));
        assert_eq!(Header::parse(&bytes[..15]), None);
    }

    #[test]
    fn message_lengths_have_a_minimum_and_a_maximum() {
        assert_eq!(checked_length(16), Some(16));
        assert_eq!(checked_length(48_000_000), Some(48_000_000));
        for bad in [i32::MIN, -1, 0, 15, 48_000_001, i32::MAX] {
            assert_eq!(checked_length(bad), None);
        }
    }
}
