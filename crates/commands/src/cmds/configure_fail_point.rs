//! `configureFailPoint`, for tests: only if `enableTestCommands` is set.

use crate::args::Args;
use crate::fail_command;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::failpoint::Mode;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, Elem, Value};

/// See the module's head.
pub const COMMAND: Command = Command {
    never_fails_by_failpoint: true,
    ..Command::admin("configureFailPoint", "sets a failpoint, for tests", run)
};

enum Setting {
    Off,
    On(Mode),
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let server = invocation.server;
        if !server.parameters.flag("enableTestCommands") {
            bail!(CommandNotFound, "no such command: 'configureFailPoint'");
        }
        let args = Args::new("configureFailPoint");
        let name = args.string(invocation.target()?)?;
        let (mut setting, mut data) = (None, Doc::EMPTY);
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "mode" => setting = Some(mode(elem)?),
                "data" => data = args.object(elem)?,
                _ => args.other(elem)?,
            }
        }
        let Some(setting) = setting else { return Err(args.missing("mode")) };
        if !fail_command::POINTS.contains(&name.as_str()) {
            bail!(FailPointSetFailed, "{name} not found");
        }
        let count = match setting {
            Setting::Off => server.fail_points.unset(&name),
            Setting::On(mode) => {
                match name.as_str() {
                    "failCommand" => check_data(data)?,
                    "onPrimaryTransactionalWrite" => fail_command::check_numbered(data)?,
                    "waitInFindBeforeMakingBatch" => fail_command::check_in_find(data)?,
                    "failGetMoreAfterCursorCheckout" if data.value("errorCode").is_number() => {}
                    "failGetMoreAfterCursorCheckout" => {
                        bail!(BadValue, "{name} needs a number 'errorCode'")
                    }
                    _ => {}
                }
                server.fail_points.set(&name, mode, data.as_bytes().to_vec())
            }
        };
        invocation.reply.put("count", count as i64);
        Ok(())
    })
}

fn mode(elem: Elem<'_>) -> Result<Setting> {
    match elem.value().lossy() {
        Value::String(text) if text == "off" => Ok(Setting::Off),
        Value::String(text) if text == "alwaysOn" => Ok(Setting::On(Mode::AlwaysOn)),
        Value::String(text) => bail!(BadValue, "unknown mode: {text}"),
        Value::Document(doc) => {
            let Some(first) = doc.as_doc().first() else {
                bail!(BadValue, "When setting a failpoint mode, an empty object is no mode");
            };
            let value = first.value();
            match (first.key(), value.to_i64_saturating()) {
                ("times", Some(times)) if times >= 0 => Ok(Setting::On(Mode::Times(times as u64))),
                ("skip", Some(skip)) if skip >= 0 => Ok(Setting::On(Mode::Skip(skip as u64))),
                ("times" | "skip", Some(_)) => {
                    bail!(BadValue, "'{}' option for 'mode' must be positive", first.key())
                }
                ("activationProbability", _) => match value.as_f64_lossy() {
                    Some(p) if (0.0..=1.0).contains(&p) => Ok(Setting::On(Mode::Random(p))),
                    _ => bail!(
                        BadValue,
                        "activationProbability must be between 0.0 and 1.0; found {}",
                        kauri_bson::shell_value(&value)
                    ),
                },
                (key @ ("times" | "skip"), None) => {
                    bail!(TypeMismatch, "'{key}' option for 'mode' must be a number")
                }
                (other, _) => bail!(BadValue, "'mode' has no option '{other}'"),
            }
        }
        _ => bail!(TypeMismatch, "'mode' must be a string or JSON object"),
    }
}

/// The fields of `failCommand`'s data that have a meaning here; another one would be passed over in
/// silence and let a test pass for the wrong reason. All clients fail alike, so `failInternalCommands` says nothing.
const DATA_FIELDS: &[&str] = &[
    "failCommands",
    "errorCode",
    "errorExtraInfo",
    "errorLabels",
    "closeConnection",
    "blockConnection",
    "blockTimeMS",
    "writeConcernError",
    "appName",
    "namespace",
    "failInternalCommands",
    "failAllCommands",
];

fn check_data(data: Doc<'_>) -> Result<()> {
    for elem in data {
        if !DATA_FIELDS.contains(&elem.key()) {
            bail!(BadValue, "failCommand has no option '{}'", elem.key());
        }
        if elem.value().is_not_utf8() {
            return Err(kauri_bson::not_utf8::error(&format!("'{}'", elem.key())));
        }
    }
    if data.value("blockConnection").truthy() && !data.value("blockTimeMS").is_number() {
        bail!(InvalidOptions, "must specify 'blockTimeMS' when 'blockConnection' is true");
    }
    if data.value("failCommands").as_array().is_none() && !data.value("failAllCommands").truthy() {
        bail!(BadValue, "failCommand needs an array 'failCommands'");
    }
    Ok(())
}
