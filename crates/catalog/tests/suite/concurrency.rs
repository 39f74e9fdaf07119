//! Definition changes and index builds while writers run.

use crate::common::*;
use kauri_base::ErrorCode;
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_catalog::Rename;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Maximum number of writes of a thread, so that an endless build does not fill the memory.
const WRITES_MAX: usize = 100_000;

fn random_doc(random: &SeededRandom, id: i64) -> DocBuf {
    let n = |max: u64| (random.next_u64() % max) as i32;
    let b = match n(3) {
        0 => Value::from(n(20)),
        1 => array![n(5), n(5)],
        _ => Value::Missing,
    };
    DocBuf::build(|out| {
        out.put("_id", id);
        out.put("a", n(20));
        out.put_value("b", &b);
    })
}

/// Inserts, changes and deletes at random until it is stopped; returns the number of writes. Waits at the
/// barrier `begun` after the first write.
fn write_at_random(
    catalog: &Opened,
    name: &str,
    seed: u64,
    begun: &Barrier,
    stop: &AtomicBool,
) -> usize {
    let random = SeededRandom::new(seed);
    let mut written = 0;
    let mut next_id = seed as i64 * 1_000_000;
    while !stop.load(Ordering::Acquire) && written < WRITES_MAX {
        let outcome = match random.next_u64() % 3 {
            0 => {
                next_id += 1;
                insert(catalog, name, &random_doc(&random, next_id))
            }
            kind => {
                let Some(collection) = catalog.collection(name) else { continue };
                let upto = collection.store.stats().unwrap().records.max(1) * 2;
                let record = kauri_base::RecordId(1 + random.next_u64() % upto);
                change(catalog, name, record, |old| {
                    (kind == 1).then(|| {
                        let id = number(old, "_id");
                        random_doc(&random, id)
                    })
                })
            }
        };
        if outcome == Written::Done {
            written += 1;
            if written == 1 {
                begun.wait();
            }
        }
    }
    written
}

#[test]
fn an_index_built_among_writers_equals_a_rebuild() {
    let seed = 11;
    let catalog = open(&engine());
    create(&catalog, "db.c");
    for n in 0..2000 {
        insert(&catalog, "db.c", &random_doc(&SeededRandom::new(seed + n), n as i64));
    }
    let specs = [
        spec(doc! { "a" => 1 }, "a_1"),
        spec(doc! { "b" => 1 }, "b_1"),
        spec(doc! { "a" => -1, "b" => 1 }, "ab"),
    ];
    for round in 0..8 {
        let (begun, stop) = (Barrier::new(4), AtomicBool::new(false));
        let written = thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let (catalog, begun, stop) = (&catalog, &begun, &stop);
                    scope.spawn(move || {
                        write_at_random(catalog, "db.c", 1 + round * 10 + writer, begun, stop)
                    })
                })
                .collect();
            // The writers run before and after this.
            begun.wait();
            let ids = create_indexes(&catalog, "db.c", &specs).unwrap();
            assert_eq!(ids.len(), 3);
            stop.store(true, Ordering::Release);
            writers.into_iter().map(|w| w.join().unwrap()).sum::<usize>()
        });
        assert!(written > 0, "seed {seed}, round {round}: no thread wrote");
        let collection = catalog.collection("db.c").unwrap();
        for index in &collection.indexes {
            assert!(index.ready);
            let (got, expected) = (entries(&catalog, index), rebuilt(&catalog, &collection, index));
            assert_eq!(got, expected, "seed {seed}, round {round}, index {}", index.name());
        }
        let ids: Vec<_> = collection.indexes[1..].iter().map(|i| i.id).collect();
        catalog.drop_indexes(&mut catalog.scope(), &collection, &ids).unwrap();
    }
}

