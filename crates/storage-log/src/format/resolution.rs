//! The resolution record's payload: which pending units were committed, and which were dropped.
//!
//! Each resolution record repeats all outcomes, so only the newest counts.

use super::record::Kind;
use super::summary::Entry;
use super::{get_u32, get_u64, put_u32, put_u64};
use kauri_storage::LogPosition;

const FIXED_BYTES: usize = 32;
const RANGE_BYTES: usize = 16;

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resolution {
    /// The position of the last committed unit.
    pub committed: LogPosition,
    /// Its commit sequence: pending units up to it have been committed or dropped.
    pub seq: u64,
    /// From which to which commit sequence pending units have been dropped, ascending.
    pub dropped: Vec<(u64, u64)>,
}

impl Resolution {
    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_BYTES + RANGE_BYTES * self.dropped.len()];
        put_u64(&mut bytes, 0, self.committed.term);
        put_u64(&mut bytes, 8, self.committed.index);
        put_u64(&mut bytes, 16, self.seq);
        put_u32(&mut bytes, 24, self.dropped.len() as u32);
        for (i, (first, last)) in self.dropped.iter().enumerate() {
            put_u64(&mut bytes, FIXED_BYTES + RANGE_BYTES * i, *first);
            put_u64(&mut bytes, FIXED_BYTES + RANGE_BYTES * i + 8, *last);
        }
        bytes
    }

    /// From a payload whose CRC is right.
    pub fn decode(bytes: &[u8]) -> Option<Resolution> {
        let ranges = bytes.get(FIXED_BYTES..)?.chunks_exact(RANGE_BYTES);
        let dropped: Vec<_> = ranges.map(|range| (get_u64(range, 0), get_u64(range, 8))).collect();
        let whole = bytes.len() == FIXED_BYTES + RANGE_BYTES * dropped.len()
            && get_u32(bytes, 24) as usize == dropped.len();
        whole.then_some(Resolution {
            committed: LogPosition { term: get_u64(bytes, 0), index: get_u64(bytes, 8) },
            seq: get_u64(bytes, 16),
            dropped,
        })
    }

    /// Whether a pending unit has been dropped.
    pub fn is_dropped(&self, seq: u64) -> bool {
        self.dropped.iter().any(|(first, last)| (*first..=*last).contains(&seq))
    }

    /// Whether a pending unit has been committed.
    pub fn is_committed(&self, seq: u64) -> bool {
        seq <= self.seq && !self.is_dropped(seq)
    }

    /// The committed kind of a record; `None` if it is pending, or of a dropped unit.
    pub fn settled(&self, kind: Kind, seq: u64) -> Option<Kind> {
        let settled = match kind {
            Kind::PendingPut => Kind::Put,
            Kind::PendingTombstone => Kind::Tombstone,
            Kind::PendingCommit => Kind::Commit,
            kind => return Some(kind),
        };
        self.is_committed(seq).then_some(settled)
    }

    /// Whether a record is of a unit that is still pending.
    pub fn is_pending(&self, kind: Kind, seq: u64) -> bool {
        let pending = matches!(kind, Kind::PendingPut | Kind::PendingTombstone);
        pending && seq > self.seq && !self.is_dropped(seq)
    }

    /// An entry as it counts, if it does.
    pub fn entry(&self, entry: Entry) -> Option<Entry> {
        let kind = self.settled(entry.kind, entry.seq)?;
        Some(Entry { kind, ..entry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_back_and_any_other_length_is_not() {
        let resolution = Resolution {
            committed: LogPosition { term: 3, index: 1 << 40 },
            seq: 77,
            dropped: vec![(5, 9), (70, 70)],
        };
        let bytes = resolution.encode();
        assert_eq!(Resolution::decode(&bytes), Some(resolution.clone()));
        for length in 0..bytes.len() {
            assert_eq!(Resolution::decode(&bytes[..length]), None);
        }
        assert_eq!(
            Resolution::decode(&Resolution::default().encode()),
            Some(Resolution::default())
        );
        let kinds = [4, 5, 9, 10, 70, 77, 78].map(|seq| resolution.settled(Kind::PendingPut, seq));
        let put = Some(Kind::Put);
        assert_eq!(kinds, [put, None, None, put, None, put, None]);
        assert_eq!(resolution.settled(Kind::Put, 78), put);
    }
}
