//! The configuration document: what is read, refused and written, and which one may follow which.

use kauri_bson::{Doc, DocBuf, Value, array, doc};
use kauri_member::config::default_port;
use kauri_member::{MemberConfig, SetConfig, Settings, WriteMode};
use std::collections::BTreeMap;

/// A member's document: `_id`, `host` and more.
fn member(id: i32, host: &str, more: DocBuf) -> DocBuf {
    DocBuf::build(|out| {
        out.put("_id", id);
        out.put("host", host);
        out.put_all(more.as_doc());
    })
}

/// The set of these members, with more fields.
fn set(members: &[DocBuf], more: DocBuf) -> DocBuf {
    DocBuf::build(|out| {
        out.put("_id", "rs");
        out.put_value("members", &Value::array(members.iter().map(Value::from)));
        out.put_all(more.as_doc());
    })
}

/// The message with which a configuration is refused, or `ok`.
fn outcome(config: Doc<'_>) -> String {
    let checked = SetConfig::parse(config).and_then(|config| config.validate());
    checked.map_or_else(|error| error.message().to_owned(), |()| "ok".to_owned())
}

#[track_caller]
fn expect(config: &DocBuf, expected: &str) {
    let found = outcome(config.as_doc());
    let is_expected = if expected == "ok" { found == "ok" } else { found.contains(expected) };
    assert!(is_expected, "{config:?}: {found}");
}

#[test]
fn a_member_beside_another_is_checked() {
    let tags = doc! { "dc" => "east" };
    for (more, expected) in [
        (doc! {}, "ok"),
        (doc! { "arbiterOnly" => true }, "ok"),
        (doc! { "arbiterOnly" => true, "priority" => 1 }, "ok"),
        (doc! { "arbiterOnly" => true, "priority" => 2 }, "Arbiter priority must be 0"),
        (doc! { "arbiterOnly" => true, "votes" => 0 }, "Arbiter must vote"),
        (doc! { "arbiterOnly" => true, "tags" => &tags }, "Cannot set tags on arbiters"),
        (doc! { "hidden" => true }, "priority must be 0 when hidden=true"),
        (doc! { "hidden" => true, "priority" => 0 }, "ok"),
        (doc! { "votes" => 0 }, "priority must be 0 when non-voting"),
        (doc! { "votes" => 0, "priority" => 0 }, "ok"),
        (doc! { "votes" => 2 }, "'votes' value must be <= 1"),
        (doc! { "secondaryDelaySecs" => 9 }, "priority must be 0 when secondaryDelaySecs"),
        (doc! { "secondaryDelaySecs" => 9, "priority" => 0 }, "ok"),
        (doc! { "secondaryDelaySecs" => -1 }, "value must be >= 0"),
        (doc! { "priority" => 1001 }, "between 0 and 1000"),
        (doc! { "priority" => -1 }, "between 0 and 1000"),
        (doc! { "priority" => f64::NAN }, "between 0 and 1000"),
        (doc! { "priority" => 0.5 }, "ok"),
        (doc! { "tags" => &tags }, "ok"),
        (doc! { "tags" => doc! { "dc" => 1 } }, "tags.dc field has non-string value"),
        (doc! { "buildIndexes" => true }, "ok"),
        (doc! { "buildIndexes" => false }, "not supported"),
        (doc! { "horizons" => doc! {} }, "not supported"),
        (doc! { "slaveDelay" => 1 }, "'MemberConfig.slaveDelay' is an unknown field"),
    ] {
        expect(&set(&[member(0, "a:1", doc! {}), member(1, "b:1", more)], doc! {}), expected);
    }
}

#[test]
fn members_are_checked_together() {
    let plain = |id, host: &str| member(id, host, doc! {});
    let many = |count: i32, more: fn() -> DocBuf| -> Vec<DocBuf> {
        let more = |n| {
            if n > 6 {
                more()
            } else {
                doc! {}
            }
        };
        (0..count).map(|n| member(n, &format!("h{n}:1"), more(n))).collect()
    };
    let silent = || doc! { "votes" => 0, "priority" => 0 };
    let arbiter = || doc! { "arbiterOnly" => true };
    for (members, expected) in [
        (vec![], "must have at least 1"),
        (vec![plain(0, "a:1")], "ok"),
        (many(7, silent), "ok"),
        (many(8, || doc! {}), "contains 8 voting members"),
        (many(50, silent), "ok"),
        (many(51, silent), "contains 51 members"),
        (vec![member(0, "a:1", doc! { "priority" => 0 })], "at least one non-arbiter member"),
        (vec![member(0, "a:1", arbiter())], "at least one non-arbiter member"),
        (vec![doc! { "host" => "a:1" }], "'MemberConfig._id' is missing"),
        (vec![doc! { "_id" => 0 }], "'MemberConfig.host' is missing"),
        (vec![doc! { "_id" => 0, "host" => 1 }], "'MemberConfig.host' is the wrong type 'int'"),
        (vec![plain(256, "a:1")], "'_id' value must be <= 255"),
        (vec![plain(0, "a:x")], "Port number"),
        (vec![plain(0, "a:1"), plain(0, "b:1")], "same _id field, members.0._id"),
        (vec![plain(0, "a:1"), plain(1, "a:1")], "same host field, members.0.host"),
        (vec![plain(0, "a:1"), plain(1, "localhost:1")], "found 1 out of 2"),
        (vec![plain(0, "127.0.0.1:1"), plain(1, "localhost:1")], "ok"),
    ] {
        expect(&set(&members, doc! {}), expected);
    }
}

