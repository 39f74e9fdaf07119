//! Paths, variables, literals, conditions, comparisons, constant folding, parser errors.

use crate::{cases, shell};
use kauri_bson::{Doc, Value};
use kauri_expr::{EvalCx, Expression, ParseCx, VariableScope};

#[test]
fn paths() {
    cases! {
        "'$a.b'", "{a: {b: 1}}" => "1";
        "'$a.b'", "{a: [{b: 1}, {c: 1}, 3, [{b: 9}], {b: null}]}" => "[1, null]";
        "'$a.b.c'", "{a: [{b: [{c: 1}, {c: 2}]}, {b: {c: 3}}]}" => "[[1, 2], 3]";
        "'$a.0'", "{a: [7]}" => "[]";
        "'$a.0'", "{a: {'0': 7}}" => "7";
        "'$a.b'", "{a: 1}" => "missing";
        "'$$ROOT.a'", "{a: 1}" => "1";
        "'$$CURRENT'", "{a: 1}" => "{a: 1}";
        "'$$REMOVE'" => "missing";
        "'$$NOW'" => "Date(1700000000123)";
        "'$$NOW.x'" => "missing";
        "'$$CLUSTER_TIME'" => 10071200;
        "'$$USER_ROLES'" => "missing";
        "'plain'" => "'plain'";
        "'$'" => 16872;
        "'$$'" => 9;
        "'$a.'" => 40353;
        "'$a..b'" => 15998;
        "'$a.$b'" => 16410;
        "'$a\\0'" => 16411;
        "'$$x'" => 17276;
        "'$$1x'" => 9;
        "'$$ROOT.'" => 40353;
        "'$longer_than_eight_bytes'", "{longer_than_eight_byte: 1, longer_than_eight_bytes: 2}" => "2";
    }
}

#[test]
fn objects_and_arrays() {
    cases! {
        "{a: 1, b: {c: '$x', d: '$none'}}", "{x: 5}" => "{a: 1, b: {c: 5}}";
        "['$x', '$none', [1]]", "{x: 5}" => "[5, null, [1]]";
        "{}" => "{}";
        "{'a.b': 1}" => 16412;
        "{a: 1, $b: 2}" => 16410;
        "{a: 1, a: 2}" => 16406;
        "{$add: [1], $b: 2}" => 15983;
        "{$nothing: 1}" => 168;
        "{a: {$nothing: 1}}" => 168;
        "{$literal: {$add: [1, '$x']}}" => "{$add: [1, '$x']}";
        "{$const: '$x'}" => "'$x'";
        "{$function: {body: 'x', args: [], lang: 'js'}}" => 31264;
        "{$meta: 1}" => 17307;
        "{$meta: 'nothing'}" => 17308;
        "{$rand: {a: 1}}" => 3040501;
        "{$rand: 1}" => 10065;
    }
}

#[test]
fn conditions() {
    cases! {
        "{$cond: ['$a', 1, 2]}", "{a: true}" => "1";
        "{$cond: {if: '$a', then: 1, else: 2}}" => "2";
        "{$cond: ['$a', 1, {$divide: [1, '$z']}]}", "{a: 1, z: 0}" => "1";
        "{$cond: [1, 2]}" => 16020;
        "{$cond: {if: 1, then: 2}}" => 17082;
        "{$cond: {then: 2}}" => 17080;
        "{$cond: {if: 1, then: 2, else: 3, x: 1}}" => 17083;
        "{$ifNull: ['$a', '$b', 7]}", "{b: null}" => "7";
        "{$ifNull: ['$a', '$b']}" => "missing";
        "{$ifNull: [1]}" => 1257300;
        "{$switch: {branches: [{case: '$a', then: 1}, {case: true, then: 2}]}}" => "2";
        "{$switch: {branches: [{case: '$a', then: 1}], default: 3}}" => "3";
        "{$switch: {branches: [{case: '$a', then: 1}]}}" => 40066;
        "{$switch: {branches: [{case: '$a', then: 1}, {case: false, then: 2}]}}" => 40066;
        "{$switch: {branches: [{case: '$a', then: 1}, {case: false, then: 2}]}}", "{a: 1}" => "1";
        "{$switch: {branches: [{case: false, then: '$a'}, {case: null, then: 2}]}}" => 40069;
        "{$switch: {branches: [{case: {$gt: [1, 2]}, then: '$a'}]}}" => 40069;
        "{$switch: {branches: [{case: false, then: 1}], default: 2}}" => "2";
        "{$switch: {branches: [{case: '$a', then: 1}], default: null}}" => "null";
        "{$switch: {branches: []}}" => 40068;
        "{$switch: {branches: [{case: 1}]}}" => 40065;
        "{$switch: {branches: 1}}" => 40061;
        "{$and: [1, 'x', []]}" => "true";
        "{$and: []}" => "true";
        "{$or: []}" => "false";
        "{$not: [0]}" => "true";
        "{$not: '$a'}", "{a: []}" => "false";
    }
}

