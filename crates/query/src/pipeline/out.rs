//! `$out`: writes the rows into a collection that replaces another one atomically.
//!
//! Rows are written into a temporary collection with the options and indexes of the target. Renaming it at the end
//! is one commit. Until then the old collection stays unchanged. The temporary collection is dropped, at the latest
//! at the next start of the server.

use super::spec::Spec;
use super::{
    BuildCx, Constraints, FieldUse, ParseCx, Sink, StageSpec, Writing, batches::next_batch,
};
use crate::exec::{Eof, PlanExecutor, Stage};
use crate::namespaces::{Definer, Indexes, Named, Namespaces, definer};
use crate::write::WriteOutcome;
use crate::write::insert::{InsertOptions, insert};
use crate::write::not_written_here;
use kauri_base::{CollectionId, Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Value, not_utf8};
use kauri_catalog::{Collection, CollectionOptions, Namespace, Rename};
use kauri_storage::{Backend, Operation, Scope};
use std::any::Any;
use std::sync::Arc;

/// A parsed `$out`.
pub struct Out {
    target: Namespace,
}

impl Out {
    /// Parses the stage: a collection's name, or `{db, coll}`.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Out> {
        not_utf8::refuse_as_namespace(&elem.value())?;
        let (db, coll, timeseries) = match elem.value() {
            Value::String(coll) => (cx.db.clone(), coll.into_owned(), None),
            Value::Document(_) => {
                let doc = elem.as_doc().unwrap_or(Doc::EMPTY);
                let fields = Spec::new("$out", doc, &["db", "coll", "timeseries"])?;
                let Some(coll) = fields.string("coll")? else { return Err(fields.missing("coll")) };
                let Some(db) = fields.string("db")? else { return Err(fields.missing("db")) };
                (db, coll, fields.object("timeseries")?)
            }
            _ => bail!(
                16990,
                "$out only supports a string or object argument, but found {}",
                elem.ty().alias()
            ),
        };
        if matches!(db.as_str(), "admin" | "config" | "local") {
            bail!(31321, "Cannot $out to internal database: {db}");
        }
        let target = target(&db, &coll)?;
        if let Some(options) = timeseries {
            check_timeseries(options)?;
            bail!(InvalidOptions, "time series collections are not supported by this server");
        }
        Ok(Out { target })
    }
}

/// The collection's name, checked as for a new one.
fn target(db: &str, coll: &str) -> Result<Namespace> {
    kauri_catalog::check_database_name(db)?;
    if coll.starts_with("system.") {
        bail!(17385, "Can't $out to special collection: {coll}");
    }
    let bytes = db.len() + 1 + coll.len();
    if coll.contains('$') || bytes > kauri_base::limits::NAMESPACE_BYTES_MAX {
        bail!(
            IllegalOperation,
            "Invalid collection name for $out: {db}.{}",
            coll.chars().take(100).collect::<String>()
        );
    }
    Namespace::new(db, coll)
}

/// Most seconds that a bucket may span: a year.
const SPAN_SECONDS_MAX: i64 = 31_536_000;

/// Options of time series are wrong in themselves before the server's lack of them is.
fn check_timeseries(options: Doc<'_>) -> Result<()> {
    let known =
        ["timeField", "metaField", "granularity", "bucketMaxSpanSeconds", "bucketRoundingSeconds"];
    let fields = Spec::new("$out.timeseries", options, &known)?;
    let time = fields.string("timeField")?;
    fields.string("metaField")?;
    let granularity = fields.string("granularity")?;
    let mut spans = [None, None];
    for (span, name) in spans.iter_mut().zip(["bucketMaxSpanSeconds", "bucketRoundingSeconds"]) {
        let Some(elem) = fields.get(name) else { continue };
        let value = elem.value();
        if !value.is_number() {
            return Err(fields.wrong_type(elem, &["long", "int", "decimal", "double"]));
        }
        let seconds = super::truncated(&value).unwrap_or(0);
        if !(1..=SPAN_SECONDS_MAX).contains(&seconds) {
            bail!(
                BadValue,
                "BSON field '{name}' value must be between 1 and {SPAN_SECONDS_MAX}, actual value \
                 '{seconds}'"
            );
        }
        *span = Some(seconds);
    }
    if time.is_none() {
        return Err(fields.missing("timeField"));
    }
    if let Some(name) = granularity.as_deref()
        && !matches!(name, "seconds" | "minutes" | "hours")
    {
        bail!(
            BadValue,
            "Enumeration value '{name}' for field '$out.timeseries.granularity' is not a valid \
             value."
        );
    }
    let [span, rounding] = spans;
    if span != rounding || (granularity.is_some() && rounding.is_some()) {
        bail!(
            InvalidOptions,
            "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' need to be set to the \
             same value, without 'granularity'"
        );
    }
    Ok(())
}

