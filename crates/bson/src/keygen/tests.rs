//! Key generation compared with known cases and with a naive reference.

use super::*;
use crate::compare::compare;
use crate::random::Random;
use crate::value::Value;
use crate::{DocBuf, array, doc};
use std::cmp::Ordering;

fn pattern(paths: &[&str]) -> KeyPattern {
    KeyPattern::parse(DocBuf::build(|w| paths.iter().for_each(|p| w.put(p, 1))).as_doc()).unwrap()
}

fn generated(pattern: &KeyPattern, doc: &DocBuf, sparse: bool) -> Result<Keys> {
    let mut keys = Keys::default();
    pattern.generate(doc.as_doc(), sparse, &mut keys)?;
    Ok(keys)
}

fn print(pattern: &KeyPattern, keys: &Keys) -> Vec<String> {
    let values = |key: Key<'_>| pattern.decode(key.bytes, key.type_bits).unwrap();
    keys.iter().map(|key| format!("{:?}", values(key))).collect()
}

fn check(paths: &[&str], doc: DocBuf, expected: &[&str], multikey: &[u64]) {
    let pattern = pattern(paths);
    let keys = generated(&pattern, &doc, false).unwrap();
    assert_eq!(print(&pattern, &keys), expected, "{paths:?} of {doc:?}");
    assert_eq!(keys.multikey(), multikey, "{paths:?} of {doc:?}");
}

#[test]
fn keys_of_known_documents() {
    check(&["a"], doc! { "a" => 5 }, &["[5i32]"], &[0]);
    check(&["a"], doc! { "b" => 5 }, &["[null]"], &[0]);
    check(&["a.b"], doc! { "a" => 5 }, &["[null]"], &[0]);
    check(&["a.b"], doc! { "a" => doc! { "b" => "x" } }, &["[\"x\"]"], &[0]);
    check(&["a", "b"], doc! { "b" => 1 }, &["[null, 1i32]"], &[0, 0]);
    check(&["a"], doc! { "a" => array![2, 1, 2, 1i64] }, &["[1i32]", "[2i32]"], &[1]);
    check(&["a"], doc! { "a" => array![] }, &["[undefined]"], &[1]);
    check(&["a"], doc! { "a" => array![Value::Undefined] }, &["[undefined]"], &[1]);
    check(&["a"], doc! { "a" => array![array![1, 2], 3] }, &["[3i32]", "[[1i32, 2i32]]"], &[1]);
    check(&["a.b"], doc! { "a" => array![] }, &["[null]"], &[1]);
    check(&["a.b"], doc! { "a" => array![1, 2] }, &["[null]"], &[1]);
    check(&["a.b"], doc! { "a" => array![array![doc! { "b" => 1 }]] }, &["[null]"], &[1]);
    let twins = || array![doc! { "b" => 1, "c" => "x" }, doc! { "b" => 2, "c" => "y" }];
    check(&["a.b"], doc! { "a" => twins() }, &["[1i32]", "[2i32]"], &[1]);
    let pairs = ["[1i32, \"x\"]", "[2i32, \"y\"]"];
    check(&["a.b", "a.c"], doc! { "a" => twins() }, &pairs, &[1, 1]);
    check(
        &["a.b", "d"],
        doc! { "a" => twins(), "d" => 0 },
        &["[1i32, 0i32]", "[2i32, 0i32]"],
        &[1, 0],
    );
    // Arrays within array elements: both components are multikey.
    let nested = doc! { "a" => array![doc! { "b" => array![1, 2] }, doc! { "b" => array![] }, 7] };
    check(&["a.b"], nested, &["[undefined]", "[null]", "[1i32]", "[2i32]"], &[3]);
}

#[test]
fn numeric_components_select_without_expanding() {
    check(&["a.0"], doc! { "a" => array![5, 6] }, &["[5i32]"], &[0]);
    check(&["a.1"], doc! { "a" => array![5] }, &["[null]"], &[1]);
    check(&["a.0"], doc! { "a" => doc! { "0" => 5 } }, &["[5i32]"], &[0]);
    check(
        &["a.0.b"],
        doc! { "a" => array![doc! { "b" => 1 }, doc! { "b" => 2 }] },
        &["[1i32]"],
        &[0],
    );
    // A nested array that is named by its position is one value.
    check(&["a.0"], doc! { "a" => array![array![1, 2]] }, &["[[1i32, 2i32]]"], &[0]);
    // Each component of an index may treat the same array differently.
    let doc = doc! { "a" => doc! { "b" => array![1, 2] } };
    check(&["a.b", "a.b.0"], doc, &["[1i32, 1i32]", "[2i32, 1i32]"], &[2, 0]);
    check(
        &["a.1", "a.b"],
        doc! { "a" => array![doc! { "b" => 1 }, 2] },
        &["[2i32, null]", "[2i32, 1i32]"],
        &[0, 1],
    );
    for doc in
        [doc! { "a" => array![doc! { "0" => 2 }] }, doc! { "a" => array![2, doc! { "0" => 3 }] }]
    {
        let error = generated(&pattern(&["a.0"]), &doc, false).unwrap_err();
        assert_eq!(error.code().number(), 16746);
        assert!(error.message().contains("field: '0' for array: { 0: "), "{}", error.message());
    }
}

