//! `$unwind` directly before a `$group`: groups read array elements, and usually no rows are created.
//!
//! A group reads either the element itself or fields that all rows of a document share; the document has these,
//! too. A row is created only for expressions that mix both.

use super::group::Incoming;
use super::unwind::{LENT_MAX, Pending, Unwind, Unwinder, Unwound};
use crate::exec::{ExecCx, Fields, Flow, Row, Stage, Step, Totals, Verbosity};
use kauri_base::Result;
use kauri_bson::{Doc, DocWriter, Elem, Value};
use kauri_expr::{Dependencies, Expression};

/// The changes of a `$unwind` to its rows, and so to what later expressions read.
pub struct UnwindReads<'u> {
    unwind: &'u Unwind,
}

impl<'u> UnwindReads<'u> {
    /// For this stage.
    pub fn new(unwind: &'u Unwind) -> Self {
        UnwindReads { unwind }
    }

    /// The top-level fields that differ from row to row.
    fn changed(&self) -> impl Iterator<Item = &'u str> + use<'u> {
        let index = self.unwind.index_path();
        [Some(self.unwind.path()), index].into_iter().flatten().map(|path| path.parts()[0].as_str())
    }

    /// Whether the expression is the element that rows are made of.
    pub fn only_element(&self, expression: &Expression) -> bool {
        let path = self.unwind.path();
        let covered = self.unwind.index_path().is_some_and(|p| p.parts()[0] == path.parts()[0]);
        expression.as_field() == Some(path) && !covered
    }

    /// Whether this reads anything that differs from row to row.
    pub fn any(&self, found: &Dependencies) -> bool {
        let reads = match found.whole_document {
            true => Fields::All,
            false => Fields::of_paths(found.fields.iter().map(String::as_str)),
        };
        self.changed().any(|name| reads.contains(name.as_bytes()))
    }
}

/// The rows of a `$unwind` as a group takes them.
pub struct UnwoundRows {
    child: Box<dyn Stage>,
    spec: Unwind,
    unwinder: Unwinder,
    makes_rows: bool,
    /// A document with very many elements that have not all been given.
    pending: Option<Pending>,
}

impl UnwoundRows {
    /// For the rows of `child`. `needed`: the fields that are read, if rows must be created.
    pub fn new(unwind: &Unwind, needed: Option<Fields>, child: Box<dyn Stage>) -> UnwoundRows {
        let makes_rows = needed.is_some();
        let unwinder = Unwinder::new(unwind.clone(), needed.unwrap_or_default());
        UnwoundRows { child, spec: unwind.clone(), unwinder, makes_rows, pending: None }
    }

    /// Gives rows to `take` until that wants no more now, and answers as a stage's `feed` does.
    pub fn feed(
        &mut self,
        cx: &mut ExecCx<'_>,
        take: &mut dyn FnMut(Incoming<'_>) -> Result<Flow>,
    ) -> Result<Step<()>> {
        if self.give_pending(take)? != Flow::Continue {
            return Ok(Step::Row(()));
        }
        if self.pending.is_some() {
            return Ok(Step::Again);
        }
        let UnwoundRows { child, unwinder, makes_rows, pending, .. } = self;
        let mut flow = Flow::Continue;
        let step = child.feed(cx, &mut |row| {
            flow = match unwinder.unwind(row.doc()) {
                Unwound::Elements(array) => {
                    let (flow, rest) = give(unwinder, *makes_rows, row, array, take)?;
                    *pending = rest;
                    flow
                }
                Unwound::Same => take(Incoming { doc: row.doc(), element: None })?,
                Unwound::Emptied => {
                    let doc = unwinder.row(row.doc(), Some(&Value::Missing), None);
                    take(Incoming { doc, element: None })?
                }
                Unwound::WithIndex => {
                    let doc = unwinder.row(row.doc(), None, None);
                    take(Incoming { doc, element: None })?
                }
                Unwound::Nothing => Flow::Continue,
            };
            Ok(if pending.is_some() { Flow::Stop } else { flow })
        })?;
        if flow != Flow::Continue {
            return Ok(Step::Row(()));
        }
        Ok(if self.pending.is_some() { Step::Again } else { step })
    }

    /// Gives some of what is left of a document.
    fn give_pending(&mut self, take: &mut dyn FnMut(Incoming<'_>) -> Result<Flow>) -> Result<Flow> {
        let Some(pending) = &mut self.pending else { return Ok(Flow::Continue) };
        let doc = pending.row.doc();
        for _ in 0..LENT_MAX {
            let Some((ty, place)) = pending.elements.get(pending.next) else {
                self.pending = None;
                return Ok(Flow::Continue);
            };
            let value = Value::from_raw(*ty, &doc.as_bytes()[place.clone()]);
            let index = pending.next as i64;
            pending.next += 1;
            let doc = match self.makes_rows {
                true => self.unwinder.row(doc, Some(&value), Some(index)),
                false => doc,
            };
            let flow = take(Incoming { doc, element: Some(&value) })?;
            if flow != Flow::Continue {
                return Ok(flow);
            }
        }
        Ok(Flow::Continue)
    }

    /// As a stage of its own would explain itself.
    pub fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        self.spec.explain_stage(out);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    /// See [`Stage::add_totals`].
    pub fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}

/// Gives a row for each element; if there are very many, or no more are wanted now, the rest is returned.
fn give(
    unwinder: &mut Unwinder,
    makes_rows: bool,
    row: &Row<'_>,
    array: Doc<'_>,
    take: &mut dyn FnMut(Incoming<'_>) -> Result<Flow>,
) -> Result<(Flow, Option<Pending>)> {
    let doc = row.doc();
    let mut elements = array.iter().enumerate();
    while let Some((index, elem)) = elements.next() {
        if index as u64 >= LENT_MAX {
            return Ok((Flow::Continue, Some(Pending::new(row, array, index))));
        }
        let flow = give_one(unwinder, makes_rows, doc, (index, elem), take)?;
        if flow != Flow::Continue {
            let rest = elements.next().map(|_| Pending::new(row, array, index + 1));
            return Ok((flow, rest));
        }
    }
    Ok((Flow::Continue, None))
}

#[inline]
fn give_one(
    unwinder: &mut Unwinder,
    makes_rows: bool,
    doc: Doc<'_>,
    (index, elem): (usize, Elem<'_>),
    take: &mut dyn FnMut(Incoming<'_>) -> Result<Flow>,
) -> Result<Flow> {
    let value = elem.value();
    let doc = match makes_rows {
        true => unwinder.row(doc, Some(&value), Some(index as i64)),
        false => doc,
    };
    take(Incoming { doc, element: Some(&value) })
}
