//! Queryable encryption, which needs a replica set: the option `encryptedFields` of `create` and the commands
//! that compact its collections. Arguments that are wrong in themselves are told so first.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_base::{Error, Result, bail};
use kauri_bson::{Doc, Elem, Type, Value};
use kauri_catalog::Resolved;

/// `compactStructuredEncryptionData`.
pub const COMPACT: Command = Command {
    access: Access::Read,
    ..Command::new("compactStructuredEncryptionData", "compacts data of encrypted fields", run)
};
/// `cleanupStructuredEncryptionData`.
pub const CLEAN_UP: Command = Command {
    access: Access::Read,
    ..Command::new("cleanupStructuredEncryptionData", "cleans up data of encrypted fields", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let args = Args::new(invocation.name);
        let tokens_name = match invocation.name {
            "compactStructuredEncryptionData" => "compactionTokens",
            _ => "cleanupTokens",
        };
        let mut tokens = None;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                name if name == tokens_name => tokens = args.given(elem, Args::object)?,
                "encryptionInformation" => {
                    args.given(elem, Args::object)?;
                }
                _ => args.other(elem)?,
            }
        }
        if tokens.is_none() {
            return Err(args.missing(tokens_name));
        }
        match invocation.server.catalog.resolve(ns.as_str()) {
            Resolved::Collection(_) => {
                bail!(6346807, "Target namespace is not an encrypted collection")
            }
            Resolved::View(_) => bail!(
                CommandNotSupportedOnView,
                "Cannot compact structured encryption data on a view"
            ),
            Resolved::Nothing => bail!(NamespaceNotFound, "Collection '{ns}' does not exist"),
        }
    })
}

/// Checks `encryptedFields`.
pub fn check_fields(args: &Args<'_>, elem: Elem<'_>) -> Result<()> {
    let config = args.object(elem)?;
    let args = Args::new("create.encryptedFields");
    let mut fields = None;
    for elem in config {
        match elem.key() {
            "escCollection" | "ecocCollection" | "eccCollection" => {
                args.given(elem, Args::string)?;
            }
            "strEncodeVersion" => {
                args.given(elem, Args::long)?;
            }
            "fields" => fields = args.given(elem, Args::array)?,
            _ => args.accepted(elem)?,
        }
    }
    let Some(fields) = fields else { return Err(args.missing("fields")) };
    let mut paths: Vec<String> = Vec::new();
    for field in fields {
        let path = check_field(args.object(field)?)?;
        if paths.contains(&path) {
            bail!(6338402, "Duplicate paths are not allowed");
        }
        let of = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
        };
        if let Some(other) = paths.iter().find(|other| of(&path, other) || of(other, &path)) {
            bail!(
                6338403,
                "Conflicting index path found as one is a prefix of another {path} and {other}"
            );
        }
        paths.push(path);
    }
    Ok(())
}

/// Checks one field; answers its path.
fn check_field(field: Doc<'_>) -> Result<String> {
    let args = Args::new("create.encryptedFields.fields");
    let (mut path, mut key_id, mut ty, mut queries) = (None, false, None, None);
    for elem in field {
        match elem.key() {
            "keyId" => key_id = args.given(elem, check_uuid)?.is_some(),
            "path" => path = args.given(elem, Args::string)?,
            "bsonType" => ty = args.given(elem, Args::string)?,
            "queries" => {
                queries = Some(match (elem.ty(), elem.as_doc()) {
                    (Type::Document, Some(one)) => vec![read_query(one)?],
                    (Type::Array, Some(many)) => {
                        let read = |one| read_query(args.object(one)?);
                        many.iter().map(read).collect::<Result<Vec<_>>>()?
                    }
                    _ => return Err(args.wrong_type(elem, &["array", "object"])),
                });
            }
            _ => args.accepted(elem)?,
        }
    }
    if !key_id {
        return Err(args.missing("keyId"));
    }
    let Some(path) = path else { return Err(args.missing("path")) };
    if path.is_empty() {
        bail!(6316402, "Encrypted field must have a non-empty path");
    }
    if path.contains('\0') {
        bail!(9867600, "Encrypted field path must not contain a null byte");
    }
    if path == "_id" || path.starts_with("_id.") {
        bail!(6316403, "Cannot encrypt _id or its subfields.");
    }
    let ty = ty.as_deref().map(field_type).transpose()?;
    if let Some(queries) = queries {
        check_queries(ty, &queries)?;
    }
    Ok(path)
}

