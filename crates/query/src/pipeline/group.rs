//! `$group`, and `$sortByCount`, which is a `$group` and a `$sort`.
//!
//! Groups are told apart by the comparison order, in which numbers of different types are equal. The
//! `_id` that a group shows is the first one that was seen.

use super::group_table::{GroupTable, Vacant};
use super::simple::SortStage;
use super::{BuildCx, FieldUse, Keeps, ParseCx, StageSpec};
use crate::exec::sort::SortPattern;
use crate::exec::{ExecCx, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use kauri_base::{Error, ErrorCode, Result, bail, limits};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value, doc};
use kauri_expr::{Accumulator, AccumulatorSpec};
use kauri_expr::{EvalCx, Expression};
use std::any::Any;
use std::sync::Arc;

/// A parsed `$group`.
pub struct Group {
    spec: DocBuf,
    plan: Arc<Plan>,
}

struct Plan {
    id: Expression,
    fields: Vec<(String, AccumulatorSpec)>,
}

impl Group {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Group> {
        match elem.as_doc().filter(|_| elem.ty() == Type::Document) {
            Some(spec) => Group::of(spec, cx),
            None => bail!(15947, "a group's fields must be specified in an object"),
        }
    }

    /// A `$group` of this specification.
    pub fn of(spec: Doc<'_>, cx: &ParseCx) -> Result<Group> {
        let expressions = kauri_expr::ParseCx { in_group: true, ..cx.expressions() };
        let mut id = None;
        let mut fields = Vec::new();
        for field in spec {
            let name = field.key();
            if name == "_id" {
                if id.is_some() {
                    bail!(15948, "a group's _id may only be specified once");
                }
                check_id(&field.value())?;
                id = Some(Expression::parse(&field.value(), &expressions)?);
            } else if name == "$doingMerge" {
                bail!(17030, "$doingMerge should be true if present");
            } else if name.contains('.') {
                bail!(40235, "The field name '{name}' cannot contain '.'");
            } else if name.starts_with('$') {
                bail!(40236, "The field name '{name}' cannot be an operator name");
            } else {
                let accumulator = AccumulatorSpec::parse_field(name, &field.value(), &expressions)?;
                fields.push((name.to_owned(), accumulator));
            }
        }
        let Some(id) = id else { bail!(15955, "a group specification must include an _id") };
        Ok(Group { spec: spec.to_buf(), plan: Arc::new(Plan { id, fields }) })
    }
}

/// Refuses what would be a projection rather than an object to build.
fn check_id(id: &Value<'_>) -> Result<()> {
    let Some(doc) = id.as_document() else { return Ok(()) };
    let is_operator = doc.first().is_some_and(|e| e.key().starts_with('$'));
    if !is_operator && doc.iter().any(|e| e.ty() == Type::Bool || e.ty().is_number()) {
        bail!(17390, "$group does not support inclusion-style expressions");
    }
    Ok(())
}

/// The two stages that `$sortByCount` stands for.
pub fn sort_by_count(elem: Elem<'_>, cx: &ParseCx) -> Result<Vec<Arc<dyn StageSpec>>> {
    let value = elem.value();
    match &value {
        Value::Document(spec) => {
            let first = spec.as_doc().first();
            if !first.is_some_and(|e| e.key().starts_with('$')) {
                bail!(
                    40147,
                    "the sortByCount field must be defined as a $-prefixed path or an expression inside an object"
                );
            }
        }
        Value::String(path) if path.starts_with('$') => {}
        Value::String(_) => {
            bail!(
                40148,
                "the sortByCount field must be defined as a $-prefixed path or an expression inside an object"
            );
        }
        _ => bail!(40149, "the sortByCount field must be specified as a string or as an object"),
    }
    let group = doc! { "_id" => value.borrow(), "count" => doc! { "$sum" => 1 } };
    let sort = doc! { "count" => -1 };
    Ok(vec![
        Arc::new(Group::of(group.as_doc(), cx)?),
        Arc::new(SortStage::of(SortPattern::parse(sort.as_doc())?)),
    ])
}

impl StageSpec for Group {
    fn name(&self) -> &'static str {
        "$group"
    }

    fn field_use(&self) -> FieldUse {
        let mut field_use = FieldUse { keeps: Keeps::nothing(), ..FieldUse::passing() };
        field_use.add(&self.plan.id.dependencies());
        for (_, spec) in &self.plan.fields {
            field_use.add(&spec.dependencies());
        }
        field_use
    }

    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(GroupStage {
            child,
            spec: self.spec.clone(),
            groups: Groups {
                plan: self.plan.clone(),
                table: GroupTable::new(&*cx.env.random),
                only: None,
                states: Vec::new(),
                bytes: 0,
                rows: 0,
            },
            gathered: false,
            next: 0,
            scratch: Vec::new(),
            stats: StageStats::default(),
        }))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put("$group", &self.spec);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The groups so far.
