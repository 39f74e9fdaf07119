//! The catalog of a member that follows: after each unit it has the leader's definitions, and complete indexes.

use crate::common::*;
use crate::members::*;
use crate::unusable::with_unusable_index;
use kauri_base::{CollectionId, ErrorCode};
use kauri_bson::{Doc, DocBuf, array, doc};
use kauri_catalog::{CollectionOptions, Rename, Resolved, View};
use kauri_storage::{OpKind, StorageError};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn fill(set: &Set, name: &str, documents: i32) {
    create(set.leader(), name);
    for n in 0..documents {
        assert_eq!(insert(set.leader(), name, &doc! { "_id" => n, "x" => n % 9 }), Written::Done);
    }
    set.follow("after the inserts");
}

#[test]
fn a_new_member_has_nothing_and_commits_nothing() {
    let member = Member::new();
    assert!(member.databases().is_empty());
    assert!(member.backend.engine().stores().is_empty());
    let refused =
        member.create_collection(&mut member.scope(), &ns("db.a"), Default::default(), None);
    assert_eq!(code(refused), ErrorCode::NotWritablePrimary);
}

#[test]
fn a_restarted_follower_has_the_definitions_and_goes_on() {
    let mut set = Set::new();
    fill(&set, "db.a", 50);
    let collection = set.leader().collection("db.a").unwrap();
    // The second one has duplicates.
    let specs = [spec(doc! { "x" => -1 }, "x_1"), unique(doc! { "x" => 1 }, "u")];
    set.leader().add_indexes(&mut set.leader().scope(), &collection, &specs).unwrap();
    let temp = CollectionOptions { temp: true, ..Default::default() };
    let leader = set.leader();
    leader.create_collection(&mut leader.scope(), &ns("db.tmp"), temp, None).unwrap();
    set.follow("before the restart");
    set.restart_follower(End::Killed);
    set.follow("after the restart");
    assert!(set.follower().collection("db.tmp").is_some());
    let collection = set.follower().collection("db.a").unwrap();
    assert!(collection.indexes[1..].iter().all(|index| !index.ready));
    insert(set.leader(), "db.a", &doc! { "_id" => 100, "x" => 1 });
    set.follow("with another document");
}

#[test]
fn a_new_index_is_complete_before_the_next_unit() {
    let set = Set::new();
    fill(&set, "db.a", 300);
    let leader = set.leader();
    let collection = leader.collection("db.a").unwrap();
    let specs = [spec(doc! { "x" => 1 }, "x_1")];
    let (ids, ticket) = leader.add_indexes(&mut leader.scope(), &collection, &specs).unwrap();
    set.follow("added");
    let followed = set.follower().collection("db.a").unwrap();
    let index = followed.index_by_name("x_1").unwrap();
    assert!(!index.ready);
    assert_eq!(entries(set.follower(), index).len(), 300);
    change(leader, "db.a", records(leader, &collection)[0].0, |_| Some(doc! { "_id" => 0 }));
    insert(leader, "db.a", &doc! { "_id" => 300, "x" => 7 });
    set.follow("written while it is built");
    build(leader, "db.a", &ids, ticket.seq).unwrap();
    set.follow("ready");
    let followed = set.follower().collection("db.a").unwrap();
    let index = followed.index_by_name("x_1").unwrap();
    assert!(index.ready && !index.keys.multikey.is_multikey());
    assert_eq!(entries(set.follower(), index).len(), 301);
}

#[test]
fn multikey_paths_are_known_on_the_follower() {
    let set = Set::new();
    fill(&set, "db.a", 3);
    insert(set.leader(), "db.a", &doc! { "_id" => 10, "x" => array![1, 2] });
    create_indexes(set.leader(), "db.a", &[spec(doc! { "x" => 1 }, "x_1")]).unwrap();
    create_indexes(set.leader(), "db.a", &[spec(doc! { "y" => 1 }, "y_1")]).unwrap();
    set.follow("built");
    insert(set.leader(), "db.a", &doc! { "_id" => 11, "y" => array![1, 2] });
    set.follow("written");
    let collection = set.follower().collection("db.a").unwrap();
    for index in &collection.indexes[1..] {
        assert!(index.keys.multikey.is_multikey(), "{}", index.name());
    }
}

