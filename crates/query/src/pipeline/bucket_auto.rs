//! `$bucketAuto`: sorted rows, cut into buckets of about the same size.
//!
//! Rows beyond the memory limit are sorted externally (`spill`). Buckets are made one at a time.

use super::bucket::is_expression;
use super::granularity::Granularity;
use super::{BuildCx, FieldUse, Keeps, ParseCx, StageSpec};
use crate::exec::{ExecCx, Fields, QueryEnv, Row, Stage, StageStats, Step, Totals, Verbosity};
use crate::spill::{ExternalSort, RowBuffer, SpillKind, Spilling, SpillingSort, damaged};
use kauri_base::{Access, Error, ErrorCode, Result, bail, work};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value, compare, doc};
use kauri_expr::{Accumulator, AccumulatorSpec, Dependencies, Expression};
use std::any::Any;
use std::cmp::Ordering;
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
    let Value::String(name) = option.value().lossy().into_owned() else {
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
        let mut read = self.plan.group_by.dependencies();
        self.plan.fields.iter().for_each(|(_, spec)| read.extend(spec.dependencies()));
        field_use.add(&read);
        field_use
    }

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        let mut kept = FieldUse::passing();
        let mut read = Dependencies::default();
        self.plan.fields.iter().for_each(|(_, spec)| read.extend(spec.dependencies()));
        kept.add(&read);
        Ok(Box::new(BucketAutoStage {
            child,
            spec: self.spec.clone(),
            sort: SpillingSort::new(Gathered {
                plan: self.plan.clone(),
                fields: kept.reads,
                rows: Vec::new(),
                bytes: 0,
                bytes_max: 0,
                count: 0,
            }),
            next: 0,
            is_done: false,
            buckets: Buckets::default(),
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

/// A row: the value that it is put in order by, what the accumulators read of it, and how many came before.
type Kept = (Value<'static>, DocBuf, u32);

fn by_value(a: &Kept, b: &Kept) -> Ordering {
    compare(&a.0, &b.0).then(a.2.cmp(&b.2))
}

/// The value in a record's key.
fn value_of(key: &[u8]) -> Result<Value<'_>> {
    Doc::from_bytes(key)?.first().map(|elem| elem.value()).ok_or_else(damaged)
}

/// Orders records as `by_value` does rows.
fn by_key(a: &[u8], b: &[u8]) -> Ordering {
    match (value_of(a), value_of(b)) {
        (Ok(a), Ok(b)) => compare(&a, &b),
        _ => Ordering::Equal,
    }
}

/// The rows in memory.
struct Gathered {
    plan: Arc<Plan>,
    fields: Fields,
    rows: Vec<Kept>,
    bytes: usize,
    bytes_max: usize,
    /// All that came, spilled or not.
    count: usize,
}

struct Bucket {
    min: Value<'static>,
    max: Value<'static>,
    states: Vec<Accumulator>,
    rows: usize,
    /// What rows beyond the bucket's size are compared with.
    boundary: Option<Value<'static>>,
}

impl RowBuffer for Gathered {
    type Row = Kept;
    const KIND: SpillKind = SpillKind::BucketAuto;
    const BY_KEY: fn(&[u8], &[u8]) -> Ordering = by_key;

    fn limit(&mut self, spilling: &Spilling) -> usize {
        self.bytes_max = spilling.bucket_auto_bytes_max;
        self.bytes_max
    }

    fn take(&mut self, row: &Row<'_>, env: &QueryEnv) -> Result<bool> {
        let cx = env.eval_cx();
        let value = match self.plan.group_by.eval(&cx, row.doc())? {
            Value::Missing => Value::Null,
            value => value.into_owned(),
        };
        let mut bytes = Vec::new();
        self.fields.copy(row.doc(), &mut bytes);
        self.bytes += bytes.len() + super::heap_bytes(&value) + size_of::<Kept>();
        self.rows.push((value, DocBuf::from_vec(bytes)?, self.rows.len() as u32));
        self.count += 1;
        Ok(self.bytes <= self.bytes_max)
    }

    fn too_many(&self, _bytes_max: usize) -> Error {
        Error::new(
            ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
            "Exceeded memory limit for $bucketAuto, but did not allow external sort. Pass \
             allowDiskUse:true to opt in.",
        )
    }

    fn rows(&mut self) -> (&mut Vec<Kept>, impl Fn(&Kept, &Kept) -> Ordering + Copy) {
        (&mut self.rows, by_value)
    }

    fn push(&self, at: usize, external: &mut ExternalSort) -> bool {
        let (value, doc, _) = &self.rows[at];
        let key = DocBuf::build(|out| out.put_value("", value));
        external.push(key.as_doc().as_bytes(), &[doc.as_doc().as_bytes()])
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.bytes = 0;
    }

    fn give_back(&mut self) {
        self.rows = Vec::new();
    }
}

/// Buckets in the making, one at a time.
#[derive(Default)]
struct Buckets {
    current: Option<Bucket>,
    /// How many have been ended, and the upper bound of the last one.
    ended: usize,
    last_max: Option<Value<'static>>,
}

impl Buckets {
    /// Adds the next row in order, of `count`. The bucket that it ends, if it does.
    fn add(
        &mut self,
        plan: &Plan,
        count: usize,
        (value, doc): (&Value<'_>, Doc<'_>),
        env: &QueryEnv,
    ) -> Result<Option<DocBuf>> {
        let size = (count as f64 / plan.buckets as f64).round().max(1.0) as usize;
        let is_last = self.ended + 1 == plan.buckets;
        let mut ended = None;
        if let Some(bucket) = self.current.as_mut().filter(|b| !is_last && b.rows >= size) {
            let order = compare(value, bucket.boundary(plan)?);
            let belongs = if plan.granularity.is_some() { order.is_lt() } else { order.is_eq() };
            if !belongs {
                ended = self.end(plan, Some(value))?;
            }
        }
        let bucket = match &mut self.current {
            Some(bucket) => bucket,
            None => self.current.insert(Bucket::new(plan, value.clone().into_owned(), env)?),
        };
        bucket.add(plan, value, doc, env)?;
        Ok(ended)
    }

    /// Ends the bucket, which this value follows.
    fn end(&mut self, plan: &Plan, following: Option<&Value<'_>>) -> Result<Option<DocBuf>> {
        let Some(mut bucket) = self.current.take() else { return Ok(None) };
        let boundary = bucket.boundary(plan)?.clone();
        bound(plan, &mut bucket, boundary, following, self.last_max.as_ref())?;
        self.ended += 1;
        self.last_max = Some(bucket.max.clone());
        bucket.document(plan).map(Some)
    }
}

/// Sets the bounds that a bucket shows: its first one is the one before's second.
fn bound(
    plan: &Plan,
    bucket: &mut Bucket,
    boundary: Value<'static>,
    following: Option<&Value<'_>>,
    before_max: Option<&Value<'static>>,
) -> Result<()> {
    let Some(granularity) = plan.granularity else {
        if let Some(following) = following {
            bucket.max = following.clone().into_owned();
        }
        return Ok(());
    };
    let is_zero = bucket.max.as_f64_lossy() == Some(0.0);
    bucket.min = match before_max {
        Some(max) => max.clone(),
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
        let (min, max) = (first.clone(), first);
        Ok(Bucket { min, max, states: states?, rows: 0, boundary: None })
    }

    fn add(&mut self, plan: &Plan, value: &Value<'_>, doc: Doc<'_>, env: &QueryEnv) -> Result<()> {
        self.max = value.clone().into_owned();
        self.rows += 1;
        let cx = env.eval_cx();
        for ((_, spec), state) in plan.fields.iter().zip(&mut self.states) {
            work::tick(1)?;
            spec.add(state, &cx, doc)?;
        }
        Ok(())
    }

    /// The bound as it was when the bucket had its size.
    fn boundary(&mut self, plan: &Plan) -> Result<&Value<'static>> {
        let boundary = match (self.boundary.take(), plan.granularity) {
            (Some(boundary), _) => boundary,
            (None, Some(granularity)) => granularity.round_up(&self.max)?,
            (None, None) => self.max.clone(),
        };
        Ok(self.boundary.insert(boundary))
    }

    fn document(&self, plan: &Plan) -> Result<DocBuf> {
        let mut bytes = Vec::with_capacity(64);
        let mut out = DocWriter::new(&mut bytes);
        {
            let mut id = out.document("_id");
            id.put_value("min", &self.min);
            id.put_value("max", &self.max);
        }
        for ((name, spec), state) in plan.fields.iter().zip(&self.states) {
            out.put_value(name, &spec.result(state)?);
            work::tick(1)?;
        }
        drop(out);
        super::check_size(bytes.len())?;
        DocBuf::from_vec(bytes)
    }
}

struct BucketAutoStage {
    child: Box<dyn Stage>,
    spec: DocBuf,
    sort: SpillingSort<Gathered>,
    /// The next row in memory.
    next: usize,
    buckets: Buckets,
    is_done: bool,
    stats: StageStats,
}

impl BucketAutoStage {
    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.sort.gather(&mut *self.child, cx)? {
            Step::Row(()) if self.is_done => Step::Done,
            Step::Row(()) => self.bucket(cx)?,
            Step::Again => Step::Again,
            Step::Blocked(ticket) => Step::Blocked(ticket),
            Step::Done => Step::Done,
        };
        Ok(match step {
            Step::Row(doc) => Step::Row(Row::computed(doc)),
            Step::Again => Step::Again,
            Step::Blocked(ticket) => Step::Blocked(ticket),
            Step::Done => Step::Done,
        })
    }

    /// The next bucket.
    fn bucket(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<DocBuf>> {
        let BucketAutoStage { sort, buckets, next, is_done, .. } = self;
        let SpillingSort { buffer: gathered, external, .. } = sort;
        let (plan, count, env) = (&*gathered.plan, gathered.count, cx.env);
        loop {
            let ended = match external {
                Some(external) => match external.next()? {
                    Access::WouldBlock(ticket) => return Ok(Step::Blocked(ticket)),
                    Access::Ready(_) => match external.record() {
                        Some(record) => {
                            let row = (&value_of(record.key())?, Doc::from_bytes(record.rest())?);
                            buckets.add(plan, count, row, env)?
                        }
                        None => {
                            *is_done = true;
                            buckets.end(plan, None)?
                        }
                    },
                },
                None => match gathered.rows.get(*next) {
                    Some((value, doc, _)) => {
                        *next += 1;
                        buckets.add(plan, count, (value, doc.as_doc()), env)?
                    }
                    None => {
                        *is_done = true;
                        buckets.end(plan, None)?
                    }
                },
            };
            match ended {
                Some(doc) => return Ok(Step::Row(doc)),
                None if *is_done => return Ok(Step::Done),
                None if !cx.spend() => return Ok(Step::Again),
                None => {}
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
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
            self.sort.spilled().write(out);
        }
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
