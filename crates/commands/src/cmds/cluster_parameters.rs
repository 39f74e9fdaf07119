//! `getClusterParameter` and `setClusterParameter`: the parameters, their checks and defaults. The values are kept by
//! [`crate::cluster_parameters`].
//!
//! A value is accepted only where what it says is true afterwards. `defaultMaxTimeMS` limits reads. Three parameters
//! are about data that a standalone server never has, as in MongoDB: pre-images, change collections, migrations. No
//! value of theirs can be broken, and each one is stored and shown. The others are refused.

use crate::args::{self, Args};
use crate::cluster_parameters::{DEFAULT_MAX_TIME, READ_OPERATIONS, TIME, store, stored};
use crate::invocation::Invocation;
use crate::registry::{Command, Run, Target};
use crate::write_concern::WriteConcern;
use kauri_base::{Error, ErrorCode, Result, Timestamp, bail};
use kauri_bson::{Doc, DocBuf, Elem, Type, Value, doc, shell_value};
use kauri_catalog::OperationKind;

/// `getClusterParameter`.
pub const GET: Command =
    Command::admin("getClusterParameter", "shows parameters of a cluster", get);
/// `setClusterParameter`.
pub const SET: Command = Command {
    admin_only: true,
    target: Target::Server,
    write_concern: false,
    adds_memory: true,
    kind: OperationKind::Other,
    ..Command::write("setClusterParameter", "sets a parameter of a cluster", set)
};

struct Parameter {
    name: &'static str,
    /// The value that nobody has set.
    default: fn() -> DocBuf,
    /// The whole value, where fields that are not given have their defaults. Fails if the value is wrong.
    read: Read,
}

enum Read {
    Settable(fn(Doc<'_>) -> Result<DocBuf>),
    /// Cannot be set here.
    Fixed,
}

/// In the order of their names.
const ALL: &[Parameter] = &[
    Parameter {
        name: "addOrRemoveShardInProgress",
        default: || doc! { "inProgress" => false },
        read: Read::Fixed,
    },
    Parameter {
        name: "changeStreamOptions",
        default: || doc! { "preAndPostImages" => doc! { "expireAfterSeconds" => "off" } },
        read: Read::Settable(read_change_stream_options),
    },
    Parameter {
        name: "changeStreams",
        default: || doc! { "expireAfterSeconds" => 3600i64 },
        read: Read::Settable(|doc| {
            let field = "expireAfterSeconds";
            let seconds = read_field("changeStreams", doc, field, |a, e| at_least(a, e, 1, "> 0"))?;
            Ok(doc! { field => seconds.unwrap_or(3600) })
        }),
    },
    Parameter {
        name: "configServerReadPreferenceForCatalogQueries",
        default: || doc! { "mustAlwaysUseNearest" => false },
        read: Read::Fixed,
    },
    Parameter {
        name: DEFAULT_MAX_TIME,
        default: || doc! { READ_OPERATIONS => 0i64 },
        read: Read::Settable(|doc| {
            let check = |args: &Args<'_>, elem: Elem<'_>| at_least(args, elem, 0, ">= 0");
            let ms = read_field(DEFAULT_MAX_TIME, doc, READ_OPERATIONS, check)?;
            Ok(doc! { READ_OPERATIONS => ms.unwrap_or(0) })
        }),
    },
    Parameter {
        name: "fleCompactionOptions",
        default: || {
            doc! {
                "maxCompactionSize" => 268_435_456, "maxAnchorCompactionSize" => 268_435_456,
                "maxESCEntriesPerCompactionDelete" => 350_000,
            }
        },
        read: Read::Fixed,
    },
    Parameter {
        name: "internalQueryCutoffForSampleFromRandomCursor",
        default: || doc! { "sampleCutoff" => 0.05 },
        read: Read::Fixed,
    },
    Parameter {
        name: "pauseMigrationsDuringMultiUpdates",
        default: || doc! { "enabled" => false },
        read: Read::Settable(|doc| {
            let name = "pauseMigrationsDuringMultiUpdates";
            let enabled = read_field(name, doc, "enabled", |args, elem| args.bool(elem))?;
            Ok(doc! { "enabled" => enabled.unwrap_or(false) })
        }),
    },
    Parameter {
        name: "shardedClusterCardinalityForDirectConns",
        default: || doc! { "hasTwoOrMoreShards" => false },
        read: Read::Fixed,
    },
];

fn find(name: &str) -> Result<&'static Parameter> {
    ALL.iter().find(|parameter| parameter.name == name).ok_or_else(|| {
        Error::new(ErrorCode::NoSuchKey, format!("Unknown server parameter: {name}"))
    })
}

fn get<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("getClusterParameter");
        let target = invocation.target()?;
        let found: Vec<&Parameter> = match (target.value(), target.as_doc()) {
            (Value::String(name), _) if name == "*" => ALL.iter().collect(),
            (Value::String(name), _) => vec![find(&name)?],
            (Value::Array(_), Some(names)) => {
                let names = names.iter().map(|name| args.string(name));
                let names = names.collect::<Result<Vec<_>>>()?;
                if names.is_empty() {
                    bail!(
                        BadValue,
                        "Must supply at least one cluster server parameter name to getClusterParameter"
                    );
                }
                names.iter().map(|name| find(name)).collect::<Result<_>>()?
            }
            _ => return Err(args.wrong_type(target, &["string", "array"])),
        };
        let mut shown = Vec::with_capacity(found.len());
        for parameter in found {
            shown.push(show(invocation, parameter).await?);
        }
        let mut list = invocation.reply.array("clusterParameters");
        shown.iter().for_each(|one| list.push_doc(one.as_doc()));
        Ok(())
    })
}

