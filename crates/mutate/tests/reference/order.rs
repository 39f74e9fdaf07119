//! The comparison order of the few generated types.

use bson::{Bson, Document};
use std::cmp::Ordering;

/// Rank of a value's type.
pub fn rank(value: &Bson) -> u8 {
    match value {
        Bson::Null => 1,
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) => 2,
        Bson::String(_) => 3,
        Bson::Document(_) => 4,
        Bson::Array(_) => 5,
        Bson::Boolean(_) => 6,
        other => panic!("not generated: {other:?}"),
    }
}

/// A number as a double; generated numbers are small enough for this to be exact.
pub fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(v) => Some(f64::from(*v)),
        Bson::Int64(v) => Some(*v as f64),
        Bson::Double(v) => Some(*v),
        _ => None,
    }
}

pub fn compare(a: &Bson, b: &Bson) -> Ordering {
    rank(a).cmp(&rank(b)).then_with(|| match (a, b) {
        (Bson::String(a), Bson::String(b)) => a.cmp(b),
        (Bson::Boolean(a), Bson::Boolean(b)) => a.cmp(b),
        (Bson::Array(a), Bson::Array(b)) => {
            for (x, y) in a.iter().zip(b) {
                let order = compare(x, y);
                if order.is_ne() {
                    return order;
                }
            }
            a.len().cmp(&b.len())
        }
        (Bson::Document(a), Bson::Document(b)) => compare_docs(a, b),
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => a.partial_cmp(&b).expect("no NaN is generated"),
            _ => Ordering::Equal,
        },
    })
}

fn compare_docs(a: &Document, b: &Document) -> Ordering {
    for ((ka, va), (kb, vb)) in a.iter().zip(b) {
        let order = rank(va).cmp(&rank(vb)).then(ka.cmp(kb)).then_with(|| compare(va, vb));
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

pub fn equal(a: &Bson, b: &Bson) -> bool {
    compare(a, b).is_eq()
}
