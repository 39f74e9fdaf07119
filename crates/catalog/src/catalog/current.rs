//! What became of a collection that was dropped or renamed while a statement used it ([`crate::dropped`]).

use super::*;
use crate::dropped::uuid_text;

/// How often a reader lets the thread go on that applies a drop. If that is not enough, the statement fails as if it
/// had begun before the drop.
const LAG_YIELDS_MAX: u32 = 10_000;

impl Catalog {
    /// Returns when every drop that a reader can have met has reached the names: after that
    /// [`Catalog::resolve`] answers what took the dropped one's place. Between its commit and the names a
    /// change of definition holds the `ddl` lock, and does nothing but memory work. A drop that a member of a replica
    /// set applies reaches the names soon after that, on the thread that applies it.
    pub fn catch_up(&self) {
        drop(self.lock_ddl());
        for _ in 0..LAG_YIELDS_MAX {
            if !self.lags() {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Fails if this is no longer the collection of its name, in whatever definition.
    pub fn check_current(&self, collection: &Collection) -> Result<()> {
        if self.is_current(collection) {
            return Ok(());
        }
        self.catch_up();
        match self.is_current(collection) {
            true => Ok(()),
            false => Err(self.gone_error(collection)),
        }
    }

    /// The client's error for a statement that ends because the name no longer has the collection.
    pub fn gone_error(&self, collection: &Collection) -> Error {
        let (from, uuid) = (&collection.ns, &collection.uuid);
        match self.collection_by_uuid(from.database(), uuid) {
            Some(renamed) if renamed.ns != *from => Error::new(
                ErrorCode::QueryPlanKilled,
                format!(
                    "collection renamed from '{from}' to '{}'. UUID {}",
                    renamed.ns,
                    uuid_text(uuid)
                ),
            ),
            _ => collection.dropped_error(),
        }
    }

    fn is_current(&self, collection: &Collection) -> bool {
        match self.resolve(collection.ns.as_str()) {
            Resolved::Collection(current) => current.id == collection.id,
            _ => false,
        }
    }

    /// Whether the engine has dropped a collection whose name is still there, so that [`Catalog::applied`] is about
    /// to be called.
    fn lags(&self) -> bool {
        let engine = self.backend.engine();
        self.is_member
            && read(&self.collections).values().any(|c| engine.record_store(c.id).is_none())
    }
}
