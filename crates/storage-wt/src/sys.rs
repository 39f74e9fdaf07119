//! The library behind safe types. All unsafe code of the crate is here.
//!
//! Why it is sound: a [`Session`] owns its cursors and is used by one thread at a time (`&mut`). WiredTiger's
//! results point into pages that a cursor's position keeps, so they are borrowed only as long as the session is
//! borrowed. Keys and values that a call takes are set in that call and not read after it, because every operation
//! that reads a cursor's key sets it first.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

#[repr(C)]
struct RawConnection {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawSession {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawCursor {
    _opaque: [u8; 0],
}

type Report = extern "C" fn(c_int, *const c_char);

// SAFETY: the declarations are those of shim.c, which is compiled with this crate.
unsafe extern "C" {
    fn kwt_open(
        home: *const c_char,
        config: *const c_char,
        report: Report,
        out: *mut *mut RawConnection,
    ) -> c_int;
    fn kwt_close(connection: *mut RawConnection) -> c_int;
    fn kwt_session_open(
        connection: *mut RawConnection,
        config: *const c_char,
        out: *mut *mut RawSession,
    ) -> c_int;
    fn kwt_session_close(session: *mut RawSession) -> c_int;
    fn kwt_create(session: *mut RawSession, name: *const c_char, config: *const c_char) -> c_int;
    fn kwt_drop(session: *mut RawSession, name: *const c_char, config: *const c_char) -> c_int;
    fn kwt_begin(session: *mut RawSession) -> c_int;
    fn kwt_commit(session: *mut RawSession) -> c_int;
    fn kwt_rollback(session: *mut RawSession) -> c_int;
    fn kwt_checkpoint(session: *mut RawSession) -> c_int;
    fn kwt_log_flush(session: *mut RawSession, config: *const c_char) -> c_int;
    fn kwt_cursor_open(
        session: *mut RawSession,
        uri: *const c_char,
        config: *const c_char,
        out: *mut *mut RawCursor,
    ) -> c_int;
    fn kwt_cursor_close(cursor: *mut RawCursor) -> c_int;
    fn kwt_reset(cursor: *mut RawCursor) -> c_int;
    fn kwt_next(cursor: *mut RawCursor) -> c_int;
    fn kwt_prev(cursor: *mut RawCursor) -> c_int;
    fn kwt_set_key_q(cursor: *mut RawCursor, key: i64);
    fn kwt_set_key_u(cursor: *mut RawCursor, data: *const c_void, size: usize);
    fn kwt_set_value_u(cursor: *mut RawCursor, data: *const c_void, size: usize);
    fn kwt_search(cursor: *mut RawCursor) -> c_int;
    fn kwt_search_near(cursor: *mut RawCursor, exact: *mut c_int) -> c_int;
    fn kwt_insert(cursor: *mut RawCursor) -> c_int;
    fn kwt_update(cursor: *mut RawCursor) -> c_int;
    fn kwt_remove(cursor: *mut RawCursor) -> c_int;
    fn kwt_get_key_q(cursor: *mut RawCursor, key: *mut i64) -> c_int;
    fn kwt_get_key_u(cursor: *mut RawCursor, data: *mut *const c_void, size: *mut usize) -> c_int;
    fn kwt_get_key_s(cursor: *mut RawCursor, key: *mut *const c_char) -> c_int;
    fn kwt_get_value_u(cursor: *mut RawCursor, data: *mut *const c_void, size: *mut usize)
    -> c_int;
    fn kwt_statistic(session: *mut RawSession, which: c_int, value: *mut i64) -> c_int;
    fn kwt_space(path: *const c_char, total: *mut u64, used: *mut u64) -> c_int;
    fn wiredtiger_strerror(error: c_int) -> *const c_char;
}

/// A return code that is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub i32);

impl Code {
    /// Another transaction is in the way; roll back and try again.
    pub const ROLLBACK: Code = Code(-31800);
    /// The key exists.
    pub const DUPLICATE_KEY: Code = Code(-31801);
    /// There is no such item, or no next one.
    pub const NOT_FOUND: Code = Code(-31803);
    /// EBUSY: something is in use.
    pub const BUSY: Code = Code(16);
    /// ENOENT.
    pub const NO_ENTRY: Code = Code(2);
    /// ENOSPC.
    pub const NO_SPACE: Code = Code(28);

