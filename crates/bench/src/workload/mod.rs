//! YCSB's core workloads, as in YCSB 0.17.0: the choice of operations, records and values.
//!
//! - [`properties`]: workload files (`.properties`) and `-p name=value`;
//! - [`settings`]: CoreWorkload's properties by their own names and defaults;
//! - [`presets`]: the settings of the six core workloads A to F;
//! - [`random`] and [`generator`]: the distributions;
//! - [`record`]: names of keys and values of fields;
//! - [`core`]: the streams of operations for threads.
//!
//! Invariants: draws depend only on the settings, the seeds and, if threads share a counter, on the order of their
//! calls. With the random numbers of the Java core, the operations are the same, one for one
//! (`tests/clients/ycsb-core.sh` compares them). Deliberate differences are marked in the code: numbers of records
//! are never truncated to 32 bits, and settings that YCSB misinterprets are refused.
//!
//! Position: below everything that drives a server or an engine. This module must not know clocks, sockets,
//! documents or measurements.

pub mod core;
pub mod generator;
pub mod presets;
pub mod properties;
pub mod random;
pub mod record;
pub mod settings;

pub use self::core::{CoreWorkload, Fields, Operation, Phase, ProcessShare, Stream, Values};
pub use generator::KeyChoice;
pub use presets::Preset;
pub use properties::Properties;
pub use random::{Random, Seeded};
pub use settings::{Settings, Store};
