//! What a member does of its own accord: nothing unless it is primary. What it does when it begins to lead.

use super::Rig;
use crate::common::{START_MS, until};
use kauri_base::CommitSeq;
use kauri_bson::{Value, array, doc};
use kauri_commands::background::ttl;
use kauri_commands::startup;
use kauri_member::MemberState;

/// The newest commit of the engine.
fn newest(rig: &Rig) -> CommitSeq {
    let mut reader = rig.test.server.backend.engine().recovery_unit();
    reader.enter();
    reader.snapshot()
}

/// The names of a database's collections.
fn names(rig: &Rig, database: &str) -> Vec<String> {
    let all = rig.test.server.catalog.collections_of(database);
    all.iter().map(|collection| collection.ns.collection().to_owned()).collect()
}

#[test]
fn documents_expire_on_the_primary_only() {
    let rig = Rig::acknowledging(3);
    let expiry = doc! { "key" => doc! { "at" => 1 }, "name" => "at", "expireAfterSeconds" => 0 };
    rig.client.ok(doc! { "createIndexes" => "c", "indexes" => array![expiry] });
    rig.client.insert("c", [doc! { "_id" => 9, "at" => Value::DateTime(START_MS - 1) }]);
    for (state, deletes) in [
        (MemberState::Secondary, false),
        (MemberState::Rollback, false),
        (MemberState::Primary, true),
    ] {
        rig.publish(state, 3);
        let (before, server) = (newest(&rig), rig.test.server.clone());
        rig.test.run(async move { ttl::pass(&server, || {}).await });
        assert_eq!(newest(&rig) > before, deletes, "{state:?}");
    }
}

#[test]
fn profile_documents_are_stored_on_the_primary_only() {
    let rig = Rig::acknowledging(3);
    rig.client.ok(doc! { "profile" => 2 });
    let (server, worker) = (&rig.test.server, &rig.test.executor.workers()[0]);
    until("the profiler has stored all", || !server.profiler.is_busy());
    for (state, stores) in [(MemberState::Secondary, false), (MemberState::Primary, true)] {
        rig.publish(state, 3);
        let (before, (written, left_out)) = (newest(&rig), server.profiler.counts());
        server.profiler.push(server, worker, "test", doc! { "op" => "query" });
        until("the document is stored or left out", || !server.profiler.is_busy());
        let (stored, more) = (u64::from(stores), u64::from(!stores));
        assert_eq!(server.profiler.counts(), (written + stored, left_out + more), "{state:?}");
        assert_eq!(newest(&rig) > before, stores, "{state:?}");
    }
}

#[test]
fn a_new_primary_creates_the_collections_that_all_members_have() {
    let rig = Rig::start();
    let server = &rig.test.server;
    let before = newest(&rig);
    startup::prepare(server).unwrap();
    assert_eq!(newest(&rig), before, "a member that starts creates nothing");
    assert_eq!(startup::lead(server).unwrap(), []);
    assert_eq!(names(&rig, "admin"), ["system.version"]);
    assert_eq!(names(&rig, "config"), ["system.sessions"]);
    assert!(names(&rig, "local").is_empty());
    let sessions = server.catalog.collection("config.system.sessions").unwrap();
    assert!(sessions.index_by_name("lsidTTLIndex").is_some_and(|index| index.ready));
    let before = newest(&rig);
    assert_eq!(startup::lead(server).unwrap(), []);
    assert_eq!(newest(&rig), before, "nothing was missing");
}

#[test]
fn a_new_primary_resumes_index_builds() {
    let rig = Rig::acknowledging(3);
    let catalog = &rig.test.server.catalog;
    let collection = catalog.collection("test.c").unwrap();
    let mut scope = rig.test.server.backend.scope();
    rig.client.ok(doc! { "update" => "c", "updates" => array![
        doc! { "q" => doc! {}, "u" => doc! { "$set" => doc! { "same" => 1 } }, "multi" => true },
    ] });
    let duplicates =
        doc! { "v" => 2, "key" => doc! { "same" => 1 }, "name" => "s", "unique" => true };
    let specs = [doc! { "v" => 2, "key" => doc! { "a" => 1 }, "name" => "a" }, duplicates];
    catalog.add_indexes(&mut scope, &collection, &specs).unwrap();
    let interrupted = startup::lead(&rig.test.server).unwrap();
    assert_eq!(interrupted.len(), 2);
    startup::resume_builds(&rig.test.server, &interrupted);
    assert_eq!(rig.client.index_names("c"), ["_id_", "a"]);
    rig.client.validate("c");
}