struct Groups {
    plan: Arc<Plan>,
    /// Their `_id`s.
    table: GroupTable,
    /// The number of the group that all documents are of, if their `_id` is a constant.
    only: Option<usize>,
    /// The accumulators of all groups, one group after the other.
    states: Vec<Accumulator>,
    bytes: usize,
    rows: u64,
}

struct GroupStage {
    child: Box<dyn Stage>,
    spec: DocBuf,
    groups: Groups,
    gathered: bool,
    next: usize,
    /// Where documents that are lent lie.
    scratch: Vec<u8>,
    stats: StageStats,
}

/// Rows between two counts of what the accumulators hold.
const MEMORY_CHECK_ROWS: u64 = 16 * 1024;

impl Groups {
    fn take(&mut self, row: &Row<'_>, cx: &EvalCx<'_>) -> Result<()> {
        let plan = self.plan.clone();
        let doc = row.doc();
        let group = match self.only {
            Some(group) => group,
            None => {
                let id = match plan.id.eval(cx, doc)? {
                    Value::Missing => Value::Null,
                    id => id,
                };
                match self.table.find(&id) {
                    Ok(group) => group,
                    Err(vacant) => self.begin(&plan, vacant, id, cx)?,
                }
            }
        };
        let width = plan.fields.len();
        let states = &mut self.states[group * width..(group + 1) * width];
        for ((_, spec), state) in plan.fields.iter().zip(states) {
            spec.add(state, cx, doc)?;
        }
        self.rows += 1;
        if self.rows.is_multiple_of(MEMORY_CHECK_ROWS) {
            let held: usize = self.states.iter().map(Accumulator::memory_bytes).sum();
            self.check_memory(held)?;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        plan: &Plan,
        vacant: Vacant,
        id: Value<'_>,
        cx: &EvalCx<'_>,
    ) -> Result<usize> {
        let start = match &id {
            Value::Document(doc) => doc.as_doc(),
            _ => Doc::EMPTY,
        };
        for (_, spec) in &plan.fields {
            self.states.push(spec.start(cx, start)?);
        }
        self.bytes += super::heap_bytes(&id)
            + size_of::<Value<'_>>()
            + GroupTable::SLOT_BYTES
            + plan.fields.len() * size_of::<Accumulator>();
        self.check_memory(0)?;
        let Some(group) = self.table.insert(vacant, id.into_owned()) else {
            return Err(memory_exceeded());
        };
        if plan.id.as_constant().is_some() {
            self.only = Some(group);
        }
        Ok(group)
    }

    fn check_memory(&self, held: usize) -> Result<()> {
        if self.bytes + held > limits::GROUP_BYTES_MAX { Err(memory_exceeded()) } else { Ok(()) }
    }

    /// Puts the document of a group at the end of `out`; false if there is no such group.
    fn write(&self, group: usize, out: &mut Vec<u8>) -> Result<bool> {
        let Some(id) = self.table.values().get(group) else { return Ok(false) };
        let width = self.plan.fields.len();
        let states = &self.states[group * width..(group + 1) * width];
        let mut writer = DocWriter::new(out);
        writer.put_value("_id", id);
        for ((name, spec), state) in self.plan.fields.iter().zip(states) {
            writer.put_value(name, &spec.result(state));
        }
        drop(writer);
        super::check_size(out.len())?;
        Ok(true)
    }
}

fn memory_exceeded() -> Error {
    Error::new(
        ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
        "Exceeded memory limit for $group, but didn't allow external sort. Pass allowDiskUse:true \
         to opt in.",
    )
}

impl GroupStage {
    /// Gathers all rows. `Row`: the groups are complete.
    fn gather(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let eval = cx.env.eval_cx();
        while !self.gathered {
            let GroupStage { child, groups, .. } = self;
            match child.feed(cx, &mut |row| groups.take(row, &eval).map(|()| Flow::Continue))? {
                Step::Row(()) => {}
                Step::Again => return Ok(Step::Again),
                Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                Step::Done => self.gathered = true,
            }
        }
        Ok(Step::Row(()))
    }
}

impl Stage for GroupStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.gather(cx)? {
            Step::Row(()) => {
                let mut bytes = Vec::with_capacity(64);
                match self.groups.write(self.next, &mut bytes)? {
                    true => {
                        self.next += 1;
                        Step::Row(Row::computed(DocBuf::from_vec(bytes)?))
                    }
                    false => Step::Done,
                }
            }
            Step::Again => Step::Again,
            Step::Blocked(ticket) => Step::Blocked(ticket),
            Step::Done => Step::Done,
        };
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let mut step = self.gather(cx)?;
        let mut lent = 0;
        while matches!(step, Step::Row(())) {
            self.scratch.clear();
            if !self.groups.write(self.next, &mut self.scratch)? {
                step = Step::Done;
                break;
            }
            self.next += 1;
            lent += 1;
            if take(&Row::computed(Doc::from_bytes(&self.scratch)?))? != Flow::Continue {
                break;
            }
            if !cx.spend() {
                step = Step::Again;
            }
        }
        Ok(self.stats.count_lent(lent, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "GROUP");
        out.put("spec", &self.spec);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
