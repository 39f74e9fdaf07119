//! What names stand for, as pipelines and statements ask for it.
//!
//! The catalog is one answer. A transaction has another one, the definitions of its snapshot; so has a router,
//! whose collections lie on other servers. Nothing else in this crate asks the catalog for a name.
//!
//! Must not know: sessions, commands, how definitions are stored.

use crate::exec::{QueryEnv, Stage};
use kauri_base::{CollectionId, Error, ErrorCode, Result};
use kauri_bson::DocBuf;
use kauri_catalog::{
    Catalog, Collection, CollectionOptions, Namespace, OperationUsage, Rename, Resolved, View,
};
use kauri_storage::{CommitTicket, Operation, Scope};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// What a name stands for.
#[derive(Clone)]
pub enum Named {
    /// A collection that is stored here.
    Collection(Arc<Collection>),
    /// A collection that is read elsewhere.
    Remote(Arc<dyn RemoteRows>),
    /// A view.
    View(Arc<View>),
    /// Nothing.
    Nothing,
}

impl Named {
    /// What it has served, where that is counted here.
    pub fn usage(&self) -> Option<&Arc<OperationUsage>> {
        match self {
            Named::Collection(collection) => Some(&collection.usage),
            Named::View(view) => Some(&view.usage),
            Named::Remote(_) | Named::Nothing => None,
        }
    }
}

impl From<Resolved> for Named {
    fn from(resolved: Resolved) -> Named {
        match resolved {
            Resolved::Collection(collection) => Named::Collection(collection),
            Resolved::View(view) => Named::View(view),
            Resolved::Nothing => Named::Nothing,
        }
    }
}

/// The documents of a collection that is read elsewhere.
pub trait RemoteRows: Send + Sync {
    /// Reads them all, from the first one.
    fn open(&self, env: &QueryEnv) -> Result<Box<dyn Stage>>;
}

/// See the module's head.
pub trait Namespaces: Send + Sync {
    /// What this full name stands for.
    fn resolve(&self, full_name: &str) -> Named;

    /// Returns when every drop that a reader can have met has reached the names.
    fn catch_up(&self);

    /// All databases.
    fn databases(&self) -> Vec<String>;

    /// The database's collections that are stored here, by name.
    fn collections_of(&self, database: &str) -> Vec<Arc<Collection>>;

    /// The database's views, by name.
    fn views_of(&self, database: &str) -> Vec<Arc<View>>;

    /// What a client is told whose statement ends since the collection has gone from its name.
    fn gone_error(&self, collection: &Collection) -> Error;

    /// What changes definitions; none where statements create nothing.
    fn definer(&self) -> Option<&dyn Definer>;
}

/// A definition in the making.
pub type Defining<'a> = Pin<Box<dyn Future<Output = Result<Arc<Collection>>> + Send + 'a>>;

/// Changes of definitions that statements and `$out` make.
pub trait Definer: Send + Sync {
    /// Creates a collection. `NamespaceExists` if the name is taken.
    fn create<'a>(&'a self, op: &'a mut Operation, ns: &'a Namespace) -> Defining<'a>;

    /// Creates a collection with these options and indexes, under a name that nobody else knows.
    fn create_private(
        &self,
        scope: &mut Scope,
        ns: &Namespace,
        options: CollectionOptions,
        indexes: &Indexes,
    ) -> Result<Arc<Collection>>;

    /// Gives a collection another name.
    fn rename(&self, scope: &mut Scope, rename: &Rename<'_>) -> Result<CommitTicket>;

    /// Drops the collection of this name if it is this one.
    fn drop_collection(&self, scope: &mut Scope, ns: &Namespace, id: CollectionId) -> Result<()>;
}

/// The indexes of a collection that is to be created.
#[derive(Default)]
pub struct Indexes {
    /// That of `_id`, unless it is the usual one.
    pub id: Option<DocBuf>,
    /// The others.
    pub others: Vec<DocBuf>,
}

/// What changes definitions, for a statement that does.
pub(crate) fn definer(namespaces: &dyn Namespaces) -> Result<&dyn Definer> {
    namespaces.definer().ok_or_else(|| {
        Error::new(ErrorCode::IllegalOperation, "collections are not created or replaced here")
    })
}

impl Namespaces for Catalog {
    fn resolve(&self, full_name: &str) -> Named {
        Catalog::resolve(self, full_name).into()
    }

    fn catch_up(&self) {
        Catalog::catch_up(self);
    }

    fn databases(&self) -> Vec<String> {
        Catalog::databases(self).into_keys().collect()
    }

    fn collections_of(&self, database: &str) -> Vec<Arc<Collection>> {
        Catalog::collections_of(self, database)
    }

    fn views_of(&self, database: &str) -> Vec<Arc<View>> {
        Catalog::views_of(self, database)
    }

    fn gone_error(&self, collection: &Collection) -> Error {
        Catalog::gone_error(self, collection)
    }

    fn definer(&self) -> Option<&dyn Definer> {
        Some(self)
    }
}

impl Definer for Catalog {
    fn create<'a>(&'a self, op: &'a mut Operation, ns: &'a Namespace) -> Defining<'a> {
        Box::pin(async move {
            self.fetch_definitions(op, &[]).await?;
            let options = CollectionOptions::default();
            self.create_collection(op.scope(), ns, options, None).map(|(collection, _)| collection)
        })
    }

    fn create_private(
        &self,
        scope: &mut Scope,
        ns: &Namespace,
        options: CollectionOptions,
        indexes: &Indexes,
    ) -> Result<Arc<Collection>> {
        let (collection, _) = self.create_collection(scope, ns, options, indexes.id.clone())?;
        let made = with_indexes(self, scope, &collection, &indexes.others);
        if made.is_err() {
            let _ = self.drop_collection_of(scope, ns, collection.id);
        }
        made
    }

    fn rename(&self, scope: &mut Scope, rename: &Rename<'_>) -> Result<CommitTicket> {
        self.rename_collection(scope, rename)
    }

    fn drop_collection(&self, scope: &mut Scope, ns: &Namespace, id: CollectionId) -> Result<()> {
        self.drop_collection_of(scope, ns, id).map(drop)
    }
}

/// The collection with these indexes. It is empty: nothing has to be backfilled.
fn with_indexes(
    catalog: &Catalog,
    scope: &mut Scope,
    collection: &Arc<Collection>,
    specs: &[DocBuf],
) -> Result<Arc<Collection>> {
    if specs.is_empty() {
        return Ok(collection.clone());
    }
    let (ids, _) = catalog.add_indexes(scope, collection, specs)?;
    let made = catalog.collection(collection.ns.as_str()).filter(|c| c.id == collection.id);
    let Some(made) = made else { return Err(collection.dropped_error()) };
    catalog.indexes_ready(scope, &made, &ids, &[])?;
    Ok(made)
}

impl<N: Namespaces + ?Sized> Namespaces for Arc<N> {
    fn resolve(&self, full_name: &str) -> Named {
        (**self).resolve(full_name)
    }

    fn catch_up(&self) {
        (**self).catch_up();
    }

    fn databases(&self) -> Vec<String> {
        (**self).databases()
    }

    fn collections_of(&self, database: &str) -> Vec<Arc<Collection>> {
        (**self).collections_of(database)
    }

    fn views_of(&self, database: &str) -> Vec<Arc<View>> {
        (**self).views_of(database)
    }

    fn gone_error(&self, collection: &Collection) -> Error {
        (**self).gone_error(collection)
    }

    fn definer(&self) -> Option<&dyn Definer> {
        (**self).definer()
    }
}
