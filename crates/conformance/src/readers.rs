//! Recovery units, tickets, and other answers of the engine itself.

use super::Subject;
use super::inspect::Reader;
use super::table::{Table, TableIndex, doc};
use kauri_base::{Access, RecordId, Ticket};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_storage::Durability;
use kauri_storage::unit::{OpKind, WriteUnit};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

pub(super) fn bytes_stay_while_the_unit_is_entered(subject: &mut Subject) {
    let engine = subject.engine();
    let table = Table::create(&engine, 10, &[TableIndex::new(20, false, "k")]);
    let text = |i: usize| format!("{i}-").repeat(i * 10 + 1);
    let docs: Vec<_> = (0..100).map(|i| doc(i as i64, 0, &text(i))).collect();
    let ids: Vec<_> = docs.iter().map(|doc| table.insert(doc)).collect();
    engine.sync().expect("sync");
    let store = table.store();
    let mut unit = engine.recovery_unit();
    // What is cold is made warm first, so that all are held at once.
    let read = loop {
        unit.enter();
        let mut cold = None;
        let mut read: Vec<Doc<'_>> = Vec::new();
        for id in &ids {
            match store.get(&*unit, *id).expect("get") {
                Access::Ready(record) => read.push(record.expect("a record").doc),
                Access::WouldBlock(ticket) => cold = Some(ticket),
            }
        }
        match cold {
            None => break read,
            Some(ticket) => {
                drop(read);
                unit.leave();
                ticket.wait().expect("wait");
            }
        }
    };
    for (i, id) in ids.iter().enumerate() {
        match i % 3 {
            0 => table.delete(*id),
            1 => drop(table.update(*id, &doc(-1, 0, &"overwritten".repeat(i)))),
            _ => {}
        }
    }
    for i in 0..2000 {
        table.insert(&doc(i, 0, &"fills the place".repeat(20)));
    }
    engine.flush();
    engine.sync().expect("sync");
    let mut drop_store = WriteUnit::new();
    drop_store.push(table.id, RecordId(0), OpKind::DropStore);
    table.commit(&mut drop_store);
    engine.sync().expect("sync");
    for (read, doc) in read.iter().zip(&docs) {
        assert_eq!(read.as_bytes(), doc, "bytes changed under a reader");
    }
    unit.leave();
}

pub(super) fn a_unit_is_entered_and_left_many_times(subject: &mut Subject) {
    let engine = subject.engine();
    let table = Table::create(&engine, 10, &[]);
    let id = table.insert(&doc(0, 0, ""));
    let mut unit = engine.recovery_unit();
    assert!(!unit.is_entered());
    let mut last = None;
    for i in 1..200 {
        let seq = table.update(id, &doc(i, 0, ""));
        unit.enter();
        assert!(unit.is_entered());
        assert!(unit.snapshot() >= seq);
        assert!(Some(unit.snapshot()) > last, "snapshots ascend");
        last = Some(unit.snapshot());
        unit.leave();
        assert!(!unit.is_entered());
    }
}

pub(super) fn snapshots_cover_what_was_committed(subject: &mut Subject) {
    let engine = subject.engine();
    let table = Table::create(&engine, 10, &[TableIndex::new(20, true, "u")]);
    let mut last = None;
    for i in 0..300 {
        let mut unit = WriteUnit::new();
        let op = table.insert_in(&mut unit, &doc(i, i, ""));
        let ticket = table.commit(&mut unit);
        assert!(Some(ticket.seq) > last, "commits ascend");
        last = Some(ticket.seq);
        let mut reader = Reader::new(&*engine);
        assert!(reader.unit().snapshot() >= ticket.seq);
        let id = unit.ops[op].record;
        let record = reader.get(&*table.store(), id).expect("get").expect("just committed");
        assert_eq!(record.version, ticket.seq);
        assert_eq!(table.find(&table.indexes[0], i), Some(id));
    }
}

pub(super) fn units_are_independent(subject: &mut Subject) {
    let engine = subject.engine();
    let table = Table::create(&engine, 10, &[]);
    let id = table.insert(&doc(1, 0, "first"));
    let mut readers: Vec<_> = (0..50).map(|_| Reader::new(&*engine)).collect();
    table.update(id, &doc(2, 0, "second"));
    for (i, reader) in readers.iter_mut().enumerate() {
        let found = reader.get(&*table.store(), id).expect("get").expect("a record");
        assert!(found.doc == doc(1, 0, "first") || found.doc == doc(2, 0, "second"));
        if i % 2 == 0 {
            reader.unit().leave();
            reader.unit().enter();
            let found = reader.get(&*table.store(), id).expect("get").expect("a record");
            assert_eq!(found.doc, doc(2, 0, "second"));
        }
    }
    drop(readers);
    // A unit moves to another thread with its operation.
    let mut reader = Reader::new(&*engine);
    let (store, expected) = (table.store(), doc(2, 0, "second"));
    thread::scope(|scope| {
        scope.spawn(move || {
            let found = reader.get(&*store, id).expect("get").expect("a record");
            assert_eq!(found.doc, expected);
        });
    });
}

