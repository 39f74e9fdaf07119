//! Validates an index definition from a user and converts it into the stored form: `{v: 2, key, name, …}`.
//!
//! The rules are those of MongoDB's `createIndexes` with `v: 2`, including error codes and the order of checks.
//! Index types that this server does not support are validated like others and refused last, so that an invalid
//! definition gets its own error.

use crate::index::IndexDefinition;
use crate::wildcard;
use kauri_base::{Error, ErrorCode, Result, bail, limits};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value, compare, shell_text, shell_value};
use kauri_matcher::{CompareOp, MatchExpr, Predicate};
use std::collections::BTreeSet;

/// The kind of index of a key pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexKind {
    /// Ascending and descending fields.
    Plain,
    /// `hashed`.
    Hashed,
    /// `text`.
    Text,
    /// `2dsphere`.
    Sphere,
    /// `2d`.
    Flat,
    /// `$**`.
    Wildcard,
}

impl IndexKind {
    fn name(self) -> &'static str {
        match self {
            IndexKind::Plain => "btree",
            IndexKind::Hashed => "hashed",
            IndexKind::Text => "text",
            IndexKind::Sphere => "2dsphere",
            IndexKind::Flat => "2d",
            IndexKind::Wildcard => "wildcard",
        }
    }
}

/// The relation between a requested index and an existing one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Likeness {
    /// Another key, or an option that makes it another index (uniqueness, sparseness, filter).
    Different,
    /// The same entries, but other options.
    Equivalent,
    /// The same in all but the name.
    Identical,
}

/// Checks a definition and returns it as it is stored. With `ignore_unknown`, options that are none
/// are left out instead of refused.
pub fn normalise(spec: Doc<'_>, ignore_unknown: bool) -> Result<DocBuf> {
    let mut options = Options::default();
    for elem in spec {
        if options.seen.contains(&elem.key()) {
            bail!(BadValue, "The field '{}' appears more than once in an index", elem.key());
        }
        options.seen.push(elem.key());
        if !options.read(elem, spec)? && !ignore_unknown {
            bail!(
                InvalidIndexSpecificationOption,
                "The field '{}' is not valid for an index specification. Specification: {}",
                elem.key(),
                shell_text(spec)
            );
        }
    }
    let Some(key) = options.key else {
        bail!(FailedToParse, "The 'key' field is a required property of an index specification");
    };
    let Some(name) = options.name.as_deref() else {
        bail!(FailedToParse, "The 'name' field is a required property of an index specification");
    };
    let kind = check_key(key)?;
    if is_id(key) {
        return id_spec(spec, key);
    }
    check_name(name, key)?;
    options.check_combination(kind, key, spec)?;
    if kind != IndexKind::Plain {
        bail!(
            CannotCreateIndex,
            "Index type '{}' is not supported by this server. Index spec: {}",
            kind.name(),
            shell_text(spec)
        );
    }
    Ok(DocBuf::build(|out| options.write(key, name, out)))
}

/// The definition of the `_id` index, whatever it was called.
fn id_spec(spec: Doc<'_>, key: Doc<'_>) -> Result<DocBuf> {
    if key.first().and_then(|e| e.value().as_f64_lossy()) != Some(1.0) {
        bail!(
            BadValue,
            "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
            shell_text(key)
        );
    }
    for elem in spec {
        if !matches!(elem.key(), "key" | "name" | "v" | "ns" | "collation") {
            bail!(
                InvalidIndexSpecificationOption,
                "The field '{}' is not valid for an _id index specification. Specification: {}",
                elem.key(),
                shell_text(spec)
            );
        }
    }
    Ok(IndexDefinition::id_index_spec())
}

fn is_id(key: Doc<'_>) -> bool {
    let mut fields = key.iter();
    matches!((fields.next(), fields.next()), (Some(field), None)
        if field.key() == "_id" && field.ty().is_number())
}

fn check_name(name: &str, key: Doc<'_>) -> Result<()> {
    if name.is_empty() {
        bail!(CannotCreateIndex, "index names cannot be empty");
    }
    if name == "*" {
        bail!(BadValue, "The index name '*' is not valid.");
    }
    if name == "_id_" {
        bail!(
            BadValue,
            "The index name '_id_' is reserved for the _id index, which must have key pattern {{_id: \
             1}}, found {}",
            shell_text(key)
        );
    }
    Ok(())
}

