//! Updates: parsed once, applied to raw documents.
//!
//! Operators form a tree of their paths (`tree`) that is walked together with the document (`apply`). `ops`,
//! `arithmetic` and `array` have the effect of each operator on a value. Replacements and results of pipelines use
//! `replace`, upserts begin in `upsert`. An oplog entry describes an update as a whole document or as a `delta`.

mod apply;
mod arithmetic;
mod array;
mod check;
mod condition;
mod delta;
mod ops;
mod parse;
mod path;
mod rename;
mod replace;
mod tree;
mod upsert;

use crate::cx::{ParseCx, UpdateCx};
use crate::text;
use crate::transform::DocTransform;
use apply::Applier;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, Elem, Type, Value};
use kauri_matcher::MatchExpr;
use parse::Operators;
use tree::Trail;

/// A parsed update.
#[derive(Debug)]
pub struct Update {
    form: Form,
}

#[derive(Debug)]
enum Form {
    Replacement(DocBuf),
    /// A replacement that was stored before: nothing in it is refused or filled in.
    Stored(DocBuf),
    Operators(Operators),
    Pipeline(Vec<DocTransform>),
    Delta(DocBuf),
}

/// The kind of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    /// A whole new document; `_id` stays.
    Replacement,
    /// `$set` and the like.
    Operators,
    /// An aggregation pipeline.
    Pipeline,
    /// An oplog entry's delta.
    Delta,
}

/// The result of applying an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Whether it counts as modified. If not, nothing was written.
    pub modified: bool,
}

impl Applied {
    const NOTHING: Applied = Applied { modified: false };
}

