//! `$sample`: random rows, by a reservoir (Vitter's Algorithm R), then in random order.

use super::{BuildCx, StageSpec};
use crate::exec::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::{Error, ErrorCode, Result, bail, limits};
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
            size = value.to_i64_saturating();
            if size.is_none_or(|n| n < 0) {
                bail!(28747, "size argument to $sample must not be negative");
            }
            if size == Some(0) {
                bail!(28747, "size argument to $sample must be a positive integer");
            }
        }
        match size {
            Some(size) => Ok(Sample { size: usize::try_from(size).unwrap_or(usize::MAX) }),
            None => bail!(28749, "$sample stage must specify a size"),
        }
    }
}

impl StageSpec for Sample {
    fn name(&self) -> &'static str {
        "$sample"
    }

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(SampleStage {
            child,
            size: self.size,
            seen: 0,
            bytes: 0,
            kept: Vec::new(),
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

struct SampleStage {
    child: Box<dyn Stage>,
    size: usize,
    seen: u64,
    bytes: usize,
    kept: Vec<DocBuf>,
    filled: bool,
    stats: StageStats,
}

impl SampleStage {
    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        while !self.filled {
            match self.child.work(cx)? {
                Step::Row(row) => self.take(row, cx)?,
                Step::Done => {
                    for last in (1..self.kept.len()).rev() {
                        let other = cx.env.random.next_u64() % (last as u64 + 1);
                        self.kept.swap(last, other as usize);
                    }
                    self.filled = true;
                }
                other => return Ok(other),
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
        Ok(self.kept.pop().map_or(Step::Done, |doc| Step::Row(Row::computed(doc))))
    }

    fn take(&mut self, row: Row<'_>, cx: &ExecCx<'_>) -> Result<()> {
        self.seen += 1;
        let place = match self.kept.len() < self.size {
            true => self.kept.len() as u64,
            false => cx.env.random.next_u64() % self.seen,
        };
        let doc = row.doc().to_buf();
        match usize::try_from(place).ok().filter(|place| *place < self.size) {
            Some(place) if place == self.kept.len() => {
                self.bytes += doc.as_bytes().len();
                self.kept.push(doc);
            }
            Some(place) => {
                self.bytes += doc.as_bytes().len();
                self.bytes -= self.kept[place].as_bytes().len();
                self.kept[place] = doc;
            }
            None => {}
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
