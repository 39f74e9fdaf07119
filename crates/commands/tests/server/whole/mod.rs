//! Concurrent reads, writes and DDL: index drops and builds, `reIndex`, swaps of names, `$out`, dropping and
//! recreating collections. Every result is complete, or it is an error that MongoDB has.
//!
//! The expected results are known. Some collections never change except for their indexes (`stable`). Some have
//! one generation as a whole (`swapped`). In others each document has one writer that counts its changes
//! (`writers`). All run on real threads, on a server with several workers, from seeded numbers.
//!
//! `KAURI_READS` sets the number of reads, `KAURI_SEED` the seed.

mod ddl;
mod run;
mod stable;
mod swapped;
mod writers;

use crate::cold_disk::ColdEngine;
use crate::common::TestServer;
use kauri_storage::{EphemeralEngine, StorageEngine};
use run::Run;
use std::sync::Arc;

const SEED: u64 = 30;
/// Number of reads of the ordinary run, on each engine.
const READS: u64 = 4_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn check(engine: Arc<dyn StorageEngine>) {
    let test = Arc::new(TestServer::start_on(engine, 4, &[]));
    let (seed, reads) = (number("KAURI_SEED", SEED), number("KAURI_READS", READS));
    let run = Run::new(&test, seed, reads);
    stable::load(&run);
    swapped::load(&run);
    writers::load(&run);
    run.all(
        &[stable::read, swapped::read, stable::read, swapped::read],
        &[
            writers::update,
            writers::upsert,
            writers::delete,
            ddl::indexes,
            ddl::swaps,
            ddl::outs,
            ddl::recreations,
        ],
    );
    writers::check(&run);
    run.report();
}

#[test]
fn results_are_whole_or_errors() {
    check(Arc::new(EphemeralEngine::new()));
}

#[test]
fn results_are_whole_or_errors_on_the_log() {
    let disk = ColdEngine::open();
    check(disk.engine.clone());
}
