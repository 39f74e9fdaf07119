//! The plan cache: a plan is cached after two trials. It stays until it becomes bad or the indexes change.

use crate::world::{World, raw};
use bson::{Document, doc};
use kauri_base::operation::block_on;
use kauri_matcher::{Matcher, ParseCx, Place};
use kauri_query::exec::{Flow, PlanExecutor, Row};
use kauri_query::plan::{self, PlanCache, Planned, Query};
use std::sync::Arc;

fn planned(world: &World, filter: Document) -> Planned {
    let filter = Matcher::parse(raw(&filter).as_doc(), &ParseCx::new(Place::Find)).unwrap();
    let query = Query { filter: Some(Arc::new(filter)), ..Query::default() };
    let (mut op, collection) = (world.op(), world.collection());
    block_on(plan::plan(&mut op, Some(&collection), &query, &world.env)).unwrap()
}

fn rows(world: &World, planned: Planned) -> usize {
    let mut executor = PlanExecutor::new(planned.root, world.env.clone());
    let (mut op, mut rows) = (world.op(), 0);
    let mut count = |_: &Row<'_>| {
        rows += 1;
        Ok(Flow::Continue)
    };
    block_on(executor.for_each(&mut op, &mut count)).unwrap();
    rows
}

#[test]
fn good_plans_stay_cached_until_they_become_bad() {
    let mut world = World::new(1);
    world.env.plans = Some(Arc::new(PlanCache::default()));
    world.create_index(&doc! { "key": { "a": 1 }, "name": "a" });
    world.create_index(&doc! { "key": { "b": 1 }, "name": "b" });
    // Few documents have `a` below 1000, few others `a.b` above 1000.
    for i in 0..1000 {
        world.insert(doc! { "a": i, "b": i });
        world.insert(doc! { "a": 1000, "b": 1000 + i });
    }
    let by_a = |value: i32| doc! { "a": value, "b": { "$gte": 0 } };
    for (round, cached) in [false, false, true, true].into_iter().enumerate() {
        let planned = planned(&world, by_a(round as i32));
        assert_eq!(planned.is_cached, cached, "round {round}");
        assert_eq!(rows(&world, planned), 1);
    }
    // The same shape, but now the index on `a` scans half of the collection.
    let bad = doc! { "a": 1000, "b": { "$gte": 1999 } };
    let chosen = planned(&world, bad.clone());
    assert!(!chosen.is_cached && chosen.trials.len() == 2);
    assert_eq!(rows(&world, chosen), 1);
    // Other shapes have their own plans, and any change of the indexes removes all plans.
    let other = |world: &World| planned(world, doc! { "a": 7, "b": 7 }).is_cached;
    assert_eq!([other(&world), other(&world), other(&world)], [false, false, true]);
    world.create_index(&doc! { "key": { "c": 1 }, "name": "c" });
    assert!(!other(&world));
}
