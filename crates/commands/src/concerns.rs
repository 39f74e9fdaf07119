//! The arguments of every command: sessions, time limits, read and write concerns, API version.

use crate::read_concern::ReadConcern;
use crate::registry::Command;
use crate::set::{cluster_time, read_preference};
use crate::write_concern::WriteConcern;
use crate::{read_concern, write_concern};
use kauri_base::{Error, ErrorCode, OperationContext, Result, Timestamp, bail};
use kauri_bson::{Doc, Elem, Type, Value};
use std::time::Duration;

/// What a command asks of the set that this server may be a member of.
#[derive(Default)]
pub struct Concerns {
    /// What a write waits for.
    pub write: WriteConcern,
    /// What a read may see.
    pub read: ReadConcern,
    /// Whether a secondary may answer.
    pub secondary_ok: bool,
    /// `$clusterTime`, on a member of a set.
    pub cluster_time: Option<Timestamp>,
}

/// Reads the generic arguments of a command. `is_member`: this server is a member of a set.
pub fn read(
    command: &Command,
    body: Doc<'_>,
    op: &mut OperationContext,
    is_member: bool,
) -> Result<Concerns> {
    let mut concerns = Concerns::default();
    let mut api_version = None;
    let mut api_strict = false;
    let (mut autocommit, mut start_transaction) = (None, None);
    for elem in body.iter().skip(1) {
        match elem.key() {
            // What waits for data does so no longer, which is its own business.
            "maxTimeMS" if command.waits_for_data => drop(max_time_ms(elem)?),
            "maxTimeMS" | "maxTimeMSOpOnly" => {
                let limit = Duration::from_millis(max_time_ms(elem)?);
                if !limit.is_zero() && op.time_left().is_none_or(|left| limit < left) {
                    op.set_deadline(limit);
                }
            }
            "$readPreference" => concerns.secondary_ok = read_preference::parse(elem)?,
            "$clusterTime" if is_member => {
                concerns.cluster_time = Some(cluster_time::parse(elem)?);
            }
            "lsid" => op.lsid = Some(session_id(elem)?),
            "txnNumber" => op.txn_number = Some(txn_number(elem)?),
            "autocommit" => autocommit = Some(flag(elem)?),
            "startTransaction" => start_transaction = Some(flag(elem)?),
            "readConcern" => concerns.read = read_concern::read(command, elem, is_member)?,
            "writeConcern" => concerns.write = write_concern::read(command, elem, is_member)?,
            "apiVersion" => match elem.value().lossy() {
                Value::String(version) => api_version = Some(version.into_owned()),
                _ => return Err(wrong_type("apiVersion", elem, "string")),
            },
            "apiStrict" => match elem.value() {
                Value::Bool(strict) => api_strict = strict,
                _ => return Err(wrong_type("apiStrict", elem, "bool")),
            },
            "apiDeprecationErrors" if elem.ty() != Type::Bool => {
                return Err(wrong_type("apiDeprecationErrors", elem, "bool"));
            }
            _ => {}
        }
    }
    check_api(command, body, api_version.as_deref(), api_strict)?;
    if autocommit.is_some() && op.txn_number.is_none() {
        bail!(
            InvalidOptions,
            "'autocommit' field requires a transaction number to also be specified"
        );
    }
    if start_transaction.is_some() && autocommit.is_none() {
        bail!(
            InvalidOptions,
            "'startTransaction' field requires 'autocommit' field to also be specified"
        );
    }
    if autocommit.is_some() && is_member && op.lsid.is_some() {
        bail!(IllegalOperation, "Transactions are not supported on replica sets yet");
    }
    Ok(concerns)
}

/// `txnNumber` of this element.
pub fn txn_number(elem: Elem<'_>) -> Result<i64> {
    match elem.value() {
        Value::Int64(number) => Ok(number),
        _ => Err(wrong_type("txnNumber", elem, "long")),
    }
}

/// Fails unless a session may number this command here.
pub fn check_txn_number(
    command: &Command,
    lsid: Option<[u8; 16]>,
    number: i64,
    is_member: bool,
) -> Result<()> {
    if lsid.is_none() {
        bail!(InvalidOptions, "Transaction number requires a session ID to also be specified");
    }
    if number < 0 {
        bail!(InvalidOptions, "Transaction number cannot be negative");
    }
    if !is_member {
        bail!(
            IllegalOperation,
            "Transaction numbers are only allowed on a replica set member or mongos"
        );
    }
    if !command.numbered {
        return Err(Error::location(
            50768,
            format!("It is illegal to provide a txnNumber for command {}", command.name),
        ));
    }
    Ok(())
}