/// Checks a key pattern and finds out what kind of index it is.
pub fn check_key(key: Doc<'_>) -> Result<IndexKind> {
    if key.is_empty() {
        bail!(CannotCreateIndex, "Index keys cannot be an empty object");
    }
    if key.count() > limits::INDEX_FIELDS_MAX {
        bail!(13103, "too many compound keys");
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = key.iter().find(|elem| !names.insert(elem.key())) {
        bail!(
            BadValue,
            "The field '{}' appears multiple times in the index key pattern {}",
            twice.key(),
            shell_text(key)
        );
    }
    let is_wildcard = decides_for_wildcard(key);
    if is_wildcard {
        wildcard::check_key(key)?;
    }
    let mut kind = if is_wildcard { IndexKind::Wildcard } else { IndexKind::Plain };
    for elem in key {
        let of_field = check_key_field(elem, is_wildcard)?;
        if of_field == IndexKind::Plain || of_field == kind {
            if of_field == IndexKind::Hashed {
                bail!(31303, "A maximum of one index field is allowed to be hashed but found 2");
            }
            continue;
        }
        if kind != IndexKind::Plain {
            bail!(
                CannotCreateIndex,
                "Can't use more than one index plugin for a single index: {} and {}",
                kind.name(),
                of_field.name()
            );
        }
        kind = of_field;
    }
    Ok(kind)
}

/// Whether the first field that names a kind of index names the wildcard one.
fn decides_for_wildcard(key: Doc<'_>) -> bool {
    let deciding = key
        .iter()
        .find(|elem| elem.value().string_bytes().is_some() || wildcard::is_wildcard(elem.key()));
    deciding.is_some_and(|elem| match elem.value().string_bytes() {
        Some(plugin) => plugin == b"wildcard",
        None => true,
    })
}

/// The kind of index that a field asks for. `in_wildcard`: the index is a wildcard index, which has been checked.
fn check_key_field(elem: Elem<'_>, in_wildcard: bool) -> Result<IndexKind> {
    let value = elem.value();
    let kind = match &value.lossy() {
        Value::String(plugin) => plugin_kind(plugin)?,
        number if number.is_number() => {
            let direction = number.as_f64_lossy().unwrap_or(0.0);
            if direction == 0.0 {
                bail!(CannotCreateIndex, "Values in the index key pattern cannot be 0.");
            }
            if direction.is_nan() {
                bail!(CannotCreateIndex, "Values in the index key pattern cannot be NaN.");
            }
            IndexKind::Plain
        }
        other => bail!(
            CannotCreateIndex,
            "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, numbers < 0, \
             and strings are allowed.",
            other.type_name()
        ),
    };
    let name = elem.key();
    if in_wildcard && wildcard::is_wildcard(name) && kind == IndexKind::Plain {
        let above = name.strip_suffix("$**").and_then(|above| above.strip_suffix('.'));
        return above.map_or(Ok(kind), |above| check_field_name(above, kind).map(|()| kind));
    }
    if !(kind == IndexKind::Text && name == "$**") {
        check_field_name(name, kind)?;
    }
    Ok(kind)
}

fn plugin_kind(plugin: &str) -> Result<IndexKind> {
    Ok(match plugin {
        "hashed" => IndexKind::Hashed,
        "text" => IndexKind::Text,
        "2dsphere" => IndexKind::Sphere,
        "2d" => IndexKind::Flat,
        "wildcard" => bail!(
            CannotCreateIndex,
            "The key pattern value for a 'wildcard' index must be a non-zero number, not a string."
        ),
        "" => bail!(CannotCreateIndex, "Values in the index key pattern cannot be empty strings."),
        other => bail!(CannotCreateIndex, "Unknown index plugin '{other}'"),
    })
}

fn check_field_name(name: &str, kind: IndexKind) -> Result<()> {
    if name.is_empty() {
        bail!(CannotCreateIndex, "Index keys cannot be an empty field.");
    }
    if kind == IndexKind::Text && matches!(name, "_fts" | "_ftsx") {
        return Ok(());
    }
    for (position, part) in name.split('.').enumerate() {
        if part.is_empty() {
            bail!(CannotCreateIndex, "Index keys cannot contain an empty field.");
        }
        if part.starts_with('$') && (position == 0 || !matches!(part, "$ref" | "$id" | "$db")) {
            bail!(
                CannotCreateIndex,
                "Index key contains an illegal field name: field name starts with '$'."
            );
        }
    }
    Ok(())
}

/// The options of one definition as they are read.
#[derive(Default)]
struct Options<'s> {
    seen: Vec<&'s str>,
    key: Option<Doc<'s>>,
    name: Option<String>,
    unique: bool,
    sparse: bool,
    prepare_unique: bool,
    hidden: bool,
    partial: Option<Doc<'s>>,
    expire: Option<Value<'s>>,
    collation: bool,
    projection: Option<Doc<'s>>,
    /// Options that are kept as they are.
    kept: Vec<Elem<'s>>,
    of_text: bool,
}

