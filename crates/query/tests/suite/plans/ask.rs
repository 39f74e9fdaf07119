//! Random indexes and queries over documents from the matcher's generator.

use super::naive;
use crate::generate::Generator;
use crate::matching;
use bson::{Bson, Document, Regex, doc};

/// Paths of indexes.
const INDEXED: [&str; 14] =
    ["a", "b", "c", "a", "b", "a.b", "a.c", "b.a", "b.c", "a.b.c", "a.0", "b.1", "c.a", "c.a.b"];
/// Paths of sorts.
const SORTED: [&str; 9] = ["a", "b", "c", "a.b", "a.c", "b.a", "c.a", "_id", "a.b.c"];

/// A filter, and its equivalent for the reference, which knows fewer forms.
pub struct Filter {
    pub asked: Document,
    plain: Document,
    expression: Option<(String, &'static str, Bson)>,
}

impl Filter {
    pub fn matches(&self, doc: &Document) -> bool {
        let expression = self.expression.as_ref();
        matching::matches(&self.plain, doc)
            && expression.is_none_or(|(field, op, value)| naive::expression(doc, field, op, value))
    }
}

/// A query, without a plan.
pub struct Ask {
    pub filter: Filter,
    pub sort: Vec<(String, bool)>,
    pub skip: u64,
    pub limit: u64,
    pub projection: Option<Document>,
}

impl Ask {
    pub fn sort_spec(&self) -> Document {
        let fields = self.sort.iter().map(|(path, descending)| {
            (path.clone(), Bson::Int32(if *descending { -1 } else { 1 }))
        });
        fields.collect()
    }
}

/// An index's specification, which may be invalid.
pub fn index(generator: &Generator, number: usize) -> Document {
    let mut key = Document::new();
    for _ in 0..generator.pick(&[1, 1, 1, 2, 2, 3]) {
        let direction = if generator.below(3) == 0 { -1 } else { 1 };
        key.insert(generator.pick(&INDEXED), direction);
    }
    let mut spec = doc! { "key": key, "name": format!("index{number}") };
    match generator.below(10) {
        0 => drop(spec.insert("unique", true)),
        1 | 2 => drop(spec.insert("sparse", true)),
        3..=5 => drop(spec.insert("partialFilterExpression", partial(generator))),
        _ => {}
    }
    spec
}

fn partial(generator: &Generator) -> Document {
    let field = generator.pick(&["a", "b", "c", "a.b"]);
    match generator.below(6) {
        0 | 1 => doc! { field: { "$exists": true } },
        2 => doc! { field: { "$gt": generator.pick(&[-1, 0, 1]) } },
        3 => doc! { field: { "$type": generator.pick(&["number", "string", "array"]) } },
        4 => doc! { field: { "$gte": "" }, "c": { "$lte": 2 } },
        _ => generator.single(),
    }
}

/// A document with few values below arrays and documents. Conditions on several fields of an index match the
/// same value or different ones.
pub fn grid(generator: &Generator) -> Document {
    let small = || generator.below(3) as i32;
    let cell = || doc! { "b": small(), "c": small() };
    let mut doc = Document::new();
    match generator.below(4) {
        0 => drop(doc.insert("a", cell())),
        1 => drop(doc.insert("a", vec![small(), small()])),
        _ => drop(doc.insert("a", vec![cell(), cell()])),
    }
    match generator.below(3) {
        0 => drop(doc.insert("b", vec![doc! { "a": small(), "c": small() }])),
        _ => drop(doc.insert("b", doc! { "a": small(), "c": small() })),
    }
    doc.insert("c", small());
    doc
}

/// A query. `indexed` has the first path of each of the collection's indexes, `indexes` the paths of each.
pub fn ask(generator: &Generator, indexed: &[String], indexes: &[Vec<String>]) -> Ask {
    let mut sort: Vec<(String, bool)> = Vec::new();
    if generator.below(2) == 0 {
        for _ in 0..1 + generator.below(3) / 2 {
            let path = generator.pick(&SORTED);
            if !sort.iter().any(|(known, _)| known == path) {
                sort.push((path.to_owned(), generator.below(2) == 0));
            }
        }
    }
    if generator.below(6) == 0 {
        return about_one_field(generator, indexed);
    }
    if generator.below(6) == 0 {
        return about_several_fields(generator, indexes);
    }
    Ask {
        filter: filter(generator, indexed),
        sort,
        skip: if generator.below(5) == 0 { generator.below(6) } else { 0 },
        limit: if generator.below(4) == 0 { 1 + generator.below(8) } else { 0 },
        projection: projection(generator),
    }
}

/// A query that an index may answer without a document.
fn about_one_field(generator: &Generator, indexed: &[String]) -> Ask {
    let path = generator.pick(indexed);
    let condition = match generator.below(5) {
        0 => doc! { "$gte": generator.pick(&[-1, 0, 1]) },
        1 => doc! { "$in": [0, 1, "x"] },
        2 => doc! { "$mod": [2, generator.below(2) as i32] },
        3 => doc! { "$regex": generator.pick(&["x", "^x", "y$"]) },
        _ => doc! { "$type": generator.pick(&["number", "string", "null", "object", "bool"]) },
    };
    let asked = match generator.below(4) {
        0 => doc! { &path: { "$not": condition } },
        1 => doc! {},
        _ => doc! { &path: condition },
    };
    let sort = match generator.below(2) {
        0 if !is_by_position(&path) => vec![(path.clone(), generator.below(2) == 0)],
        _ => Vec::new(),
    };
    let mut projection = doc! { &path: 1 };
    if path != "_id" {
        projection.insert("_id", 0);
    }
    let filter = Filter { plain: asked.clone(), asked, expression: None };
    Ask { filter, sort, skip: 0, limit: 0, projection: Some(projection) }
}

/// Conditions on several fields of one index.
fn about_several_fields(generator: &Generator, indexes: &[Vec<String>]) -> Ask {
    let small = || generator.below(3) as i32;
    let mut asked = Document::new();
    for path in generator.pick(indexes) {
        let condition = match generator.below(5) {
            0 => doc! { "$gte": small() },
            1 => doc! { "$gt": small(), "$lt": 1 + small() },
            2 => doc! { "$in": [small(), small()] },
            _ => doc! { "$eq": small() },
        };
        asked.insert(path, condition);
    }
    if generator.below(4) == 0 {
        asked = doc! { "a": { "$elemMatch": { "b": small(), "c": small() } } };
    }
    let filter = Filter { plain: asked.clone(), asked, expression: None };
    Ask { filter, sort: Vec::new(), skip: 0, limit: 0, projection: projection(generator) }
}

fn is_by_position(path: &str) -> bool {
    path.contains(|c: char| c.is_ascii_digit())
}

fn filter(generator: &Generator, indexed: &[String]) -> Filter {
    if generator.below(8) == 0 {
        let asked = about_indexes(generator, indexed);
        return Filter { plain: asked.clone(), asked, expression: None };
    }
    let mut asked = if generator.below(20) == 0 {
        doc! {}
    } else {
        generator.filter(2)
    };
    let mut plain = asked.clone();
    let mut extra = Vec::new();
    if generator.below(6) == 0 {
        // The query filters on several fields more often than the generator's filters do.
        let other = generator.filter(1);
        extra.push((other.clone(), other));
    }
    if generator.below(8) == 0 {
        extra.push(with_expressions_in_list(generator));
    }
    for (ask, say) in extra {
        asked = doc! { "$and": [asked, ask] };
        plain = doc! { "$and": [plain, say] };
    }
    let mut expression = None;
    if generator.below(15) == 0 {
        let field = generator.pick(&["a", "b", "c"]);
        let op = generator.pick(&["$eq", "$lt", "$gte"]);
        let value = generator.pick(&[Bson::Int32(1), Bson::Null, Bson::String("x".to_owned())]);
        asked = doc! { "$and": [asked, { "$expr": { op: [format!("${field}"), value.clone()] } }] };
        expression = Some((field.to_owned(), op, value));
    }
    Filter { asked, plain, expression }
}

/// A disjunction whose branches indexes may serve, or a list of values for one index.
fn about_indexes(generator: &Generator, indexed: &[String]) -> Document {
    let value = || match generator.document().get("a") {
        // A list interprets it as a pattern.
        None | Some(Bson::RegularExpression(_)) => Bson::Null,
        Some(value) => value.clone(),
    };
    let condition = || match generator.below(4) {
        0 => doc! { "$gte": generator.pick(&[-1, 0, 1]) },
        1 => doc! { "$in": [generator.pick(&[0, 1]), generator.pick(&[1, 2]), value()] },
        2 => doc! { "$lt": "xy", "$gte": "x" },
        _ => doc! { "$eq": value() },
    };
    let branch = || match generator.below(3) {
        0 => {
            let other = generator.single();
            doc! { "$and": [{ generator.pick(indexed): condition() }, other] }
        }
        _ => doc! { generator.pick(indexed): condition() },
    };
    if generator.below(3) == 0 {
        return doc! { generator.pick(indexed): { "$in": [0, 1, "x", value()] } };
    }
    let branches: Vec<Document> = (0..2 + generator.below(2)).map(|_| branch()).collect();
    match generator.below(3) {
        0 => doc! { "$or": branches, "c": { "$ne": value() } },
        _ => doc! { "$or": branches },
    }
}

/// `$in` and `$nin` with regular expressions among their values.
fn with_expressions_in_list(generator: &Generator) -> (Document, Document) {
    let field = generator.pick(&["a", "b", "c", "a.b", "b.a"]);
    let pattern = generator.pick(&["^x", "y$", "x", "^xy"]);
    let regex = Bson::RegularExpression(Regex {
        pattern: pattern.try_into().expect("no zero in it"),
        options: "".try_into().expect("no zero in it"),
    });
    let mut values = Vec::new();
    for value in [Bson::Null, Bson::Int32(1), Bson::String("y".to_owned())] {
        if generator.below(2) == 0 {
            values.push(value);
        }
    }
    let said =
        doc! { "$or": [{ field: { "$in": values.clone() } }, { field: { "$regex": pattern } }] };
    values.push(regex);
    if generator.below(3) == 0 {
        return (doc! { field: { "$nin": values } }, doc! { "$nor": [said] });
    }
    (doc! { field: { "$in": values } }, said)
}

fn projection(generator: &Generator) -> Option<Document> {
    let fields = ["a", "b", "c", "a.b", "b.a", "a.c", "c.a.b"];
    match generator.below(6) {
        0 => Some(doc! { generator.pick(&fields): 0 }),
        1 | 2 => {
            let mut spec = doc! { generator.pick(&fields): 1 };
            let other = generator.pick(&["a", "b", "c"]);
            if generator.below(3) == 0 && !spec.keys().any(|known| known.starts_with(other)) {
                spec.insert(other, 1);
            }
            if generator.below(4) > 0 {
                spec.insert("_id", 0);
            }
            Some(spec)
        }
        _ => None,
    }
}
