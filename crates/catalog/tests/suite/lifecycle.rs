//! Creating, renaming, changing and dropping collections and views. A reopened catalog has the same
//! definitions.

use crate::common::*;
use kauri_base::ErrorCode;
use kauri_bson::{DocBuf, doc};
use kauri_catalog::{Capped, CollectionOptions, Rename, Resolved, View};

fn view(name: &str, on: &str) -> View {
    let options = doc! { "viewOn" => on };
    let (view_on, pipeline, usage) = (on.to_owned(), DocBuf::new(), Default::default());
    View { ns: ns(name), view_on, pipeline, options, usage }
}

fn names(catalog: &Opened) -> Vec<String> {
    let mut names = Vec::new();
    for database in catalog.databases().keys() {
        names.extend(catalog.collections_of(database).iter().map(|c| c.ns.to_string()));
        names.extend(catalog.views_of(database).iter().map(|v| v.ns.to_string()));
    }
    names
}

#[test]
fn a_name_is_unique_until_its_collection_is_dropped() {
    let catalog = open(&engine());
    let first = create(&catalog, "db.a");
    assert_eq!(
        code(catalog.create_collection(
            &mut catalog.scope(),
            &ns("db.a"),
            Default::default(),
            None
        )),
        ErrorCode::NamespaceExists
    );
    assert_eq!(
        code(catalog.create_view(&mut catalog.scope(), view("db.a", "b"))),
        ErrorCode::NamespaceExists
    );
    catalog.drop_collection(&mut catalog.scope(), &ns("db.a")).unwrap();
    assert_eq!(
        code(catalog.drop_collection(&mut catalog.scope(), &ns("db.a"))),
        ErrorCode::NamespaceNotFound
    );
    let second = create(&catalog, "db.a");
    assert_ne!(first.id, second.id, "ids are never used again");
    assert_ne!(first.uuid, second.uuid);
    catalog.drop_collection(&mut catalog.scope(), &ns("db.a")).unwrap();
    catalog.create_view(&mut catalog.scope(), view("db.a", "b")).unwrap();
    assert!(matches!(catalog.resolve("db.a"), Resolved::View(_)));
}

#[test]
fn database_names_that_differ_only_in_case_conflict() {
    let catalog = open(&engine());
    create(&catalog, "Db.a");
    let refused =
        catalog.create_collection(&mut catalog.scope(), &ns("db.b"), Default::default(), None);
    assert_eq!(code(refused), ErrorCode::from_number(13297));
    create(&catalog, "other.a");
    let (from, to) = (ns("other.a"), ns("dB.a"));
    let refused = catalog.rename_collection(&mut catalog.scope(), &Rename::new(&from, &to));
    assert_eq!(code(refused), ErrorCode::from_number(13297));
    catalog.drop_database(&mut catalog.scope(), "Db").unwrap();
    create(&catalog, "db.b");
}

#[test]
fn a_reopened_catalog_has_all_definitions() {
    let engine = engine();
    let catalog = open(&engine);
    let options = CollectionOptions {
        capped: Some(Capped { bytes_max: 1 << 40, records_max: 7 }),
        ..Default::default()
    };
    catalog.create_collection(&mut catalog.scope(), &ns("db.capped"), options, None).unwrap();
    let a = create(&catalog, "db.a");
    catalog.create_view(&mut catalog.scope(), view("db.v", "a")).unwrap();
    for n in 0..50 {
        insert(&catalog, "db.a", &doc! { "_id" => n, "x" => n % 5 });
    }
    create_indexes(&catalog, "db.a", &[spec(doc! { "x" => 1 }, "x_1")]).unwrap();
    create(&catalog, "db.gone");
    catalog.drop_collection(&mut catalog.scope(), &ns("db.gone")).unwrap();
    let before = names(&catalog);
    drop(catalog);

    let catalog = open(&engine);
    assert_eq!(names(&catalog), before);
    let capped = catalog.collection("db.capped").unwrap();
    let bounds = capped.options.capped.unwrap();
    assert_eq!((bounds.bytes_max, bounds.records_max), (1 << 40, 7));
    let again = catalog.collection("db.a").unwrap();
    assert_eq!((again.id, again.uuid), (a.id, a.uuid));
    assert!(again.index_by_name("x_1").unwrap().ready);
    assert_eq!(check(&catalog, &again).findings, []);
    let c = create(&catalog, "db.c");
    assert!(c.id > again.id && c.indexes[0].id > again.indexes[1].id);
}

