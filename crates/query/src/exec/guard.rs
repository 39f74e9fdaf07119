//! Prevents long chains of stages, and nested pipelines, from exhausting the stack.
//!
//! A tree of stages is run, explained and dropped by recursion from its root. The pipeline builder puts a [`Guard`]
//! after every [`LEVELS`] stages and on top of every pipeline within a stage. So at most that many stages are
//! entered between two checks of the stack.
//!
//! Invariants:
//! - `work` and `feed` fail at the end of the stack, on the way down and on the way up.
//! - Operations that cannot fail are cut off: `explain` shows `OMITTED` for the rest, totals are marked as
//!   incomplete.
//! - Dropping does not recurse into a guard's child: the outermost guard drops the children one after the other.

use super::{Eof, ExecCx, Row, Stage, Step, Take, Totals, Verbosity};
use kauri_base::{Result, work};
use kauri_bson::DocWriter;
use std::cell::RefCell;

/// Most stages between two guards.
pub const LEVELS: usize = 8;

thread_local! {
    /// Stages to be dropped by the guard that is being dropped; none while no guard is.
    static DROPPED: RefCell<Option<Vec<Box<dyn Stage>>>> = const { RefCell::new(None) };
}

/// See the module's head. Not visible in `explain`.
pub struct Guard {
    child: Box<dyn Stage>,
}

impl Guard {
    /// Guards this stage.
    pub fn new(child: Box<dyn Stage>) -> Guard {
        Guard { child }
    }
}

impl Stage for Guard {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        work::check_stack()?;
        self.child.work(cx)
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        work::check_stack()?;
        self.child.feed(cx, &mut |row| {
            work::check_stack()?;
            take(row)
        })
    }

    fn is_eof(&self) -> bool {
        work::check_stack().is_ok() && self.child.is_eof()
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        match work::check_stack() {
            Ok(()) => self.child.explain(out, verbosity),
            Err(_) => out.put("stage", "OMITTED"),
        }
    }

    fn add_totals(&self, totals: &mut Totals) {
        match work::check_stack() {
            Ok(()) => self.child.add_totals(totals),
            Err(_) => totals.are_cut = true,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let child = std::mem::replace(&mut self.child, Box::new(Eof::default()));
        let Some(mut dropping) = Dropping::begin(child) else { return };
        while let Some(stage) = dropping.next() {
            drop(stage);
        }
    }
}

/// The outermost guard that is being dropped.
struct Dropping {
    first: Option<Box<dyn Stage>>,
}

impl Dropping {
    /// None if another guard is being dropped, or the thread ends: then that one drops the stage, or it is
    /// dropped now.
    fn begin(stage: Box<dyn Stage>) -> Option<Dropping> {
        let mut stage = Some(stage);
        let is_first = DROPPED.try_with(|dropped| match &mut *dropped.borrow_mut() {
            Some(others) => {
                others.extend(stage.take());
                false
            }
            none => {
                *none = Some(Vec::new());
                true
            }
        });
        // Not `then_some`: what that makes in vain would be dropped, and end the other's work.
        matches!(is_first, Ok(true)).then(|| Dropping { first: stage })
    }

    fn next(&mut self) -> Option<Box<dyn Stage>> {
        let first = self.first.take();
        first.or_else(|| DROPPED.with_borrow_mut(|dropped| dropped.as_mut().and_then(Vec::pop)))
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        let rest = DROPPED.take();
        drop(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::StageStats;
    use super::super::limit::Skip;
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Source(Counted, StageStats);

    impl Stage for Source {
        fn work<'g>(&mut self, _cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
            Ok(self.1.count(Step::Done))
        }

        fn explain(&self, out: &mut DocWriter<'_>, _verbosity: Verbosity) {
            out.put("stage", "SOURCE");
        }

        fn add_totals(&self, totals: &mut Totals) {
            totals.docs_examined += 1 + self.0.0.load(Ordering::Relaxed) as u64;
        }
    }

    fn chain(stages: usize, dropped: &Arc<AtomicUsize>) -> Box<dyn Stage> {
        let source = Source(Counted(dropped.clone()), StageStats::default());
        let mut root: Box<dyn Stage> = Box::new(source);
        for stage in 0..stages {
            root = Box::new(Skip::new(root, 1));
            if stage % LEVELS == 0 {
                root = Box::new(Guard::new(root));
            }
        }
        root
    }

    #[test]
    fn a_chain_longer_than_the_stack_is_cut_and_dropped_whole() {
        let thread = work::thread("guard", || {
            let dropped = Arc::new(AtomicUsize::new(0));
            let short = chain(100, &dropped);
            let mut totals = Totals::default();
            short.add_totals(&mut totals);
            assert!(!totals.are_cut && totals.docs_examined == 1);
            let long = chain(200_000, &dropped);
            let mut totals = Totals::default();
            long.add_totals(&mut totals);
            assert!(totals.are_cut && totals.docs_examined == 0);
            drop(long);
            assert_eq!(dropped.load(Ordering::Relaxed), 1);
            drop(short);
            assert_eq!(dropped.load(Ordering::Relaxed), 2);
        });
        thread.unwrap().join().unwrap();
    }
}
