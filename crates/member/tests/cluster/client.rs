//! Clients that append to lists and read them, on whichever member leads.

use crate::world::Shared;
use kauri_base::{Access, CollectionId, CommitSeq, RecordId};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_consistency::lists::{Outcome, Step, Transaction};
use kauri_member::acks::Concern;
use kauri_member::{Member, Request};
use kauri_storage::{OpKind, StorageEngine, StorageError, WriteUnit};
use kauri_storage_log::PmLog;
use kauri_testkit::Dice;
use kauri_transport::WorkerHandle;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The collection of the lists.
pub const LISTS: CollectionId = CollectionId(5);
/// Number of lists. A list's record has its number, and one more.
pub const KEYS: u64 = 4;
const PATIENCE: Duration = Duration::from_millis(400);

/// A member that a client talks to.
pub struct Target {
    pub member: Arc<Member>,
    pub engine: Arc<PmLog>,
}

/// Creates the lists.
pub fn prepare(target: &Target) -> Result<CommitSeq, StorageError> {
    let mut unit = WriteUnit::new();
    unit.push(LISTS, RecordId(0), OpKind::CreateStore);
    for key in 0..KEYS {
        unit.insert(LISTS, list_doc(key, &[], 0).into_vec());
    }
    let seq = target.engine.commit(&mut unit)?.seq;
    target.member.note_visible(seq);
    Ok(seq)
}

fn list_doc(key: u64, list: &[u64], padding: usize) -> DocBuf {
    DocBuf::build(|out| {
        out.put("_id", key as i64);
        let mut array = out.array("list");
        list.iter().for_each(|value| array.push(*value as i64));
        drop(array);
        out.put("padding", Value::Binary { subtype: 0, bytes: vec![7; padding].into() });
    })
}

/// The list in a document.
pub fn list_of(doc: Doc<'_>) -> Vec<u64> {
    let array = doc.value("list");
    let numbers = array.as_array().into_iter().flatten().filter_map(|elem| match elem.value() {
        Value::Int64(value) => Some(value as u64),
        _ => None,
    });
    numbers.collect()
}

/// A list with its version. `None`: the member has no such list now.
fn read(engine: &PmLog, key: u64) -> Option<(CommitSeq, Vec<u64>)> {
    let store = engine.record_store(LISTS)?;
    let mut unit = engine.recovery_unit();
    loop {
        unit.enter();
        let found = match store.get(&*unit, RecordId(key + 1)) {
            Ok(Access::Ready(record)) => Ok(record.map(|of| (of.version, list_of(of.doc)))),
            Ok(Access::WouldBlock(ticket)) => Err(ticket),
            Err(_) => Ok(None),
        };
        unit.leave();
        match found {
            Ok(found) => return found,
            Err(ticket) => ticket.wait().ok()?,
        }
    }
}

/// Waits for this long at most.
async fn within<T>(worker: &WorkerHandle, what: impl Future<Output = T>) -> Option<T> {
    let (mut what, mut limit) = (pin!(what), pin!(worker.sleep(PATIENCE)));
    poll_fn(|cx| match what.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => limit.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// A client's program.
pub async fn run(number: u64, shared: Arc<Shared>, worker: WorkerHandle, dice: Dice) {
    while !shared.is_over() {
        worker.sleep(Duration::from_micros(dice.below(30_000))).await;
        let Some(target) = shared.target(&dice) else { continue };
        if !target.member.is_writable() {
            continue;
        }
        let sent = shared.tick();
        let key = dice.below(KEYS);
        match dice.percent(60) {
            true => append(number, sent, key, &shared, &worker, &target, &dice).await,
            false => look(number, sent, key, &shared, &worker, &target).await,
        }
    }
}

async fn append(
    client: u64,
    sent: u64,
    key: u64,
    shared: &Shared,
    worker: &WorkerHandle,
    target: &Target,
    dice: &Dice,
) {
    let Some((version, mut list)) = read(&target.engine, key) else { return };
    let value = shared.next_value();
    let steps = vec![Step::Read(key, Some(list.clone())), Step::Append(key, value)];
    list.push(value);
    let padding = if dice.percent(5) { 8_000 } else { 10 };
    let mut unit = WriteUnit::new();
    unit.update(LISTS, RecordId(key + 1), version, list_doc(key, &list, padding).into_vec());
    let note = |outcome| {
        let mut steps = steps.clone();
        if outcome == Outcome::Unknown {
            // It may have read what the set has not kept.
            steps[0] = Step::Read(key, None);
        }
        shared.note(Transaction { client, sent, outcome, steps });
    };
    let Ok(commit) = target.engine.commit(&mut unit) else { return note(Outcome::Aborted) };
    target.member.note_visible(commit.seq);
    let concern = if dice.percent(50) { Concern::Majority } else { Concern::Committed };
    let acknowledged = match target.member.acknowledged(commit.seq, &concern) {
        Ok(Some(ticket)) => within(worker, ticket).await,
        Ok(None) => Some(Ok(())),
        Err(_) => None,
    };
    match acknowledged {
        Some(Ok(())) => {
            shared.count(|counts| counts.appends += 1);
            note(Outcome::Committed(shared.tick()));
        }
        _ => note(Outcome::Unknown),
    }
}

/// A linearizable read.
async fn look(
    client: u64,
    sent: u64,
    key: u64,
    shared: &Shared,
    worker: &WorkerHandle,
    target: &Target,
) {
    let Some((version, list)) = read(&target.engine, key) else { return };
    let seen = match target.member.acknowledged(version, &Concern::Majority) {
        Ok(Some(ticket)) => within(worker, ticket).await.is_some_and(|result| result.is_ok()),
        Ok(None) => true,
        Err(_) => false,
    };
    let confirmed = within(worker, target.member.request(Request::ConfirmPrimary)).await;
    if seen && confirmed.is_some_and(|result| result.is_ok()) {
        shared.count(|counts| counts.reads += 1);
        let (outcome, steps) =
            (Outcome::Committed(shared.tick()), vec![Step::Read(key, Some(list))]);
        shared.note(Transaction { client, sent, outcome, steps });
    }
}

/// Now and then somebody wants another leader.
pub async fn step_down(shared: Arc<Shared>, worker: WorkerHandle, dice: Dice) {
    while !shared.is_over() {
        worker.sleep(Duration::from_millis(500 + dice.below(3_000))).await;
        let Some(target) = shared.target(&dice) else { continue };
        let request = match target.member.is_writable() {
            true => Request::StepDown {
                time: Duration::from_millis(dice.below(500)),
                catch_up: Duration::from_millis(dice.below(300)),
                force: dice.percent(30),
            },
            false => Request::StepUp,
        };
        if matches!(within(&worker, target.member.request(request)).await, Some(Ok(()))) {
            shared.count(|counts| counts.step_downs += 1);
        }
    }
}
