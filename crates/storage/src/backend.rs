//! The backend that all operations of a server share: engine, commit path, clock, timestamps, randomness.
//!
//! Only a [`Scope`](crate::Scope) commits, and only a scope hands readers to operations. Reports and maintenance
//! call the engine directly.

use crate::commit_ticket::CommitTicket;
use crate::engine::{Committer, LocalCommitter, RecoveryUnit, StorageEngine};
use crate::error::StorageError;
use crate::replicated_log::AppliedChange;
use crate::unit::WriteUnit;
use crate::watches::{Watch, Watches};
use kauri_base::ticks::Ticks;
use kauri_base::{Clock, CollectionId, RandomSource, Timestamp};
use kauri_bson::ObjectIds;
use std::sync::Arc;

/// See the module's head.
pub struct Backend {
    engine: Arc<dyn StorageEngine>,
    committer: Arc<dyn Committer>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    object_ids: ObjectIds,
    ticks: Ticks,
    watches: Arc<Watches>,
}

impl Backend {
    /// Commits go by `committer`.
    pub fn new(
        engine: Arc<dyn StorageEngine>,
        committer: Arc<dyn Committer>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn RandomSource>,
    ) -> Arc<Backend> {
        Arc::new(Backend {
            engine,
            committer,
            clock,
            object_ids: ObjectIds::new(&*random),
            random,
            ticks: Ticks::default(),
            watches: Arc::default(),
        })
    }

    /// Commits go to the engine.
    pub fn local(
        engine: Arc<dyn StorageEngine>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn RandomSource>,
    ) -> Arc<Backend> {
        let committer = Arc::new(LocalCommitter(engine.clone()));
        Backend::new(engine, committer, clock, random)
    }

    /// The engine, for reports, maintenance and definitions.
    pub fn engine(&self) -> &Arc<dyn StorageEngine> {
        &self.engine
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The source of randomness.
    pub fn random(&self) -> &Arc<dyn RandomSource> {
        &self.random
    }

    /// The server's time, in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.clock.unix_ms()
    }

    /// A new ObjectId, of the server's time.
    pub fn new_object_id(&self) -> [u8; 12] {
        self.object_ids.next((self.now_ms() / 1000) as u32)
    }

    /// A timestamp of the server's time, later than all that were given before.
    pub fn tick(&self) -> Timestamp {
        self.ticks.next(self.clock.unix_ms())
    }

    /// Begins to watch for commits to a collection that the next reader to enter may not show.
    pub fn watch(&self, collection: CollectionId) -> Watch {
        self.watches.watch(collection)
    }

    pub(crate) fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError> {
        let ticket = self.committer.commit(unit)?;
        self.watches.committed(unit);
        Ok(ticket)
    }

    /// A member that follows has applied a unit with these changes: who watches is woken.
    pub fn note_applied(&self, changes: &[AppliedChange]) {
        self.watches.changed(changes.iter().map(|change| change.collection));
    }

    pub(crate) fn reader(&self) -> Box<dyn RecoveryUnit> {
        self.engine.recovery_unit()
    }
}
