//! `$unwind`: a row for each element of an array.

use super::{BuildCx, StageSpec};
use crate::exec::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value};
use kauri_expr::FieldPath;
use std::any::Any;

/// A parsed `$unwind`.
#[derive(Clone)]
pub struct Unwind {
    spec: Value<'static>,
    path: FieldPath,
    index_path: Option<FieldPath>,
    preserve: bool,
}

impl Unwind {
    /// Parses the stage: a path, or `{path, includeArrayIndex, preserveNullAndEmptyArrays}`.
    pub fn parse(elem: Elem<'_>) -> Result<Unwind> {
        let (mut path, mut index_path, mut preserve) = (None, None, false);
        match elem.value() {
            Value::String(text) => path = Some(text.into_owned()),
            Value::Document(options) => {
                for option in options.iter() {
                    match (option.key(), option.value()) {
                        ("path", Value::String(text)) => path = Some(text.into_owned()),
                        ("path", other) => bail!(
                            28808,
                            "expected a string as the path for $unwind stage, got {}",
                            other.type_name()
                        ),
                        ("preserveNullAndEmptyArrays", Value::Bool(flag)) => preserve = flag,
                        ("preserveNullAndEmptyArrays", other) => bail!(
                            28809,
                            "expected a boolean for the preserveNullAndEmptyArrays option to \
                             $unwind stage, got {}",
                            other.type_name()
                        ),
                        ("includeArrayIndex", Value::String(text)) if !text.is_empty() => {
                            if text.starts_with('$') {
                                bail!(
                                    28822,
                                    "includeArrayIndex option to $unwind stage should not be \
                                     prefixed with a '$': {text}"
                                );
                            }
                            index_path = Some(FieldPath::parse(&text)?);
                        }
                        ("includeArrayIndex", other) => bail!(
                            28810,
                            "expected a non-empty string for the includeArrayIndex option to \
                             $unwind stage, got {}",
                            other.type_name()
                        ),
                        (other, _) => {
                            bail!(28811, "unrecognized option to $unwind stage: {other}");
                        }
                    }
                }
            }
            other => bail!(
                15981,
                "expected either a string or an object as specification for $unwind stage, got {}",
                other.type_name()
            ),
        }
        let Some(path) = path.filter(|p| !p.is_empty()) else {
            bail!(28812, "no path specified to $unwind stage");
        };
        let Some(path) = path.strip_prefix('$') else {
            bail!(28818, "path option to $unwind stage should be prefixed with a '$': {path}");
        };
        Ok(Unwind {
            spec: elem.value().into_owned(),
            path: FieldPath::parse(path)?,
            index_path,
            preserve,
        })
    }
}

impl StageSpec for Unwind {
    fn name(&self) -> &'static str {
        "$unwind"
    }

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(UnwindStage {
            child,
            spec: self.clone(),
            current: DocBuf::new(),
            elements: Vec::new(),
            next: 0,
            stats: StageStats::default(),
        }))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put_value("$unwind", &self.spec);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct UnwindStage {
    child: Box<dyn Stage>,
    spec: Unwind,
    /// The document being unwound.
    current: DocBuf,
    /// Where its elements' values lie in the array's bytes: type, start, length.
    elements: Vec<(Type, usize, usize)>,
    next: usize,
    stats: StageStats,
}

impl UnwindStage {
    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        loop {
            if let Some((ty, start, length)) = self.elements.get(self.next).copied() {
                let index = self.next as i64;
                self.next += 1;
                let bytes = &self.current.as_bytes()[start..start + length];
                let value = Value::from_raw(ty, bytes);
                return Ok(Step::Row(Row::computed(self.row(
                    self.current.as_doc(),
                    &value,
                    Some(index),
                ))));
            }
            let row = match self.child.work(cx)? {
                Step::Row(row) => row,
                other => return Ok(other),
            };
            if let Some(row) = self.take(row) {
                return Ok(Step::Row(row));
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }

    /// Begins a document; a row that comes of it at once is returned.
    fn take<'g>(&mut self, row: Row<'g>) -> Option<Row<'g>> {
        self.elements.clear();
        self.next = 0;
        let found = find(row.doc(), self.spec.path.parts());
        match found {
            Some(elem) if elem.ty() == Type::Array => {
                let array = elem.as_doc().unwrap_or(Doc::EMPTY);
                if array.is_empty() {
                    return self.spec.preserve.then(|| {
                        let doc = self.row(row.doc(), &Value::Missing, None);
                        Row::computed(doc)
                    });
                }
                let base = row.doc().as_bytes().as_ptr() as usize;
                self.elements.extend(array.iter().map(|e| {
                    let bytes = e.value_bytes();
                    (e.ty(), bytes.as_ptr() as usize - base, bytes.len())
                }));
                self.current = row.doc().to_buf();
                None
            }
            Some(elem) if !matches!(elem.ty(), Type::Null | Type::Undefined) => {
                if self.spec.index_path.is_none() {
                    return Some(row);
                }
                let doc = self.row(row.doc(), &elem.value(), None);
                Some(Row::computed(doc))
            }
            _ => {
                if !self.spec.preserve {
                    return None;
                }
                if self.spec.index_path.is_none() {
                    return Some(row);
                }
                let value = found.map_or(Value::Missing, |e| e.value());
                let doc = self.row(row.doc(), &value, None);
                Some(Row::computed(doc))
            }
        }
    }

    /// The document with the path's value replaced, and the index put in where that is asked for.
    fn row(&self, doc: Doc<'_>, value: &Value<'_>, index: Option<i64>) -> DocBuf {
        let mut bytes = Vec::with_capacity(doc.as_bytes().len() + 16);
        replace(doc, self.spec.path.parts(), value, &mut DocWriter::new(&mut bytes));
        let unwound = DocBuf::from_vec(bytes).unwrap_or_default();
        let Some(path) = &self.spec.index_path else { return unwound };
        let index = index.map_or(Value::Null, Value::Int64);
        let mut bytes = Vec::with_capacity(unwound.as_bytes().len() + 16);
        replace(unwound.as_doc(), path.parts(), &index, &mut DocWriter::new(&mut bytes));
        DocBuf::from_vec(bytes).unwrap_or_default()
    }
}

/// The element at a path through documents only.
fn find<'d>(doc: Doc<'d>, path: &[String]) -> Option<Elem<'d>> {
    let (first, rest) = path.split_first()?;
    let elem = doc.get(first)?;
    if rest.is_empty() {
        return Some(elem);
    }
    elem.as_doc().filter(|_| elem.ty() == Type::Document).and_then(|doc| find(doc, rest))
}

/// Writes `doc` with `value` at the path; what isn't there on the way is made.
fn replace(doc: Doc<'_>, path: &[String], value: &Value<'_>, out: &mut DocWriter<'_>) {
    let Some((first, rest)) = path.split_first() else { return };
    let mut found = false;
    for elem in doc {
        if found || elem.key_bytes() != first.as_bytes() {
            out.put_elem(elem);
            continue;
        }
        found = true;
        if rest.is_empty() {
            out.put_value(first, value);
        } else {
            let inner = elem.as_doc().filter(|_| elem.ty() == Type::Document);
            replace(inner.unwrap_or(Doc::EMPTY), rest, value, &mut out.document(first));
        }
    }
    if !found && !value.is_missing() {
        if rest.is_empty() {
            out.put_value(first, value);
        } else {
            replace(Doc::EMPTY, rest, value, &mut out.document(first));
        }
    }
}

impl Stage for UnwindStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "UNWIND");
        out.put_value("spec", &self.spec.spec);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
