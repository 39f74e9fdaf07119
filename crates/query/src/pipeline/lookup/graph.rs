//! `$graphLookup`: adds to each row the documents of another collection that are reachable by following one field
//! to another, breadth first.

use super::finder::{Asked, Finder, Found, Start};
use super::table::Docs;
use super::values;
use crate::exec::fields::top_level;
use crate::exec::{ExecCx, Fields, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use crate::pipeline::filter::Match;
use crate::pipeline::group_table::GroupTable;
use crate::pipeline::sub::SubPipeline;
use crate::pipeline::unwind::replace;
use crate::pipeline::{BuildCx, FieldUse, Keeps, ParseCx, StageSpec, field_path};
use kauri_base::{Result, bail, limits, work};
use kauri_bson::{ArrayWriter, Doc, DocBuf, DocWriter, Elem, Type, Value, not_utf8};
use kauri_catalog::Namespace;
use kauri_catalog::dropped::is_dropped;
use kauri_expr::{Expression, FieldPath};
use std::any::Any;
use std::sync::Arc;

/// A parsed `$graphLookup`.
pub struct GraphLookup {
    spec: DocBuf,
    plan: Arc<Plan>,
}

struct Plan {
    sub: SubPipeline,
    start_with: Expression,
    connect_from: FieldPath,
    connect_to: String,
    output: FieldPath,
    depth_field: Option<FieldPath>,
    depth_max: Option<i64>,
}

#[derive(Default)]
struct Options {
    from: Option<String>,
    start_with: Option<Expression>,
    connect_from: Option<FieldPath>,
    connect_to: Option<String>,
    output: Option<FieldPath>,
    depth_field: Option<FieldPath>,
    depth_max: Option<i64>,
    restrict: Option<Match>,
}

impl GraphLookup {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<GraphLookup> {
        let Some(doc) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
            bail!(
                FailedToParse,
                "the $graphLookup stage specification must be an object, but found {}",
                elem.ty().alias()
            );
        };
        let mut options = Options::default();
        doc.iter().try_for_each(|option| options.read(option, cx))?;
        let (Some(from), Some(start_with), Some(connect_from), Some(connect_to), Some(output)) = (
            options.from,
            options.start_with,
            options.connect_from,
            options.connect_to,
            options.output,
        ) else {
            bail!(
                40105,
                "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and \
                 'connectToField' to be specified."
            );
        };
        let restrict = options.restrict.map(|m| Arc::new(m) as Arc<dyn StageSpec>);
        let sub = SubPipeline {
            from: Some(Namespace::new(&cx.db, &from)?),
            stages: restrict.into_iter().collect(),
        };
        let (depth_field, depth_max) = (options.depth_field, options.depth_max);
        let plan =
            Plan { sub, start_with, connect_from, connect_to, output, depth_field, depth_max };
        Ok(GraphLookup { spec: doc.to_buf(), plan: Arc::new(plan) })
    }
}

impl Options {
    fn read(&mut self, option: Elem<'_>, cx: &ParseCx) -> Result<()> {
        let name = option.key();
        match name {
            "startWith" => {
                self.start_with = Some(Expression::parse(&option.value(), &cx.expressions())?);
            }
            "maxDepth" => self.depth_max = Some(max_depth(&option.value())?),
            "restrictSearchWithMatch" => {
                let Some(filter) = option.as_doc().filter(|_| option.ty() == Type::Document) else {
                    bail!(
                        40185,
                        "$graphLookup argument 'restrictSearchWithMatch' must be an object, is {}",
                        option.ty().alias()
                    );
                };
                self.restrict = Some(Match::of(filter, cx)?);
            }
            "as" | "connectFromField" | "connectToField" | "depthField" | "from" => {
                if name == "from" {
                    not_utf8::refuse_as_namespace(&option.value())?;
                }
                not_utf8::refuse(&option.value(), &format!("'{name}' of $graphLookup"))?;
                let Value::String(text) = option.value() else {
                    bail!(
                        40103,
                        "expected string as argument for $graphLookup argument: {}",
                        kauri_bson::shell::elem_to_string(option)
                    );
                };
                match name {
                    "as" => self.output = Some(field_path(&text)?),
                    "connectFromField" => self.connect_from = Some(field_path(&text)?),
                    "depthField" => self.depth_field = Some(field_path(&text)?),
                    "from" => self.from = Some(text.into_owned()),
                    _ => {
                        field_path(&text)?;
                        self.connect_to = Some(text.into_owned());
                    }
                }
            }
            other => bail!(40104, "Unknown argument to $graphLookup: {other}"),
        }
        Ok(())
    }
}

