//! Directories and log files of the file system.

use crate::common::{TempDir, with_faults};
use kauri_medium::faults::Fault;
use kauri_medium::plain::PlainDirectory;
use kauri_medium::{Buffer, DIRECT_ALIGN, Directory, Error, Faults, IoKind, Medium};
use std::io::{IoSlice, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

fn directory(dir: &TempDir) -> PlainDirectory {
    PlainDirectory::open(dir.path()).unwrap()
}

#[test]
fn a_log_keeps_what_was_stored_and_is_never_sparse() {
    let dir = TempDir::new("log");
    let log = directory(&dir).create_log("a.log", "t").unwrap();
    assert_eq!(log.len(), 0);
    log.grow(1 << 20).unwrap();
    log.grow(10).unwrap();
    assert_eq!(log.len(), 1 << 20);
    let file = std::fs::metadata(dir.path().join("a.log")).unwrap();
    assert_eq!(file.len(), 1 << 20);
    assert!(file.blocks() * 512 >= 1 << 20, "the space is really there");

    let parts = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two")];
    log.store(4095, &parts).unwrap();
    log.persist(4095, 6, "t").unwrap();
    log.drain("t").unwrap();
    let mut into = [9; 8];
    log.read(4094, &mut into).unwrap();
    assert_eq!(&into, b"\0onetwo\0");

    drop(log);
    let log = directory(&dir).open_log("a.log").unwrap();
    assert_eq!(log.len(), 1 << 20);
    log.read(4095, &mut into[..6]).unwrap();
    assert_eq!(&into[..6], b"onetwo");
}

#[test]
fn direct_reads_return_the_last_stored_bytes() {
    let dir = TempDir::new("once");
    let log = directory(&dir).create_log("a.log", "t").unwrap();
    let len = 8 * DIRECT_ALIGN;
    log.grow(len as u64).unwrap();
    let mut bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
    log.store(0, &[IoSlice::new(&bytes)]).unwrap();
    // Another file with its name changes nothing.
    std::fs::remove_file(dir.path().join("a.log")).unwrap();
    directory(&dir).create_log("a.log", "t").unwrap();
    let mut buffer = Buffer::default();
    for round in 0..2 {
        for (from, to) in [(0, len), (DIRECT_ALIGN, 3 * DIRECT_ALIGN), (5, 20), (0, 100), (77, len)]
        {
            log.read_once(from as u64, buffer.room(to - from)).unwrap();
            assert_eq!(buffer.bytes(), &bytes[from..to], "{from} to {to}");
        }
        let mut unaligned = vec![0; DIRECT_ALIGN + 1];
        log.read_once(0, &mut unaligned[1..]).unwrap();
        assert_eq!(unaligned[1..], bytes[..DIRECT_ALIGN]);
        // Not durable yet, but readable.
        bytes[DIRECT_ALIGN + 1] = round;
        log.store(DIRECT_ALIGN as u64 + 1, &[IoSlice::new(&[round])]).unwrap();
    }
    let beyond = log.read_once(len as u64, buffer.room(DIRECT_ALIGN));
    assert_eq!(beyond, Err(Error::OutOfBounds));
}

#[test]
fn more_slices_than_the_kernel_takes_at_once_are_stored_in_order() {
    let dir = TempDir::new("slices");
    let log = directory(&dir).create_log("a.log", "t").unwrap();
    log.grow(1 << 16).unwrap();
    let bytes: Vec<u8> = (0..9000u32).map(|i| (i % 251) as u8).collect();
    let parts: Vec<IoSlice<'_>> = bytes.chunks(3).map(IoSlice::new).collect();
    assert!(parts.len() > 2048);
    log.store(100, &parts).unwrap();
    let mut back = vec![0; bytes.len()];
    log.read(100, &mut back).unwrap();
    assert_eq!(back, bytes);
}

#[test]
fn addresses_beyond_the_file_are_refused() {
    let dir = TempDir::new("bounds");
    let log = directory(&dir).create_log("a.log", "t").unwrap();
    log.grow(4096).unwrap();
    assert_eq!(log.store(4095, &[IoSlice::new(b"xy")]), Err(Error::OutOfBounds));
    assert_eq!(log.store(u64::MAX, &[IoSlice::new(b"xy")]), Err(Error::OutOfBounds));
    assert_eq!(log.read(4095, &mut [0; 2]), Err(Error::OutOfBounds));
    assert_eq!(log.persist(0, 4097, "t"), Err(Error::OutOfBounds));
    assert_eq!(log.read(4095, &mut [0; 1]), Ok(()));
}

#[test]
fn lack_of_space_fails_growing_without_a_change() {
    let dir = TempDir::new("space");
    let log = directory(&dir).create_log("a.log", "t").unwrap();
    log.grow(8192).unwrap();
    // More than the maximum file size of the file system.
    assert_eq!(log.grow(i64::MAX as u64), Err(Error::NoSpace));
    assert_eq!(log.grow(u64::MAX), Err(Error::NoSpace));
    assert_eq!(log.len(), 8192);
    assert_eq!(std::fs::metadata(dir.path().join("a.log")).unwrap().len(), 8192);
}

#[test]
fn a_failed_drain_is_final() {
    let dir = TempDir::new("drain");
    let faults = Arc::new(Faults::new());
    let directory = PlainDirectory::open_with(dir.path(), with_faults(&faults)).unwrap();
    let log = directory.create_log("a.log", "t").unwrap();
    log.grow(4096).unwrap();
    log.drain("t").unwrap();
    faults.inject(IoKind::Drain, 0, 1, Fault::Eio);
    assert_eq!(log.drain("t"), Err(Error::Io { kind: IoKind::Drain, errno: libc::EIO }));
    assert_eq!(log.drain("t"), Err(Error::DrainFailed));
    assert_eq!(log.drain("t"), Err(Error::DrainFailed));
}

/// Threads drain concurrently until a sync was shared. Whether two drains overlap is up to the scheduler.
#[test]
fn drains_at_the_same_time_share_syncs() {
    const THREADS: usize = 8;
    const DRAINS: usize = 20;
    const PATIENCE: Duration = Duration::from_secs(60);
    let dir = TempDir::new("share");
    let faults = Arc::new(Faults::new());
    faults.watch();
    let directory = PlainDirectory::open_with(dir.path(), with_faults(&faults)).unwrap();
    let log = directory.create_log("a.log", "t").unwrap();
    log.grow(4096 * THREADS as u64).unwrap();
    let (began, start) = (Instant::now(), Barrier::new(THREADS));
    for rounds in 1u64.. {
        thread::scope(|scope| {
            for i in 0..THREADS {
                let (log, start) = (&log, &start);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..DRAINS {
                        log.store(4096 * i as u64, &[IoSlice::new(b"x")]).unwrap();
                        log.drain("t").unwrap();
                    }
                });
            }
        });
        let syncs = faults.io_count(IoKind::Drain);
        assert!(syncs >= rounds * DRAINS as u64, "each round has its own syncs");
        if syncs < rounds * (THREADS * DRAINS) as u64 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{syncs} syncs: none was shared");
    }
}