pub(super) fn tickets_resolve(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[]);
    for durability in [Durability::Written, Durability::Durable] {
        for i in 0..10 {
            let mut unit = WriteUnit::new();
            table.insert_in(&mut unit, &doc(i, 0, ""));
            let ticket = table.commit(&mut unit);
            ticket.wait(durability).expect("wait");
            ticket.wait(durability).expect("waiting again");
            ticket.wait(Durability::Written).expect("wait for the lesser");
        }
    }
    // Only the last one is waited for, and in the other order.
    let commit = |i| {
        let mut unit = WriteUnit::new();
        table.insert_in(&mut unit, &doc(i, 0, ""));
        table.commit(&mut unit)
    };
    let tickets: Vec<_> = (0..20).map(commit).collect();
    for ticket in tickets.iter().rev() {
        ticket.wait(Durability::Durable).expect("wait");
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn poll_once(ticket: Ticket) -> Poll<kauri_base::Result<()>> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    pin!(ticket).poll(&mut Context::from_waker(&waker))
}

pub(super) fn tickets_resolve_for_an_executor(subject: &mut Subject) {
    let engine = subject.engine();
    let table = Table::create(&engine, 10, &[]);
    for durability in [Durability::Written, Durability::Durable] {
        let mut unit = WriteUnit::new();
        table.insert_in(&mut unit, &doc(0, 0, ""));
        let ticket = table.commit(&mut unit);
        engine.flush();
        let Some(ticket) = ticket.ticket(durability).cloned() else { continue };
        if durability == Durability::Written {
            let polled = poll_once(ticket);
            assert!(matches!(polled, Poll::Ready(Ok(()))), "flush() writes what is committed");
            continue;
        }
        // An executor's thread: it polls once, and again when it is woken.
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut ticket = pin!(ticket);
        while ticket.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            thread::park();
        }
    }
}

pub(super) fn sync_leaves_no_ticket_waiting(subject: &mut Subject) {
    let engine = subject.engine();
    let table = Table::create(&engine, 10, &[]);
    for i in 0..5 {
        let mut unit = WriteUnit::new();
        table.insert_in(&mut unit, &doc(i, 0, ""));
        let commit = table.commit(&mut unit);
        engine.sync().expect("sync");
        for durability in [Durability::Written, Durability::Durable] {
            if let Some(ticket) = commit.ticket(durability).cloned() {
                let polled = poll_once(ticket);
                assert!(matches!(polled, Poll::Ready(Ok(()))), "{durability:?} after sync()");
            }
        }
    }
    engine.sync().expect("sync with nothing to do");
}

pub(super) fn many_threads_wait(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[]);
    thread::scope(|scope| {
        for t in 0..8 {
            let table = &table;
            scope.spawn(move || {
                for i in 0..10 {
                    let mut unit = WriteUnit::new();
                    table.insert_in(&mut unit, &doc(t, i, ""));
                    let ticket = table.commit(&mut unit);
                    let durability = [Durability::Durable, Durability::Written][i as usize % 2];
                    ticket.wait(durability).expect("wait");
                }
            });
        }
    });
    assert_eq!(table.records().len(), 80);
}

pub(super) fn an_empty_unit(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[]);
    let id = table.insert(&doc(1, 1, ""));
    let before = table.record(id);
    let ticket = table.commit(&mut WriteUnit::new());
    assert!(ticket.seq >= before.version, "it stands behind what was committed before it");
    ticket.wait(Durability::Durable).expect("wait");
    assert_eq!(table.record(id), before);
}

pub(super) fn a_unit_is_used_again(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[TableIndex::new(20, true, "u")]);
    let mut unit = WriteUnit::new();
    for i in 0..10 {
        unit.clear();
        assert!(unit.is_empty());
        table.insert_in(&mut unit, &doc(i, i, ""));
        table.commit(&mut unit);
    }
    // A refused unit may be committed again once it is not in the way of another any more.
    let id = table.insert(&doc(0, 50, ""));
    unit.clear();
    let op = table.insert_in(&mut unit, &doc(1, 50, ""));
    assert!(table.engine.commit(&mut unit).is_err());
    table.delete(id);
    table.commit(&mut unit);
    assert_eq!(table.find(&table.indexes[0], 50), Some(unit.ops[op].record));
    table.check();
}

pub(super) fn status_and_space(subject: &mut Subject) {
    let engine = subject.engine();
    let table = Table::create(&engine, 10, &[]);
    let payload = 100 * doc(0, 0, &"x".repeat(1000)).len() as u64;
    for i in 0..100 {
        table.insert(&doc(i, 0, &"x".repeat(1000)));
    }
    engine.sync().expect("sync");
    assert!(engine.space().used >= payload, "{:?} for {payload} bytes", engine.space());
    assert!(!engine.name().is_empty());
    let status = DocBuf::build(|w| engine.write_status(w));
    assert!(!status.as_doc().is_empty(), "an engine tells of itself");
    for elem in status.as_doc() {
        assert!(!matches!(elem.value(), Value::Missing), "{} is malformed", elem.key());
    }
}