impl<'s> Options<'s> {
    /// Reads one field. False if there is no option of this name.
    fn read(&mut self, elem: Elem<'s>, spec: Doc<'s>) -> Result<bool> {
        match elem.key() {
            "key" => self.key = Some(object(elem)?),
            "name" => self.name = Some(text(elem)?),
            "v" => check_version(elem, spec)?,
            "unique" => self.unique = boolean(elem)?,
            "sparse" => self.sparse = boolean(elem)?,
            "prepareUnique" => self.prepare_unique = boolean(elem)?,
            "background" => {
                boolean(elem)?;
                self.kept.push(elem);
            }
            "dropDups" => drop(boolean(elem)?),
            "hidden" => match elem.value() {
                Value::Bool(hidden) => self.hidden = hidden,
                _ => return Err(wrong_type(elem, "a bool")),
            },
            "partialFilterExpression" => self.partial = Some(object(elem)?),
            "expireAfterSeconds" => {
                self.expire = Some(check_expiry(elem, spec)?);
            }
            "collation" => self.collation = check_collation(elem)?,
            "storageEngine" => {
                object(elem)?;
                self.kept.push(elem);
            }
            "wildcardProjection" => self.projection = Some(object(elem)?),
            "weights" => {
                if !matches!(elem.ty(), Type::Document | Type::String) {
                    return Err(wrong_type(elem, "an object or a string"));
                }
                self.of_text = true;
                self.kept.push(elem);
            }
            "default_language" | "language_override" => {
                text(elem)?;
                self.kept.push(elem);
            }
            "textIndexVersion"
            | "2dsphereIndexVersion"
            | "bits"
            | "min"
            | "max"
            | "bucketSize"
            | "coarsestIndexedLevel"
            | "finestIndexedLevel" => {
                if !elem.ty().is_number() {
                    return Err(wrong_type(elem, "a number"));
                }
                self.kept.push(elem);
            }
            "ns" => drop(text(elem)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn kept(&self, name: &str) -> Option<Value<'s>> {
        self.kept.iter().find(|e| e.key() == name).map(|e| e.value())
    }

    fn check_combination(&self, kind: IndexKind, key: Doc<'_>, spec: Doc<'_>) -> Result<()> {
        self.check_projection(kind, key)?;
        if self.sparse && self.partial.is_some() {
            bail!(
                CannotCreateIndex,
                "cannot mix \"partialFilterExpression\" and \"sparse\" options"
            );
        }
        if let Some(filter) = self.partial {
            check_partial_filter(filter)?;
        }
        if self.expire.is_some() && (key.count() > 1 || kind == IndexKind::Wildcard) {
            bail!(
                CannotCreateIndex,
                "TTL indexes are single-field indexes, compound indexes do not support TTL. Index \
                 spec: {}",
                shell_text(spec)
            );
        }
        self.check_wildcard(kind)?;
        if kind == IndexKind::Hashed && self.unique {
            bail!(
                16764,
                "Currently hashed indexes cannot guarantee uniqueness. Use a regular index."
            );
        }
        if matches!(kind, IndexKind::Text | IndexKind::Flat) && self.collation {
            bail!(
                CannotCreateIndex,
                "Index type '{}' does not support collation: {}",
                kind.name(),
                shell_text(spec)
            );
        }
        self.check_text(kind)?;
        self.check_geo(kind)?;
        if self.collation {
            bail!(
                CannotCreateIndex,
                "collation other than {{locale: \"simple\"}} is not supported by this server. Index \
                 spec: {}",
                shell_text(spec)
            );
        }
        Ok(())
    }

    fn check_projection(&self, kind: IndexKind, key: Doc<'_>) -> Result<()> {
        if kind == IndexKind::Wildcard {
            wildcard::check_has_projection(key, self.projection)?;
        }
        match self.projection {
            None => Ok(()),
            Some(projection) if kind == IndexKind::Wildcard => {
                wildcard::check_projection(key, projection)
            }
            Some(_) => bail!(
                BadValue,
                "The field 'wildcardProjection' is only allowed in a wildcard index"
            ),
        }
    }

    fn check_wildcard(&self, kind: IndexKind) -> Result<()> {
        if kind != IndexKind::Wildcard {
            return Ok(());
        }
        for (given, option) in [
            (self.sparse, "sparse"),
            (self.unique, "unique"),
            (self.prepare_unique, "prepareUnique"),
        ] {
            if given {
                bail!(
                    CannotCreateIndex,
                    "Index type 'wildcard' does not support the {option} option"
                );
            }
        }
        Ok(())
    }

    fn check_text(&self, kind: IndexKind) -> Result<()> {
        if self.of_text && kind != IndexKind::Text {
            bail!(CannotCreateIndex, "the field 'weights' can only be specified with text indexes");
        }
        if kind != IndexKind::Text {
            return Ok(());
        }
        if let Some(Value::Document(weights)) = self.kept("weights") {
            for weight in weights.iter() {
                let value = weight.value().as_f64_lossy();
                if !value.is_some_and(|w| (1.0..1e9).contains(&w)) {
                    bail!(
                        CannotCreateIndex,
                        "text index weight must be in the exclusive interval (0,1000000000) but \
                         found: {}",
                        shell_value(&weight.value())
                    );
                }
            }
        }
        if self
            .kept("language_override")
            .is_some_and(|v| v.as_str().is_none_or(|name| name.is_empty() || name.starts_with('$')))
        {
            bail!(CannotCreateIndex, "language_override is not valid");
        }
        if let Some(Value::String(language)) = self.kept("default_language")
            && !LANGUAGES.contains(&language.to_lowercase().as_str())
        {
            bail!(CannotCreateIndex, "default_language is not valid");
        }
        if let Some(version) = self.kept("textIndexVersion")
            && !matches!(version.as_i64_exact(), Some(1..=3))
        {
            bail!(CannotCreateIndex, "bad textIndexVersion: {}", shell_value(&version));
        }
        Ok(())
    }

    fn check_geo(&self, kind: IndexKind) -> Result<()> {
        if kind == IndexKind::Sphere
            && let Some(version) = self.kept("2dsphereIndexVersion")
            && !matches!(version.as_i64_exact(), Some(1..=3))
        {
            bail!(
                CannotCreateIndex,
                "unsupported geo index version {{ 2dsphereIndexVersion: {} }}, only support versions: \
                 [1,2,3]",
                shell_value(&version)
            );
        }
        if kind != IndexKind::Flat {
            return Ok(());
        }
        if let Some(bits) = self.kept("bits").and_then(|v| v.to_i64_saturating())
            && !(1..=32).contains(&bits)
        {
            bail!(
                InvalidOptions,
                "bits for hash must be > 0 and <= 32, but {bits} bits were specified"
            );
        }
        let low = self.kept("min").and_then(|v| v.as_f64_lossy()).unwrap_or(-180.0);
        let high = self.kept("max").and_then(|v| v.as_f64_lossy()).unwrap_or(180.0);
        if low.partial_cmp(&high) != Some(std::cmp::Ordering::Less) {
            bail!(
                InvalidOptions,
                "region for hash must be valid and have positive area, but [{low}, {high}] was \
                 specified"
            );
        }
        Ok(())
    }

    fn write(&self, key: Doc<'_>, name: &str, out: &mut DocWriter<'_>) {
        out.put("v", 2);
        out.put("key", key);
        out.put("name", name);
        for field in &self.seen {
            match *field {
                "unique" if self.unique => out.put("unique", true),
                "sparse" if self.sparse => out.put("sparse", true),
                "prepareUnique" if self.prepare_unique => out.put("prepareUnique", true),
                "hidden" if self.hidden => out.put("hidden", true),
                "partialFilterExpression" => {
                    out.put_value(field, &self.partial.map_or(Value::Missing, Value::from));
                }
                "expireAfterSeconds" => {
                    out.put_value(field, self.expire.as_ref().unwrap_or(&Value::Missing));
                }
                _ => {
                    if let Some(elem) = self.kept.iter().find(|e| e.key() == *field) {
                        out.put_elem(*elem);
                    }
                }
            }
        }
    }
}

const LANGUAGES: &[&str] = &[
    "none",
    "danish",
    "da",
    "dutch",
    "nl",
    "english",
    "en",
    "finnish",
    "fi",
    "french",
    "fr",
    "german",
    "de",
    "hungarian",
    "hu",
    "italian",
    "it",
    "norwegian",
    "nb",
    "portuguese",
    "pt",
    "romanian",
    "ro",
    "russian",
    "ru",
    "spanish",
    "es",
    "swedish",
    "sv",
    "turkish",
    "tr",
    "porter",
];

fn object<'s>(elem: Elem<'s>) -> Result<Doc<'s>> {
    match (elem.ty(), elem.as_doc()) {
        (Type::Document, Some(doc)) => Ok(doc),
        _ => Err(wrong_type(elem, "an object")),
    }
}