    /// The library's words for it.
    pub fn text(self) -> String {
        // SAFETY: answers a string of static or thread-local storage for every number.
        let text = unsafe { CStr::from_ptr(wiredtiger_strerror(self.0)) };
        text.to_string_lossy().into_owned()
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Code>;

fn check(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Code(code)) }
}

/// `Ok(false)` for "not found".
fn found(code: c_int) -> Result<bool> {
    match check(code) {
        Ok(()) => Ok(true),
        Err(Code::NOT_FOUND) => Ok(false),
        Err(code) => Err(code),
    }
}

fn c_string(text: &str) -> Result<CString> {
    // EINVAL
    CString::new(text).map_err(|_| Code(22))
}

extern "C" fn report(error: c_int, message: *const c_char) {
    if message.is_null() {
        return;
    }
    // SAFETY: WiredTiger hands over a terminated string that lives during the call.
    let message = unsafe { CStr::from_ptr(message) };
    crate::status::log_message(error, &message.to_string_lossy());
}

/// An open database. Closed with the last handle; its sessions hold one each.
pub struct Connection {
    raw: *mut RawConnection,
}

// SAFETY: WT_CONNECTION may be used by several threads at once (WiredTiger's documentation,
// "Multithreading").
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

impl Connection {
    /// Opens the database in this directory.
    pub fn open(home: &Path, config: &str) -> Result<Arc<Connection>> {
        let home = c_string(&home.to_string_lossy())?;
        let config = c_string(config)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the strings are terminated and live during the call; `report` is static.
        check(unsafe { kwt_open(home.as_ptr(), config.as_ptr(), report, &mut raw) })?;
        Ok(Arc::new(Connection { raw }))
    }

    /// A new session with snapshot isolation.
    pub fn session(self: &Arc<Self>) -> Result<Session> {
        let mut raw = ptr::null_mut();
        let config = c"isolation=snapshot";
        // SAFETY: the connection is open while this handle lives.
        check(unsafe { kwt_session_open(self.raw, config.as_ptr(), &mut raw) })?;
        Ok(Session { raw, cursors: HashMap::new(), _connection: self.clone() })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the last handle; all sessions, which hold one each, have been closed.
        let closed = check(unsafe { kwt_close(self.raw) });
        if let Err(code) = closed {
            crate::status::log_message(code.0, "closing the database failed");
        }
    }
}

/// A table, as cursors are opened on it.
pub struct Table {
    /// Tells tables apart; never given twice within a process.
    pub number: u64,
    uri: CString,
    /// Whether inserting an existing key replaces its value rather than failing.
    overwrite: bool,
}

impl Table {
    /// A table of this name.
    pub fn new(number: u64, name: &str, overwrite: bool) -> Result<Table> {
        let uri = c_string(&format!("table:{name}"))?;
        Ok(Table { number, uri, overwrite })
    }
}

/// A session: at most one transaction, and a cursor for each use of a table.
pub struct Session {
    raw: *mut RawSession,
    cursors: HashMap<(u64, Use), Cursor>,
    _connection: Arc<Connection>,
}

// SAFETY: a WT_SESSION may move between threads as long as one at a time uses it; `Session` is not
// `Sync` and all its methods take `&mut self`.
unsafe impl Send for Session {}

/// What a cursor is for, since a scan's position should outlast lookups in the same table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Use {
    /// Single items.
    Lookup,
    /// Walks.
    Scan,
}

/// One of the connection's statistics, by its place in shim.c.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub enum Statistic {
    CacheBytes,
    CacheBytesMax,
    CacheBytesDirty,
    BlockBytesWritten,
    LogBytesWritten,
    LogSyncs,
    Checkpoints,
}

