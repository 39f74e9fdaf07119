//! Times matching and parsing: `cargo run --release -p kauri-matcher --example timing`.

use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_matcher::{MatchCx, Matcher, ParseCx, Place};
use std::hint::black_box;
use std::time::Instant;

/// Documents of about 250 bytes with 8 fields.
fn documents(count: usize) -> Vec<DocBuf> {
    let random = SeededRandom::new(7);
    let mut made = Vec::with_capacity(count);
    for i in 0..count {
        let number = random.next_u64();
        let mut id = [0; 12];
        id[..8].copy_from_slice(&number.to_be_bytes());
        made.push(doc! {
            "_id" => Value::ObjectId(id),
            "name" => format!("customer number {i:012}"),
            "age" => (number % 60) as i32,
            "a" => (number >> 8 & 1) as i32,
            "b" => if number >> 9 & 1 == 0 { "x" } else { "y" },
            "score" => (number >> 16 & 0xFFFF) as f64 / 16.0,
            "tags" => array!["red", "green", "blue", "a longer one to fill the document"],
            "address" => doc! { "city" => "Wellington", "street" => "1 Long Street of Houses" },
        });
    }
    made
}

fn main() {
    let docs = documents(1000);
    let bytes: usize = docs.iter().map(|d| d.as_bytes().len()).sum();
    println!("{} documents of {} bytes", docs.len(), bytes / docs.len());
    let thirty: Vec<Value<'_>> = (0..30).map(|n| Value::Int32(n * 2)).collect();
    let filters = [
        ("{age: {$gt: 30}}", doc! { "age" => doc! { "$gt" => 30 } }),
        ("{a: 1, b: 'x'}", doc! { "a" => 1, "b" => "x" }),
        ("{age: {$gte: 20, $lt: 40}}", doc! { "age" => doc! { "$gte" => 20, "$lt" => 40 } }),
        ("{_id: ObjectId}", doc! { "_id" => Value::ObjectId([1; 12]) }),
        ("{score: {$lt: 100}}", doc! { "score" => doc! { "$lt" => 100 } }),
        ("{missing: null}", doc! { "missing" => Value::Null }),
        ("{tags: 'blue'}", doc! { "tags" => "blue" }),
        ("{'address.city': 'Wellington'}", doc! { "address.city" => "Wellington" }),
        ("{age: {$in: 30 numbers}}", doc! { "age" => doc! { "$in" => Value::array(thirty) } }),
        (
            "{$or: [{a: 1}, {age: 5}]}",
            doc! { "$or" => array![doc! { "a" => 1 }, doc! { "age" => 5 }] },
        ),
        ("{name: /42$/}", doc! { "name" => doc! { "$regex" => "42$" } }),
        ("{$expr: {$gt: ['$age', 30]}}", doc! { "$expr" => doc! { "$gt" => array!["$age", 30] } }),
    ];
    let (parse_cx, cx) = (ParseCx::new(Place::Find), MatchCx::new());
    for (name, filter) in &filters {
        const PARSES: u32 = 200;
        let mut parse_ns = f64::MAX;
        for _ in 0..50 {
            let start = Instant::now();
            for _ in 0..PARSES {
                black_box(Matcher::parse(black_box(filter.as_doc()), &parse_cx).is_ok());
            }
            parse_ns = parse_ns.min(start.elapsed().as_nanos() as f64 / f64::from(PARSES));
        }
        let Ok(matcher) = Matcher::parse(filter.as_doc(), &parse_cx) else {
            println!("{name:32} does not parse");
            continue;
        };
        let (mut best, mut matched) = (f64::MAX, 0);
        for _ in 0..20 {
            let start = Instant::now();
            matched = 0;
            for doc in &docs {
                matched += usize::from(matcher.matches(doc.as_doc(), &cx).unwrap_or(false));
            }
            best = best.min(start.elapsed().as_nanos() as f64 / docs.len() as f64);
        }
        println!(
            "{name:32} {best:7.1} ns a document, {matched:4} match; parsed in {parse_ns:6.0} ns"
        );
    }
}