fn text(elem: Elem<'_>) -> Result<String> {
    match elem.value() {
        Value::String(text) => Ok(text.into_owned()),
        text if text.string_bytes().is_some() => {
            Err(kauri_bson::not_utf8::error(&format!("The field '{}'", elem.key())))
        }
        _ => Err(wrong_type(elem, "a string")),
    }
}

/// A boolean, or a number that stands for one.
fn boolean(elem: Elem<'_>) -> Result<bool> {
    match elem.value() {
        Value::Bool(flag) => Ok(flag),
        value if value.is_number() => Ok(value.truthy()),
        value => Err(Error::type_mismatch(format!(
            "The field '{}' has value {}: {}, which is not convertible to bool",
            elem.key(),
            elem.key(),
            shell_value(&value)
        ))),
    }
}

fn wrong_type(elem: Elem<'_>, expected: &str) -> Error {
    Error::type_mismatch(format!(
        "The field '{}' must be {expected}, but got {}",
        elem.key(),
        elem.ty().alias()
    ))
}

fn check_version(elem: Elem<'_>, spec: Doc<'_>) -> Result<()> {
    let value = elem.value();
    if !value.is_number() {
        return Err(wrong_type(elem, "a number"));
    }
    match value.as_i64_exact() {
        Some(1 | 2) => Ok(()),
        Some(version) if i32::try_from(version).is_ok() => bail!(
            CannotCreateIndex,
            "Invalid index specification {}; cannot create an index with v={version}",
            shell_text(spec)
        ),
        _ => bail!(
            BadValue,
            "Index version must be representable as a 32-bit integer, but got {}",
            shell_value(&value)
        ),
    }
}

