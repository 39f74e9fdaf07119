//! `$jsonSchema`: the values that each keyword allows, and rejected schemas.

use kauri_bson::{Decimal128, DocBuf, Value, array, doc};
use kauri_matcher::{MatchCx, MatchExpr, ParseCx, Place};

fn parse(schema: &DocBuf) -> kauri_base::Result<MatchExpr> {
    let filter = doc! { "$jsonSchema" => schema };
    MatchExpr::parse(filter.as_doc(), &ParseCx::new(Place::Validator))
}

/// Checks the schema of a field `a` on documents `{a: value}`.
fn check_field<'v>(cases: Vec<(DocBuf, Value<'v>, bool)>) {
    for (schema, value, expected) in cases {
        let whole = doc! { "properties" => doc! { "a" => schema } };
        let document = doc! { "a" => value };
        let found = parse(&whole).unwrap().matches(document.as_doc(), &MatchCx::new()).unwrap();
        assert_eq!(found, expected, "{whole:?} on {document:?}");
    }
}

fn check(cases: Vec<(DocBuf, DocBuf, bool)>) {
    for (schema, document, expected) in cases {
        let found = parse(&schema).unwrap().matches(document.as_doc(), &MatchCx::new()).unwrap();
        assert_eq!(found, expected, "{schema:?} on {document:?}");
    }
}

fn decimal(text: &str) -> Value<'static> {
    Value::Decimal128(Decimal128::parse(text).unwrap())
}

#[test]
fn types() {
    check_field(vec![
        (doc! { "type" => "number" }, decimal("1"), true),
        (doc! { "type" => "number" }, "1".into(), false),
        (doc! { "type" => array!["string", "null"] }, Value::Null, true),
        (doc! { "bsonType" => "int" }, 1.into(), true),
        (doc! { "bsonType" => "int" }, 1i64.into(), false),
        (doc! { "bsonType" => array!["long", "objectId"] }, Value::ObjectId([1; 12]), true),
        (doc! { "bsonType" => "number" }, 1.5.into(), true),
        (doc! { "type" => "object" }, array![], false),
        (doc! { "type" => "array" }, array![], true),
        (doc! { "bsonType" => "int" }, array![1], false),
    ]);
    check(vec![
        (doc! { "bsonType" => "object" }, doc! {}, true),
        (doc! { "bsonType" => "array" }, doc! {}, false),
        (doc! { "properties" => doc! { "a" => doc! { "type" => "string" } } }, doc! {}, true),
        (doc! {}, doc! { "a" => 1 }, true),
    ]);
}

#[test]
fn numbers() {
    check_field(vec![
        (doc! { "minimum" => 3 }, 3.into(), true),
        (doc! { "minimum" => 3 }, 2.9.into(), false),
        (doc! { "minimum" => 3 }, "2".into(), true),
        (doc! { "minimum" => 3, "exclusiveMinimum" => true }, 3.into(), false),
        (doc! { "maximum" => 3, "exclusiveMaximum" => false }, 3i64.into(), true),
        (doc! { "maximum" => 3, "exclusiveMaximum" => true }, 3.into(), false),
        (doc! { "maximum" => 3 }, Value::Double(f64::NAN), false),
        (doc! { "minimum" => decimal("0.1") }, 0.1.into(), true),
        (doc! { "multipleOf" => 3 }, 9.into(), true),
        (doc! { "multipleOf" => 3 }, 10.into(), false),
        (doc! { "multipleOf" => 0.1 }, 0.3.into(), true),
        (doc! { "multipleOf" => decimal("0.5") }, 1.5.into(), true),
        (doc! { "multipleOf" => 3 }, "x".into(), true),
    ]);
}

#[test]
fn strings() {
    check_field(vec![
        (doc! { "minLength" => 2 }, "éé".into(), true),
        (doc! { "minLength" => 3 }, "éé".into(), false),
        (doc! { "maxLength" => 2 }, "éé".into(), true),
        (doc! { "maxLength" => 1i64 }, "éé".into(), false),
        (doc! { "pattern" => "^x" }, "xy".into(), true),
        (doc! { "pattern" => "^x" }, "yx".into(), false),
        (doc! { "pattern" => "^x" }, 3.into(), true),
        (doc! { "title" => "t", "description" => "d" }, 3.into(), true),
    ]);
}

