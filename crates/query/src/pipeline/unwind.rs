//! `$unwind`: a row for each element of an array.

use super::{BuildCx, FieldUse, Keeps, StageSpec};
use crate::exec::{ExecCx, Fields, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use kauri_base::{Result, bail, work};
use kauri_bson::{Doc, DocWriter, Elem, Type, Value, not_utf8};
use kauri_expr::FieldPath;
use std::any::Any;
use std::ops::Range;

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
        not_utf8::refuse(&elem.value(), "the path of $unwind")?;
        match elem.value() {
            Value::String(text) => path = Some(text.into_owned()),
            Value::Document(options) => {
                for option in options.iter() {
                    not_utf8::refuse(&option.value(), &format!("'{}' of $unwind", option.key()))?;
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
                            index_path = Some(super::field_path(&text)?);
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
            path: unwind_path(path)?,
            index_path,
            preserve,
        })
    }
}

impl Unwind {
    /// The array's path.
    pub fn path(&self) -> &FieldPath {
        &self.path
    }

    /// The field of the index.
    pub fn index_path(&self) -> Option<&FieldPath> {
        self.index_path.as_ref()
    }

    /// Whether a row is given for an array without elements.
    pub fn preserves(&self) -> bool {
        self.preserve
    }

    /// Writes the stage at work, without its input, as `explain` shows it.
    pub fn explain_stage(&self, out: &mut DocWriter<'_>) {
        out.put("stage", "UNWIND");
        out.put_value("spec", &self.spec);
    }
}

fn unwind_path(path: &str) -> Result<FieldPath> {
    if path.contains('\0') {
        bail!(16419, "field path must not contain embedded null characters");
    }
    super::field_path(path)
}

impl StageSpec for Unwind {
    fn name(&self) -> &'static str {
        "$unwind"
    }

    fn field_use(&self) -> FieldUse {
        let paths = [Some(&self.path), self.index_path.as_ref()];
        let tops: Vec<&str> = paths.iter().flatten().map(|p| p.parts()[0].as_str()).collect();
        FieldUse {
            reads: Fields::of_paths(tops.iter().copied()),
            keeps: Keeps::all_but(tops),
            filter_first: true,
            ..FieldUse::passing()
        }
    }

    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(UnwindStage {
            child,
            spec: self.clone(),
            unwinder: Unwinder::new(self.clone(), cx.needed.fields.clone()),
            pending: None,
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

/// Rows that one call lends at most before others have their turn.
pub(super) const LENT_MAX: u64 = 1024;

/// A document being unwound whose elements have not all been given.
pub(super) struct Pending {
    pub row: Row<'static>,
    /// Type and place of the elements in the document's bytes.
    pub elements: Vec<(Type, Range<usize>)>,
    pub next: usize,
}

/// What a document unwinds to.
pub(super) enum Unwound<'d> {
    /// A row for each element.
    Elements(Doc<'d>),
    /// One row, the document as it is.
    Same,
    /// One row with nothing in the path's place, and a null for the index.
    Emptied,
    /// One row, the document as it is, with a null for the index.
    WithIndex,
    Nothing,
}

/// Makes the rows of a document.
pub(super) struct Unwinder {
    spec: Unwind,
    /// The fields that are read of the rows.
    fields: Fields,
    scratch: Vec<u8>,
    second: Vec<u8>,
}

impl Unwinder {
    /// Whether a row is given for an array without elements.
    pub fn preserves(&self) -> bool {
        self.spec.preserve
    }

    pub fn new(spec: Unwind, fields: Fields) -> Unwinder {
        Unwinder { spec, fields, scratch: Vec::new(), second: Vec::new() }
    }

    pub fn unwind<'d>(&self, doc: Doc<'d>) -> Unwound<'d> {
        let found = find(doc, self.spec.path.parts());
        let with_index = self.spec.index_path.is_some();
        match found {
            Some(elem) if elem.ty() == Type::Array => {
                let array = elem.as_doc().unwrap_or(Doc::EMPTY);
                match (array.is_empty(), self.spec.preserve) {
                    (false, _) => Unwound::Elements(array),
                    (true, true) => Unwound::Emptied,
                    (true, false) => Unwound::Nothing,
                }
            }
            Some(elem) if !matches!(elem.ty(), Type::Null | Type::Undefined) => match with_index {
                true => Unwound::WithIndex,
                false => Unwound::Same,
            },
            _ if !self.spec.preserve => Unwound::Nothing,
            _ if with_index => Unwound::WithIndex,
            _ => Unwound::Same,
        }
    }

    /// The document with this value at the path (its own value, if none is given) and the index if requested, as
    /// far as its fields are read. Valid until the next call.
    pub fn row(&mut self, doc: Doc<'_>, value: Option<&Value<'_>>, index: Option<i64>) -> Doc<'_> {
        work::tick_infallible(1);
        self.scratch.clear();
        match value {
            Some(value) => {
                let out = &mut DocWriter::new(&mut self.scratch);
                replace(doc, self.spec.path.parts(), value, &self.fields, out);
            }
            None => self.fields.copy(doc, &mut self.scratch),
        }
        let mut made = &self.scratch;
        if let Some(path) = &self.spec.index_path {
            let index = index.map_or(Value::Null, Value::Int64);
            self.second.clear();
            let unwound = Doc::from_bytes(made).unwrap_or(Doc::EMPTY);
            {
                let out = &mut DocWriter::new(&mut self.second);
                replace(unwound, path.parts(), &index, &self.fields, out);
            }
            made = &self.second;
        }
        Doc::from_bytes(made).unwrap_or(Doc::EMPTY)
    }

    /// Lends the rows of a document. If `take` has enough before the last one, or there are very
    /// many, the rest is returned.
    fn lend(
        &mut self,
        row: &Row<'_>,
        lent: &mut u64,
        take: &mut Take<'_>,
    ) -> Result<(Flow, Option<Pending>)> {
        let array = match self.unwind(row.doc()) {
            Unwound::Nothing => return Ok((Flow::Continue, None)),
            Unwound::Same => {
                *lent += 1;
                return Ok((take(row)?, None));
            }
            Unwound::Emptied => {
                *lent += 1;
                let made = self.row(row.doc(), Some(&Value::Missing), None);
                return Ok((take(&row.lent(made))?, None));
            }
            Unwound::WithIndex => {
                *lent += 1;
                let made = self.row(row.doc(), None, None);
                return Ok((take(&row.lent(made))?, None));
            }
            Unwound::Elements(array) => array,
        };
        let mut elements = array.iter().enumerate();
        while let Some((index, elem)) = elements.next() {
            *lent += 1;
            let made = self.row(row.doc(), Some(&elem.value()), Some(index as i64));
            let flow = take(&row.lent(made))?;
            if flow != Flow::Continue || *lent >= LENT_MAX {
                let pending = elements.next().map(|_| Pending::new(row, array, index + 1));
                return Ok((flow, pending));
            }
        }
        Ok((Flow::Continue, None))
    }
}

