//! Every operator with excessively large operands. It yields to other operations and ends soon after its
//! operation is killed. The test fails for an operator that is in none of the lists below.

use crate::shell;
use kauri_base::clock::SeededRandom;
use kauri_base::probe::{assert_linear, killed_at};
use kauri_base::{ErrorCode, Result};
use kauri_bson::{Doc, DocBuf, Value, doc};
use kauri_expr::{AccumulatorSpec, EvalCx, Expression, ParseCx, expression_names};
use std::collections::BTreeSet;

/// Minimum number of clock reads of work on a whole document; the operation is killed after them.
const LOOKS_MIN: u64 = 8;
/// Maximum number of clock reads of an operator after that.
const LOOKS_AFTER_KILL_MAX: u64 = 2;

/// Operators that traverse an array, a document or a list of arguments, each with a long one.
const LONG: &[(&str, &str)] = &[
    ("$map", "{$map: {input: '$big', in: '$$this'}}"),
    ("$filter", "{$filter: {input: '$big', cond: true}}"),
    ("$reduce", "{$reduce: {input: '$big', initialValue: 0, in: '$$this'}}"),
    ("$let", "{$let: {vars: {x: '$big'}, in: {$map: {input: '$$x', in: 1}}}}"),
    ("$arrayElemAt", "{$arrayElemAt: ['$big', -1]}"),
    ("$arrayToObject", "{$arrayToObject: '$pairs'}"),
    ("$concatArrays", "{$concatArrays: ['$big', '$big']}"),
    ("$in", "{$in: ['none', '$big']}"),
    ("$indexOfArray", "{$indexOfArray: ['$big', 'none']}"),
    ("$last", "{$last: '$big'}"),
    ("$objectToArray", "{$objectToArray: '$object'}"),
    ("$range", "{$range: [0, '$count']}"),
    ("$reverseArray", "{$reverseArray: '$big'}"),
    ("$size", "{$size: '$big'}"),
    ("$slice", "{$slice: ['$big', 5, 1000000]}"),
    ("$zip", "{$zip: {inputs: ['$big', '$big']}}"),
    ("$allElementsTrue", "{$allElementsTrue: '$big'}"),
    ("$anyElementTrue", "{$anyElementTrue: '$zeros'}"),
    ("$setDifference", "{$setDifference: ['$big', '$zeros']}"),
    ("$setEquals", "{$setEquals: ['$big', '$mixed']}"),
    ("$setIntersection", "{$setIntersection: ['$big', '$mixed']}"),
    ("$setIsSubset", "{$setIsSubset: ['$big', '$mixed']}"),
    ("$setUnion", "{$setUnion: ['$big', '$mixed']}"),
    ("$sortArray", "{$sortArray: {input: '$mixed', sortBy: -1}}"),
    ("$sum", "{$sum: '$big'}"),
    ("$avg", "{$avg: '$big'}"),
    ("$max", "{$max: '$big'}"),
    ("$min", "{$min: '$big'}"),
    ("$stdDevPop", "{$stdDevPop: '$big'}"),
    ("$stdDevSamp", "{$stdDevSamp: '$big'}"),
    ("$firstN", "{$firstN: {n: 1000000, input: '$big'}}"),
    ("$lastN", "{$lastN: {n: 1000000, input: '$big'}}"),
    ("$maxN", "{$maxN: {n: 3, input: '$mixed'}}"),
    ("$minN", "{$minN: {n: 3, input: '$mixed'}}"),
    ("$percentile", "{$percentile: {input: '$mixed', p: [0.5], method: 'approximate'}}"),
    ("$median", "{$median: {input: '$mixed', method: 'approximate'}}"),
    ("$mergeObjects", "{$mergeObjects: '$objects'}"),
    ("$setField", "{$setField: {field: 'none', input: '$object', value: 1}}"),
    ("$unsetField", "{$unsetField: {field: 'none', input: '$object'}}"),
    ("$split", "{$split: ['$text', ' ']}"),
    ("$replaceAll", "{$replaceAll: {input: '$text', find: 'm', replacement: 'nn'}}"),
    ("$regexFindAll", "{$regexFindAll: {input: '$text', regex: 'm'}}"),
    ("$regexFind", "{$regexFind: {input: '$line', regex: '(?=.*x)(?=.*y)'}}"),
    ("$regexMatch", "{$regexMatch: {input: '$line', regex: '(?=.*x)(?=.*y)'}}"),
    ("$add", "{$add: ARGUMENTS}"),
    ("$multiply", "{$multiply: ARGUMENTS}"),
    ("$and", "{$and: ARGUMENTS}"),
    ("$or", "{$or: NOTHINGS}"),
    ("$bitAnd", "{$bitAnd: ARGUMENTS}"),
    ("$bitOr", "{$bitOr: ARGUMENTS}"),
    ("$bitXor", "{$bitXor: ARGUMENTS}"),
    ("$concat", "{$concat: TEXTS}"),
    ("$ifNull", "{$ifNull: NOTHINGS}"),
    ("$switch", "{$switch: {branches: BRANCHES, default: 1}}"),
];

