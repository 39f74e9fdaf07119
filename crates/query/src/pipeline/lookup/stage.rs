//! Runs `$lookup`: finds the other side's documents for each row.

use super::equality::Derived;
use super::finder::{Asked, Finder, Found, Start};
use super::table::Docs;
use super::{Lookup, Plan, values};
use crate::exec::{
    ExecCx, Fields, Flow, QueryEnv, Row, Stage, StageStats, Step, Take, Totals, Verbosity,
};
use crate::pipeline::BuildCx;
use crate::pipeline::unwind::{Unwinder, replace};
use kauri_base::{Result, bail, limits, work};
use kauri_bson::{ArrayWriter, Doc, DocBuf, DocWriter, Value};
use kauri_catalog::dropped::is_dropped;
use std::sync::Arc;

/// Builds the stage.
pub fn build_stage(lookup: &Lookup, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
    let plan = lookup.plan.clone();
    let path = plan.path().map(str::to_owned);
    let asked = Asked { path, whole: false, base: plan.base };
    let fields = cx.needed.fields.clone();
    let unwinder = lookup.unwind.as_ref().map(|u| Unwinder::new(u.clone(), fields.clone()));
    Ok(Box::new(LookupStage {
        child,
        spec: lookup.spec.clone(),
        finder: Finder::new(plan.sub.clone(), asked, cx)?,
        plan,
        unwinder,
        fields,
        env: None,
        current: None,
        scratch: Vec::new(),
        array: Vec::new(),
        stats: StageStats::default(),
    }))
}

impl Plan {
    /// The other side's field that documents are found by.
    fn path(&self) -> Option<&str> {
        match (&self.equality, &self.derived) {
            (Some((_, foreign)), _) => Some(foreign),
            (None, Some(derived)) => Some(&derived.path),
            (None, None) => None,
        }
    }

    /// The values of that field that this row asks for; none if it asks for anything.
    fn wanted<'r>(
        &'r self,
        row: Doc<'r>,
        env: &'r QueryEnv,
    ) -> Result<Option<Vec<Value<'static>>>> {
        if let Some((local, _)) = &self.equality {
            let found = values::at_path(row, local);
            return Ok(Some(found.into_iter().map(Value::into_owned).collect()));
        }
        let Some(derived) = &self.derived else { return Ok(None) };
        let value = derived.value.eval(&env.eval_cx(), Doc::EMPTY)?.into_owned();
        Ok(Derived::serves(&value).then(|| vec![value]))
    }
}

/// A row whose documents are being found, then given.
struct Current {
    row: Row<'static>,
    run: Option<Box<dyn Stage>>,
    found: Found,
    next: usize,
}

struct LookupStage {
    child: Box<dyn Stage>,
    spec: DocBuf,
    plan: Arc<Plan>,
    finder: Finder,
    unwinder: Option<Unwinder>,
    /// The fields that are read of the rows.
    fields: Fields,
    /// The surroundings of the sub-pipeline, with the row's variables.
    env: Option<QueryEnv>,
    current: Option<Current>,
    scratch: Vec<u8>,
    array: Vec<u8>,
    stats: StageStats,
}