#[test]
fn the_leader_decides_about_duplicates() {
    let set = Set::new();
    create(set.leader(), "db.a");
    for n in 0..10 {
        insert(set.leader(), "db.a", &doc! { "_id" => n, "u" => n / 2 });
    }
    let leader = set.leader();
    let specs = [unique(doc! { "u" => 1 }, "u_1")];
    for ends_well in [false, true] {
        let collection = leader.collection("db.a").unwrap();
        let (ids, ticket) = leader.add_indexes(&mut leader.scope(), &collection, &specs).unwrap();
        set.follow("with duplicates");
        if ends_well {
            for (record, document) in records(leader, &collection) {
                let id = number(document.as_doc(), "_id");
                change(leader, "db.a", record, |_| Some(doc! { "_id" => id, "u" => id }));
            }
        }
        let built = build(leader, "db.a", &ids, ticket.seq);
        assert_eq!(code(built) == ErrorCode::OK, ends_well);
        if !ends_well {
            let collection = leader.collection("db.a").unwrap();
            leader.drop_indexes(&mut leader.scope(), &collection, &ids).unwrap();
        }
        set.follow("decided");
        let indexes = 1 + usize::from(ends_well);
        assert_eq!(set.follower().collection("db.a").unwrap().indexes.len(), indexes);
    }
}

#[test]
fn a_document_that_cannot_be_indexed_fails_the_leaders_build_only() {
    let mut set = Set::new();
    create(set.leader(), "db.a");
    insert(set.leader(), "db.a", &doc! { "_id" => 1, "a" => array![1], "b" => array![1] });
    insert(set.leader(), "db.a", &doc! { "_id" => 2, "a" => 1, "b" => 1 });
    let specs = [spec(doc! { "a" => 1, "b" => 1 }, "ab")];
    for restarts in [false, true] {
        let leader = set.leader();
        let collection = leader.collection("db.a").unwrap();
        let (ids, ticket) = leader.add_indexes(&mut leader.scope(), &collection, &specs).unwrap();
        set.follower().follow(leader);
        let followed = set.follower().collection("db.a").unwrap();
        assert_eq!(entries(set.follower(), &followed.indexes[1]).len(), 1);
        if restarts {
            set.restart_follower(End::Killed);
        }
        let leader = set.leader();
        assert_eq!(
            code(build(leader, "db.a", &ids, ticket.seq)),
            ErrorCode::CannotIndexParallelArrays
        );
        let collection = leader.collection("db.a").unwrap();
        leader.drop_indexes(&mut leader.scope(), &collection, &ids).unwrap();
        set.follow("dropped");
    }
}

#[test]
fn an_index_build_ends_with_the_process() {
    let set = Set::new();
    fill(&set, "db.a", 10);
    let leader = set.leader();
    let collection = leader.collection("db.a").unwrap();
    let specs = [spec(doc! { "x" => 1 }, "x_1")];
    leader.add_indexes(&mut leader.scope(), &collection, &specs).unwrap();
    let follower = set.follower();
    follower.end_builds();
    for unit in leader.take_units() {
        let changes = follower.apply(&unit);
        let applied = follower.applied(&mut follower.scope(), &changes);
        assert_eq!(code(applied), ErrorCode::InterruptedAtShutdown);
    }
    assert!(follower.collection("db.a").unwrap().index_by_name("x_1").is_none());
}

#[test]
fn a_change_of_definition_is_noticed_by_those_who_read() {
    let set = Set::new();
    fill(&set, "db.a", 10);
    let (leader, follower) = (set.leader(), set.follower());
    let mut reader = follower.backend.engine().recovery_unit();
    reader.hold_snapshot().unwrap();
    let before = follower.collection("db.a").unwrap();
    let collection = leader.collection("db.a").unwrap();
    leader.change_options(&mut leader.scope(), &collection, Default::default()).unwrap();
    set.follow("changed");
    let after = follower.collection("db.a").unwrap();
    assert_eq!(after.definition, before.definition + 1);
    reader.enter();
    let read = before.store.get(&*reader, kauri_base::RecordId(1));
    assert!(matches!(read, Err(StorageError::SnapshotUnavailable(_))));
}

#[test]
fn readers_always_find_a_collection_that_is_renamed() {
    const RENAMES: usize = 2_000;
    let set = Set::new();
    fill(&set, "db.a0", 1);
    let (leader, follower) = (set.leader(), set.follower());
    let uuid = leader.collection("db.a0").unwrap().uuid;
    let (begun, ended) = (Barrier::new(3), AtomicBool::new(false));
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                begun.wait();
                while !ended.load(Ordering::Acquire) {
                    assert!(follower.collection_by_uuid("db", &uuid).is_some());
                }
            });
        }
        begun.wait();
        for n in 0..RENAMES {
            let (from, to) = (ns(&format!("db.a{n}")), ns(&format!("db.a{}", n + 1)));
            leader.rename_collection(&mut leader.scope(), &Rename::new(&from, &to)).unwrap();
            follower.follow(leader);
        }
        ended.store(true, Ordering::Release);
    });
    assert!(follower.collection(&format!("db.a{RENAMES}")).is_some());
}

