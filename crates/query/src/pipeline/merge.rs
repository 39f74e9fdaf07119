//! `$merge`: writes rows into a collection, matching documents by the values of certain fields.

use super::batches::next_batch;
use super::spec::Spec;
use super::{BuildCx, Constraints, FieldUse, ParseCx, Sink, StageSpec, Writing, field_path};
use crate::exec::{Eof, PlanExecutor, QueryEnv, Stage};
use crate::namespaces::Named;
use crate::plan::Query;
use crate::write::insert::{InsertOptions, insert};
use crate::write::targets::Targets;
use crate::write::update::{Shown, UpdateStatement, update};
use crate::write::{WriteOutcome, not_written_here};
use kauri_base::{Error, ErrorCode, Result, bail, work};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value, doc, not_utf8};
use kauri_catalog::{Index, Namespace};
use kauri_expr::{Expression, FieldPath, VariableScope};
use kauri_matcher::Matcher;
use kauri_mutate::Update;
use kauri_storage::Operation;
use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

/// What becomes of a document that is there.
enum WhenMatched {
    Fail,
    KeepExisting,
    Merge,
    Replace,
    /// Changed by the user's own pipeline, with the row as `$$new`. Whether it can be used shows
    /// with the first row.
    Pipeline(Value<'static>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WhenNotMatched {
    Insert,
    Fail,
    Discard,
}

/// A parsed `$merge`.
pub struct Merge {
    spec: DocBuf,
    target: Namespace,
    on: Vec<(String, FieldPath)>,
    matched: WhenMatched,
    not_matched: WhenNotMatched,
    /// Variables of the user's pipeline, by name.
    variables: Vec<(String, Expression)>,
}

const FIELDS: &[&str] = &[
    "into",
    "on",
    "let",
    "whenMatched",
    "whenNotMatched",
    "targetCollectionVersion",
    "allowMergeOnNullishValues",
];

impl Merge {
    /// Parses the stage: a collection's name, or options.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Merge> {
        not_utf8::refuse_as_namespace(&elem.value())?;
        let spec = match elem.value() {
            Value::String(name) => doc! { "into" => &*name },
            Value::Document(spec) => spec.into_buf(),
            _ => bail!(
                TypeMismatch,
                "$merge only supports a string or object argument, not {}",
                elem.ty().alias()
            ),
        };
        let simple = elem.ty() == Type::String;
        let fields = Spec::new("$merge", spec.as_doc(), FIELDS)?;
        let Some(into) = fields.raw("into") else { return Err(fields.missing("into")) };
        let target = into_namespace(into, simple, cx)?;
        let on = on_fields(&fields)?;
        let (matched, not_matched, variables) = modes(&fields, cx)?;
        Ok(Merge { target, on, matched, not_matched, variables, spec: spec.clone() })
    }
}

fn into_namespace(into: Elem<'_>, simple: bool, cx: &ParseCx) -> Result<Namespace> {
    not_utf8::refuse_as_namespace(&into.value())?;
    let (db, coll) = match into.value() {
        Value::String(coll) => (cx.db.clone(), coll.into_owned()),
        Value::Document(_) => {
            let doc = into.as_doc().unwrap_or(Doc::EMPTY);
            let fields = Spec::new("MergeTargetNamespace", doc, &["db", "coll"])?;
            let db = fields.string("db")?.filter(|db| !db.is_empty());
            let db = db.unwrap_or_else(|| cx.db.clone());
            let Some(coll) = fields.string("coll")? else {
                bail!(5786801, "$merge 'into' field must specify a 'coll'");
            };
            (db, coll)
        }
        _ => bail!(
            51178,
            "$merge 'into' field must be either a string or an object, but found {}",
            into.ty().alias()
        ),
    };
    if coll.is_empty() && !simple {
        bail!(5786800, "Invalid $merge target namespace: '{db}.'");
    }
    let ns = Namespace::new(&db, &coll)?;
    if matches!(db.as_str(), "admin" | "config" | "local") {
        bail!(31320, "Cannot $merge to internal database: {db}");
    }
    if ns.is_system() {
        bail!(31319, "Cannot $merge to special collection: {coll}");
    }
    Ok(ns)
}

