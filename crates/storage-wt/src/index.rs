//! Reads an index.

use crate::keys;
use crate::registry::IndexState;
use crate::sys::{Code, Cursor, Use};
use crate::unit::WtUnit;
use kauri_base::{Access, IndexId, RecordId};
use kauri_storage::find_by_scan;
use kauri_storage::{
    Direction, IndexBatch, IndexScan, RecoveryUnit, SortedDataInterface, StorageError,
};
use std::cmp::Ordering;
use std::sync::Arc;

/// See the module's head.
pub struct Index {
    pub state: Arc<IndexState>,
}

/// The accounted size of an entry.
pub fn entry_bytes(key: &[u8], type_bits: &[u8]) -> i64 {
    (key.len() + type_bits.len() + size_of::<RecordId>()) as i64
}

/// The first record that has this key, in a cursor's snapshot.
pub fn find(
    state: &IndexState,
    cursor: &mut Cursor,
    key: &[u8],
    item: &mut Vec<u8>,
) -> Result<Option<RecordId>, Code> {
    keys::alone(item, key);
    if state.unique && cursor.search(item)? {
        let id = cursor.value()?.first_chunk().map(|id| RecordId(u64::from_be_bytes(*id)));
        return Ok(id);
    }
    if state.unique && !state.is_mixed() {
        return Ok(None);
    }
    first_with_id(cursor, item, None)
}

/// Of the entries whose keys have ids, the first with this key (`item`: the key alone) that does not belong to the
/// record `except`. The cursor is positioned on it.
pub fn first_with_id(
    cursor: &mut Cursor,
    item: &[u8],
    except: Option<RecordId>,
) -> Result<Option<RecordId>, Code> {
    let mut more = match cursor.near(item)? {
        None => false,
        Some(Ordering::Greater) => true,
        Some(_) => cursor.next()?,
    };
    while more {
        let id = cursor.key()?.strip_prefix(item).and_then(|id| id.try_into().ok());
        match id.map(|id| RecordId(u64::from_be_bytes(id))) {
            None => return Ok(None),
            id if id != except => return Ok(id),
            Some(_) => more = cursor.next()?,
        }
    }
    Ok(None)
}

impl Index {
    /// What was read, or `Dropped` if the index is gone. Asked after reading: the table is there, whole,
    /// until the index is marked. A reader that holds a snapshot gets its own error.
    fn unless_dropped<T>(&self, read: Result<T, StorageError>) -> Result<T, StorageError> {
        let (collection, index) = (self.state.collection, Some(self.state.id));
        match self.state.is_dropped() {
            true => Err(StorageError::Dropped { collection, index }),
            false => read,
        }
    }

    /// Fills a batch with what WiredTiger shows the unit.
    fn fill_in(&self, unit: &WtUnit, scan: &mut IndexScan) -> Result<Access<()>, StorageError> {
        let walk = Walk::new(scan, self.state.unique);
        let mut outcome = Ok(());
        let mut session = unit.session()?;
        scan.refill(|batch, _| {
            outcome = session.cursor(&self.state.table, Use::Scan).and_then(|cursor| {
                let filled = walk.fill(cursor, batch);
                cursor.reset();
                filled
            });
        });
        outcome.map(Access::Ready).map_err(|code| unit.failed(code))
    }
}

impl SortedDataInterface for Index {
    fn id(&self) -> IndexId {
        self.state.id
    }

    fn find(
        &self,
        ru: &dyn RecoveryUnit,
        key: &[u8],
    ) -> Result<Access<Option<RecordId>>, StorageError> {
        let unit = WtUnit::of(ru)?;
        if unit.held().is_some() {
            return find_by_scan(self, ru, key);
        }
        let mut session = unit.session()?;
        let mut item = Vec::with_capacity(key.len() + 16);
        let found = session.cursor(&self.state.table, Use::Lookup).and_then(|cursor| {
            let found = find(&self.state, cursor, key, &mut item);
            cursor.reset();
            found
        });
        self.unless_dropped(found.map(Access::Ready).map_err(|code| unit.failed(code)))
    }

    fn fill(
        &self,
        ru: &dyn RecoveryUnit,
        scan: &mut IndexScan,
    ) -> Result<Access<()>, StorageError> {
        let unit = WtUnit::of(ru)?;
        let Some(held) = unit.held() else { return self.unless_dropped(self.fill_in(unit, scan)) };
        let inner = |scan: &mut IndexScan| self.fill_in(unit, scan);
        let filled = held.write_set.fill_index(self.state.id, scan, inner);
        unit.held_index(held, &self.state, filled)
    }

