//! Random queries over random collections and indexes. Every plan returns the rows of a reference that scans
//! every document and shares neither matching nor comparison with the planner. Write statements are tested too:
//! their documents are compared afterwards.
//!
//! `KAURI_SEED` repeats the collection that a failure names.

mod ask;
mod naive;
mod reads;
mod writes;

use crate::generate::Generator;
use crate::world::{self, World};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const SEED: u64 = 0x706c_616e_7321;
const COLLECTIONS: u64 = 1000;
const QUERIES: u32 = 52;
const STATEMENTS: u32 = 8;

/// Counters of a run, so that a run without effect fails.
#[derive(Default, Debug)]
pub struct Tally {
    queries: u32,
    plans: u32,
    rows: u64,
    by_index: u32,
    sorted_by_index: u32,
    by_or: u32,
    merged: u32,
    covered: u32,
    distinct: u32,
    written: u64,
}

/// A collection with indexes, some made before its documents and some after.
fn make(generator: &Generator, seed: u64) -> World {
    let mut world = World::new(seed);
    let count = 1 + generator.below(5) as usize;
    let early = generator.below(count as u64 + 1) as usize;
    let specs: Vec<_> = (0..count).map(|number| ask::index(generator, number)).collect();
    specs.iter().take(early).for_each(|spec| world.create_index(spec));
    // A collection without arrays lets indexes stay simple.
    let flat = generator.below(2) == 0;
    for _ in 0..12 + generator.below(24) {
        let mut doc = match generator.below(4) {
            0 => ask::grid(generator),
            _ => generator.document(),
        };
        if flat {
            doc = flattened(doc);
        }
        world.insert(doc);
    }
    specs.iter().skip(early).for_each(|spec| world.create_index(spec));
    world
}

fn flattened(doc: bson::Document) -> bson::Document {
    use bson::Bson;
    let flat = |value: Bson| match value {
        Bson::Array(items) => items.into_iter().next().filter(|v| v.as_array().is_none()),
        Bson::Document(inner) => Some(Bson::Document(flattened(inner))),
        other => Some(other),
    };
    doc.into_iter().filter_map(|(key, value)| Some((key, flat(value)?))).collect()
}

fn run(seed: u64, tally: &mut Tally) {
    let generator = Generator::new(seed);
    let mut world = make(&generator, seed);
    let bytes = |docs: &[bson::Document]| docs.iter().map(world::raw).collect::<Vec<_>>();
    assert!(bytes(&world.stored()) == bytes(&world.docs), "stored as inserted");
    for round in 0..QUERIES {
        reads::check(&world, &generator, tally);
        if round % (QUERIES / STATEMENTS) == 0 {
            writes::check(&mut world, &generator, tally);
        }
    }
    writes::check_indexes(&world);
}

#[test]
fn every_plan_answers_as_the_reference() {
    let one: Option<u64> = std::env::var("KAURI_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => SEED..SEED + COLLECTIONS,
    };
    let mut tally = Tally::default();
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, &mut tally))) {
            eprintln!("repeat it with KAURI_SEED={seed}");
            resume_unwind(panic);
        }
    }
    println!("{tally:?}");
    if one.is_none() {
        assert!(tally.queries >= 50_000 && tally.plans > 2 * tally.queries, "{tally:?}");
        assert!(tally.by_index > 20_000 && tally.sorted_by_index > 2_000, "{tally:?}");
        assert!(tally.by_or > 500 && tally.merged > 200 && tally.covered > 500, "{tally:?}");
        assert!(tally.distinct > 500 && tally.written > 5_000, "{tally:?}");
        assert!(tally.rows > 300_000, "{tally:?}");
    }
}
