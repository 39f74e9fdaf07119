//! Throughput of the operations that run for every document: validation, comparison, index keys.
//!
//! `cargo bench -p kauri-bson`. Prints the best of several rounds.

use kauri_bson::keygen::{KeyPattern, Keys};
use kauri_bson::{DocBuf, KeyStringBuilder, Value, compare_docs, doc, validate};
use std::hint::black_box;
use std::time::Instant;

/// Nanoseconds per call, the best of ten rounds.
fn measure(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 100_000;
    (0..10)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CALLS {
                call();
            }
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .fold(f64::INFINITY, f64::min)
}

fn report(name: &str, bytes: usize, ns: f64) {
    println!("{name:<34} {ns:>8.1} ns {:>8.2} GB/s  ({bytes} bytes)", bytes as f64 / ns);
}

fn strings() -> DocBuf {
    DocBuf::build(|w| {
        w.put("_id", [7u8; 12]);
        for i in 0..10 {
            w.put(&format!("field{i}"), "x".repeat(88));
        }
    })
}

fn short_strings() -> DocBuf {
    DocBuf::build(|w| {
        w.put("_id", [7u8; 12]);
        for i in 0..40 {
            w.put(&format!("f{i}"), "short text");
        }
    })
}

fn ints() -> DocBuf {
    DocBuf::build(|w| {
        w.put("_id", [7u8; 12]);
        for i in 0..120 {
            w.put(&format!("a{i}"), i);
        }
    })
}

fn nested() -> DocBuf {
    DocBuf::build(|w| {
        for i in 0..20 {
            let mut inner = w.document(&format!("n{i}"));
            inner.put("x", i);
            let mut array = inner.array("list");
            for j in 0..4 {
                array.push(j);
            }
        }
    })
}

fn main() {
    for (name, doc) in [
        ("strings of 88 bytes", strings()),
        ("strings of 10 bytes", short_strings()),
        ("ints", ints()),
        ("nested", nested()),
    ] {
        let bytes = doc.as_bytes();
        let ns = measure(|| {
            let _ = black_box(validate(black_box(bytes), 200));
        });
        report(&format!("validate, {name}"), bytes.len(), ns);
        let ns = measure(|| {
            for elem in black_box(doc.as_doc()) {
                black_box(elem.value_bytes());
            }
        });
        report(&format!("iterate, {name}"), bytes.len(), ns);
        let copy = doc.clone();
        // Equal except for the last element.
        let other = DocBuf::build(|w| {
            w.put_all(doc.as_doc());
            w.put("last", 1);
        });
        let ns = measure(|| {
            black_box(compare_docs(black_box(doc.as_doc()), black_box(copy.as_doc())));
        });
        report(&format!("compare equal, {name}"), bytes.len(), ns);
        let ns = measure(|| {
            black_box(compare_docs(black_box(doc.as_doc()), black_box(other.as_doc())));
        });
        report(&format!("compare different, {name}"), bytes.len(), ns);
    }
    let (a, b) = (doc! { "a" => 1 }, doc! { "a" => 2.0 });
    let (a, b) = (a.as_doc().value("a"), b.as_doc().value("a"));
    let ns = measure(|| {
        black_box(kauri_bson::compare(black_box(&a), black_box(&b)));
    });
    report("compare int with double", 12, ns);
    let (a, b) = (Value::from([1u8; 12]), Value::from([2u8; 12]));
    let ns = measure(|| {
        black_box(kauri_bson::compare(black_box(&a), black_box(&b)));
    });
    report("compare ObjectIds", 24, ns);
    keys();
}

fn keys() {
    for (name, value) in [
        ("ObjectId", Value::ObjectId([7; 12])),
        ("int", Value::Int32(123_456)),
        ("long", Value::Int64(1 << 40)),
        ("double", Value::Double(19.99)),
        ("decimal", Value::Decimal128(kauri_bson::Decimal128::from_f64(19.99))),
        ("string of 16 bytes", "abcdefghijklmnop".into()),
    ] {
        let mut builder = KeyStringBuilder::new();
        let ns = measure(|| {
            builder.clear();
            builder.append(black_box(&value), false);
            black_box(builder.bytes());
        });
        report(&format!("KeyString of {name}"), builder.bytes().len(), ns);
    }
    let ten = DocBuf::build(|w| {
        w.put("_id", [7u8; 12]);
        (0..10).for_each(|i| w.put(&format!("field{i}"), i));
    });
    let list = doc! { "_id" => 1, "a" => Value::array((0..10).map(Value::from)) };
    for (name, pattern, doc) in [
        ("_id", doc! { "_id" => 1 }, &ten),
        ("the last of 10 ints", doc! { "field9" => 1 }, &ten),
        ("3 of 10 ints", doc! { "field2" => 1, "field5" => -1, "field8" => 1 }, &ten),
        ("an array of 10 ints", doc! { "a" => 1 }, &list),
    ] {
        let Ok(pattern) = KeyPattern::parse(pattern.as_doc()) else { return };
        let mut keys = Keys::default();
        let ns = measure(|| {
            let _ = black_box(pattern.generate(black_box(doc.as_doc()), false, &mut keys));
        });
        report(&format!("keys of {name}"), doc.as_bytes().len(), ns);
    }
}