#[test]
fn an_interrupted_build_is_finished_or_dropped_at_the_next_start() {
    let engine = engine();
    let catalog = open(&engine);
    let collection = create(&catalog, "db.a");
    for n in 0..10 {
        insert(&catalog, "db.a", &doc! { "_id" => n, "x" => n, "y" => n % 2 });
    }
    let specs = [spec(doc! { "x" => 1 }, "x_1"), unique(doc! { "y" => 1 }, "y_1")];
    catalog.add_indexes(&mut catalog.scope(), &collection, &specs).unwrap();
    drop(catalog);
    let catalog = open(&engine);
    let collection = catalog.collection("db.a").unwrap();
    assert!(collection.index_by_name("x_1").is_some_and(|index| index.ready));
    assert!(collection.index_by_name("y_1").is_none(), "it has duplicates");
    assert_eq!(check(&catalog, &collection).findings, []);
    drop((collection, catalog));
    let collection = open(&engine).collection("db.a").unwrap();
    assert_eq!(collection.indexes.len(), 2);
}

#[test]
fn temporary_collections_do_not_outlive_the_process() {
    let engine = engine();
    let catalog = open(&engine);
    let temp = || CollectionOptions { temp: true, ..Default::default() };
    catalog.create_collection(&mut catalog.scope(), &ns("db.tmp1"), temp(), None).unwrap();
    catalog.create_collection(&mut catalog.scope(), &ns("db.tmp2"), temp(), None).unwrap();
    catalog
        .rename_collection(&mut catalog.scope(), &Rename::new(&ns("db.tmp2"), &ns("db.kept")))
        .unwrap();
    drop(catalog);
    assert_eq!(names(&open(&engine)), ["db.kept"]);
}

#[test]
fn a_rename_keeps_documents_and_indexes() {
    let engine = engine();
    let catalog = open(&engine);
    let source = create(&catalog, "db.a");
    insert(&catalog, "db.a", &doc! { "_id" => 1, "x" => 1 });
    create_indexes(&catalog, "db.a", &[spec(doc! { "x" => 1 }, "x_1")]).unwrap();
    create(&catalog, "db.b");
    let (a, b) = (ns("db.a"), ns("db.b"));
    assert_eq!(
        code(catalog.rename_collection(&mut catalog.scope(), &Rename::new(&a, &b))),
        ErrorCode::NamespaceExists
    );
    assert_eq!(
        code(catalog.rename_collection(&mut catalog.scope(), &Rename::new(&a, &a))),
        ErrorCode::IllegalOperation
    );
    let forced = Rename { drop_target: true, ..Rename::new(&a, &b) };
    catalog.rename_collection(&mut catalog.scope(), &forced).unwrap();
    assert!(catalog.collection("db.a").is_none());
    for catalog in [&catalog, &open(&engine)] {
        let renamed = catalog.collection("db.b").unwrap();
        assert_eq!((renamed.uuid, renamed.indexes.len()), (source.uuid, 2));
        assert_eq!(records(catalog, &renamed).len(), 1);
    }
}

#[test]
fn a_replacing_rename_checks_its_target() {
    let catalog = open(&engine());
    let old = create(&catalog, "db.a");
    create(&catalog, "db.tmp");
    let (a, tmp) = (ns("db.a"), ns("db.tmp"));
    catalog.drop_collection(&mut catalog.scope(), &a).unwrap();
    let rename = Rename { drop_target: true, replaces: Some(old.id), ..Rename::new(&tmp, &a) };
    let gone = ErrorCode::ConflictingOperationInProgress;
    assert_eq!(code(catalog.rename_collection(&mut catalog.scope(), &rename)), gone);
    create(&catalog, "db.a");
    assert_eq!(code(catalog.rename_collection(&mut catalog.scope(), &rename)), gone);
    let x = ns("db.x");
    let also = Rename { also_drop: Some((&a, old.id)), ..Rename::new(&tmp, &x) };
    assert_eq!(code(catalog.rename_collection(&mut catalog.scope(), &also)), gone);
    assert!(catalog.collection("db.a").is_some() && catalog.collection("db.tmp").is_some());
}

