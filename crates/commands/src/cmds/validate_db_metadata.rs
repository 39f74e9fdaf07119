//! `validateDBMetadata`: whether definitions keep to a version of the API. All that this server
//! takes belongs to version 1.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_base::{Result, bail};
use kauri_bson::{Doc, Value};

/// See the module's head.
pub const COMMAND: Command = Command {
    access: Access::Read,
    ..Command::new("validateDBMetadata", "checks definitions against an API version", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("validateDBMetadata");
        let mut api = None;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "apiParameters" => api = args.given(elem, Args::object)?,
                "db" | "collection" => drop(args.given(elem, Args::string)?),
                _ => args.other(elem)?,
            }
        }
        let Some(api) = api else { return Err(args.missing("apiParameters")) };
        check_api(api)?;
        invocation.reply.put_value("apiVersionErrors", &Value::array([]));
        Ok(())
    })
}

fn check_api(api: Doc<'_>) -> Result<()> {
    let args = Args::new("validateDBMetadata.apiParameters");
    let mut version = None;
    for field in api {
        match field.key() {
            "version" => version = args.given(field, Args::string)?,
            "strict" | "deprecationErrors" => {
                let _ = args.given(field, Args::bool)?;
            }
            other => return Err(args.unknown(other)),
        }
    }
    match version.as_deref() {
        Some("1") => Ok(()),
        Some(other) => bail!(APIVersionError, "Provided apiVersion is not supported: {other}"),
        None => Err(args.missing("version")),
    }
}