impl Update {
    /// Parses an update: a document, or an array that is a pipeline.
    pub fn parse(spec: &Value<'_>, array_filters: &[Doc<'_>], cx: &ParseCx<'_>) -> Result<Update> {
        let form = match spec {
            Value::Array(stages) => {
                if !array_filters.is_empty() {
                    bail!(
                        FailedToParse,
                        "arrayFilters may not be specified for pipeline-syle updates"
                    );
                }
                let mut expressions = cx.expressions().cloned().unwrap_or_default();
                expressions.evaluates_late = true;
                let cx = ParseCx::new().with_expressions(&expressions);
                Form::Pipeline(replace::parse_pipeline(stages.as_doc(), &cx)?)
            }
            Value::Document(doc) => {
                let doc = doc.as_doc();
                if doc.first().is_some_and(|e| e.key_bytes().first() == Some(&b'$')) {
                    Form::Operators(parse::parse_operators(doc, array_filters, cx)?)
                } else if array_filters.is_empty() {
                    Form::Replacement(doc.to_buf())
                } else {
                    bail!(
                        FailedToParse,
                        "arrayFilters may not be specified for replacement-style updates"
                    );
                }
            }
            _ => bail!(FailedToParse, "Update argument must be either an object or an array"),
        };
        Ok(Update { form })
    }

    /// Parses what an oplog entry says of an update: the whole new document, or a delta (`$v: 2`).
    pub fn parse_oplog(spec: Doc<'_>) -> Result<Update> {
        if spec.get("_id").is_some() {
            return Ok(Update::stored(spec));
        }
        let version = spec.get("$v");
        if version.and_then(|v| v.value().to_i64_saturating()) != Some(2) {
            let got = version.map_or_else(|| "EOO".to_owned(), text::elem);
            bail!(4772600, "Expected _id field or $v:2, but got: {got}");
        }
        let diff = spec.get("diff");
        match diff.and_then(|diff| diff.as_doc()).filter(|_| has_type(diff, Type::Document)) {
            Some(diff) => Ok(Update { form: Form::Delta(diff.to_buf()) }),
            None => bail!(
                4772601,
                "Expected 'diff' field to be an object, instead got type: {}",
                diff.map_or("missing", |diff| diff.ty().alias())
            ),
        }
    }

    /// The replacement by a document that was stored before, as it is.
    pub fn stored(doc: Doc<'_>) -> Update {
        Update { form: Form::Stored(doc.to_buf()) }
    }

    /// The kind of the update.
    pub fn kind(&self) -> UpdateKind {
        match &self.form {
            Form::Replacement(_) | Form::Stored(_) => UpdateKind::Replacement,
            Form::Operators(_) => UpdateKind::Operators,
            Form::Pipeline(_) => UpdateKind::Pipeline,
            Form::Delta(_) => UpdateKind::Delta,
        }
    }

    /// Whether applying needs [`UpdateCx::matched_position`].
    pub fn needs_matched_position(&self) -> bool {
        matches!(&self.form, Form::Operators(operators) if operators.positional)
    }

    /// Whether its result may depend on [`UpdateCx::now_ms`].
    pub fn tells_time(&self) -> bool {
        match &self.form {
            Form::Operators(operators) => {
                !operators.filters.is_empty() || operators.leaves.iter().any(|l| l.op.tells_time())
            }
            Form::Replacement(_) | Form::Stored(_) | Form::Delta(_) => false,
            Form::Pipeline(_) => true,
        }
    }

    /// Whether its work is in proportion to the sizes of the update and the document, not to their product.
    pub fn is_linear(&self) -> bool {
        match &self.form {
            Form::Replacement(_) | Form::Stored(_) | Form::Delta(_) => true,
            Form::Operators(operators) => {
                operators.filters.is_empty() && operators.leaves.iter().all(|l| l.op.is_linear())
            }
            Form::Pipeline(_) => false,
        }
    }

    /// Writes the updated document at the end of `out`; nothing if it stays as it is.
    pub fn apply(&self, doc: Doc<'_>, cx: &UpdateCx<'_>, out: &mut Vec<u8>) -> Result<Applied> {
        let start = out.len();
        let applied = self.apply_unchecked(doc, cx, out);
        let checked = applied.and_then(|applied| {
            if applied.modified {
                check::updated_size(out.len() - start, doc)?;
            }
            Ok(applied)
        });
        if checked.is_err() {
            out.truncate(start);
        }
        checked
    }

    /// The same without the check of the final size.
    fn apply_unchecked(
        &self,
        doc: Doc<'_>,
        cx: &UpdateCx<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Applied> {
        match &self.form {
            Form::Operators(operators) => operators.apply(doc, cx, out),
            Form::Replacement(replacement) => replace::replace(doc, replacement.as_doc(), cx, out),
            Form::Stored(stored) => replace::put_stored(doc, stored.as_doc(), out),
            Form::Pipeline(stages) => replace::run_pipeline(stages, doc, cx, out),
            Form::Delta(diff) => delta::apply(diff.as_doc(), doc, out),
        }
    }

    /// Writes the document that an upsert inserts. `object_id` becomes its `_id` if neither filter
    /// nor update gives it one.
    pub fn new_document(
        &self,
        filter: &MatchExpr,
        object_id: [u8; 12],
        cx: &UpdateCx<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        upsert::new_document(self, filter, object_id, cx, out)
    }
}

fn has_type(elem: Option<Elem<'_>>, ty: Type) -> bool {
    elem.is_some_and(|elem| elem.ty() == ty)
}

impl Operators {
    fn apply(&self, doc: Doc<'_>, cx: &UpdateCx<'_>, out: &mut Vec<u8>) -> Result<Applied> {
        let base = out.len();
        let renames = if self.renames.is_empty() {
            Vec::new()
        } else {
            rename::sources(&self.renames, doc, cx)?
        };
        let mut applier =
            Applier { leaves: &self.leaves, filters: &self.filters, cx, root: doc, renames, base };
        let modified = match (self.positional, cx.matched_position) {
            (false, _) => applier.fields(&self.tree, doc, &Trail::ROOT, 1, out)?,
            (true, Some(position)) => {
                let tree = tree::resolve(&self.tree, position, &Trail::ROOT)?;
                applier.fields(&tree, doc, &Trail::ROOT, 1, out)?
            }
            (true, None) => bail!(
                BadValue,
                "The positional operator did not find the match needed from the query."
            ),
        };
        if !modified {
            return Ok(Applied::NOTHING);
        }
        if self.touches_id {
            let new = out.get(base..).unwrap_or_default();
            check::same_id(doc, Doc::from_bytes(new)?)?;
        }
        Ok(Applied { modified })
    }
}
