//! The open engine: its sessions, its tables, and tables that wait to be dropped.

use crate::acks::Acks;
use crate::open::Options;
use crate::registry::{Count, IndexState, Registry, StoreState};
use crate::rows::{IndexRow, Rows};
use crate::sequence::Sequence;
use crate::snapshots::Snapshots;
use crate::sys::{Code, Connection, Result, Session, Table};
use kauri_base::CollectionId;
use kauri_storage::{Claims, StorageError};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Sessions that are kept for the next use.
const SESSIONS_KEPT_MAX: usize = 256;
/// A session with more open cursors than this gives them all up when it goes back.
const CURSORS_KEPT_MAX: usize = 512;
/// How often counts are written.
const SIZES_EVERY: Duration = Duration::from_secs(60);

const RECORDS_CONFIG: &str = "type=file,memory_page_max=10m,split_pct=90,leaf_page_max=32KB,\
     leaf_value_max=64MB,checksum=on,block_compressor=snappy,key_format=q,value_format=u,\
     log=(enabled=true)";
const INDEX_CONFIG: &str = "type=file,internal_page_max=16k,leaf_page_max=16k,checksum=on,\
     prefix_compression=true,block_compressor=,key_format=u,value_format=u,log=(enabled=true)";

/// The numbers of `Rows`' own tables come before.
const FIRST_TABLE: u64 = 2;

/// What all parts of an open engine share. Its last handle closes the database.
pub struct Core {
    pub(crate) registry: RwLock<Registry>,
    pub(crate) rows: Rows,
    pub(crate) sequence: Sequence,
    pub(crate) acks: Arc<Acks>,
    /// What transactions are about to change.
    pub(crate) claims: Arc<Claims>,
    pub(crate) snapshots: Snapshots,
    pub(crate) options: Options,
    pub(crate) directory: PathBuf,
    idle: Mutex<Vec<Pooled>>,
    /// Gives tables their names and numbers.
    tables: AtomicU64,
    dropping: Mutex<Vec<Dropping>>,
    /// Goes up whenever something is added to `dropping`.
    drops: AtomicU64,
    closed: AtomicBool,
    /// Whether files are held: commits are refused. Looked at with the registry locked.
    is_held: AtomicBool,
    /// Also locked by the flusher while it maintains tables.
    held: Mutex<Held>,
    connection: Arc<Connection>,
}

/// The results of `open`.
pub struct Parts {
    pub registry: Registry,
    pub rows: Rows,
    pub seq: u64,
    pub next_table: u64,
    pub options: Options,
    pub directory: PathBuf,
    pub connection: Arc<Connection>,
}

/// Holds of the files.
#[derive(Default)]
struct Held {
    count: u32,
    /// While there are any: has a backup cursor open.
    session: Option<Session>,
}

enum Dropping {
    Store(Arc<StoreState>),
    Index(Arc<IndexState>),
}

impl Dropping {
    fn parts(&self) -> (&Table, &str) {
        match self {
            Dropping::Store(store) => (&store.table, &store.ident),
            Dropping::Index(index) => (&index.table, &index.ident),
        }
    }
}

struct Pooled {
    session: Session,
    /// What `Core::drops` was when it last gave cursors up.
    drops: u64,
}

/// A session on loan; goes back when it is dropped.
pub struct Lent {
    pooled: Option<Pooled>,
    core: Arc<Core>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Puts an engine together.
    pub fn new(parts: Parts) -> Arc<Core> {
        Arc::new_cyclic(|core| Core {
            registry: RwLock::new(parts.registry),
            rows: parts.rows,
            sequence: Sequence::new(parts.seq),
            acks: Acks::new(core.clone(), parts.seq),
            claims: Arc::new(Claims::new()),
            snapshots: Snapshots::default(),
            options: parts.options,
            directory: parts.directory,
            idle: Mutex::default(),
            tables: AtomicU64::new(parts.next_table),
            dropping: Mutex::default(),
            drops: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            held: Mutex::default(),
            connection: parts.connection,
        })
    }

    // A panic under the lock is a bug; the maps are whole all the same, since they change at once.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Registry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session, used or new.
    pub fn session(self: &Arc<Self>) -> Result<Lent> {
        let kept = lock(&self.idle).pop();
        let pooled = match kept {
            Some(pooled) => pooled,
            None => {
                // The number first: what is dropped after it is looked for later.
                let drops = self.drops.load(Ordering::Acquire);
                Pooled { session: self.connection.session()?, drops }
            }
        };
        Ok(Lent { pooled: Some(pooled), core: self.clone() })
    }

