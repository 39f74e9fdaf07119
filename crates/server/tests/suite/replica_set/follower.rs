//! A connection that follows the primary, by `kauri-client`.

use super::stand::{NAME, Set, insert};
use kauri_bson::doc;
use kauri_client::set::Follower;
use kauri_client::uri::Host;
use kauri_client::{ClientError, Transport, connect};

const TCP: &str = "sharedMemory=off&rdma=off&socketTimeoutMS=60000";

fn port(follower: &Follower) -> u16 {
    match follower.host() {
        Host::Tcp(_, port) => *port,
        Host::Unix(path) => panic!("{path:?}"),
    }
}

#[test]
fn writes_go_on_through_a_step_down_and_a_kill() {
    let mut set = Set::start("follower");
    let mut follower = Follower::open(&set.uri(TCP)).unwrap();
    assert_eq!(set.member(port(&follower)), set.primary().unwrap());
    follower.command("test", &insert(0)).unwrap();
    let first = set.step_down();
    // Two requests on the way to the old primary: none of them fails, and each is executed once.
    follower.command("test", &insert(1)).unwrap();
    let second = set.member(port(&follower));
    assert_ne!(first, second);
    set.kill(second);
    follower.command("test", &insert(2)).unwrap();
    assert_ne!(set.member(port(&follower)), second);
    set.restart(second);
    for n in 0..3 {
        assert_eq!(set.count(n), 1, "{n}");
    }
}

#[test]
fn a_write_that_may_not_be_repeated_fails_once() {
    let set = Set::start("once");
    let mut follower = Follower::open(&set.uri(&format!("{TCP}&retryWrites=false"))).unwrap();
    follower.command("test", &insert(0)).unwrap();
    set.step_down();
    let Err(ClientError::Command(error)) = follower.command("test", &insert(1)) else { panic!() };
    assert_eq!(error.code().number(), 10107, "{error}");
    follower.command("test", &insert(2)).unwrap();
    assert_eq!([0, 1, 2].map(|n| set.count(n)), [1, 0, 1]);
}

#[test]
fn a_write_is_executed_once_though_its_reply_is_lost() {
    let mut set = Set::start("reply");
    let mut follower = Follower::open(&set.uri(TCP)).unwrap();
    follower.command("test", &insert(0)).unwrap();
    let primary = set.primary().unwrap();
    // The server executes the write and then closes instead of replying.
    let mut direct = set.direct(primary).unwrap();
    let data = doc! {
        "failCommands" => kauri_bson::array!["insert"],
        "writeConcernError" => doc! { "code" => 91, "errmsg" => "stops" },
        "errorLabels" => kauri_bson::array!["RetryableWriteError"]
    };
    let mode = doc! { "times" => 1 };
    let fail = doc! { "configureFailPoint" => "failCommand", "mode" => mode, "data" => data };
    direct.command("admin", &fail).unwrap();
    let reply = follower.command("test", &insert(1)).unwrap();
    assert!(reply.as_doc().get("writeConcernError").is_none(), "{reply:?}");
    assert_eq!(set.count(1), 1);
    set.kill(primary);
}

#[test]
fn servers_are_found_from_one_host_and_selected_by_read_preference() {
    let set = Set::start("modes");
    let seed = format!("mongodb://127.0.0.1:{}/?replicaSet={NAME}&{TCP}", set.port(2));
    let primary = set.primary().unwrap();
    let primary_port = set.port(primary);
    for (mode, is_primary) in [
        ("primary", true),
        ("primaryPreferred", true),
        ("secondary", false),
        ("secondaryPreferred", false),
    ] {
        let uri = format!("{seed}&readPreference={mode}&serverSelectionTimeoutMS=60000");
        let mut follower = Follower::open(&uri.parse().unwrap()).unwrap();
        assert_eq!(port(&follower) == primary_port, is_primary, "{mode}");
        // A secondary answers since the client says that it wants one.
        follower.command("test", &doc! { "find" => "c" }).unwrap();
    }
    // A plain connection is with the primary, too, over the transport that the string asks for.
    let shared = set.uri("sharedMemory=require&rdma=off");
    let connection = connect(&shared).unwrap();
    assert_eq!(connection.transport(), Transport::SharedMemory);
    assert!(connection.greeting().value("ismaster").truthy());
}

#[test]
fn another_sets_name_is_refused_at_once() {
    let set = Set::start("name");
    let port = set.port(0);
    for options in ["", "&directConnection=true"] {
        let uri = format!("mongodb://127.0.0.1:{port}/?replicaSet=other&{TCP}{options}");
        let Err(ClientError::Required(why)) = connect(&uri.parse().unwrap()) else {
            panic!("{options}")
        };
        let expected = format!("127.0.0.1:{port} is a member of set '{NAME}', not of 'other'");
        assert_eq!(why, expected);
    }
}

#[test]
fn a_set_without_a_primary_is_told_when_the_time_is_over() {
    let mut set = Set::start("none");
    let primary = set.primary().unwrap();
    let others: Vec<_> = (0..3).filter(|at| *at != primary).collect();
    others.iter().for_each(|at| set.kill(*at));
    set.kill(primary);
    let uri = set.uri(&format!("{TCP}&serverSelectionTimeoutMS=200"));
    let Err(ClientError::Selection(why)) = connect(&uri) else { panic!() };
    assert!(why.contains("readPreference=primary within 200 ms: 127.0.0.1:"), "{why}");
}
