//! Strings that are not UTF-8: an operator works on the bytes or fails. It never replaces a character.

use crate::shell;
use kauri_base::Result;
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_expr::{EvalCx, Expression, ParseCx, hash_key};

fn string(bytes: &[u8]) -> Value<'_> {
    Value::string_of_bytes(bytes)
}

/// The document with the fields that the cases name.
fn document() -> DocBuf {
    DocBuf::build(|out| {
        out.put("s", string(b"a\xFFb\xFFc"));
        out.put("ff", string(b"\xFF"));
        out.put("lone", string(b" \x80 "));
        out.put("cut", string(b"ab\xE2\x82"));
        out.put("lead", string(b"\xC3"));
        out.put("tail", string(b"\xA9"));
        out.put("shown", "\u{FFFD}");
        let raw = [&2i32.to_le_bytes()[..], b"\xFE\0"].concat();
        out.put_raw(b"symbol", kauri_bson::Type::Symbol, &raw);
        out.put("list", array![string(b"\xFF"), "b", string(b"\x80")]);
    })
}

fn eval(spec: &str) -> Result<Value<'static>> {
    let expression = Expression::parse(&shell::value(spec), &ParseCx::default())?;
    expression.eval(&EvalCx::default(), document().as_doc()).map(Value::into_owned)
}

#[track_caller]
fn gives(spec: &str, expected: impl Into<Value<'static>>) {
    let found = eval(spec).unwrap_or_else(|error| panic!("{spec}: {error:?}"));
    let expected = expected.into();
    assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{spec}");
}