impl Pending {
    pub fn new(row: &Row<'_>, array: Doc<'_>, next: usize) -> Pending {
        let base = row.doc().as_bytes().as_ptr() as usize;
        let place = |elem: Elem<'_>| {
            let bytes = elem.value_bytes();
            let start = bytes.as_ptr() as usize - base;
            (elem.ty(), start..start + bytes.len())
        };
        let elements = array.iter().map(place).collect();
        Pending { row: row.clone().into_owned(), elements, next }
    }
}

struct UnwindStage {
    child: Box<dyn Stage>,
    spec: Unwind,
    unwinder: Unwinder,
    pending: Option<Pending>,
    stats: StageStats,
}

impl UnwindStage {
    /// Lends what is left of a document. `Row`: there is more, or `take` has enough.
    fn lend_pending(&mut self, lent: &mut u64, take: &mut Take<'_>) -> Result<Flow> {
        let Some(pending) = &mut self.pending else { return Ok(Flow::Continue) };
        let doc = pending.row.doc();
        while let Some((ty, place)) = pending.elements.get(pending.next) {
            let value = Value::from_raw(*ty, &doc.as_bytes()[place.clone()]);
            let made = self.unwinder.row(doc, Some(&value), Some(pending.next as i64));
            *lent += 1;
            pending.next += 1;
            if take(&pending.row.lent(made))? != Flow::Continue || *lent >= LENT_MAX {
                return Ok(Flow::Stop);
            }
        }
        self.pending = None;
        Ok(Flow::Continue)
    }

    fn lend(
        &mut self,
        cx: &mut ExecCx<'_>,
        lent: &mut u64,
        take: &mut Take<'_>,
    ) -> Result<Step<()>> {
        let mut stopped = false;
        let mut watched = |row: &Row<'_>| {
            let flow = take(row)?;
            stopped = flow != Flow::Continue;
            Ok(flow)
        };
        if self.lend_pending(lent, &mut watched)? != Flow::Continue {
            return Ok(if stopped { Step::Row(()) } else { Step::Again });
        }
        let UnwindStage { child, unwinder, pending, .. } = self;
        let step = child.feed(cx, &mut |row| {
            let (flow, rest) = unwinder.lend(row, lent, &mut watched)?;
            *pending = rest;
            Ok(if pending.is_some() { Flow::Stop } else { flow })
        })?;
        Ok(match step {
            Step::Row(()) if !stopped => Step::Again,
            step => step,
        })
    }
}

/// The element at a path through documents only.
pub(super) fn find<'d>(doc: Doc<'d>, path: &[String]) -> Option<Elem<'d>> {
    let (first, rest) = path.split_first()?;
    let elem = doc.get(first)?;
    if rest.is_empty() {
        return Some(elem);
    }
    elem.as_doc().filter(|_| elem.ty() == Type::Document).and_then(|doc| find(doc, rest))
}

/// Writes `doc` with `value` at the path, as far as its fields are read; what isn't there on the way
/// is made.
pub(super) fn replace(
    doc: Doc<'_>,
    path: &[String],
    value: &Value<'_>,
    fields: &Fields,
    out: &mut DocWriter<'_>,
) {
    let Some((first, rest)) = path.split_first() else { return };
    work::tick_infallible((doc.as_bytes().len() / 64) as u32);
    let mut found = !fields.contains(first.as_bytes());
    for elem in doc {
        if !fields.contains(elem.key_bytes()) {
            continue;
        }
        if found || elem.key_bytes() != first.as_bytes() {
            out.put_elem(elem);
            continue;
        }
        found = true;
        if rest.is_empty() {
            out.put_value(first, value);
        } else {
            let inner = elem.as_doc().filter(|_| elem.ty() == Type::Document);
            let out = &mut out.document(first);
            replace(inner.unwrap_or(Doc::EMPTY), rest, value, &Fields::All, out);
        }
    }
    if !found && !value.is_missing() {
        if rest.is_empty() {
            out.put_value(first, value);
        } else {
            replace(Doc::EMPTY, rest, value, &Fields::All, &mut out.document(first));
        }
    }
}

impl Stage for UnwindStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = crate::pipeline::work_by_lending(|take| self.lend(cx, &mut 0, take))?;
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let mut lent = 0;
        let step = self.lend(cx, &mut lent, take)?;
        Ok(self.stats.count_lent(lent, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        self.spec.explain_stage(out);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
