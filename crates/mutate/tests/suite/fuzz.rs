//! Random specifications and damaged documents end in an error, never in a panic.

use crate::reference::generate::{self, Rng};
use kauri_base::Timestamp;
use kauri_bson::{Doc, DocBuf, Value};
use kauri_expr::EvalCx;
use kauri_matcher::{MatchExpr, Place};
use kauri_mutate::{DocTransform, ParseCx, ProjectCx, Projection, Update, UpdateCx};

const CASES: u64 = 20_000;

const NAMES: [&str; 44] = [
    "a",
    "b",
    "a.b",
    "a.0",
    "a.$",
    "a.$[]",
    "a.$[x]",
    "$",
    "$[]",
    "",
    ".",
    "a..b",
    "_id",
    "_id.x",
    "x",
    "x.a",
    "$set",
    "$unset",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$rename",
    "$currentDate",
    "$setOnInsert",
    "$push",
    "$addToSet",
    "$pop",
    "$pull",
    "$pullAll",
    "$bit",
    "$each",
    "$slice",
    "$sort",
    "$position",
    "$type",
    "and",
    "$elemMatch",
    "$meta",
    "$gt",
    "$in",
    "$or",
    "$literal",
    "newRoot",
];

const STAGES: [&str; 7] =
    ["$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith", "$bogus"];

fn nonsense(rng: &mut Rng, depth: usize) -> Value<'static> {
    match rng.below(16) {
        0..=6 if depth > 0 => nonsense_doc(rng, depth - 1).into(),
        7 | 8 if depth > 0 => {
            Value::array((0..rng.below(4)).map(|_| nonsense(rng, depth - 1)).collect::<Vec<_>>())
        }
        9 => Value::String(rng.pick(&["$a", "$$ROOT", "x", "date", "$a.", "a\0b"]).into()),
        10 => Value::Double(rng.pick(&[0.0, 1.5, -1.0, f64::NAN, f64::INFINITY, 1e300])),
        11 => Value::Int64(rng.pick(&[i64::MIN, -1, 0, 1, i64::MAX])),
        12 => Value::Null,
        13 => Value::Bool(rng.chance(50)),
        14 => Value::Regex { pattern: "^a".into(), options: "".into() },
        _ => Value::Int32(rng.pick(&[i32::MIN, -1, 0, 1, 2, i32::MAX])),
    }
}

fn nonsense_doc(rng: &mut Rng, depth: usize) -> DocBuf {
    DocBuf::build(|w| {
        for _ in 0..rng.below(4) {
            let value = nonsense(rng, depth);
            w.put_value(rng.pick(&NAMES), &value);
        }
    })
}

fn stored(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    generate::stored(rng).to_writer(&mut bytes).expect("a document can be written");
    bytes
}

/// Applies an update and checks what it wrote.
fn apply(update: &Update, doc: Doc<'_>, rng: &mut Rng) -> bool {
    let mut cx = UpdateCx::new(0, &|| Timestamp { seconds: 1, increment: 1 });
    cx.matched_position = rng.chance(70).then(|| rng.below(3) as u32);
    let mut out = vec![1, 2, 3];
    let applied = update.apply(doc, &cx, &mut out);
    let written = &out[3..];
    match &applied {
        Ok(applied) if applied.modified => assert!(Doc::from_bytes(written).is_ok()),
        _ => assert!(written.is_empty()),
    }
    let filter = nonsense_filter(rng);
    let mut out = Vec::new();
    if update.new_document(&filter, [1; 12], &cx, &mut out).is_ok() {
        let doc = Doc::from_bytes(&out).expect("a framed document");
        assert_eq!(doc.first().map(|e| e.key()), Some("_id"));
    }
    applied.is_ok()
}

fn nonsense_filter(rng: &mut Rng) -> MatchExpr {
    let cx = kauri_matcher::ParseCx::new(Place::Find);
    MatchExpr::parse(nonsense_doc(rng, 2).as_doc(), &cx).unwrap_or(MatchExpr::AlwaysTrue)
}

