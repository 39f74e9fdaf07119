//! Opens a directory: refusals, WiredTiger's configuration, and finding the tables.

use crate::core::{Core, Parts, index_state, store_state};
use crate::registry::Registry;
use crate::rows::{Row, Rows, Sizes};
use crate::sys::{Code, Connection, Session, Table, Use};
use kauri_base::{Error, ErrorCode, Result};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// The engine's name.
pub const ENGINE_NAME: &str = "wiredTiger";

/// Says that the WiredTiger files beside it are this engine's, not MongoDB's.
const MARKER: &str = "kauri-wiredTiger";
const MARKER_TEXT: &str = "1\n";

/// The options of the engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// WiredTiger's cache, in bytes.
    pub cache_bytes: u64,
    /// Interval of syncs of the journal, in milliseconds.
    pub commit_interval_ms: u64,
    /// Interval of checkpoints, in seconds (or after 2 GB of journal).
    pub checkpoint_s: u64,
    /// Whether blocks of records are compressed with snappy, as MongoDB does. WiredTiger aims at blocks
    /// of 32 KB after compression, and so begins with four times as much before; what does not
    /// compress is then written in blocks of more than 32 KB.
    pub compressed: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cache_bytes: 1 << 30,
            commit_interval_ms: 100,
            checkpoint_s: 60,
            compressed: true,
        }
    }
}

impl Options {
    /// As MongoDB configures it; the compressor is a library of its own in Debian's package.
    fn config(&self) -> String {
        let cache_mb = (self.cache_bytes >> 20).max(1);
        format!(
            "create,cache_size={cache_mb}M,session_max=20000,\
             eviction=(threads_min=4,threads_max=4),config_base=false,statistics=(fast),\
             extensions=[libwiredtiger_snappy.so],\
             log=(enabled=true,archive=true,path=journal,compressor=snappy),\
             file_manager=(close_idle_time=100000),\
             checkpoint=(wait={},log_size=2GB)",
            self.checkpoint_s
        )
    }
}

/// Opens the directory, making it one of this engine if it is empty.
pub fn open(directory: &Path, options: Options) -> Result<Arc<Core>> {
    check_directory(directory)?;
    let connection = Connection::open(directory, &options.config()).map_err(|code| {
        let place = directory.display();
        match code {
            Code::BUSY => Error::new(
                ErrorCode::DBPathInUse,
                format!("Unable to lock {place}: another server has it open"),
            ),
            code => refusal(directory, &format!("WiredTiger can't open it: {}", code.text())),
        }
    })?;
    let refused = |code: Code| refusal(directory, &code.text());
    let mut session = connection.session().map_err(refused)?;
    let rows = Rows::open(&mut session).map_err(refused)?;
    let found = Found::read(&mut session, &rows).map_err(refused)?;
    // The counts are right only until the first commit.
    rows.set_clean(&mut session, None).map_err(refused)?;
    session.flush_log(true).map_err(refused)?;
    drop(session);
    Ok(Core::new(Parts {
        registry: found.registry,
        rows,
        seq: found.seq,
        next_table: found.next_table,
        options,
        directory: directory.to_owned(),
        connection,
    }))
}

fn refusal(directory: &Path, what: &str) -> Error {
    Error::location(28_662, format!("Cannot start server. {}: {what}", directory.display()))
}

fn check_directory(directory: &Path) -> Result<()> {
    let there = |name: &str| directory.join(name).exists();
    if there("kauri.meta") || there("pmlog.0") {
        let what = format!(
            "Detected data files in {} created by the 'pmlog' storage engine, but the specified \
             storage engine was '{ENGINE_NAME}'. Start it with --storageEngine pmlog, or dump the \
             data (mongodump) and restore it into an empty directory (mongorestore)",
            directory.display()
        );
        return Err(Error::location(28_662, format!("Cannot start server. {what}")));
    }
    match std::fs::read_to_string(directory.join(MARKER)) {
        Ok(text) if text == MARKER_TEXT => {}
        Ok(_) => {
            return Err(refusal(directory, "it was written by another version; dump and restore"));
        }
        Err(_) if there("WiredTiger") => {
            let what = "its WiredTiger files are not Kauri's. Dump the data with the server that \
                        wrote it (mongodump) and restore it into an empty directory (mongorestore)";
            return Err(refusal(directory, what));
        }
        Err(_) => prepare(directory)
            .map_err(|error| refusal(directory, &format!("can't prepare it: {error}")))?,
    }
    std::fs::create_dir_all(directory.join("journal"))
        .map_err(|error| refusal(directory, &format!("can't prepare it: {error}")))
}

