//! Parses find's projections, `$project` and `$unset`.

use crate::cx::ParseCx;
use crate::project::Projection;
use crate::project::tree::{Child, Mode, Node, Slice, collision, parse_path};
use crate::text;
use kauri_base::{Error, Result, bail, work};
use kauri_bson::{Doc, DocBuf, Elem, Type, Value, not_utf8};
use kauri_expr::{Expression, is_expression_name};
use kauri_matcher::{MatchExpr, Place, Predicate};

/// Levels to which specifications nest.
const DEPTH_MAX: usize = 200;

/// Parses find's projection.
pub(crate) fn parse_find(
    spec: Doc<'_>,
    filter: Option<&MatchExpr>,
    cx: &ParseCx<'_>,
) -> Result<Projection> {
    let mut parser = Parser::new(cx, true);
    parser.has_filter = filter.is_some();
    parser.fields(spec)?;
    if parser.root.positional && filter.is_some_and(has_expr) {
        bail!(
            QueryFeatureNotAllowed,
            "Executor error during find command: $expr is not supported in the query predicate \
             of a find with a positional projection"
        );
    }
    Ok(parser.finish())
}

/// Parses the argument of `$project`.
pub(crate) fn parse_project(spec: Doc<'_>, cx: &ParseCx<'_>) -> Result<Projection> {
    if spec.is_empty() {
        bail!(
            51272,
            "Invalid $project :: caused by :: projection specification must have at least one field"
        );
    }
    let mut parser = Parser::new(cx, false);
    parser.fields(spec).map_err(|e| e.context("Invalid $project"))?;
    Ok(parser.finish())
}

/// Parses the argument of `$unset`.
pub(crate) fn parse_unset(spec: &Value<'_>) -> Result<Projection> {
    let mut names: Vec<String> = Vec::new();
    not_utf8::refuse(spec, "a field of $unset")?;
    match spec {
        Value::String(name) => names.push(name.clone().into_owned()),
        Value::Array(items) => {
            for item in items.as_doc() {
                not_utf8::refuse(&item.value(), "a field of $unset")?;
                match item.value() {
                    Value::String(name) => names.push(name.into_owned()),
                    _ => bail!(
                        31120,
                        "$unset specification must be a string or an array containing only \
                         string values"
                    ),
                }
            }
            if names.is_empty() {
                bail!(
                    31119,
                    "$unset specification must be a string or an array with at least one field"
                );
            }
        }
        _ => bail!(31002, "$unset specification must be a string or an array"),
    }
    if names.iter().any(|n| n.contains('\0')) {
        bail!(9527900, "Can't unset a field name with an embedded null byte");
    }
    let mut root = Node::default();
    for name in &names {
        let inserted =
            parse_path(name).and_then(|path| root.insert(&path, Child::Drop, &collision));
        inserted.map_err(|e| e.context("Invalid $unset"))?;
    }
    Ok(Projection::new(root, Mode::Exclusion))
}

fn has_expr(filter: &MatchExpr) -> bool {
    match filter {
        MatchExpr::And(children) | MatchExpr::Or(children) | MatchExpr::Nor(children) => {
            children.iter().any(has_expr)
        }
        MatchExpr::Not(child) => has_expr(child),
        MatchExpr::Expr(_) => true,
        _ => false,
    }
}

/// Whether fields are included or excluded, and by what that was decided.
struct Parser<'p> {
    cx: &'p ParseCx<'p>,
    /// Find's projection rather than an aggregation's.
    find: bool,
    has_filter: bool,
    mode: Option<Mode>,
    root: Node,
    /// `_id` by itself: kept, dropped.
    id: Option<bool>,
    elem_match: bool,
    meta: bool,
}

impl<'p> Parser<'p> {
    fn new(cx: &'p ParseCx<'p>, find: bool) -> Self {
        Parser {
            cx,
            find,
            has_filter: false,
            mode: None,
            root: Node::default(),
            id: None,
            elem_match: false,
            meta: false,
        }
    }

    fn fields(&mut self, spec: Doc<'_>) -> Result<()> {
        spec.ticked().try_for_each(|elem| {
            let elem = elem?;
            self.field(elem.key(), elem, 0)
        })
    }

    fn finish(mut self) -> Projection {
        let mode = self.mode.unwrap_or(match self.id {
            Some(true) => Mode::Inclusion,
            _ if self.elem_match => Mode::Inclusion,
            _ if self.meta && !self.find => Mode::Inclusion,
            _ => Mode::Exclusion,
        });
        if mode == Mode::Inclusion {
            self.root.insert_default("_id", Child::Keep);
        }
        Projection::new(self.root, mode)
    }

