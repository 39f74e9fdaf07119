//! The details of a validation failure.

use kauri_bson::{DocBuf, Value, array, doc};
use kauri_matcher::{MatchCx, MatchExpr, ParseCx, Place};

fn check(cases: Vec<(DocBuf, DocBuf, DocBuf)>) {
    let cx = MatchCx::new();
    for (validator, document, expected) in cases {
        let tree = MatchExpr::parse(validator.as_doc(), &ParseCx::new(Place::Validator)).unwrap();
        assert!(!tree.matches(document.as_doc(), &cx).unwrap(), "{validator:?} on {document:?}");
        let details = tree.explain_mismatch(document.as_doc(), &cx).unwrap();
        assert_eq!(details, expected, "{validator:?} on {document:?}");
    }
}

fn op<'v>(key: &str, operator: &str, operand: impl Into<Value<'v>>) -> DocBuf {
    let operand = operand.into();
    doc! { key => doc! { operator => operand } }
}

#[test]
fn operators() {
    let gt = || op("a", "$gt", 5);
    check(vec![
        (
            gt(),
            doc! { "a" => 3 },
            doc! { "operatorName" => "$gt", "specifiedAs" => gt(), "reason" => "comparison failed", "consideredValue" => 3 },
        ),
        (
            gt(),
            doc! {},
            doc! { "operatorName" => "$gt", "specifiedAs" => gt(), "reason" => "field was missing" },
        ),
        (
            gt(),
            doc! { "a" => array![1, 2] },
            doc! { "operatorName" => "$gt", "specifiedAs" => gt(), "reason" => "comparison failed",
            "consideredValues" => array![1, 2, array![1, 2]] },
        ),
        (
            op("a", "$exists", true),
            doc! {},
            doc! { "operatorName" => "$exists", "specifiedAs" => op("a", "$exists", true), "reason" => "path does not exist" },
        ),
        (
            op("a", "$ne", 1),
            doc! { "a" => 1 },
            doc! { "operatorName" => "$ne", "specifiedAs" => op("a", "$ne", 1), "reason" => "comparison succeeded", "consideredValue" => 1 },
        ),
        (
            op("a", "$exists", false),
            doc! { "a" => 1 },
            doc! { "operatorName" => "$exists", "specifiedAs" => op("a", "$exists", false), "reason" => "path does exist", "consideredValue" => 1 },
        ),
        (
            op("a", "$type", "string"),
            doc! { "a" => 1 },
            doc! { "operatorName" => "$type", "specifiedAs" => op("a", "$type", "string"), "reason" => "type did not match",
            "consideredValue" => 1, "consideredType" => "int" },
        ),
        (
            op("a", "$type", array![2, "number"]),
            doc! { "a" => true },
            doc! { "operatorName" => "$type", "specifiedAs" => op("a", "$type", array![2, "number"]), "reason" => "type did not match",
            "consideredValue" => true, "consideredType" => "bool" },
        ),
        (
            doc! { "$or" => array![gt(), op("b", "$size", 1)] },
            doc! { "a" => 1, "b" => array![] },
            doc! { "operatorName" => "$or", "clausesNotSatisfied" => array![
                doc! { "index" => 0, "details" => doc! { "operatorName" => "$gt", "specifiedAs" => gt(), "reason" => "comparison failed", "consideredValue" => 1 } },
                doc! { "index" => 1, "details" => doc! { "operatorName" => "$size", "specifiedAs" => op("b", "$size", 1),
                "reason" => "array length was not equal to given size", "consideredValue" => array![] } },
            ] },
        ),
        (
            doc! { "$nor" => array![gt(), op("a", "$lt", 0)] },
            doc! { "a" => 9 },
            doc! { "operatorName" => "$nor", "clausesSatisfied" => array![
                doc! { "index" => 0, "details" => doc! { "operatorName" => "$gt", "specifiedAs" => gt(), "reason" => "comparison succeeded", "consideredValue" => 9 } },
            ] },
        ),
        (
            op("a", "$not", doc! { "$gt" => 5 }),
            doc! { "a" => 9 },
            doc! { "operatorName" => "$not", "details" => doc! { "operatorName" => "$gt", "specifiedAs" => gt(), "reason" => "comparison succeeded", "consideredValue" => 9 } },
        ),
        (
            doc! { "$expr" => doc! { "$gt" => array!["$a", "$b"] } },
            doc! { "a" => 1, "b" => 2 },
            doc! { "operatorName" => "$expr", "specifiedAs" => doc! { "$expr" => doc! { "$gt" => array!["$a", "$b"] } },
            "reason" => "expression did not match", "expressionResult" => false },
        ),
    ]);
}

