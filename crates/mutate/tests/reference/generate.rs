//! Random documents, updates and projections over few names and values, so that paths often exist.

use bson::{Bson, Document, doc};

/// A small generator of random numbers (splitmix64), the same on every run of a seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "0"];

pub fn name(rng: &mut Rng) -> String {
    rng.pick(&NAMES).to_owned()
}

/// A name that is never an array position.
pub fn plain_name(rng: &mut Rng) -> String {
    rng.pick(&NAMES[..4]).to_owned()
}

pub fn scalar(rng: &mut Rng) -> Bson {
    match rng.below(9) {
        0 => Bson::Null,
        1 => Bson::Boolean(rng.chance(50)),
        2 => Bson::String(rng.pick(&["", "x", "xy", "y"]).to_owned()),
        3 => Bson::Int64(rng.below(4) as i64 - 1),
        4 => Bson::Double(rng.pick(&[-1.0, 0.0, 0.5, 1.0, 2.0])),
        5 => Bson::Int32(rng.pick(&[i32::MAX, i32::MIN])),
        _ => Bson::Int32(rng.below(5) as i32 - 1),
    }
}

pub fn value(rng: &mut Rng, depth: usize) -> Bson {
    match rng.below(10) {
        0..=2 if depth > 0 => Bson::Document(document(rng, depth - 1)),
        3..=5 if depth > 0 => {
            let count = rng.below(4);
            // Arrays of similar elements, so that filters and positions often match.
            let alike = rng.below(3);
            let item = |rng: &mut Rng| match alike {
                0 => scalar(rng),
                1 => Bson::Document(document(rng, depth - 1)),
                _ => value(rng, depth - 1),
            };
            Bson::Array((0..count).map(|_| item(rng)).collect())
        }
        _ => scalar(rng),
    }
}

pub fn document(rng: &mut Rng, depth: usize) -> Document {
    let mut doc = Document::new();
    for _ in 0..rng.below(5) {
        doc.insert(name(rng), value(rng, depth));
    }
    doc
}

pub fn stored(rng: &mut Rng) -> Document {
    let mut doc = doc! { "_id": rng.below(3) as i32 };
    doc.extend(document(rng, 3));
    doc
}

/// A path that likely exists in the document.
pub fn path_in(rng: &mut Rng, doc: &Document, dynamic: &[&str]) -> String {
    let mut parts = Vec::new();
    let mut here = Bson::Document(doc.clone());
    loop {
        let (part, next) = match &here {
            Bson::Document(doc) if !doc.is_empty() && rng.chance(80) => {
                let name = doc.keys().nth(rng.below(doc.len())).cloned().unwrap_or_default();
                let next = doc.get(&name).cloned();
                (name, next)
            }
            Bson::Array(items) if !dynamic.is_empty() && rng.chance(50) => {
                let next = items.first().cloned();
                (rng.pick(dynamic).to_owned(), next)
            }
            Bson::Array(items) if rng.chance(80) => {
                let index = rng.below(items.len() + 2);
                (index.to_string(), items.get(index).cloned())
            }
            _ => (name(rng), None),
        };
        if parts.is_empty() && (part == "_id" && rng.chance(80) || part.starts_with('$')) {
            continue;
        }
        parts.push(part);
        match next {
            Some(next @ (Bson::Document(_) | Bson::Array(_))) if rng.chance(60) => here = next,
            Some(next) if rng.chance(15) => here = next,
            _ if rng.chance(10) => here = Bson::Null,
            _ => return parts.join("."),
        }
    }
}

/// A condition on an element.
pub fn condition(rng: &mut Rng) -> Bson {
    let operand = loop {
        let operand = scalar(rng);
        if operand != Bson::Null {
            break operand;
        }
    };
    match rng.below(7) {
        0 => operand,
        1 => Bson::Document(doc! { "$gt": operand }),
        2 => Bson::Document(doc! { "$gte": operand }),
        3 => Bson::Document(doc! { "$lt": operand }),
        4 => Bson::Document(doc! { "$lte": operand }),
        5 => Bson::Document(doc! { "$ne": operand }),
        _ => {
            let other = Bson::Int32(rng.below(3) as i32);
            Bson::Document(doc! { "$in": [operand, other] })
        }
    }
}

