//! An engine under crash tests.

use kauri_emulator::Emulator;
use kauri_storage::{StorageEngine, StorageError};
use std::sync::Arc;

/// Opens the engine under test.
pub trait CrashTarget: Send + Sync {
    /// Opens the directory, recovering what is in it; an empty one becomes the engine's. Must start
    /// no threads.
    fn open(&self, directory: &Emulator) -> kauri_base::Result<Box<dyn OpenEngine>>;
}

/// The work done by [`OpenEngine::maintain`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// What is done every commit interval, and has ended well: whatever was committed before is durable.
    Round,
    /// Something else.
    Other,
}

/// An open engine. Dropping it is a crash as far as its memory is concerned.
pub trait OpenEngine: Send + Sync {
    /// The engine.
    fn engine(&self) -> Arc<dyn StorageEngine>;

    /// Does a piece of what the engine's threads would do; which one follows from `choice`.
    fn maintain(&self, choice: u64) -> Result<Work, StorageError>;

    /// Shuts down cleanly.
    fn close(&self) -> Result<(), StorageError>;
}