#[test]
fn small_files_are_replaced_whole() {
    let dir = TempDir::new("small");
    let directory = directory(&dir);
    assert_eq!(directory.read_file("meta"), Ok(None));
    directory.replace_file("meta", b"first", "t").unwrap();
    // A reader that has the old file open keeps it: it is not overwritten.
    let mut first = std::fs::File::open(dir.path().join("meta")).unwrap();
    directory.replace_file("meta", b"second", "t").unwrap();
    let mut kept = String::new();
    first.read_to_string(&mut kept).unwrap();
    assert_eq!(kept, "first");
    assert!(!dir.path().join("meta.tmp").exists());
    directory.replace_file("other", b"", "t").unwrap();
    assert_eq!(directory.read_file("meta"), Ok(Some(b"second".to_vec())));
    // The remains of a crash in the middle are ignored and cause no error.
    std::fs::write(dir.path().join("meta.tmp"), b"half").unwrap();
    assert_eq!(directory.list().unwrap(), ["meta", "other"]);
    directory.replace_file("meta", b"third", "t").unwrap();
    assert_eq!(directory.read_file("meta"), Ok(Some(b"third".to_vec())));
    directory.remove_file("other", "t").unwrap();
    assert_eq!(directory.remove_file("other", "t"), Err(Error::NotFound));
    assert_eq!(directory.list().unwrap(), ["meta"]);
    assert!(matches!(directory.open_log("absent"), Err(Error::NotFound)));
}

#[test]
fn staged_bytes_are_in_the_file_at_once() {
    let dir = TempDir::new("staging");
    let directory = directory(&dir);
    directory.replace_file("staging", b"older, and longer than the new one", "t").unwrap();
    let mut staging = directory.create_staging("staging", &[0; 4096]).unwrap();
    assert_eq!((staging.len(), directory.read_file("staging")), (4096, Ok(Some(vec![0; 4096]))));
    assert!(staging.put(100, &[b"one", b"", b"two"]));
    assert!(staging.put(4093, &[b"end"]));
    let mut expected = vec![0; 4096];
    expected[100..106].copy_from_slice(b"onetwo");
    expected[4093..].copy_from_slice(b"end");
    for (at, parts) in
        [(4094, [&b"end"[..], b""]), (4090, [b"four", b"five"]), (usize::MAX, [b"x", b"y"])]
    {
        assert!(!staging.put(at, &parts), "{at}");
    }
    assert_eq!(directory.read_file("staging"), Ok(Some(expected.clone())));
    drop(staging);
    assert_eq!(directory.read_file("staging"), Ok(Some(expected)));
    let again = directory.create_staging("staging", &[1; 8192]).unwrap();
    assert_eq!((again.len(), directory.read_file("staging")), (8192, Ok(Some(vec![1; 8192]))));
    assert_eq!(directory.create_staging("staging", &[]).err(), Some(Error::Unsupported));
    assert_eq!(directory.read_file("staging"), Ok(None));
    assert_eq!(directory.create_staging("../staging", &[0]).err(), Some(Error::InvalidName));
}

