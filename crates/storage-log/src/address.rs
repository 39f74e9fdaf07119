//! The place of a record, with what commits and the cleaner need to know without reading the record.
//!
//! The 64 bits of a slot: tombstone (1), copies (9), size code (8), segment (22), offset / 8 (24). The word 0 means
//! no record, because offset 0 is a segment's header.
//!
//! *Copies* counts the puts of the record that are physically in the log: in segments in use, and in free segments
//! that have not been opened again. A tombstone must outlive them. The count saturates at its maximum; the
//! tombstone then stays until the next start counts again.

use crate::format::{RECORD_ALIGN, RECORD_HEADER_BYTES};

/// A place in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The segment.
    pub segment: u32,
    /// The offset of the record's header.
    pub offset: u32,
}

const OFFSET_BITS: u32 = 24;
const SEGMENT_BITS: u32 = 22;
const SIZE_SHIFT: u32 = OFFSET_BITS + SEGMENT_BITS;
const COPIES_SHIFT: u32 = SIZE_SHIFT + 8;
const COPIES_MAX: u64 = (1 << 9) - 1;
const TOMBSTONE: u64 = 1 << 63;
const PLACE_MASK: u64 = (1 << SIZE_SHIFT) - 1;

/// A slot's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot(pub u64);

impl Slot {
    /// Nothing there.
    pub const NONE: Slot = Slot(0);

    /// A record at this address, of this size in the log.
    #[inline]
    pub fn new(address: Address, record_bytes: u32, tombstone: bool, copies: u64) -> Slot {
        Slot(
            u64::from(address.offset / RECORD_ALIGN)
                | u64::from(address.segment) << OFFSET_BITS
                | u64::from(size_code(record_bytes)) << SIZE_SHIFT
                | copies.min(COPIES_MAX) << COPIES_SHIFT
                | if tombstone { TOMBSTONE } else { 0 },
        )
    }

    /// Whether nothing is there.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether there is a document.
    #[inline]
    pub fn is_live(self) -> bool {
        self.0 != 0 && self.0 & TOMBSTONE == 0
    }

    /// Whether there is a tombstone.
    #[inline]
    pub fn is_tombstone(self) -> bool {
        self.0 & TOMBSTONE != 0
    }

    /// The address.
    #[inline]
    pub fn address(self) -> Address {
        Address {
            segment: (self.0 >> OFFSET_BITS) as u32 & ((1 << SEGMENT_BITS) - 1),
            offset: (self.0 as u32 & ((1 << OFFSET_BITS) - 1)) * RECORD_ALIGN,
        }
    }

    /// The record's share of its segment's live bytes: its size, rounded up by at most a twelfth.
    #[inline]
    pub fn size(self) -> u64 {
        size_of_code((self.0 >> SIZE_SHIFT) as u8)
    }

    /// Puts of the record that are in the log.
    #[inline]
    pub fn copies(self) -> u64 {
        self.0 >> COPIES_SHIFT & COPIES_MAX
    }

    /// The same with another count of copies.
    fn with_copies(self, copies: u64) -> Slot {
        Slot(self.0 & !(COPIES_MAX << COPIES_SHIFT) | copies << COPIES_SHIFT)
    }

    /// The same with as many copies as another one.
    #[inline]
    pub fn with_copies_of(self, other: Slot) -> Slot {
        self.with_copies(other.copies())
    }

    /// The same with one copy more.
    #[inline]
    pub fn add_copy(self) -> Slot {
        self.with_copies((self.copies() + 1).min(COPIES_MAX))
    }

    /// The same with one copy less.
    pub fn remove_copy(self) -> Slot {
        match self.copies() {
            COPIES_MAX => self,
            copies => self.with_copies(copies.saturating_sub(1)),
        }
    }

    /// A placeholder as the document that it stands for.
    pub fn as_document(self) -> Slot {
        Slot(self.0 & !TOMBSTONE)
    }

    /// Whether both are the same record at the same place, whatever their copies.
    #[inline]
    pub fn same_place(self, other: Slot) -> bool {
        (self.0 ^ other.0) & (PLACE_MASK | TOMBSTONE) == 0
    }
}

/// Sizes as 20 powers of two above 32, in twelfths.
fn size_code(bytes: u32) -> u8 {
    let units = u64::from(bytes.max(RECORD_HEADER_BYTES));
    let exponent = (units / u64::from(RECORD_HEADER_BYTES)).ilog2();
    let base = u64::from(RECORD_HEADER_BYTES) << exponent;
    let twelfths = ((units - base) * 12).div_ceil(base);
    (u64::from(exponent) * 12 + twelfths).min(255) as u8
}

#[inline]
fn size_of_code(code: u8) -> u64 {
    let (exponent, twelfths) = (u32::from(code) / 12, u64::from(code) % 12);
    let base = u64::from(RECORD_HEADER_BYTES) << exponent;
    base + base * twelfths / 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch_each_other() {
        let address = Address { segment: (1 << 22) - 1, offset: (128 << 20) - 8 };
        let slot = Slot::new(address, 16 << 20, true, 511);
        assert_eq!(slot.address(), address);
        assert!(slot.is_tombstone() && !slot.is_live() && slot.copies() == 511);
        assert!(slot.size() >= 16 << 20);
        let slot = Slot::new(Address { segment: 0, offset: 4096 }, 32, false, 0);
        assert_eq!(slot.address(), Address { segment: 0, offset: 4096 });
        assert!(slot.is_live() && slot.copies() == 0 && slot.size() == 32);
    }

    #[test]
    fn copies_stick_at_their_maximum() {
        let mut slot = Slot::new(Address { segment: 1, offset: 4096 }, 32, false, 1);
        assert_eq!(slot.remove_copy().copies(), 0);
        assert_eq!(slot.remove_copy().remove_copy().copies(), 0);
        for _ in 0..600 {
            slot = slot.add_copy();
        }
        assert_eq!(slot.copies(), 511);
        assert_eq!(slot.remove_copy().copies(), 511);
        assert!(slot.same_place(Slot::new(Address { segment: 1, offset: 4096 }, 32, false, 1)));
    }

    #[test]
    fn sizes_are_rounded_up_by_a_twelfth_at_most() {
        for bytes in (32..70_000).chain((70_000..17_000_000).step_by(9973)) {
            let size = size_of_code(size_code(bytes));
            assert!(size + 11 >= u64::from(bytes), "{bytes} counts {size}");
            assert!(size <= u64::from(bytes) + u64::from(bytes) / 12 + 1, "{bytes} counts {size}");
        }
    }
}
