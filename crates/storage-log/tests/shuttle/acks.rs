//! Acknowledgements: every ticket resolves. It succeeds only if the commit has the ticket's durability, and
//! fails if the medium has failed.

use crate::harness::{On, explore, open, table};
use kauri_base::sync::thread;
use kauri_conformance::inspect;
use kauri_conformance::table::{Table, doc};
use kauri_emulator::Emulator;
use kauri_medium::faults::Fault;
use kauri_medium::{Directory, IoKind};
use kauri_storage::{CommitTicket, Durability, StorageEngine, WriteUnit};
use kauri_storage_log::PmLog;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

/// An acknowledgement: the document, and the number of the medium's events before it.
type Acked = (Vec<u8>, usize);

#[derive(Default)]
struct Notes {
    written: Vec<Acked>,
    durable: Vec<Acked>,
    failures: usize,
}

fn insert(table: &Table, emulator: &Emulator, doc: Vec<u8>, notes: &Mutex<Notes>) {
    let mut unit = WriteUnit::new();
    table.insert_in(&mut unit, &doc);
    let Ok(ticket) = table.engine.commit(&mut unit) else {
        notes.lock().expect("notes").failures += 1;
        return;
    };
    for durability in [Durability::Written, Durability::Durable] {
        let waited = ticket.wait(durability);
        let events = emulator.events();
        let mut notes = notes.lock().expect("notes");
        match (waited, durability) {
            (Err(_), _) => notes.failures += 1,
            (Ok(()), Durability::Written) => notes.written.push((doc.clone(), events)),
            (Ok(()), Durability::Durable) => notes.durable.push((doc.clone(), events)),
        }
    }
}

/// Checks that a directory, crashed after this many events, has everything acknowledged by then.
fn check(found: &Emulator, acked: &[Acked], events: usize) {
    let engine = open(found);
    let records = inspect::records(&*engine, kauri_base::CollectionId(10)).expect("scan");
    for (doc, at) in acked {
        let there = records.values().any(|record| record.doc == *doc);
        assert!(there || *at > events, "acknowledged at {at}, and gone at {events}");
    }
}

/// Writers that wait, and a thread that flushes and syncs. With `fail` that many drains succeed, then all fail.
/// Documents have `text` bytes of text.
fn model(on: On, fail: Option<u64>, text: usize) {
    let emulator = on.emulator();
    let text = &"x".repeat(text)[..];
    let engine = open(&emulator);
    let table = table(&engine, 10);
    engine.sync().expect("syncing");
    if let Some(after) = fail {
        emulator.faults().inject(IoKind::Drain, after, u64::MAX, Fault::Eio);
    }
    let notes = Mutex::new(Notes::default());
    thread::scope(|scope| {
        let (table, engine, emulator, notes) = (&table, &engine, &emulator, &notes);
        for n in 0..3 {
            scope.spawn(move || {
                insert(table, emulator, doc(n, n, text), notes);
                insert(table, emulator, doc(n, 10 + n, text), notes);
            });
        }
        scope.spawn(move || {
            for _ in 0..2 {
                engine.flush();
                // The tickets report its failure.
                let _ = engine.flush_round();
            }
        });
    });
    let Notes { written, durable, failures } = notes.into_inner().expect("notes");
    assert_eq!(failures > 0, fail.is_some());
    assert!(fail.is_some() || durable.len() == 6);
    if let Some((_, at)) = durable.get(durable.len() / 2) {
        check(&emulator.crash_at(*at, &mut |_| 0), &durable, *at);
    }
    for (_, at) in written.get(written.len() / 2).into_iter().chain(written.last()) {
        check(&emulator.process_death_at(*at, usize::MAX), &written, *at);
    }
}

