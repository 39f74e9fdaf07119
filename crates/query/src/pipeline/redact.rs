//! `$redact`: an expression decides for each document and each nested document whether to keep it, remove it, or
//! descend into it.

use super::{BuildCx, FieldUse, Keeps, ParseCx, StageSpec};
use crate::exec::{
    ExecCx, Fields, Flow, QueryEnv, Row, Stage, StageStats, Step, Take, Totals, Verbosity,
};
use kauri_base::{Result, bail, work};
use kauri_bson::{ArrayWriter, Doc, DocWriter, Elem, Type, Value};
use kauri_expr::{EvalCx, Expression};
use std::any::Any;
use std::sync::Arc;

/// The variables that the expression answers with.
const ANSWERS: [(&str, &str); 3] = [("KEEP", "keep"), ("PRUNE", "prune"), ("DESCEND", "descend")];

/// A parsed `$redact`.
pub struct Redact {
    spec: Value<'static>,
    plan: Arc<Plan>,
}

struct Plan {
    expression: Expression,
    /// How many variables there are outside; the answers come behind them, then `CURRENT`.
    outer: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Keep,
    Prune,
    Descend,
}

impl Redact {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Redact> {
        let mut expressions = cx.expressions();
        let outer = expressions.vars.names().len();
        for (name, _) in ANSWERS {
            expressions.vars.define(name);
        }
        expressions.vars.define("CURRENT");
        let expression = Expression::parse(&elem.value(), &expressions)?;
        let plan = Arc::new(Plan { expression, outer });
        Ok(Redact { spec: elem.value().into_owned(), plan })
    }
}

impl StageSpec for Redact {
    fn name(&self) -> &'static str {
        "$redact"
    }

    fn field_use(&self) -> FieldUse {
        let mut field_use = FieldUse::reading(&self.plan.expression.dependencies());
        field_use.variables.retain(|position| *position < self.plan.outer);
        FieldUse { reads: Fields::All, keeps: Keeps::nothing(), ..field_use }
    }

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(RedactStage {
            child,
            spec: self.spec.clone(),
            plan: self.plan.clone(),
            scratch: Vec::new(),
            stats: StageStats::default(),
        }))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put_value("$redact", &self.spec);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A document at work: `root` is the row's.
struct Redaction<'r> {
    plan: &'r Plan,
    env: &'r QueryEnv,
    root: Doc<'r>,
}

impl Redaction<'_> {
    fn verdict(&self, current: Doc<'_>) -> Result<Verdict> {
        let outer = self.env.values.iter().map(Value::borrow).take(self.plan.outer);
        let mut vars: Vec<Value<'_>> = outer.collect();
        vars.resize(self.plan.outer, Value::Missing);
        vars.extend(ANSWERS.iter().map(|(_, value)| Value::from(*value)));
        vars.push(current.into());
        let cx = EvalCx { vars: &vars, ..self.env.eval_cx() };
        let answer = self.plan.expression.eval(&cx, self.root)?;
        Ok(match answer.as_str() {
            Some("keep") => Verdict::Keep,
            Some("prune") => Verdict::Prune,
            Some("descend") => Verdict::Descend,
            _ => bail!(
                17053,
                "$redact's expression should not return anything aside from the variables \
                 $$KEEP, $$DESCEND, and $$PRUNE, but returned {}",
                kauri_bson::shell_value(&answer)
            ),
        })
    }

    fn document(&self, doc: Doc<'_>, out: &mut DocWriter<'_>) -> Result<()> {
        work::check_stack()?;
        for elem in doc.ticked() {
            let elem = elem?;
            match (elem.ty(), elem.as_doc()) {
                (Type::Document, Some(inner)) => match self.verdict(inner)? {
                    Verdict::Keep => out.put_elem(elem),
                    Verdict::Prune => {}
                    Verdict::Descend => self.document(inner, &mut out.document(elem.key()))?,
                },
                (Type::Array, Some(items)) => self.array(items, &mut out.array(elem.key()))?,
                _ => out.put_elem(elem),
            }
        }
        Ok(())
    }

    fn array(&self, items: Doc<'_>, out: &mut ArrayWriter<'_>) -> Result<()> {
        work::check_stack()?;
        for elem in items.ticked() {
            let elem = elem?;
            match (elem.ty(), elem.as_doc()) {
                (Type::Document, Some(inner)) => match self.verdict(inner)? {
                    Verdict::Keep => out.push_elem(elem),
                    Verdict::Prune => {}
                    Verdict::Descend => self.document(inner, &mut out.document())?,
                },
                (Type::Array, Some(items)) => self.array(items, &mut out.array())?,
                _ => out.push_elem(elem),
            }
        }
        Ok(())
    }
}

struct RedactStage {
    child: Box<dyn Stage>,
    spec: Value<'static>,
    plan: Arc<Plan>,
    scratch: Vec<u8>,
    stats: StageStats,
}

impl RedactStage {
    fn lend(
        &mut self,
        cx: &mut ExecCx<'_>,
        lent: &mut u64,
        take: &mut Take<'_>,
    ) -> Result<Step<()>> {
        let env = cx.env;
        let RedactStage { child, plan, scratch, .. } = self;
        child.feed(cx, &mut |row| {
            let redaction = Redaction { plan, env, root: row.doc() };
            let flow = match redaction.verdict(row.doc())? {
                Verdict::Prune => return Ok(Flow::Continue),
                Verdict::Keep => take(row)?,
                Verdict::Descend => {
                    scratch.clear();
                    redaction.document(row.doc(), &mut DocWriter::new(scratch))?;
                    take(&row.lent(Doc::from_bytes(scratch)?))?
                }
            };
            *lent += 1;
            Ok(flow)
        })
    }
}

impl Stage for RedactStage {
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
        out.put("stage", "REDACT");
        out.put_value("spec", &self.spec);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
