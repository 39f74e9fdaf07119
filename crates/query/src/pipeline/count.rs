//! `$count`: the number of rows, as one row; no row if there are none.

use super::{BuildCx, FieldUse, Keeps, StageSpec};
use crate::exec::{ExecCx, Flow, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::{Result, bail};
use kauri_bson::{DocWriter, Elem, Value, doc};
use std::any::Any;

/// A parsed `$count`.
pub struct Count {
    field: String,
}

impl Count {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>) -> Result<Count> {
        kauri_bson::not_utf8::refuse(&elem.value(), "the count field")?;
        let Value::String(field) = elem.value() else {
            bail!(40156, "the count field must be a non-empty string");
        };
        if field.is_empty() {
            bail!(40157, "the count field must be a non-empty string");
        }
        if field.starts_with('$') {
            bail!(40158, "the count field cannot be a $-prefixed path");
        }
        if field.contains('\0') {
            bail!(40159, "the count field cannot contain a null byte");
        }
        if field.contains('.') {
            bail!(40160, "the count field cannot contain '.'");
        }
        if field == "_id" {
            bail!(9039800, "the count field cannot be '_id'");
        }
        Ok(Count { field: field.into_owned() })
    }
}

impl StageSpec for Count {
    fn name(&self) -> &'static str {
        "$count"
    }

    fn field_use(&self) -> FieldUse {
        FieldUse { keeps: Keeps::nothing(), ..FieldUse::passing() }
    }

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(CountStage {
            child,
            field: self.field.clone(),
            count: 0,
            done: false,
            stats: StageStats::default(),
        }))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put("$count", &self.field);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Counts the rows below it.
pub struct CountStage {
    child: Box<dyn Stage>,
    field: String,
    count: i64,
    done: bool,
    stats: StageStats,
}

impl CountStage {
    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        while !self.done {
            let CountStage { child, count, .. } = self;
            let counted = child.feed(cx, &mut |_| {
                *count += 1;
                Ok(Flow::Continue)
            })?;
            match counted {
                Step::Row(()) => {}
                Step::Again => return Ok(Step::Again),
                Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                Step::Done => {
                    self.done = true;
                    if self.count > 0 {
                        let count = match i32::try_from(self.count) {
                            Ok(count) => Value::Int32(count),
                            Err(_) => Value::Int64(self.count),
                        };
                        let row = doc! { self.field.as_str() => count };
                        return Ok(Step::Row(Row::computed(row)));
                    }
                }
            }
        }
        Ok(Step::Done)
    }
}

impl Stage for CountStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "COUNT");
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