/// The only violated rule of a schema.
fn rule(schema: DocBuf, document: DocBuf, expected: DocBuf) {
    let validator = doc! { "$jsonSchema" => schema };
    let expected =
        doc! { "operatorName" => "$jsonSchema", "schemaRulesNotSatisfied" => array![expected] };
    check(vec![(validator, document, expected)]);
}

/// The only violated rule of a property's schema.
fn property_rule<'v>(schema: DocBuf, value: impl Into<Value<'v>>, expected: DocBuf) {
    let value = value.into();
    rule(
        doc! { "properties" => doc! { "a" => schema } },
        doc! { "a" => value },
        doc! { "operatorName" => "properties", "propertiesNotSatisfied" => array![
            doc! { "propertyName" => "a", "details" => array![expected] },
        ] },
    );
}

#[test]
fn schema_keywords_on_values() {
    let simple = |name: &str, operand: Value<'_>, reason: &str, value: Value<'_>| {
        doc! { "operatorName" => name, "specifiedAs" => doc! { name => operand }, "reason" => reason, "consideredValue" => value }
    };
    let cases: Vec<(&str, Value<'_>, Value<'_>, &str)> = vec![
        ("minimum", 5.into(), 3.into(), "comparison failed"),
        ("maximum", 5.into(), 7.into(), "comparison failed"),
        (
            "multipleOf",
            5.into(),
            7.into(),
            "considered value is not a multiple of the specified value",
        ),
        ("minLength", 3.into(), "x".into(), "specified string length was not satisfied"),
        ("maxLength", 3.into(), "four".into(), "specified string length was not satisfied"),
        ("pattern", "^x".into(), "y".into(), "regular expression did not match"),
        ("enum", array![1, 2], 3.into(), "value was not found in enum"),
        ("minItems", 2.into(), array![1], "array did not match specified length"),
        ("maxItems", 0.into(), array![1], "array did not match specified length"),
        ("uniqueItems", true.into(), array![1, 1], "found a duplicate item"),
    ];
    for (name, operand, value, reason) in cases {
        let expected = simple(name, operand.clone(), reason, value.clone());
        property_rule(doc! { name => operand }, value, expected);
    }
    property_rule(
        doc! { "bsonType" => "string" },
        7,
        doc! { "operatorName" => "bsonType", "specifiedAs" => doc! { "bsonType" => "string" }, "reason" => "type did not match",
        "consideredValue" => 7, "consideredType" => "int" },
    );
}

#[test]
fn schema_keywords_on_objects() {
    rule(
        doc! { "required" => array!["a", "b", "c"] },
        doc! { "b" => 1 },
        doc! { "operatorName" => "required", "specifiedAs" => doc! { "required" => array!["a", "b", "c"] },
        "missingProperties" => array!["a", "c"] },
    );
    rule(
        doc! { "maxProperties" => 1 },
        doc! { "a" => 1, "b" => 2 },
        doc! { "operatorName" => "maxProperties", "specifiedAs" => doc! { "maxProperties" => 1 },
        "reason" => "specified number of properties was not satisfied", "numberOfProperties" => 2 },
    );
    rule(
        doc! { "properties" => doc! { "a" => doc! {} }, "additionalProperties" => false },
        doc! { "a" => 1, "x" => 2, "y" => 3 },
        doc! { "operatorName" => "additionalProperties", "specifiedAs" => doc! { "additionalProperties" => false },
        "additionalProperties" => array!["x", "y"] },
    );
    let minimum = |value: i32| {
        doc! { "operatorName" => "minimum", "specifiedAs" => doc! { "minimum" => 5 }, "reason" => "comparison failed", "consideredValue" => value }
    };
    rule(
        doc! { "additionalProperties" => doc! { "minimum" => 5 } },
        doc! { "a" => 9, "b" => 1 },
        doc! { "operatorName" => "additionalProperties", "reason" => "at least one additional property did not match the subschema",
        "failingProperty" => "b", "details" => array![minimum(1)] },
    );
    rule(
        doc! { "patternProperties" => doc! { "^n" => doc! { "minimum" => 5 } } },
        doc! { "n1" => 9, "n2" => 1 },
        doc! { "operatorName" => "patternProperties", "details" => array![
            doc! { "propertyName" => "n2", "regexMatched" => "^n", "details" => array![minimum(1)] },
        ] },
    );
    rule(
        doc! { "dependencies" => doc! { "a" => array!["b", "c"] } },
        doc! { "a" => 9, "b" => 1 },
        doc! { "operatorName" => "dependencies", "failingDependencies" => array![
            doc! { "conditionalProperty" => "a", "missingProperties" => array!["c"] },
        ] },
    );
    rule(
        doc! { "properties" => doc! { "a" => doc! { "title" => "T", "description" => "D", "minimum" => 5 } } },
        doc! { "a" => 2 },
        doc! { "operatorName" => "properties", "propertiesNotSatisfied" => array![
            doc! { "propertyName" => "a", "title" => "T", "description" => "D", "details" => array![minimum(2)] },
        ] },
    );
}

