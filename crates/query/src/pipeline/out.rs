//! `$out`: the rows become a collection, which takes the place of another one at once.
//!
//! They are written into a temporary collection with the options and indexes of the one that is
//! replaced; renaming it at the end is one commit. Whatever happens before that, the old collection
//! stays as it is, and the temporary one goes away (at the latest when the server starts again).

use super::spec::Spec;
use super::{
    BuildCx, Constraints, FieldUse, ParseCx, Sink, StageSpec, Writing, batches::next_batch,
};
use crate::exec::{Eof, PlanExecutor, Stage};
use crate::write::WriteOutcome;
use crate::write::insert::{InsertOptions, insert};
use kauri_base::{CollectionId, OperationContext, Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Value};
use kauri_catalog::{Catalog, Collection, CollectionOptions, Namespace, Rename, Resolved};
use std::any::Any;
use std::sync::Arc;

/// A parsed `$out`.
pub struct Out {
    target: Namespace,
}

impl Out {
    /// Parses the stage: a collection's name, or `{db, coll}`.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Out> {
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
        self.existing(&cx.catalog).map(drop)
    }

    fn run<'a>(
        &'a self,
        op: &'a mut OperationContext,
        rows: &'a mut PlanExecutor,
        cx: &'a BuildCx,
    ) -> Writing<'a> {
        Box::pin(async move {
            let catalog = &*cx.catalog;
            let existing = self.existing(catalog)?;
            let mut temporary = Temporary::create(catalog, &self.target, existing.as_deref())?;
            let into = Some(temporary.id);
            let options = InsertOptions { into, ..InsertOptions::ordered(cx.bypass) };
            loop {
                let (docs, ended) = next_batch(op, rows).await?;
                let borrowed: Vec<Doc<'_>> = docs.iter().map(DocBuf::as_doc).collect();
                let mut outcome = WriteOutcome::default();
                insert(op, catalog, &temporary.ns, &borrowed, &options, &mut outcome).await?;
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
            let ticket = catalog.rename_collection(&rename)?;
            temporary.renamed = true;
            cx.committed(ticket);
            Ok(())
        })
    }
}

impl Out {
    /// The collection that is replaced, if there is one.
    fn existing(&self, catalog: &Catalog) -> Result<Option<Arc<Collection>>> {
        match catalog.resolve(self.target.as_str()) {
            Resolved::Nothing => Ok(None),
            Resolved::View(_) => bail!(
                CommandNotSupportedOnView,
                "Namespace {} is a view, not a collection",
                self.target
            ),
            Resolved::Collection(collection) if collection.options.capped.is_some() => {
                bail!(17152, "namespace '{}' is capped so it can't be used for $out", self.target)
            }
            Resolved::Collection(collection) => Ok(Some(collection)),
        }
    }
}

/// The collection that is being written; dropped unless it is renamed.
struct Temporary<'c> {
    catalog: &'c Catalog,
    ns: Namespace,
    id: CollectionId,
    renamed: bool,
}

impl<'c> Temporary<'c> {
    fn create(
        catalog: &'c Catalog,
        target: &Namespace,
        like: Option<&Collection>,
    ) -> Result<Temporary<'c>> {
        let random = catalog.random();
        let name = format!("tmp.agg_out.{:016x}{:016x}", random.next_u64(), random.next_u64());
        let ns = Namespace::new(target.database(), &name)?;
        let options = match like {
            Some(like) => CollectionOptions { temp: true, ..like.options.clone() },
            None => CollectionOptions { temp: true, ..CollectionOptions::default() },
        };
        let id_index = like.and_then(|c| c.id_index()).map(|i| i.definition().spec.clone());
        let (collection, _) = catalog.create_collection(&ns, options, id_index)?;
        let temporary = Temporary { catalog, ns, id: collection.id, renamed: false };
        let indexes = like.map(|c| c.indexes.as_slice()).unwrap_or_default();
        let specs: Vec<DocBuf> = indexes
            .iter()
            .filter(|index| index.ready && !index.definition().is_id())
            .map(|index| index.definition().spec.clone())
            .collect();
        if !specs.is_empty() {
            // The collection is empty and nobody knows of it: nothing has to be backfilled.
            let (ids, _) = catalog.add_indexes(&collection, &specs)?;
            let made = catalog.collection(temporary.ns.as_str()).filter(|c| c.id == collection.id);
            let Some(made) = made else { return Err(collection.dropped_error()) };
            catalog.indexes_ready(&made, &ids, &[])?;
        }
        Ok(temporary)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            // What is left of it is dropped when the server starts again.
            let _ = self.catalog.drop_collection_of(&self.ns, self.id);
        }
    }
}
