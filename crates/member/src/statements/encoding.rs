//! Executed statements as a frame's data has them.
//!
//! ```text
//! unit      session (16) . number (8) . items (number) . item*
//! item      0 . first . last                one document each
//!           1 . statement . length . bytes  with a result
//!           2 . statement                   with a result that was too large
//! ```
//! Numbers are of variable length: seven bits in each byte, the lowest first.

use crate::numbers::{put, take};
use kauri_storage::NumberedWrite;
use std::sync::Arc;

/// Statements that a unit has executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Executed {
    /// The session.
    pub session: [u8; 16],
    /// Its number for the write.
    pub number: i64,
    /// The statements.
    pub items: Vec<Item>,
}

/// One or more statements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// Each has inserted, changed or deleted one document.
    Plain {
        /// The first.
        first: i32,
        /// The last.
        last: i32,
    },
    /// One with a result; `None`: it was too large.
    Result {
        /// Its number.
        statement: i32,
        /// The result.
        result: Option<Arc<[u8]>>,
    },
}

impl Executed {
    /// The statements of a unit. Results longer than this are left out.
    pub fn of(write: &NumberedWrite, result_bytes_max: usize) -> Executed {
        let mut items: Vec<Item> = Vec::new();
        for (statement, result) in &write.statements {
            match items.last_mut() {
                Some(Item::Plain { last, .. })
                    if result.is_empty() && last.checked_add(1) == Some(*statement) =>
                {
                    *last = *statement;
                }
                _ if result.is_empty() => {
                    items.push(Item::Plain { first: *statement, last: *statement });
                }
                _ => {
                    let fits = result.len() <= result_bytes_max;
                    let result = fits.then(|| result.as_slice().into());
                    items.push(Item::Result { statement: *statement, result });
                }
            }
        }
        Executed { session: write.session, number: write.number, items }
    }

    /// Appends the bytes.
    pub fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.session);
        to.extend_from_slice(&self.number.to_le_bytes());
        put(to, self.items.len() as u64);
        for item in &self.items {
            match item {
                Item::Plain { first, last } => {
                    to.push(0);
                    put(to, u64::from(*first as u32));
                    put(to, u64::from(*last as u32));
                }
                Item::Result { statement, result } => {
                    to.push(if result.is_some() { 1 } else { 2 });
                    put(to, u64::from(*statement as u32));
                    if let Some(result) = result {
                        put(to, result.len() as u64);
                        to.extend_from_slice(result);
                    }
                }
            }
        }
    }

    /// All in these bytes; `None` if they are not whole.
    pub fn decode(mut from: &[u8]) -> Option<Vec<Executed>> {
        let mut all = Vec::new();
        while !from.is_empty() {
            let session = from.split_off(..16)?.try_into().ok()?;
            let number = i64::from_le_bytes(from.split_off(..8)?.try_into().ok()?);
            let mut items = Vec::new();
            for _ in 0..take(&mut from)? {
                items.push(item(&mut from)?);
            }
            all.push(Executed { session, number, items });
        }
        Some(all)
    }
}

fn item(from: &mut &[u8]) -> Option<Item> {
    let tag = *from.split_off_first()?;
    let statement = statement(from)?;
    Some(match tag {
        0 => Item::Plain { first: statement, last: self::statement(from)? },
        1 => {
            let len = usize::try_from(take(from)?).ok()?;
            Item::Result { statement, result: Some(from.split_off(..len)?.into()) }
        }
        2 => Item::Result { statement, result: None },
        _ => return None,
    })
}

fn statement(from: &mut &[u8]) -> Option<i32> {
    u32::try_from(take(from)?).ok().map(|number| number as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(number: i64, statements: &[(i32, &[u8])]) -> NumberedWrite {
        let statements = statements.iter().map(|(n, bytes)| (*n, bytes.to_vec())).collect();
        NumberedWrite { session: [7; 16], number, statements }
    }

    #[test]
    fn statements_are_read_back_and_nothing_shorter_is() {
        let large = [9; 300];
        let writes = [
            write(1, &[(0, b""), (1, b""), (2, b""), (5, b"r"), (6, b""), (8, b"")]),
            write(-1, &[(i32::MAX, b""), (-3, &large)]),
            write(i64::MAX, &[]),
        ];
        let all: Vec<Executed> = writes.iter().map(|write| Executed::of(write, 299)).collect();
        let items = |n: usize| &all[n].items[..];
        assert_eq!(items(0)[0], Item::Plain { first: 0, last: 2 });
        assert_eq!(items(0).len(), 4);
        assert_eq!(items(1)[1], Item::Result { statement: -3, result: None }, "too large");
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for executed in &all {
            executed.encode(&mut bytes);
            ends.push(bytes.len());
        }
        assert_eq!(Executed::decode(&bytes), Some(all));
        for len in (0..bytes.len()).filter(|len| !ends.contains(len)) {
            assert_eq!(Executed::decode(&bytes[..len]), None, "{len}");
        }
    }

    #[test]
    fn a_batch_of_inserts_is_one_range() {
        let statements = (0..100_000).map(|n| (n, Vec::new())).collect();
        let write = NumberedWrite { session: [7; 16], number: 1, statements };
        let mut bytes = Vec::new();
        Executed::of(&write, 0).encode(&mut bytes);
        assert!(bytes.len() < 40, "{}", bytes.len());
    }
}
