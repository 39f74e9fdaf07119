//! Clients that append to lists and read them, on whichever member leads.

use crate::world::Shared;
use kauri_base::virtual_time::VirtualClock;
use kauri_base::{Access, Clock, CollectionId, CommitSeq, RecordId, Timestamp};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_consistency::lists::{Outcome, Step, Transaction};
use kauri_member::acks::Concern;
use kauri_member::statements::Known;
use kauri_member::statements::table::Done;
use kauri_member::{Member, Request, SetCommitter};
use kauri_storage::{Committer, NumberedWrite, OpKind, StorageEngine, StorageError, WriteUnit};
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
    pub committer: Arc<SetCommitter>,
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
pub async fn within<T>(
    worker: &WorkerHandle,
    time: Duration,
    what: impl Future<Output = T>,
) -> Option<T> {
    let (mut what, mut limit) = (pin!(what), pin!(worker.sleep(time)));
    poll_fn(|cx| match what.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => limit.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// A client's program.
pub async fn run(number: u64, shared: Arc<Shared>, worker: WorkerHandle, dice: Dice) {
    let client = Client { number, shared, worker, dice };
    let mut write = 0;
    while !client.shared.is_over() {
        client.worker.sleep(Duration::from_micros(client.dice.below(30_000))).await;
        let Some(target) = client.leader() else { continue };
        let sent = client.shared.tick();
        let key = client.dice.below(KEYS);
        match client.dice.percent(60) {
            true => {
                write += 1;
                client.append(write, sent, key, target).await;
            }
            false => look(number, sent, key, &client.shared, &client.worker, &target).await,
        }
    }
}

struct Client {
    number: u64,
    shared: Arc<Shared>,
    worker: WorkerHandle,
    dice: Dice,
}

/// What an attempt has come to.
enum Attempt {
    /// It was refused.
    Refused,
    /// It is acknowledged, and has read this list.
    Done(Vec<u64>),
    /// It was executed before, and that is acknowledged.
    Executed,
    Unknown,
}

impl Client {
    /// A member that says that it leads.
    fn leader(&self) -> Option<Arc<Target>> {
        self.shared.target(&self.dice).filter(|target| target.member.is_writable())
    }

    /// Appends a value, as the session's write of this number, until it is known what has become of it.
    async fn append(&self, write: i64, sent: u64, key: u64, mut target: Arc<Target>) {
        let value = self.shared.next_value();
        let note = |outcome, list| {
            let steps = vec![Step::Read(key, list), Step::Append(key, value)];
            self.shared.note(Transaction { client: self.number, sent, outcome, steps });
        };
        let mut is_first = true;
        loop {
            match self.attempt(write, key, value, &target).await {
                Attempt::Refused if is_first => return note(Outcome::Aborted, None),
                Attempt::Done(list) => {
                    self.shared.count(|counts| counts.appends += 1);
                    note(Outcome::Committed(self.shared.tick()), Some(list));
                    break;
                }
                Attempt::Executed => {
                    self.shared.count(|counts| counts.answered += 1);
                    note(Outcome::Committed(self.shared.tick()), None);
                    break;
                }
                Attempt::Refused | Attempt::Unknown => {}
            }
            is_first = false;
            self.shared.count(|counts| counts.retries += 1);
            loop {
                self.worker.sleep(Duration::from_micros(self.dice.below(50_000))).await;
                if self.shared.is_over() {
                    return note(Outcome::Unknown, None);
                }
                if let Some(leader) = self.leader() {
                    target = leader;
                    break;
                }
            }
        }
        // The reply is lost now and then.
        if self.dice.percent(20)
            && let Some(leader) = self.leader()
        {
            self.attempt(write, key, value, &leader).await;
        }
    }

    async fn attempt(&self, write: i64, key: u64, value: u64, target: &Target) -> Attempt {
        let session = [self.number as u8; 16];
        // Some have a result of their own.
        let result =
            if value.is_multiple_of(2) { Vec::new() } else { value.to_le_bytes().to_vec() };
        let now_ms = VirtualClock.monotonic().as_millis() as u64;
        let commit = match target.member.statements().look(&session, write, 0, now_ms) {
            Ok(Known::Done(done)) => {
                let expected = match result.is_empty() {
                    true => Done::Plain,
                    false => Done::Result(result.into()),
                };
                assert_eq!(done, expected, "another result");
                None
            }
            _ => {
                let Some((version, mut list)) = read(&target.engine, key) else {
                    return Attempt::Refused;
                };
                let before = list.clone();
                list.push(value);
                let padding = if self.dice.percent(5) { 8_000 } else { 10 };
                let doc = list_doc(key, &list, padding).into_vec();
                let mut unit = WriteUnit::new();
                unit.update(LISTS, RecordId(key + 1), version, doc);
                let statements = vec![(0, result)];
                unit.numbered =
                    Some(Box::new(NumberedWrite { session, number: write, statements }));
                match target.committer.commit(&mut unit) {
                    Ok(commit) => Some((commit.seq, before)),
                    Err(_) => return Attempt::Refused,
                }
            }
        };
        let seq = commit.as_ref().map_or_else(|| target.engine.visible(), |(seq, _)| *seq);
        target.member.note_visible(seq);
        let concern = match self.dice.below(9) {
            0..=3 => Concern::Majority,
            4..=7 => Concern::Committed,
            _ => Concern::Members { count: 2, durable: self.dice.percent(50) },
        };
        let acknowledged = match target.member.acknowledged(seq, &concern) {
            Ok(Some(ticket)) => within(&self.worker, PATIENCE, ticket).await,
            Ok(None) => Some(Ok(())),
            Err(_) => None,
        };
        match (acknowledged, commit) {
            (Some(Ok(())), Some((_, list))) => Attempt::Done(list),
            (Some(Ok(())), None) => Attempt::Executed,
            _ => Attempt::Unknown,
        }
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
        Ok(Some(ticket)) => {
            within(worker, PATIENCE, ticket).await.is_some_and(|result| result.is_ok())
        }
        Ok(None) => true,
        Err(_) => false,
    };
    let confirmed = within(worker, PATIENCE, target.member.request(Request::ConfirmPrimary)).await;
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
        if matches!(within(&worker, PATIENCE, target.member.request(request)).await, Some(Ok(()))) {
            shared.count(|counts| counts.step_downs += 1);
        }
    }
}

/// Asks members for a time that nobody has told of yet: the leader makes an entry for it, between those of writes.
pub async fn ask_for_times(shared: Arc<Shared>, worker: WorkerHandle, dice: Dice) {
    while !shared.is_over() {
        worker.sleep(Duration::from_micros(dice.below(40_000))).await;
        let Some(target) = shared.target(&dice) else { continue };
        let now = target.member.cluster_time();
        let time = Timestamp { increment: now.increment + 1 + dice.below(3) as u32, ..now };
        let reached = within(&worker, PATIENCE, target.member.request(Request::Reach(time))).await;
        if reached == Some(Ok(())) {
            let told = target.member.operation_time(target.engine.visible());
            if told < time {
                shared.fault(format!("{time:?} is reached, and {told:?} is told"));
            }
            shared.count(|counts| counts.times += 1);
        }
    }
}
