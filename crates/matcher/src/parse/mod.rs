//! Parses a filter document into a tree.
//!
//! One file per kind of operator. This file has the levels: a filter's top-level fields, the logical operators, and
//! the operators under a field. It limits depth and number of nodes, for every recursion over a tree elsewhere.

mod field;
mod geo;
pub(crate) mod number;
mod regex;
mod schema;
mod toplevel;

use crate::cx::ParseCx;
use crate::path::Path;
use crate::tree::{CompareOp, Leaf, MatchExpr, Predicate};
use kauri_base::{Error, Result, bail, limits, work};
use kauri_bson::{Doc, Elem, Type, Value};

/// How far below the filter's own level a document of predicates stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// The filter, or a branch of its logical operators.
    Document,
    /// Inside `$elemMatch`.
    Element,
}

pub(crate) struct Parser<'a, 'c> {
    cx: &'a ParseCx<'c>,
    depth: usize,
    nodes: usize,
    /// How many of what is around are no conjunctions: what needs an index can't stand there.
    branching: usize,
    texts: usize,
    nears: usize,
}

impl MatchExpr {
    /// Parses a filter.
    pub fn parse(filter: Doc<'_>, cx: &ParseCx<'_>) -> Result<MatchExpr> {
        let mut parser = Parser::new(cx);
        let tree = parser.document(filter, Level::Document)?;
        parser.check_indexes()?;
        Ok(tree)
    }

    /// Parses what stands under a field of a filter, as predicates on a value itself: `$pull`'s
    /// operators, a projection's value-`$elemMatch`.
    pub fn parse_value_predicates(predicates: Doc<'_>, cx: &ParseCx<'_>) -> Result<MatchExpr> {
        let mut parser = Parser::new(cx);
        let mut out = Vec::new();
        parser.operators(&Path::to_self(), predicates, &mut out)?;
        parser.check_indexes()?;
        Ok(and_of(out))
    }
}

/// Whether this element is an object of operators rather than a value: its first field begins with
/// `$` and it is no DBRef.
pub fn is_operator_object(elem: Elem<'_>) -> bool {
    is_operators(elem, false)
}

fn is_operators(elem: Elem<'_>, partial_db_ref: bool) -> bool {
    if elem.ty() != Type::Document {
        return false;
    }
    let Some(doc) = elem.as_doc() else { return false };
    let Some(first) = doc.first() else { return false };
    first.key_bytes().first() == Some(&b'$') && !is_db_ref(doc, partial_db_ref)
}

fn is_db_ref(doc: Doc<'_>, partial: bool) -> bool {
    let (mut has_ref, mut has_id, mut has_db) = (false, false, false);
    for elem in doc {
        match elem.key_bytes() {
            b"$ref" => has_ref = true,
            b"$id" => has_id = true,
            b"$db" => has_db = true,
            _ => {}
        }
    }
    if partial { has_ref || has_id || has_db } else { has_ref && has_id }
}

fn and_of(mut children: Vec<MatchExpr>) -> MatchExpr {
    match children.pop() {
        Some(only) if children.is_empty() => only,
        Some(last) => {
            children.push(last);
            MatchExpr::And(children)
        }
        None => MatchExpr::And(children),
    }
}

pub(crate) fn leaf(path: &Path, pred: Predicate) -> MatchExpr {
    MatchExpr::Leaf(Leaf { path: path.clone(), pred })
}

pub(crate) fn not(child: MatchExpr) -> MatchExpr {
    MatchExpr::Not(Box::new(child))
}

impl<'a, 'c> Parser<'a, 'c> {
    fn new(cx: &'a ParseCx<'c>) -> Self {
        Parser { cx, depth: 0, nodes: 0, branching: 0, texts: 0, nears: 0 }
    }

    /// Refuses what only a text or geospatial index could answer, of which there are none.
    fn check_indexes(&self) -> Result<()> {
        match (self.texts, self.nears) {
            (0, 0) => Ok(()),
            (2.., _) => bail!(BadValue, "Too many text expressions"),
            (_, 2..) => bail!(BadValue, "Too many geoNear expressions"),
            (1, 1) => bail!(BadValue, "text and geoNear not allowed in same query"),
            (0, 1) => Err(geo::no_index()),
            (1, 0) => bail!(IndexNotFound, "text index required for $text query"),
        }
    }

    /// Runs `parse` below something that is no conjunction.
    fn below_branch<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.branching += 1;
        let result = self.deeper(parse);
        self.branching -= 1;
        result
    }

    /// Counts a node; too many are an error.
    pub(crate) fn node(&mut self) -> Result<()> {
        work::tick(4)?;
        self.nodes += 1;
        if self.nodes > limits::MATCH_NODES_MAX {
            bail!(BadValue, "query has more than {} predicates", limits::MATCH_NODES_MAX);
        }
        Ok(())
    }

    /// Runs `parse` one level deeper; too deep is an error.
    pub(crate) fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        work::check_stack()?;
        if self.depth >= limits::MATCH_DEPTH_MAX {
            bail!(BadValue, "exceeded maximum query tree depth of {}", limits::MATCH_DEPTH_MAX);
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// A document of fields and top-level operators: all of them must match.
    fn document(&mut self, doc: Doc<'_>, level: Level) -> Result<MatchExpr> {
        let mut children = Vec::with_capacity(1);
        for elem in doc {
            self.node()?;
            let key = elem.key();
            if key.starts_with('$') {
                if let Some(child) = self.top_level_operator(elem, level)? {
                    children.push(child);
                }
                continue;
            }
            let path = Path::new(key);
            match elem.as_doc() {
                Some(operators) if is_operators(elem, false) => {
                    self.operators(&path, operators, &mut children)?;
                }
                _ => children.push(self.implicit_equality(path, elem)?),
            }
        }
        Ok(and_of(children))
    }

    /// `{field: value}`.
    fn implicit_equality(&mut self, path: Path, elem: Elem<'_>) -> Result<MatchExpr> {
        let pred = if elem.ty() == Type::Regex {
            Predicate::Regex(regex::of_value(&elem.value())?)
        } else {
            Predicate::Compare(CompareOp::Eq, field::operand(elem)?)
        };
        Ok(MatchExpr::Leaf(Leaf { path, pred }))
    }

    /// `$and`, `$or`, `$nor`.
    fn branches(&mut self, elem: Elem<'_>, level: Level) -> Result<Vec<MatchExpr>> {
        if elem.ty() != Type::Array {
            bail!(BadValue, "{} argument must be an array", elem.key());
        }
        let branches = elem.as_doc().unwrap_or(Doc::EMPTY);
        if branches.is_empty() {
            bail!(BadValue, "$and/$or/$nor must be a nonempty array");
        }
        let texts = self.texts;
        let mut children = Vec::new();
        for branch in branches {
            let Value::Document(doc) = branch.value() else {
                bail!(BadValue, "$or/$and/$nor entries need to be full objects");
            };
            self.node()?;
            let parse = |p: &mut Self| p.document(doc.as_doc(), level);
            let conjunction = elem.key() == "$and";
            children.push(if conjunction { self.deeper(parse) } else { self.below_branch(parse) }?);
        }
        if elem.key() == "$nor" && self.texts > texts {
            bail!(BadValue, "text expression not allowed in nor");
        }
        Ok(children)
    }
}

fn unknown_top_level(key: &str) -> Error {
    let advice = if key == "$not" {
        "If you are trying to negate an entire expression, use $nor."
    } else {
        "If you have a field name that starts with a '$' symbol, consider using $getField or \
         $setField."
    };
    Error::bad_value(format!("unknown top level operator: {key}. {advice}"))
}
