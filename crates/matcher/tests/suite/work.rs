//! Filters with many branches over long arrays. They end when their operation is killed, and their work is
//! linear in the size.

use kauri_base::probe::{assert_linear, killed_at};
use kauri_base::{ErrorCode, Result};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_matcher::{MatchCx, Matcher, ParseCx, Place, is_subset_of};

/// Elements and fields of the document.
const COUNT: u32 = 20_000;
/// The clock read at which operations are killed.
const KILL_AT: u64 = 3;

fn numbers(count: u32) -> Value<'static> {
    Value::array((0..count as i32).map(Value::Int32))
}

fn objects(count: u32) -> Value<'static> {
    Value::array((0..count as i32).map(|at| Value::from(doc! { "x" => at })))
}

fn document(count: u32) -> DocBuf {
    DocBuf::build(|out| {
        out.put("n", numbers(count));
        out.put("objects", objects(count));
        out.put("texts", Value::array((0..count).map(|_| Value::from("lorem ipsum"))));
        out.put("bits", Value::array((0..count).map(|_| Value::Int32(0))));
        (0..count).for_each(|at| out.put(&format!("f{at}"), at as i32));
    })
}

fn matches(filter: &DocBuf, doc: &DocBuf) -> Result<bool> {
    let filter = Matcher::parse(filter.as_doc(), &ParseCx::new(Place::Find))?;
    filter.matches(doc.as_doc(), &MatchCx::new())
}

fn on(path: &str, operator: &str, operand: impl Into<Value<'static>>) -> DocBuf {
    let operand = operand.into();
    let predicate = DocBuf::build(|out| out.put_value(operator, &operand));
    DocBuf::build(|out| out.put(path, predicate.clone()))
}

fn branches(count: u32) -> Value<'static> {
    Value::array((0..count as i32).map(|at| Value::from(on("n", "$lt", -1 - at))))
}

#[test]
fn every_predicate_ends_when_its_operation_is_killed() {
    let doc = document(COUNT);
    let schema = |rules: DocBuf| doc! { "$jsonSchema" => doc! { "properties" => rules } };
    let rules =
        |name: &'static str, rule: DocBuf| schema(DocBuf::build(|out| out.put(name, rule.clone())));
    let regexes = Value::array(
        (0..50).map(|at| Value::Regex { pattern: format!("none{at}").into(), options: "".into() }),
    );
    let cases = [
        on("n", "$eq", -1),
        on("n", "$gt", COUNT as i32),
        on("n", "$in", array![-1, -2]),
        on("n", "$nin", array![-1, -2]),
        on("n", "$all", numbers(COUNT)),
        on("n", "$size", 5),
        on("n", "$mod", array![100_000, 99_999]),
        on("n", "$type", "string"),
        on("n", "$elemMatch", doc! { "$lt" => 0 }),
        on("n.x", "$exists", true),
        on("objects", "$elemMatch", doc! { "x" => -1 }),
        on("objects.x", "$eq", -1),
        on("objects.x", "$ne", -1),
        on("texts", "$regex", "none"),
        on("texts", "$in", regexes),
        on("bits", "$bitsAllSet", 1),
        doc! { "$or" => branches(COUNT) },
        doc! { "$nor" => branches(COUNT) },
        doc! { "$and" => branches(COUNT) },
        doc! { "n" => doc! { "$not" => doc! { "$lt" => 0 } } },
        doc! { "$expr" => doc! { "$in" => array![-1, "$n"] } },
        rules("n", doc! { "items" => doc! { "minimum" => 0 } }),
        rules("n", doc! { "uniqueItems" => true }),
        rules("objects", doc! { "uniqueItems" => true }),
        rules("n", doc! { "maxItems" => 5 }),
        rules("n", doc! { "items" => doc! { "enum" => numbers(COUNT) } }),
        doc! { "$jsonSchema" => doc! { "additionalProperties" => true, "patternProperties" =>
        doc! { "none" => doc! {} } } },
    ];
    for filter in cases {
        let (ended, looks) = killed_at(KILL_AT, || matches(&filter, &doc));
        let name = kauri_bson::shell_text(filter.as_doc());
        let name = name.get(..80).unwrap_or(&name);
        assert_eq!(ended.map_err(|e| e.code()), Err(ErrorCode::Interrupted), "{name}");
        assert!(looks <= KILL_AT + 20, "{name}: {looks} looks");
    }
}

#[test]
fn work_grows_with_the_size_not_with_its_square() {
    let names = |size: u32| Value::array((0..size).map(|at| Value::from(format!("f{at}"))));
    let equalities =
        |size: u32| Value::array((0..size as i32).map(|at| Value::from(doc! { "n" => -1 - at })));
    assert_linear("$or of equalities", 2000, |size| {
        let filter = Matcher::parse(
            doc! { "$or" => equalities(size) }.as_doc(),
            &ParseCx::new(Place::Find),
        )?;
        let filter = Matcher::new(filter.into_expr().optimize());
        filter.matches(document(size).as_doc(), &MatchCx::new())
    });
    assert_linear("$in", 2000, |size| {
        let list = Value::array((0..size as i32).map(|at| Value::Int32(-1 - at)));
        matches(&on("n", "$in", list), &document(size))
    });
    assert_linear("$all", 2000, |size| matches(&on("n", "$all", numbers(size)), &document(size)));
    assert_linear("required", 2000, |size| {
        matches(&doc! { "$jsonSchema" => doc! { "required" => names(size) } }, &document(size))
    });
    assert_linear("properties", 2000, |size| {
        let rules = DocBuf::build(|out| {
            (0..size).for_each(|at| out.put(&format!("f{at}"), doc! { "minimum" => 0 }));
        });
        matches(&doc! { "$jsonSchema" => doc! { "properties" => rules } }, &document(size))
    });
    assert_linear("dependencies", 2000, |size| {
        let rules = DocBuf::build(|out| {
            (0..size).for_each(|at| out.put(&format!("f{at}"), array!["f0"]));
        });
        matches(&doc! { "$jsonSchema" => doc! { "dependencies" => rules } }, &document(size))
    });
    assert_linear("enum", 2000, |size| {
        matches(&doc! { "$jsonSchema" => doc! { "enum" => numbers(size) } }, &document(size))
    });
    assert_linear("uniqueItems", 2000, |size| {
        let unique = doc! { "objects" => doc! { "uniqueItems" => true } };
        matches(&doc! { "$jsonSchema" => doc! { "properties" => unique } }, &document(size))
    });
    assert_linear("a subset of a list", 2000, |size| {
        let narrow =
            Matcher::parse(on("n", "$in", numbers(size)).as_doc(), &ParseCx::new(Place::Find))?;
        let wide =
            Matcher::parse(on("n", "$in", numbers(2 * size)).as_doc(), &ParseCx::new(Place::Find))?;
        assert!(is_subset_of(narrow.expr(), wide.expr()));
        Ok(())
    });
}