/// Leaves the marker, whole or not at all whoever dies meanwhile.
fn prepare(directory: &Path) -> std::io::Result<()> {
    let beside = directory.join(format!("{MARKER}.new"));
    let mut file = std::fs::File::create(&beside)?;
    file.write_all(MARKER_TEXT.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, directory.join(MARKER))?;
    std::fs::File::open(directory)?.sync_all()
}

/// What a database holds.
struct Found {
    registry: Registry,
    seq: u64,
    next_table: u64,
}

impl Found {
    fn read(session: &mut Session, rows: &Rows) -> crate::sys::Result<Found> {
        let mut found = Found { registry: Registry::default(), seq: 0, next_table: 2 };
        for row in rows.read(session)? {
            match row {
                Row::Store(id, ident) => {
                    let number = found.number();
                    let store = Arc::new(store_state(id, ident, number)?);
                    found.registry.stores.insert(id, store);
                }
                Row::Index(row) => {
                    let id = row.id;
                    let number = found.number();
                    found.registry.indexes.insert(id, Arc::new(index_state(row, number)?));
                }
            }
        }
        found.drop_leftovers(session)?;
        match rows.read_clean(session)? {
            Some((seq, sizes)) => {
                found.seq = seq;
                found.believe(&sizes);
            }
            None => found.count(session)?,
        }
        Ok(found)
    }

    fn number(&mut self) -> u64 {
        self.next_table += 1;
        self.next_table - 1
    }

    fn drop_leftovers(&mut self, session: &mut Session) -> crate::sys::Result<()> {
        let stores = self.registry.stores.values().map(|store| store.ident.as_str());
        let indexes = self.registry.indexes.values().map(|index| index.ident.as_str());
        let known: std::collections::HashSet<_> = stores.chain(indexes).collect();
        let mut highest = 0;
        for name in session.tables()? {
            let number = name.rsplit('-').next().and_then(|text| text.parse::<u64>().ok());
            highest = highest.max(number.unwrap_or(0));
            if !known.contains(name.as_str()) && !Rows::is_own(&name) {
                session.drop_table(&Table::new(0, &name, true)?)?;
            }
        }
        self.next_table = self.next_table.max(highest + 1);
        Ok(())
    }

    fn believe(&mut self, sizes: &Sizes) {
        for store in self.registry.stores.values() {
            let [records, bytes, last_id] = sizes.get(&store.ident).copied().unwrap_or_default();
            store.records.change(records as i64);
            store.bytes.change(bytes as i64);
            store.last_id.change(last_id as i64);
        }
        for index in self.registry.indexes.values() {
            let [entries, bytes, _] = sizes.get(&index.ident).copied().unwrap_or_default();
            index.entries.change(entries as i64);
            index.bytes.change(bytes as i64);
        }
    }

    /// Counts everything, after a crash.
    fn count(&mut self, session: &mut Session) -> crate::sys::Result<()> {
        for store in self.registry.stores.values() {
            let cursor = session.cursor(&store.table, Use::Scan)?;
            let mut last_id = 0;
            while cursor.next()? {
                last_id = cursor.record()?;
                let (version, doc) = crate::store::split(cursor.value()?);
                self.seq = self.seq.max(version.0);
                store.records.change(1);
                store.bytes.change(doc.len() as i64);
            }
            store.last_id.change(last_id);
            cursor.reset();
        }
        let mut key = Vec::new();
        for index in self.registry.indexes.values() {
            let cursor = session.cursor(&index.table, Use::Scan)?;
            while cursor.next()? {
                let item = cursor.item()?;
                if let Some((_, type_bits, _)) = crate::keys::decode(item, &mut key) {
                    index.entries.change(1);
                    index.bytes.change(crate::index::entry_bytes(&key, type_bits));
                }
            }
            cursor.reset();
        }
        Ok(())
    }
}