#[test]
fn schema_keywords_on_arrays_and_schemas() {
    let minimum = |value: i32| {
        doc! { "operatorName" => "minimum", "specifiedAs" => doc! { "minimum" => 5 }, "reason" => "comparison failed", "consideredValue" => value }
    };
    let item = |name: &str, index: i32, details: DocBuf| {
        doc! { "operatorName" => name, "reason" => "At least one item did not match the sub-schema", "itemIndex" => index, "details" => array![details] }
    };
    let five = || doc! { "minimum" => 5 };
    property_rule(doc! { "items" => five() }, array![9, 1], item("items", 1, minimum(1)));
    property_rule(
        doc! { "items" => array![doc! {}, five()] },
        array![1, 1],
        item("items", 1, minimum(1)),
    );
    property_rule(
        doc! { "items" => array![doc! {}], "additionalItems" => five() },
        array![1, 9, 1],
        item("additionalItems", 2, minimum(1)),
    );
    property_rule(
        doc! { "items" => array![doc! {}], "additionalItems" => false },
        array![1, 9, 1],
        doc! { "operatorName" => "additionalItems", "specifiedAs" => doc! { "additionalItems" => false },
        "reason" => "found additional items", "additionalItems" => array![9, 1] },
    );
    let not_satisfied = |name: &str| {
        doc! { "operatorName" => name, "schemasNotSatisfied" => array![doc! { "index" => 0, "details" => array![minimum(1)] }] }
    };
    property_rule(doc! { "allOf" => array![five(), doc! {}] }, 1, not_satisfied("allOf"));
    property_rule(doc! { "anyOf" => array![five()] }, 1, not_satisfied("anyOf"));
    property_rule(doc! { "oneOf" => array![five()] }, 1, not_satisfied("oneOf"));
    property_rule(
        doc! { "oneOf" => array![five(), doc! { "maximum" => 0 }, doc! {}] },
        7,
        doc! { "operatorName" => "oneOf", "reason" => "more than one subschema matched", "matchingSchemaIndexes" => array![0, 2] },
    );
    property_rule(
        doc! { "not" => five() },
        7,
        doc! { "operatorName" => "not", "reason" => "child expression matched" },
    );
}

#[test]
fn details_stay_small() {
    let parse = |validator: DocBuf| {
        MatchExpr::parse(validator.as_doc(), &ParseCx::new(Place::Validator)).unwrap()
    };
    let details = |tree: MatchExpr, document: &DocBuf| {
        tree.explain_mismatch(document.as_doc(), &MatchCx::new()).unwrap()
    };
    // A large value is omitted.
    let long = doc! { "a" => "x".repeat(2 << 20) };
    let expected = doc! { "operatorName" => "$gt", "specifiedAs" => op("a", "$gt", 5), "reason" => "comparison failed" };
    assert_eq!(details(parse(op("a", "$gt", 5)), &long), expected);
    // Many shown values are too large in total.
    let medium = doc! { "a" => "x".repeat(60_000) };
    let too_large = doc! { "reason" => "the details are too large to be shown" };
    let branches = Value::array((0..100).map(|n| Value::from(op("a", "$gt", n))));
    assert_eq!(details(parse(doc! { "$or" => branches }), &medium), too_large);
    let schemas = Value::array((0..100).map(|n| Value::from(doc! { "minLength" => 60_001 + n })));
    let schema = doc! { "properties" => doc! { "a" => doc! { "anyOf" => schemas } } };
    assert_eq!(details(parse(doc! { "$jsonSchema" => schema }), &medium), too_large);
}
