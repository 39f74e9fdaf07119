//! Transforms a pipeline into one that gives the same rows with less work.
//!
//! Filters move before stages on which they do not depend, limits move before stages that map rows one to one, and
//! adjacent stages are merged where possible.

use super::filter::Match;
use super::lookup::Lookup;
use super::simple::{LimitStage, SkipStage};
use super::unwind::Unwind;
use super::{FieldUse, Pipeline, StageSpec};
use crate::exec::Fields;
use kauri_base::{Result, work};
use kauri_matcher::MatchExpr;
use std::sync::Arc;

/// Work of a look at two neighbours: what both read and keep is gathered.
const TICKS_A_PAIR: u32 = 16;

impl Pipeline {
    /// See the module's head.
    pub fn optimize(&mut self) -> Result<()> {
        // Each step moves a filter or a limit towards the front or makes the pipeline shorter, so
        // that this ends; the bound is for a rule that would not.
        let mut steps = self.stages.len() * self.stages.len() + 1;
        let mut at = 0;
        while at + 1 < self.stages.len() && steps > 0 {
            work::tick(TICKS_A_PAIR)?;
            if self.step(at) {
                // What stands before may go with what has come here.
                steps -= 1;
                at = at.saturating_sub(1);
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Applies a rule to the stages at this place and the next; false if none applies.
    fn step(&mut self, at: usize) -> bool {
        let (Some(first), Some(second)) = (self.stages.get(at), self.stages.get(at + 1)) else {
            return false;
        };
        if let Some(merged) = merge(first, second) {
            self.stages.splice(at..at + 2, merged);
            return true;
        }
        if first.constraints().first || first.as_match().is_some() {
            return false;
        }
        let first_use = first.field_use();
        let is_cut = is_cut(second);
        if is_cut && first_use.one_to_one && !is_cut_or_match(first) {
            self.stages.swap(at, at + 1);
            return true;
        }
        if let Some(filter) = second.as_match()
            && first_use.filter_first
        {
            let (before, behind) = split(filter, &first_use);
            if before.is_empty() {
                return false;
            }
            let mut stages: Vec<Arc<dyn StageSpec>> =
                vec![Arc::new(Match::all(before)), first.clone()];
            if !behind.is_empty() {
                stages.push(Arc::new(Match::all(behind)));
            }
            self.stages.splice(at..at + 2, stages);
            return true;
        }
        false
    }
}

fn is_cut(stage: &Arc<dyn StageSpec>) -> bool {
    let stage = stage.as_any();
    stage.is::<LimitStage>() || stage.is::<SkipStage>()
}

fn is_cut_or_match(stage: &Arc<dyn StageSpec>) -> bool {
    is_cut(stage) || stage.as_match().is_some()
}

/// The one stage that two neighbours amount to.
fn merge(
    first: &Arc<dyn StageSpec>,
    second: &Arc<dyn StageSpec>,
) -> Option<[Arc<dyn StageSpec>; 1]> {
    let (a, b) = (first.as_any(), second.as_any());
    if let (Some(a), Some(b)) = (a.downcast_ref::<LimitStage>(), b.downcast_ref::<LimitStage>()) {
        return Some([Arc::new(LimitStage::of(a.amount().min(b.amount())))]);
    }
    if let (Some(a), Some(b)) = (a.downcast_ref::<SkipStage>(), b.downcast_ref::<SkipStage>()) {
        return Some([Arc::new(SkipStage::of(a.amount().checked_add(b.amount())?))]);
    }
    if let (Some(a), Some(b)) = (a.downcast_ref::<Lookup>(), b.downcast_ref::<Unwind>()) {
        return Some([Arc::new(a.unwinding(b)?)]);
    }
    None
}

/// The parts of a filter that may be asked before a stage, and the others.
fn split(filter: &MatchExpr, stage: &FieldUse) -> (Vec<MatchExpr>, Vec<MatchExpr>) {
    let parts: Vec<&MatchExpr> = match filter {
        MatchExpr::And(parts) => parts.iter().collect(),
        one => vec![one],
    };
    let movable = |part: &MatchExpr| {
        let mut reads = FieldUse::passing();
        reads.add_filter(part);
        match &reads.reads {
            Fields::Only(names) => {
                !reads.random && names.iter().all(|name| stage.keeps.keeps(name))
            }
            Fields::All => false,
        }
    };
    let (before, behind): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| movable(part));
    (before.into_iter().cloned().collect(), behind.into_iter().cloned().collect())
}
