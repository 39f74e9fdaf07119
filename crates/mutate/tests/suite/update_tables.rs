//! Updates, by tables of cases.

use crate::common::{Outcome, cases, check_outcome, parse_doc, parse_value, split_case};
use kauri_base::clock::SystemClock;
use kauri_base::{ErrorCode, OperationContext, work};
use kauri_base::{Result, Timestamp};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_matcher::{MatchCx, MatchDetails, MatchExpr, Place};
use kauri_mutate::{ParseCx, Update, UpdateCx};
use std::sync::Arc;

const OBJECT_ID: [u8; 12] = [9; 12];

fn cx() -> UpdateCx<'static> {
    UpdateCx::new(1_000, &|| Timestamp { seconds: 50, increment: 3 })
}

fn parse_update(update: &str, array_filters: &str) -> Result<Update> {
    let filters = parse_value(array_filters);
    let filters: Vec<Doc<'_>> =
        filters.as_array().into_iter().flatten().filter_map(|e| e.as_doc()).collect();
    Update::parse(&parse_value(update), &filters, &ParseCx::new())
}

fn parse_filter(filter: &str) -> MatchExpr {
    let cx = kauri_matcher::ParseCx::new(Place::Find);
    MatchExpr::parse(parse_doc(filter).as_doc(), &cx).unwrap()
}

/// Applies an update to a document that has matched the filter.
fn apply(doc: &str, update: &str, filters: &str, filter: &str) -> Result<Option<DocBuf>> {
    let update = parse_update(update, filters)?;
    let doc = parse_doc(doc);
    let mut details = MatchDetails::new();
    let filter = parse_filter(filter);
    assert!(filter.matches_with_details(doc.as_doc(), &MatchCx::new(), &mut details)?);
    let cx = UpdateCx { matched_position: details.elem_match_key(), ..cx() };
    // The previous contents of the buffer must not change.
    let mut out = b"before".to_vec();
    let applied = update.apply(doc.as_doc(), &cx, &mut out);
    assert_eq!(&out[..6], b"before");
    let written = out.split_off(6);
    match applied {
        Ok(applied) if applied.modified => Ok(Some(DocBuf::from_vec(written)?)),
        Ok(_) => {
            assert!(written.is_empty(), "an update without effect wrote {written:?}");
            Ok(None)
        }
        Err(error) => {
            assert!(written.is_empty(), "a failed update wrote {written:?}");
            Err(error)
        }
    }
}

fn upsert(filter: &str, update: &str) -> Result<Option<DocBuf>> {
    let update = parse_update(update, "[]")?;
    let mut out = Vec::new();
    update.new_document(&parse_filter(filter), OBJECT_ID, &cx(), &mut out)?;
    Ok(Some(DocBuf::from_vec(out)?))
}

fn run(table: &str) -> usize {
    let mut count = 0;
    for (number, line) in cases(table) {
        count += 1;
        let (given, expected, message) = split_case(line);
        let actual = match given.as_slice() {
            [doc, update] => apply(doc, update, "[]", "{}"),
            ["upsert", filter, update] => upsert(filter, update),
            [doc, update, options @ ..] => {
                let option = |name: &str, default| {
                    options.iter().find_map(|o| o.strip_prefix(name)).unwrap_or(default)
                };
                apply(doc, update, option("filters ", "[]"), option("matched ", "{}"))
            }
            other => panic!("line {number}: {other:?}"),
        };
        check_outcome(number, line, &expected, message, actual);
    }
    count
}

#[test]
fn fields() {
    assert!(run(include_str!("../data/update_fields.txt")) > 100);
}

#[test]
fn arrays() {
    assert!(run(include_str!("../data/update_arrays.txt")) > 100);
}

#[test]
fn replacements_pipelines_upserts() {
    assert!(run(include_str!("../data/update_whole.txt")) > 50);
}

#[test]
fn sizes_at_the_limit() {
    let text = "x".repeat(16 * 1024 * 1024 - 40);
    let grow = |extra: usize| {
        let update = kauri_bson::doc! { "$set" => kauri_bson::doc! {
            "a" => text.as_str(), "b" => "y".repeat(extra)
        } };
        let update = Update::parse(&Value::from(update), &[], &ParseCx::new()).unwrap();
        let doc = parse_doc("{_id: 1}");
        let mut out = Vec::new();
        update.apply(doc.as_doc(), &cx(), &mut out).map(|_| out.len())
    };
    assert_eq!(grow(0).unwrap(), 16 * 1024 * 1024 - 40 + 30);
    assert_eq!(grow(10).unwrap(), 16 * 1024 * 1024);
    assert_eq!(grow(11).unwrap_err().code().number(), 17419);
    assert_eq!(grow(100_000).unwrap_err().code().number(), 10334);
}

#[test]
fn output_and_work_are_bounded() {
    // Two arrays padded to 13 MB each.
    let pads = "{$set: {\"a.1500000\": 1, \"b.1500000\": 1}}";
    let error = apply("{_id: 1, a: [], b: []}", pads, "[]", "{}").unwrap_err();
    assert_eq!(error.code().number(), 10334);
    // A killed operation ends within the update of one large array.
    let doc = kauri_bson::doc! { "_id" => 1, "a" => Value::array((0..5000).map(Value::Int32)) };
    let update = parse_update("{$inc: {\"a.$[x]\": 1}}", "[{x: {$gte: 0}}]").unwrap();
    let op = OperationContext::detached(Arc::new(SystemClock::new()));
    op.state().kill(ErrorCode::Interrupted);
    let apply = || update.apply(doc.as_doc(), &cx(), &mut Vec::new());
    let error = work::with_meter(&op.meter(), apply).unwrap_err();
    assert_eq!(error.code().number(), 11601);
}

#[test]
fn nesting_at_the_limit() {
    let path = |levels: usize| vec!["a"; levels].join(".");
    let set = |path: String, value: &str| {
        apply("{_id: 1}", &format!("{{$set: {{\"{path}\": {value}}}}}"), "[]", "{}")
    };
    assert!(set(path(180), "1").is_ok());
    assert_eq!(set(path(181), "1").unwrap_err().code().number(), 15);
    assert!(set(path(179), "{}").is_ok());
    assert_eq!(set(path(180), "{}").unwrap_err().code().number(), 15);
    assert_eq!(set(path(100_000), "1").unwrap_err().code().number(), 15);
    let filter = format!("{{\"{}\": 1}}", path(100_000));
    assert!(matches!(upsert(&filter, "{$set: {b: 1}}"), Err(e) if e.code().number() == 15));
}

#[test]
fn outcome_of_tables_is_checked() {
    let (given, expected, message) = split_case("{a: 1} | {$x: 1} -> error 9 Unknown");
    assert_eq!(given, ["{a: 1}", "{$x: 1}"]);
    assert_eq!((expected, message), (Outcome::Error(9), "Unknown"));
}