impl StageSpec for Out {
    fn name(&self) -> &'static str {
        "$out"
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
        let mut stage = out.document("$out");
        stage.put("coll", self.target.collection());
        stage.put("db", self.target.database());
    }

    fn sink(&self) -> Option<&dyn Sink> {
        Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Sink for Out {
    fn check(&self, cx: &BuildCx) -> Result<()> {
        self.existing(&cx.namespaces).map(drop)
    }

    fn run<'a>(
        &'a self,
        op: &'a mut Operation,
        rows: &'a mut PlanExecutor,
        cx: &'a BuildCx,
    ) -> Writing<'a> {
        Box::pin(async move {
            let namespaces = &*cx.namespaces;
            let existing = self.existing(namespaces)?;
            let definer = definer(namespaces)?;
            let mut temporary =
                Temporary::create(op.scope(), definer, &self.target, existing.as_deref())?;
            let into = Some(temporary.id);
            let options = InsertOptions { into, ..InsertOptions::ordered(cx.bypass) };
            loop {
                let (docs, ended) = next_batch(op, rows).await?;
                let borrowed: Vec<Doc<'_>> = docs.iter().map(DocBuf::as_doc).collect();
                let mut outcome = WriteOutcome::default();
                insert(op, namespaces, &temporary.ns, &borrowed, &options, &mut outcome).await?;
                if let Some((_, error)) = outcome.errors.pop() {
                    return Err(error);
                }
                if ended {
                    break;
                }
            }
            let rename = Rename {
                source: Some(temporary.id),
                drop_target: existing.is_some(),
                replaces: existing.map(|c| c.id),
                ..Rename::new(&temporary.ns, &self.target)
            };
            let ticket = definer.rename(op.scope(), &rename)?;
            temporary.renamed = true;
            cx.committed(ticket);
            Ok(())
        })
    }
}

impl Out {
    /// The collection that is replaced, if there is one.
    fn existing(&self, namespaces: &dyn Namespaces) -> Result<Option<Arc<Collection>>> {
        match namespaces.resolve(self.target.as_str()) {
            Named::Nothing => Ok(None),
            Named::Remote(_) => Err(not_written_here(&self.target)),
            Named::View(_) => bail!(
                CommandNotSupportedOnView,
                "Namespace {} is a view, not a collection",
                self.target
            ),
            Named::Collection(collection) if collection.options.capped.is_some() => {
                bail!(17152, "namespace '{}' is capped so it can't be used for $out", self.target)
            }
            Named::Collection(collection) => Ok(Some(collection)),
        }
    }
}

/// The collection that is being written; dropped unless it is renamed.
struct Temporary<'c> {
    backend: Arc<Backend>,
    definer: &'c dyn Definer,
    ns: Namespace,
    id: CollectionId,
    renamed: bool,
}

impl<'c> Temporary<'c> {
    fn create(
        scope: &mut Scope,
        definer: &'c dyn Definer,
        target: &Namespace,
        like: Option<&Collection>,
    ) -> Result<Temporary<'c>> {
        // An index that can't be used would not be one of the new collection's.
        like.map_or(Ok(()), Collection::check_takes_documents)?;
        let random = scope.backend().random();
        let name = format!("tmp.agg_out.{:016x}{:016x}", random.next_u64(), random.next_u64());
        let ns = Namespace::new(target.database(), &name)?;
        let options = match like {
            Some(like) => CollectionOptions { temp: true, ..like.options.clone() },
            None => CollectionOptions { temp: true, ..CollectionOptions::default() },
        };
        let id = like.and_then(|c| c.id_index()).map(|i| i.definition().spec.clone());
        let others = like.map(|c| c.indexes.as_slice()).unwrap_or_default();
        let others = others
            .iter()
            .filter(|index| index.ready && !index.definition().is_id())
            .map(|index| index.definition().spec.clone())
            .collect();
        let made = definer.create_private(scope, &ns, options, &Indexes { id, others })?;
        let backend = scope.backend().clone();
        Ok(Temporary { backend, definer, ns, id: made.id, renamed: false })
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            // The operation is at its end. What is left of it is dropped when the server starts again.
            let mut scope = self.backend.scope();
            let _ = self.definer.drop_collection(&mut scope, &self.ns, self.id);
        }
    }
}
