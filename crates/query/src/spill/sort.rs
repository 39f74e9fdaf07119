//! The sort of a blocking stage: rows are collected in memory, spilled to sorted runs beyond the limit, and the
//! runs are merged.
//!
//! The stage defines rows, their order and their encoding ([`RowBuffer`]), and consumes the sorted rows.

use super::merge::Compare;
use super::spills_early;
use super::{ExternalSort, SliceOrder, SliceSort, SpillKind, SpillStats, Spilling};
use crate::exec::{ExecCx, Flow, QueryEnv, Row, Stage, Step};
use kauri_base::{Access, Error, Result, limits, work};
use std::cmp::Ordering;

/// Rows in memory.
pub(crate) trait RowBuffer {
    /// One of them.
    type Row;
    /// What they count as when they are spilled.
    const KIND: SpillKind;
    /// How records are ordered by their keys: as the rows that they were.
    const BY_KEY: Compare;

    /// How many bytes may be held from now on.
    fn limit(&mut self, spilling: &Spilling) -> usize;

    /// Takes a row. False: there is no room for another.
    fn take(&mut self, row: &Row<'_>, env: &QueryEnv) -> Result<bool>;

    /// Whether they may be put into runs at all.
    fn may_spill(&self) -> bool {
        true
    }

    /// What to say if there is no room and they can't be put into runs.
    fn too_many(&self, bytes_max: usize) -> Error;

    /// All have come.
    fn ended(&self, _spilling: &Spilling) {}

    /// All of them are in order, and stay in memory.
    fn sorted(&mut self) {}

    /// The rows, and how they are ordered: no two are equal, but the one that came first comes first.
    fn rows(&mut self)
    -> (&mut Vec<Self::Row>, impl Fn(&Self::Row, &Self::Row) -> Ordering + Copy);

    /// Writes the row at this place. As [`ExternalSort::push`].
    fn push(&self, at: usize, external: &mut ExternalSort) -> bool;

    /// Bytes that are held.
    fn bytes(&self) -> usize;

    /// Lets all rows go; their memory is for the next ones.
    fn clear(&mut self);

    /// Gives their memory back: no more come.
    fn give_back(&mut self);
}

/// Where the gathering is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Gathering,
    /// What was gathered is all, and put in order where it is.
    Sorting,
    /// What was gathered goes into a run; `last`: nothing more comes.
    Spilling {
        last: bool,
    },
    /// Runs are merged until few enough are left.
    Merging,
    Sorted,
}

/// See the module's head.
pub(crate) struct SpillingSort<B> {
    /// The rows in memory.
    pub buffer: B,
    /// The runs, if memory was too little. Once all rows are in order, they are here then.
    pub external: Option<Box<ExternalSort>>,
    phase: Phase,
    /// What is gathered, if it stays in memory.
    sorting: SliceSort,
    /// What is gathered on its way into a run.
    ordering: SliceOrder,
    /// Whether the run's next chunk is to be handed over.
    piece_is_full: bool,
}

impl<B: RowBuffer> SpillingSort<B> {
    /// Nothing gathered yet.
    pub fn new(buffer: B) -> Self {
        SpillingSort {
            buffer,
            external: None,
            phase: Phase::Gathering,
            sorting: SliceSort::default(),
            ordering: SliceOrder::default(),
            piece_is_full: false,
        }
    }

    /// Collects all rows of `child`. `Row`: they are sorted.
    #[inline]
    pub fn gather(&mut self, child: &mut dyn Stage, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        while self.phase != Phase::Sorted {
            match self.go_on(child, cx)? {
                Step::Row(()) => {}
                step => return Ok(step),
            }
        }
        Ok(Step::Row(()))
    }

    /// `Row`: there is a next phase, or more can be gathered.
    fn go_on(&mut self, child: &mut dyn Stage, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let (step, next) = match self.phase {
            Phase::Gathering => return self.take_rows(child, cx),
            Phase::Sorting => (self.sort_in_memory(), Phase::Sorted),
            Phase::Spilling { last: false } => (self.spill(cx)?, Phase::Gathering),
            Phase::Spilling { last: true } => (self.spill(cx)?, Phase::Merging),
            Phase::Merging => {
                self.buffer.give_back();
                let external = self.external.as_mut();
                (external.map_or(Ok(Step::Row(())), |runs| runs.merge(cx))?, Phase::Sorted)
            }
            Phase::Sorted => (Step::Row(()), Phase::Sorted),
        };
        if matches!(step, Step::Row(())) {
            self.phase = next;
        }
        Ok(step)
    }

    fn take_rows(&mut self, child: &mut dyn Stage, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let (env, buffer) = (cx.env, &mut self.buffer);
        let mut bytes_max = buffer.limit(&env.spilling);
        let place = env.spilling.place().filter(|_| buffer.may_spill());
        let mut is_full = false;
        let step = child.feed(cx, &mut |row| {
            work::tick_bytes(64 + row.doc().as_bytes().len())?;
            is_full = !buffer.take(row, env)?;
            if place.is_some() && spills_early(buffer.bytes()) {
                (is_full, bytes_max) = (true, bytes_max.min(limits::SPILL_EARLY_BYTES));
            }
            Ok(if is_full { Flow::Stop } else { Flow::Continue })
        })?;
        if is_full {
            let Some(place) = place else { return Err(buffer.too_many(bytes_max)) };
            let new = || Box::new(ExternalSort::new(place, B::KIND, bytes_max, B::BY_KEY));
            self.external.get_or_insert_with(new);
            self.phase = Phase::Spilling { last: false };
            return Ok(Step::Row(()));
        }
        if !matches!(step, Step::Done) {
            return Ok(step);
        }
        buffer.ended(&env.spilling);
        self.phase = match self.external {
            Some(_) => Phase::Spilling { last: true },
            None => Phase::Sorting,
        };
        Ok(Step::Row(()))
    }

    /// `Row`: all is in order.
    fn sort_in_memory(&mut self) -> Step<()> {
        let (rows, by) = self.buffer.rows();
        if !self.sorting.sort_some(rows, by) {
            return Step::Again;
        }
        self.buffer.sorted();
        Step::Row(())
    }

    /// Writes what was gathered as a run. `Row`: it is written, and its memory free.
    fn spill(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let SpillingSort { buffer, external, ordering, piece_is_full, .. } = self;
        let Some(external) = external else { return Ok(Step::Row(())) };
        let (rows, by) = buffer.rows();
        if !ordering.sort_some(rows, by) {
            return Ok(Step::Again);
        }
        loop {
            if *piece_is_full {
                if let Access::WouldBlock(ticket) = external.flush()? {
                    return Ok(Step::Blocked(ticket));
                }
                *piece_is_full = false;
            }
            let (rows, by) = buffer.rows();
            let Some(at) = ordering.next(rows, by) else { break };
            *piece_is_full = buffer.push(at, external);
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
        if let Access::WouldBlock(ticket) = external.end_run(cx, buffer.bytes())? {
            return Ok(Step::Blocked(ticket));
        }
        buffer.clear();
        *ordering = SliceOrder::default();
        Ok(Step::Row(()))
    }

    /// The spills.
    pub fn spilled(&self) -> SpillStats {
        self.external.as_ref().map_or_else(SpillStats::default, |external| external.stats)
    }
}
