//! Collections and indexes as documents of the catalog.

use kauri_base::{CollectionId, IndexId, RecordId};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_conformance::table::{Table, TableIndex};
use kauri_storage::StorageEngine;
use std::sync::Arc;

/// The store that holds the catalog.
pub const CATALOG: CollectionId = CollectionId::CATALOG;
/// The fields that indexes may be on; see [`kauri_conformance::table::doc`].
pub const FIELDS: [&str; 3] = ["k", "u", "s"];
/// Index ids of one collection: the collection's times this, and up.
const INDEXES_EVER_MAX: u32 = 1000;

/// An index.
#[derive(Clone)]
pub struct IndexDef {
    /// The engine's index.
    pub index: TableIndex,
    /// Its field, as an index in [`FIELDS`].
    pub field: usize,
    /// Whether its build has ended.
    pub ready: bool,
}

/// A collection.
#[derive(Clone)]
pub struct TableDef {
    /// Its id.
    pub id: CollectionId,
    /// Its document in the catalog.
    pub record: RecordId,
    /// The number of the definition that this is.
    pub number: u64,
    /// Its indexes, including unfinished ones.
    pub indexes: Vec<IndexDef>,
    /// Indexes that it ever had.
    pub indexes_ever: u32,
}

impl TableDef {
    /// A definition without indexes that the catalog does not have yet.
    pub fn new(id: CollectionId) -> TableDef {
        TableDef { id, record: RecordId(0), number: 0, indexes: Vec::new(), indexes_ever: 0 }
    }

    /// Adds an index and answers it.
    pub fn add_index(&mut self, field: usize, unique: bool, ready: bool) -> IndexDef {
        assert!(self.indexes_ever < INDEXES_EVER_MAX, "index ids of {:?} are used up", self.id);
        let id = self.id.0 * INDEXES_EVER_MAX + self.indexes_ever;
        self.indexes_ever += 1;
        let index = TableIndex::new(id, unique, FIELDS[field]);
        let def = IndexDef { index, field, ready };
        self.indexes.push(def.clone());
        def
    }

    /// The index of this id.
    pub fn index_mut(&mut self, id: IndexId) -> Option<&mut IndexDef> {
        self.indexes.iter_mut().find(|def| def.index.spec.id == id)
    }

    /// Says of indexes that are ready that they have the keys of all documents.
    pub fn note_complete(&self) {
        self.indexes.iter().filter(|def| def.ready).for_each(|def| def.index.set_complete());
    }

    /// Forgets an index.
    pub fn remove_index(&mut self, id: IndexId) {
        self.indexes.retain(|def| def.index.spec.id != id);
    }

    /// For writing: with all indexes.
    pub fn table(&self, engine: &Arc<dyn StorageEngine>) -> Table {
        let indexes: Vec<_> = self.indexes.iter().map(|def| def.index.clone()).collect();
        Table::new(engine, self.id.0, &indexes)
    }

    /// For checking: with those indexes that are complete.
    pub fn ready_table(&self, engine: &Arc<dyn StorageEngine>) -> Table {
        let ready = self.indexes.iter().filter(|def| def.ready);
        let indexes: Vec<_> = ready.map(|def| def.index.clone()).collect();
        Table::new(engine, self.id.0, &indexes)
    }

    /// Its document in the catalog.
    pub fn encode(&self) -> Vec<u8> {
        DocBuf::build(|out| {
            out.put("collection", i64::from(self.id.0));
            out.put("indexesEver", i64::from(self.indexes_ever));
            let mut list = out.array("indexes");
            for def in &self.indexes {
                let mut out = list.document();
                out.put("id", i64::from(def.index.spec.id.0));
                out.put("field", def.field as i64);
                out.put("unique", def.index.spec.unique);
                out.put("ready", def.ready);
            }
        })
        .into_vec()
    }

    /// The contents of a document of the catalog; `None` if it is not one.
    pub fn decode(record: RecordId, bytes: &[u8]) -> Option<TableDef> {
        let doc = Doc::from_bytes(bytes).ok()?;
        let number = |doc: Doc<'_>, name: &str| match doc.value(name) {
            Value::Int64(number) => u32::try_from(number).ok(),
            _ => None,
        };
        let flag = |doc: Doc<'_>, name: &str| doc.value(name) == Value::Bool(true);
        let list = doc.value("indexes");
        let indexes = list.as_array()?.iter().map(|elem| {
            let value = elem.value();
            let doc = value.as_document()?;
            let field = number(doc, "field")? as usize;
            let name = FIELDS.get(field)?;
            let index = TableIndex::new(number(doc, "id")?, flag(doc, "unique"), name);
            Some(IndexDef { index, field, ready: flag(doc, "ready") })
        });
        Some(TableDef {
            id: CollectionId(number(doc, "collection")?),
            record,
            number: 0,
            indexes: indexes.collect::<Option<_>>()?,
            indexes_ever: number(doc, "indexesEver")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_come_back() {
        let mut def = TableDef::new(CollectionId(17));
        def.add_index(0, false, true);
        let second = def.add_index(1, true, false);
        def.remove_index(second.index.spec.id);
        def.add_index(2, true, false);
        let back = TableDef::decode(RecordId(3), &def.encode()).expect("a definition");
        assert_eq!((back.id, back.record), (def.id, RecordId(3)));
        assert_eq!(back.encode(), def.encode());
        let ids: Vec<_> = back.indexes.iter().map(|def| def.index.spec.id.0).collect();
        assert_eq!(ids, [17_000, 17_002]);
        assert!(TableDef::decode(RecordId(3), &[5, 0, 0, 0, 0]).is_none());
    }
}
