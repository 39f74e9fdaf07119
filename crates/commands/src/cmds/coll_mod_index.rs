//! `collMod`'s argument `index`: expiry, hiding, and conversion to a unique index.

use crate::args::Args;
use crate::invocation::Invocation;
use kauri_base::{Access, Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Value, doc, shell_text};
use kauri_catalog::{Catalog, Collection, Index, spec};
use kauri_storage::{CommitTicket, Direction, IndexScan, Operation, Scope};
use std::sync::Arc;

/// The index, and its changes.
#[derive(Default)]
pub struct IndexChange {
    name: Option<String>,
    key: Option<DocBuf>,
    expire: Option<i32>,
    hidden: Option<bool>,
    prepare_unique: Option<bool>,
    /// `unique`.
    pub unique: Option<bool>,
}

/// Most groups of duplicates that an error names.
const VIOLATIONS_MAX: usize = 100;

/// Reads the argument.
pub fn parse(args: &Args<'_>, elem: Elem<'_>) -> Result<IndexChange> {
    let doc = args.object(elem)?;
    let args = Args::new("collMod.index");
    let mut change = IndexChange::default();
    for field in doc {
        match field.key() {
            "name" => change.name = args.given(field, Args::string)?,
            "keyPattern" => {
                change.key = args.given(field, Args::object)?.map(|key| key.to_buf());
            }
            "expireAfterSeconds" => change.expire = args.given(field, expire)?,
            "hidden" => change.hidden = args.given(field, Args::safe_bool)?,
            "prepareUnique" => change.prepare_unique = args.given(field, Args::safe_bool)?,
            "unique" => change.unique = args.given(field, Args::safe_bool)?,
            other => return Err(args.unknown(other)),
        }
    }
    match (&change.name, &change.key) {
        (Some(_), Some(_)) => bail!(InvalidOptions, "Cannot specify both key pattern and name."),
        (None, None) => bail!(InvalidOptions, "Must specify either index name or key pattern."),
        _ => {}
    }
    let given = change.expire.is_some()
        || change.hidden.is_some()
        || change.prepare_unique.is_some()
        || change.unique.is_some();
    if !given {
        bail!(InvalidOptions, "no expireAfterSeconds, hidden, unique, or prepareUnique field");
    }
    Ok(change)
}

/// Seconds, clamped to what an index can hold.
fn expire(args: &Args<'_>, elem: Elem<'_>) -> Result<i32> {
    let seconds = args.long(elem)?;
    if seconds < 0 {
        bail!(
            InvalidOptions,
            "TTL index 'expireAfterSeconds' option cannot be less than 0, was {seconds}"
        );
    }
    Ok(i32::try_from(seconds).unwrap_or(i32::MAX))
}

fn find<'c>(collection: &'c Collection, change: &IndexChange) -> Result<&'c Arc<Index>> {
    if let Some(name) = &change.name {
        return collection.index_by_name(name).ok_or_else(|| {
            Error::new(
                ErrorCode::IndexNotFound,
                format!("cannot find index {name} for ns {}", collection.ns),
            )
        });
    }
    let key = change.key.as_ref().map_or(Doc::EMPTY, DocBuf::as_doc);
    let mut found =
        collection.indexes.iter().filter(|i| spec::same_key(i.definition().key.as_doc(), key));
    match (found.next(), found.next()) {
        (Some(index), None) => Ok(index),
        (Some(_), Some(_)) => bail!(
            AmbiguousIndexKeyPattern,
            "index keyPattern {} matches more than one index, must use index name",
            shell_text(key)
        ),
        (None, _) => {
            bail!(IndexNotFound, "cannot find index {} for ns {}", shell_text(key), collection.ns)
        }
    }
}

/// Fails if the index can't be changed so.
pub fn check(collection: &Collection, change: &IndexChange) -> Result<()> {
    let index = find(collection, change)?;
    let definition = index.definition();
    if definition.is_id() {
        if change.expire.is_some() {
            bail!(InvalidOptions, "the _id field does not support TTL indexes");
        }
        if change.hidden.is_some() {
            bail!(BadValue, "can't hide _id index");
        }
    }
    if change.expire.is_some() && definition.pattern.len() != 1 {
        bail!(
            InvalidOptions,
            "TTL indexes are single-field indexes, compound indexes do not support TTL"
        );
    }
    let changes_preparation =
        change.prepare_unique.is_some_and(|prepare| prepare != definition.prepare_unique);
    if changes_preparation && (change.hidden.is_some() || change.expire.is_some()) {
        bail!(
            InvalidOptions,
            "The prepareUnique option cannot be changed along with any other index option"
        );
    }
    match change.unique {
        Some(false) => bail!(BadValue, "Cannot make index non-unique"),
        Some(true) if !definition.unique && !definition.prepare_unique => bail!(
            InvalidOptions,
            "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first"
        ),
        _ => Ok(()),
    }
}

