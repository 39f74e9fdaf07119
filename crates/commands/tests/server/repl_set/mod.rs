//! A member of a replica set. The test is its driver: it publishes views and answers requests.

mod commands;
mod fail_points;
mod hello;
mod leading;
mod oplog;
mod reads;
mod retries;
mod roles;
mod writes;

use crate::common::{Client, TestServer, at, number, show, until};
use kauri_base::{CommitSeq, Result, Timestamp};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_member::{Member, MemberConfig, MemberState, Request, SetConfig, View};
use kauri_storage::{EphemeralEngine, StorageEngine};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A commit far behind all of a test's.
pub const ALL: u64 = 1 << 40;

pub struct Rig {
    pub test: TestServer,
    pub member: Arc<Member>,
    pub client: Client,
}

/// A set of these members, of which the first is this server.
pub fn config(members: usize) -> SetConfig {
    let mut config = SetConfig::alone("rs0", "test:1", [7; 12]);
    config.term = 1;
    config.members.extend((1..members).map(|n| MemberConfig::new(n as u8, &format!("other{n}:1"))));
    config
}

pub fn view_of(state: MemberState, config: SetConfig) -> View {
    let is_primary = state == MemberState::Primary;
    View {
        state,
        primary: Some(if is_primary || config.members.len() == 1 { 0 } else { 1 }),
        config: Some(Arc::new(config)),
        me: Some(0),
        term: 3,
        is_writable: is_primary,
        elected: is_primary.then_some((5_000, Timestamp { seconds: 5, increment: 1 })),
        ..View::default()
    }
}

impl Rig {
    /// A member that nobody has initiated.
    pub fn start() -> Rig {
        Rig::start_on(Arc::new(EphemeralEngine::new()))
    }

    /// The same on this engine.
    pub fn start_on(engine: Arc<dyn StorageEngine>) -> Rig {
        let member = Member::new("rs0");
        let test = TestServer::start_member_on(engine, member.clone());
        let client = test.client();
        Rig { test, member, client }
    }

    /// A primary of this many members, which acknowledges nothing by itself.
    pub fn primary(members: usize) -> Rig {
        Rig::start().leading(members)
    }

    /// The member becomes the primary of this many members.
    pub fn leading(self, members: usize) -> Rig {
        let rig = self;
        rig.publish(MemberState::Primary, members);
        rig.member.acks().begin();
        rig.member.set_times(CommitSeq(0), 100 << 32, 100 << 32 | 1);
        rig
    }

    /// The same, which acknowledges everything; with documents 0 to 3 in `test.c`.
    pub fn acknowledging(members: usize) -> Rig {
        let rig = Rig::primary(members);
        rig.acknowledge_all();
        rig.client.insert("c", (0..4).map(|n| doc! { "_id" => n }));
        rig
    }

    /// The same, which has acknowledged these documents, and nothing behind them.
    pub fn caught_up(config: SetConfig) -> Rig {
        let rig = Rig::primary(1);
        rig.member.publish(view_of(MemberState::Primary, config));
        let documents = Value::array((0..4).map(|n| Value::from(doc! { "_id" => n })));
        rig.client.send(&doc! { "insert" => "c", "documents" => documents });
        until("an acknowledged insert", || {
            rig.acknowledge_present();
            rig.client.receive_within(Duration::ZERO).is_some()
        });
        rig
    }

    /// Acknowledges what has been committed so far.
    pub fn acknowledge_present(&self) {
        let present = self.visible().0;
        self.member.acks().reach(|_| present);
    }

    /// The newest commit.
    pub fn visible(&self) -> CommitSeq {
        self.test.server.backend.engine().visible()
    }

    /// Waits until an operation on `test.c` is under way.
    pub fn until_one_waits(&self) {
        let other = self.test.client().admin();
        until("an operation that waits", || {
            let reply = other.ok(doc! { "currentOp" => 1, "ns" => "test.c" });
            let Value::Array(list) = reply.as_doc().value("inprog") else { panic!("no list") };
            !list.as_doc().is_empty()
        });
    }

    /// While a failpoint is set, every request goes the ordinary way.
    pub fn leave_express_path(&self) {
        self.client.admin().ok(doc! {
            "configureFailPoint" => "failCommand", "mode" => "alwaysOn",
            "data" => doc! { "failCommands" => array!["nothing"] },
        });
    }

    pub fn acknowledge_all(&self) {
        self.member.acks().reach(|_| ALL);
    }

    pub fn publish(&self, state: MemberState, members: usize) {
        self.member.publish(view_of(state, config(members)));
    }

    /// Waits for the next request, and answers it.
    pub fn answer(&self, result: Result<()>) -> Request {
        let mut found = None;
        until("a request for the driver", || {
            if let Some(mut arrived) = self.member.take_arrived(Waker::noop(), false) {
                found = arrived.requests.pop_front();
            }
            found.is_some()
        });
        let (request, asker) = found.expect("a request");
        asker.answer(result);
        request
    }

    /// Sends a command to `admin`, answers its request, and returns both.
    pub fn asks(&self, command: DocBuf) -> (Request, DocBuf) {
        let admin = self.client.admin();
        admin.send(&command);
        let request = self.answer(Ok(()));
        let reply = admin.receive().expect("a reply");
        assert_eq!(number(&reply, "ok"), 1, "{}", show(&reply));
        (request, reply)
    }
}

/// The counter of a reply's `topologyVersion`; `None` without one.
pub fn topology(reply: &DocBuf) -> Option<i64> {
    reply.as_doc().get("topologyVersion")?;
    let version = at(reply, "topologyVersion");
    assert_eq!(version.as_doc().value("processId"), Value::ObjectId([1; 12]));
    Some(number(&version, "counter"))
}

/// A read preference.
pub fn preference(mode: &str) -> DocBuf {
    doc! { "mode" => mode }
}
