//! `renameCollection`: within a database a change of the name, across databases a copy.

use super::{copy, ddl, index_build};
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run, Target};
use kauri_base::{Result, bail, limits};
use kauri_bson::{DocBuf, Elem, Value};
use kauri_catalog::{Collection, CollectionOptions, Namespace, Rename, Resolved};
use kauri_storage::CommitTicket;

/// See the module's head.
pub const COMMAND: Command = Command {
    admin_only: true,
    target: Target::FullName,
    ..Command::define("renameCollection", "renames a collection", run)
};

/// The treatment of an existing target collection.
enum DropTarget {
    No,
    Yes,
    /// It's dropped if it's this one.
    If([u8; 16]),
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("renameCollection");
        let from = args.given(invocation.target()?, Args::namespace)?;
        let (mut to, mut drop_target, mut uuid) = (None, DropTarget::No, None);
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "to" => to = args.given(elem, Args::namespace)?,
                "dropTarget" => drop_target = parse_drop_target(&args, elem)?,
                "collectionUUID" => uuid = args.given(elem, ddl::uuid)?,
                _ => args.other(elem)?,
            }
        }
        let Some(from) = from else { return Err(args.missing("renameCollection")) };
        let Some(to) = to else { return Err(args.missing("to")) };
        let (from, to) = (parse_name(&from)?, parse_name(&to)?);
        check_names(&from, &to, &drop_target)?;
        let catalog = &invocation.server.catalog;
        let resolved = catalog.resolve(from.as_str());
        ddl::check_uuid(catalog, &from, &resolved, uuid.as_ref())?;
        let target = catalog.resolve(to.as_str());
        let to_uuid = match &drop_target {
            DropTarget::If(uuid) => Some(*uuid),
            DropTarget::No | DropTarget::Yes => None,
        };
        if to_uuid.is_some() {
            ddl::check_uuid(catalog, &to, &target, to_uuid.as_ref())?;
        }
        let source = match resolved {
            Resolved::Collection(collection) => collection,
            Resolved::View(_) => {
                bail!(CommandNotSupportedOnView, "cannot rename view: {from}")
            }
            Resolved::Nothing => {
                bail!(NamespaceNotFound, "Source collection {from} does not exist")
            }
        };
        let drop_target = !matches!(drop_target, DropTarget::No);
        let ticket = if from.database() == to.database() {
            // What was checked by UUID has to be what is renamed and dropped.
            let checked = match (&target, &to_uuid) {
                (Resolved::Collection(target), Some(_)) => Some(target.id),
                _ => None,
            };
            let rename = Rename {
                drop_target,
                source: uuid.map(|_| source.id),
                replaces: checked,
                ..Rename::new(&from, &to)
            };
            ddl::retry(invocation, |i| i.server.catalog.rename_collection(i.op.scope(), &rename))
                .await?
        } else {
            move_across(invocation, &source, &to, drop_target).await?
        };
        ddl::log("Renamed a collection", &to);
        invocation.wait_for_commit(Some(ticket)).await
    })
}

fn parse_drop_target(args: &Args<'_>, elem: Elem<'_>) -> Result<DropTarget> {
    match elem.value() {
        Value::Bool(true) => Ok(DropTarget::Yes),
        Value::Bool(false) => Ok(DropTarget::No),
        Value::Binary { subtype: 4, bytes } => match <[u8; 16]>::try_from(&*bytes) {
            Ok(uuid) => Ok(DropTarget::If(uuid)),
            Err(_) => {
                bail!(InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype")
            }
        },
        Value::Binary { .. } => {
            bail!(InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype")
        }
        _ => Err(args.wrong_type(elem, &["bool", "binData"])),
    }
}

/// A full name, with the checks and codes that are this command's own.
fn parse_name(full: &str) -> Result<Namespace> {
    let Some((database, collection)) = full.split_once('.') else {
        bail!(InvalidNamespace, "Invalid namespace specified '{full}'");
    };
    if full.contains('$') {
        bail!(IllegalOperation, "illegal character '$' in a namespace of renameCollection: {full}");
    }
    if database.len() <= limits::DATABASE_NAME_BYTES_MAX
        && !collection.is_empty()
        && full.len() > limits::NAMESPACE_BYTES_MAX
    {
        bail!(
            IllegalOperation,
            "Fully qualified namespace is too long. Max: {}, namespace: {full}",
            limits::NAMESPACE_BYTES_MAX
        );
    }
    Namespace::new(database, collection)
}

fn check_names(from: &Namespace, to: &Namespace, drop_target: &DropTarget) -> Result<()> {
    for (ns, what) in [(from, "from"), (to, "to")] {
        if ns.is_system() {
            bail!(IllegalOperation, "Cannot rename {what} system collection {ns}");
        }
        if ns.database() == "local" && ns.collection().starts_with("oplog.") {
            bail!(IllegalOperation, "can't rename {what} an oplog: {ns}");
        }
    }
    if from == to {
        bail!(IllegalOperation, "Can't rename a collection to itself");
    }
    if from.database() != to.database() && matches!(drop_target, DropTarget::If(_)) {
        bail!(InvalidOptions, "dropTarget cannot be a UUID across databases");
    }
    Ok(())
}

/// Copies the collection with its indexes under a temporary name, then changes names in one unit.
async fn move_across(
    invocation: &mut Invocation<'_>,
    source: &Collection,
    to: &Namespace,
    drop_target: bool,
) -> Result<CommitTicket> {
    let catalog = invocation.server.catalog.clone();
    match catalog.resolve(to.as_str()) {
        Resolved::Nothing => {}
        Resolved::Collection(_) if drop_target => {}
        Resolved::Collection(_) => bail!(NamespaceExists, "target namespace exists"),
        Resolved::View(_) => bail!(NamespaceExists, "a view already exists with that name: {to}"),
    }
    let name = copy::temporary_name(invocation, to.database(), "renameCollection")?;
    let frozen = copy::Frozen::new(invocation.op.scope(), &catalog, source)?;
    let options = CollectionOptions { temp: true, ..source.options.clone() };
    let (made, _) = catalog.create_collection(invocation.op.scope(), &name, options, None)?;
    let temporary = copy::Temporary::new(invocation.op.backend(), &catalog, &made);
    let specs: Vec<DocBuf> = source
        .indexes
        .iter()
        .filter(|index| index.ready && !index.definition().is_id())
        .map(|index| index.definition().spec.clone())
        .collect();
    copy::documents(invocation, &frozen.collection, &temporary).await?;
    if !specs.is_empty() {
        let (ids, added) = catalog.add_indexes(invocation.op.scope(), &made, &specs)?;
        index_build::run(invocation, &temporary.ns, &ids, added.seq).await?;
    }
    let rename = Rename {
        drop_target,
        source: Some(temporary.id),
        also_drop: Some((&source.ns, source.id)),
        ..Rename::new(&temporary.ns, to)
    };
    let ticket = catalog.rename_collection(invocation.op.scope(), &rename)?;
    temporary.keep();
    Ok(ticket)
}
