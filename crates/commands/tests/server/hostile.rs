//! Expensive requests end by `maxTimeMS` and by `killOp`, and yield their worker to other requests. Time
//! advances only when the clock is read, by a tenth of a millisecond. The tests therefore measure how often a
//! request checks its limits, not the speed of the machine.

use crate::common::{Client, TestServer, code_of, first_batch, number, show, until};
use crate::hostile_requests::{Hostile, requests, setup};
use kauri_base::Clock;
use kauri_bson::{DocBuf, Value, doc};
use kauri_storage::ephemeral::EphemeralEngine;
use std::sync::Arc;
use std::time::Duration;

const LOOK: Duration = Duration::from_micros(100);
/// Time limit of the requests.
const TIME_MAX: Duration = Duration::from_millis(20);
/// Maximum time beyond the limit: planning, building the reply, clock reads of other operations.
const OVERRUN_MAX: Duration = Duration::from_millis(20);

/// A server with the collections. Its time advances at each read of the clock.
fn start(workers: usize) -> TestServer {
    let test = TestServer::start_on(Arc::new(EphemeralEngine::new()), workers, &[]);
    let client = test.client();
    setup().into_iter().for_each(|command| drop(client.ok(command)));
    test.clock.pass_at_looks(LOOK);
    test
}

fn with(command: &DocBuf, name: &str, value: impl Into<Value<'static>>) -> DocBuf {
    DocBuf::build(|out| {
        out.put_all(command.as_doc());
        out.put_value(name, &value.into());
    })
}

/// The client that sends the request: bulk writes go to the database `admin`.
fn client_of(hostile: &Hostile, client: &Client) -> Client {
    let is_bulk = hostile.command.as_doc().get("bulkWrite").is_some();
    if is_bulk { client.admin() } else { client.on("test") }
}

#[test]
fn the_fifty_requests_have_distinct_names() {
    let mut names: Vec<&str> = requests().iter().map(|hostile| hostile.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(count >= 50 && names.len() == count, "{count} requests, {} names", names.len());
}

#[test]
fn each_request_ends_by_its_time_limit() {
    let test = start(2);
    let client = test.client();
    for hostile in requests() {
        let command = with(&hostile.command, "maxTimeMS", TIME_MAX.as_millis() as i32);
        let start = test.clock.monotonic();
        let reply = client_of(&hostile, &client).run(&command);
        let taken = test.clock.monotonic() - start;
        assert_eq!(code_of(&reply), 50, "{}: {}", hostile.name, show(&reply));
        assert!(taken < TIME_MAX + OVERRUN_MAX, "{}: {taken:?}", hostile.name);
    }
    assert_eq!(client.all_ids("many").len(), 4000);
}

/// The `opid` of the operation with this comment; waits until there is one.
fn opid(other: &Client, comment: &str) -> i64 {
    let mut id = None;
    until("the operation is shown", || {
        let reply = other.admin().ok(doc! { "currentOp" => 1, "command.comment" => comment });
        let Value::Array(all) = reply.as_doc().value("inprog") else { return false };
        let first = all.as_doc().first().and_then(|e| Some(e.as_doc()?.to_buf()));
        id = first.map(|op| number(&op, "opid"));
        id.is_some()
    });
    id.unwrap_or_default()
}

/// With one worker, another client gets replies only if the request yields regularly.
#[test]
fn each_request_can_be_killed_by_a_client_of_the_same_worker() {
    let test = start(1);
    let (client, other) = (test.client(), test.client());
    for hostile in requests() {
        let client = client_of(&hostile, &client);
        client.send(&with(&hostile.command, "comment", hostile.name));
        let id = opid(&other, hostile.name);
        other.admin().ok(doc! { "killOp" => 1, "op" => id });
        let reply = client.receive().unwrap_or_default();
        assert_eq!(code_of(&reply), 11601, "{}: {}", hostile.name, show(&reply));
    }
}

#[test]
fn other_clients_are_served_while_all_workers_run_them() {
    const AT_A_TIME: usize = 12;
    let test = start(2);
    let other = test.client();
    let all = requests();
    for some in all.chunks(AT_A_TIME) {
        let busy: Vec<(&Hostile, Client)> =
            some.iter().map(|hostile| (hostile, client_of(hostile, &test.client()))).collect();
        for (hostile, client) in &busy {
            client.send(&with(&hostile.command, "comment", hostile.name));
        }
        let ids: Vec<i64> = busy.iter().map(|(hostile, _)| opid(&other, hostile.name)).collect();
        for at in 0..20 {
            other.ok(doc! { "ping" => 1 });
            let reply = other.ok(doc! { "find" => "many", "filter" => doc! { "_id" => at } });
            assert_eq!(first_batch(&reply).len(), 1);
        }
        // No operation has ended by itself: each is ended by the kill.
        for id in ids {
            other.admin().ok(doc! { "killOp" => 1, "op" => id });
        }
        for (hostile, client) in &busy {
            let reply = client.receive().unwrap_or_default();
            assert_eq!(code_of(&reply), 11601, "{}: {}", hostile.name, show(&reply));
        }
    }
}
