//! `getParameter`.

use crate::args::{Args, is_generic};
use crate::invocation::Invocation;
use crate::parameters::Parameter;
use crate::registry::{Command, Run};
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocWriter, Value};

/// See the module's head.
pub const COMMAND: Command = Command::admin("getParameter", "returns server parameters", run);

#[derive(Default)]
struct Request {
    all: bool,
    details: bool,
    set_at: Option<String>,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let target = invocation.target()?;
        let request = match (target.value(), target.as_doc()) {
            (Value::String(name), _) if name == "*" => Request { all: true, ..Request::default() },
            (Value::Document(_), Some(doc)) => parse(doc)?,
            _ => Request::default(),
        };
        let all = invocation.server.parameters.all();
        let mut found = false;
        let body = invocation.body;
        if request.all {
            for (name, parameter) in &all {
                let wanted = match request.set_at.as_deref() {
                    Some("startup") => parameter.at_startup,
                    Some(_) => parameter.at_runtime,
                    None => true,
                };
                if wanted {
                    found = true;
                    write(&mut invocation.reply, name, parameter, request.details);
                }
            }
        } else {
            for elem in body.iter().skip(1).filter(|e| !is_generic(e.key())) {
                if let Some(parameter) = all.get(elem.key()) {
                    found = true;
                    write(&mut invocation.reply, elem.key(), parameter, request.details);
                }
            }
        }
        if !found {
            bail!(InvalidOptions, "no option found to get");
        }
        Ok(())
    })
}

fn parse(doc: Doc<'_>) -> Result<Request> {
    let args = Args::new("getParameter.getParameter");
    let mut request = Request::default();
    for elem in doc {
        match elem.key() {
            "allParameters" => request.all = args.given(elem, Args::safe_bool)?.unwrap_or(false),
            "showDetails" => request.details = args.given(elem, Args::safe_bool)?.unwrap_or(false),
            "setAt" => {
                request.set_at = args.given(elem, Args::string)?;
                if let Some(when) = request.set_at.as_deref()
                    && !matches!(when, "startup" | "runtime")
                {
                    bail!(
                        BadValue,
                        "Enumeration value '{when}' for field 'getParameter.getParameter.setAt' is \
                         not a valid value."
                    );
                }
            }
            other => return Err(args.unknown(other)),
        }
    }
    Ok(request)
}

fn write(out: &mut DocWriter<'_>, name: &str, parameter: &Parameter, details: bool) {
    if !details {
        out.put_value(name, &parameter.value);
        return;
    }
    let mut entry = out.document(name);
    entry.put_value("value", &parameter.value);
    entry.put("settableAtRuntime", parameter.at_runtime);
    entry.put("settableAtStartup", parameter.at_startup);
}
