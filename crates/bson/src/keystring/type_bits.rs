//! The bits that distinguish values with equal key bytes.
//!
//! A sequence of small codes in the order of the values. Zero is the most common code, and trailing zeros are left
//! out, so most keys have no type bits.

/// Collects the codes of one key.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TypeBits {
    bytes: Vec<u8>,
    count: usize,
}

impl TypeBits {
    /// No codes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all codes.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// The codes packed, without the zeros at the end.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a code of this many bits.
    #[inline]
    pub(crate) fn push(&mut self, code: u32, width: usize) {
        if code != 0 {
            self.set(code, width);
        }
        self.count += width;
    }

    fn set(&mut self, code: u32, width: usize) {
        for offset in 0..width {
            if code >> offset & 1 == 1 {
                let position = self.count + offset;
                let byte = position / 8;
                if self.bytes.len() <= byte {
                    self.bytes.resize(byte + 1, 0);
                }
                self.bytes[byte] |= 1 << (position % 8);
            }
        }
    }
}

/// Reads codes back; behind the end there are zeros.
pub(crate) struct TypeBitsReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> TypeBitsReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        TypeBitsReader { bytes, at: 0 }
    }

    pub(crate) fn read(&mut self, width: usize) -> u32 {
        let code = (0..width).fold(0, |code, offset| {
            let position = self.at + offset;
            let byte = self.bytes.get(position / 8).copied().unwrap_or(0);
            code | u32::from(byte >> (position % 8) & 1) << offset
        });
        self.at += width;
        code
    }
}