#[test]
fn names_outside_the_directory_are_refused() {
    let dir = TempDir::new("names");
    let directory = directory(&dir);
    for name in ["", ".", "..", "a/b", "/etc/passwd", "mongod.lock", "x.tmp", "nul\0"] {
        assert_eq!(directory.read_file(name), Err(Error::InvalidName), "{name:?}");
        assert_eq!(directory.replace_file(name, b"", "t"), Err(Error::InvalidName), "{name:?}");
        assert!(matches!(directory.create_log(name, "t"), Err(Error::InvalidName)), "{name:?}");
    }
}

#[test]
fn one_server_at_a_time() {
    let dir = TempDir::new("lock");
    let lock = directory(&dir).lock().unwrap();
    assert_eq!(directory(&dir).list(), Ok(Vec::new()));
    assert!(!lock.was_unclean());
    let pid = std::process::id() as i32;
    assert!(matches!(
        directory(&dir).lock(),
        Err(Error::AlreadyLocked { pid: Some(holder) }) if holder == pid
    ));
    let text = std::fs::read_to_string(dir.path().join("mongod.lock")).unwrap();
    assert_eq!(text, format!("{pid}\n"));
    // A process that died has left its id in the file.
    drop(lock);
    let lock = directory(&dir).lock().unwrap();
    assert!(lock.was_unclean());
    lock.release_clean().unwrap();
    assert!(!directory(&dir).lock().unwrap().was_unclean());
}

#[test]
fn every_failure_of_the_file_system_is_returned() {
    let dir = TempDir::new("faults");
    let faults = Arc::new(Faults::new());
    let directory = PlainDirectory::open_with(dir.path(), with_faults(&faults)).unwrap();
    let log = directory.create_log("a.log", "t").unwrap();
    log.grow(4096).unwrap();
    directory.replace_file("meta", b"old", "t").unwrap();
    let failing = |kind, io: &dyn Fn() -> Result<(), Error>| {
        faults.inject(kind, 0, 1, Fault::Eio);
        assert_eq!(io(), Err(Error::Io { kind, errno: libc::EIO }), "{kind:?}");
        faults.inject(kind, 0, 1, Fault::Enospc);
        assert_eq!(io(), Err(Error::NoSpace), "{kind:?}");
    };
    failing(IoKind::Read, &|| log.read(0, &mut [0]));
    failing(IoKind::Read, &|| log.read_once(0, &mut [0]));
    failing(IoKind::Read, &|| log.read_once(0, Buffer::default().room(DIRECT_ALIGN)));
    failing(IoKind::Store, &|| log.store(0, &[IoSlice::new(b"x")]));
    failing(IoKind::Grow, &|| log.grow(8192));
    failing(IoKind::Open, &|| directory.open_log("a.log").map(drop));
    failing(IoKind::FileRead, &|| directory.read_file("meta").map(drop));
    failing(IoKind::FileRead, &|| directory.list().map(drop));
    failing(IoKind::FileWrite, &|| directory.replace_file("meta", b"new", "t"));
    failing(IoKind::FileSync, &|| directory.replace_file("meta", b"new", "t"));
    failing(IoKind::FileRename, &|| directory.replace_file("meta", b"new", "t"));
    failing(IoKind::Lock, &|| directory.lock().map(drop));
    assert_eq!(directory.read_file("meta"), Ok(Some(b"old".to_vec())));
    failing(IoKind::DirectorySync, &|| directory.replace_file("meta", b"new", "t"));
    assert_eq!(directory.read_file("meta"), Ok(Some(b"new".to_vec())));
    assert_eq!(log.len(), 4096);
    for kind in [IoKind::FileWrite, IoKind::FileSync, IoKind::FileRename, IoKind::DirectorySync] {
        failing(kind, &|| directory.create_staging("staging", &[0; 64]).map(drop));
    }
}

#[test]
fn a_medium_is_an_object_that_threads_share() {
    fn shared<T: Send + Sync + ?Sized>() {}
    shared::<dyn Medium>();
    shared::<dyn Directory>();
}
