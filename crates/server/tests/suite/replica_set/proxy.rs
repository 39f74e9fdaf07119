//! `kauri proxy` before a set: it follows the primary, and drivers' connections move with it.

use super::stand::{NAME, Process, Set, eventually, free_port, insert};
use crate::rig::status;
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_client::set::Follower;
use kauri_client::{ClientError, Connection, Uri};
use std::process::Command;

struct Proxy {
    process: Process,
    port: u16,
}

impl Proxy {
    fn before(set: &Set, options: &str) -> Proxy {
        let port = free_port();
        let process = Process::start(
            Command::new(env!("CARGO_BIN_EXE_kauri"))
                .args(["proxy", &set.connection_string(options), "--nounixsocket"])
                .args(["--port", &port.to_string()]),
        );
        Proxy { process, port }
    }

    fn uri(&self, options: &str) -> Uri {
        let fixed = "sharedMemory=off&rdma=off&socketTimeoutMS=60000&connectTimeoutMS=60000";
        format!("mongodb://127.0.0.1:{}/?{fixed}&{options}", self.port).parse().unwrap()
    }

    fn driver(&self) -> Connection {
        Connection::open(&self.uri("appName=test")).unwrap()
    }

    /// The port of the server that answers.
    fn server_port(&self) -> u16 {
        let options = self.driver().command("admin", &doc! { "getCmdLineOpts" => 1 }).unwrap();
        let parsed = options.as_doc().get("parsed").unwrap().as_doc().unwrap().to_buf();
        let net = parsed.as_doc().get("net").unwrap().as_doc().unwrap().to_buf();
        net.as_doc().value("port").to_i64_saturating().unwrap() as u16
    }
}