impl Session {
    /// Creates a table; it is no error if it is there with the same configuration.
    pub fn create(&mut self, table: &Table, config: &str) -> Result<()> {
        let config = c_string(config)?;
        // SAFETY: the session is open; the strings are terminated and live during the call.
        check(unsafe { kwt_create(self.raw, table.uri.as_ptr(), config.as_ptr()) })
    }

    /// Drops a table if nobody uses it; else `BUSY`.
    pub fn drop_table(&mut self, table: &Table) -> Result<()> {
        self.cursors.clear();
        let config = c"force,checkpoint_wait=false";
        // SAFETY: as in `create`.
        check(unsafe { kwt_drop(self.raw, table.uri.as_ptr(), config.as_ptr()) })
    }

    /// Begins a transaction and takes its snapshot.
    pub fn begin(&mut self) -> Result<()> {
        // SAFETY: the session is open.
        check(unsafe { kwt_begin(self.raw) })
    }

    /// Commits; after a failure the transaction is over too.
    pub fn commit(&mut self) -> Result<()> {
        self.forget_positions();
        // SAFETY: the session is open.
        check(unsafe { kwt_commit(self.raw) })
    }

    /// Gives the transaction up.
    pub fn rollback(&mut self) {
        self.forget_positions();
        // SAFETY: the session is open; without a transaction it answers an error and does nothing.
        let _ = check(unsafe { kwt_rollback(self.raw) });
    }

    /// Writes a checkpoint.
    pub fn checkpoint(&mut self) -> Result<()> {
        // SAFETY: the session is open.
        check(unsafe { kwt_checkpoint(self.raw) })
    }

    /// Begins a backup, which lasts until the session is closed: the last checkpoint and the log since then stay.
    pub fn open_backup(&mut self) -> Result<()> {
        let mut cursor = ptr::null_mut();
        // SAFETY: the session is open, the name is static. WiredTiger closes the cursor with the session.
        check(unsafe { kwt_cursor_open(self.raw, c"backup:".as_ptr(), ptr::null(), &mut cursor) })
    }

    /// Hands the log to the kernel, or to the medium.
    pub fn flush_log(&mut self, durable: bool) -> Result<()> {
        let config = if durable { c"sync=on" } else { c"sync=off" };
        // SAFETY: the session is open; the configuration is static.
        check(unsafe { kwt_log_flush(self.raw, config.as_ptr()) })
    }

    /// A statistic of the connection.
    pub fn statistic(&mut self, which: Statistic) -> Result<u64> {
        let mut value = 0;
        // SAFETY: the session is open.
        check(unsafe { kwt_statistic(self.raw, which as c_int, &mut value) })?;
        Ok(value.max(0) as u64)
    }

    /// The names of all tables.
    pub fn tables(&mut self) -> Result<Vec<String>> {
        let mut cursor = Cursor::open(self.raw, c"metadata:", None)?;
        let mut names = Vec::new();
        while cursor.next()? {
            let mut key = ptr::null();
            // SAFETY: the cursor is positioned, its keys are strings (key_format=S).
            let key = unsafe {
                check(kwt_get_key_s(cursor.raw, &mut key))?;
                CStr::from_ptr(key)
            };
            names.extend(key.to_string_lossy().strip_prefix("table:").map(str::to_owned));
        }
        Ok(names)
    }

    /// The session's cursor for this use of the table.
    pub fn cursor(&mut self, table: &Table, used: Use) -> Result<&mut Cursor> {
        use std::collections::hash_map::Entry;
        match self.cursors.entry((table.number, used)) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let config = if table.overwrite { None } else { Some(c"overwrite=false") };
                Ok(place.insert(Cursor::open(self.raw, &table.uri, config)?))
            }
        }
    }

    /// All cursors give their positions up.
    pub fn reset_cursors(&mut self) {
        self.cursors.values_mut().for_each(Cursor::reset);
    }

    /// How many cursors are open.
    pub fn cursors(&self) -> usize {
        self.cursors.len()
    }

    /// Closes the cursors on tables for which `gone` answers true.
    pub fn close_cursors(&mut self, gone: impl Fn(u64) -> bool) {
        self.cursors.retain(|(number, _), _| !gone(*number));
    }

    /// The end of a transaction resets all cursors.
    fn forget_positions(&mut self) {
        for cursor in self.cursors.values_mut() {
            cursor.at = None;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.cursors.clear();
        // SAFETY: the last use of the session; its cursors have been closed.
        let _ = check(unsafe { kwt_session_close(self.raw) });
    }
}

