//! `$sample`: random rows in random order, by sorting all by random numbers and keeping the first.

use super::{BuildCx, FieldUse, StageSpec};
use crate::exec::Stage;
use crate::exec::sort::Sort;
use kauri_base::{Result, bail};
use kauri_bson::{DocWriter, Elem, Value};
use std::any::Any;

/// A parsed `$sample`.
pub struct Sample {
    /// At least 1.
    size: u64,
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
            Some(size) if size > 0 => Ok(Sample { size: size as u64 }),
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
        Ok(Box::new(Sort::sample(child, self.size).keeping(cx.needed.fields.clone())))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.document("$sample").put("size", self.size as i64);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