    /// Parses one entry of the specification, whose full path is `path`.
    fn field(&mut self, path: &str, elem: Elem<'_>, depth: usize) -> Result<()> {
        work::check_stack()?;
        if depth > DEPTH_MAX {
            bail!(Overflow, "projection specification nests too deep");
        }
        if path.ends_with(".$") || path.contains(".$.") {
            return self.positional(path, elem, depth);
        }
        let parts = parse_path(path)?;
        match elem.value() {
            Value::Bool(_)
            | Value::Int32(_)
            | Value::Int64(_)
            | Value::Double(_)
            | Value::Decimal128(_) => self.flag(&parts, elem),
            Value::Document(spec) => self.object(path, &parts, spec.as_doc(), elem, depth),
            value => {
                if self.mode == Some(Mode::Exclusion) {
                    bail!(
                        31310,
                        "Cannot use an expression {} in an exclusion projection",
                        text::elem(elem)
                    );
                }
                self.expression(&parts, &value)
            }
        }
    }

    /// `path: 1` and `path: 0`.
    fn flag(&mut self, parts: &[String], elem: Elem<'_>) -> Result<()> {
        let keep = elem.value().truthy();
        if parts.len() == 1 && parts.first().is_some_and(|p| p == "_id") {
            // `_id` may be kept or dropped under either mode.
            let child = if keep { Child::Keep } else { Child::Drop };
            self.root.insert(parts, child, &collision)?;
            self.id = Some(keep);
            return Ok(());
        }
        self.set_mode(if keep { Mode::Inclusion } else { Mode::Exclusion }, elem.key())?;
        self.root.insert(parts, if keep { Child::Keep } else { Child::Drop }, &collision)
    }

    fn set_mode(&mut self, mode: Mode, name: &str) -> Result<()> {
        match (self.mode, mode) {
            (Some(Mode::Exclusion), Mode::Inclusion) => {
                bail!(31253, "Cannot do inclusion on field {name} in exclusion projection")
            }
            (Some(Mode::Inclusion), Mode::Exclusion) => {
                bail!(31254, "Cannot do exclusion on field {name} in inclusion projection")
            }
            _ => self.mode = Some(mode),
        }
        Ok(())
    }

    /// `path.$: 1`.
    fn positional(&mut self, path: &str, elem: Elem<'_>, depth: usize) -> Result<()> {
        let Some(array) = path.strip_suffix(".$").filter(|p| !p.contains(".$.")) else {
            bail!(
                31394,
                "As of 4.4, it's illegal to specify positional operator in the middle of a path. \
                 Positional projection may only be used at the end, for example: a.b.$. If the \
                 query previously used a form like a.b.$.d, remove the parts following the '$' \
                 and the results will be equivalent."
            );
        };
        if !self.find {
            bail!(31324, "Cannot use positional projection in aggregation projection");
        }
        if depth > 0 {
            // Within a sub-document `$` is a name like any other, and no valid one.
            parse_path(path)?;
        }
        match elem.ty() {
            Type::Document => bail!(
                31271,
                "positional projection cannot be used with an expression or sub object"
            ),
            ty if !ty.is_number() && ty != Type::Bool => {
                bail!(31308, "positional projection cannot be used with a literal")
            }
            _ => {}
        }
        if !elem.value().truthy() {
            bail!(31395, "positional projection cannot be used with exclusion");
        }
        if self.root.positional {
            bail!(31276, "Cannot specify more than one positional projection per query.");
        }
        if self.elem_match {
            bail!(31256, "Cannot specify positional operator and $elemMatch.");
        }
        if !self.has_filter {
            bail!(51050, "Projections with a positional operator require a matcher");
        }
        self.set_mode(Mode::Inclusion, elem.key())?;
        self.root.insert(&parse_path(array)?, Child::Positional, &collision)
    }

    /// `path: {…}`: an operator, or fields within the path.
    fn object(
        &mut self,
        path: &str,
        parts: &[String],
        spec: Doc<'_>,
        elem: Elem<'_>,
        depth: usize,
    ) -> Result<()> {
        let Some(first) = spec.first() else {
            bail!(
                51270,
                "An empty sub-projection is not a valid value. Found empty object at path {path}"
            );
        };
        if first.key().starts_with('$') && spec.iter().nth(1).is_none() {
            return self.operator(parts, first, elem);
        }
        spec.ticked().try_for_each(|inner| {
            let inner = inner?;
            let path = format!("{path}.{}", inner.key());
            self.field(&path, inner, depth + 1)
        })
    }