/// A reader that meets a dropped collection catches up until the name resolves to what took its place.
#[test]
fn a_reader_that_meets_a_drop_catches_up() {
    let set = Set::new();
    fill(&set, "db.a", 1);
    fill(&set, "db.b", 1);
    let (leader, follower) = (set.leader(), set.follower());
    let (from, to) = (ns("db.b"), ns("db.a"));
    let rename = Rename { drop_target: true, ..Rename::new(&from, &to) };
    leader.rename_collection(&mut leader.scope(), &rename).unwrap();
    let [unit] = &leader.take_units()[..] else { panic!("one unit") };
    let old = follower.collection("db.a").unwrap();
    let changes = follower.apply(unit);
    assert!(old.stats().is_err(), "it is dropped");
    let begun = Barrier::new(2);
    thread::scope(|threads| {
        let reader = threads.spawn(|| {
            begun.wait();
            follower.catch_up();
            follower.collection("db.a").unwrap().id
        });
        begun.wait();
        thread::yield_now();
        follower.applied(&mut follower.scope(), &changes).unwrap();
        assert_ne!(reader.join().unwrap(), old.id);
    });
}

#[test]
fn usage_counters_go_on_through_a_rename_and_not_through_a_drop() {
    let set = Set::new();
    fill(&set, "db.a", 1);
    let (leader, follower) = (set.leader(), set.follower());
    let before = follower.collection("db.a").unwrap();
    let (a, b) = (ns("db.a"), ns("db.b"));
    leader.rename_collection(&mut leader.scope(), &Rename::new(&a, &b)).unwrap();
    set.follow("renamed");
    let renamed = follower.collection("db.b").unwrap();
    assert!(std::sync::Arc::ptr_eq(&renamed.usage, &before.usage));
    assert!(std::sync::Arc::ptr_eq(&renamed.indexes[0].usage, &before.indexes[0].usage));
    leader.drop_collection(&mut leader.scope(), &b).unwrap();
    create(leader, "db.b");
    set.follow("created again");
    assert!(!std::sync::Arc::ptr_eq(&follower.collection("db.b").unwrap().usage, &before.usage));
}

#[test]
fn a_view_takes_the_place_of_a_collection() {
    let set = Set::new();
    fill(&set, "db.a", 1);
    let leader = set.leader();
    leader.drop_collection(&mut leader.scope(), &ns("db.a")).unwrap();
    let options = doc! { "viewOn" => "b" };
    let (view_on, pipeline, usage) = ("b".to_owned(), DocBuf::new(), Default::default());
    let view = View { ns: ns("db.a"), view_on, pipeline, options, usage };
    leader.create_view(&mut leader.scope(), view).unwrap();
    set.follow("a view");
    assert!(matches!(set.follower().resolve("db.a"), Resolved::View(_)));
}

/// The leader may be of another version.
#[test]
fn an_unusable_index_is_set_aside_until_it_is_dropped() {
    let set = Set::new();
    fill(&set, "db.c", 5);
    let (leader, follower) = (set.leader(), set.follower());
    create_indexes(leader, "db.c", &[spec(doc! { "x" => 1 }, "x_1")]).unwrap();
    set.follow("x_1");
    create_indexes(leader, "db.c", &[spec(doc! { "a" => 1 }, "a")]).unwrap();
    let collection = leader.collection("db.c").unwrap();
    leader.change_options(&mut leader.scope(), &collection, Default::default()).unwrap();
    for mut unit in leader.take_units() {
        for op in unit.ops.iter_mut().filter(|op| op.collection == CollectionId::CATALOG) {
            if let OpKind::Update { doc, .. } = &mut op.kind {
                let changed = with_unusable_index(Doc::from_bytes(doc).unwrap());
                *doc = changed.into_vec().into();
            }
        }
        let changes = follower.apply(&unit);
        follower.applied(&mut follower.scope(), &changes).unwrap();
    }
    let followed = follower.collection("db.c").unwrap();
    assert_eq!((followed.indexes.len(), followed.unusable.len()), (2, 1));
    let collection = leader.collection("db.c").unwrap();
    let id = collection.index_by_name("a").unwrap().id;
    leader.drop_indexes(&mut leader.scope(), &collection, &[id]).unwrap();
    set.follow("dropped");
    assert!(follower.collection("db.c").unwrap().unusable.is_empty());
}
