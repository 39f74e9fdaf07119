//! The two tables about other tables.
//!
//! `_kauri_catalog` lists the stores and indexes; it changes in the transactions that create and drop them. A table
//! that is not in it is left over from a refused unit or from a drop, and is dropped at the next opening.
//!
//! | key | value |
//! |---|---|
//! | `s`, collection (u32 BE) | the table's name |
//! | `i`, index (u32 BE) | collection (u32 BE), flags (1 unique, 2 mixed, 4 complete), the table's name |
//!
//! `sizeStorer` has counts, written from time to time and at the end, as in MongoDB; after a crash they are counted
//! again.
//!
//! | key | value |
//! |---|---|
//! | a table's name | three u64 LE: records or entries, bytes, the last record id |
//! | `clean` | u64 LE: the commit sequence; only while the database is closed |

use crate::registry::{IndexState, StoreState};
use crate::sys::{Code, Result, Session, Table, Use};
use kauri_base::{CollectionId, IndexId};
use std::collections::HashMap;

const FLAG_UNIQUE: u8 = 1;
const FLAG_MIXED: u8 = 2;
const FLAG_COMPLETE: u8 = 4;
const CLEAN: &[u8] = b"clean";
const CONFIG: &str = "type=file,key_format=u,value_format=u,log=(enabled=true)";
/// The error for a row that makes no sense: EINVAL.
const MALFORMED: Code = Code(22);

/// Counts of a table.
pub type Counts = [u64; 3];

/// A row about a store or an index.
pub enum Row {
    /// A store: its collection and its table's name.
    Store(CollectionId, String),
    /// An index.
    Index(IndexRow),
}

/// What is kept of an index.
pub struct IndexRow {
    pub id: IndexId,
    pub collection: CollectionId,
    pub unique: bool,
    pub mixed: bool,
    pub complete: bool,
    pub ident: String,
}

/// The two tables.
pub struct Rows {
    catalog: Table,
    sizes: Table,
}

impl Rows {
    /// Creates them where they aren't there.
    pub fn open(session: &mut Session) -> Result<Rows> {
        let rows = Rows {
            catalog: Table::new(0, "_kauri_catalog", true)?,
            sizes: Table::new(1, "sizeStorer", true)?,
        };
        session.create(&rows.catalog, CONFIG)?;
        session.create(&rows.sizes, CONFIG)?;
        Ok(rows)
    }

    /// Whether a table of this name is one of them.
    pub fn is_own(name: &str) -> bool {
        matches!(name, "_kauri_catalog" | "sizeStorer")
    }

    /// All rows of the catalog.
    pub fn read(&self, session: &mut Session) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (key, value) in items(session, &self.catalog)? {
            rows.push(parse(&key, &value).ok_or(MALFORMED)?);
        }
        Ok(rows)
    }

    /// Notes a store, within the session's transaction.
    pub fn put_store(&self, session: &mut Session, store: &StoreState) -> Result<()> {
        let cursor = session.cursor(&self.catalog, Use::Lookup)?;
        cursor.insert(&key(b's', store.id.0), store.ident.as_bytes()).map(drop)
    }

    /// Notes an index, within the session's transaction.
    pub fn put_index(&self, session: &mut Session, index: &IndexState) -> Result<()> {
        let mut flags = 0;
        for (flag, set) in [
            (FLAG_UNIQUE, index.unique),
            (FLAG_MIXED, index.is_mixed()),
            (FLAG_COMPLETE, index.complete),
        ] {
            flags |= if set { flag } else { 0 };
        }
        let mut value = index.collection.0.to_be_bytes().to_vec();
        value.push(flags);
        value.extend_from_slice(index.ident.as_bytes());
        let cursor = session.cursor(&self.catalog, Use::Lookup)?;
        cursor.insert(&key(b'i', index.id.0), &value).map(drop)
    }

    /// Forgets a store, within the session's transaction.
    pub fn remove_store(&self, session: &mut Session, id: CollectionId) -> Result<()> {
        session.cursor(&self.catalog, Use::Lookup)?.remove(&key(b's', id.0)).map(drop)
    }

    /// Forgets an index, within the session's transaction.
    pub fn remove_index(&self, session: &mut Session, id: IndexId) -> Result<()> {
        session.cursor(&self.catalog, Use::Lookup)?.remove(&key(b'i', id.0)).map(drop)
    }

    /// The commit sequence and all counts of a database that was closed in order.
    pub fn read_clean(&self, session: &mut Session) -> Result<Option<(u64, Sizes)>> {
        let mut seq = None;
        let mut sizes = HashMap::new();
        for (key, value) in items(session, &self.sizes)? {
            if key == CLEAN {
                seq = value.try_into().map(u64::from_le_bytes).ok();
            } else if let Some(counts) = parse_counts(&value) {
                sizes.insert(String::from_utf8_lossy(&key).into_owned(), counts);
            }
        }
        Ok(seq.map(|seq| (seq, sizes)))
    }

    /// Notes counts.
    pub fn put_counts(&self, session: &mut Session, ident: &str, counts: Counts) -> Result<()> {
        let value: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        session.cursor(&self.sizes, Use::Lookup)?.insert(ident.as_bytes(), &value).map(drop)
    }

    /// Forgets a table's counts.
    pub fn remove_counts(&self, session: &mut Session, ident: &str) -> Result<()> {
        session.cursor(&self.sizes, Use::Lookup)?.remove(ident.as_bytes()).map(drop)
    }

    /// Says that the counts are right and the commit sequence stands at `seq`; `None`: they aren't
    /// to be believed.
    pub fn set_clean(&self, session: &mut Session, seq: Option<u64>) -> Result<()> {
        let cursor = session.cursor(&self.sizes, Use::Lookup)?;
        match seq {
            Some(seq) => cursor.insert(CLEAN, &seq.to_le_bytes()).map(drop),
            None => cursor.remove(CLEAN).map(drop),
        }
    }
}

/// Counts by the tables' names.
pub type Sizes = HashMap<String, Counts>;

fn key(kind: u8, id: u32) -> [u8; 5] {
    let [a, b, c, d] = id.to_be_bytes();
    [kind, a, b, c, d]
}

fn items(session: &mut Session, table: &Table) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let cursor = session.cursor(table, Use::Scan)?;
    cursor.reset();
    let mut items = Vec::new();
    while cursor.next()? {
        let (key, value) = cursor.item()?;
        items.push((key.to_vec(), value.to_vec()));
    }
    cursor.reset();
    Ok(items)
}

fn parse(key: &[u8], value: &[u8]) -> Option<Row> {
    let (kind, id) = key.split_first()?;
    let id = u32::from_be_bytes(id.try_into().ok()?);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    match kind {
        b's' => Some(Row::Store(CollectionId(id), text(value)?)),
        b'i' => {
            let (collection, rest) = value.split_first_chunk()?;
            let (flags, ident) = rest.split_first()?;
            Some(Row::Index(IndexRow {
                id: IndexId(id),
                collection: CollectionId(u32::from_be_bytes(*collection)),
                unique: flags & FLAG_UNIQUE != 0,
                mixed: flags & FLAG_MIXED != 0,
                complete: flags & FLAG_COMPLETE != 0,
                ident: text(ident)?,
            }))
        }
        _ => None,
    }
}

fn parse_counts(value: &[u8]) -> Option<Counts> {
    let (chunks, []) = value.as_chunks::<8>() else { return None };
    let counts: &[[u8; 8]; 3] = chunks.try_into().ok()?;
    Some(counts.map(u64::from_le_bytes))
}