    fn operator(&mut self, parts: &[String], operator: Elem<'_>, elem: Elem<'_>) -> Result<()> {
        match operator.key() {
            "$slice" if self.find => self.slice(parts, operator, elem),
            "$elemMatch" if self.find => self.elem_match(parts, operator),
            "$elemMatch" => bail!(InvalidPipelineOperator, "Unrecognized expression '$elemMatch'"),
            "$meta" => {
                self.meta = true;
                self.insert_expression(parts, &elem.value())
            }
            name if !is_expression_name(name) => bail!(31325, "Unknown expression {name}"),
            _ => {
                if self.mode == Some(Mode::Exclusion) {
                    bail!(31252, "Cannot use expression other than $meta in exclusion projection");
                }
                self.expression(parts, &elem.value())
            }
        }
    }

    /// A computed field: makes the projection an inclusion.
    fn expression(&mut self, parts: &[String], source: &Value<'_>) -> Result<()> {
        self.insert_expression(parts, source)?;
        self.mode = Some(Mode::Inclusion);
        Ok(())
    }

    fn insert_expression(&mut self, parts: &[String], source: &Value<'_>) -> Result<()> {
        let none = kauri_expr::ParseCx::default();
        let expression = Expression::parse(source, self.cx.expressions().unwrap_or(&none))?;
        if parts.len() == 1 && parts.first().is_some_and(|p| p == "_id") {
            self.id = self.id.or(Some(true));
        }
        self.root.insert(parts, Child::Computed(expression), &collision)
    }

    /// Find's `$slice`, or if it cannot be that, the expression of the same name.
    fn slice(&mut self, parts: &[String], operator: Elem<'_>, elem: Elem<'_>) -> Result<()> {
        let found = find_slice(operator)
            .and_then(|slice| self.root.insert(parts, Child::Slice(slice), &collision));
        let Err(slice_error) = found else { return Ok(()) };
        if self.mode == Some(Mode::Exclusion) {
            bail!(31252, "Cannot use expression other than $meta in exclusion projection");
        }
        self.expression(parts, &elem.value()).map_err(|e| {
            let message = format!(
                "Invalid $slice syntax. The given syntax {} did not match the find() syntax \
                 because :: {slice_error} The given syntax did not match the expression $slice \
                 syntax. :: caused by :: {}",
                text::value(&elem.value()),
                e.message()
            );
            Error::new(e.code(), message)
        })
    }

    fn elem_match(&mut self, parts: &[String], operator: Elem<'_>) -> Result<()> {
        if operator.ty() != Type::Document {
            bail!(
                31274,
                "elemMatch: Invalid argument, object required, but got {}",
                operator.ty().alias()
            );
        }
        if self.root.positional {
            bail!(31255, "Cannot specify positional operator and $elemMatch.");
        }
        let [name] = parts else {
            bail!(31275, "Cannot use $elemMatch projection on a nested field.");
        };
        let filter = DocBuf::build(|w| {
            w.document(name).put_elem(operator);
        });
        let mut cx = kauri_matcher::ParseCx::new(Place::Elements);
        if let Some(expressions) = self.cx.expressions() {
            cx = cx.with_expressions(expressions);
        }
        let MatchExpr::Leaf(leaf) = MatchExpr::parse(filter.as_doc(), &cx)? else {
            bail!(InternalError, "$elemMatch did not parse into a predicate");
        };
        self.elem_match = true;
        self.root.insert(parts, Child::ElemMatch(optimized(leaf.pred)), &collision)
    }
}

/// The predicate with a filter that is simplified: a long `$or` of equalities becomes one list.
fn optimized(predicate: Predicate) -> Predicate {
    match predicate {
        Predicate::ElemMatchObject(filter) => {
            Predicate::ElemMatchObject(Box::new(filter.optimize()))
        }
        Predicate::ElemMatchValue(filter) => Predicate::ElemMatchValue(Box::new(filter.optimize())),
        other => other,
    }
}

/// The range of find's `$slice: limit` or `$slice: [skip, limit]`.
fn find_slice(operator: Elem<'_>) -> Result<Slice> {
    if let Some(limit) = operator.value().to_i64_saturating() {
        return Ok(Slice { skip: None, limit });
    }
    let items = match (operator.ty(), operator.as_doc()) {
        (Type::Array, Some(items)) => items,
        _ => bail!(31273, "$slice only supports numbers and [skip, limit] arrays"),
    };
    let numbers: Vec<Option<i64>> =
        items.iter().take(3).map(|e| e.value().to_i64_saturating()).collect();
    let [skip, limit] = numbers.as_slice() else {
        bail!(31272, "$slice array argument should be of form [skip, limit]");
    };
    match (skip, limit) {
        (Some(skip), Some(limit)) if *limit > 0 => Ok(Slice { skip: Some(*skip), limit: *limit }),
        (Some(_), Some(limit)) => {
            bail!(31259, "$slice limit must be positive, got {limit}")
        }
        _ => bail!(31272, "$slice array argument should be of form [skip, limit]"),
    }
}
