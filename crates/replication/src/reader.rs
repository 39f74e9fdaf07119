//! Reads numbers and bytes of a message, one after the other. All numbers are little endian.

/// Bytes that are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// What is left to be read.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// So many bytes.
    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of one byte.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    /// Of two.
    pub fn short(&mut self) -> Result<u16, Malformed> {
        self.take(2)?.try_into().map(u16::from_le_bytes).map_err(|_| Malformed)
    }

    /// Of four.
    pub fn int(&mut self) -> Result<u32, Malformed> {
        self.take(4)?.try_into().map(u32::from_le_bytes).map_err(|_| Malformed)
    }

    /// Of eight.
    pub fn long(&mut self) -> Result<u64, Malformed> {
        self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| Malformed)
    }
}