fn max_depth(value: &Value<'_>) -> Result<i64> {
    if !value.is_number() {
        bail!(
            40100,
            "maxDepth requires numeric argument, found argument of type {}",
            value.type_name()
        );
    }
    match value.as_i64_exact() {
        Some(depth) if depth >= 0 => Ok(depth),
        Some(depth) => {
            bail!(40101, "maxDepth requires a nonnegative argument, found: maxDepth: {depth}")
        }
        None => bail!(
            40102,
            "maxDepth could not be represented as a long long: maxDepth: {}",
            kauri_bson::shell_value(value)
        ),
    }
}

impl StageSpec for GraphLookup {
    fn name(&self) -> &'static str {
        "$graphLookup"
    }

    fn field_use(&self) -> FieldUse {
        let output = top_level(self.plan.output.parts()[0].as_str());
        let mut field_use = FieldUse {
            keeps: Keeps::all_but([output]),
            one_to_one: true,
            filter_first: true,
            ..FieldUse::reading(&self.plan.start_with.dependencies())
        };
        if self.plan.output.parts().len() > 1 {
            field_use.reads = field_use.reads.union(&Fields::of_paths([output]));
        }
        field_use.add_pipeline(&self.plan.sub.uses(), false, usize::MAX);
        field_use
    }

    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        let path = Some(self.plan.connect_to.clone());
        let asked = Asked { path, whole: true, base: 0 };
        Ok(Box::new(GraphStage {
            child,
            spec: self.spec.clone(),
            plan: self.plan.clone(),
            finder: Finder::new(self.plan.sub.clone(), asked, cx)?,
            fields: cx.needed.fields.clone(),
            current: None,
            scratch: Vec::new(),
            array: Vec::new(),
            stats: StageStats::default(),
        }))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put("$graphLookup", &self.spec);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A row, and what has been reached from it.
struct Current {
    row: Row<'static>,
    /// Values to be looked for next.
    frontier: Vec<Value<'static>>,
    depth: i64,
    run: Option<Box<dyn Stage>>,
    walk: Walk,
}

/// What has been seen on the way.
struct Walk {
    /// Values that have been looked for.
    asked: GroupTable,
    /// `_id`s of the documents reached.
    reached: GroupTable,
    docs: Docs,
    next_frontier: Vec<Value<'static>>,
    bytes: usize,
}

impl Walk {
    /// Takes a document that was found at this depth.
    fn take(&mut self, plan: &Plan, doc: Doc<'_>, depth: i64) -> Result<()> {
        let Err(vacant) = self.reached.find(&doc.value("_id")) else { return Ok(()) };
        let id = doc.value("_id").into_owned();
        self.reached.insert(vacant, id);
        self.docs.push(|out| match &plan.depth_field {
            Some(path) => {
                let depth = Value::Int64(depth);
                replace(doc, path.parts(), &depth, &Fields::All, &mut DocWriter::new(out));
            }
            None => out.extend_from_slice(doc.as_bytes()),
        });
        work::tick_bytes(64 + doc.as_bytes().len())?;
        for value in values::found_at(doc, &plan.connect_from) {
            work::tick(1)?;
            self.ask(value);
        }
        self.check_memory()
    }