#[test]
fn parallel_arrays_are_refused() {
    for (paths, doc, message) in [
        (["a", "b"], doc! { "a" => array![1], "b" => array![2] }, "[b] [a]"),
        (["a.x", "a.y"], doc! { "a" => doc! { "x" => array![1], "y" => array![] } }, "[y] [x]"),
        (
            ["a.x", "a.y"],
            doc! { "a" => array![doc! { "x" => array![1], "y" => array![1] }] },
            "[y] [x]",
        ),
    ] {
        let error = generated(&pattern(&paths), &doc, false).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CannotIndexParallelArrays);
        assert_eq!(error.message(), format!("cannot index parallel arrays {message}"));
    }
    // The same array twice is no parallel.
    let doc = doc! { "a" => array![doc! { "x" => array![1, 2] }] };
    check(
        &["a.x", "a"],
        doc.clone(),
        &["[1i32, {\"x\": [1i32, 2i32]}]", "[2i32, {\"x\": [1i32, 2i32]}]"],
        &[3, 1],
    );
}

#[test]
fn sparse_indexes_leave_out_documents_without_any_field() {
    let both = pattern(&["a", "b"]);
    for (doc, count) in [
        (doc! { "c" => 1 }, 0),
        (doc! { "a" => Value::Null }, 1),
        (doc! { "b" => 1 }, 1),
        (doc! { "a" => array![] }, 1),
    ] {
        assert_eq!(generated(&both, &doc, true).unwrap().len(), count, "{doc:?}");
        assert_eq!(generated(&both, &doc, false).unwrap().len(), 1, "{doc:?}");
    }
    let nested = pattern(&["a.b"]);
    let doc = doc! { "a" => array![1, doc! { "b" => 2 }] };
    assert_eq!(print(&nested, &generated(&nested, &doc, true).unwrap()), ["[2i32]"]);
    assert!(generated(&nested, &doc! { "a" => array![] }, true).unwrap().is_empty());
}

#[test]
fn patterns_are_checked() {
    let parse = |doc: DocBuf| KeyPattern::parse(doc.as_doc());
    assert_eq!(parse(doc! {}).unwrap_err().code(), ErrorCode::CannotCreateIndex);
    assert_eq!(parse(doc! { "a" => "hashed" }).unwrap_err().code(), ErrorCode::CannotCreateIndex);
    let many = DocBuf::build(|w| (0..33).for_each(|i| w.put(&format!("f{i}"), 1)));
    assert_eq!(parse(many).unwrap_err().code().number(), 13103);
    let mixed = parse(doc! { "a" => -0.5, "b" => 2i64 }).unwrap();
    assert_eq!(mixed.directions().collect::<Vec<_>>(), [true, false]);
}

#[test]
fn too_many_key_bytes_are_refused() {
    let long = "x".repeat(1 << 20);
    let doc = doc! { "a" => Value::array((0..300).map(Value::from)), "b" => long };
    let error = generated(&pattern(&["a", "b"]), &doc, false).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CannotBuildIndexKeys);
}

/// The reference rewrites the document: an array that a path meets is replaced by each of its
/// elements in turn, in a node that remembers the array, until no path meets an array any more.
#[derive(Clone, Debug)]
enum Node {
    Leaf(Value<'static>),
    Object(Vec<(String, Node)>),
    Array(u32, Vec<Node>),
    /// One element of an array in place of the array.
    Element(Box<Node>, Vec<Node>),
    /// A nested array that a position has led to: a value as a whole.
    Whole(Vec<Node>),
    EmptyArray,
}

enum Seen {
    Nothing,
    Node(Node),
    /// An array, by its number.
    Array(u32),
    Ambiguous,
}

struct Numbers(u32);

impl Numbers {
    fn node(&mut self, value: &Value<'_>) -> Node {
        match value {
            Value::Document(d) => Node::Object(
                d.iter().map(|e| (e.key().to_owned(), self.node(&e.value()))).collect(),
            ),
            Value::Array(d) => {
                self.0 += 1;
                let number = self.0;
                Node::Array(number, d.iter().map(|e| self.node(&e.value())).collect())
            }
            other => Node::Leaf(other.clone().into_owned()),
        }
    }
}

/// The value that a path ends at.
fn value_of(node: &Node) -> Value<'static> {
    match node {
        Node::Element(element, _) => original(element),
        Node::EmptyArray => Value::Undefined,
        other => original(other),
    }
}

