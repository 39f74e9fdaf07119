//! The times that a filter asks for.

use kauri_base::Timestamp;
use kauri_bson::{Doc, Value};
use kauri_matcher::{CompareOp, MatchExpr, Predicate};
use kauri_storage::Direction;

/// Times from the first one to the last one, both included. What a filter asks for besides is for the filter to decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The first time.
    pub from: u64,
    /// The last one; before `from` if there is none.
    pub to: u64,
}

/// A time as a number.
pub fn number_of(time: Timestamp) -> u64 {
    u64::from(time.seconds) << 32 | u64::from(time.increment)
}

/// A number as a time.
pub fn time_of(number: u64) -> Timestamp {
    Timestamp { seconds: (number >> 32) as u32, increment: number as u32 }
}

impl Bounds {
    /// All times.
    pub const ALL: Bounds = Bounds { from: 0, to: u64::MAX };
    const NONE: Bounds = Bounds { from: 1, to: 0 };

    /// Entries of other times do not match the filter.
    pub fn of(filter: &MatchExpr) -> Bounds {
        let mut bounds = Bounds::ALL;
        bounds.narrow(filter);
        bounds
    }

    fn narrow(&mut self, filter: &MatchExpr) {
        let leaf = match filter {
            MatchExpr::And(all) => return all.iter().for_each(|one| self.narrow(one)),
            MatchExpr::AlwaysFalse => return *self = Bounds::NONE,
            MatchExpr::Leaf(leaf) if leaf.path.as_str() == "ts" => leaf,
            _ => return,
        };
        let Predicate::Compare(op, Value::Timestamp(time)) = &leaf.pred else { return };
        let time = number_of(*time);
        let (from, to) = match op {
            CompareOp::Eq => (Some(time), Some(time)),
            CompareOp::Gte => (Some(time), Some(u64::MAX)),
            CompareOp::Gt => (time.checked_add(1), Some(u64::MAX)),
            CompareOp::Lte => (Some(0), Some(time)),
            CompareOp::Lt => (Some(0), time.checked_sub(1)),
        };
        match (from, to) {
            (Some(from), Some(to)) => {
                (self.from, self.to) = (self.from.max(from), self.to.min(to));
            }
            _ => *self = Bounds::NONE,
        }
    }
}

/// The direction of a sort by nothing but the time.
pub fn order_of_times(sort: Doc<'_>) -> Option<Direction> {
    let first = sort.first().filter(|first| first.key() == "ts" && sort.count() == 1)?;
    match first.value().as_f64_lossy()? {
        n if n > 0.0 => Some(Direction::Forward),
        _ => Some(Direction::Backward),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocBuf, array, doc};
    use kauri_matcher::{ParseCx, Place};

    fn of(filter: DocBuf) -> (u64, u64) {
        let filter = MatchExpr::parse(filter.as_doc(), &ParseCx::new(Place::Find)).unwrap();
        let Bounds { from, to } = Bounds::of(&filter);
        (from, to)
    }

    #[test]
    fn a_filter_narrows_the_times_and_never_too_much() {
        let ts = |n| Value::Timestamp(time_of(n));
        let all = (0, u64::MAX);
        assert_eq!(of(doc! {}), all);
        assert_eq!(of(doc! { "ts" => ts(7) }), (7, 7));
        assert_eq!(of(doc! { "ts" => doc! { "$gt" => ts(7), "$lte" => ts(9) } }), (8, 9));
        assert_eq!(of(doc! { "ts" => doc! { "$gte" => ts(7), "$lt" => ts(9) } }), (7, 8));
        assert_eq!(
            of(doc! { "op" => "i", "ts" => doc! { "$gte" => ts(1 << 33) } }),
            (1 << 33, u64::MAX)
        );
        let both = array![
            doc! { "ts" => doc! { "$gt" => ts(5) } },
            doc! { "ts" => doc! { "$lt" => ts(5) } }
        ];
        let (from, to) = of(doc! { "$and" => both.clone() });
        assert!(from > to, "{from} {to}");
        assert_eq!(of(doc! { "$or" => both }), all);
        assert_eq!(of(doc! { "ts" => doc! { "$ne" => ts(5) } }), all);
        assert_eq!(of(doc! { "ts" => doc! { "$gt" => 5 } }), all);
        let (from, to) = of(doc! { "ts" => doc! { "$lt" => ts(0) } });
        assert!(from > to, "{from} {to}");
        let (from, to) = of(doc! { "ts" => doc! { "$gt" => ts(u64::MAX) } });
        assert!(from > to, "{from} {to}");
    }

    #[test]
    fn a_sort_by_time_is_the_natural_order() {
        let order = |sort: DocBuf| order_of_times(sort.as_doc());
        assert_eq!(order(doc! { "ts" => 1 }), Some(Direction::Forward));
        assert_eq!(order(doc! { "ts" => -1.0 }), Some(Direction::Backward));
        assert_eq!(order(doc! { "ts" => 1, "op" => 1 }), None);
        assert_eq!(order(doc! { "op" => 1 }), None);
        assert_eq!(order(doc! { "ts" => doc! { "$meta" => "textScore" } }), None);
    }
}
