//! Reads a record store. A record's value is its version (u64 LE) and the document.

use crate::core::Core;
use crate::registry::StoreState;
use crate::sys::{Code, Cursor, Use};
use crate::unit::{Place, WtUnit};
use kauri_base::{Access, CollectionId, CommitSeq, RecordId};
use kauri_bson::Doc;
use kauri_storage::{
    Direction, Record, RecordScan, RecordStore, RecordStoreStats, RecoveryUnit, StorageError,
};
use std::cmp::Ordering;
use std::sync::Arc;

/// A scan copies documents on its way as long as a batch has no more bytes than this.
const AHEAD_BYTES_MAX: usize = 1 << 20;

/// See the module's head.
pub struct Store {
    pub core: Arc<Core>,
    pub state: Arc<StoreState>,
}

/// A value taken apart.
pub fn split(value: &[u8]) -> (CommitSeq, &[u8]) {
    match value.split_first_chunk() {
        Some((version, doc)) => (CommitSeq(u64::from_le_bytes(*version)), doc),
        None => (CommitSeq(0), &[]),
    }
}

/// A value.
pub fn join(out: &mut Vec<u8>, version: u64, doc: &[u8]) {
    out.clear();
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(doc);
}

impl Store {
    /// What was read, or `Dropped` if the store is gone. Asked after reading: the table is there, whole,
    /// until the store is marked. A reader that holds a snapshot gets its own error.
    fn unless_dropped<T>(&self, read: Result<T, StorageError>) -> Result<T, StorageError> {
        match self.state.is_dropped() {
            true => Err(StorageError::Dropped { collection: self.state.id, index: None }),
            false => read,
        }
    }

    /// What WiredTiger shows the unit.
    fn get_in<'g>(
        &self,
        unit: &'g WtUnit,
        id: RecordId,
    ) -> Result<Access<Option<Record<'g>>>, StorageError> {
        if let Some(value) = unit.ahead(self.state.table.number, id) {
            return self.record(id, value).map(|record| Access::Ready(Some(record)));
        }
        let Ok(key) = i64::try_from(id.0) else { return Ok(Access::Ready(None)) };
        let mut session = unit.session()?;
        let found = session.cursor(&self.state.table, Use::Lookup).and_then(|cursor| {
            if !cursor.search_record(key)? {
                return Ok(None);
            }
            Ok(Some(unit.kept().keep(cursor.value()?)))
        });
        let place = found.map_err(|code| unit.failed(code))?;
        let value = place.and_then(|place| unit.kept().get(place));
        let record = value.map(|value| self.record(id, value)).transpose()?;
        Ok(Access::Ready(record))
    }

    fn fill_in(&self, unit: &WtUnit, scan: &mut RecordScan) -> Result<Access<()>, StorageError> {
        let mut outcome = Ok(Vec::new());
        let walk = Walk { direction: scan.direction(), position: scan.position() };
        let mut session = unit.session()?;
        scan.refill(|ids, wanted| {
            outcome = session.cursor(&self.state.table, Use::Scan).and_then(|cursor| {
                let filled = walk.fill(cursor, ids, wanted, unit);
                cursor.reset();
                filled
            });
        });
        let ahead = outcome.map_err(|code| unit.failed(code))?;
        unit.set_ahead(self.state.table.number, ahead);
        Ok(Access::Ready(()))
    }

    fn record<'g>(&self, id: RecordId, value: &'g [u8]) -> Result<Record<'g>, StorageError> {
        let (version, doc) = split(value);
        let doc = Doc::from_bytes(doc).map_err(|error| StorageError::Corruption {
            collection: Some(self.state.id),
            record: Some(id),
            message: error.message().to_owned(),
        })?;
        Ok(Record { doc, version })
    }
}

impl RecordStore for Store {
    fn id(&self) -> CollectionId {
        self.state.id
    }

    fn get<'g>(
        &self,
        ru: &'g dyn RecoveryUnit,
        id: RecordId,
    ) -> Result<Access<Option<Record<'g>>>, StorageError> {
        let unit = WtUnit::of(ru)?;
        let Some(held) = unit.held() else { return self.unless_dropped(self.get_in(unit, id)) };
        let found = match held.write_set.record(self.state.id, id)? {
            Some(written) => Ok(Access::Ready(written)),
            None => self.get_in(unit, id),
        };
        unit.held_store(held, &self.state, found)
    }

    fn fill(
        &self,
        ru: &dyn RecoveryUnit,
        scan: &mut RecordScan,
    ) -> Result<Access<()>, StorageError> {
        let unit = WtUnit::of(ru)?;
        let Some(held) = unit.held() else { return self.unless_dropped(self.fill_in(unit, scan)) };
        let inner = |scan: &mut RecordScan| self.fill_in(unit, scan);
        let filled = held.write_set.fill_records(self.state.id, scan, inner);
        unit.held_store(held, &self.state, filled)
    }

    fn stats(&self) -> Result<RecordStoreStats, StorageError> {
        let file = self.core.directory.join(format!("{}.wt", self.state.ident));
        self.unless_dropped(Ok(RecordStoreStats {
            records: self.state.records.get(),
            bytes: self.state.bytes.get(),
            storage_bytes: std::fs::metadata(file).map_or(0, |file| file.len()),
        }))
    }
}

struct Walk {
    direction: Direction,
    position: Option<RecordId>,
}

impl Walk {
    fn fill(
        &self,
        cursor: &mut Cursor,
        ids: &mut Vec<RecordId>,
        wanted: usize,
        unit: &WtUnit,
    ) -> Result<Vec<(RecordId, Place)>, Code> {
        let mut ahead = Vec::with_capacity(wanted);
        let mut bytes = 0;
        let mut more = self.start(cursor)?;
        while more {
            let id = RecordId(cursor.record()? as u64);
            ids.push(id);
            if bytes < AHEAD_BYTES_MAX {
                let value = cursor.value()?;
                bytes += value.len();
                ahead.push((id, unit.kept().keep(value)));
            }
            more = ids.len() < wanted && self.step(cursor)?;
        }
        Ok(ahead)
    }

    fn step(&self, cursor: &mut Cursor) -> Result<bool, Code> {
        match self.direction {
            Direction::Forward => cursor.next(),
            Direction::Backward => cursor.prev(),
        }
    }

    /// Goes to the first record behind the position.
    fn start(&self, cursor: &mut Cursor) -> Result<bool, Code> {
        cursor.reset();
        let Some(position) = self.position else { return self.step(cursor) };
        // Beyond all ids there is nothing ahead, and everything behind.
        let position = i64::try_from(position.0).unwrap_or(i64::MAX);
        let wanted = match self.direction {
            Direction::Forward => Ordering::Greater,
            Direction::Backward => Ordering::Less,
        };
        match cursor.near_record(position)? {
            None => Ok(false),
            Some(order) if order == wanted => Ok(true),
            Some(_) => self.step(cursor),
        }
    }
}