/// The number of seconds as it is stored.
fn check_expiry<'s>(elem: Elem<'s>, spec: Doc<'_>) -> Result<Value<'s>> {
    let value = elem.value();
    if !value.is_number() {
        bail!(
            CannotCreateIndex,
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{}'. \
             Index spec: {}",
            elem.ty().alias(),
            shell_text(spec)
        );
    }
    check_expiry_range(&value).map_err(|error| {
        Error::new(
            ErrorCode::CannotCreateIndex,
            format!("{}. Index spec: {}", error.message(), shell_text(spec)),
        )
    })
}

/// `expireAfterSeconds` as it is stored, an int.
pub fn check_expiry_range(value: &Value<'_>) -> Result<Value<'static>> {
    let seconds = value.to_i64_saturating().unwrap_or(-1);
    if value.is_nan() || seconds < 0 {
        bail!(
            InvalidOptions,
            "TTL index 'expireAfterSeconds' option cannot be less than 0, was: {}",
            shell_value(value)
        );
    }
    match i32::try_from(seconds) {
        Ok(seconds) => Ok(Value::Int32(seconds)),
        Err(_) => bail!(
            InvalidOptions,
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a \
             different number than {seconds}"
        ),
    }
}

/// Whether the request has a collation other than the simple one.
fn check_collation(elem: Elem<'_>) -> Result<bool> {
    let collation = object(elem)?;
    if collation.is_empty() {
        bail!(BadValue, "The field 'collation' cannot be an empty object.");
    }
    crate::collation::check(collation)
}

/// Fails if the filter has what a partial index's may not have.
fn check_partial_filter(filter: Doc<'_>) -> Result<()> {
    let cx = kauri_matcher::ParseCx::new(kauri_matcher::Place::PartialIndex);
    let expr = MatchExpr::parse(filter, &cx)?;
    check_partial_node(&expr)
}

fn check_partial_node(expr: &MatchExpr) -> Result<()> {
    match expr {
        MatchExpr::And(children) | MatchExpr::Or(children) => {
            children.iter().try_for_each(check_partial_node)
        }
        MatchExpr::AlwaysTrue | MatchExpr::AlwaysFalse => Ok(()),
        MatchExpr::Leaf(leaf) => match &leaf.pred {
            Predicate::Compare(CompareOp::Eq, value) if value.ty() == Some(Type::Regex) => {
                Err(unsupported_in_partial())
            }
            Predicate::Compare(..) | Predicate::Exists | Predicate::Type(..) => Ok(()),
            Predicate::In(list) if list.regexes().is_empty() => Ok(()),
            _ => Err(unsupported_in_partial()),
        },
        _ => Err(unsupported_in_partial()),
    }
}

fn unsupported_in_partial() -> Error {
    Error::new(ErrorCode::CannotCreateIndex, "Expression not supported in partial index")
}

/// Whether two key patterns are the same: the same fields in the same order and direction.
pub fn same_key(a: Doc<'_>, b: Doc<'_>) -> bool {
    compare::compare_docs(a, b) == std::cmp::Ordering::Equal
}

/// Compares two definitions in stored form.
pub fn compare_specs(a: Doc<'_>, b: Doc<'_>) -> Likeness {
    let same = |field: &str| {
        compare::compare(&a.value(field), &b.value(field)) == std::cmp::Ordering::Equal
    };
    let flag = |field: &str| a.value(field).truthy() == b.value(field).truthy();
    if !same("key") || !same_filter(a, b) || !flag("unique") || !flag("sparse") {
        return Likeness::Different;
    }
    let options = ["expireAfterSeconds", "storageEngine"];
    if options.into_iter().all(same) && flag("hidden") && flag("prepareUnique") {
        Likeness::Identical
    } else {
        Likeness::Equivalent
    }
}

/// Whether two definitions index the same documents, however their filters are written.
fn same_filter(a: Doc<'_>, b: Doc<'_>) -> bool {
    let parse = |spec: Doc<'_>| match spec.value("partialFilterExpression") {
        Value::Document(filter) => {
            let cx = kauri_matcher::ParseCx::new(kauri_matcher::Place::PartialIndex);
            MatchExpr::parse(filter.as_doc(), &cx).ok()
        }
        _ => None,
    };
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => {
            kauri_matcher::is_subset_of(&a, &b) && kauri_matcher::is_subset_of(&b, &a)
        }
        (None, None) => true,
        _ => false,
    }
}