    fn put_back(&self, mut pooled: Pooled) {
        let drops = self.drops.load(Ordering::Acquire);
        if pooled.drops != drops {
            let dropping = lock(&self.dropping);
            pooled.session.close_cursors(|number| {
                dropping.iter().any(|dropping| dropping.parts().0.number == number)
            });
            pooled.drops = drops;
        }
        if pooled.session.cursors() > CURSORS_KEPT_MAX {
            pooled.session.close_cursors(|_| true);
        }
        let mut idle = lock(&self.idle);
        if idle.len() < SESSIONS_KEPT_MAX {
            idle.push(pooled);
        }
    }

    /// A new, empty record store with its table.
    pub fn create_store(&self, session: &mut Session, id: CollectionId) -> Result<StoreState> {
        let number = self.tables.fetch_add(1, Ordering::Relaxed);
        let ident = format!("collection-{}-{number}", id.0);
        let store = store_state(id, ident, number)?;
        match self.options.compressed {
            true => session.create(&store.table, RECORDS_CONFIG)?,
            false => session.create(&store.table, &RECORDS_CONFIG.replace("snappy", "none"))?,
        }
        Ok(store)
    }

    /// A new, empty index with its table.
    pub fn create_index(&self, session: &mut Session, mut row: IndexRow) -> Result<IndexState> {
        let number = self.tables.fetch_add(1, Ordering::Relaxed);
        row.ident = format!("index-{}-{number}", row.id.0);
        let index = index_state(row, number)?;
        session.create(&index.table, INDEX_CONFIG)?;
        Ok(index)
    }

    /// A store without a name: its table is dropped after its last use.
    pub fn discard_store(&self, store: Arc<StoreState>) {
        store.dropped.store(true, Ordering::Release);
        self.discard(Dropping::Store(store));
    }

    /// An index without a name.
    pub fn discard_index(&self, index: Arc<IndexState>) {
        index.dropped.store(true, Ordering::Release);
        self.discard(Dropping::Index(index));
    }

    fn discard(&self, dropping: Dropping) {
        lock(&self.dropping).push(dropping);
        self.drops.fetch_add(1, Ordering::AcqRel);
        let idle = std::mem::take(&mut *lock(&self.idle));
        idle.into_iter().for_each(|pooled| self.put_back(pooled));
        self.acks.kick();
    }

    /// Drops unused tables. A table that cannot be dropped is tried again later, or dropped at the next opening.
    pub fn drop_tables(self: &Arc<Self>) -> Result<()> {
        let waiting = std::mem::take(&mut *lock(&self.dropping));
        if waiting.is_empty() {
            return Ok(());
        }
        let mut session = self.session()?;
        let mut still = Vec::new();
        for dropping in waiting {
            let (table, ident) = dropping.parts();
            match session.drop_table(table) {
                Ok(()) | Err(Code::NO_ENTRY) => self.rows.remove_counts(&mut session, ident)?,
                Err(_) => still.push(dropping),
            }
        }
        if !still.is_empty() {
            lock(&self.dropping).append(&mut still);
            // Sessions that came back meanwhile look again.
            self.drops.fetch_add(1, Ordering::AcqRel);
            let idle = std::mem::take(&mut *lock(&self.idle));
            idle.into_iter().for_each(|pooled| self.put_back(pooled));
        }
        Ok(())
    }

    /// Hands everything committed so far to the kernel, or to the medium.
    pub fn flush_log(self: &Arc<Self>, durable: bool) -> std::result::Result<(), StorageError> {
        let seq = self.sequence.visible().0;
        let reached = if durable { self.acks.durable() } else { self.acks.written() };
        if reached >= seq {
            return Ok(());
        }
        let flushed = self.session().and_then(|mut session| session.flush_log(durable));
        match flushed {
            Ok(()) => {
                self.acks.reach(seq, durable);
                Ok(())
            }
            Err(code) => {
                let message = format!("writing the journal failed: {}", code.text());
                self.acks.fail(&message);
                Err(StorageError::Io(message))
            }
        }
    }

    /// The journal's flusher: syncs every commit interval and on request, drops tables, writes counts.
    pub fn run_flusher(self: &Arc<Self>, stop: &AtomicBool) {
        let mut sizes_written = Instant::now();
        while !stop.load(Ordering::Acquire) {
            self.acks.wait_for_kick(Duration::from_millis(self.options.commit_interval_ms));
            // A failure has been told to those who wait for durability.
            let _ = self.flush_log(true);
            let held = lock(&self.held);
            if held.count > 0 {
                continue;
            }
            let mut outcome = self.drop_tables();
            if sizes_written.elapsed() >= SIZES_EVERY {
                outcome = outcome.and_then(|()| self.write_counts());
                sizes_written = Instant::now();
            }
            if let Err(code) = outcome {
                crate::status::log_message(code.0, "maintaining the tables failed");
            }
        }
    }