/// Operators that traverse one value of at most 16 MiB without a way to stop: they count its size as work.
const COUNTED: &[(&str, &str)] = &[
    ("$strLenCP", "{$strLenCP: '$text'}"),
    ("$toLower", "{$toLower: '$text'}"),
    ("$toUpper", "{$toUpper: '$text'}"),
    ("$strcasecmp", "{$strcasecmp: ['$text', '$text']}"),
    ("$indexOfBytes", "{$indexOfBytes: ['$text', 'none']}"),
    ("$indexOfCP", "{$indexOfCP: ['$text', 'none']}"),
    ("$substrCP", "{$substrCP: ['$text', 300000, 100000]}"),
    ("$trim", "{$trim: {input: '$text', chars: 'lorem '}}"),
    ("$ltrim", "{$ltrim: {input: '$text', chars: 'lorem '}}"),
    ("$rtrim", "{$rtrim: {input: '$text', chars: 'lorem '}}"),
    ("$replaceOne", "{$replaceOne: {input: '$text', find: 'none', replacement: ''}}"),
    ("$toHashedIndexKey", "{$toHashedIndexKey: '$text'}"),
    ("$getField", "{$getField: {field: 'none', input: '$object'}}"),
    ("$cmp", "{$cmp: ['$objects', '$objects2']}"),
    ("$eq", "{$eq: ['$objects', '$objects2']}"),
    ("$ne", "{$ne: ['$objects', '$objects2']}"),
    ("$gt", "{$gt: ['$objects', '$objects2']}"),
    ("$gte", "{$gte: ['$objects', '$objects2']}"),
    ("$lt", "{$lt: ['$objects', '$objects2']}"),
    ("$lte", "{$lte: ['$objects', '$objects2']}"),
    (
        "$convert",
        "{$convert: {input: '$base64', to: {type: 'binData', subtype: 0}, format: 'base64'}}",
    ),
    ("$toBool", "{$toBool: {$concat: ['$text', 'x']}}"),
    ("$toString", "{$toString: {$concat: ['$text', 'x']}}"),
    ("$dateFromString", "{$dateFromString: {dateString: '$text', onError: 1}}"),
    ("$dateToString", "{$dateToString: {date: '$date', format: '$text'}}"),
];

