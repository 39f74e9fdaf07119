//! Unit tests of server parameters.

#[cfg(not(feature = "lock-experiment"))]
use crate::common::{TestServer, at};
use kauri_base::{ErrorCode, Result};
use kauri_bson::{Value, doc};
use kauri_commands::parameters::Parameters;

fn code(result: Result<Value<'static>>) -> ErrorCode {
    result.map_or_else(|error| error.code(), |value| panic!("{value:?}"))
}

#[test]
fn set_parameter_is_validated_before_any_change() {
    let parameters = Parameters::default();
    let set = |name, value: Value<'static>| parameters.set(&[(name, value)]);
    assert_eq!(set("logLevel", Value::Double(1.5)), Ok(Value::Int32(0)));
    assert_eq!(parameters.number("logLevel"), 1);
    let both = [("logLevel", Value::Int32(3)), ("nonsense", Value::Int32(1))];
    assert_eq!(code(parameters.set(&both)), ErrorCode::InvalidOptions);
    assert_eq!(parameters.number("logLevel"), 1);
    assert_eq!(code(set("logLevel", Value::Int32(6))), ErrorCode::BadValue);
    assert_eq!(code(set("logLevel", "1".into())), ErrorCode::BadValue);
    assert_eq!(code(set("enableTestCommands", true.into())), ErrorCode::IllegalOperation);
    assert_eq!(set("quiet", "anything".into()), Ok(Value::Bool(false)));
    assert!(parameters.flag("quiet"));
    parameters.set(&[("logLevel", Value::Int32(0))]).unwrap();
}

#[test]
fn texts_from_the_command_line_become_typed_values() {
    let parameters = Parameters::default();
    parameters.set_at_startup("enableTestCommands", "1".into()).unwrap();
    assert!(parameters.flag("enableTestCommands"));
    parameters.set_at_startup("ttlMonitorSleepSecs", "7".into()).unwrap();
    assert_eq!(parameters.number("ttlMonitorSleepSecs"), 7);
    assert!(parameters.set_at_startup("ttlMonitorSleepSecs", "0".into()).is_err());
    assert!(parameters.set_at_startup("featureCompatibilityVersion", "8".into()).is_err());
    assert!(parameters.set_at_startup("nonsense", "8".into()).is_err());
}

#[test]
fn verbosity_of_components_is_changed_in_place() {
    let parameters = Parameters::default();
    let set = |value: kauri_bson::DocBuf| {
        parameters.set(&[("logComponentVerbosity", Value::from(value))])
    };
    let at = |path: &[&str]| {
        let mut value = parameters.get("logComponentVerbosity").unwrap().value;
        for name in path {
            value = value.as_document().unwrap().value(name).into_owned();
        }
        value
    };
    set(doc! { "command" => 4, "network" => doc! { "asio" => doc! { "verbosity" => 2 } } })
        .unwrap();
    assert_eq!(at(&["command", "verbosity"]), Value::Int32(4));
    assert_eq!(at(&["network", "asio", "verbosity"]), Value::Int32(2));
    assert_eq!(at(&["network", "verbosity"]), Value::Int32(-1));
    let refused = set(doc! { "command" => 1, "nonsense" => 1 });
    assert_eq!(code(refused), ErrorCode::BadValue);
    assert_eq!(at(&["command", "verbosity"]), Value::Int32(4));
}

/// A server built without the experiment has no locks around operations, and rejects their parameters.
#[cfg(not(feature = "lock-experiment"))]
#[test]
fn the_locks_of_the_experiment_are_unknown() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let admin = client.admin();
    for name in ["lockGranularity", "lockYielding"] {
        let error = test.server.parameters.set_at_startup(name, "on".into()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadValue);
        assert_eq!(error.message(), format!("Illegal --setParameter parameter: \"{name}\""));
        let unknown = i64::from(ErrorCode::InvalidOptions.number());
        assert_eq!(admin.fails(doc! { "setParameter" => 1, name => "on" }), unknown);
        assert_eq!(admin.fails(doc! { "getParameter" => 1, name => 1 }), unknown);
    }
    let locks = admin.ok(doc! { "lockInfo" => 1 });
    assert_eq!(locks.as_doc().value("lockInfo").as_array().map(|list| list.count()), Some(0));
    // Monitoring tools take a server without a global lock for one older than 3.0.
    let none = doc! { "acquireCount" => doc! { "r" => 0i64, "w" => 0i64 } };
    let status = admin.ok(doc! { "serverStatus" => 1 });
    assert_eq!(at(&status, "locks"), doc! { "Global" => none });
}
