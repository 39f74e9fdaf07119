//! Reading a `bulkWrite` command.

use crate::args::{Args, fields, structure};
use crate::cmds::ddl;
use crate::cmds::find::hint_type;
use crate::cmds::insert::{check_batch, statements};
use crate::cmds::list_rows;
use crate::cmds::update::{check_pipeline, update_type};
use crate::invocation::Invocation;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, Elem, Type, Value};
use kauri_catalog::{Catalog, Namespace};
use kauri_query::write::Bypass;

/// The command.
pub struct Request<'a> {
    /// The operations, in order.
    pub operations: Vec<Operation<'a>>,
    /// The collections that operations name by number.
    namespaces: Vec<Target>,
    /// Stop at the first error.
    pub ordered: bool,
    /// The checks to skip.
    pub bypass: Bypass,
    /// Return only the rows of errors.
    pub errors_only: bool,
    /// `let`.
    pub variables: Doc<'a>,
    /// `cursor.batchSize`.
    pub batch_size: Option<u64>,
}

/// A collection, and the UUID that it has to have.
struct Target {
    ns: Namespace,
    uuid: Option<[u8; 16]>,
}

/// One operation.
pub struct Operation<'a> {
    /// The collection's number.
    pub namespace: usize,
    /// The kind.
    pub kind: Kind<'a>,
}

/// The kind of an operation.
pub enum Kind<'a> {
    /// Inserts a document.
    Insert(Doc<'a>),
    /// A statement as `update` has it.
    Update(DocBuf),
    /// A statement as `delete` has it.
    Delete(DocBuf),
}

impl<'a> Request<'a> {
    /// Reads the command.
    pub fn parse(invocation: &Invocation<'a>) -> Result<Request<'a>> {
        let args = Args::new("bulkWrite");
        let mut request = Request {
            operations: Vec::new(),
            namespaces: Vec::new(),
            ordered: true,
            bypass: Bypass::default(),
            errors_only: false,
            variables: Doc::EMPTY,
            batch_size: None,
        };
        let (mut operations, mut namespaces) = (None, None);
        for elem in fields(invocation.body) {
            match elem.key() {
                "ops" => operations = Some(documents(elem, "ops")?),
                "nsInfo" => namespaces = Some(documents(elem, "nsInfo")?),
                "ordered" => request.ordered = args.bool(elem)?,
                "bypassDocumentValidation" => request.bypass.validation = args.safe_bool(elem)?,
                "bypassEmptyTsReplacement" => request.bypass.empty_timestamps = args.bool(elem)?,
                "errorsOnly" => request.errors_only = args.bool(elem)?,
                "let" => request.variables = args.object(elem)?,
                "cursor" => request.batch_size = list_rows::batch_size("bulkWrite", elem)?,
                _ => args.other(elem)?,
            }
        }
        for sequence in &invocation.sequences {
            match sequence.field {
                "ops" => operations = Some(sequence.docs.clone()),
                "nsInfo" => namespaces = Some(sequence.docs.clone()),
                other => return Err(args.unknown(other)),
            }
        }
        let Some(operations) = operations else { return Err(args.missing("ops")) };
        let Some(namespaces) = namespaces else { return Err(args.missing("nsInfo")) };
        for doc in operations.iter() {
            request.operations.push(operation(*doc)?);
        }
        check_batch(operations.len())?;
        for doc in namespaces {
            request.namespaces.push(target(doc)?);
        }
        let count = request.namespaces.len();
        if let Some(wrong) = request.operations.iter().find(|o| o.namespace >= count) {
            bail!(BadValue, "BulkWrite ops entry has an invalid nsInfo index: {}", wrong.namespace);
        }
        request.check_pipelines()?;
        Ok(request)
    }

    /// Fails if a pipeline of an update has a stage or an operator that there is not.
    fn check_pipelines(&self) -> Result<()> {
        for operation in &self.operations {
            if let Kind::Update(statement) = &operation.kind
                && let Some(update) = statement.as_doc().get("u")
                && let Some(target) = self.namespaces.get(operation.namespace)
            {
                check_pipeline(&target.ns, update)?;
            }
        }
        Ok(())
    }

    /// The collection of an operation; fails if it is another than the one of the UUID given.
    pub fn namespace(&self, catalog: &Catalog, operation: &Operation<'_>) -> Result<&Namespace> {
        let Some(target) = self.namespaces.get(operation.namespace) else {
            bail!(BadValue, "an operation names no collection");
        };
        let resolved = catalog.resolve(target.ns.as_str());
        ddl::check_uuid(catalog, &target.ns, &resolved, target.uuid.as_ref())?;
        Ok(&target.ns)
    }
}

fn documents<'a>(elem: Elem<'a>, name: &str) -> Result<Vec<Doc<'a>>> {
    let path = format!("bulkWrite.{name}");
    let list = statements(&Args::new("bulkWrite"), elem)?;
    list.iter().map(|doc| Args::new(&path).object(doc)).collect()
}

