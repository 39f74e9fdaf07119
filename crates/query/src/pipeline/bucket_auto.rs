//! `$bucketAuto`: rows in order of a value, cut into buckets of about the same size.

use super::bucket::is_expression;
use super::granularity::Granularity;
use super::{BuildCx, FieldUse, Keeps, ParseCx, StageSpec};
use crate::exec::{
    ExecCx, Fields, Flow, QueryEnv, Row, Stage, StageStats, Step, Totals, Verbosity,
};
use kauri_base::{Error, ErrorCode, Result, bail, limits};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value, compare, doc};
use kauri_expr::{Accumulator, AccumulatorSpec, Expression};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

struct Plan {
    group_by: Expression,
    buckets: usize,
    granularity: Option<Granularity>,
    fields: Vec<(String, AccumulatorSpec)>,
}

/// A parsed `$bucketAuto`.
pub struct BucketAuto {
    spec: DocBuf,
    plan: Arc<Plan>,
}

impl BucketAuto {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<BucketAuto> {
        let Some(spec) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
            bail!(
                40240,
                "The argument to $bucketAuto must be an object, but found type: {}.",
                elem.ty().alias()
            );
        };
        let (mut group_by, mut buckets, mut granularity, mut fields) = (None, None, None, None);
        let expressions = kauri_expr::ParseCx { in_group: true, ..cx.expressions() };
        for option in spec {
            match option.key() {
                "groupBy" => {
                    if !is_expression(&option.value()) {
                        bail!(
                            40239,
                            "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path \
                             or an expression object, but found: {}.",
                            kauri_bson::shell::elem_to_string(option)
                        );
                    }
                    group_by = Some(Expression::parse(&option.value(), &cx.expressions())?);
                }
                "buckets" => buckets = Some(bucket_count(option)?),
                "output" => fields = Some(output(option, &expressions)?),
                "granularity" => granularity = Some(series(option)?),
                other => bail!(40245, "Unrecognized option to $bucketAuto: {other}."),
            }
        }
        let (Some(group_by), Some(buckets)) = (group_by, buckets) else {
            bail!(40246, "$bucketAuto requires 'groupBy' and 'buckets' to be specified.");
        };
        let fields = match fields.filter(|fields| !fields.is_empty()) {
            Some(fields) => fields,
            None => {
                let sum = doc! { "$sum" => 1 };
                let spec =
                    AccumulatorSpec::parse_field("count", &sum.as_doc().into(), &expressions)?;
                vec![("count".to_owned(), spec)]
            }
        };
        let plan = Arc::new(Plan { group_by, buckets, granularity, fields });
        Ok(BucketAuto { spec: spec.to_buf(), plan })
    }
}

fn bucket_count(option: Elem<'_>) -> Result<usize> {
    let value = option.value();
    if !value.is_number() {
        bail!(
            40241,
            "The $bucketAuto 'buckets' field must be a numeric value, but found type: {}.",
            option.ty().alias()
        );
    }
    let Some(count) = value.as_i64_exact().and_then(|n| i32::try_from(n).ok()) else {
        bail!(
            40242,
            "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found \
             {}.",
            kauri_bson::shell_value(&value)
        );
    };
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => bail!(
            40243,
            "The $bucketAuto 'buckets' field must be greater than 0, but found: {count}."
        ),
    }
}

fn output(
    option: Elem<'_>,
    expressions: &kauri_expr::ParseCx,
) -> Result<Vec<(String, AccumulatorSpec)>> {
    let Some(output) = option.as_doc().filter(|_| option.ty() == Type::Document) else {
        bail!(
            40244,
            "The $bucketAuto 'output' field must be an object, but found type: {}.",
            option.ty().alias()
        );
    };
    let mut fields = Vec::new();
    for field in output {
        let spec = AccumulatorSpec::parse_field(field.key(), &field.value(), expressions)?;
        fields.push((field.key().to_owned(), spec));
    }
    Ok(fields)
}

fn series(option: Elem<'_>) -> Result<Granularity> {
    let Value::String(name) = option.value() else {
        bail!(
            40261,
            "The $bucketAuto 'granularity' field must be a string, but found type: {}.",
            option.ty().alias()
        );
    };
    match Granularity::named(&name) {
        Some(granularity) => Ok(granularity),
        None => bail!(40257, "Unknown rounding granularity '{name}'"),
    }
}

impl StageSpec for BucketAuto {
    fn name(&self) -> &'static str {
        "$bucketAuto"
    }

    fn field_use(&self) -> FieldUse {
        let mut field_use = FieldUse { keeps: Keeps::nothing(), ..FieldUse::passing() };
        field_use.add(&self.plan.group_by.dependencies());
        self.plan.fields.iter().for_each(|(_, spec)| field_use.add(&spec.dependencies()));
        field_use
    }

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        let mut kept = FieldUse::passing();
        self.plan.fields.iter().for_each(|(_, spec)| kept.add(&spec.dependencies()));
        Ok(Box::new(BucketAutoStage {
            child,
            spec: self.spec.clone(),
            gathered: Gathered {
                plan: self.plan.clone(),
                fields: kept.reads,
                rows: Vec::new(),
                bytes: 0,
            },
            buckets: None,
            stats: StageStats::default(),
        }))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put("$bucketAuto", &self.spec);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The rows: the value that they are put in order by, and what the accumulators read of them.
