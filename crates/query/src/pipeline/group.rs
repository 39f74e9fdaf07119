//! `$group`, and `$sortByCount`, which is a `$group` and a `$sort`.
//!
//! Groups are distinguished by the comparison order, in which equal numbers of different types are equal. The `_id`
//! of a group is the first one seen.
//!
//! Groups beyond the memory limit are split into partitions that fit (`partitions`), if spilling is allowed. A
//! single group is not split: each of its accumulators has a limit, and all of them together have one.

use super::group_table::{GroupTable, Vacant};
use super::partitions::{Partitions, id_of};
use super::simple::SortStage;
use super::unwind::Unwind;
use super::unwind_group::{UnwindReads, UnwoundRows};
use super::{BuildCx, FieldUse, Keeps, ParseCx, StageSpec};
use crate::exec::sort::SortPattern;
use crate::exec::{ExecCx, Fields, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use crate::spill::{SpillStats, damaged, spills_early};
use kauri_base::{Access, Error, ErrorCode, RandomSource, Result, bail, limits, work};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value, doc};
use kauri_expr::{Accumulator, AccumulatorSpec};
use kauri_expr::{Dependencies, EvalCx, Expression};
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
    /// Whether what it gathers may grow with each row.
    grows: bool,
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
                let (name, grows) = (name.to_owned(), spec.grows());
                fields.push(Field { name, spec, of_element: false, grows });
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
        path if path.string_bytes().is_some_and(|path| path.starts_with(b"$")) => {}
        path if path.string_bytes().is_some() => {
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
        let mut read = self.plan.id.dependencies();
        for field in &self.plan.fields {
            read.extend(field.spec.dependencies());
        }
        field_use.add(&read);
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
    /// Memory that they take.
    bytes: usize,
}

/// Where the rows come from.
enum RowSource {
    Rows(Box<dyn Stage>),
    /// A `$unwind` right before, which makes no rows.
    Unwound(Box<UnwoundRows>),
}

/// Where the stage is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Rows of the source, or of a partition, are taken in.
    Gathering,
    /// The states of groups go into partitions.
    Evicting,
    /// What is left of the partitions is written.
    Ending,
    /// The groups are complete.
    Giving,
}

struct GroupStage {
    source: RowSource,
    spec: DocBuf,
    groups: Groups,
    phase: Phase,
    next: usize,
    /// Partitions that groups were divided into.
    partitions: Option<Box<Partitions>>,
    /// What accumulators read of documents, to be kept with a row in a partition: beside its element if it has one.
    fields: [Fields; 2],
    /// Where documents that are lent lie, and rows on their way into a partition.
    scratch: Vec<u8>,
    stats: StageStats,
}