#[test]
fn a_frozen_collection_takes_no_writes_until_it_is_thawed() {
    let catalog = open(&engine());
    let collection = create(&catalog, "db.a");
    insert(&catalog, "db.a", &doc! { "_id" => 1 });
    let frozen = catalog.freeze(&mut catalog.scope(), &collection).unwrap();
    let busy = ErrorCode::ConflictingOperationInProgress;
    let refused = Written::Refused(busy);
    assert_eq!(insert(&catalog, "db.a", &doc! { "_id" => 2 }), refused);
    let record = records(&catalog, &frozen)[0].0;
    assert_eq!(change(&catalog, "db.a", record, |_| None), refused);
    assert_eq!(change(&catalog, "db.a", record, |_| Some(doc! { "_id" => 1 })), refused);
    assert_eq!(code(catalog.freeze(&mut catalog.scope(), &frozen)), busy);
    assert_eq!(
        code(catalog.add_indexes(&mut catalog.scope(), &frozen, &[spec(doc! { "x" => 1 }, "x")])),
        busy
    );
    assert_eq!(
        code(catalog.change_options(&mut catalog.scope(), &frozen, Default::default())),
        busy
    );
    catalog.thaw(&mut catalog.scope(), &frozen).unwrap();
    assert_eq!(insert(&catalog, "db.a", &doc! { "_id" => 2 }), Written::Done);
}

#[test]
fn a_change_of_an_old_definition_is_stale() {
    let catalog = open(&engine());
    let old = create(&catalog, "db.a");
    catalog.add_indexes(&mut catalog.scope(), &old, &[spec(doc! { "x" => 1 }, "x")]).unwrap();
    assert_eq!(
        code(catalog.add_indexes(&mut catalog.scope(), &old, &[spec(doc! { "y" => 1 }, "y")])),
        ErrorCode::WriteConflict
    );
    assert_eq!(
        code(catalog.change_options(&mut catalog.scope(), &old, Default::default())),
        ErrorCode::WriteConflict
    );
}

#[test]
fn dropping_a_database_drops_all_its_views() {
    let catalog = open(&engine());
    create(&catalog, "db.a");
    catalog.create_view(&mut catalog.scope(), view("db.v", "a")).unwrap();
    catalog.create_view(&mut catalog.scope(), view("db.w", "a")).unwrap();
    catalog.create_view(&mut catalog.scope(), view("other.v", "a")).unwrap();
    assert!(catalog.drop_views(&mut catalog.scope(), "db").unwrap().is_some());
    assert!(catalog.drop_views(&mut catalog.scope(), "db").unwrap().is_none());
    assert_eq!(names(&catalog), ["db.a", "other.v"]);
}

#[test]
fn a_prepared_index_refuses_new_duplicates_only() {
    let catalog = open(&engine());
    create(&catalog, "db.a");
    for n in 0..2 {
        insert(&catalog, "db.a", &doc! { "_id" => n, "x" => 1 });
    }
    create_indexes(&catalog, "db.a", &[spec(doc! { "x" => 1 }, "x_1")]).unwrap();
    let collection = catalog.collection("db.a").unwrap();
    let index = collection.index_by_name("x_1").unwrap();
    let prepared =
        doc! { "v" => 2, "key" => doc! { "x" => 1 }, "name" => "x_1", "prepareUnique" => true };
    catalog.change_index(&mut catalog.scope(), &collection, index, prepared).unwrap();
    let duplicate = Written::Refused(ErrorCode::DuplicateKey);
    assert_eq!(insert(&catalog, "db.a", &doc! { "_id" => 2, "x" => 1 }), duplicate);
    assert_eq!(insert(&catalog, "db.a", &doc! { "_id" => 3, "x" => 2 }), Written::Done);
}