impl LookupStage {
    fn lend(
        &mut self,
        cx: &mut ExecCx<'_>,
        lent: &mut u64,
        take: &mut Take<'_>,
    ) -> Result<Step<()>> {
        loop {
            if self.current.is_none() {
                let row = match self.child.work(cx)? {
                    Step::Row(row) => row.into_owned(),
                    Step::Again => return Ok(Step::Again),
                    Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                    Step::Done => return Ok(Step::Done),
                };
                self.bind(&row, cx.env)?;
                let found = Found::Docs(Docs::default());
                self.current = Some(Current { row, run: None, found, next: usize::MAX });
            }
            match self.find_or_begin_anew(cx)? {
                Step::Row(()) => {}
                other => return Ok(other),
            }
            if self.give(lent, take)? != Flow::Continue {
                return Ok(Step::Row(()));
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }

    /// Gives the variables of `let` their values for a row.
    fn bind(&mut self, row: &Row<'_>, env: &QueryEnv) -> Result<()> {
        let plan = &self.plan;
        let inner = self.env.get_or_insert_with(|| env.clone());
        inner.values.resize(plan.base, Value::Missing);
        for variable in &plan.variables {
            inner.values.push(variable.eval(&env.eval_cx(), row.doc())?.into_owned());
        }
        Ok(())
    }

    /// As [`LookupStage::find`]; where the other side is dropped, the row is begun with anew.
    fn find_or_begin_anew(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        match self.find(cx) {
            Err(error) if is_dropped(&error) => {
                self.finder.look_up_again(error)?;
                if let Some(current) = &mut self.current {
                    current.run = None;
                    current.found = Found::Docs(Docs::default());
                    current.next = usize::MAX;
                }
                Ok(Step::Again)
            }
            step => step,
        }
    }

    /// Finds the current row's documents. `Row`: they are all there.
    fn find(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let (Some(current), Some(env)) = (&mut self.current, &self.env) else {
            return Ok(Step::Again);
        };
        if current.next == usize::MAX {
            match self.finder.prepare(cx)? {
                Step::Row(()) => {}
                other => return Ok(other),
            }
            let wanted = self.plan.wanted(current.row.doc(), env)?;
            match self.finder.begin(wanted.as_deref(), env)? {
                Start::Found(found) => current.found = found,
                Start::Run(root) => current.run = Some(root),
            }
            current.next = 0;
        }
        let Some(run) = &mut current.run else { return Ok(Step::Row(())) };
        let Found::Docs(docs) = &mut current.found else { return Ok(Step::Row(())) };
        let mut inner = ExecCx { ru: cx.ru, env, budget: cx.budget };
        let step = run.feed(&mut inner, &mut |row| {
            work::tick_bytes(64 + row.doc().as_bytes().len())?;
            docs.push(|out| out.extend_from_slice(row.doc().as_bytes()));
            check_bytes(docs.memory_bytes(), &self.plan)?;
            Ok(Flow::Continue)
        })?;
        cx.budget = inner.budget;
        Ok(match step {
            Step::Done => {
                current.run = None;
                Step::Row(())
            }
            Step::Row(()) => Step::Again,
            other => other,
        })
    }

    /// Gives what the current row has become.
    fn give(&mut self, lent: &mut u64, take: &mut Take<'_>) -> Result<Flow> {
        if self.unwinder.is_some() {
            return self.give_each(lent, take);
        }
        let Some(current) = self.current.take() else { return Ok(Flow::Continue) };
        self.array.clear();
        {
            let mut array = ArrayWriter::new(&mut self.array);
            let mut next = 0;
            while let Some(doc) = current.found.get(next) {
                work::tick_bytes(64 + doc.as_bytes().len())?;
                array.push_doc(doc);
                check_bytes(array.len(), &self.plan)?;
                next += 1;
            }
        }
        let array = Value::Array(Doc::from_bytes(&self.array)?.into());
        self.scratch.clear();
        {
            let out = &mut DocWriter::new(&mut self.scratch);
            let path = self.plan.output.parts();
            replace(current.row.doc(), path, &array, &self.fields, out);
        }
        *lent += 1;
        take(&current.row.lent(Doc::from_bytes(&self.scratch)?))
    }

    /// The same with the array unwound.
    fn give_each(&mut self, lent: &mut u64, take: &mut Take<'_>) -> Result<Flow> {
        let (Some(current), Some(unwinder)) = (&mut self.current, &mut self.unwinder) else {
            return Ok(Flow::Continue);
        };
        if current.next == 0 && current.found.get(0).is_none() {
            let current = self.current.take();
            let Some(current) = current.filter(|_| unwinder.preserves()) else {
                return Ok(Flow::Continue);
            };
            *lent += 1;
            let made = unwinder.row(current.row.doc(), Some(&Value::Missing), None);
            return take(&current.row.lent(made));
        }
        while let Some(doc) = current.found.get(current.next) {
            work::tick_bytes(64 + doc.as_bytes().len())?;
            let index = current.next as i64;
            let made = unwinder.row(current.row.doc(), Some(&doc.into()), Some(index));
            current.next += 1;
            *lent += 1;
            if take(&current.row.lent(made))? != Flow::Continue {
                return Ok(Flow::Stop);
            }
        }
        self.current = None;
        Ok(Flow::Continue)
    }
}

fn check_bytes(bytes: usize, plan: &Plan) -> Result<()> {
    if bytes > limits::EXPRESSION_VALUE_BYTES_MAX {
        let from = plan.sub.from.as_ref().map_or("", |ns| ns.collection());
        bail!(
            4568,
            "Total size of documents in {from} matching pipeline's $lookup stage exceeds {} bytes",
            limits::EXPRESSION_VALUE_BYTES_MAX
        );
    }
    Ok(())
}

impl Stage for LookupStage {
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
        out.put("stage", "LOOKUP");
        out.put("spec", &self.spec);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