#[test]
fn arrays() {
    let two = || array![doc! { "type" => "number" }, doc! { "type" => "string" }];
    check_field(vec![
        (doc! { "minItems" => 1, "maxItems" => 2 }, array![1], true),
        (doc! { "minItems" => 1 }, array![], false),
        (doc! { "maxItems" => 2 }, array![1, 2, 3], false),
        (doc! { "uniqueItems" => true }, array![1, 2], true),
        (doc! { "uniqueItems" => true }, array![1, 2, 1.0], false),
        (doc! { "uniqueItems" => false }, array![1, 1], true),
        (
            doc! { "uniqueItems" => true },
            array![doc! { "x" => 1, "y" => 2 }, doc! { "y" => 2, "x" => 1 }],
            false,
        ),
        (doc! { "items" => doc! { "type" => "number" } }, array![1, 2.5], true),
        (doc! { "items" => doc! { "type" => "number" } }, array![1, "x"], false),
        (doc! { "items" => two() }, array![1, "x", true], true),
        (doc! { "items" => two() }, array!["x", 1], false),
        (doc! { "items" => two(), "additionalItems" => false }, array![1, "x"], true),
        (doc! { "items" => two(), "additionalItems" => false }, array![1, "x", 2], false),
        (
            doc! { "items" => two(), "additionalItems" => doc! { "type" => "boolean" } },
            array![1, "x", true],
            true,
        ),
        (doc! { "additionalItems" => false }, array![1], true),
        (doc! { "minItems" => 5 }, "x".into(), true),
    ]);
}

#[test]
fn objects() {
    let only_a =
        || doc! { "properties" => doc! { "a" => doc! {} }, "additionalProperties" => false };
    let starred = || {
        doc! {
            "patternProperties" => doc! { "^s_" => doc! { "type" => "string" } },
            "additionalProperties" => doc! { "type" => "number" },
        }
    };
    check(vec![
        (doc! { "required" => array!["a", "b"] }, doc! { "a" => Value::Null, "b" => 1 }, true),
        (doc! { "required" => array!["a", "b"] }, doc! { "a" => 1 }, false),
        (doc! { "minProperties" => 2 }, doc! { "_id" => 1, "a" => 1 }, true),
        (doc! { "maxProperties" => 1 }, doc! { "_id" => 1, "a" => 1 }, false),
        (only_a(), doc! { "a" => 1 }, true),
        (only_a(), doc! { "a" => 1, "b" => 1 }, false),
        (starred(), doc! { "s_x" => "x", "n" => 1 }, true),
        (starred(), doc! { "s_x" => 1 }, false),
        (starred(), doc! { "n" => "x" }, false),
        (
            doc! { "dependencies" => doc! { "a" => array!["b", "c"] } },
            doc! { "a" => 1, "b" => 1 },
            false,
        ),
        (doc! { "dependencies" => doc! { "a" => array!["b"] } }, doc! { "c" => 1 }, true),
        (
            doc! { "dependencies" => doc! { "a" => doc! { "required" => array!["b"] } } },
            doc! { "a" => 1 },
            false,
        ),
        (
            doc! { "properties" => doc! { "a" => doc! { "required" => array!["x"] } } },
            doc! { "a" => doc! { "y" => 1 } },
            false,
        ),
        (
            doc! { "properties" => doc! { "a" => doc! { "required" => array!["x"] } } },
            doc! { "a" => 5 },
            true,
        ),
    ]);
}

#[test]
fn combinations_and_values() {
    let number = || doc! { "type" => "number" };
    let small = || doc! { "maximum" => 5 };
    check_field(vec![
        (doc! { "allOf" => array![number(), small()] }, 3.into(), true),
        (doc! { "allOf" => array![number(), small()] }, 9.into(), false),
        (doc! { "anyOf" => array![doc! { "type" => "string" }, small()] }, 9.into(), false),
        (doc! { "anyOf" => array![doc! { "type" => "string" }, small()] }, "x".into(), true),
        (doc! { "oneOf" => array![number(), small()] }, 3.into(), false),
        (doc! { "oneOf" => array![number(), small()] }, 9.into(), true),
        (doc! { "not" => number() }, 9.into(), false),
        (doc! { "not" => number() }, "x".into(), true),
        (doc! { "enum" => array![1, "x", Value::Null] }, 1.0.into(), true),
        (doc! { "enum" => array![1, "x"] }, 2.into(), false),
        (doc! { "enum" => array![1] }, array![1], false),
        (
            doc! { "enum" => array![doc! { "x" => 1, "y" => 2 }] },
            doc! { "y" => 2, "x" => 1 }.into(),
            true,
        ),
    ]);
}

