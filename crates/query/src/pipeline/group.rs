//! `$group`, and `$sortByCount`, which is a `$group` and a `$sort`.
//!
//! Groups are told apart by the comparison order, in which numbers of different types are equal. The
//! `_id` that a group shows is the first one that was seen.

use super::group_table::{GroupTable, Vacant};
use super::simple::SortStage;
use super::unwind::Unwind;
use super::unwind_group::{UnwindReads, UnwoundRows};
use super::{BuildCx, FieldUse, Keeps, ParseCx, StageSpec};
use crate::exec::sort::SortPattern;
use crate::exec::{ExecCx, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use kauri_base::{Error, ErrorCode, RandomSource, Result, bail, limits};
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

#[derive(Clone)]
pub(super) struct Plan {
    id: Arc<Expression>,
    fields: Vec<Field>,
    /// Whether the `_id` is the element that rows are unwound to.
    id_of_element: bool,
}

#[derive(Clone)]
struct Field {
    name: String,
    spec: Arc<AccumulatorSpec>,
    /// Whether it gathers the elements that rows are unwound to.
    of_element: bool,
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
                let spec = Arc::new(accumulator);
                fields.push(Field { name: name.to_owned(), spec, of_element: false });
            }
        }
        let Some(id) = id else { bail!(15955, "a group specification must include an _id") };
        let plan = Plan { id: Arc::new(id), fields, id_of_element: false };
        Ok(Group { spec: spec.to_buf(), plan: Arc::new(plan) })
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

impl Group {
    /// The stage over the rows that a `$unwind` would make of those of `child`.
    pub fn build_over(
        &self,
        unwind: &Unwind,
        child: Box<dyn Stage>,
        cx: &BuildCx,
    ) -> Box<dyn Stage> {
        let reads = UnwindReads::new(unwind);
        let mut plan = Plan::clone(&self.plan);
        plan.id_of_element = reads.only_element(&plan.id);
        let mut makes_rows = !plan.id_of_element && reads.any(&plan.id.dependencies());
        for field in &mut plan.fields {
            field.of_element = !field.spec.sorts() && reads.only_element(field.spec.argument());
            makes_rows |= !field.of_element && reads.any(&field.spec.dependencies());
        }
        let needed = makes_rows.then(|| self.field_use().reads);
        let rows = UnwoundRows::new(unwind, needed, child);
        let groups = Groups::new(Arc::new(plan), &*cx.env.random);
        Box::new(GroupStage::new(RowSource::Unwound(Box::new(rows)), &self.spec, groups))
    }
}

impl StageSpec for Group {
    fn name(&self) -> &'static str {
        "$group"
    }

    fn field_use(&self) -> FieldUse {
        let mut field_use = FieldUse { keeps: Keeps::nothing(), ..FieldUse::passing() };
        field_use.add(&self.plan.id.dependencies());
        for field in &self.plan.fields {
            field_use.add(&field.spec.dependencies());
        }
        field_use
    }

    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        let groups = Groups::new(self.plan.clone(), &*cx.env.random);
        Ok(Box::new(GroupStage::new(RowSource::Rows(child), &self.spec, groups)))
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

/// Where the rows come from.
enum RowSource {
    Rows(Box<dyn Stage>),
    /// A `$unwind` right before, which makes no rows.
    Unwound(Box<UnwoundRows>),
}

struct GroupStage {
    source: RowSource,
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

/// A row as it comes to a group.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'r> {
    /// The document.
    pub doc: Doc<'r>,
    /// The element that it was unwound to, for what reads nothing else (see `unwind_group`).
    pub element: Option<&'r Value<'r>>,
}

impl<'r> Incoming<'r> {
    /// What is read of the element alone, if it is there.
    fn element_for(self, reads_element: bool) -> Option<&'r Value<'r>> {
        self.element.filter(|_| reads_element)
    }
}

impl Groups {
    pub(super) fn new(plan: Arc<Plan>, random: &dyn RandomSource) -> Groups {
        let table = GroupTable::new(random);
        Groups { plan, table, only: None, states: Vec::new(), bytes: 0, rows: 0 }
    }

    pub(super) fn take(&mut self, row: Incoming<'_>, cx: &EvalCx<'_>) -> Result<()> {
        let group = match self.only {
            Some(group) => group,
            None => {
                let computed;
                let id = match row.element_for(self.plan.id_of_element) {
                    Some(element) => element,
                    None => {
                        computed = self.plan.id.eval(cx, row.doc)?;
                        if computed.is_missing() { &Value::Null } else { &computed }
                    }
                };
                match self.table.find(id) {
                    Ok(group) => group,
                    Err(vacant) => {
                        let id = id.clone().into_owned();
                        self.begin(vacant, id, cx)?
                    }
                }
            }
        };
        let fields = &self.plan.fields;
        let states = &mut self.states[group * fields.len()..(group + 1) * fields.len()];
        for (field, state) in fields.iter().zip(states) {
            match row.element_for(field.of_element) {
                Some(element) => field.spec.add_value(state, element)?,
                None => field.spec.add(state, cx, row.doc)?,
            }
        }
        self.rows += 1;
        if self.rows.is_multiple_of(MEMORY_CHECK_ROWS) {
            let held: usize = self.states.iter().map(Accumulator::memory_bytes).sum();
            self.check_memory(held)?;
        }
        Ok(())
    }

    fn begin(&mut self, vacant: Vacant, id: Value<'static>, cx: &EvalCx<'_>) -> Result<usize> {
        let plan = &*self.plan;
        let start = match &id {
            Value::Document(doc) => doc.as_doc(),
            _ => Doc::EMPTY,
        };
        for field in &plan.fields {
            self.states.push(field.spec.start(cx, start)?);
        }
        self.bytes += super::heap_bytes(&id)
            + size_of::<Value<'_>>()
            + GroupTable::SLOT_BYTES
            + plan.fields.len() * size_of::<Accumulator>();
        let is_constant = plan.id.as_constant().is_some();
        self.check_memory(0)?;
        let Some(group) = self.table.insert(vacant, id) else {
            return Err(memory_exceeded());
        };
        if is_constant {
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
        for (field, state) in self.plan.fields.iter().zip(states) {
            writer.put_value(&field.name, &field.spec.result(state));
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
    fn new(source: RowSource, spec: &DocBuf, groups: Groups) -> GroupStage {
        GroupStage {
            source,
            spec: spec.clone(),
            groups,
            gathered: false,
            next: 0,
            scratch: Vec::new(),
            stats: StageStats::default(),
        }
    }

    /// Gathers all rows. `Row`: the groups are complete.
    fn gather(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let eval = cx.env.eval_cx();
        while !self.gathered {
            let GroupStage { source, groups, .. } = self;
            let step = match source {
                RowSource::Rows(child) => child.feed(cx, &mut |row| {
                    let row = Incoming { doc: row.doc(), element: None };
                    groups.take(row, &eval).map(|()| Flow::Continue)
                })?,
                RowSource::Unwound(rows) => rows.feed(cx, &mut |row| groups.take(row, &eval))?,
            };
            match step {
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
        let mut input = out.document("inputStage");
        match &self.source {
            RowSource::Rows(child) => child.explain(&mut input, verbosity),
            RowSource::Unwound(rows) => rows.explain(&mut input, verbosity),
        }
    }

    fn add_totals(&self, totals: &mut Totals) {
        match &self.source {
            RowSource::Rows(child) => child.add_totals(totals),
            RowSource::Unwound(rows) => rows.add_totals(totals),
        }
    }
}
