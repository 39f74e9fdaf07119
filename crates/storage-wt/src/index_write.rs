//! Index entries of a write unit, within its transaction.
//!
//! How two writers of one unique key conflict: both write the item of the key alone, one to keep it, or (if entries
//! include their ids) to insert and remove it. WiredTiger allows only one of two concurrent transactions to do
//! that. The other one is rolled back, tries again and then sees the first one's entry.

use crate::index::{entry_bytes, first_with_id};
use crate::keys;
use crate::registry::IndexState;
use crate::sys::{Code, Cursor, Session, Use};
use kauri_base::RecordId;

/// Buffers for items.
#[derive(Default)]
pub struct Scratch {
    alone: Vec<u8>,
    with_id: Vec<u8>,
    value: Vec<u8>,
}

/// The result of an addition.
pub enum Added {
    /// By how many entries and bytes the index has grown.
    Grown(i64, i64),
    /// This other record has the key.
    Duplicate(RecordId),
}

/// Why a duplicate or nothing was found where a key stands alone.
enum Alone {
    Nothing,
    Of(RecordId, i64),
}

fn look(cursor: &mut Cursor, alone: &[u8], key: &[u8]) -> Result<Alone, Code> {
    if !cursor.search(alone)? {
        return Ok(Alone::Nothing);
    }
    let value = cursor.value()?;
    // Not a value of ours: EINVAL.
    let (id, type_bits) = value.split_first_chunk().ok_or(Code(22))?;
    Ok(Alone::Of(RecordId(u64::from_be_bytes(*id)), entry_bytes(key, type_bits)))
}

/// Removes the entry, if it exists. Returns the growth of the index in entries and bytes.
pub fn remove(
    session: &mut Session,
    index: &IndexState,
    key: &[u8],
    id: RecordId,
    scratch: &mut Scratch,
) -> Result<(i64, i64), Code> {
    let cursor = session.cursor(&index.table, Use::Lookup)?;
    keys::alone(&mut scratch.alone, key);
    if index.unique {
        match look(cursor, &scratch.alone, key)? {
            Alone::Of(other, bytes) if other == id => {
                cursor.remove(&scratch.alone)?;
                return Ok((-1, -bytes));
            }
            Alone::Of(..) => return Ok((0, 0)),
            Alone::Nothing if !index.is_mixed() => return Ok((0, 0)),
            Alone::Nothing => {}
        }
    }
    keys::with_id(&mut scratch.with_id, key, id);
    if !cursor.search(&scratch.with_id)? {
        return Ok((0, 0));
    }
    let bytes = entry_bytes(key, cursor.value()?);
    cursor.remove(&scratch.with_id)?;
    Ok((-1, -bytes))
}

/// Adds an entry whose key no other record may have.
pub fn add_unique(
    session: &mut Session,
    index: &IndexState,
    (key, type_bits): (&[u8], &[u8]),
    id: RecordId,
    scratch: &mut Scratch,
) -> Result<Added, Code> {
    let cursor = session.cursor(&index.table, Use::Lookup)?;
    keys::alone(&mut scratch.alone, key);
    keys::value(&mut scratch.value, id, type_bits);
    let bytes = entry_bytes(key, type_bits);
    if index.unique && !index.is_mixed() && cursor.insert(&scratch.alone, &scratch.value)? {
        return Ok(Added::Grown(1, bytes));
    }
    if index.unique {
        match look(cursor, &scratch.alone, key)? {
            Alone::Of(other, _) if other != id => return Ok(Added::Duplicate(other)),
            Alone::Of(_, old) => {
                cursor.update(&scratch.alone, &scratch.value)?;
                return Ok(Added::Grown(0, bytes - old));
            }
            Alone::Nothing => {}
        }
    }
    if let Some(other) = first_with_id(cursor, &scratch.alone, Some(id))? {
        return Ok(Added::Duplicate(other));
    }
    guard(cursor, scratch)?;
    if index.unique {
        keys::with_id(&mut scratch.with_id, key, id);
        if !cursor.search(&scratch.with_id)? {
            cursor.insert(&scratch.alone, &scratch.value)?;
            return Ok(Added::Grown(1, bytes));
        }
    }
    put_with_id(cursor, (key, type_bits), id, scratch)
}

/// Adds an entry whose key other records may have too. A unique index has been noted as mixed.
pub fn add(
    session: &mut Session,
    index: &IndexState,
    entry: (&[u8], &[u8]),
    id: RecordId,
    scratch: &mut Scratch,
) -> Result<Added, Code> {
    if !index.unique {
        let cursor = session.cursor(&index.table, Use::Lookup)?;
        return put_with_id(cursor, entry, id, scratch);
    }
    let cursor = session.cursor(&index.table, Use::Lookup)?;
    keys::alone(&mut scratch.alone, entry.0);
    match look(cursor, &scratch.alone, entry.0)? {
        Alone::Of(other, old) if other == id => {
            keys::value(&mut scratch.value, id, entry.1);
            cursor.update(&scratch.alone, &scratch.value)?;
            return Ok(Added::Grown(0, entry_bytes(entry.0, entry.1) - old));
        }
        Alone::Of(other, _) => {
            // The other one's key gets its id too, so that they follow each other in order.
            let type_bits = cursor.value()?.get(size_of::<RecordId>()..).unwrap_or(&[]).to_vec();
            cursor.remove(&scratch.alone)?;
            keys::with_id(&mut scratch.with_id, entry.0, other);
            cursor.insert(&scratch.with_id, &type_bits)?;
        }
        Alone::Nothing => guard(cursor, scratch)?,
    }
    put_with_id(cursor, entry, id, scratch)
}

/// Writes the key alone and takes it away, see the module's head.
fn guard(cursor: &mut Cursor, scratch: &Scratch) -> Result<(), Code> {
    cursor.insert(&scratch.alone, &[])?;
    cursor.remove(&scratch.alone)?;
    Ok(())
}

fn put_with_id(
    cursor: &mut Cursor,
    (key, type_bits): (&[u8], &[u8]),
    id: RecordId,
    scratch: &mut Scratch,
) -> Result<Added, Code> {
    keys::with_id(&mut scratch.with_id, key, id);
    let bytes = entry_bytes(key, type_bits);
    if cursor.insert(&scratch.with_id, type_bits)? {
        return Ok(Added::Grown(1, bytes));
    }
    let old = match cursor.search(&scratch.with_id)? {
        true => entry_bytes(key, cursor.value()?),
        false => 0,
    };
    cursor.update(&scratch.with_id, type_bits)?;
    Ok(Added::Grown(0, bytes - old))
}
