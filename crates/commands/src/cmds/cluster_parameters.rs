//! `getClusterParameter` and `setClusterParameter`. The parameters have their defaults: values that are set would have
//! to be stored, and are refused once they are found right.

use crate::args::{self, Args};
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, DocBuf, Elem, Type, Value, doc, shell_value};

/// `getClusterParameter`.
pub const GET: Command =
    Command::admin("getClusterParameter", "shows parameters of a cluster", get);
/// `setClusterParameter`.
pub const SET: Command =
    Command::admin("setClusterParameter", "sets a parameter of a cluster", set);

struct Parameter {
    name: &'static str,
    value: fn() -> DocBuf,
    /// Fails if a value is wrong in itself.
    check: fn(Doc<'_>) -> Result<()>,
}

/// In the order of their names.
const ALL: &[Parameter] = &[
    Parameter {
        name: "changeStreamOptions",
        value: || doc! { "preAndPostImages" => doc! { "expireAfterSeconds" => "off" } },
        check: check_change_stream_options,
    },
    Parameter {
        name: "changeStreams",
        value: || doc! { "expireAfterSeconds" => 3600i64 },
        check: |doc| {
            check_field("changeStreams", doc, "expireAfterSeconds", |args, elem| {
                at_least(args, elem, "> 0", 1)
            })
        },
    },
    Parameter {
        name: "defaultMaxTimeMS",
        value: || doc! { "readOperations" => 0i64 },
        check: |doc| {
            check_field("defaultMaxTimeMS", doc, "readOperations", |args, elem| {
                at_least(args, elem, ">= 0", 0)
            })
        },
    },
    Parameter {
        name: "pauseMigrationsDuringMultiUpdates",
        value: || doc! { "enabled" => false },
        check: |doc| {
            check_field("pauseMigrationsDuringMultiUpdates", doc, "enabled", |args, elem| {
                args.bool(elem).map(drop)
            })
        },
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
        let mut list = invocation.reply.array("clusterParameters");
        for parameter in found {
            let value = (parameter.value)();
            list.push_doc(
                DocBuf::build(|out| {
                    out.put("_id", parameter.name);
                    out.put_all(value.as_doc());
                })
                .as_doc(),
            );
        }
        Ok(())
    })
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
            bail!(BadValue, "Cluster parameter '{}' must be an object", parameter.name);
        };
        if let Some(elem) = value.iter().find(|elem| elem.key().starts_with('$')) {
            bail!(
                DollarPrefixedFieldName,
                "The dollar ($) prefixed field '{0}' in '{0}' is not valid for storage.",
                elem.key()
            );
        }
        (parameter.check)(value)?;
        bail!(IllegalOperation, "setClusterParameter cannot be run on standalones")
    })
}

/// Checks a value that has this field and no other. A field that is null has its default.
fn check_field(
    path: &str,
    doc: Doc<'_>,
    field: &str,
    check: impl Fn(&Args<'_>, Elem<'_>) -> Result<()>,
) -> Result<()> {
    let args = Args::new(path);
    for elem in args::structure(doc) {
        if elem.key() != field {
            return Err(args.unknown(elem.key()));
        }
        check(&args, elem)?;
    }
    Ok(())
}

fn at_least(args: &Args<'_>, elem: Elem<'_>, bound: &str, min: i64) -> Result<()> {
    let number = args.long(elem)?;
    if number < min {
        bail!(
            BadValue,
            "BSON field '{}' value must be {bound}, actual value '{number}'",
            elem.key()
        );
    }
    Ok(())
}

/// All that is wrong is a bad value here, as MongoDB has it.
fn check_change_stream_options(doc: Doc<'_>) -> Result<()> {
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
    match images.value("expireAfterSeconds") {
        Value::Missing => Ok(()),
        Value::String(text) if text == "off" => Ok(()),
        value if value.as_i64_exact().is_some_and(|seconds| seconds > 0) => Ok(()),
        value => bail!(
            BadValue,
            "'expireAfterSeconds' must be 'off' or a number above 0, found {}",
            shell_value(&value)
        ),
    }
}