fn small_integer(rng: &mut Rng) -> Bson {
    Bson::Int32(rng.below(9) as i32 - 4)
}

fn push_operand(rng: &mut Rng) -> Bson {
    if rng.chance(30) {
        return value(rng, 1);
    }
    let each: Vec<Bson> = (0..rng.below(4)).map(|_| value(rng, 1)).collect();
    let mut clauses = doc! { "$each": each };
    if rng.chance(40) {
        clauses.insert("$position", small_integer(rng));
    }
    if rng.chance(40) {
        clauses.insert("$slice", small_integer(rng));
    }
    if rng.chance(40) {
        let direction = |rng: &mut Rng| Bson::Int32(if rng.chance(50) { 1 } else { -1 });
        let sort = if rng.chance(50) {
            direction(rng)
        } else {
            let mut fields = Document::new();
            for _ in 0..=rng.below(2) {
                fields.insert(name(rng), direction(rng));
            }
            Bson::Document(fields)
        };
        clauses.insert("$sort", sort);
    }
    Bson::Document(clauses)
}

fn operand(rng: &mut Rng, operator: &str) -> Bson {
    let numeric = |rng: &mut Rng| loop {
        let v = scalar(rng);
        if super::order::number(&v).is_some() {
            return v;
        }
    };
    match operator {
        "$inc" | "$mul" => numeric(rng),
        "$bit" => {
            let mut ops = Document::new();
            for _ in 0..=rng.below(2) {
                let operand = match rng.chance(50) {
                    true => Bson::Int32(rng.below(16) as i32),
                    false => Bson::Int64(rng.below(16) as i64),
                };
                ops.insert(rng.pick(&["and", "or", "xor"]), operand);
            }
            Bson::Document(ops)
        }
        "$push" => push_operand(rng),
        "$addToSet" if rng.chance(60) => {
            let each: Vec<Bson> = (0..rng.below(4)).map(|_| value(rng, 1)).collect();
            Bson::Document(doc! { "$each": each })
        }
        "$pop" => Bson::Int32(if rng.chance(50) { 1 } else { -1 }),
        "$pull" => match rng.below(3) {
            0 => scalar(rng),
            1 => condition(rng),
            _ => Bson::Document(doc! { plain_name(rng): condition(rng) }),
        },
        "$pullAll" => Bson::Array((0..rng.below(4)).map(|_| value(rng, 1)).collect()),
        _ => value(rng, 2),
    }
}

/// An operator that likely suits the value at a path.
fn operator_for(rng: &mut Rng, doc: &Document, path: &str) -> &'static str {
    const ANY: [&str; 15] = [
        "$set",
        "$set",
        "$unset",
        "$inc",
        "$mul",
        "$min",
        "$max",
        "$push",
        "$addToSet",
        "$pop",
        "$pull",
        "$pullAll",
        "$bit",
        "$rename",
        "$setOnInsert",
    ];
    let mut here = Some(Bson::Document(doc.clone()));
    for part in path.split('.') {
        here = match here {
            Some(Bson::Document(doc)) => doc.get(part).cloned(),
            Some(Bson::Array(items)) if part.starts_with('$') => items.first().cloned(),
            Some(Bson::Array(items)) => {
                part.parse().ok().and_then(|i: usize| items.get(i).cloned())
            }
            _ => None,
        };
    }
    let fitting: &[&str] = match here {
        Some(Bson::Array(_)) => {
            &["$push", "$push", "$addToSet", "$pop", "$pull", "$pull", "$pullAll", "$set"]
        }
        Some(Bson::Int32(_) | Bson::Int64(_)) => &["$inc", "$mul", "$bit", "$min", "$max", "$set"],
        Some(Bson::Double(_)) => &["$inc", "$mul", "$min", "$max"],
        _ => &["$set", "$unset", "$min", "$max", "$rename"],
    };
    if rng.chance(85) { rng.pick(fitting) } else { rng.pick(&ANY) }
}

