//! `$group`, and `$sortByCount`, which is a `$group` and a `$sort`.
//!
//! Groups are told apart by the KeyString of their `_id`, in which equal numbers of different types
//! are the same bytes. The `_id` that a group shows is the first one that was seen.

use super::simple::SortStage;
use super::{BuildCx, ParseCx, StageSpec};
use crate::exec::sort::SortPattern;
use crate::exec::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::{Error, ErrorCode, Result, bail, limits};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, KeyStringBuilder, Type, Value, doc};
use kauri_expr::{Accumulator, AccumulatorSpec};
use kauri_expr::{EvalCx, Expression};
use std::any::Any;
use std::collections::HashMap;
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

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(GroupStage {
            child,
            spec: self.spec.clone(),
            plan: self.plan.clone(),
            key: KeyStringBuilder::new(),
            groups: HashMap::new(),
            ids: Vec::new(),
            states: Vec::new(),
            bytes: 0,
            rows: 0,
            gathered: false,
            next: 0,
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

struct GroupStage {
    child: Box<dyn Stage>,
    spec: DocBuf,
    plan: Arc<Plan>,
    key: KeyStringBuilder,
    /// The groups' numbers by the KeyString of their `_id`.
    groups: HashMap<Box<[u8]>, usize>,
    ids: Vec<Value<'static>>,
    /// The accumulators of all groups, one group after the other.
    states: Vec<Accumulator>,
    bytes: usize,
    rows: u64,
    gathered: bool,
    next: usize,
    stats: StageStats,
}

/// Rows between two counts of what the accumulators hold.
const MEMORY_CHECK_ROWS: u64 = 16 * 1024;

impl GroupStage {
    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let plan = self.plan.clone();
        while !self.gathered {
            match self.child.work(cx)? {
                Step::Row(row) => self.take(&plan, row.doc(), &cx.env.eval_cx())?,
                Step::Done => self.gathered = true,
                other => return Ok(other),
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
        let Some(id) = self.ids.get(self.next) else { return Ok(Step::Done) };
        let width = self.plan.fields.len();
        let states = &self.states[self.next * width..(self.next + 1) * width];
        let mut bytes = Vec::with_capacity(64);
        {
            let mut out = DocWriter::new(&mut bytes);
            out.put_value("_id", id);
            for ((name, spec), state) in self.plan.fields.iter().zip(states) {
                out.put_value(name, &spec.result(state));
            }
        }
        if bytes.len() > limits::DOCUMENT_INTERNAL_BYTES_MAX {
            return Err(Error::new(
                ErrorCode::BSONObjectTooLarge,
                format!(
                    "BSONObj size: {} (0x{:X}) is invalid. Size must be between 0 and {}(16MB)",
                    bytes.len(),
                    bytes.len(),
                    limits::DOCUMENT_INTERNAL_BYTES_MAX
                ),
            ));
        }
        self.next += 1;
        Ok(Step::Row(Row::computed(DocBuf::from_vec(bytes)?)))
    }

    fn take(&mut self, plan: &Plan, doc: Doc<'_>, cx: &EvalCx<'_>) -> Result<()> {
        let id = match plan.id.eval(cx, doc)? {
            Value::Missing => Value::Null,
            id => id,
        };
        self.key.clear();
        self.key.append(&id, false);
        let group = match self.groups.get(self.key.bytes()) {
            Some(group) => *group,
            None => self.begin(id, cx)?,
        };
        let width = plan.fields.len();
        let states = &mut self.states[group * width..(group + 1) * width];
        for ((_, spec), state) in plan.fields.iter().zip(states) {
            spec.add(state, cx, doc)?;
        }
        self.rows += 1;
        if self.rows % MEMORY_CHECK_ROWS == 0 {
            let held: usize = self.states.iter().map(Accumulator::memory_bytes).sum();
            self.check_memory(held)?;
        }
        Ok(())
    }

    fn begin(&mut self, id: Value<'_>, cx: &EvalCx<'_>) -> Result<usize> {
        let group = self.ids.len();
        let start = match &id {
            Value::Document(doc) => doc.as_doc(),
            _ => Doc::EMPTY,
        };
        for (_, spec) in &self.plan.fields {
            self.states.push(spec.start(cx, start)?);
        }
        let key: Box<[u8]> = self.key.bytes().into();
        self.bytes += 2 * key.len()
            + size_of::<Value<'_>>()
            + self.plan.fields.len() * size_of::<Accumulator>()
            + 48;
        self.groups.insert(key, group);
        self.ids.push(id.into_owned());
        self.check_memory(0)?;
        Ok(group)
    }

    fn check_memory(&self, held: usize) -> Result<()> {
        if self.bytes + held > limits::GROUP_BYTES_MAX {
            bail!(
                QueryExceededMemoryLimitNoDiskUseAllowed,
                "Exceeded memory limit for $group, but didn't allow external sort. Pass \
                 allowDiskUse:true to opt in."
            );
        }
        Ok(())
    }
}

impl Stage for GroupStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
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