#[test]
fn other_fields_are_checked() {
    let only = [member(0, "a:1", doc! { "tags" => doc! { "dc" => "x" } })];
    let settings = |field: &str, value: Value<'static>| {
        doc! { "settings" => DocBuf::build(|out| out.put_value(field, &value)) }
    };
    let mode = |name: &str, tag: &str, count: i32| {
        let tags = DocBuf::build(|out| out.put(tag, count));
        let modes = DocBuf::build(|out| out.put(name, tags));
        settings("getLastErrorModes", modes.into())
    };
    let defaults = |w: i32| settings("getLastErrorDefaults", doc! { "w" => w }.into());
    for (more, expected) in [
        (doc! { "version" => 0 }, "'version' value must be >= 1"),
        (doc! { "version" => 1i64 << 31 }, "'version' value must be <= 2147483647"),
        (doc! { "version" => "x" }, "'ReplSetConfig.version' is the wrong type 'string'"),
        (doc! { "protocolVersion" => 1 }, "ok"),
        (doc! { "protocolVersion" => 0 }, "value must be >= 1"),
        (doc! { "configsvr" => true }, "--configsvr"),
        (doc! { "writeConcernMajorityJournalDefault" => false }, "ok"),
        (doc! { "x" => 1 }, "'ReplSetConfig.x' is an unknown field"),
        (settings("x", 1.into()), "'ReplSetConfigSettings.x' is an unknown field"),
        (settings("electionTimeoutMillis", 0.into()), "value must be >= 1"),
        (settings("catchUpTimeoutMillis", (-1).into()), "ok"),
        (settings("catchUpTimeoutMillis", (-2).into()), "value must be >= -1"),
        (settings("replicaSetId", 1.into()), "wrong type 'int'"),
        (defaults(1), "ok"),
        (defaults(2), "use setDefaultRWConcern"),
        (mode("m", "dc", 1), "ok"),
        (mode("m", "dc", 0), "value must be >= 1"),
        (mode("m", "rack", 1), "not a tag of any member"),
        (mode("majority", "dc", 1), "not a mode"),
    ] {
        expect(&set(&only, more), expected);
    }
    expect(&doc! { "members" => array![] }, "'ReplSetConfig._id' is missing");
    expect(&doc! { "_id" => "" }, "non-empty _id");
    expect(&doc! { "_id" => "rs" }, "'ReplSetConfig.members' is missing");
}

#[test]
fn the_document_has_all_fields_with_their_defaults() {
    let config = SetConfig { term: 4, ..SetConfig::alone("rs", "a:1", [9; 12]) };
    let member = doc! {
        "_id" => 0, "host" => "a:1", "arbiterOnly" => false, "buildIndexes" => true,
        "hidden" => false, "priority" => 1.0, "tags" => doc! {}, "secondaryDelaySecs" => 0i64,
        "votes" => 1,
    };
    let settings = doc! {
        "chainingAllowed" => true, "heartbeatIntervalMillis" => 250, "heartbeatTimeoutSecs" => 10,
        "electionTimeoutMillis" => 1000, "catchUpTimeoutMillis" => -1,
        "catchUpTakeoverDelayMillis" => 30_000, "getLastErrorModes" => doc! {},
        "getLastErrorDefaults" => doc! { "w" => 1, "wtimeout" => 0 },
        "replicaSetId" => [9u8; 12],
    };
    let expected = doc! {
        "_id" => "rs", "version" => 1, "term" => 4i64, "members" => array![member],
        "protocolVersion" => 1i64, "writeConcernMajorityJournalDefault" => true,
        "settings" => settings,
    };
    assert_eq!(config.to_doc(), expected);
}

/// A configuration that differs from the defaults everywhere.
fn unusual() -> SetConfig {
    let tags = |value: &str| BTreeMap::from([("dc".to_owned(), value.to_owned())]);
    let east = MemberConfig { priority: 2.5, tags: tags("east"), ..MemberConfig::new(3, "a:1") };
    let west = MemberConfig { tags: tags("west"), ..MemberConfig::new(4, "b:1") };
    let arbiter = MemberConfig { is_arbiter: true, priority: 0.0, ..MemberConfig::new(9, "c:1") };
    let delayed = MemberConfig {
        delay_secs: 60,
        is_hidden: true,
        votes: 0,
        priority: 0.0,
        ..MemberConfig::new(255, "d:1")
    };
    let modes = BTreeMap::from([("both".to_owned(), BTreeMap::from([("dc".to_owned(), 2)]))]);
    SetConfig {
        name: "rs".into(),
        version: 7,
        term: 5,
        members: vec![east, west, arbiter, delayed],
        settings: Settings {
            heartbeat_interval_ms: 1,
            heartbeat_timeout_secs: 2,
            election_timeout_ms: 3,
            catch_up_timeout_ms: 4,
            catch_up_takeover_delay_ms: 5,
            is_chaining_allowed: false,
            modes,
            set_id: [1; 12],
            ..Settings::default()
        },
        majority_is_durable: false,
    }
}

