//! Expressions have bounds in size, nesting and running time.

use crate::shell;
use kauri_base::{ErrorCode, limits};
use kauri_bson::{Doc, DocBuf, Value, array, doc};
use kauri_expr::{AccumulatorSpec, EvalCx, Expression, ParseCx};

fn code_of(spec: &Value<'_>, root: Doc<'_>) -> Option<i32> {
    let cx = EvalCx::default();
    let result = Expression::parse(spec, &ParseCx::default());
    let result = result.and_then(|e| e.eval(&cx, root).map(Value::into_owned));
    result.err().map(|e| e.code().number())
}

#[test]
fn strings_end_at_sixteen_megabytes() {
    let half = "x".repeat(limits::DOCUMENT_BYTES_MAX / 2);
    let root = doc! { "s" => half.as_str() };
    let twice: Value<'_> = doc! { "$concat" => array!["$s", "$s"] }.into();
    assert_eq!(code_of(&twice, root.as_doc()), Some(16493));
    let replaced: Value<'_> =
        doc! { "$replaceAll" => doc! { "input" => "$s", "find" => "x", "replacement" => "yyy" } }
            .into();
    assert_eq!(code_of(&replaced, root.as_doc()), Some(16493));
    let literal: Value<'_> = "x".repeat(limits::DOCUMENT_BYTES_MAX).into();
    assert_eq!(code_of(&literal, Doc::EMPTY), Some(16493));
}

#[test]
fn arrays_do_not_double_for_ever() {
    let spec = shell::value(
        "{$reduce: {input: {$range: [0, 40]}, initialValue: ['some text'], in: {$concatArrays: ['$$value', '$$value']}}}",
    );
    assert_eq!(code_of(&spec, Doc::EMPTY), Some(146));
}

#[test]
fn variables_do_not_nest_for_ever() {
    let spec = shell::value(
        "{$reduce: {input: {$range: [0, 100000]}, initialValue: {}, in: {a: '$$value'}}}",
    );
    assert_eq!(code_of(&spec, Doc::EMPTY), Some(15));
}

/// As deep as a document from a client may be.
#[test]
fn deep_expressions_do_not_exhaust_the_stack() {
    let mut operator: Value<'static> = "$a".into();
    let mut literal: Value<'static> = "$a".into();
    for _ in 0..limits::DOCUMENT_DEPTH_MAX {
        operator = doc! { "$abs" => operator }.into();
        literal = doc! { "k" => array![literal] }.into();
    }
    let root = doc! { "a" => -1 };
    assert_eq!(code_of(&operator, root.as_doc()), None);
    assert_eq!(code_of(&literal, root.as_doc()), None);
}

#[test]
fn accumulators_count_their_memory() {
    let text = "x".repeat(1 << 20);
    for name in ["$push", "$addToSet"] {
        let spec = AccumulatorSpec::parse(name, &"$v".into(), &ParseCx::default()).unwrap();
        let cx = EvalCx::default();
        let mut state = spec.start(&cx, Doc::EMPTY).unwrap();
        let mut failed = None;
        for i in 0..200 {
            let before = state.memory_bytes();
            let doc: DocBuf = doc! { "v" => format!("{i}{text}") };
            if let Err(error) = spec.add(&mut state, &cx, doc.as_doc()) {
                failed = Some((i, error.code()));
                break;
            }
            assert!(state.memory_bytes() >= before, "{name} grows");
            assert!(state.memory_bytes() > i * text.len(), "{name} counts its memory");
        }
        let (at, code) = failed.unwrap_or_else(|| panic!("{name} has no bound"));
        assert_eq!(code, ErrorCode::ExceededMemoryLimit, "{name}");
        assert!((40..110).contains(&at), "{name} ends at {at}");
    }
}