/// Writes until one is acknowledged. How many failed with their connection, how many by an error of the server that is
/// no primary any more.
fn write(proxy: &Proxy, driver: &mut Connection, n: i32) -> [usize; 2] {
    let (mut lost, mut refused) = (0, 0);
    loop {
        match driver.command("test", &insert(n)) {
            Ok(_) => return [lost, refused],
            Err(ClientError::Io(_)) => {
                lost += 1;
                *driver = proxy.driver();
            }
            Err(ClientError::Command(error)) => {
                let code = error.code().number();
                assert!([10107, 189, 11602, 91].contains(&code), "{error}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(lost + refused < 5, "{lost} and {refused} failures of one write");
    }
}

#[test]
fn drivers_follow_the_primary_through_a_step_down_and_a_kill() {
    let mut set = Set::start("proxy");
    let proxy = Proxy::before(&set, "sharedMemory=auto");
    proxy.process.tells("Sessions with the server", 1);
    let mut idle: Vec<_> = (0..3).map(|_| proxy.driver()).collect();
    let mut busy = proxy.driver();
    let repeating = proxy.uri(&format!("replicaSet={NAME}"));
    let mut repeating = Follower::open(&repeating).unwrap();
    assert_eq!(write(&proxy, &mut busy, 0), [0, 0]);
    repeating.command("test", &insert(1)).unwrap();

    let first = set.step_down();
    // A driver that repeats sees nothing; one that does not, one error at most, on a connection that stays.
    repeating.command("test", &insert(2)).unwrap();
    let [lost, refused] = write(&proxy, &mut busy, 3);
    assert!(lost == 0 && refused <= 1, "{lost} {refused}");
    let second = set.member(proxy.server_port());
    assert_ne!(second, first);

    // The kill meets no request of this driver. Its connection stays, and its next request goes to the new primary.
    set.kill(second);
    eventually("a new primary", || set.primary().is_some());
    proxy.process.tells("New sessions go to this server of the set", 3);
    assert_eq!(write(&proxy, &mut busy, 4), [0, 0]);
    repeating.command("test", &insert(5)).unwrap();
    for driver in &mut idle {
        driver.command("admin", &doc! { "ping" => 1 }).unwrap();
    }
    assert_ne!(set.member(proxy.server_port()), second);
    assert_eq!(proxy.process.told("the driver's connection is closed"), 0);
    set.restart(second);
    for n in [0, 1, 2, 4, 5] {
        assert_eq!(set.count(n), 1, "{n}");
    }
}

#[test]
fn a_request_in_flight_at_a_kill_fails_once() {
    let mut set = Set::start("flight");
    let proxy = Proxy::before(&set, "sharedMemory=off&rdma=off");
    let primary = set.primary().unwrap();
    let data = doc! {
        "failCommands" => array!["insert"], "blockConnection" => true, "blockTimeMS" => 600_000
    };
    let mode = doc! { "times" => 1 };
    let block = doc! { "configureFailPoint" => "failCommand", "mode" => mode, "data" => data };
    set.direct(primary).unwrap().command("admin", &block).unwrap();
    let mut driver = proxy.driver();
    let active = || status(&mut set.direct(primary).unwrap(), "connections.active");
    let before = active();
    driver.send("test", &insert(1)).unwrap();
    eventually("the insert is on the server", || active() > before);
    set.kill(primary);
    assert!(matches!(driver.receive(), Err(ClientError::Io(_))));
    let mut driver = proxy.driver();
    assert_eq!(write(&proxy, &mut driver, 2), [0, 0]);
    assert_eq!([1, 2].map(|n| set.count(n)), [0, 1]);
}

#[test]
fn a_driver_sees_a_set_of_one_whose_primary_is_the_proxy() {
    let set = Set::start("seen");
    let proxy = Proxy::before(&set, "");
    let mut driver = proxy.driver();
    let hello = |driver: &mut Connection| driver.command("admin", &doc! { "hello" => 1 }).unwrap();
    let seen = |hello: &DocBuf| {
        let hello = hello.as_doc();
        let address = format!("127.0.0.1:{}", proxy.port);
        assert_eq!(hello.value("setName"), Value::from(NAME));
        assert_eq!(hello.value("hosts"), array![address.as_str()]);
        for key in ["primary", "me"] {
            assert_eq!(hello.value(key), Value::from(address.as_str()), "{key}");
        }
        assert!(hello.value("isWritablePrimary").truthy());
        match hello.value("electionId") {
            Value::ObjectId(id) => id,
            other => panic!("{other:?}"),
        }
    };
    let first = hello(&mut driver);
    let before = seen(&first);
    // What a driver's monitor asks: it waits for a change.
    let mut monitor = proxy.driver();
    let version = first.as_doc().get("topologyVersion").unwrap().as_doc().unwrap().to_buf();
    let change = doc! { "hello" => 1, "topologyVersion" => version, "maxAwaitTimeMS" => 50_000 };
    monitor.send("admin", &change).unwrap();
    set.step_down();
    // Never a secondary, and the next election is a later one.
    seen(&monitor.receive().unwrap().checked().unwrap());
    let after = seen(&hello(&mut driver));
    eventually("the next election", || seen(&hello(&mut driver)) > before);
    assert!(after >= before);
}

#[test]
fn a_cursor_stays_with_its_server() {
    let set = Set::start("cursor");
    let proxy = Proxy::before(&set, "");
    let mut driver = proxy.driver();
    (0..10).for_each(|n| drop(driver.command("test", &insert(n)).unwrap()));
    let opened = driver.command("test", &doc! { "find" => "c", "batchSize" => 2 }).unwrap();
    let cursor = opened.as_doc().get("cursor").unwrap().as_doc().unwrap().to_buf();
    let id = cursor.as_doc().value("id").to_i64_saturating().unwrap();
    let first = set.step_down();
    eventually("the proxy follows", || set.member(proxy.server_port()) != first);
    let more = doc! { "getMore" => id, "collection" => "c", "batchSize" => 100 };
    let rest = driver.command("test", &more).unwrap();
    let cursor = rest.as_doc().get("cursor").unwrap().as_doc().unwrap().to_buf();
    let batch = cursor.as_doc().get("nextBatch").unwrap().as_doc().unwrap().to_buf();
    assert_eq!(batch.as_doc().count(), 8);
    // The connection moves at its next request.
    assert_eq!(write(&proxy, &mut driver, 11), [0, 0]);
}