fn on_fields(fields: &Spec<'_, '_>) -> Result<Vec<(String, FieldPath)>> {
    let Some(on) = fields.raw("on") else {
        return Ok(vec![("_id".to_owned(), field_path("_id")?)]);
    };
    not_utf8::refuse(&on.value(), "'on' of $merge")?;
    let names: Vec<String> = match on.value() {
        Value::String(name) => vec![name.into_owned()],
        Value::Array(list) => {
            let mut names = Vec::new();
            for item in list.iter() {
                not_utf8::refuse(&item.value(), "a field of 'on' of $merge")?;
                match item.value() {
                    Value::String(name) => names.push(name.into_owned()),
                    _ => bail!(
                        51134,
                        "$merge 'on' array elements must be strings, but found {}",
                        item.ty().alias()
                    ),
                }
            }
            if names.is_empty() {
                bail!(
                    51187,
                    "If explicitly specifying $merge 'on', must include at least one field"
                );
            }
            names
        }
        _ => bail!(
            51186,
            "$merge 'on' field  must be either a string or an array of strings, but found {}",
            on.ty().alias()
        ),
    };
    let mut on: Vec<(String, FieldPath)> = Vec::new();
    let mut seen = HashSet::new();
    for name in names {
        work::tick(1)?;
        let path = field_path(&name)?;
        if !seen.insert(name.clone()) {
            bail!(31465, "Found a duplicate field in the $merge.on list: '{name}'");
        }
        on.push((name, path));
    }
    Ok(on)
}

type Modes = (WhenMatched, WhenNotMatched, Vec<(String, Expression)>);

fn modes(fields: &Spec<'_, '_>, cx: &ParseCx) -> Result<Modes> {
    let not_matched = match fields.string("whenNotMatched")?.as_deref() {
        None | Some("insert") => WhenNotMatched::Insert,
        Some("fail") => WhenNotMatched::Fail,
        Some("discard") => WhenNotMatched::Discard,
        Some(other) => bail!(
            BadValue,
            "Enumeration value '{other}' for field '$merge.whenNotMatched' is not a valid value."
        ),
    };
    let mode = fields.raw("whenMatched");
    let variables = fields.object("let")?;
    if let Some(Value::Array(stages)) = mode.map(Elem::value) {
        let variables = self::variables(variables.unwrap_or(Doc::EMPTY), cx)?;
        if stages.iter().any(|stage| stage.ty() != Type::Document) {
            bail!(TypeMismatch, "Each element of the 'pipeline' array must be an object");
        }
        let stages = Value::Array(stages.into_owned());
        return Ok((WhenMatched::Pipeline(stages), not_matched, variables));
    }
    let mode = match mode.map(|mode| mode.value().lossy().into_owned()) {
        None => "merge".to_owned(),
        Some(Value::String(mode)) => mode.into_owned(),
        Some(other) => bail!(
            51191,
            "$merge 'whenMatched' field  must be either a string or an array, but found {}",
            other.type_name()
        ),
    };
    let matched = match mode.as_str() {
        "merge" => WhenMatched::Merge,
        "replace" => WhenMatched::Replace,
        "keepExisting" => WhenMatched::KeepExisting,
        "fail" => WhenMatched::Fail,
        other => bail!(
            BadValue,
            "Enumeration value '{other}' for field '$merge.whenMatched' is not a valid value."
        ),
    };
    if variables.is_some() {
        bail!(51199, "Cannot use 'let' variables with 'whenMatched: {mode}' mode");
    }
    let needs_insert = matches!(matched, WhenMatched::KeepExisting | WhenMatched::Fail);
    if needs_insert && not_matched != WhenNotMatched::Insert {
        bail!(
            51181,
            "Combination of {{ whenMatched: {mode}, whenNotMatched: {} }} is not supported",
            if not_matched == WhenNotMatched::Fail { "fail" } else { "discard" }
        );
    }
    Ok((matched, not_matched, Vec::new()))
}

