//! Random updates and projections compared with the reference. `KAURI_SEED` repeats the case that a failure
//! names and continues from there.

use crate::reference::generate::{self, Place, Rng};
use crate::reference::{project, update};
use bson::{Bson, Document};
use kauri_base::Timestamp;
use kauri_bson::{Doc, DocBuf, Value};
use kauri_expr::EvalCx;
use kauri_mutate::{DocTransform, ParseCx, ProjectCx, Projection, Update, UpdateCx};

const CASES: u64 = 40_000;

const SEED: u64 = 0x6d75_7461_7465_2121;

/// The first case's seed: a fixed one, or the one in `KAURI_SEED`.
fn seed() -> u64 {
    std::env::var("KAURI_SEED").map_or(SEED, |text| text.parse().expect("KAURI_SEED is a number"))
}

fn raw(doc: &Document) -> DocBuf {
    let mut bytes = Vec::new();
    doc.to_writer(&mut bytes).expect("a document can be written");
    DocBuf::from_vec(bytes).expect("what was written is framed")
}

/// Runs the cases, each with its own seed. A failure prints the seed.
fn run(name: &str, case: impl Fn(&mut Rng)) {
    let first = seed();
    for n in 0..CASES {
        let seed = first.wrapping_add(n);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            case(&mut Rng(seed));
        }));
        if let Err(panic) = result {
            eprintln!("{name}: case {n} failed; repeat it with KAURI_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn updates() {
    run("updates", |rng| {
        let doc = generate::stored(rng);
        let (spec, filters) = generate::update(rng, &doc);
        let position = rng.chance(80).then(|| rng.below(3));
        let expected = update::apply(&doc, &spec, &filters, position);
        let actual = apply_update(&doc, &spec, &filters, position);
        let case = format!("{doc}\n  {spec}\n  {filters:?} {position:?}\n  gave {actual:?}");
        match (expected, actual) {
            (Ok(expected), Ok(actual)) => {
                let changed = raw(&expected);
                let actual = actual.unwrap_or_else(|| raw(&doc));
                assert!(changed == actual, "{case}\n  not {expected}");
            }
            (Err(codes), Err(code)) => assert!(codes.contains(&code), "{case}\n  not {codes:?}"),
            (expected, _) => panic!("{case}\n  not {expected:?}"),
        }
    });
}

fn apply_update(
    doc: &Document,
    spec: &Document,
    filters: &[Document],
    position: Option<usize>,
) -> Result<Option<DocBuf>, i32> {
    let filters: Vec<DocBuf> = filters.iter().map(raw).collect();
    let filters: Vec<Doc<'_>> = filters.iter().map(DocBuf::as_doc).collect();
    let mut cx = UpdateCx::new(0, &|| Timestamp { seconds: 1, increment: 1 });
    cx.matched_position = position.map(|p| p as u32);
    let mut out = Vec::new();
    let spec = Value::from(raw(spec));
    let update = Update::parse(&spec, &filters, &ParseCx::new());
    let applied = update.and_then(|u| u.apply(raw(doc).as_doc(), &cx, &mut out));
    match applied {
        Ok(applied) if applied.modified => {
            Ok(Some(DocBuf::from_vec(out).expect("a framed document")))
        }
        Ok(_) => Ok(None),
        Err(error) => Err(error.code().number()),
    }
}

#[test]
fn projections() {
    run("projections", |rng| {
        let doc = generate::stored(rng);
        let place = rng.pick(&[Place::Find, Place::Find, Place::Project, Place::AddFields]);
        let spec = generate::projection(rng, &doc, place);
        let expected = project::apply(&doc, &spec, place);
        let actual = apply_projection(&doc, &spec, place);
        let case = format!("{doc}\n  {place:?} {spec}\n  gave {actual:?}");
        match (expected, actual) {
            (Some(expected), Ok(actual)) => {
                assert!(raw(&expected) == actual, "{case}\n  not {expected}");
            }
            // A colliding `$slice` of a find is tried as an expression and rejected.
            (None, Err(31249 | 31250 | 40176 | 28667 | 28724 | 31252)) => {}
            (expected, _) => panic!("{case}\n  not {expected:?}"),
        }
    });
}

fn apply_projection(doc: &Document, spec: &Document, place: Place) -> Result<DocBuf, i32> {
    let (doc, spec) = (raw(doc), raw(spec));
    let cx = ProjectCx::new(EvalCx::default());
    let mut out = Vec::new();
    let applied = match place {
        Place::Find => Projection::parse(spec.as_doc(), None, &ParseCx::new())
            .and_then(|p| p.apply(doc.as_doc(), &cx, &mut out)),
        Place::Project | Place::AddFields => {
            let name = if place == Place::Project { "$project" } else { "$addFields" };
            DocTransform::parse(name, &Value::from(spec), &ParseCx::new())
                .and_then(|t| t.apply(doc.as_doc(), &cx, &mut out))
        }
    };
    match applied {
        Ok(()) => Ok(DocBuf::from_vec(out).expect("a framed document")),
        Err(error) => Err(error.code().number()),
    }
}

/// Most generated cases must succeed and have an effect; otherwise the comparison proves little.
#[test]
fn the_generated_cases_are_significant() {
    let mut rng = Rng(7);
    let (mut changed, mut failed, mut projected) = (0, 0, 0);
    for _ in 0..2000 {
        let doc = generate::stored(&mut rng);
        let (spec, filters) = generate::update(&mut rng, &doc);
        match update::apply(&doc, &spec, &filters, Some(1)) {
            Ok(result) => changed += i32::from(Bson::from(result) != Bson::from(doc.clone())),
            Err(_) => failed += 1,
        }
        let spec = generate::projection(&mut rng, &doc, Place::Find);
        projected += i32::from(project::apply(&doc, &spec, Place::Find).is_some());
    }
    assert!(changed > 500 && failed > 200 && projected > 1000, "{changed} {failed} {projected}");
}
