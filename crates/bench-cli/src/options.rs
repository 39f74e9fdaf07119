//! Common options of `kauri bench engine` and `kauri bench ycsb`.

use clap::{Arg, ArgAction, ArgMatches};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::engine::{self, Kind};

/// An option with a value.
pub fn value(name: &'static str, form: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(form).help(help)
}

/// The options that both have.
pub fn common() -> [Arg; 4] {
    [
        value("engines", "LIST", "Engines, separated by commas: pmlog, wiredTiger [default: all that are built in]"),
        value("seed", "N", "Seed of random numbers [default: 1]"),
        value("json", "FILE", "Write the table to this file, as JSON"),
        Arg::new("quick")
            .long("quick")
            .action(ArgAction::SetTrue)
            .help("Run with little data for a short time, as a test of the command. The figures are meaningless"),
    ]
}

/// A number above 0.
pub fn number(matches: &ArgMatches, name: &str, default: u64) -> Result<u64> {
    let Some(text) = matches.get_one::<String>(name) else { return Ok(default) };
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| Error::bad_value(format!("--{name} must be a number above 0, not '{text}'")))
}

/// What is separated by commas.
pub fn list<'m>(matches: &'m ArgMatches, name: &str) -> Option<Vec<&'m str>> {
    matches.get_one::<String>(name).map(|list| list.split(',').collect())
}

/// The engines that are asked for, if any are.
pub fn kinds(matches: &ArgMatches) -> Result<Option<Vec<Kind>>> {
    list(matches, "engines").map(|names| names.into_iter().map(kind).collect()).transpose()
}

/// The engine of this name.
pub fn kind(name: &str) -> Result<Kind> {
    match name {
        "pmlog" => Ok(Kind::PmLog),
        "wiredTiger" if engine::HAS_WIREDTIGER => Ok(Kind::WiredTiger),
        "wiredTiger" => Err(Error::new(ErrorCode::InvalidOptions, engine::WITHOUT_WIREDTIGER)),
        other => {
            Err(Error::bad_value(format!("--engines takes pmlog and wiredTiger, not '{other}'")))
        }
    }
}

/// Writes the table where `--json` says.
pub fn write_json(matches: &ArgMatches, json: impl FnOnce() -> String) -> Result<()> {
    let Some(file) = matches.get_one::<String>("json") else { return Ok(()) };
    std::fs::write(file, json()).map_err(|error| {
        Error::new(ErrorCode::FileOpenFailed, format!("cannot write {file}: {error}"))
    })
}