fn bytes(bytes: &'static [u8]) -> Value<'static> {
    string(bytes)
}

#[track_caller]
fn fails(spec: &str, code: i32) {
    match eval(spec) {
        Err(error) => assert_eq!(error.code().number(), code, "{spec}: {error:?}"),
        Ok(value) => panic!("{spec}: {value:?}"),
    }
}

#[test]
fn operators_that_need_no_characters_take_bytes() {
    gives("{$type: '$s'}", "string");
    gives("{$isNumber: '$s'}", false);
    gives("{$concat: ['$s', 'x', '$ff']}", bytes(b"a\xFFb\xFFcx\xFF"));
    gives("{$concat: ['$lead', '$tail']}", "é");
    gives("{$toUpper: '$s'}", bytes(b"A\xFFB\xFFC"));
    gives("{$toLower: '$symbol'}", bytes(b"\xFE"));
    gives("{$strcasecmp: ['$s', '$ff']}", -1);
    gives("{$strcasecmp: ['$ff', '$shown']}", 1);
    gives("{$strLenBytes: '$s'}", 5);
    gives("{$binarySize: '$s'}", 5);
    gives("{$substrBytes: ['$s', 1, 3]}", bytes(b"\xFFb\xFF"));
    gives("{$substrBytes: ['$s', 2, 1]}", "b");
    gives("{$substrBytes: ['$s', 4, -1]}", "c");
    fails("{$substrBytes: ['$lone', 1, 1]}", 28656);
    gives("{$indexOfBytes: ['$s', '$ff', 2]}", 3);
    gives("{$indexOfBytes: ['$s', '$shown']}", -1);
    gives("{$indexOfBytes: ['é', '$tail']}", 1);
    gives("{$split: ['$s', '$ff']}", array!["a", "b", "c"]);
    gives("{$split: ['$s', 'b']}", array![string(b"a\xFF"), string(b"\xFFc")]);
    gives("{$replaceAll: {input: '$s', find: '$ff', replacement: 'é'}}", "aébéc");
    gives("{$replaceOne: {input: '$s', find: '$ff', replacement: '$lead'}}", bytes(b"a\xC3b\xFFc"));
    gives("{$replaceAll: {input: '$s', find: '$shown', replacement: ''}}", bytes(b"a\xFFb\xFFc"));
    gives("{$toString: '$s'}", bytes(b"a\xFFb\xFFc"));
    gives("{$toBool: '$s'}", true);
    gives("{$literal: '$s'}", "$s");
    gives("{$getField: {field: '$ff', input: '$$ROOT'}}", Value::Missing);
}

#[test]
fn operators_that_need_characters_find_them_or_fail() {
    gives("{$strLenCP: '$cut'}", 3);
    gives("{$strLenCP: '$lone'}", 2);
    gives("{$substrCP: ['$cut', 0, 2]}", "ab");
    gives("{$substrCP: ['$cut', 2, 9]}", bytes(b"\xE2\x82"));
    gives("{$substrCP: ['$cut', 9, 1]}", "");
    fails("{$substrCP: ['$lone', 2, 1]}", 34456);
    fails("{$substrCP: ['$s', 2, 1]}", 34457);
    fails("{$substrCP: ['$lone', 0, 2]}", 34458);
    fails("{$substrCP: ['$s', 0, 2]}", 34459);
    fails("{$indexOfCP: ['$s', 'c']}", 40095);
    fails("{$indexOfCP: ['é', '$tail']}", 40095);
    gives("{$trim: {input: '$lone'}}", bytes(b"\x80"));
    gives("{$ltrim: {input: '$lone'}}", bytes(b"\x80 "));
    gives("{$rtrim: {input: '$s', chars: 'c'}}", bytes(b"a\xFFb\xFF"));
    gives("{$trim: {input: '$ff', chars: '$shown'}}", bytes(b"\xFF"));
    fails("{$trim: {input: 'a', chars: '$tail'}}", 5156305);
    fails("{$trim: {input: 'a', chars: '$lead'}}", 5156304);
    for operator in ["$regexMatch", "$regexFind", "$regexFindAll"] {
        fails(&format!("{{{operator}: {{input: '$s', regex: 'a'}}}}"), 51156);
        fails(&format!("{{{operator}: {{input: 'a', regex: '$ff'}}}}"), 51111);
    }
    gives("{$regexMatch: {input: '$s', regex: null}}", false);
}

#[test]
fn conversions_fail_but_those_to_bytes() {
    for operator in ["$toInt", "$toLong", "$toDouble", "$toDecimal", "$toDate", "$toObjectId"] {
        fails(&format!("{{{operator}: '$s'}}"), 241);
    }
    gives("{$convert: {input: '$s', to: 'int', onError: 7}}", 7);
    fails("{$dateFromString: {dateString: '$s'}}", 241);
    gives("{$dateFromString: {dateString: '$s', onError: 7}}", 7);
    fails("{$arrayToObject: [[['$s', 1]]]}", 22);
    let binary = Value::Binary { subtype: 0, bytes: b"\xFF"[..].into() };
    gives("{$convert: {input: '$ff', to: 'binData', format: 'utf8'}}", binary);
    fails("{$convert: {input: '$ff', to: 'binData', format: 'hex'}}", 241);
}

#[test]
fn comparisons_and_sets_go_by_bytes() {
    gives("{$eq: ['$ff', '$shown']}", false);
    gives("{$gt: ['$ff', '$shown']}", true);
    gives("{$lt: ['$lone', 'z']}", true);
    gives("{$in: ['$ff', '$list']}", true);
    gives("{$in: ['$shown', '$list']}", false);
    gives("{$indexOfArray: ['$list', '$ff']}", 0);
    gives("{$setUnion: ['$list', ['$ff']]}", array!["b", string(b"\x80"), string(b"\xFF")]);
    gives("{$max: '$list'}", bytes(b"\xFF"));
    gives(
        "{$sortArray: {input: '$list', sortBy: 1}}",
        array!["b", string(b"\x80"), string(b"\xFF")],
    );
}

#[test]
fn hashes_depend_on_bytes() {
    let texts: [&[u8]; 5] = [b"\xFF", b"\xFE", b"\xEF\xBF\xBD", b"\x80", b""];
    let hashes: std::collections::HashSet<i64> =
        texts.iter().map(|text| hash_key(&string(text))).collect();
    assert_eq!(hashes.len(), texts.len());
    // Alone and in a document, code with scope hashes the bytes of the code and the elements of the scope.
    let scoped = |code: &[u8], scope: &DocBuf| {
        let length = (4 + 4 + code.len() + 1 + scope.as_bytes().len()) as i32;
        let text = (code.len() as i32 + 1).to_le_bytes();
        let raw = [&length.to_le_bytes()[..], &text, code, b"\0", scope.as_bytes()].concat();
        DocBuf::build(|out| out.put_raw(b"c", kauri_bson::Type::CodeWithScope, &raw))
    };
    let (one, long) = (doc! { "x" => 1 }, doc! { "x" => 1i64 });
    for within in [false, true] {
        let hash = |code: &[u8], scope: &DocBuf| {
            let doc = scoped(code, scope);
            if within { hash_key(&Value::from(&doc)) } else { hash_key(&doc.as_doc().value("c")) }
        };
        // Numbers hash by value whether the code is UTF-8 or not.
        assert_eq!(hash(b"f", &one), hash(b"f", &long));
        assert_eq!(hash(b"\xFF", &one), hash(b"\xFF", &long));
        assert_ne!(hash(b"\xFF", &one), hash(b"\xFE", &one));
    }
}

#[test]
fn paths_are_refused_and_other_literals_kept() {
    let parse = |value: &Value<'_>| Expression::parse(value, &ParseCx::default());
    let error = parse(&string(b"$a\xFF")).unwrap_err();
    assert_eq!(error.code().number(), 22, "{error:?}");
    let literal = parse(&string(b"a\xFF")).unwrap();
    assert_eq!(literal.as_constant(), Some(&string(b"a\xFF")));
    let set = doc! { "$setField" => doc! {
        "field" => string(b"a\xFF"), "input" => "$$ROOT", "value" => 1,
    } };
    assert_eq!(parse(&Value::from(&set)).unwrap_err().code().number(), 22);
}
