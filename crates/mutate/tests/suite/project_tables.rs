//! Projections and document transforms, by tables of cases.

use crate::common::{cases, check_outcome, parse_doc, parse_value, split_case};
use kauri_base::Result;
use kauri_base::clock::SystemClock;
use kauri_base::{ErrorCode, OperationContext, work};
use kauri_bson::{DocBuf, Value};
use kauri_expr::{EvalCx, MetaSource};
use kauri_matcher::{MatchExpr, Place};
use kauri_mutate::{DocTransform, ParseCx, ProjectCx, Projection};
use std::sync::Arc;

struct Meta;

impl MetaSource for Meta {
    fn meta(&self, name: &str) -> Value<'_> {
        match name {
            "recordId" => Value::Int64(7),
            "sortKey" => Value::array([Value::Int32(3)]),
            _ => Value::Missing,
        }
    }
}

/// Runs `write` behind existing bytes, which must not change.
fn written(write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<Option<DocBuf>> {
    let mut out = b"before".to_vec();
    let result = write(&mut out);
    assert_eq!(&out[..6], b"before");
    let bytes = out.split_off(6);
    if result.is_err() {
        assert!(bytes.is_empty(), "a failed projection wrote {bytes:?}");
    }
    result?;
    Ok(Some(DocBuf::from_vec(bytes)?))
}

fn find(doc: &str, spec: &str, filter: &str) -> Result<Option<DocBuf>> {
    let cx = kauri_matcher::ParseCx::new(Place::Find);
    let filter = MatchExpr::parse(parse_doc(filter).as_doc(), &cx)?;
    let spec = parse_doc(spec);
    let projection = Projection::parse(spec.as_doc(), Some(&filter), &ParseCx::new())?;
    let eval = EvalCx { meta: Some(&Meta), ..EvalCx::default() };
    let cx = ProjectCx::new(eval).with_filter(&filter);
    written(|out| projection.apply(parse_doc(doc).as_doc(), &cx, out))
}

fn stage(doc: &str, name: &str, spec: &str) -> Result<Option<DocBuf>> {
    let stage = DocTransform::parse(name, &parse_value(spec), &ParseCx::new())?;
    let eval = EvalCx { meta: Some(&Meta), ..EvalCx::default() };
    written(|out| stage.apply(parse_doc(doc).as_doc(), &ProjectCx::new(eval), out))
}

fn run(table: &str) -> usize {
    let mut count = 0;
    for (number, line) in cases(table) {
        count += 1;
        let (given, expected, message) = split_case(line);
        let actual = match given.as_slice() {
            [doc, spec] => find(doc, spec, "{}"),
            [doc, name, spec] if name.starts_with('$') => stage(doc, name, spec),
            [doc, spec, filter] => {
                let filter = filter.strip_prefix("matched ").unwrap_or(filter);
                find(doc, spec, filter)
            }
            other => panic!("line {number}: {other:?}"),
        };
        check_outcome(number, line, &expected, message, actual);
    }
    count
}

#[test]
fn finds() {
    assert!(run(include_str!("../data/find_projections.txt")) > 100);
}

#[test]
fn stages() {
    assert!(run(include_str!("../data/stages.txt")) > 80);
}

#[test]
fn deep_specifications_end_in_an_error() {
    let path = vec!["a"; 201].join(".");
    let error = find("{_id: 1}", &format!("{{\"{path}\": 1}}"), "{}").unwrap_err();
    assert_eq!(error.code().number(), 15);
    let path = vec!["a"; 200].join(".");
    assert!(find("{_id: 1}", &format!("{{\"{path}\": 1}}"), "{}").is_ok());
    let mut nested = DocBuf::build(|w| w.put("a", 1));
    for _ in 0..1000 {
        nested = DocBuf::build(|w| w.put("a", &nested));
    }
    let value = Value::from(nested);
    for name in ["$project", "$set", "$addFields"] {
        let error = DocTransform::parse(name, &value, &ParseCx::new()).unwrap_err();
        assert_eq!(error.code().number(), 15, "{name}: {error:?}");
    }
}

#[test]
fn output_and_work_are_bounded() {
    // A text of 1 MB for each of a thousand elements.
    let text = "x".repeat(1 << 20);
    let items = Value::array((0..1000).map(Value::Int32));
    let doc = kauri_bson::doc! { "_id" => 1, "t" => text.as_str(), "a" => items };
    let spec = parse_value("{\"a.t\": \"$t\"}");
    let stage = DocTransform::parse("$addFields", &spec, &ParseCx::new()).unwrap();
    let mut out = Vec::new();
    let cx = ProjectCx::new(EvalCx::default());
    let error = stage.apply(doc.as_doc(), &cx, &mut out).unwrap_err();
    assert_eq!(error.code().number(), 10334);
    assert!(out.is_empty());
    let op = OperationContext::detached(Arc::new(SystemClock::new()));
    op.state().kill(ErrorCode::Interrupted);
    let killed = |stage: &DocTransform| {
        let cx = ProjectCx::new(EvalCx::default());
        work::with_meter(&op.meter(), || written(|out| stage.apply(doc.as_doc(), &cx, out)))
    };
    let error = killed(&stage);
    assert!(matches!(error, Err(e) if matches!(e.code().number(), 10334 | 11601)));
    let stage = DocTransform::parse("$unset", &"a.t".into(), &ParseCx::new()).unwrap();
    assert!(matches!(killed(&stage), Err(e) if e.code().number() == 11601));
}

#[test]
fn the_properties_of_projections() {
    let parse = |spec: &str| {
        Projection::parse(parse_doc(spec).as_doc(), Some(&MatchExpr::AlwaysTrue), &ParseCx::new())
            .unwrap()
    };
    assert!(parse("{a: 1}").is_inclusion());
    assert!(!parse("{a: 0}").is_inclusion());
}