fn check_queries(ty: Option<Type>, queries: &[QueryType<'_>]) -> Result<()> {
    let [query] = queries else {
        if queries.is_empty() {
            bail!(9783412, "At least one query type should be specified per field");
        }
        bail!(9783414, "Equality and range queries cannot be combined on a field");
    };
    let Some(ty) = ty else {
        bail!(6412601, "Must specify a bsonType for an encrypted field with queries");
    };
    query.check(ty)
}

fn check_uuid(args: &Args<'_>, elem: Elem<'_>) -> Result<()> {
    match elem.value() {
        Value::Binary { subtype: 4, bytes } if bytes.len() == 16 => Ok(()),
        Value::Binary { subtype: 4, .. } => {
            bail!(InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype")
        }
        Value::Binary { .. } => Err(Error::type_mismatch(format!(
            "BSON field 'create.encryptedFields.fields.{}' is the wrong binData type, expected type 'UUID'",
            elem.key()
        ))),
        _ => Err(args.wrong_type(elem, &["binData"])),
    }
}

fn field_type(alias: &str) -> Result<Type> {
    let Some(ty) = Type::from_alias(alias) else {
        bail!(BadValue, "Unknown type name alias: {alias}");
    };
    if matches!(ty, Type::Null | Type::Undefined | Type::MinKey | Type::MaxKey) {
        bail!(6338406, "Type '{alias}' is not a supported encrypted type");
    }
    Ok(ty)
}

struct QueryType<'d> {
    is_range: bool,
    min: Option<Value<'d>>,
    max: Option<Value<'d>>,
}

fn read_query(query: Doc<'_>) -> Result<QueryType<'_>> {
    let args = Args::new("create.encryptedFields.fields.queries");
    let (mut kind, mut min, mut max) = (None, None, None);
    for elem in query {
        match elem.key() {
            "queryType" => kind = args.given(elem, Args::string)?,
            "contention" => {
                args.given(elem, |_, elem| whole(elem, 0))?;
            }
            "sparsity" => {
                args.given(elem, |_, elem| whole(elem, 1))?;
            }
            "trimFactor" | "precision" => {
                args.given(elem, |_, elem| whole(elem, 0))?;
            }
            "min" => min = Some(elem.value()),
            "max" => max = Some(elem.value()),
            _ => args.accepted(elem)?,
        }
    }
    let Some(kind) = kind else { return Err(args.missing("queryType")) };
    if !matches!(&*kind, "equality" | "range") {
        bail!(
            BadValue,
            "Enumeration value '{kind}' for field 'create.encryptedFields.fields.queries.queryType' is \
             not a valid value."
        );
    }
    Ok(QueryType { is_range: kind == "range", min, max })
}

/// A number without a fraction, at least `min`.
fn whole(elem: Elem<'_>, min: i64) -> Result<i64> {
    let value = elem.value();
    let Some(number) = value.as_f64_lossy().filter(|_| value.is_number()) else {
        return Err(Args::new("create.encryptedFields.fields.queries")
            .wrong_type(elem, &["long", "int", "decimal", "double"]));
    };
    let Some(exact) = value.as_i64_exact() else {
        bail!(FailedToParse, "Expected an integer: {}: {number}", elem.key());
    };
    if exact < min {
        bail!(
            BadValue,
            "BSON field '{}' value must be >= {min}, actual value '{exact}'",
            elem.key()
        );
    }
    Ok(exact)
}

impl QueryType<'_> {
    fn check(&self, ty: Type) -> Result<()> {
        if self.is_range {
            return self.check_range(ty);
        }
        let unsupported = [Type::Double, Type::Decimal128, Type::Document, Type::Array];
        if unsupported.contains(&ty) {
            bail!(6338405, "Type '{}' is not a supported equality indexed type", ty.alias());
        }
        Ok(())
    }

    fn check_range(&self, ty: Type) -> Result<()> {
        let numbers = [Type::Int32, Type::Int64, Type::Double, Type::Decimal128, Type::DateTime];
        if !numbers.contains(&ty) {
            bail!(6775201, "Type '{}' is not a supported range indexed type", ty.alias());
        }
        for bound in [&self.min, &self.max].into_iter().flatten() {
            if bound.ty() != Some(ty) {
                bail!(
                    7018200,
                    "Range bounds must be of the field's bsonType '{}', found '{}'",
                    ty.alias(),
                    bound.type_name()
                );
            }
        }
        if let (Some(min), Some(max)) = (&self.min, &self.max)
            && kauri_bson::compare(min, max).is_ge()
        {
            bail!(6720005, "The minimum value must be less than the maximum value");
        }
        Ok(())
    }
}

/// Fails: a standalone has no encrypted collections.
pub fn refuse() -> Error {
    Error::location(6346402, "Encrypted collections are not supported on standalone")
}

/// The error for a collection of another kind that is to be encrypted.
pub fn conflict(with_capped: bool) -> Error {
    match with_capped {
        true => Error::location(6367301, "Encrypted collections cannot be capped"),
        false => Error::location(
            6346401,
            "Encrypted fields cannot be used with views or timeseries collections",
        ),
    }
}