    /// See [`kauri_storage::StorageEngine::hold_files`]. WiredTiger's own threads go on. The backup cursor keeps what the
    /// copy needs: the last checkpoint, its blocks, and the journal since then.
    pub fn hold_files(self: &Arc<Self>) -> std::result::Result<(), StorageError> {
        let mut held = lock(&self.held);
        self.is_held.store(true, Ordering::Release);
        // Commits under way have the registry locked.
        drop(self.write());
        let prepared = self.flush_log(true).and_then(|()| {
            if held.session.is_none() {
                let mut session = self.connection.session().map_err(failed)?;
                session.open_backup().map_err(failed)?;
                held.session = Some(session);
            }
            Ok(())
        });
        match prepared {
            Ok(()) => held.count += 1,
            Err(_) => self.is_held.store(held.count > 0, Ordering::Release),
        }
        prepared
    }

    /// Ends a hold.
    pub fn let_files_go(&self) {
        let mut held = lock(&self.held);
        held.count = held.count.saturating_sub(1);
        if held.count == 0 {
            held.session = None;
            self.is_held.store(false, Ordering::Release);
        }
    }

    /// Fails while files are held. With the registry locked.
    pub fn check_not_held(&self) -> std::result::Result<(), StorageError> {
        match self.is_held.load(Ordering::Acquire) {
            true => Err(StorageError::FilesHeld),
            false => Ok(()),
        }
    }

    /// Writes all counts into the size storer.
    pub fn write_counts(self: &Arc<Self>) -> Result<()> {
        let mut session = self.session()?;
        let registry = self.read();
        for store in registry.stores.values() {
            let counts = [store.records.get(), store.bytes.get(), store.last_id.get()];
            self.rows.put_counts(&mut session, &store.ident, counts)?;
        }
        for index in registry.indexes.values() {
            let counts = [index.entries.get(), index.bytes.get(), 0];
            self.rows.put_counts(&mut session, &index.ident, counts)?;
        }
        Ok(())
    }

    /// Closes the database cleanly: it has no user any more.
    pub fn close(self: &Arc<Self>) -> std::result::Result<(), StorageError> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        *lock(&self.held) = Held::default();
        let closed = self.drop_tables().and_then(|()| self.write_counts()).and_then(|()| {
            let mut session = self.session()?;
            self.rows.set_clean(&mut session, Some(self.sequence.visible().0))?;
            session.flush_log(true)?;
            session.checkpoint()
        });
        closed.map_err(failed)
    }
}

/// The state of a store whose table has this name.
pub fn store_state(id: CollectionId, ident: String, number: u64) -> Result<StoreState> {
    let table = Table::new(number.max(FIRST_TABLE), &ident, true)?;
    Ok(StoreState {
        id,
        ident,
        table,
        definition: Count::default(),
        last_id: Count::default(),
        records: Count::default(),
        bytes: Count::default(),
        changed: AtomicU64::new(0),
        dropped: AtomicBool::new(false),
    })
}

/// The state of an index whose table has the row's name.
pub fn index_state(row: IndexRow, number: u64) -> Result<IndexState> {
    let table = Table::new(number.max(FIRST_TABLE), &row.ident, false)?;
    Ok(IndexState {
        id: row.id,
        collection: row.collection,
        ident: row.ident,
        table,
        unique: row.unique,
        mixed: AtomicBool::new(row.mixed),
        mixed_stored: AtomicBool::new(row.mixed),
        complete: row.complete,
        entries: Count::default(),
        bytes: Count::default(),
        created: AtomicU64::new(0),
        dropped: AtomicBool::new(false),
    })
}

/// A failure as an error of the interface.
pub fn failed(code: Code) -> StorageError {
    match code {
        Code::NO_SPACE => StorageError::OutOfDiskSpace,
        code => StorageError::Io(code.text()),
    }
}

impl Deref for Lent {
    type Target = Session;

    fn deref(&self) -> &Session {
        match &self.pooled {
            Some(pooled) => &pooled.session,
            None => unreachable!("only drop() takes the session"),
        }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Session {
        match &mut self.pooled {
            Some(pooled) => &mut pooled.session,
            None => unreachable!("only drop() takes the session"),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(pooled) = self.pooled.take() {
            self.core.put_back(pooled);
        }
    }
}