/// An operator document that roughly suits the document, and its array filters.
pub fn update(rng: &mut Rng, doc: &Document) -> (Document, Vec<Document>) {
    let dynamic: &[&str] = match rng.below(4) {
        0 => &["$[]", "$[x]", "$[y]"],
        1 => &["$[x]"],
        2 => &["$"],
        _ => &[],
    };
    let mut update = Document::new();
    for _ in 0..=rng.below(4) {
        let path = path_in(rng, doc, dynamic);
        let dollars = path.matches('$').count();
        if dollars > 1 && path.matches("$[").count() != dollars {
            continue;
        }
        let operator = operator_for(rng, doc, &path);
        let operand = match operator {
            "$rename" => Bson::String(path_in(rng, doc, &[])),
            _ => operand(rng, operator),
        };
        if operator == "$rename" && (path.contains('$') || operand.as_str() == Some(&path)) {
            continue;
        }
        match update.get_mut(operator) {
            Some(Bson::Document(fields)) => drop(fields.insert(path, operand)),
            _ => drop(update.insert(operator, bson::doc! { path: operand })),
        }
    }
    if update.is_empty() {
        update.insert("$set", doc! { "a": 1 });
    }
    let text = format!("{update:?}");
    let mut filters = Vec::new();
    for identifier in ["x", "y"] {
        if text.contains(&format!("$[{identifier}]")) {
            let path = match rng.chance(50) {
                true => identifier.to_owned(),
                false => format!("{identifier}.{}", plain_name(rng)),
            };
            filters.push(doc! { path: condition(rng) });
        }
    }
    (update, filters)
}

/// The use of a projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Find,
    Project,
    AddFields,
}

fn computed(rng: &mut Rng, doc: &Document) -> Bson {
    match rng.below(3) {
        0 => Bson::String(format!("${}", path_in(rng, doc, &[]))),
        1 => Bson::Document(doc! { "$literal": value(rng, 1) }),
        _ => Bson::Array(vec![scalar(rng), Bson::String(format!("${}", name(rng)))]),
    }
}

/// A specification that roughly suits the document.
pub fn projection(rng: &mut Rng, doc: &Document, place: Place) -> Document {
    let inclusion = rng.chance(55);
    let mut spec = Document::new();
    if place != Place::AddFields && rng.chance(30) {
        spec.insert("_id", Bson::Int32(i32::from(rng.chance(50))));
    }
    for _ in 0..=rng.below(4) {
        let path = path_in(rng, doc, &[]);
        let value = match (place, rng.below(10)) {
            (Place::AddFields, _) => computed(rng, doc),
            (Place::Find, 0 | 1) => Bson::Document(doc! { "$slice": slice(rng) }),
            (Place::Find, 2) => {
                let top = plain_name(rng);
                spec.insert(top, doc! { "$elemMatch": elem_match(rng) });
                continue;
            }
            (_, 3..=5) if inclusion => computed(rng, doc),
            _ => Bson::Int32(i32::from(inclusion)),
        };
        spec.insert(path, value);
    }
    spec
}

fn slice(rng: &mut Rng) -> Bson {
    match rng.chance(50) {
        true => small_integer(rng),
        false => Bson::Array(vec![small_integer(rng), Bson::Int32(1 + rng.below(3) as i32)]),
    }
}

fn elem_match(rng: &mut Rng) -> Document {
    match condition(rng) {
        Bson::Document(operators) if rng.chance(50) => operators,
        condition => doc! { plain_name(rng): condition },
    }
}