/// Operators whose work is small because they have few arguments.
const SHORT: &[&str] = &[
    "$abs",
    "$acos",
    "$acosh",
    "$asin",
    "$asinh",
    "$atan",
    "$atan2",
    "$atanh",
    "$binarySize",
    "$bitNot",
    "$bsonSize",
    "$ceil",
    "$cond",
    "$const",
    "$cos",
    "$cosh",
    "$dateAdd",
    "$dateDiff",
    "$dateFromParts",
    "$dateSubtract",
    "$dateToParts",
    "$dateTrunc",
    "$dayOfMonth",
    "$dayOfWeek",
    "$dayOfYear",
    "$degreesToRadians",
    "$divide",
    "$exp",
    "$first",
    "$floor",
    "$function",
    "$hour",
    "$isArray",
    "$isNumber",
    "$isoDayOfWeek",
    "$isoWeek",
    "$isoWeekYear",
    "$literal",
    "$ln",
    "$log",
    "$log10",
    "$meta",
    "$millisecond",
    "$minute",
    "$mod",
    "$month",
    "$not",
    "$pow",
    "$radiansToDegrees",
    "$rand",
    "$round",
    "$second",
    "$sigmoid",
    "$sin",
    "$sinh",
    "$sqrt",
    "$strLenBytes",
    "$substr",
    "$substrBytes",
    "$subtract",
    "$tan",
    "$tanh",
    "$toDate",
    "$toDecimal",
    "$toDouble",
    "$toInt",
    "$toLong",
    "$toObjectId",
    "$toUUID",
    "$trunc",
    "$tsIncrement",
    "$tsSecond",
    "$type",
    "$week",
    "$year",
];

/// A document with long arrays and strings.
fn document() -> DocBuf {
    const COUNT: i32 = 30_000;
    let mixed = |at: i32| at.wrapping_mul(7919) % COUNT;
    let text = "lorem ipsum ".repeat(50_000);
    let object = |from: i32, count: i32| {
        Value::from(DocBuf::build(|out| {
            (from..from + count).for_each(|at| out.put(&format!("field{at}"), at));
        }))
    };
    let objects =
        |last: i32| Value::array((0..3000).map(|at| object(at % 100, 20 + last * (at / 2999))));
    let pair = |at: i32| Value::from(doc! { "k" => format!("k{at}").as_str(), "v" => at });
    DocBuf::build(|out| {
        out.put("big", Value::array((1..=COUNT).map(Value::Int32)));
        out.put("zeros", Value::array((0..COUNT).map(|_| Value::Int32(0))));
        out.put("mixed", Value::array((0..COUNT).map(|at| Value::Int32(mixed(at) + 1))));
        out.put("pairs", Value::array((0..COUNT).map(pair)));
        out.put("object", object(0, COUNT));
        out.put("objects", objects(0));
        out.put("objects2", objects(1));
        out.put("text", text.as_str());
        out.put("line", "lorem ipsum ".repeat(1500).as_str());
        out.put("base64", "Zm9v".repeat(100_000).as_str());
        out.put("date", Value::DateTime(0));
        out.put("count", COUNT);
        out.put("one", 1);
    })
}

/// The expression in a text, with long argument lists inserted.
fn expression(text: &str) -> Expression {
    let list = |item: &str| format!("[{}]", vec![item; 8000].join(", "));
    let text = text
        .replace("ARGUMENTS", &list("'$one'"))
        .replace("NOTHINGS", &list("'$none'"))
        .replace("TEXTS", &list("'$$word'"))
        .replace("BRANCHES", &list("{case: '$none', then: 1}"));
    let mut cx = ParseCx::default();
    cx.vars.define("word");
    Expression::parse(&shell::value(&text), &cx).unwrap()
}

/// Evaluates the expression with a work meter.
fn evaluate(text: &str, doc: &DocBuf, kill_at: u64) -> (Result<()>, u64) {
    let random = SeededRandom::new(1);
    let word = [Value::from("a word")];
    let cx = EvalCx { random: Some(&random), vars: &word, ..EvalCx::default() };
    let expression = expression(text);
    killed_at(kill_at, || expression.eval(&cx, doc.as_doc()).map(drop))
}

#[test]
fn every_operator_is_in_a_list() {
    let listed: Vec<&str> = LONG.iter().chain(COUNTED).map(|(name, _)| *name).collect();
    let listed: BTreeSet<&str> = listed.into_iter().chain(SHORT.iter().copied()).collect();
    let known: BTreeSet<&str> = expression_names().collect();
    assert_eq!(listed, known);
}