/// One thread commits documents with `text` bytes of text, the first of which wait to be flushed. Another one
/// stores. Whenever the process dies, everything acknowledged survives.
fn staged_beside_storing(text: usize, waiting: i64, acknowledged: i64) {
    let emulator = On::Staged.emulator();
    let engine = open(&emulator);
    let table = table(&engine, 10);
    engine.sync().expect("syncing");
    let text = &"x".repeat(text)[..];
    let commit = |n| {
        let (mut unit, document) = (WriteUnit::new(), doc(n, n, text));
        table.insert_in(&mut unit, &document);
        (engine.commit(&mut unit).expect("committing"), document)
    };
    let before: Vec<_> = (0..waiting).map(|n| commit(n).1).collect();
    let mut acked: Vec<Acked> = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| (0..2).for_each(|_| engine.flush_round().expect("flushing")));
        for n in waiting..waiting + acknowledged {
            let (ticket, document) = commit(n);
            ticket.wait(Durability::Written).expect("written");
            acked.push((document, emulator.events()));
        }
    });
    // Commits before the first acknowledged one were acknowledged with it.
    let first = acked.first().map_or(0, |(_, at)| *at);
    acked.extend(before.into_iter().map(|document| (document, first)));
    for (_, at) in &acked {
        check(&emulator.process_death_at(*at, usize::MAX), &acked, *at);
    }
}

/// Whether waiting for a ticket returns at once, without any other thread.
fn is_ready(ticket: &CommitTicket) -> bool {
    let Some(ticket) = ticket.ticket(Durability::Written) else { return true };
    let mut context = Context::from_waker(Waker::noop());
    matches!(Pin::new(&mut ticket.clone()).poll(&mut context), Poll::Ready(Ok(())))
}

/// A flush does not wait for flushes of other threads. When all have returned, everything is flushed, whichever
/// thread held the lock for whatever reason.
fn flushes(on: On, other: fn(&PmLog, &Table)) {
    let emulator = on.emulator();
    let engine = open(&emulator);
    let table = table(&engine, 10);
    engine.sync().expect("syncing");
    let tickets = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let (table, engine, tickets) = (&table, &engine, &tickets);
        for n in 0..2 {
            scope.spawn(move || {
                for document in [doc(n, n, ""), doc(n, 10 + n, "")] {
                    let mut unit = WriteUnit::new();
                    table.insert_in(&mut unit, &document);
                    let ticket = engine.commit(&mut unit).expect("committing");
                    tickets.lock().expect("tickets").push(ticket);
                    engine.flush();
                }
            });
        }
        scope.spawn(move || other(engine, table));
    });
    let tickets = tickets.into_inner().expect("tickets");
    assert_eq!(tickets.iter().filter(|ticket| is_ready(ticket)).count(), 4);
}

/// Waits as the blocking threads of an engine do.
fn wait_for_one(engine: &PmLog, table: &Table) {
    let mut unit = WriteUnit::new();
    table.insert_in(&mut unit, &doc(7, 7, ""));
    let ticket = engine.commit(&mut unit).expect("committing");
    ticket.wait(Durability::Written).expect("written");
}

#[test]
fn concurrent_flushes_skip_no_commit() {
    for on in [On::Disk, On::Staged] {
        explore(700, move || flushes(on, |engine, _| engine.flush()));
        explore(700, move || flushes(on, |engine, _| engine.flush_round().expect("flushing")));
        explore(700, move || flushes(on, wait_for_one));
    }
}

#[test]
fn acknowledged_commits_are_on_the_medium() {
    explore(700, || model(On::Disk, None, 0));
    explore(700, || model(On::Staged, None, 0));
}

#[test]
fn commits_that_another_thread_stores_are_not_skipped() {
    // Two documents fill a segment.
    explore(700, || staged_beside_storing(24 << 10, 3, 1));
}

#[test]
fn entries_staged_during_a_store_are_not_released() {
    // Two documents fill the staging file, five a segment.
    explore(700, || staged_beside_storing(11 << 10, 0, 4));
}

/// The commits wrap around the staging file and span the ends of segments.
#[test]
fn acknowledged_large_documents_are_on_the_medium() {
    explore(700, || model(On::Staged, None, 11 << 10));
}

#[test]
fn a_failed_drain_fails_its_tickets() {
    explore(700, || model(On::Disk, Some(1), 0));
    explore(700, || model(On::Staged, Some(1), 0));
}