#[test]
fn what_is_written_is_read_again() {
    let config = unusual();
    assert_eq!(SetConfig::parse(config.to_doc().as_doc()), Ok(config));
}

#[test]
fn majorities_count_voters() {
    let config = unusual();
    assert_eq!((config.voters(), config.writable_voters(), config.majority()), (3, 2, 2));
    assert!(!config.default_is_majority(), "an arbiter leaves no member to spare");
    let mut more = config.clone();
    more.members.extend((0..2).map(|id| MemberConfig::new(id, &format!("e{id}:1"))));
    assert_eq!((more.voters(), more.majority()), (5, 3));
    assert!(more.default_is_majority());
    assert!(SetConfig::alone("rs", "a:1", [0; 12]).default_is_majority());
}

#[test]
fn a_configuration_follows_another_one() {
    let old = unusual();
    let check = |force: bool, change: &dyn Fn(&mut SetConfig)| {
        let mut new = SetConfig { version: 8, ..old.clone() };
        change(&mut new);
        new.check_successor(&old, force).map_err(|error| error.code().number())
    };
    assert_eq!(check(false, &|_| {}), Ok(()));
    assert_eq!(check(false, &|new| new.version = 7), Err(103));
    assert_eq!(check(false, &|new| (new.version, new.term) = (1, 6)), Ok(()));
    assert_eq!(check(false, &|new| new.term = 4), Err(103));
    assert_eq!(check(true, &|new| new.term = -1), Ok(()));
    assert_eq!(check(true, &|new| new.version = 7), Err(103));
    assert_eq!(check(false, &|new| new.settings.set_id = [2; 12]), Err(103));
    assert_eq!(check(false, &|new| new.members[0].id = 100), Err(103), "a host keeps its id");
    assert_eq!(check(true, &|new| new.members[0].id = 100), Err(103));
    assert_eq!(check(false, &|new| new.members[1].is_arbiter = true), Err(103));
    let add = |new: &mut SetConfig, voters: u8| {
        let added = (50..50 + voters).map(|id| MemberConfig::new(id, &format!("n{id}:1")));
        new.members.extend(added);
    };
    assert_eq!(check(false, &|new| add(new, 2)), Err(103), "two voters at once");
    assert_eq!(check(true, &|new| add(new, 2)), Ok(()));
    // Four voters with three writable ones still have the default w: 1.
    assert_eq!(check(false, &|new| add(new, 1)), Ok(()));
    let drop_arbiter = |new: &mut SetConfig| drop(new.members.remove(2));
    let mut new = SetConfig { version: 8, ..old.clone() };
    assert_eq!(new.check_default_of(&old), Ok(()));
    drop_arbiter(&mut new);
    assert_eq!(new.check_successor(&old, false), Ok(()));
    let refused = new.check_default_of(&old).map_err(|error| error.code().number());
    assert_eq!(refused, Err(103), "another default write concern");
}

#[test]
fn write_concerns_that_no_member_can_meet_are_found() {
    let config = unusual();
    let code = |result: kauri_base::Result<()>| result.map_err(|error| error.code().number());
    let named = |name: &str| WriteMode::Named(name.to_owned());
    let tags = |count| WriteMode::Tags(BTreeMap::from([("dc".to_owned(), count)]));
    assert_eq!(code(config.check_count(3)), Ok(()));
    assert_eq!(code(config.check_count(4)), Err(100), "an arbiter has no data");
    assert_eq!(code(config.check_tags(&named("both"))), Ok(()));
    assert_eq!(code(config.check_tags(&named("none"))), Err(79));
    assert_eq!(code(config.check_tags(&tags(2))), Ok(()));
    assert_eq!(code(config.check_tags(&tags(3))), Err(100));
}

#[test]
fn one_host_is_this_server() {
    let config = unusual();
    let find = |hosts: &[&str]| {
        config.find_self(|host| hosts.contains(&host)).map_err(|error| error.code().number())
    };
    assert_eq!(find(&["b:1"]), Ok(1));
    assert_eq!(find(&[]), Err(74));
    assert_eq!(find(&["a:1", "b:1"]), Err(93));
}

#[test]
fn hosts_have_ports() {
    for (host, expected) in [
        ("a", Some("a:27017")),
        ("a:1", Some("a:1")),
        ("[::1]", Some("[::1]:27017")),
        ("[::1]:2", Some("[::1]:2")),
        ("", None),
        (":1", None),
        ("a:", None),
        ("a:0", None),
        ("a:65536", None),
        ("a:+1", None),
        ("a b:1", None),
        ("::1", None),
        ("[::1]2", None),
    ] {
        assert_eq!(default_port(host).ok().as_deref(), expected, "{host}");
    }
}