/// A parameter as clients see it.
async fn show(invocation: &mut Invocation<'_>, parameter: &Parameter) -> Result<DocBuf> {
    let stored = match parameter.read {
        Read::Settable(read) => {
            let catalog = &invocation.server.catalog;
            let stored = stored(&mut invocation.op, catalog, parameter.name).await?;
            stored.and_then(|stored| read_stored(stored.as_doc(), read))
        }
        Read::Fixed => None,
    };
    let (time, value) = stored.unwrap_or_else(|| (Timestamp::default(), (parameter.default)()));
    Ok(DocBuf::build(|out| {
        out.put("_id", parameter.name);
        out.put(TIME, time);
        out.put_all(value.as_doc());
    }))
}

/// The time and the value in a stored document. `None` if it is none of this parameter: a client may have written
/// anything there.
fn read_stored(
    stored: Doc<'_>,
    read: fn(Doc<'_>) -> Result<DocBuf>,
) -> Option<(Timestamp, DocBuf)> {
    let given = DocBuf::build(|out| {
        let fields = stored.iter().filter(|field| !matches!(field.key(), "_id" | TIME));
        fields.for_each(|field| out.put_elem(field));
    });
    let time = match stored.value(TIME) {
        Value::Timestamp(time) => time,
        _ => Timestamp::default(),
    };
    Some((time, read(given.as_doc()).ok()?))
}

fn set<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("setClusterParameter");
        let target = invocation.target()?;
        let Some(asked) = args.given(target, Args::object)? else {
            return Err(args.missing("setClusterParameter"));
        };
        if asked.count() > 1 {
            bail!(
                InvalidOptions,
                "setClusterParameter only supports setting exactly one parameter"
            );
        }
        let parameter = find(asked.first().map_or("", Elem::key))?;
        let value = asked.first().filter(|elem| elem.ty() == Type::Document);
        let Some(value) = value.and_then(Elem::as_doc) else {
            bail!(BadValue, "Cluster parameter value must be an object");
        };
        if let Some(elem) = value.iter().find(|elem| elem.key().starts_with('$')) {
            bail!(
                DollarPrefixedFieldName,
                "The dollar ($) prefixed field '{0}' in '{0}' is not valid for storage.",
                elem.key()
            );
        }
        match parameter.read {
            Read::Settable(read) => read(value)?,
            Read::Fixed => bail!(
                IllegalOperation,
                "The cluster parameter '{}' cannot be set on a standalone server",
                parameter.name
            ),
        };
        let catalog = invocation.server.catalog.clone();
        let ticket = store(&mut invocation.op, &catalog, parameter.name, value).await?;
        // As MongoDB has it, whatever the client's default.
        invocation.write_concern = WriteConcern::majority();
        invocation.wait_for_commit(Some(ticket)).await
    })
}

/// The field of a value that has no other. A field that is null is not given.
fn read_field<T>(
    path: &str,
    doc: Doc<'_>,
    field: &str,
    read: impl Fn(&Args<'_>, Elem<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let args = Args::new(path);
    let mut found = None;
    for elem in args::structure(doc) {
        if elem.key() != field {
            return Err(args.unknown(elem.key()));
        }
        if found.is_some() {
            bail!(40413, "BSON field '{path}.{field}' is a duplicate field");
        }
        found = Some(read(&args, elem)?);
    }
    Ok(found)
}

fn at_least(args: &Args<'_>, elem: Elem<'_>, min: i64, bound: &str) -> Result<i64> {
    let number = args.long(elem)?;
    if number < min {
        bail!(
            BadValue,
            "BSON field '{}' value must be {bound}, actual value '{number}'",
            elem.key()
        );
    }
    Ok(number)
}

/// All that is wrong is a bad value here, as MongoDB has it.
fn read_change_stream_options(doc: Doc<'_>) -> Result<DocBuf> {
    let images = doc.get("preAndPostImages").filter(|elem| elem.ty() == Type::Document);
    let Some(images) = images.and_then(Elem::as_doc) else {
        bail!(BadValue, "'changeStreamOptions.preAndPostImages' must be an object");
    };
    let fields = doc.iter().filter(|elem| elem.key() != "preAndPostImages");
    if let Some(other) =
        fields.chain(images.iter().filter(|e| e.key() != "expireAfterSeconds")).next()
    {
        bail!(BadValue, "'changeStreamOptions' has no field '{}'", other.key());
    }
    let seconds = match images.value("expireAfterSeconds") {
        Value::Missing => Value::from("off"),
        Value::String(text) if text == "off" => Value::from("off"),
        value => match value.as_i64_exact() {
            Some(seconds) if seconds > 0 => Value::Int64(seconds),
            _ => bail!(
                BadValue,
                "'expireAfterSeconds' must be 'off' or a number above 0, found {}",
                shell_value(&value)
            ),
        },
    };
    Ok(doc! { "preAndPostImages" => doc! { "expireAfterSeconds" => seconds } })
}