fn target(doc: Doc<'_>) -> Result<Target> {
    let args = Args::new("bulkWrite.nsInfo");
    let (mut name, mut uuid) = (None, None);
    for elem in structure(doc) {
        match elem.key() {
            "ns" => name = Some(args.namespace(elem)?),
            "collectionUUID" => uuid = Some(ddl::uuid(&args, elem)?),
            _ => args.accepted(elem)?,
        }
    }
    let Some(name) = name else { return Err(args.missing("ns")) };
    Ok(Target { ns: Namespace::parse(&name)?, uuid })
}

fn operation(doc: Doc<'_>) -> Result<Operation<'_>> {
    let args = Args::new("bulkWrite.ops");
    let first = doc.first();
    let Some(first) = first else { return Err(args.missing("insert")) };
    let read: fn(Doc<'_>) -> Result<Kind<'_>> = match first.key() {
        "insert" => insert,
        "update" => update,
        "delete" => delete,
        other => return Err(args.unknown(other)),
    };
    if first.ty() == Type::Null {
        return Err(args.missing(first.key()));
    }
    let namespace = args.count(first)? as usize;
    Ok(Operation { namespace, kind: read(doc)? })
}

/// The fields behind the one that says what the operation is; null counts as not given where it may
/// be left out.
fn rest(doc: Doc<'_>) -> impl Iterator<Item = Elem<'_>> {
    let is_given = |e: &Elem<'_>| e.ty() != Type::Null || matches!(e.key(), "hint" | "updateMods");
    doc.iter().skip(1).filter(is_given)
}

fn insert(doc: Doc<'_>) -> Result<Kind<'_>> {
    let args = Args::new("bulkWrite.ops");
    let mut document = None;
    for elem in rest(doc) {
        match elem.key() {
            "document" => document = Some(args.object(elem)?),
            other => return Err(args.unknown(other)),
        }
    }
    document.map(Kind::Insert).ok_or_else(|| args.missing("document"))
}

fn update(doc: Doc<'_>) -> Result<Kind<'_>> {
    let args = Args::new("bulkWrite.ops");
    let (mut filter, mut change) = (false, false);
    let mut failed = Ok(());
    let statement = DocBuf::build(|w| {
        for elem in rest(doc) {
            let name = match elem.key() {
                "filter" => {
                    filter = true;
                    "q"
                }
                "updateMods" => {
                    change = true;
                    "u"
                }
                "constants" => "c",
                other => other,
            };
            if let Err(error) = check_update(&args, elem) {
                failed = Err(error);
                return;
            }
            w.put_value(name, &elem.value());
        }
    });
    failed?;
    if !filter {
        return Err(args.missing("filter"));
    }
    if !change {
        return Err(args.missing("updateMods"));
    }
    Ok(Kind::Update(statement))
}

fn check_update(args: &Args<'_>, elem: Elem<'_>) -> Result<()> {
    match elem.key() {
        "filter" | "constants" | "collation" | "sort" => args.object(elem).map(drop),
        "updateMods" => update_type(elem).map(drop),
        "arrayFilters" => args.array(elem).map(drop),
        "multi" | "upsert" | "upsertSupplied" => args.bool(elem).map(drop),
        "hint" => hint_type(elem).map(drop),
        other => Err(args.unknown(other)),
    }
}

fn delete(doc: Doc<'_>) -> Result<Kind<'_>> {
    let args = Args::new("bulkWrite.ops");
    let mut filter = None;
    let (mut hint, mut collation, mut multi) = (Value::Missing, Value::Missing, false);
    for elem in rest(doc) {
        match elem.key() {
            "filter" => filter = Some(args.object(elem)?),
            "multi" => multi = args.bool(elem)?,
            "hint" => hint = hint_type(elem)?.value(),
            "collation" => {
                args.object(elem)?;
                collation = elem.value();
            }
            other => return Err(args.unknown(other)),
        }
    }
    let Some(filter) = filter else { return Err(args.missing("filter")) };
    Ok(Kind::Delete(DocBuf::build(|w| {
        w.put("q", filter);
        w.put("limit", i32::from(!multi));
        for (name, value) in [("hint", hint), ("collation", collation)] {
            if !matches!(value, Value::Missing) {
                w.put_value(name, &value);
            }
        }
    })))
}