/// Compares a requested definition with an existing one (or an earlier one of the request). `Ok(true)`: it exists
/// already. `Ok(false)`: both may coexist.
pub fn conflicts(requested: Doc<'_>, existing: Doc<'_>) -> Result<bool> {
    let same_name = requested.value("name").as_str() == existing.value("name").as_str();
    let likeness = compare_specs(requested, existing);
    let both = || {
        format!(
            "Requested index: {}, existing index: {}",
            shell_text(requested),
            shell_text(existing)
        )
    };
    match (same_name, likeness) {
        (_, Likeness::Identical)
            if is_id(requested.value("key").as_document().unwrap_or(Doc::EMPTY)) =>
        {
            Ok(true)
        }
        (true, Likeness::Identical) => Ok(true),
        (true, Likeness::Equivalent) => bail!(
            IndexOptionsConflict,
            "An equivalent index already exists with the same name but different options. {}",
            both()
        ),
        (true, Likeness::Different) => bail!(
            IndexKeySpecsConflict,
            "An existing index has the same name as the requested index. When index names are not \
             specified, they are auto generated and can cause conflicts. Please refer to our \
             documentation. {}",
            both()
        ),
        (false, Likeness::Identical) => bail!(
            IndexOptionsConflict,
            "Index already exists with a different name: {}",
            existing.value("name").as_str().unwrap_or_default()
        ),
        (false, Likeness::Equivalent) => bail!(
            IndexOptionsConflict,
            "An equivalent index already exists with a different name and options. {}",
            both()
        ),
        (false, Likeness::Different) => Ok(false),
    }
}
