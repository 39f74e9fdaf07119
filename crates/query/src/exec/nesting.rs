//! Refuses documents that nest deeper than a client may receive.
//!
//! Each stage of a pipeline may nest documents deeper, and within a pipeline every depth is supported. But a
//! client's decoder may recurse, and a message has a maximum depth, so the rows of the last stage are checked.

use super::{ExecCx, Row, Stage, Step, Take, Totals, Verbosity};
use kauri_base::{Result, bail, limits, work};
use kauri_bson::{Doc, DocWriter};

/// See the module's head. Not visible in `explain`.
pub struct Nesting {
    child: Box<dyn Stage>,
}

impl Nesting {
    /// Checks the rows of this stage.
    pub fn new(child: Box<dyn Stage>) -> Nesting {
        Nesting { child }
    }
}

impl Stage for Nesting {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.child.work(cx)?;
        if let Step::Row(row) = &step {
            check(row.doc())?;
        }
        Ok(step)
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        self.child.feed(cx, &mut |row| {
            check(row.doc())?;
            take(row)
        })
    }

    fn is_eof(&self) -> bool {
        self.child.is_eof()
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        self.child.explain(out, verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}

/// The least that a level takes: a type, a name's end, a length, an end.
const LEVEL_BYTES_MIN: usize = 7;

fn check(doc: Doc<'_>) -> Result<()> {
    const LEVELS: usize = limits::DOCUMENT_DEPTH_MAX;
    if doc.as_bytes().len() < LEVELS * LEVEL_BYTES_MIN {
        return Ok(());
    }
    let mut open = vec![doc.iter()];
    while let Some(elems) = open.last_mut() {
        work::tick(1)?;
        match elems.next() {
            None => drop(open.pop()),
            Some(elem) => {
                if let Some(inner) = elem.as_doc() {
                    if open.len() == LEVELS {
                        bail!(
                            Overflow,
                            "cannot convert document to BSON because it exceeds the limit of {LEVELS} levels \
                             of nesting"
                        );
                    }
                    open.push(inner.iter());
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocBuf, doc};

    fn nested(levels: usize) -> DocBuf {
        (1..levels).fold(doc! { "a" => 1 }, |inner, _| doc! { "a" => inner })
    }

    #[test]
    fn as_many_levels_as_a_message_may_have_pass() {
        for levels in [1, 2, limits::DOCUMENT_DEPTH_MAX] {
            assert_eq!(check(nested(levels).as_doc()), Ok(()), "{levels}");
            let wide = doc! { "a" => nested(levels.saturating_sub(1)), "text" => "x".repeat(2000) };
            assert_eq!(check(wide.as_doc()), Ok(()), "{levels}");
        }
        assert!(check(nested(limits::DOCUMENT_DEPTH_MAX + 1).as_doc()).is_err());
    }
}