/// The variables of `let`, and `new`, the row.
fn variables(spec: Doc<'_>, cx: &ParseCx) -> Result<Vec<(String, Expression)>> {
    let expressions = cx.expressions();
    let mut variables = Vec::new();
    for elem in spec {
        let name = elem.key();
        kauri_expr::check_name_for_write(name)?;
        if name == "new" && elem.value().as_str() != Some("$$ROOT") {
            bail!(
                51273,
                "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'"
            );
        }
        variables.push((name.to_owned(), Expression::parse(&elem.value(), &expressions)?));
    }
    if !variables.iter().any(|(name, _)| name == "new") {
        variables.push(("new".to_owned(), Expression::parse(&"$$ROOT".into(), &expressions)?));
    }
    Ok(variables)
}

/// Parses an update, with these variables behind those of the command.
fn parse_update(update: &Value<'_>, names: &[&str], outer: &VariableScope) -> Result<Update> {
    let mut expressions = kauri_expr::ParseCx { vars: outer.clone(), ..Default::default() };
    names.iter().for_each(|name| {
        expressions.vars.define(*name);
    });
    Update::parse(update, &[], &kauri_mutate::ParseCx::new().with_expressions(&expressions))
}

impl StageSpec for Merge {
    fn name(&self) -> &'static str {
        "$merge"
    }

    fn constraints(&self) -> Constraints {
        Constraints::of_sink()
    }

    fn field_use(&self) -> FieldUse {
        FieldUse::everything()
    }

    fn build(&self, _child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(Eof::default()))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        let mut merge = out.document("$merge");
        {
            let mut into = merge.document("into");
            into.put("db", self.target.database());
            into.put("coll", self.target.collection());
        }
        match self.on.as_slice() {
            [(one, _)] => merge.put("on", one),
            many => {
                let mut on = merge.array("on");
                many.iter().for_each(|(name, _)| on.push(name));
            }
        }
        for name in ["let", "whenMatched", "whenNotMatched"] {
            if let Some(elem) = self.spec.as_doc().get(name) {
                merge.put_elem(elem);
            }
        }
    }

    fn sink(&self) -> Option<&dyn Sink> {
        Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Sink for Merge {
    fn check(&self, cx: &BuildCx) -> Result<()> {
        self.unique_index(cx).map(drop)
    }

    fn run<'a>(
        &'a self,
        op: &'a mut Operation,
        rows: &'a mut PlanExecutor,
        cx: &'a BuildCx,
    ) -> Writing<'a> {
        Box::pin(async move {
            let index = self.unique_index(cx)?;
            let nulls = index.is_none_or(|index| !index.definition().sparse);
            let mut merging = Merging { merge: self, cx, nulls, op };
            loop {
                let (docs, ended) = next_batch(merging.op, rows).await?;
                merging.batch(&docs).await?;
                if ended {
                    return Ok(());
                }
            }
        })
    }
}

impl Merge {
    /// The index that says that no two documents have the same values of the fields; none if there
    /// is no collection and so no document yet.
    fn unique_index(&self, cx: &BuildCx) -> Result<Option<Arc<Index>>> {
        let serves = |index: &&Arc<Index>| {
            let definition = index.definition();
            let names: Vec<&str> = definition.key.as_doc().iter().map(|e| e.key()).collect();
            index.ready
                && definition.unique
                && definition.partial.is_none()
                && names.len() == self.on.len()
                && self.on.iter().all(|(name, _)| names.contains(&name.as_str()))
        };
        let found = match cx.namespaces.resolve(self.target.as_str()) {
            Named::View(_) => bail!(
                CommandNotSupportedOnView,
                "Namespace {} is a view, not a collection",
                self.target
            ),
            Named::Collection(collection) => {
                collection.indexes.iter().find(serves).map(|index| Some(index.clone()))
            }
            Named::Remote(_) => return Err(not_written_here(&self.target)),
            Named::Nothing => {
                let by_id = self.on.len() == 1 && self.on.iter().all(|(name, _)| name == "_id");
                by_id.then_some(None)
            }
        };
        match found {
            Some(index) => Ok(index),
            None => bail!(51183, "Cannot find index to verify that join fields will be unique"),
        }
    }

