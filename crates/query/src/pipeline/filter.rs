//! `$match`.

use super::{BuildCx, FieldUse, ParseCx, StageSpec};
use crate::exec::{ExecCx, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type};
use kauri_matcher::{MatchExpr, Matcher, Place};
use std::any::Any;
use std::sync::Arc;

/// A parsed `$match`.
pub struct Match {
    filter: DocBuf,
    matcher: Arc<Matcher>,
}

impl Match {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Match> {
        let Some(filter) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
            bail!(15959, "the match filter must be an expression in an object");
        };
        Match::of(filter, cx)
    }

    /// A `$match` with this filter.
    pub fn of(filter: Doc<'_>, cx: &ParseCx) -> Result<Match> {
        let expressions = cx.expressions();
        let parse_cx =
            kauri_matcher::ParseCx::new(Place::Aggregation).with_expressions(&expressions);
        let matcher = Arc::new(Matcher::parse(filter, &parse_cx)?);
        Ok(Match { filter: filter.to_buf(), matcher })
    }

    /// A `$match` with all of these filters.
    pub fn all(mut filters: Vec<MatchExpr>) -> Match {
        let filter = match (filters.len(), filters.pop()) {
            (1, Some(one)) => one,
            (_, last) => {
                filters.extend(last);
                MatchExpr::And(filters)
            }
        };
        Match { filter: filter.to_bson(), matcher: Arc::new(Matcher::new(filter)) }
    }
}

impl StageSpec for Match {
    fn name(&self) -> &'static str {
        "$match"
    }

    fn field_use(&self) -> FieldUse {
        let mut field_use = FieldUse::passing();
        field_use.add_filter(self.matcher.expr());
        field_use
    }

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(FilterStage::new(child, self.matcher.clone())))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put("$match", &self.filter);
    }

    fn as_match(&self) -> Option<&MatchExpr> {
        Some(self.matcher.expr())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Lets rows through that match.
pub struct FilterStage {
    child: Box<dyn Stage>,
    matcher: Arc<Matcher>,
    stats: StageStats,
}

impl FilterStage {
    /// Lets those rows of `child` through that match.
    pub fn new(child: Box<dyn Stage>, matcher: Arc<Matcher>) -> Self {
        FilterStage { child, matcher, stats: StageStats::default() }
    }

    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        loop {
            match self.child.work(cx)? {
                Step::Row(row) => {
                    if self.matcher.matches(row.doc(), &crate::match_cx(cx.env))? {
                        return Ok(Step::Row(row));
                    }
                }
                other => return Ok(other),
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }
}

impl Stage for FilterStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let match_cx = crate::match_cx(cx.env);
        let (matcher, mut lent) = (&self.matcher, 0);
        let step = self.child.feed(cx, &mut |row| {
            if !matcher.matches(row.doc(), &match_cx)? {
                return Ok(Flow::Continue);
            }
            lent += 1;
            take(row)
        })?;
        Ok(self.stats.count_lent(lent, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "MATCH");
        out.put("filter", self.matcher.expr().to_bson());
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
