//! `$sample`: random rows, by a reservoir (Vitter's Algorithm R), then in random order.

use super::{BuildCx, FieldUse, StageSpec};
use crate::exec::{ExecCx, Fields, Flow, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::{Error, ErrorCode, RandomSource, Result, bail, limits};
use kauri_bson::{DocBuf, DocWriter, Elem, Value};
use std::any::Any;

/// A parsed `$sample`.
pub struct Sample {
    size: usize,
}

impl Sample {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>) -> Result<Sample> {
        let Value::Document(options) = elem.value() else {
            bail!(28745, "the $sample stage specification must be an object");
        };
        let mut size = None;
        for option in options.iter() {
            if option.key() != "size" {
                bail!(28748, "unrecognized option to $sample: {}", option.key());
            }
            let value = option.value();
            if !value.is_number() {
                bail!(28746, "size argument to $sample must be a number");
            }
            size = super::truncated(&value);
        }
        match size {
            Some(size) if size > 0 => {
                Ok(Sample { size: usize::try_from(size).unwrap_or(usize::MAX) })
            }
            Some(_) => bail!(28747, "size argument to $sample must be a positive integer"),
            None => bail!(28749, "$sample stage must specify a size"),
        }
    }
}

impl StageSpec for Sample {
    fn name(&self) -> &'static str {
        "$sample"
    }

    fn field_use(&self) -> FieldUse {
        FieldUse { random: true, ..FieldUse::passing() }
    }

    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(SampleStage {
            child,
            reservoir: Reservoir {
                size: self.size,
                fields: cx.needed.fields.clone(),
                seen: 0,
                bytes: 0,
                kept: Vec::new(),
            },
            filled: false,
            stats: StageStats::default(),
        }))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.document("$sample").put("size", self.size as i64);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The rows that were kept.
struct Reservoir {
    size: usize,
    fields: Fields,
    seen: u64,
    bytes: usize,
    kept: Vec<DocBuf>,
}

impl Reservoir {
    fn take(&mut self, row: &Row<'_>, random: &dyn RandomSource) -> Result<()> {
        self.seen += 1;
        let place = match self.kept.len() < self.size {
            true => self.kept.len() as u64,
            false => random.next_u64() % self.seen,
        };
        let Some(place) = usize::try_from(place).ok().filter(|place| *place < self.size) else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        self.fields.copy(row.doc(), &mut bytes);
        let doc = DocBuf::from_vec(bytes)?;
        self.bytes += doc.as_bytes().len();
        match self.kept.get_mut(place) {
            Some(kept) => {
                self.bytes -= kept.as_bytes().len();
                *kept = doc;
            }
            None => self.kept.push(doc),
        }
        if self.bytes > limits::SORT_BYTES_MAX {
            return Err(Error::new(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                "Sort exceeded memory limit of 104857600 bytes, but did not opt in to external \
                 sorting.",
            ));
        }
        Ok(())
    }

    fn shuffle(&mut self, random: &dyn RandomSource) {
        for last in (1..self.kept.len()).rev() {
            let other = random.next_u64() % (last as u64 + 1);
            self.kept.swap(last, other as usize);
        }
    }
}

struct SampleStage {
    child: Box<dyn Stage>,
    reservoir: Reservoir,
    filled: bool,
    stats: StageStats,
}

impl SampleStage {
    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let random = &*cx.env.random;
        while !self.filled {
            let SampleStage { child, reservoir, .. } = self;
            match child.feed(cx, &mut |row| reservoir.take(row, random).map(|()| Flow::Continue))? {
                Step::Row(()) => {}
                Step::Again => return Ok(Step::Again),
                Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                Step::Done => {
                    reservoir.shuffle(random);
                    self.filled = true;
                }
            }
        }
        Ok(self.reservoir.kept.pop().map_or(Step::Done, |doc| Step::Row(Row::computed(doc))))
    }
}

impl Stage for SampleStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "SAMPLE");
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