struct Gathered {
    plan: Arc<Plan>,
    fields: Fields,
    rows: Vec<(Value<'static>, DocBuf)>,
    bytes: usize,
}

struct Bucket {
    min: Value<'static>,
    max: Value<'static>,
    states: Vec<Accumulator>,
}

impl Gathered {
    fn take(&mut self, row: &Row<'_>, env: &QueryEnv) -> Result<()> {
        let cx = env.eval_cx();
        let value = match self.plan.group_by.eval(&cx, row.doc())? {
            Value::Missing => Value::Null,
            value => value.into_owned(),
        };
        let mut bytes = Vec::new();
        self.fields.copy(row.doc(), &mut bytes);
        self.bytes +=
            bytes.len() + super::heap_bytes(&value) + size_of::<(Value<'static>, DocBuf)>();
        if self.bytes > limits::SORT_BYTES_MAX {
            return Err(Error::new(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                "Exceeded memory limit for $bucketAuto, but did not allow external sort. Pass \
                 allowDiskUse:true to opt in.",
            ));
        }
        self.rows.push((value, DocBuf::from_vec(bytes)?));
        Ok(())
    }

    fn buckets(&mut self, env: &QueryEnv) -> Result<VecDeque<DocBuf>> {
        self.rows.sort_by(|a, b| compare(&a.0, &b.0));
        let rows = std::mem::take(&mut self.rows);
        let plan = &*self.plan;
        let size = (rows.len() as f64 / plan.buckets as f64).round().max(1.0) as usize;
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut next = 0;
        while let Some((first, _)) = rows.get(next) {
            let mut bucket = Bucket::new(plan, first.clone(), env)?;
            let is_last = buckets.len() + 1 == plan.buckets;
            let end = if is_last { rows.len() } else { rows.len().min(next + size) };
            for row in rows.get(next..end).unwrap_or(&[]) {
                bucket.add(plan, row, env)?;
            }
            next = end;
            let boundary = match plan.granularity {
                Some(granularity) => granularity.round_up(&bucket.max)?,
                None => bucket.max.clone(),
            };
            let belongs = |value: &Value<'_>| {
                let order = compare(value, &boundary);
                if plan.granularity.is_some() { order.is_lt() } else { order.is_eq() }
            };
            while let Some(row) = rows.get(next).filter(|(value, _)| belongs(value)) {
                bucket.add(plan, row, env)?;
                next += 1;
            }
            let following = rows.get(next).map(|(value, _)| value);
            bound(plan, &mut bucket, boundary, following, buckets.last())?;
            buckets.push(bucket);
        }
        buckets.iter().map(|bucket| bucket.document(plan)).collect()
    }
}

/// Sets the bounds that a bucket shows: its first one is the one before's second.
fn bound(
    plan: &Plan,
    bucket: &mut Bucket,
    boundary: Value<'static>,
    following: Option<&Value<'static>>,
    before: Option<&Bucket>,
) -> Result<()> {
    let Some(granularity) = plan.granularity else {
        if let Some(following) = following {
            bucket.max = following.clone();
        }
        return Ok(());
    };
    let is_zero = bucket.max.as_f64_lossy() == Some(0.0);
    bucket.min = match before {
        Some(before) => before.max.clone(),
        None => granularity.round_down(&bucket.min)?,
    };
    bucket.max = match following {
        // Zero has no neighbour above it.
        Some(following) if is_zero => granularity.round_down(following)?,
        _ => boundary,
    };
    Ok(())
}

impl Bucket {
    fn new(plan: &Plan, first: Value<'static>, env: &QueryEnv) -> Result<Bucket> {
        let cx = env.eval_cx();
        let states: Result<Vec<_>> =
            plan.fields.iter().map(|(_, spec)| spec.start(&cx, Doc::EMPTY)).collect();
        Ok(Bucket { min: first.clone(), max: first, states: states? })
    }

    fn add(
        &mut self,
        plan: &Plan,
        (value, doc): &(Value<'static>, DocBuf),
        env: &QueryEnv,
    ) -> Result<()> {
        self.max = value.clone();
        let cx = env.eval_cx();
        for ((_, spec), state) in plan.fields.iter().zip(&mut self.states) {
            spec.add(state, &cx, doc.as_doc())?;
        }
        Ok(())
    }

    fn document(&self, plan: &Plan) -> Result<DocBuf> {
        let doc = DocBuf::build(|out| {
            {
                let mut id = out.document("_id");
                id.put_value("min", &self.min);
                id.put_value("max", &self.max);
            }
            for ((name, spec), state) in plan.fields.iter().zip(&self.states) {
                out.put_value(name, &spec.result(state));
            }
        });
        super::check_size(doc.as_bytes().len())?;
        Ok(doc)
    }
}

struct BucketAutoStage {
    child: Box<dyn Stage>,
    spec: DocBuf,
    gathered: Gathered,
    buckets: Option<VecDeque<DocBuf>>,
    stats: StageStats,
}

impl BucketAutoStage {
    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let env = cx.env;
        loop {
            if let Some(buckets) = &mut self.buckets {
                let row = buckets.pop_front();
                return Ok(row.map_or(Step::Done, |doc| Step::Row(Row::computed(doc))));
            }
            let BucketAutoStage { child, gathered, .. } = self;
            match child.feed(cx, &mut |row| gathered.take(row, env).map(|()| Flow::Continue))? {
                Step::Row(()) => {}
                Step::Again => return Ok(Step::Again),
                Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                Step::Done => self.buckets = Some(self.gathered.buckets(env)?),
            }
        }
    }
}

impl Stage for BucketAutoStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "BUCKET_AUTO");
        out.put("spec", &self.spec);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
