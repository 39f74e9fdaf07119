//! Loads the catalog's own records into memory before they are changed.
//!
//! A change of a definition commits under the `ddl` lock in a call that does not suspend, and its commit checks the
//! records that it replaces. If they were not in memory, that call would wait for the disk and block the worker. So
//! callers that may wait read them first.

use crate::catalog::Catalog;
use kauri_base::{Access, CollectionId, Result};
use kauri_storage::Operation;

impl Catalog {
    /// Waits until the catalog records of these full names (unknown ones are ignored), and those that every new
    /// collection changes, are in memory. They may be evicted again, though rarely so soon.
    pub async fn fetch_definitions(&self, op: &mut Operation, names: &[String]) -> Result<()> {
        let Some(store) = op.backend().engine().record_store(CollectionId::CATALOG) else {
            return Ok(());
        };
        for record in self.records_of(names) {
            loop {
                let reader = op.scope().enter();
                let found = store.get(&*reader, record).map(|access| access.map(drop));
                drop(reader);
                match found? {
                    Access::Ready(()) => break,
                    Access::WouldBlock(ticket) => op.wait(ticket).await?,
                }
            }
        }
        Ok(())
    }
}
