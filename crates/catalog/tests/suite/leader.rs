//! A member that begins to lead ends what the earlier leader began.

use crate::common::*;
use crate::members::*;
use kauri_base::ErrorCode;
use kauri_bson::doc;
use kauri_catalog::build::BuildStep;
use kauri_catalog::{CollectionOptions, IndexBuild};

/// A set whose leader has begun to build these indexes on `db.a`, with the documents 0 to 9.
fn begun(specs: &[kauri_bson::DocBuf]) -> (Set, IndexBuild) {
    let set = Set::new();
    let leader = set.leader();
    let collection = create(leader, "db.a");
    for n in 0..10 {
        insert(leader, "db.a", &doc! { "_id" => n, "x" => n, "u" => n / 2 });
    }
    let (ids, ticket) = leader.add_indexes(&mut leader.scope(), &collection, specs).unwrap();
    leader.begun.lock().unwrap().extend(&ids);
    (set, IndexBuild::new(ids, ticket.seq))
}

#[test]
fn builds_that_need_no_check_are_ended_at_once() {
    let (mut set, _) = begun(&[spec(doc! { "x" => 1 }, "x_1")]);
    set.change_roles();
    assert_eq!(set.leader().lead().unwrap(), []);
    set.follow("the new leader's");
    assert!(set.follower().collection("db.a").unwrap().index_by_name("x_1").unwrap().ready);
}

#[test]
fn unique_indexes_are_checked_first() {
    let (mut set, _) = begun(&[unique(doc! { "x" => 1 }, "x_1"), unique(doc! { "u" => 1 }, "u_1")]);
    set.change_roles();
    let leader = set.leader();
    let interrupted = leader.lead().unwrap();
    assert_eq!(interrupted.len(), 2);
    insert(leader, "db.a", &doc! { "_id" => 10, "x" => 10, "u" => 10 });
    for build in interrupted {
        leader.resume_build(build).unwrap();
    }
    set.follow("resumed");
    let collection = leader.collection("db.a").unwrap();
    assert!(collection.index_by_name("x_1").unwrap().ready);
    assert!(collection.index_by_name("u_1").is_none(), "it has duplicates");
}

#[test]
fn a_resumed_build_whose_index_was_dropped_is_over() {
    let (mut set, _) = begun(&[unique(doc! { "x" => 1 }, "x_1")]);
    set.change_roles();
    let leader = set.leader();
    let interrupted = leader.lead().unwrap();
    leader.drop_collection(&mut leader.scope(), &ns("db.a")).unwrap();
    leader.resume_build(interrupted[0]).unwrap();
    set.follow("dropped");
}

#[test]
fn a_resumed_build_ends_with_the_role_and_the_process() {
    let (mut set, _) = begun(&[unique(doc! { "x" => 1 }, "x_1")]);
    set.change_roles();
    let interrupted = set.leader().lead().unwrap();
    set.change_roles();
    let deposed = set.follower();
    assert_eq!(code(deposed.resume_build(interrupted[0])), ErrorCode::NotWritablePrimary);
    deposed.end_builds();
    assert_eq!(code(deposed.resume_build(interrupted[0])), ErrorCode::InterruptedAtShutdown);
    let interrupted = set.leader().lead().unwrap();
    set.leader().resume_build(interrupted[0]).unwrap();
    assert!(set.leader().collection("db.a").unwrap().index_by_name("x_1").unwrap().ready);
}

/// The deposed leader has an incomplete index: it is completed when the new leader makes it ready.
#[test]
fn a_deposed_leader_completes_the_index_that_it_began() {
    let (mut set, mut build) = begun(&[spec(doc! { "x" => 1 }, "x_1")]);
    set.change_roles();
    let deposed = set.follower();
    let collection = deposed.collection("db.a").unwrap();
    assert_eq!(entries(deposed, collection.index_by_name("x_1").unwrap()).len(), 0);
    assert_eq!(set.leader().lead().unwrap(), []);
    set.follow("ready");
    let collection = deposed.collection("db.a").unwrap();
    assert_eq!(entries(deposed, collection.index_by_name("x_1").unwrap()).len(), 10);
    // The command of the deposed leader may still run.
    while !matches!(build.step(&collection, &mut deposed.scope()).unwrap(), BuildStep::Done) {}
    let ready = deposed.indexes_ready(&mut deposed.scope(), &collection, &[], &[]);
    assert_eq!(code(ready), ErrorCode::NotWritablePrimary);
    set.follow("as before");
}