/// What a record of a partition is.
const STATE: u8 = 0;
const ROW: u8 = 1;
const ROW_WITH_ELEMENT: u8 = 2;

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
    fn new(plan: Arc<Plan>, random: &dyn RandomSource) -> Groups {
        let table = GroupTable::new(random);
        Groups { plan, table, only: None, states: Vec::new(), bytes: 0 }
    }

    fn len(&self) -> usize {
        self.table.values().len()
    }

    fn take(&mut self, row: Incoming<'_>, cx: &EvalCx<'_>) -> Result<()> {
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
        self.add(group, row, cx)
    }

    #[inline]
    fn add(&mut self, group: usize, row: Incoming<'_>, cx: &EvalCx<'_>) -> Result<()> {
        let fields = &self.plan.fields;
        let states = &mut self.states[group * fields.len()..(group + 1) * fields.len()];
        for (field, state) in fields.iter().zip(states) {
            work::tick(1)?;
            let before = if field.grows { state.memory_bytes() } else { 0 };
            match row.element_for(field.of_element) {
                Some(element) => field.spec.add_value(state, element)?,
                None => field.spec.add(state, cx, row.doc)?,
            }
            if field.grows {
                self.bytes = (self.bytes + state.memory_bytes()).saturating_sub(before);
            }
        }
        Ok(())
    }

    fn begin(&mut self, vacant: Vacant, id: Value<'static>, cx: &EvalCx<'_>) -> Result<usize> {
        let start = match &id {
            Value::Document(doc) => doc.as_doc(),
            _ => Doc::EMPTY,
        };
        for field in &self.plan.fields {
            work::tick(1)?;
            let state = field.spec.start(cx, start)?;
            self.bytes += state.memory_bytes();
            self.states.push(state);
        }
        self.insert(vacant, id)
    }

    fn insert(&mut self, vacant: Vacant, id: Value<'static>) -> Result<usize> {
        self.bytes += super::heap_bytes(&id) + size_of::<Value<'_>>() + GroupTable::SLOT_BYTES;
        let Some(group) = self.table.insert(vacant, id) else {
            return Err(memory_exceeded());
        };
        if self.plan.id.as_constant().is_some() {
            self.only = Some(group);
        }
        Ok(group)
    }

    /// Takes a record of a partition in.
    fn take_record(&mut self, (key, rest): (&[u8], &[u8]), cx: &EvalCx<'_>) -> Result<()> {
        let id = id_of(key)?;
        let (kind, rest) = rest.split_first().ok_or_else(damaged)?;
        let (doc, rest) = Doc::split_prefix(rest)?;
        if *kind == STATE {
            let Err(vacant) = self.table.find(&id) else { return Err(damaged()) };
            for (field, saved) in self.plan.fields.iter().zip(doc) {
                saved.tick()?;
                let state = field.spec.restore(saved.as_doc().ok_or_else(damaged)?)?;
                self.bytes += state.memory_bytes();
                self.states.push(state);
            }
            return self.insert(vacant, id.into_owned()).map(|_| ());
        }
        let element = match *kind {
            ROW_WITH_ELEMENT => Some(Doc::from_bytes(rest)?.value("")),
            _ => None,
        };
        let group = match self.table.find(&id) {
            Ok(group) => group,
            Err(vacant) => self.begin(vacant, id.clone().into_owned(), cx)?,
        };
        self.add(group, Incoming { doc, element: element.as_ref() }, cx)
    }

    /// Takes the last group out: its `_id`, and its state put at the end of `out`.
    fn pop(&mut self, out: &mut Vec<u8>) -> Result<Option<Value<'static>>> {
        let Some(id) = self.table.pop() else { return Ok(None) };
        let width = self.plan.fields.len();
        let states = self.states.split_off(self.states.len().saturating_sub(width));
        let mut saved = DocWriter::new(out);
        for (field, state) in self.plan.fields.iter().zip(&states) {
            work::tick(1)?;
            field.spec.save(state, &mut saved.document(&field.name))?;
        }
        drop(saved);
        Ok(Some(id))
    }

    /// Lets all groups go.
    fn clear(&mut self) {
        self.table.clear();
        self.states.clear();
        self.only = None;
        self.bytes = 0;
    }

    /// Puts the document of a group at the end of `out`; false if there is no such group.
    fn write(&self, group: usize, out: &mut Vec<u8>) -> Result<bool> {
        let Some(id) = self.table.values().get(group) else { return Ok(false) };
        let width = self.plan.fields.len();
        let states = &self.states[group * width..(group + 1) * width];
        let mut writer = DocWriter::new(out);
        writer.put_value("_id", id);
        for (field, state) in self.plan.fields.iter().zip(states) {
            work::tick(1)?;
            writer.put_value(&field.name, &field.spec.result(state)?);
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

/// One group alone, which cannot be divided.
fn group_too_large(bytes: usize) -> Error {
    Error::new(
        ErrorCode::ExceededMemoryLimit,
        format!("one group of $group used too much memory and cannot spill to disk: {bytes} bytes"),
    )
}

/// What groups may take.
#[derive(Clone, Copy)]
struct Memory {
    bytes_max: usize,
    /// What one group alone may take.
    one_bytes_max: usize,
    may_spill: bool,
}

impl Memory {
    fn of(cx: &ExecCx<'_>) -> Memory {
        let bytes_max = cx.env.spilling.group_bytes_max;
        let may_spill = cx.env.spilling.place().is_some();
        let more = if may_spill { limits::EXPRESSION_VALUE_BYTES_MAX } else { 0 };
        Memory { bytes_max, one_bytes_max: bytes_max.saturating_add(more), may_spill }
    }

    #[inline]
    fn is_used_up(self, groups: &Groups) -> bool {
        let is_over = groups.bytes > self.bytes_max;
        is_over && (groups.len() > 1 || groups.bytes > self.one_bytes_max)
            || self.may_spill && groups.len() > 1 && spills_early(groups.bytes)
    }
}

impl GroupStage {
    fn new(source: RowSource, spec: &DocBuf, groups: Groups) -> GroupStage {
        let reads = |beside_element: bool| {
            let mut read = Dependencies::default();
            let fields = groups.plan.fields.iter();
            fields
                .filter(|field| !beside_element || !field.of_element)
                .for_each(|field| read.extend(field.spec.dependencies()));
            FieldUse::reading(&read).reads
        };
        let fields = [reads(false), reads(true)];
        GroupStage {
            source,
            spec: spec.clone(),
            groups,
            phase: Phase::Gathering,
            next: 0,
            partitions: None,
            fields,
            scratch: Vec::new(),
            stats: StageStats::default(),
        }
    }

    /// Gathers rows until there are groups to give. `Row`: they are complete.
    fn gather(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        loop {
            let step = match self.phase {
                Phase::Giving => return Ok(Step::Row(())),
                Phase::Gathering => self.gather_some(cx)?,
                Phase::Evicting => self.evict(cx)?,
                Phase::Ending => self.end_division(cx)?,
            };
            if !matches!(step, Step::Row(())) {
                return Ok(step);
            }
        }
    }

    /// `Row`: the next phase has begun, or more can be gathered.
    fn gather_some(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        if let Some(partitions) = &mut self.partitions {
            if let Access::WouldBlock(ticket) = partitions.flush()? {
                return Ok(Step::Blocked(ticket));
            }
            if partitions.is_reading() {
                return self.gather_part(cx);
            }
        }
        let (eval, memory) = (cx.env.eval_cx(), Memory::of(cx));
        let GroupStage { source, groups, partitions, fields, scratch, .. } = self;
        let mut is_full = false;
        let mut take = |row: Incoming<'_>| {
            is_full = match partitions.as_mut().filter(|partitions| partitions.is_dividing()) {
                Some(partitions) => {
                    divide_row(partitions, &groups.plan, row, (fields, scratch), &eval)?
                }
                None => {
                    groups.take(row, &eval)?;
                    memory.is_used_up(groups)
                }
            };
            Ok(if is_full { Flow::Stop } else { Flow::Continue })
        };
        let step = match source {
            RowSource::Rows(child) => {
                child.feed(cx, &mut |row| take(Incoming { doc: row.doc(), element: None }))?
            }
            RowSource::Unwound(rows) => rows.feed(cx, &mut take)?,
        };
        if is_full {
            return self.give_way(cx);
        }
        self.after(step)
    }

    /// As `gather_some`, of the records of a partition.
    fn gather_part(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let (eval, memory) = (cx.env.eval_cx(), Memory::of(cx));
        let GroupStage { groups, partitions, .. } = self;
        let Some(partitions) = partitions else { return Ok(Step::Row(())) };
        loop {
            match partitions.next()? {
                Access::Ready(true) => {}
                Access::Ready(false) => return self.after(Step::Done),
                Access::WouldBlock(ticket) => return Ok(Step::Blocked(ticket)),
            }
            if partitions.is_dividing() {
                if partitions.pass_on()? {
                    return self.give_way(cx);
                }
            } else {
                groups.take_record(partitions.record(), &eval)?;
                if memory.is_used_up(groups) {
                    return self.give_way(cx);
                }
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }

    /// What follows when the rows have come to this.
    fn after(&mut self, step: Step<()>) -> Result<Step<()>> {
        if !matches!(step, Step::Done) {
            return Ok(step);
        }
        let is_dividing =
            self.partitions.as_ref().is_some_and(|partitions| partitions.is_dividing());
        self.phase = if is_dividing { Phase::Ending } else { Phase::Giving };
        Ok(Step::Row(()))
    }

    /// Either a chunk is to be handed over, or the groups take more memory than they may: begins to divide
    /// them.
    fn give_way(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        if self.partitions.as_ref().is_some_and(|partitions| partitions.is_dividing()) {
            // Whoever stops the source spends nothing there, and large rows are a chunk each.
            return Ok(if cx.spend() { Step::Row(()) } else { Step::Again });
        }
        let Some(place) = cx.env.spilling.place() else { return Err(memory_exceeded()) };
        if self.groups.len() <= 1 {
            return Err(group_too_large(self.groups.bytes));
        }
        let partitions =
            self.partitions.get_or_insert_with(|| Box::new(Partitions::new(cx, place)));
        if !partitions.divide(self.groups.bytes) {
            return Err(memory_exceeded());
        }
        self.phase = Phase::Evicting;
        Ok(Step::Row(()))
    }

    /// Puts the states of all groups into their partitions. `Row`: they are there.
    fn evict(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let GroupStage { groups, partitions, scratch, .. } = self;
        let Some(partitions) = partitions else { return Ok(Step::Row(())) };
        loop {
            if let Access::WouldBlock(ticket) = partitions.flush()? {
                return Ok(Step::Blocked(ticket));
            }
            scratch.clear();
            scratch.push(STATE);
            let Some(id) = groups.pop(scratch)? else { break };
            partitions.push(&id, &[scratch]);
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
        groups.clear();
        self.phase = Phase::Gathering;
        Ok(Step::Row(()))
    }

    /// `Row`: all is in partitions, the first of which can be gathered.
    fn end_division(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let Some(partitions) = &mut self.partitions else { return Ok(Step::Row(())) };
        if let Access::WouldBlock(ticket) = partitions.end_division(cx)? {
            return Ok(Step::Blocked(ticket));
        }
        partitions.begin_next();
        self.phase = Phase::Gathering;
        Ok(Step::Row(()))
    }

    /// Puts the next group's document into `scratch`. `Done`: there is none.
    fn write_next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        loop {
            match self.gather(cx)? {
                Step::Row(()) => {}
                other => return Ok(other),
            }
            self.scratch.clear();
            if self.groups.write(self.next, &mut self.scratch)? {
                self.next += 1;
                return Ok(Step::Row(()));
            }
            if !self.partitions.as_mut().is_some_and(|partitions| partitions.begin_next()) {
                return Ok(Step::Done);
            }
            self.groups.clear();
            self.next = 0;
            self.phase = Phase::Gathering;
        }
    }

    fn spilled(&self) -> SpillStats {
        self.partitions.as_ref().map_or_else(SpillStats::default, |partitions| partitions.stats)
    }
}

/// Puts a row into its group's partition. True: a chunk is to be handed over.
fn divide_row(
    partitions: &mut Partitions,
    plan: &Plan,
    row: Incoming<'_>,
    (fields, scratch): (&[Fields; 2], &mut Vec<u8>),
    cx: &EvalCx<'_>,
) -> Result<bool> {
    scratch.clear();
    match row.element {
        None => {
            scratch.push(ROW);
            fields[0].copy(row.doc, scratch);
        }
        Some(element) => {
            scratch.push(ROW_WITH_ELEMENT);
            fields[1].copy(row.doc, scratch);
            DocWriter::new(scratch).put_value("", element);
        }
    }
    if let Some(element) = row.element_for(plan.id_of_element) {
        return Ok(partitions.push(element, &[scratch]));
    }
    let id = plan.id.eval(cx, row.doc)?;
    Ok(partitions.push(if id.is_missing() { &Value::Null } else { &id }, &[scratch]))
}

impl Stage for GroupStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.write_next(cx)? {
            Step::Row(()) => {
                Step::Row(Row::computed(DocBuf::from_vec(std::mem::take(&mut self.scratch))?))
            }
            Step::Again => Step::Again,
            Step::Blocked(ticket) => Step::Blocked(ticket),
            Step::Done => Step::Done,
        };
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let mut lent = 0;
        let step = loop {
            match self.write_next(cx)? {
                Step::Row(()) => {}
                other => break other,
            }
            lent += 1;
            if take(&Row::computed(Doc::from_bytes(&self.scratch)?))? != Flow::Continue {
                break Step::Row(());
            }
            if !cx.spend() {
                break Step::Again;
            }
        };
        Ok(self.stats.count_lent(lent, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "GROUP");
        out.put("spec", &self.spec);
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
            self.spilled().write(out);
        }
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