/// Applies the change; returns the fields of the reply.
pub fn apply(
    scope: &mut Scope,
    catalog: &Catalog,
    collection: &Collection,
    change: &IndexChange,
) -> Result<(DocBuf, Option<CommitTicket>)> {
    check(collection, change)?;
    let index = find(collection, change)?;
    let definition = index.definition();
    let mut changed = false;
    let reply = DocBuf::build(|out| {
        if let Some(seconds) = change.expire {
            if let Some(before) = definition.expire_after_seconds {
                out.put("expireAfterSeconds_old", before);
            }
            out.put("expireAfterSeconds_new", i64::from(seconds));
            changed |= definition.expire_after_seconds != Some(i64::from(seconds));
        }
        let mut flag = |name: &str, before: bool, after: Option<bool>| {
            if let Some(after) = after.filter(|after| *after != before) {
                out.put(&format!("{name}_old"), before);
                out.put(&format!("{name}_new"), after);
                changed = true;
            }
        };
        flag("hidden", definition.hidden, change.hidden);
        flag("prepareUnique", definition.prepare_unique, change.prepare_unique);
        if change.unique == Some(true) && !definition.unique {
            out.put("unique_new", true);
            changed = true;
        }
    });
    if !changed {
        return Ok((reply, None));
    }
    let new_spec = DocBuf::build(|out| write_spec(definition.spec.as_doc(), change, out));
    let ticket = catalog.change_index(scope, collection, index, new_spec)?;
    Ok((reply, Some(ticket)))
}

fn write_spec(old: Doc<'_>, change: &IndexChange, out: &mut DocWriter<'_>) {
    let flag = |name: &str, new: Option<bool>| new.unwrap_or_else(|| old.value(name).truthy());
    let unique = flag("unique", change.unique);
    let dropped = ["hidden", "prepareUnique", "unique", "expireAfterSeconds"];
    for elem in old.iter().filter(|e| !dropped.contains(&e.key())) {
        out.put_elem(elem);
    }
    if unique {
        out.put("unique", true);
    } else if flag("prepareUnique", change.prepare_unique) {
        out.put("prepareUnique", true);
    }
    if flag("hidden", change.hidden) {
        out.put("hidden", true);
    }
    match change.expire {
        Some(seconds) => out.put("expireAfterSeconds", seconds),
        None => out.put_value("expireAfterSeconds", &old.value("expireAfterSeconds")),
    }
}

/// Fails with the duplicates that stand in the way of a unique index. No new ones can come: the
/// index has `prepareUnique`.
pub async fn check_no_duplicates(
    invocation: &mut Invocation<'_>,
    collection: &Collection,
    change: &IndexChange,
) -> Result<()> {
    let index = find(collection, change)?.clone();
    if index.definition().unique {
        return Ok(());
    }
    let mut scan = IndexScan::new(Direction::Forward, Vec::new(), Vec::new());
    let mut groups = Groups::default();
    loop {
        let reader = invocation.op.scope().enter();
        let filled = index.fill(&*reader, &mut scan);
        drop(reader);
        match filled? {
            Access::WouldBlock(ticket) => {
                invocation.op.wait(ticket).await?;
                continue;
            }
            Access::Ready(()) => {
                while let Some(entry) = scan.next_buffered() {
                    groups.add(entry.key, entry.record);
                }
            }
        }
        if scan.ended() || groups.duplicates.len() >= VIOLATIONS_MAX {
            break;
        }
        if invocation.op.should_yield() {
            invocation.op.yield_now().await?;
        }
    }
    groups.finish();
    if groups.duplicates.is_empty() {
        return Ok(());
    }
    let mut violations = Vec::new();
    for group in &groups.duplicates {
        let mut ids = Vec::new();
        for record in group {
            ids.extend(id_of(&mut invocation.op, collection, *record).await?);
        }
        violations.push(Value::from(doc! { "ids" => Value::array(ids) }));
    }
    let extra = doc! { "violations" => Value::array(violations) };
    Err(Error::new(
        ErrorCode::CannotConvertIndexToUnique,
        "Cannot convert the index to unique. Please resolve conflicting documents before running \
         collMod again.",
    )
    .with_extra(extra.into_vec()))
}

/// Records that share a key, gathered from entries in key order.
#[derive(Default)]
struct Groups {
    key: Vec<u8>,
    records: Vec<kauri_base::RecordId>,
    duplicates: Vec<Vec<kauri_base::RecordId>>,
}

impl Groups {
    fn add(&mut self, key: &[u8], record: kauri_base::RecordId) {
        if self.key != key {
            self.finish();
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        if self.records.len() < VIOLATIONS_MAX {
            self.records.push(record);
        }
    }

    fn finish(&mut self) {
        let records = std::mem::take(&mut self.records);
        if records.len() > 1 {
            self.duplicates.push(records);
        }
    }
}

async fn id_of(
    op: &mut Operation,
    collection: &Collection,
    record: kauri_base::RecordId,
) -> Result<Option<Value<'static>>> {
    loop {
        let reader = op.scope().enter();
        let found = collection
            .store
            .get(&*reader, record)
            .map(|access| access.map(|record| record.map(|r| r.doc.value("_id").into_owned())));
        drop(reader);
        match found? {
            Access::Ready(id) => return Ok(id),
            Access::WouldBlock(ticket) => op.wait(ticket).await?,
        }
    }
}