    /// The values of the fields in a row.
    fn key(&self, row: Doc<'_>, nulls: bool) -> Result<DocBuf> {
        let mut values = Vec::new();
        for (name, path) in &self.on {
            let value = nested(row, path);
            if matches!(value, Value::Array(_)) {
                bail!(51185, "$merge write error: 'on' field '{name}' is an array");
            }
            if value.is_nullish() && !nulls {
                bail!(
                    51132,
                    "$merge write error: 'on' field '{name}' cannot be missing, null or undefined \
                     if supporting index is sparse"
                );
            }
            values.push((name, if value.is_nullish() { Value::Null } else { value }));
        }
        Ok(DocBuf::build(|out| {
            for (name, value) in &values {
                out.document(name).put_value("$eq", value);
            }
        }))
    }
}

/// The value at a path through documents only.
fn nested<'d>(doc: Doc<'d>, path: &FieldPath) -> Value<'d> {
    let mut value: Value<'d> = doc.into();
    for name in path.parts() {
        value = match value {
            Value::Document(kauri_bson::DocCow::Borrowed(doc)) => doc.value(name),
            Value::Array(items) => return Value::Array(items),
            _ => Value::Missing,
        };
    }
    value
}

/// How often a row is tried that is neither found nor can be inserted.
const ATTEMPTS_MAX: usize = 100;

/// Rows on their way.
struct Merging<'m> {
    merge: &'m Merge,
    cx: &'m BuildCx,
    nulls: bool,
    op: &'m mut Operation,
}

