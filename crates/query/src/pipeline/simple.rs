//! `$sort`, `$limit`, `$skip`.

use super::{BuildCx, FieldUse, StageSpec};
use crate::exec::limit::{Limit, Skip};
use crate::exec::sort::{Sort, SortPattern};
use crate::exec::{Fields, Stage};
use kauri_base::{Result, bail};
use kauri_bson::{DocWriter, Elem, Type};
use std::any::Any;

/// A parsed `$sort`.
pub struct SortStage {
    pattern: SortPattern,
}

impl SortStage {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>) -> Result<SortStage> {
        let Some(spec) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
            bail!(15973, "the $sort key specification must be an object");
        };
        if spec.is_empty() {
            bail!(15976, "$sort stage must have at least one sort key");
        }
        Ok(SortStage { pattern: SortPattern::parse(spec)? })
    }

    /// A `$sort` by this pattern.
    pub fn of(pattern: SortPattern) -> SortStage {
        SortStage { pattern }
    }

    fn reads(&self) -> Fields {
        Fields::of_paths(self.pattern.spec().iter().map(Elem::key))
    }

    /// The pattern.
    pub fn pattern(&self) -> &SortPattern {
        &self.pattern
    }
}

impl StageSpec for SortStage {
    fn name(&self) -> &'static str {
        "$sort"
    }

    fn field_use(&self) -> FieldUse {
        FieldUse { reads: self.reads(), filter_first: true, ..FieldUse::passing() }
    }

    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        let mut fields = cx.needed.fields.clone();
        if cx.needed.sort_key {
            fields = fields.union(&self.reads());
        }
        let sort = Sort::new(child, self.pattern.clone(), cx.most, cx.needed.sort_key);
        Ok(Box::new(sort.keeping(fields)))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.document("$sort").put("sortKey", self.pattern.spec());
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A parsed `$limit`.
pub struct LimitStage {
    amount: u64,
}

impl LimitStage {
    /// This number of rows.
    pub fn of(amount: u64) -> LimitStage {
        LimitStage { amount }
    }

    /// Parses the stage.
    pub fn parse(elem: Elem<'_>) -> Result<LimitStage> {
        match whole_number(elem, "$limit", 5107201)? {
            n if n > 0 => Ok(LimitStage { amount: n as u64 }),
            0 => bail!(15958, "the limit must be positive"),
            n => bail!(
                5107201,
                "invalid argument to $limit stage: Expected a non-negative number in: $limit: {n}"
            ),
        }
    }

    /// The number of rows.
    pub fn amount(&self) -> u64 {
        self.amount
    }
}

fn whole_number(elem: Elem<'_>, name: &str, code: i32) -> Result<i64> {
    let value = elem.value();
    let text = || format!("{name}: {}", kauri_bson::shell_value(&elem.value()));
    if !value.is_number() {
        return Err(kauri_base::Error::location(
            code,
            format!("invalid argument to {name} stage: Expected a number in: {}", text()),
        ));
    }
    value.as_i64_exact().ok_or_else(|| {
        kauri_base::Error::location(
            code,
            format!("invalid argument to {name} stage: Expected an integer: {}", text()),
        )
    })
}

impl StageSpec for LimitStage {
    fn name(&self) -> &'static str {
        "$limit"
    }

    fn field_use(&self) -> FieldUse {
        FieldUse::passing()
    }

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(Limit::new(child, self.amount)))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put("$limit", self.amount as i64);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A parsed `$skip`.
pub struct SkipStage {
    amount: u64,
}

impl SkipStage {
    /// This number of rows.
    pub fn of(amount: u64) -> SkipStage {
        SkipStage { amount }
    }

    /// Parses the stage.
    pub fn parse(elem: Elem<'_>) -> Result<SkipStage> {
        match whole_number(elem, "$skip", 5107200)? {
            n if n >= 0 => Ok(SkipStage { amount: n as u64 }),
            n => bail!(
                5107200,
                "invalid argument to $skip stage: Expected a non-negative number in: $skip: {n}"
            ),
        }
    }

    /// The number of rows.
    pub fn amount(&self) -> u64 {
        self.amount
    }
}

impl StageSpec for SkipStage {
    fn name(&self) -> &'static str {
        "$skip"
    }

    fn field_use(&self) -> FieldUse {
        FieldUse::passing()
    }

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(Skip::new(child, self.amount)))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put("$skip", self.amount as i64);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
