//! Ends what an earlier process or an earlier leader began: index builds, temporary collections, frozen collections.
//!
//! A build that needs no pass over the documents is ended at once. Others are resumed while clients write
//! ([`Catalog::resume_build`]), as the command that began them would have gone on.

use super::*;
use crate::build::{BuildStep, IndexBuild};
use kauri_base::log::{self, Attr};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two progress lines of a long build.
const PROGRESS_EVERY: Duration = Duration::from_secs(3);

/// An index build that an earlier leader began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterruptedBuild {
    /// The collection.
    pub collection: CollectionId,
    /// The index; not ready.
    pub index: IndexId,
}

impl Catalog {
    /// Makes the catalog of a member that of a leader. Called when the engine accepts its units, before clients may
    /// write; blocks while it reads catalog documents. Answers the index builds that are to be resumed.
    pub fn lead(&self) -> Result<Vec<InterruptedBuild>> {
        let mut scope = self.backend.scope();
        self.ensure_store(&mut scope)?;
        for frozen in self.all_collections().iter().filter(|c| c.frozen) {
            self.thaw(&mut scope, frozen)?;
        }
        self.drop_temporary(&mut scope)?;
        self.finish_index_builds(&mut scope)?;
        let mut interrupted = Vec::new();
        for collection in self.all_collections() {
            for index in collection.indexes.iter().filter(|index| !index.ready) {
                interrupted.push(InterruptedBuild { collection: collection.id, index: index.id });
            }
        }
        Ok(interrupted)
    }

    /// Builds the index to its end and makes it ready; drops it if that fails. Clients may write meanwhile. Blocks.
    /// Fails if the member leads no longer, or by [`Catalog::end_builds`].
    pub fn resume_build(&self, interrupted: InterruptedBuild) -> Result<()> {
        let mut scope = self.backend.scope();
        let InterruptedBuild { collection: id, index } = interrupted;
        let Some(collection) = self.with_index(id, index) else { return Ok(()) };
        // An entry that is there already is added again. So this also finds duplicates.
        let mut build = IndexBuild::new(vec![index], CommitSeq(u64::MAX));
        let renew = || {
            self.catch_up();
            self.with_index(id, index)
        };
        let failure = match self.run_build(&mut scope, &collection, &mut build, renew) {
            Ok(true) => None,
            Ok(false) => return Ok(()),
            Err(error) if is_of_the_server(&error) => return Err(error),
            Err(error) => Some(error),
        };
        if let Some(error) = &failure {
            let attr = Attr::new().str("namespace", collection.ns.as_str());
            let attr = attr.num("index", index.0).str("error", error.message());
            let message = "Index build of an earlier primary failed; the index is dropped";
            log::warning("INDEX", 6_200_041, "-", message, attr);
        }
        while let Some(collection) = self.with_index(id, index) {
            let ended = match &failure {
                None => self.indexes_ready(&mut scope, &collection, &[index], &[]),
                Some(_) => self.drop_indexes(&mut scope, &collection, &[index]),
            };
            match ended {
                Err(error) if error.code() == ErrorCode::WriteConflict => self.check_ending()?,
                other => return other.map(drop),
            }
        }
        Ok(())
    }

    /// Index builds of [`Catalog::applied`] and [`Catalog::resume_build`] end with an error, now and from now on. For
    /// the end of the process.
    pub fn end_builds(&self) {
        self.ending.store(true, Ordering::Release);
    }

    fn check_ending(&self) -> Result<()> {
        if self.ending.load(Ordering::Acquire) {
            bail!(InterruptedAtShutdown, "the index build was interrupted: the server is ending");
        }
        Ok(())
    }

    fn with_index(&self, id: CollectionId, index: IndexId) -> Option<Arc<Collection>> {
        let collections = read(&self.collections);
        let found = collections.values().find(|collection| collection.id == id)?;
        found.index_by_id(index).map(|_| found.clone())
    }

    /// Runs a build to its end; false if `renew` has no current definition for it. Blocks.
    pub(super) fn run_build(
        &self,
        scope: &mut Scope,
        collection: &Arc<Collection>,
        build: &mut IndexBuild,
        renew: impl Fn() -> Option<Arc<Collection>>,
    ) -> Result<bool> {
        let mut collection = collection.clone();
        let started = self.backend.clock().monotonic();
        let mut said = started;
        loop {
            self.check_ending()?;
            match build.step(&collection, scope)? {
                BuildStep::Done => return Ok(true),
                BuildStep::Again => {}
                BuildStep::Blocked(ticket) => ticket.wait()?,
                BuildStep::Stale => match renew() {
                    Some(current) => collection = current,
                    None => return Ok(false),
                },
            }
            let now = self.backend.clock().monotonic();
            if now.saturating_sub(said) >= PROGRESS_EVERY {
                said = now;
                let attr = Attr::new()
                    .str("namespace", collection.ns.as_str())
                    .num("recordsIndexed", build.records_done())
                    .num("durationMillis", now.saturating_sub(started).as_millis());
                log::info("INDEX", 51602, "-", "Index build: in progress", attr);
            }
        }
    }

    /// Creates the store of the catalog's documents if there is none yet.
    pub(super) fn ensure_store(&self, scope: &mut Scope) -> Result<()> {
        if self.backend.engine().record_store(CollectionId::CATALOG).is_none() {
            let mut unit = WriteUnit::new();
            unit.push(CollectionId::CATALOG, RecordId(0), OpKind::CreateStore);
            scope.commit(&mut unit)?;
        }
        Ok(())
    }

    /// Makes indexes ready that are complete and without duplicates, whose build was interrupted. Stored ones that
    /// could not be attached are dropped.
    pub(super) fn finish_index_builds(&self, scope: &mut Scope) -> Result<()> {
        let left_out = self.lock_ddl().left_out;
        for collection in self.all_collections() {
            let mut indexes = IndexSet::of(&collection);
            let mut is_changed = left_out && {
                let stored = stored::index_count(scope, self.place_of(&collection.ns)?)?;
                stored != collection.indexes.len() + collection.unusable.len()
            };
            for index in indexes.usable.iter_mut().filter(|index| !index.ready) {
                // The start of a server that is alone has looked for duplicates; what was applied may have them.
                let is_unique = !self.is_member || !index.definition().unique;
                if index.keys.is_complete() && is_unique {
                    *index = ready_copy(index);
                    is_changed = true;
                }
            }
            if is_changed {
                let (mut unit, options) = (WriteUnit::new(), collection.options.clone());
                self.commit_definition(scope, &mut unit, &collection, options, indexes)?;
            }
        }
        self.lock_ddl().left_out = false;
        Ok(())
    }

    /// Copies that were in the making when the process, or an earlier leader, ended.
    pub(super) fn drop_temporary(&self, scope: &mut Scope) -> Result<()> {
        for collection in self.all_collections().iter().filter(|c| c.options.temp) {
            self.drop_collection(scope, &collection.ns)?;
        }
        Ok(())
    }
}

/// Whether the error says nothing of the index.
fn is_of_the_server(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::InterruptedAtShutdown | ErrorCode::NotWritablePrimary)
}