impl Merging<'_> {
    /// Writes the rows of a batch. One that fails does not keep the others from being written; the
    /// first error is what comes of it.
    async fn batch(&mut self, rows: &[DocBuf]) -> Result<()> {
        let mut failed = Ok(());
        for row in rows {
            let written = self.row(row.as_doc()).await;
            self.op.check_for_interrupt()?;
            if failed.is_ok() {
                failed = written;
            }
        }
        failed
    }

    async fn row(&mut self, row: Doc<'_>) -> Result<()> {
        let prepared = self.with_id(row);
        let row = prepared.as_doc();
        let key = self.merge.key(row, self.nulls)?;
        let outer = &self.cx.env;
        let inserts = self.merge.not_matched == WhenNotMatched::Insert;
        let set = |operator: &str| -> Result<Update> {
            parse_update(&doc! { operator => row }.into(), &[], &outer.scope)
        };
        let found = match &self.merge.matched {
            WhenMatched::Fail => return self.insert(row).await,
            WhenMatched::KeepExisting => {
                self.update(&set("$setOnInsert")?, &key, outer, true).await?
            }
            WhenMatched::Merge => self.update(&set("$set")?, &key, outer, inserts).await?,
            WhenMatched::Replace => {
                let update = parse_update(&row.into(), &[], &outer.scope)?;
                self.update(&update, &key, outer, inserts).await?
            }
            WhenMatched::Pipeline(stages) => return self.by_pipeline(stages, row, &key).await,
        };
        if found { Ok(()) } else { self.not_matched() }
    }

    /// A row that is told apart by `_id` gets one if it has none.
    fn with_id(&self, row: Doc<'_>) -> DocBuf {
        let by_id = self.merge.on.iter().any(|(name, _)| name == "_id");
        if !by_id || row.get("_id").is_some() {
            return row.to_buf();
        }
        let id = self.op.backend().new_object_id();
        DocBuf::build(|out| {
            out.put("_id", Value::ObjectId(id));
            out.put_all(row);
        })
    }

    fn not_matched(&self) -> Result<()> {
        if self.merge.not_matched == WhenNotMatched::Fail {
            bail!(
                13113,
                "$merge could not find a matching document in the target collection for at least \
                 one document in the source collection"
            );
        }
        Ok(())
    }

    /// Changes the document that is there by the user's pipeline, or inserts the row as it is.
    async fn by_pipeline(&mut self, stages: &Value<'_>, row: Doc<'_>, key: &DocBuf) -> Result<()> {
        let (update, env) = self.bind(stages, row)?;
        for _ in 0..ATTEMPTS_MAX {
            if self.update(&update, key, &env, false).await? {
                return Ok(());
            }
            if self.merge.not_matched != WhenNotMatched::Insert {
                return self.not_matched();
            }
            match self.insert(row).await {
                // Somebody else was quicker: now there is one to update, unless what is in the way
                // is another document.
                Err(error) if self.is_on_fields(&error) => self.op.yield_now().await?,
                other => return other,
            }
        }
        bail!(WriteConflict, "$merge could not write a document that others keep changing")
    }

    /// The user's pipeline, and the surroundings with the row's variables. A variable without a
    /// value is one that the pipeline cannot use.
    fn bind(&self, stages: &Value<'_>, row: Doc<'_>) -> Result<(Update, QueryEnv)> {
        let outer = &self.cx.env;
        let mut env = outer.clone();
        env.values.resize(outer.scope.names().len(), Value::Missing);
        let mut names = Vec::new();
        for (name, expression) in &self.merge.variables {
            let value = expression.eval(&outer.eval_cx(), row)?.into_owned();
            if !value.is_missing() {
                names.push(name.as_str());
                env.values.push(value);
            }
        }
        Ok((parse_update(stages, &names, &outer.scope)?, env))
    }

    /// Updates the document of this key, or inserts one where `upsert`; false if there is none.
    async fn update(
        &mut self,
        update_: &Update,
        key: &DocBuf,
        env: &QueryEnv,
        upsert: bool,
    ) -> Result<bool> {
        let parse_cx = kauri_matcher::ParseCx::new(kauri_matcher::Place::Find);
        let filter = Matcher::parse(key.as_doc(), &parse_cx)?;
        let query = Query { filter: Some(Arc::new(filter)), ..Query::default() };
        let statement = UpdateStatement {
            targets: Targets {
                catalog: &self.cx.namespaces,
                ns: &self.merge.target,
                query: &query,
                env,
                multi: false,
                only: None,
            },
            update: update_,
            upsert,
            bypass: self.cx.bypass,
        };
        let mut outcome = WriteOutcome::default();
        let updated = update(self.op, &statement, Shown::None, &mut outcome).await?;
        if let Some(ticket) = outcome.ticket {
            self.cx.committed(ticket);
        }
        Ok(updated.matched > 0 || updated.upserted.is_some())
    }

    async fn insert(&mut self, row: Doc<'_>) -> Result<()> {
        let options = InsertOptions::ordered(self.cx.bypass);
        let mut outcome = WriteOutcome::default();
        let ns = &self.merge.target;
        insert(self.op, &self.cx.namespaces, ns, &[row], &options, &mut outcome).await?;
        if let Some(ticket) = outcome.ticket {
            self.cx.committed(ticket);
        }
        outcome.errors.pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Whether a duplicate is one of the fields that documents are told apart by.
    fn is_on_fields(&self, error: &Error) -> bool {
        let pattern = error.extra().and_then(|extra| Doc::from_bytes(extra).ok());
        let Some(pattern) = pattern.and_then(|extra| extra.get("keyPattern")?.as_doc()) else {
            return false;
        };
        error.code() == ErrorCode::DuplicateKey
            && pattern.count() == self.merge.on.len()
            && self.merge.on.iter().all(|(name, _)| pattern.get(name).is_some())
    }
}