fn flag(elem: Elem<'_>) -> Result<bool> {
    match elem.value() {
        Value::Bool(flag) => Ok(flag),
        _ => Err(wrong_type(elem.key(), elem, "bool")),
    }
}

fn check_api(command: &Command, body: Doc<'_>, version: Option<&str>, strict: bool) -> Result<()> {
    match version {
        None => {
            if body.get("apiStrict").is_some() || body.get("apiDeprecationErrors").is_some() {
                return Err(Error::location(
                    4886600,
                    "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
                ));
            }
            Ok(())
        }
        Some("1") => {
            if strict && !command.api_v1 {
                bail!(
                    APIStrictError,
                    "Provided apiStrict:true, but the command {} is not in API Version 1. \
                     Information on supported commands and migrations in API Version 1 can be \
                     found at https://dochub.mongodb.org/core/manual-versioned-api",
                    command.name
                );
            }
            Ok(())
        }
        Some(other) => bail!(APIVersionError, "API version must be \"1\", not \"{other}\""),
    }
}

/// The error for a generic argument of the wrong type.
pub fn wrong_type(field: &str, elem: Elem<'_>, expected: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field '{field}' is the wrong type '{}', expected type '{expected}'",
        elem.ty().alias()
    ))
}

/// `maxTimeMS` of this element.
pub fn max_time_ms(elem: Elem<'_>) -> Result<u64> {
    let value = elem.value();
    if value.is_nullish() {
        return Ok(0);
    }
    if !value.is_number() {
        bail!(
            TypeMismatch,
            "BSON field 'maxTimeMS' is the wrong type '{}', expected types '[long, int, decimal, \
             double]'",
            elem.ty().alias()
        );
    }
    let Some(ms) = value.as_i64_exact() else {
        bail!(FailedToParse, "maxTimeMS has non-integral value");
    };
    if ms < 0 || ms > i64::from(i32::MAX) {
        bail!(BadValue, "{ms} value for maxTimeMS is out of range [0, {}]", i32::MAX);
    }
    Ok(ms as u64)
}

/// The session id in `lsid: {id: UUID}`.
pub fn session_id(elem: Elem<'_>) -> Result<[u8; 16]> {
    let Value::Document(lsid) = elem.value() else {
        return Err(wrong_type("lsid", elem, "object"));
    };
    let mut id = None;
    for field in lsid.iter() {
        match field.key() {
            "id" => match field.value() {
                Value::Binary { subtype: 4, bytes } => id = <[u8; 16]>::try_from(&*bytes).ok(),
                Value::Binary { subtype, .. } => bail!(
                    TypeMismatch,
                    "BSON field 'OperationSessionInfo.lsid.id' is the wrong binData type \
                     '{}', expected type 'UUID'",
                    binary_name(subtype)
                ),
                _ => {
                    bail!(
                        TypeMismatch,
                        "BSON field 'OperationSessionInfo.lsid.id' is the wrong type '{}', \
                         expected type 'binData'",
                        field.ty().alias()
                    );
                }
            },
            // Without users a session belongs to everybody.
            "uid" => {}
            "txnNumber" | "txnUUID" => return Err(internal_session()),
            other => {
                bail!(40415, "BSON field 'OperationSessionInfo.lsid.{other}' is an unknown field.")
            }
        }
    }
    id.ok_or_else(|| {
        Error::location(
            40414,
            "BSON field 'OperationSessionInfo.lsid.id' is missing but a required field",
        )
    })
}

/// The error for a session that a server opens within one of a client.
pub fn internal_session() -> Error {
    Error::new(
        ErrorCode::InvalidOptions,
        "Internal sessions are not supported outside of transactions",
    )
}

fn binary_name(subtype: u8) -> &'static str {
    match subtype {
        0 => "general",
        1 => "function",
        2 => "binary (old)",
        3 => "UUID (old)",
        5 => "MD5",
        6 => "encrypt",
        7 => "column",
        8 => "sensitive",
        _ => "user-defined",
    }
}