    fn entries(&self) -> Result<u64, StorageError> {
        self.unless_dropped(Ok(self.state.entries.get()))
    }

    fn bytes(&self) -> Result<u64, StorageError> {
        self.unless_dropped(Ok(self.state.bytes.get()))
    }
}

struct Walk {
    direction: Direction,
    unique: bool,
    low: Vec<u8>,
    /// The item bytes where the range ends; `None` without an upper bound.
    high_item: Option<Vec<u8>>,
    low_item: Vec<u8>,
    position: Option<(Vec<u8>, RecordId)>,
}

impl Walk {
    fn new(scan: &IndexScan, unique: bool) -> Walk {
        let (low, high) = scan.range();
        let item = |key: &[u8]| {
            let mut item = Vec::with_capacity(key.len() + 16);
            keys::bound(&mut item, key);
            item
        };
        Walk {
            direction: scan.direction(),
            unique,
            low: low.to_vec(),
            low_item: item(low),
            high_item: (!high.is_empty()).then(|| item(high)),
            position: scan.position().map(|(key, id)| (key.to_vec(), id)),
        }
    }

    fn fill(&self, cursor: &mut Cursor, batch: &mut IndexBatch<'_>) -> Result<(), Code> {
        let mut key = Vec::new();
        let mut more = self.start(cursor)?;
        while more {
            let item = cursor.item()?;
            if self.is_outside(item.0) {
                return Ok(());
            }
            // Foreign bytes: EINVAL.
            let (id, type_bits, _) = keys::decode(item, &mut key).ok_or(Code(22))?;
            if !self.is_passed(&key, id) && !batch.push(&key, type_bits, id) {
                return Ok(());
            }
            more = self.step(cursor)?;
        }
        Ok(())
    }

    fn step(&self, cursor: &mut Cursor) -> Result<bool, Code> {
        match self.direction {
            Direction::Forward => cursor.next(),
            Direction::Backward => cursor.prev(),
        }
    }

    fn is_outside(&self, item: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => self.high_item.as_ref().is_some_and(|high| item >= &high[..]),
            Direction::Backward => item < &self.low_item[..],
        }
    }

    fn is_passed(&self, key: &[u8], id: RecordId) -> bool {
        self.position.as_ref().is_some_and(|(passed, passed_id)| {
            let order = (key, id).cmp(&(passed, *passed_id));
            match self.direction {
                Direction::Forward => order != Ordering::Greater,
                Direction::Backward => order != Ordering::Less,
            }
        })
    }

    /// Goes to the first item that may belong to the rest of the walk.
    fn start(&self, cursor: &mut Cursor) -> Result<bool, Code> {
        cursor.reset();
        match self.direction {
            Direction::Forward => self.start_forward(cursor),
            Direction::Backward => {
                let mut item = Vec::new();
                match &self.position {
                    Some((key, id)) => keys::with_id(&mut item, key, *id),
                    None => match &self.high_item {
                        Some(high) => item.extend_from_slice(high),
                        None => return cursor.prev(),
                    },
                }
                match cursor.near(&item)? {
                    None => Ok(false),
                    Some(Ordering::Less) => Ok(true),
                    Some(_) => cursor.prev(),
                }
            }
        }
    }

    fn start_forward(&self, cursor: &mut Cursor) -> Result<bool, Code> {
        let mut item = Vec::new();
        let Some((key, id)) = &self.position else {
            if self.low.is_empty() {
                return cursor.next();
            }
            return at_least(cursor, &self.low_item);
        };
        if self.unique {
            // The key may stand alone now, with another record's id.
            keys::alone(&mut item, key);
            if cursor.search(&item)? {
                return Ok(true);
            }
        }
        keys::with_id(&mut item, key, *id);
        at_least(cursor, &item)
    }
}

/// Goes to the first item that is not less than this.
fn at_least(cursor: &mut Cursor, item: &[u8]) -> Result<bool, Code> {
    match cursor.near(item)? {
        None => Ok(false),
        Some(Ordering::Less) => cursor.next(),
        Some(_) => Ok(true),
    }
}