/// A position in a table.
pub struct Cursor {
    raw: *mut RawCursor,
    /// The record that it stands on, where that is known.
    at: Option<i64>,
}

impl Cursor {
    fn open(session: *mut RawSession, uri: &CStr, config: Option<&CStr>) -> Result<Cursor> {
        let mut raw = ptr::null_mut();
        let config = config.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the session is open, and outlives the cursor: `Session` drops its cursors first.
        check(unsafe { kwt_cursor_open(session, uri.as_ptr(), config, &mut raw) })?;
        Ok(Cursor { raw, at: None })
    }

    /// Gives the position up.
    pub fn reset(&mut self) {
        self.at = None;
        // SAFETY: the cursor is open.
        let _ = check(unsafe { kwt_reset(self.raw) });
    }

    /// Goes to the next item; without a position to the first.
    pub fn next(&mut self) -> Result<bool> {
        self.at = None;
        // SAFETY: the cursor is open.
        found(unsafe { kwt_next(self.raw) })
    }

    /// Goes to the item before; without a position to the last.
    pub fn prev(&mut self) -> Result<bool> {
        self.at = None;
        // SAFETY: the cursor is open.
        found(unsafe { kwt_prev(self.raw) })
    }

    /// Goes to the record, if it is there. From the record before it that is one step.
    pub fn search_record(&mut self, record: i64) -> Result<bool> {
        if self.at.is_some() && self.at == record.checked_sub(1) {
            if self.next()? && self.record()? == record {
                self.at = Some(record);
                return Ok(true);
            }
            return Ok(false);
        }
        self.at = None;
        // SAFETY: the cursor is open and of a table with key_format=q.
        let found = found(unsafe {
            kwt_set_key_q(self.raw, record);
            kwt_search(self.raw)
        })?;
        self.at = found.then_some(record);
        Ok(found)
    }

    /// Goes to the record or a neighbour; how the one found compares with it. `None`: the table is
    /// empty.
    pub fn near_record(&mut self, record: i64) -> Result<Option<std::cmp::Ordering>> {
        self.at = None;
        let mut exact = 0;
        // SAFETY: the cursor is open and of a table with key_format=q.
        let found = found(unsafe {
            kwt_set_key_q(self.raw, record);
            kwt_search_near(self.raw, &mut exact)
        })?;
        Ok(found.then(|| exact.cmp(&0)))
    }

    /// The record that it stands on.
    pub fn record(&mut self) -> Result<i64> {
        let mut key = 0;
        // SAFETY: the cursor is open and of a table with key_format=q.
        check(unsafe { kwt_get_key_q(self.raw, &mut key) })?;
        Ok(key)
    }

    /// Writes a record.
    pub fn put_record(&mut self, record: i64, value: &[u8]) -> Result<()> {
        self.at = None;
        // SAFETY: the cursor is open, of a table with key_format=q and value_format=u; the value
        // lives during the call.
        check(unsafe {
            kwt_set_key_q(self.raw, record);
            kwt_set_value_u(self.raw, value.as_ptr().cast(), value.len());
            kwt_insert(self.raw)
        })
    }

    /// Takes a record away.
    pub fn remove_record(&mut self, record: i64) -> Result<()> {
        self.at = None;
        // SAFETY: the cursor is open and of a table with key_format=q.
        check(unsafe {
            kwt_set_key_q(self.raw, record);
            kwt_remove(self.raw)
        })
    }

