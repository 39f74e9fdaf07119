//! `ingressConnectionEstablishmentRatePerSec`: connections above the rate wait in a bounded queue or are
//! closed.

use crate::rig::{Server, eventually, find, message, status};
use kauri_bson::{DocBuf, Value, doc};
use kauri_client::Connection;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const ALL: &str = "ingressConnectionEstablishment";

fn set(connection: &mut Connection, values: &[(&str, Value<'_>)]) -> Result<DocBuf, String> {
    let command = DocBuf::build(|out| {
        out.put("setParameter", 1);
        for (rest, value) in values {
            out.put_value(&format!("{ALL}{rest}"), value);
        }
    });
    connection.command("admin", &command).map_err(|error| error.to_string())
}

fn limit(connection: &mut Connection, queue: i32) {
    let second = |n: i32| Value::Int32(n);
    let rate = [("RatePerSec", second(1)), ("BurstCapacitySecs", second(1))];
    set(connection, &rate).unwrap();
    let queue = [("MaxQueueDepth", Value::Int32(queue)), ("RateLimiterEnabled", true.into())];
    set(connection, &queue).unwrap();
}

fn arrive(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Whether the server replies; otherwise it has closed the connection.
fn is_served(stream: &mut TcpStream) -> bool {
    let asked = stream.write_all(&message(&doc! { "ping" => 1 }));
    let mut length = [0; 4];
    asked.and_then(|()| stream.read_exact(&mut length)).is_ok()
}

const REJECTED: &str = "connections.establishmentRateLimit.rejected";
const QUEUED: &str = "connections.queuedForEstablishment";
const LEFT: &str = "connections.establishmentRateLimit.interruptedDueToClientDisconnect";

#[test]
fn connections_above_the_rate_wait_or_are_closed() {
    let server = Server::start("establishment", &[]);
    let mut control = server.connect("sharedMemory=off");
    let mut all: Vec<_> = (0..10).map(|_| arrive(&server)).collect();
    assert!(all.iter_mut().all(is_served), "there is no limit by default");
    assert_eq!(status(&mut control, REJECTED), 0);
    let before = status(&mut control, "connections.totalCreated");
    limit(&mut control, 2);
    let mut storm: Vec<_> = (0..30).map(|_| arrive(&server)).collect();
    let served = storm.iter_mut().filter_map(|one| is_served(one).then_some(())).count() as i64;
    let rejected = status(&mut control, REJECTED);
    assert_eq!(served + rejected, 30, "each is served in the end, or closed");
    assert!(served >= 3 && rejected > 0, "{served}, {rejected}");
    let created = status(&mut control, "connections.totalCreated") - before;
    assert_eq!((created, status(&mut control, QUEUED)), (served, 0));
    assert!(all.iter_mut().all(is_served), "connections that there are stay");
}

#[test]
fn a_client_that_goes_leaves_the_queue() {
    let server = Server::start("establishment-left", &[]);
    let mut control = server.connect("sharedMemory=off");
    limit(&mut control, 1000);
    // The last of them would wait for five minutes.
    let storm: Vec<_> = (0..300).map(|_| arrive(&server)).collect();
    eventually("a queue", || status(&mut control, QUEUED) > 200);
    let counts = control.command("admin", &doc! { "serverStatus" => 1 }).unwrap();
    let connections = counts.as_doc().get("connections").unwrap().as_doc().unwrap();
    let current = connections.value("current").to_i64_saturating().unwrap();
    assert!(current < 100, "those that wait are not counted: {current}");
    drop(storm);
    eventually("an empty queue", || status(&mut control, QUEUED) == 0);
    assert!(status(&mut control, LEFT) > 200);
    assert_eq!(status(&mut control, REJECTED), 0);
    set(&mut control, &[("RateLimiterEnabled", false.into())]).unwrap();
    let mut all: Vec<_> = (0..20).map(|_| arrive(&server)).collect();
    assert!(all.iter_mut().all(is_served));
    drop(server.connect("sharedMemory=off").command("test", &find(1)).unwrap());
}

#[test]
fn the_limiters_parameters_have_bounds() {
    let parameter = |rest: &str, value: &str| format!("{ALL}{rest}={value}");
    let given = [parameter("MaxQueueDepth", "7"), parameter("BurstCapacitySecs", "0.5")];
    let args = given.iter().flat_map(|given| ["--setParameter", given]).collect::<Vec<_>>();
    let server = Server::start("establishment-parameters", &args);
    let mut control = server.connect("sharedMemory=off");
    for (rest, value, error) in [
        ("RatePerSec", Value::Int32(0), "0 is not greater than or equal to 1"),
        ("BurstCapacitySecs", Value::Int32(0), "0 is not greater than 0"),
        ("BurstCapacitySecs", Value::Int32(-1), "-1 is not greater than"),
        ("MaxQueueDepth", Value::Int32(-1), "-1 is not greater than or equal to 0"),
        ("RateLimiterBypass", doc! {}.into(), "unrecognized parameter"),
    ] {
        let told = set(&mut control, &[(rest, value)]).unwrap_err();
        assert!(told.contains(error), "{told}");
    }
    let all = control.command("admin", &doc! { "getParameter" => "*" }).unwrap();
    let value = |rest: &str| all.as_doc().value(&format!("{ALL}{rest}")).into_owned();
    assert_eq!(value("RateLimiterEnabled"), Value::Bool(false));
    assert_eq!(value("RatePerSec"), Value::Int32(i32::MAX));
    assert_eq!(value("MaxQueueDepth"), Value::Int32(7));
    assert_eq!(value("BurstCapacitySecs"), Value::Double(0.5));
}
