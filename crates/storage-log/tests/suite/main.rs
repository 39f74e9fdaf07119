//! Engine tests, in one program so that it is linked once and keeps all processors busy. Some tests need their
//! own process or build. `fuzz`, `engine_memory` and `index_memory` measure the process's memory; `loom` and
//! `shuttle` compile sources against model checkers.

/// The program's allocator; crash tests allocate much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod common;
mod crash_target;
mod repair_target;

mod cleaning;
mod conformance;
mod contention;
mod crash;
mod crash_creation;
mod crash_headers;
mod crash_sites;
mod crash_states;
mod damage;
mod dax;
mod faults;
mod flips;
mod followers;
mod frames;
mod held;
mod ids;
mod image_flips;
mod images;
mod labels;
mod log_copy;
mod marks;
mod memory;
mod pending;
mod pending_drops;
mod pending_images;
mod prefix;
mod repair;
mod repair_crashes;
mod repair_sites;
mod restored;
mod room;
mod salvage;
mod snapshots;
mod staging;
mod stress;