#[test]
fn random_updates() {
    let mut rng = Rng(11);
    let (mut parsed, mut applied) = (0, 0);
    for _ in 0..CASES {
        let spec = match rng.chance(80) {
            true => DocBuf::build(|w| {
                for _ in 0..=rng.below(2) {
                    let modifier = NAMES[16 + rng.below(15)];
                    let fields = nonsense_doc(&mut rng, 3);
                    w.put(modifier, &fields);
                }
            })
            .into(),
            false => nonsense(&mut rng, 4),
        };
        let filters: Vec<DocBuf> = (0..rng.below(2)).map(|_| nonsense_doc(&mut rng, 2)).collect();
        let filters: Vec<Doc<'_>> = filters.iter().map(DocBuf::as_doc).collect();
        if let Ok(update) = Update::parse(&spec, &filters, &ParseCx::new()) {
            parsed += 1;
            let doc = DocBuf::from_vec(stored(&mut rng)).expect("a framed document");
            applied += u32::from(apply(&update, doc.as_doc(), &mut rng));
        }
    }
    assert!(parsed > CASES / 10 && applied > 100, "{parsed} {applied}");
}

#[test]
fn random_projections_and_stages() {
    let mut rng = Rng(12);
    let mut done = 0;
    for _ in 0..CASES {
        let doc = DocBuf::from_vec(stored(&mut rng)).expect("a framed document");
        let filter = nonsense_filter(&mut rng);
        let cx = ProjectCx::new(EvalCx::default()).with_filter(&filter);
        let mut out = vec![9];
        let spec = nonsense_doc(&mut rng, 3);
        let projected = Projection::parse(spec.as_doc(), Some(&filter), &ParseCx::new())
            .and_then(|p| p.apply(doc.as_doc(), &cx, &mut out));
        assert_eq!(projected.is_ok(), Doc::from_bytes(&out[1..]).is_ok());
        done += u32::from(projected.is_ok());
        let spec = nonsense(&mut rng, 3);
        let mut out = Vec::new();
        let stage = DocTransform::parse(rng.pick(&STAGES), &spec, &ParseCx::new());
        let transformed = stage.and_then(|s| s.apply(doc.as_doc(), &cx, &mut out));
        assert_eq!(transformed.is_ok(), Doc::from_bytes(&out).is_ok());
        done += u32::from(transformed.is_ok());
    }
    assert!(u64::from(done) > CASES / 20, "{done}");
}

#[test]
fn damaged_documents() {
    let mut rng = Rng(13);
    for _ in 0..CASES {
        let mut bytes = stored(&mut rng);
        let intact = reference_doc(&bytes);
        let (spec, filters) = generate::update(&mut rng, &intact);
        let spec = raw(&spec);
        let filters: Vec<DocBuf> = filters.iter().map(raw).collect();
        let filters: Vec<Doc<'_>> = filters.iter().map(DocBuf::as_doc).collect();
        let update = Update::parse(&Value::from(spec), &filters, &ParseCx::new());
        let projection = raw(&generate::projection(&mut rng, &intact, generate::Place::Find));
        let projection = Projection::parse(projection.as_doc(), None, &ParseCx::new());
        for _ in 0..=rng.below(3) {
            // The length and end are kept: every document that gets here has valid ones.
            let place = 4 + rng.below(bytes.len() - 5);
            bytes[place] = rng.next() as u8;
        }
        let doc = Doc::from_bytes(&bytes).expect("a framed document");
        let mut out = Vec::new();
        let cx = ProjectCx::new(EvalCx::default());
        if let Ok(projection) = projection
            && projection.apply(doc, &cx, &mut out).is_ok()
        {
            assert!(Doc::from_bytes(&out).is_ok());
        }
        if let Ok(update) = update {
            apply(&update, doc, &mut rng);
        }
    }
}

fn reference_doc(bytes: &[u8]) -> bson::Document {
    bson::Document::from_reader(bytes).expect("a document")
}

fn raw(doc: &bson::Document) -> DocBuf {
    let mut bytes = Vec::new();
    doc.to_writer(&mut bytes).expect("a document can be written");
    DocBuf::from_vec(bytes).expect("what was written is framed")
}
