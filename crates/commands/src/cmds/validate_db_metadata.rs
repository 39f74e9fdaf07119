//! `validateDBMetadata`: checks definitions against an API version. Sparse indexes are not part of version 1.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{ErrorCode, Result, bail};
use kauri_bson::{Doc, DocBuf, Elem};
use kauri_catalog::check_database_name;

/// See the module's head.
pub const COMMAND: Command = Command {
    ..Command::read("validateDBMetadata", "checks definitions against an API version", run)
};

#[derive(Default)]
struct Api {
    strict: bool,
    known: bool,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("validateDBMetadata");
        let (mut api, mut db, mut name) = (None, None, None);
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "apiParameters" => api = args.given(elem, read_api)?,
                "db" => db = args.given(elem, database)?,
                "collection" => name = args.given(elem, Args::string)?,
                _ => args.other(elem)?,
            }
        }
        let Some(api) = api else { return Err(args.missing("apiParameters")) };
        if let Some(name) = &name
            && (name.is_empty() || name.starts_with('.') || name.contains('\0'))
        {
            bail!(InvalidNamespace, "Invalid collection name: {name}");
        }
        let mut errors = Vec::new();
        if api.known && api.strict {
            let mut collections = invocation.server.catalog.all_collections();
            collections.sort_by(|a, b| a.ns.cmp(&b.ns));
            for collection in collections {
                let ns = &collection.ns;
                let wanted = db.as_deref().is_none_or(|db| db == ns.database())
                    && name.as_deref().is_none_or(|name| name == ns.collection());
                for index in collection.indexes.iter().filter(|i| wanted && i.definition().sparse) {
                    errors.push(refused(ns.as_str(), index.name()));
                }
            }
        }
        let mut list = invocation.reply.array("apiVersionErrors");
        errors.iter().for_each(|error| list.push_doc(error.as_doc()));
        Ok(())
    })
}

fn refused(ns: &str, index: &str) -> DocBuf {
    let code = ErrorCode::APIStrictError;
    DocBuf::build(|out| {
        out.put("ns", ns);
        out.put("code", code.number());
        out.put("codeName", code.name());
        out.put("errmsg", format!("The index with name {index} is not allowed in API version 1."));
    })
}

fn database(args: &Args<'_>, elem: Elem<'_>) -> Result<String> {
    let name = args.string(elem)?;
    if name.is_empty() {
        bail!(28539, "The database name cannot be empty");
    }
    if name.contains([' ', '/', '\\', '"']) {
        bail!(13280, "Invalid database name: {name}");
    }
    // A dollar sign in a name is nothing that this command minds.
    check_database_name(&name.replace('$', "_"))?;
    Ok(name)
}

fn read_api(args: &Args<'_>, elem: Elem<'_>) -> Result<Api> {
    let doc: Doc<'_> = args.object(elem)?;
    let args = Args::new("validateDBMetadata.apiParameters");
    let (mut api, mut version) = (Api::default(), None);
    for field in doc {
        match field.key() {
            "version" => version = args.given(field, Args::string)?,
            "strict" => api.strict = args.bool(field)?,
            "deprecationErrors" => {
                args.bool(field)?;
            }
            other => return Err(args.unknown(other)),
        }
    }
    let Some(version) = version else { return Err(args.missing("version")) };
    // Of another version nothing is known, so nothing can be against it.
    api.known = version == "1";
    Ok(api)
}
