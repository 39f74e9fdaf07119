//! A plan that both the stages above it and `explain` use.

use super::{ExecCx, Flow, Row, Stage, Step, Take, Totals, Verbosity};
use kauri_base::Result;
use kauri_bson::DocWriter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module's head. A clone is the same plan.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Counted>>);

struct Counted {
    root: Box<dyn Stage>,
    rows: u64,
}

impl Shared {
    /// This plan.
    pub fn new(root: Box<dyn Stage>) -> Shared {
        Shared(Arc::new(Mutex::new(Counted { root, rows: 0 })))
    }

    /// Rows that it has given.
    pub fn rows(&self) -> u64 {
        self.lock().rows
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage for Shared {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let mut counted = self.lock();
        let step = counted.root.work(cx)?;
        counted.rows += u64::from(matches!(step, Step::Row(_)));
        Ok(step)
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let counted = &mut *self.lock();
        let Counted { root, rows } = counted;
        root.feed(cx, &mut |row| -> Result<Flow> {
            *rows += 1;
            take(row)
        })
    }

    fn is_eof(&self) -> bool {
        self.lock().root.is_eof()
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        self.lock().root.explain(out, verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.lock().root.add_totals(totals);
    }
}