/// The value as the document had it.
fn original(node: &Node) -> Value<'static> {
    match node {
        Node::Leaf(value) => value.clone(),
        Node::Object(members) => Value::Document(
            DocBuf::build(|w| members.iter().for_each(|(k, n)| w.put_value(k, &original(n))))
                .into(),
        ),
        Node::Array(_, nodes) | Node::Whole(nodes) | Node::Element(_, nodes) => {
            Value::array(nodes.iter().map(original))
        }
        Node::EmptyArray => array![],
    }
}

fn look(node: &Node, path: &[&str]) -> Seen {
    match (node, path) {
        (Node::Array(number, _), _) => Seen::Array(*number),
        (_, []) => Seen::Node(node.clone()),
        (Node::Object(members), [first, rest @ ..]) => {
            match members.iter().find(|(k, _)| k == first) {
                Some((_, inner)) => look(inner, rest),
                None => Seen::Nothing,
            }
        }
        (Node::Element(element, all), [first, rest @ ..]) => {
            let own = match &**element {
                Node::Object(members) => members.iter().find(|(k, _)| k == first),
                _ => None,
            };
            let at = array_position(first).and_then(|p| all.get(p));
            match (own, at) {
                (Some(_), Some(_)) => Seen::Ambiguous,
                (Some((_, inner)), None) => look(inner, rest),
                (None, Some(inner)) => look(inner, rest),
                (None, None) => Seen::Nothing,
            }
        }
        _ => Seen::Nothing,
    }
}

/// The document with one array replaced: by an element, by itself as a whole, or as empty.
fn replace(node: &Node, number: u32, by: &Node) -> Node {
    let all = |nodes: &[Node]| nodes.iter().map(|n| replace(n, number, by)).collect::<Vec<_>>();
    match node {
        Node::Array(n, _) if *n == number => by.clone(),
        Node::Array(n, nodes) => Node::Array(*n, all(nodes)),
        Node::Object(members) => {
            Node::Object(members.iter().map(|(k, n)| (k.clone(), replace(n, number, by))).collect())
        }
        // Only what the paths can still reach matters; the element itself is reached by name.
        Node::Element(element, nodes) => {
            Node::Element(Box::new(replace_in_object(element, number, by)), all(nodes))
        }
        other => other.clone(),
    }
}

/// Within an element only documents are looked into: an array there is a value.
fn replace_in_object(node: &Node, number: u32, by: &Node) -> Node {
    match node {
        Node::Object(_) => replace(node, number, by),
        other => other.clone(),
    }
}

fn array_nodes(node: &Node, number: u32, inside: bool) -> Option<(Vec<Node>, bool)> {
    match node {
        Node::Array(n, nodes) if *n == number => Some((nodes.clone(), inside)),
        Node::Array(_, nodes) => nodes.iter().find_map(|n| array_nodes(n, number, inside)),
        Node::Object(members) => members.iter().find_map(|(_, n)| array_nodes(n, number, false)),
        Node::Element(element, nodes) => match &**element {
            Node::Object(_) => array_nodes(element, number, false),
            _ => None,
        }
        .or_else(|| nodes.iter().find_map(|n| array_nodes(n, number, true))),
        _ => None,
    }
}