#[test]
fn comparisons_cross_types() {
    cases! {
        "{$eq: [1, 1.0]}" => "true";
        "{$eq: ['$a', null]}" => "false";
        "{$lt: ['$a', null]}" => "true";
        "{$gt: ['a', 100]}" => "true";
        "{$cmp: [[1, 2], [1, 3]]}" => "-1";
        "{$cmp: [{a: 1}, {a: 1.0}]}" => "0";
        "{$lt: [NaN, -Infinity]}" => "true";
        "{$gte: [MaxKey, MinKey]}" => "true";
        "{$lte: [9007199254740993L, 9007199254740992.0]}" => "false";
        "{$ne: [1]}" => 16020;
    }
}

/// Constants fail when they are parsed, for any document.
#[test]
fn constants_are_folded() {
    let parse = |text: &str| Expression::parse(&shell::value(text), &ParseCx::default());
    let folded = parse("{$add: [1, {$multiply: [2, 3]}]}").unwrap();
    assert_eq!(folded.as_constant(), Some(&Value::Int32(7)));
    assert!(parse("{$add: [1, '$a']}").unwrap().as_constant().is_none());
    assert!(parse("{$rand: {}}").unwrap().as_constant().is_none());
    for (text, code) in [
        ("{$cond: [true, 1, {$divide: [1, 0]}]}", Some(2)),
        ("{$cond: ['$a', {$divide: [1, 0]}, 1]}", Some(2)),
        ("{$and: [false, {$divide: [1, '$z']}]}", None),
        ("{$or: [{$divide: [1, '$z']}, true]}", None),
        ("{$switch: {branches: [{case: false, then: {$divide: [1, 0]}}], default: 1}}", None),
        ("{$switch: {branches: [{case: true, then: 1}], default: {$divide: [1, 0]}}}", Some(2)),
        ("{$map: {input: '$a', in: {$divide: [1, 0]}}}", Some(2)),
        ("{$regexMatch: {input: '$a', regex: '('}}", Some(51111)),
        ("{$year: {date: '$a', timezone: 'x'}}", Some(40485)),
        ("{$dateToString: {date: '$a', format: '%Q'}}", Some(18536)),
    ] {
        let found = parse(text).err().map(|e| e.code().number());
        assert_eq!(found, code, "{text}");
    }
}

#[test]
fn variables_from_outside() {
    let mut vars = VariableScope::new();
    vars.define("x");
    vars.define("y");
    vars.define("x");
    let cx = ParseCx { vars, ..ParseCx::default() };
    let spec = shell::value("{$concatArrays: [['$$x'], '$$y.a']}");
    let expression = Expression::parse(&spec, &cx).unwrap();
    let values = [shell::value("1"), shell::value("{a: [2]}"), shell::value("3")];
    let eval = EvalCx { vars: &values, ..EvalCx::default() };
    assert_eq!(expression.eval(&eval, Doc::EMPTY).unwrap(), shell::value("[3, 2]"));
    // An undefined variable is missing.
    let eval = EvalCx { vars: &values[..2], ..EvalCx::default() };
    assert_eq!(expression.eval(&eval, Doc::EMPTY).unwrap(), shell::value("[null, 2]"));
}

#[test]
fn field_values_are_borrowed() {
    let doc = shell::document("{a: {b: 'a text that would have to be copied'}}");
    let spec = shell::value("{$cond: [true, {$ifNull: ['$none', '$a.b']}, 1]}");
    let expression = Expression::parse(&spec, &ParseCx::default()).unwrap();
    let cx = EvalCx::default();
    let value = expression.eval(&cx, doc.as_doc()).unwrap();
    let Value::String(text) = &value else { panic!("{value:?}") };
    assert!(doc.as_bytes().as_ptr_range().contains(&text.as_ptr()), "points into the document");
}

#[test]
fn expressions_go_to_other_threads() {
    fn both<T: Send + Sync>() {}
    both::<Expression>();
    both::<kauri_expr::AccumulatorSpec>();
}
