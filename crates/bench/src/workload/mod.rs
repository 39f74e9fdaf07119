//! YCSB's core workloads, as the core of YCSB 0.17.0 makes them: which operation comes next, on which
//! record, with which values.
//!
//! - [`properties`]: workload files (`.properties`) and `-p name=value`;
//! - [`settings`]: CoreWorkload's properties by their own names and defaults;
//! - [`presets`]: the settings of the six core workloads A to F;
//! - [`random`] and [`generator`]: the distributions;
//! - [`record`]: names of keys and values of fields;
//! - [`core`]: the streams of operations that threads draw.
//!
//! Invariants: what is drawn depends on the settings, the seeds and, where threads share a counter, on the
//! order in which they come, on nothing else. Given the random numbers that the Java core draws, the
//! operations are the ones that it performs, one for one (`tests/clients/ycsb-core.sh` compares them). The
//! places where we differ on purpose are named where they are: numbers of records are never cut to 32
//! bits, and settings that YCSB takes for something else are refused.
//!
//! Where it sits: below everything that drives a server or an engine. It must not know of clocks, sockets,
//! documents or measurements.

pub mod core;
pub mod generator;
pub mod presets;
pub mod properties;
pub mod random;
pub mod record;
pub mod settings;

pub use self::core::{CoreWorkload, Fields, Operation, Part, Phase, Stream, Values};
pub use generator::KeyChoice;
pub use presets::Preset;
pub use properties::Properties;
pub use random::{Random, Seeded};
pub use settings::{Settings, Store};