/// Keys as lists of values (`None` for missing), or the code of the error.
fn reference(root: &Node, paths: &[Vec<&str>]) -> Result<Vec<Vec<Option<Value<'static>>>>, i32> {
    let mut arrays = Vec::new();
    let mut key = Vec::new();
    for path in paths {
        match look(root, path) {
            Seen::Ambiguous => return Err(16746),
            Seen::Array(number) => arrays.push(number),
            Seen::Node(node) => key.push(Some(value_of(&node))),
            Seen::Nothing => key.push(None),
        }
        if arrays.iter().any(|a| *a != arrays[0]) {
            return Err(171);
        }
    }
    let Some(&number) = arrays.first() else { return Ok(vec![key]) };
    let Some((nodes, nested)) = array_nodes(root, number, false) else { return Ok(Vec::new()) };
    let mut keys = Vec::new();
    if nodes.is_empty() {
        return reference(&replace(root, number, &Node::EmptyArray), paths);
    }
    for element in &nodes {
        let by = Node::Element(Box::new(element.clone()), nodes.clone());
        let mut found = reference(&replace(root, number, &by), paths)?;
        if nested {
            // A path that ends at a nested array has all of it; the others go on into it.
            let whole = replace(root, number, &Node::Whole(nodes.clone()));
            for (i, path) in paths.iter().enumerate() {
                if let Seen::Node(Node::Whole(_)) = look(&whole, path) {
                    found.iter_mut().for_each(|key| {
                        key[i] = Some(Value::array(nodes.iter().map(original)));
                    });
                }
            }
        }
        keys.extend(found);
    }
    Ok(keys)
}

fn random_value(random: &mut Random, depth: u32) -> Value<'static> {
    match random.below(if depth == 0 { 2 } else { 6 }) {
        0 => Value::Int32(random.below(3) as i32),
        1 => random.pick(&["x", "y"]).to_owned().into(),
        2 | 3 => {
            let values: Vec<_> =
                (0..random.below(3)).map(|_| random_value(random, depth - 1)).collect();
            Value::array(values)
        }
        _ => Value::Document(random_document(random, depth - 1).into()),
    }
}

fn random_document(random: &mut Random, depth: u32) -> DocBuf {
    let names = ["a", "b", "0", "1"];
    DocBuf::build(|w| {
        for name in names {
            if random.chance(2) {
                w.put_value(name, &random_value(random, depth));
            }
        }
    })
}

fn by_fields(a: &[Value<'static>], b: &[Value<'static>]) -> Ordering {
    a.iter().zip(b).map(|(x, y)| compare(x, y)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

#[test]
fn agrees_with_a_naive_reference() {
    let (mut expanded, mut refused) = (0, 0);
    for seed in 0..60_000 {
        let mut random = Random::new(seed);
        let doc = random_document(&mut random, 4);
        let paths: Vec<Vec<&str>> = (0..1 + random.below(3))
            .map(|_| (0..1 + random.below(3)).map(|_| random.pick(&["a", "b", "0", "1"])).collect())
            .collect();
        let joined: Vec<String> = paths.iter().map(|p| p.join(".")).collect();
        let distinct: std::collections::BTreeSet<_> = joined.iter().collect();
        if distinct.len() < joined.len() {
            continue;
        }
        let names: Vec<&str> = joined.iter().map(String::as_str).collect();
        let pattern = pattern(&names);
        let sparse = random.chance(2);
        let root = Numbers(0).node(&Value::Document(doc.clone().into()));
        let context = format!("seed {seed}: {names:?} of {doc:?}");
        match (reference(&root, &paths), generated(&pattern, &doc, sparse)) {
            (Ok(wanted), Ok(keys)) => {
                let mut wanted: Vec<Vec<Value<'static>>> = wanted
                    .into_iter()
                    .filter(|key| !sparse || key.iter().any(Option::is_some))
                    .map(|key| key.into_iter().map(|v| v.unwrap_or(Value::Null)).collect())
                    .collect();
                wanted.sort_by(|a, b| by_fields(a, b));
                wanted.dedup_by(|a, b| by_fields(a, b).is_eq());
                let wanted: Vec<_> = wanted.iter().map(|key| format!("{key:?}")).collect();
                assert_eq!(print(&pattern, &keys), wanted, "{context}");
                expanded += usize::from(keys.len() > 1);
                // A field can only have several values through a multikey path.
                let decode = |key: Key<'_>| pattern.decode(key.bytes, key.type_bits).unwrap();
                let first = keys.first().map(decode).unwrap_or_default();
                for key in keys.iter().map(decode) {
                    for (i, word) in keys.multikey().iter().enumerate() {
                        assert!(*word != 0 || compare(&key[i], &first[i]).is_eq(), "{context}");
                    }
                }
            }
            (Err(wanted), Err(error)) => {
                refused += 1;
                assert_eq!(error.code().number(), wanted, "{context}");
            }
            (wanted, keys) => panic!("{context}: {wanted:?} against {keys:?}"),
        }
    }
    assert!(expanded > 1000 && refused > 1000, "{expanded} expanded, {refused} refused");
}
