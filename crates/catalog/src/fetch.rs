//! Having the catalog's own records in memory before they are changed.
//!
//! A change of a definition is committed under the `ddl` lock by a call that doesn't suspend, and its
//! commit looks at the records that it replaces. If they have left memory it would wait for the disk
//! there, and everybody on that worker with it. So whoever may wait reads them first.

use crate::catalog::Catalog;
use kauri_base::{Access, CollectionId, OperationContext, Result};

impl Catalog {
    /// Waits until the records of these names (full names; unknown ones don't matter), and those that
    /// every new collection changes, are in memory. They may leave it again, if rarely so soon.
    pub async fn fetch_definitions(
        &self,
        op: &mut OperationContext,
        names: &[String],
    ) -> Result<()> {
        let Some(store) = self.engine().record_store(CollectionId::CATALOG) else { return Ok(()) };
        let mut ru = self.engine().recovery_unit();
        for record in self.records_of(names) {
            loop {
                ru.enter();
                let found = store.get(&*ru, record).map(|access| access.map(drop));
                ru.leave();
                match found? {
                    Access::Ready(()) => break,
                    Access::WouldBlock(ticket) => op.wait(ticket).await?,
                }
            }
        }
        Ok(())
    }
}