#[test]
fn a_unique_build_fails_exactly_if_there_is_a_duplicate() {
    for seed in 0..20 {
        let catalog = open(&engine());
        create(&catalog, "db.c");
        for n in 0..300 {
            insert(&catalog, "db.c", &doc! { "_id" => n, "u" => n });
        }
        let stop = AtomicBool::new(false);
        let built = thread::scope(|scope| {
            scope.spawn(|| {
                let random = SeededRandom::new(seed);
                let mut id = 1000;
                while !stop.load(Ordering::Acquire) && id < 100_000 {
                    id += 1;
                    let u = (random.next_u64() % 5000) as i32;
                    insert(&catalog, "db.c", &doc! { "_id" => id, "u" => u });
                }
            });
            let built = create_indexes(&catalog, "db.c", &[unique(doc! { "u" => 1 }, "u_1")]);
            stop.store(true, Ordering::Release);
            built
        });
        let collection = catalog.collection("db.c").unwrap();
        match built {
            Ok(_) => {
                let index = collection.index_by_name("u_1").unwrap();
                let keys: Vec<_> = entries(&catalog, index).into_iter().map(|(k, _)| k).collect();
                assert!(keys.windows(2).all(|w| w[0] != w[1]), "seed {seed}");
                assert_eq!(entries(&catalog, index), rebuilt(&catalog, &collection, index));
            }
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::DuplicateKey, "seed {seed}");
                let index = collection.index_by_name("u_1").unwrap();
                catalog.drop_indexes(&mut catalog.scope(), &collection, &[index.id]).unwrap();
            }
        }
    }
}

#[test]
fn definitions_change_under_writers_without_lost_or_duplicate_writes() {
    let catalog = open(&engine());
    create(&catalog, "db.c");
    let (stop, inserted) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for writer in 0..3 {
            let (catalog, stop, inserted) = (&catalog, &stop, &inserted);
            scope.spawn(move || {
                let mut n = writer * 10_000_000;
                while !stop.load(Ordering::Acquire) && n % 10_000_000 < 20_000 {
                    n += 1;
                    let document = doc! { "_id" => n, "x" => n % 7 };
                    for name in ["db.c", "db.d"] {
                        if insert(catalog, name, &document) == Written::Done {
                            inserted.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                    }
                }
            });
        }
        let (c, d) = (ns("db.c"), ns("db.d"));
        for round in 0..60 {
            let here = if catalog.collection("db.c").is_some() { &c } else { &d };
            let there = if here == &c { &d } else { &c };
            create_indexes(&catalog, here.as_str(), &[spec(doc! { "x" => 1 }, "x_1")]).unwrap();
            let collection = catalog.collection(here.as_str()).unwrap();
            let id = collection.index_by_name("x_1").unwrap().id;
            if round % 3 == 0 {
                catalog.rename_collection(&mut catalog.scope(), &Rename::new(here, there)).unwrap();
            }
            let collection =
                catalog.collection("db.c").or_else(|| catalog.collection("db.d")).unwrap();
            catalog.drop_indexes(&mut catalog.scope(), &collection, &[id]).unwrap();
        }
        stop.store(true, Ordering::Release);
    });
    let collection = catalog.collection("db.c").or_else(|| catalog.collection("db.d")).unwrap();
    assert_eq!(records(&catalog, &collection).len(), inserted.load(Ordering::Relaxed));
    assert_eq!(check(&catalog, &collection).findings, []);
}

#[test]
fn the_catalog_after_racing_drops_and_creations_reopens_unchanged() {
    let engine = engine();
    let catalog = open(&engine);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let catalog = &catalog;
            scope.spawn(move || {
                let random = SeededRandom::new(thread);
                for _ in 0..300 {
                    let name = ns(&format!("db.c{}", random.next_u64() % 5));
                    let other = ns(&format!("db.c{}", random.next_u64() % 5));
                    let outcome = match random.next_u64() % 4 {
                        0 | 1 => code(catalog.create_collection(
                            &mut catalog.scope(),
                            &name,
                            Default::default(),
                            None,
                        )),
                        2 => code(catalog.drop_collection(&mut catalog.scope(), &name)),
                        _ => code(catalog.rename_collection(
                            &mut catalog.scope(),
                            &Rename {
                                drop_target: random.next_u64().is_multiple_of(2),
                                ..Rename::new(&name, &other)
                            },
                        )),
                    };
                    assert!(
                        [
                            ErrorCode::OK,
                            ErrorCode::NamespaceExists,
                            ErrorCode::NamespaceNotFound,
                            ErrorCode::IllegalOperation,
                        ]
                        .contains(&outcome),
                        "{outcome:?}"
                    );
                }
            });
        }
    });
    let list = |catalog: &Opened| {
        let all = catalog.collections_of("db");
        all.iter().map(|c| (c.ns.to_string(), c.id, c.uuid)).collect::<Vec<_>>()
    };
    let before = list(&catalog);
    drop(catalog);
    assert_eq!(list(&open(&engine)), before);
    assert_eq!(engine.stores().len(), before.len() + 1, "a store for each, and the catalog's");
}