    fn set_key(&mut self, key: &[u8]) {
        self.at = None;
        // SAFETY: the cursor is open, of a table with key_format=u. The key is used by the
        // operation that the caller does at once, while it still borrows it.
        unsafe { kwt_set_key_u(self.raw, key.as_ptr().cast(), key.len()) }
    }

    /// Goes to the key, if it is there.
    pub fn search(&mut self, key: &[u8]) -> Result<bool> {
        self.set_key(key);
        // SAFETY: the cursor is open and its key set.
        found(unsafe { kwt_search(self.raw) })
    }

    /// Goes to the key or a neighbour; how the one found compares with it. `None`: the table is
    /// empty.
    pub fn near(&mut self, key: &[u8]) -> Result<Option<std::cmp::Ordering>> {
        self.set_key(key);
        let mut exact = 0;
        // SAFETY: the cursor is open and its key set.
        let found = found(unsafe { kwt_search_near(self.raw, &mut exact) })?;
        Ok(found.then(|| exact.cmp(&0)))
    }

    /// Inserts; `Ok(false)` if the key exists and the table does not overwrite.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.set_key(key);
        // SAFETY: the cursor is open and its key set; the value lives during the call.
        let code = unsafe {
            kwt_set_value_u(self.raw, value.as_ptr().cast(), value.len());
            kwt_insert(self.raw)
        };
        match check(code) {
            Err(Code::DUPLICATE_KEY) => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Replaces the value of a key that is there.
    pub fn update(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.set_key(key);
        // SAFETY: the cursor is open and its key set; the value lives during the call.
        check(unsafe {
            kwt_set_value_u(self.raw, value.as_ptr().cast(), value.len());
            kwt_update(self.raw)
        })
    }

    /// Takes a key away; whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool> {
        self.set_key(key);
        // SAFETY: the cursor is open and its key set.
        found(unsafe { kwt_remove(self.raw) })
    }

    /// The key that it stands on.
    pub fn key(&mut self) -> Result<&[u8]> {
        let (mut data, mut size) = (ptr::null(), 0);
        // SAFETY: the cursor is open, of a table with key_format=u.
        check(unsafe { kwt_get_key_u(self.raw, &mut data, &mut size) })?;
        // SAFETY: the bytes stay until the cursor or its session is used again, and both are
        // borrowed for as long as the slice lives.
        Ok(unsafe { lent(data, size) })
    }

    /// The value that it stands on.
    pub fn value(&mut self) -> Result<&[u8]> {
        let (mut data, mut size) = (ptr::null(), 0);
        // SAFETY: the cursor is open, of a table with value_format=u.
        check(unsafe { kwt_get_value_u(self.raw, &mut data, &mut size) })?;
        // SAFETY: as in `key`.
        Ok(unsafe { lent(data, size) })
    }

    /// Both.
    pub fn item(&mut self) -> Result<(&[u8], &[u8])> {
        let (mut key, mut key_size) = (ptr::null(), 0);
        let (mut value, mut value_size) = (ptr::null(), 0);
        // SAFETY: the cursor is open, of a table with key_format=u and value_format=u; getting one
        // leaves the other in place.
        unsafe {
            check(kwt_get_key_u(self.raw, &mut key, &mut key_size))?;
            check(kwt_get_value_u(self.raw, &mut value, &mut value_size))?;
            Ok((lent(key, key_size), lent(value, value_size)))
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: the last use of the cursor; its session is still open.
        let _ = check(unsafe { kwt_cursor_close(self.raw) });
    }
}

/// # Safety
/// `data` points to `size` bytes that stay as they are for `'a`, or `size` is 0.
unsafe fn lent<'a>(data: *const c_void, size: usize) -> &'a [u8] {
    if size == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(data.cast(), size) }
}

/// Size and used bytes of the file system that holds this directory.
pub fn space(path: &Path) -> Option<(u64, u64)> {
    let path = c_string(&path.to_string_lossy()).ok()?;
    let (mut total, mut used) = (0, 0);
    // SAFETY: the path is terminated and lives during the call.
    check(unsafe { kwt_space(path.as_ptr(), &mut total, &mut used) }).ok()?;
    Some((total, used))
}