/// A leader that was deposed and leads again has an incomplete index: it is completed before it is ready.
#[test]
fn a_leader_that_leads_again_completes_the_index_that_it_began() {
    let (mut set, _) = begun(&[spec(doc! { "x" => 1 }, "x_1")]);
    set.change_roles();
    set.change_roles();
    let leader = set.leader();
    let interrupted = leader.lead().unwrap();
    assert_eq!(interrupted.len(), 1);
    leader.resume_build(interrupted[0]).unwrap();
    set.follow("ready");
    let collection = leader.collection("db.a").unwrap();
    let index = collection.index_by_name("x_1").unwrap();
    assert!(index.ready);
    assert_eq!(entries(leader, index).len(), 10);
}

#[test]
fn an_index_that_could_not_be_attached_is_dropped() {
    let mut set = Set::new();
    let leader = set.leader();
    let collection = create(leader, "db.a");
    let array = kauri_bson::array![1];
    insert(leader, "db.a", &doc! { "_id" => 1, "a" => array.clone(), "b" => array });
    let specs = [spec(doc! { "a" => 1, "b" => 1 }, "ab")];
    leader.add_indexes(&mut leader.scope(), &collection, &specs).unwrap();
    set.follower().follow(set.leader());
    set.restart_follower(End::Killed);
    assert_eq!(set.follower().collection("db.a").unwrap().indexes.len(), 1);
    set.leader().leads(false);
    set.leader = 1;
    set.leader().leads(true);
    assert_eq!(set.leader().lead().unwrap(), []);
    set.follow("the new leader's");
    assert_eq!(set.follower().collection("db.a").unwrap().indexes.len(), 1);
}

/// As the leader that began the build would have found.
#[test]
fn an_index_without_the_keys_of_a_document_is_dropped() {
    let mut set = Set::new();
    let leader = set.leader();
    let collection = create(leader, "db.a");
    let array = kauri_bson::array![1];
    insert(leader, "db.a", &doc! { "_id" => 1, "a" => array.clone(), "b" => array });
    let specs = [spec(doc! { "a" => 1, "b" => 1 }, "ab")];
    let (ids, _) = leader.add_indexes(&mut leader.scope(), &collection, &specs).unwrap();
    leader.begun.lock().unwrap().extend(&ids);
    set.follower().follow(leader);
    set.leader().leads(false);
    set.leader = 1;
    set.leader().leads(true);
    let interrupted = set.leader().lead().unwrap();
    set.leader().resume_build(interrupted[0]).unwrap();
    set.follow("the new leader's");
    assert_eq!(set.leader().collection("db.a").unwrap().indexes.len(), 1);
}

#[test]
fn temporary_and_frozen_collections_end_with_the_earlier_leader() {
    let mut set = Set::new();
    let leader = set.leader();
    let temp = CollectionOptions { temp: true, ..Default::default() };
    leader.create_collection(&mut leader.scope(), &ns("db.tmp"), temp, None).unwrap();
    let collection = create(leader, "db.a");
    leader.freeze(&mut leader.scope(), &collection).unwrap();
    for _ in 0..2 {
        set.change_roles();
        set.leader().lead().unwrap();
        set.follow("the new leader's");
        assert!(set.leader().collection("db.tmp").is_none());
        let id = set.leader as i32;
        assert_eq!(insert(set.leader(), "db.a", &doc! { "_id" => id }), Written::Done);
    }
}

#[test]
fn ids_go_on_where_the_earlier_leader_ended() {
    let mut set = Set::new();
    let mut last = create(set.leader(), "db.a0");
    for n in 1..4 {
        set.change_roles();
        set.leader().lead().unwrap();
        let next = create(set.leader(), &format!("db.a{n}"));
        assert!(next.id > last.id && next.indexes[0].id > last.indexes[0].id);
        last = next;
        set.follow("created");
    }
}