#[test]
fn refused_schemas() {
    let cases = [
        (doc! { "type" => 1 }, 14, "must be either a string or an array of strings"),
        (doc! { "type" => "int" }, 2, "Unknown type name alias: int"),
        (doc! { "type" => "integer" }, 9, "$jsonSchema type 'integer' is not currently supported."),
        (doc! { "type" => array![] }, 9, "must name at least one type"),
        (doc! { "type" => array!["null", "null"] }, 9, "has duplicate value: null"),
        (
            doc! { "type" => "null", "bsonType" => "null" },
            9,
            "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
        ),
        (doc! { "bsonType" => "foo" }, 2, "Unknown type name alias: foo"),
        (doc! { "minimum" => "1" }, 14, "$jsonSchema keyword 'minimum' must be a number"),
        (
            doc! { "exclusiveMaximum" => true },
            9,
            "'maximum' must be a present if 'exclusiveMaximum' is present",
        ),
        (doc! { "minLength" => -1 }, 9, "Expected a non-negative number in: minLength: -1"),
        (doc! { "maxLength" => 1.5 }, 9, "Expected an integer: maxLength: 1.5"),
        (doc! { "pattern" => "(" }, 51091, "Regular expression is invalid"),
        (doc! { "patternProperties" => doc! { "(" => doc! {} } }, 2, "Invalid regular expression"),
        (doc! { "multipleOf" => 0 }, 9, "must have a positive value"),
        (doc! { "required" => array![] }, 9, "'required' cannot be an empty array"),
        (doc! { "required" => array!["a", "a"] }, 9, "cannot contain duplicate values"),
        (doc! { "required" => array![1] }, 14, "must be an array of strings"),
        (doc! { "properties" => 1 }, 14, "$jsonSchema keyword 'properties' must be an object"),
        (
            doc! { "properties" => doc! { "a" => 1 } },
            14,
            "Nested schema for $jsonSchema property 'a' must be an object",
        ),
        (doc! { "allOf" => array![] }, 2, "$jsonSchema keyword 'allOf' must be a non-empty array"),
        (doc! { "oneOf" => array![1] }, 14, "must be an array of objects"),
        (doc! { "not" => 1 }, 14, "$jsonSchema keyword 'not' must be an object"),
        (doc! { "enum" => array![] }, 9, "'enum' cannot be an empty array"),
        (doc! { "enum" => array![1, 1.0] }, 9, "cannot contain duplicate values"),
        (doc! { "dependencies" => doc! { "a" => array![] } }, 9, "cannot be an empty array"),
        (doc! { "additionalProperties" => 1 }, 14, "must be either an object or a boolean"),
        (doc! { "uniqueItems" => 1 }, 14, "must be a boolean"),
        (doc! { "title" => 1 }, 14, "$jsonSchema keyword 'title' must be of type string"),
        (doc! { "$ref" => "x" }, 9, "$jsonSchema keyword '$ref' is not currently supported"),
        (
            doc! { "encrypt" => doc! {} },
            9,
            "$jsonSchema keyword 'encrypt' is not currently supported",
        ),
        (doc! { "foo" => 1 }, 9, "Unknown $jsonSchema keyword: foo"),
        (doc! { "minItems" => 1, "minItems" => 2 }, 9, "Duplicate $jsonSchema keyword: minItems"),
    ];
    for (schema, code, message) in cases {
        let error = parse(&schema).expect_err(&format!("{schema:?}"));
        assert_eq!(error.code().number(), code, "{schema:?}: {error:?}");
        assert!(error.message().contains(message), "{schema:?}: {error:?}");
    }
    let error = MatchExpr::parse(doc! { "$jsonSchema" => 1 }.as_doc(), &ParseCx::new(Place::Find));
    assert_eq!(error.unwrap_err().message(), "$jsonSchema must be an object");
}