#[test]
fn long_work_has_looks_at_the_clock_and_ends_when_it_is_killed() {
    let doc = document();
    for (name, text) in LONG {
        let (_, looks) = evaluate(text, &doc, u64::MAX);
        assert!(looks >= LOOKS_MIN, "{name}: {looks} looks");
        let (ended, looks) = evaluate(text, &doc, LOOKS_MIN - 2);
        assert_eq!(ended.map_err(|e| e.code()), Err(ErrorCode::Interrupted), "{name}");
        assert!(looks < LOOKS_MIN + LOOKS_AFTER_KILL_MAX, "{name}: {looks} looks");
    }
}

#[test]
fn work_on_one_large_value_is_counted() {
    let doc = document();
    let (_, looks_of_a_path) = evaluate("'$one'", &doc, u64::MAX);
    for (name, text) in COUNTED {
        let (_, looks) = evaluate(text, &doc, u64::MAX);
        assert!(looks > looks_of_a_path, "{name}");
    }
}

#[test]
fn short_work_in_a_loop_ends_when_it_is_killed() {
    let doc = document();
    for text in [
        "{$map: {input: '$big', in: {$abs: '$$this'}}}",
        "{$map: {input: {$range: [0, 200]}, in: {$map: {input: {$range: [0, 200]}, in: {$map: {input: {$range: [0, 200]}, in: 1}}}}}}",
        "{$map: {input: '$big', in: {$map: {input: '$big', in: {$add: ['$$this', 1]}}}}}",
        "{$filter: {input: '$big', cond: {$in: ['$$this', '$zeros']}}}",
        "{$reduce: {input: '$big', initialValue: [], in: {$concatArrays: ['$$value', ['$$this']]}}}",
        "{$sortArray: {input: '$pairs', sortBy: {v: -1, k: 1}}}",
        "{$map: {input: '$big', in: {$toLower: '$text'}}}",
        "{$map: {input: '$big', in: {$getField: {field: 'none', input: '$object'}}}}",
        "{$map: {input: '$big', in: {$eq: ['$objects', '$objects2']}}}",
    ] {
        let (ended, looks) = evaluate(text, &doc, 100);
        assert_eq!(ended.map_err(|e| e.code()), Err(ErrorCode::Interrupted), "{text}");
        assert!(looks < 250, "{text}: {looks} looks");
    }
}

#[test]
fn work_grows_with_the_size_not_with_its_square() {
    let one_field = |at: u32| Value::from(DocBuf::build(|out| out.put(&format!("field{at}"), 1)));
    let evaluate = |text: &str, doc: &DocBuf| {
        let expression = expression(text);
        expression.eval(&EvalCx::default(), doc.as_doc()).map(drop)
    };
    assert_linear("$mergeObjects", 4000, |size| {
        let doc = doc! { "objects" => Value::array((0..size).map(one_field)) };
        evaluate("{$mergeObjects: '$objects'}", &doc)
    });
    assert_linear("$mergeObjects as an accumulator", 4000, |size| {
        let spec = AccumulatorSpec::parse("$mergeObjects", &"$o".into(), &ParseCx::default())?;
        let mut state = spec.start(&EvalCx::default(), Doc::EMPTY)?;
        for at in 0..size {
            let doc = doc! { "o" => one_field(at) };
            spec.add(&mut state, &EvalCx::default(), doc.as_doc())?;
        }
        spec.result(&state)
    });
    assert_linear("$in over a constant", 4000, |size| {
        let doc = doc! { "list" => Value::array((0..size as i32).map(|at| Value::Int32(-1 - at))) };
        let cond = format!("{{$in: ['$$this', {{$range: [0, {size}]}}]}}");
        evaluate(&format!("{{$filter: {{input: '$list', cond: {cond}}}}}"), &doc)
    });
    assert_linear("an object of many fields", 4000, |size| {
        let object = DocBuf::build(|out| (0..size).for_each(|at| out.put(&format!("f{at}"), "$a")));
        Expression::parse(&object.into(), &ParseCx::default())
    });
}