    /// Puts a value on the frontier, unless it has been there.
    fn ask(&mut self, value: Value<'_>) {
        if let Err(vacant) = self.asked.find(&value) {
            let value = value.into_owned();
            self.bytes += 2 * (size_of::<Value<'_>>() + crate::pipeline::heap_bytes(&value));
            self.asked.insert(vacant, value.clone());
            self.next_frontier.push(value);
        }
    }

    fn check_memory(&self) -> Result<()> {
        if self.bytes + self.docs.memory_bytes() > limits::EXPRESSION_VALUE_BYTES_MAX {
            bail!(40099, "$graphLookup reached maximum memory consumption");
        }
        Ok(())
    }
}

struct GraphStage {
    child: Box<dyn Stage>,
    spec: DocBuf,
    plan: Arc<Plan>,
    finder: Finder,
    fields: Fields,
    current: Option<Current>,
    scratch: Vec<u8>,
    array: Vec<u8>,
    stats: StageStats,
}

impl GraphStage {
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
                self.current = Some(self.start(row, cx)?);
            }
            match self.walk(cx) {
                Ok(Step::Row(())) => {}
                Ok(other) => return Ok(other),
                Err(error) if is_dropped(&error) => {
                    self.finder.look_up_again(error)?;
                    // From the row on: what was reached may be of a collection that is no longer there.
                    let row = self.current.take().map(|current| current.row);
                    self.current = row.map(|row| self.start(row, cx)).transpose()?;
                    return Ok(Step::Again);
                }
                Err(error) => return Err(error),
            }
            *lent += 1;
            if self.give(take)? != Flow::Continue {
                return Ok(Step::Row(()));
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }

    fn start(&self, row: Row<'static>, cx: &ExecCx<'_>) -> Result<Current> {
        let random = &*cx.env.random;
        let mut walk = Walk {
            asked: GroupTable::new(random),
            reached: GroupTable::new(random),
            docs: Docs::default(),
            next_frontier: Vec::new(),
            bytes: 0,
        };
        let eval = cx.env.eval_cx();
        match self.plan.start_with.eval(&eval, row.doc())? {
            Value::Array(items) => {
                for item in items.as_doc().ticked() {
                    walk.ask(item?.value());
                }
            }
            Value::Missing => {}
            value => walk.ask(value),
        }
        let frontier = std::mem::take(&mut walk.next_frontier);
        Ok(Current { row, frontier, depth: 0, run: None, walk })
    }

    /// Follows the current row's connections. `Row`: to their end.
    fn walk(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let Some(current) = &mut self.current else { return Ok(Step::Again) };
        let plan = &*self.plan;
        loop {
            let (walk, depth) = (&mut current.walk, current.depth);
            if let Some(run) = &mut current.run {
                let step = run.feed(cx, &mut |row| {
                    walk.take(plan, row.doc(), depth).map(|()| Flow::Continue)
                })?;
                match step {
                    Step::Done => {}
                    Step::Row(()) => return Ok(Step::Again),
                    other => return Ok(other),
                }
                current.run = None;
                current.descend();
            }
            let deep_enough = plan.depth_max.is_some_and(|max| current.depth > max);
            if current.frontier.is_empty() || deep_enough {
                return Ok(Step::Row(()));
            }
            match self.finder.prepare(cx)? {
                Step::Row(()) => {}
                other => return Ok(other),
            }
            match self.finder.begin(Some(&current.frontier), cx.env)? {
                Start::Run(root) => current.run = Some(root),
                Start::Found(found) => {
                    current.take_all(plan, &found)?;
                    current.descend();
                }
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }

    fn give(&mut self, take: &mut Take<'_>) -> Result<Flow> {
        let Some(current) = self.current.take() else { return Ok(Flow::Continue) };
        self.array.clear();
        {
            let mut array = ArrayWriter::new(&mut self.array);
            let docs = &current.walk.docs;
            for doc in (0..docs.len()).filter_map(|at| docs.get(at)) {
                work::tick_bytes(64 + doc.as_bytes().len())?;
                array.push_doc(doc);
            }
        }
        let array = Value::Array(Doc::from_bytes(&self.array)?.into());
        self.scratch.clear();
        {
            let out = &mut DocWriter::new(&mut self.scratch);
            replace(current.row.doc(), self.plan.output.parts(), &array, &self.fields, out);
        }
        take(&current.row.lent(Doc::from_bytes(&self.scratch)?))
    }
}

impl Current {
    fn take_all(&mut self, plan: &Plan, found: &Found) -> Result<()> {
        let mut at = 0;
        while let Some(doc) = found.get(at) {
            self.walk.take(plan, doc, self.depth)?;
            at += 1;
        }
        Ok(())
    }

    fn descend(&mut self) {
        self.frontier = std::mem::take(&mut self.walk.next_frontier);
        self.depth += 1;
    }
}

impl Stage for GraphStage {
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
        out.put("stage", "GRAPH_LOOKUP");
        out.put("spec", &self.spec);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
