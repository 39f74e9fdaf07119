//! The cost of an update or a projection of one document.
//!
//! `cargo bench -p kauri-mutate`. Prints the best of several rounds.

use kauri_base::Timestamp;
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_expr::EvalCx;
use kauri_matcher::MatchExpr;
use kauri_mutate::{DocTransform, ParseCx, ProjectCx, Projection, Update, UpdateCx};
use std::hint::black_box;
use std::time::Instant;

/// Nanoseconds per call: the best of many rounds, each short enough to be undisturbed.
fn measure(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 1_000;
    (0..500)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CALLS {
                call();
            }
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .fold(f64::INFINITY, f64::min)
}

/// A document of 1 KB as in YCSB: ten strings of 100 bytes.
fn ycsb() -> DocBuf {
    DocBuf::build(|w| {
        w.put("_id", "user6284781860667377211");
        for i in 0..10 {
            w.put(&format!("field{i}"), "x".repeat(100));
        }
    })
}

fn features() -> DocBuf {
    DocBuf::build(|w| {
        w.put("_id", [7u8; 12]);
        w.put("n", 1);
        w.put("list", Value::array((0..20).map(Value::Int32)));
        for i in 0..40 {
            w.put(&format!("f{i}"), i);
        }
        w.put("sub", doc! { "a" => 1, "b" => doc! { "c" => "text" } });
    })
}

fn update(name: &str, document: &DocBuf, spec: DocBuf, filters: &[DocBuf]) {
    let filters: Vec<_> = filters.iter().map(DocBuf::as_doc).collect();
    let spec = Value::from(spec);
    let Ok(update) = Update::parse(&spec, &filters, &ParseCx::new()) else {
        println!("{name}: the update is malformed");
        return;
    };
    let mut cx = UpdateCx::new(0, &|| Timestamp { seconds: 1, increment: 1 });
    cx.matched_position = Some(3);
    let mut out = Vec::with_capacity(4096);
    let apply = measure(|| {
        out.clear();
        let _ = black_box(update.apply(black_box(document.as_doc()), &cx, &mut out));
    });
    let parse = measure(|| {
        let _ = black_box(Update::parse(black_box(&spec), &filters, &ParseCx::new()));
    });
    println!("{name:<44} apply {apply:>7.1} ns   parse {parse:>7.1} ns");
}

fn projection(name: &str, document: &DocBuf, spec: DocBuf) {
    let parsed = Projection::parse(spec.as_doc(), Some(&MatchExpr::AlwaysTrue), &ParseCx::new());
    let Ok(projection) = parsed else {
        println!("{name}: the projection is malformed");
        return;
    };
    let cx = ProjectCx::new(EvalCx::default());
    let mut out = Vec::with_capacity(4096);
    let apply = measure(|| {
        out.clear();
        let _ = black_box(projection.apply(black_box(document.as_doc()), &cx, &mut out));
    });
    println!("{name:<44} apply {apply:>7.1} ns");
}

fn stage(name: &str, document: &DocBuf, spec: DocBuf) {
    let Ok(stage) = DocTransform::parse(name, &Value::from(spec), &ParseCx::new()) else {
        println!("{name}: the stage is malformed");
        return;
    };
    let cx = ProjectCx::new(EvalCx::default());
    let mut out = Vec::with_capacity(4096);
    let apply = measure(|| {
        out.clear();
        let _ = black_box(stage.apply(black_box(document.as_doc()), &cx, &mut out));
    });
    println!("{name:<44} apply {apply:>7.1} ns");
}

fn main() {
    let (ycsb, features) = (ycsb(), features());
    let text = "y".repeat(100);
    let set = |field: &str| doc! { "$set" => doc! { field => text.as_str() } };
    println!("updates of {} and {} bytes", ycsb.as_bytes().len(), features.as_bytes().len());
    update("$set field0 of 1 KB", &ycsb, set("field0"), &[]);
    update("$set field9 of 1 KB", &ycsb, set("field9"), &[]);
    update("$set a new field of 1 KB", &ycsb, set("other"), &[]);
    update("$inc n", &features, doc! { "$inc" => doc! { "n" => 1 } }, &[]);
    update("$inc sub.a", &features, doc! { "$inc" => doc! { "sub.a" => 1 } }, &[]);
    update("$push", &features, doc! { "$push" => doc! { "list" => 1 } }, &[]);
    update("$set list.$", &features, doc! { "$set" => doc! { "list.$" => -1 } }, &[]);
    update("$inc list.$[]", &features, doc! { "$inc" => doc! { "list.$[]" => 1 } }, &[]);
    let filter = doc! { "x" => doc! { "$gt" => 9 } };
    update("$inc list.$[x]", &features, doc! { "$inc" => doc! { "list.$[x]" => 1 } }, &[filter]);
    update("replacement of 1 KB", &ycsb, ycsb.clone(), &[]);
    let walk = measure(|| {
        black_box(black_box(features.as_doc()).count());
    });
    println!("{:<44} apply {walk:>7.1} ns", "(walking the fields alone)");
    println!("projections");
    projection("{field0: 1} of 1 KB", &ycsb, doc! { "field0" => 1 });
    projection(
        "{_id: 0, field0: 1, field5: 1} of 1 KB",
        &ycsb,
        doc! {
            "_id" => 0, "field0" => 1, "field5" => 1
        },
    );
    projection("{field0: 0} of 1 KB", &ycsb, doc! { "field0" => 0 });
    projection("{\"sub.b.c\": 1}", &features, doc! { "sub.b.c" => 1 });
    projection("{list: {$slice: 3}}", &features, doc! { "list" => doc! { "$slice" => 3 } });
    projection(
        "{s: {$add: [\"$n\", 1]}}",
        &features,
        doc! {
            "s" => doc! { "$add" => array!["$n", 1] }
        },
    );
    println!("stages");
    stage("$project", &features, doc! { "n" => 1, "f3" => 1 });
    stage("$addFields", &features, doc! { "s" => doc! { "$add" => array!["$n", 1] } });
    stage("$replaceWith", &features, doc! { "$ifNull" => array!["$sub", "$$ROOT"] });
}
