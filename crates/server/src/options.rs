//! The options of `kauri serve`: mongod's flags, and its YAML file.
//!
//! Each option has one name, the one in the file (`net.port`). Flags are other spellings and override the file. An
//! unknown flag or setting is an error, and so is one for an unsupported feature.

use crate::option_table::{KNOWN, Kind, NOT_YET};
use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{DocBuf, DocWriter, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Settings and names of the latencies that are added to persistent memory: reads, lines, fences.
pub const PM_LATENCIES: [(&str, &str); 3] = [
    ("storage.pmlog.readLatencyNanos", "pmReadLatencyNanos"),
    ("storage.pmlog.lineLatencyNanos", "pmLineLatencyNanos"),
    ("storage.pmlog.fenceLatencyNanos", "pmFenceLatencyNanos"),
];
/// Most that may be added: a tenth of a second.
pub const PM_LATENCY_NANOS_MAX: u64 = 100_000_000;

/// Whether a setting of [`NOT_YET`] says that what is not there yet is not wanted.
fn is_unwanted(setting: &str, text: &str) -> bool {
    match setting {
        "security.authorization" | "net.tls.mode" => text == "disabled",
        "processManagement.fork" | "storage.directoryPerDB" => text == "false",
        _ => false,
    }
}

/// The options of a server.
pub struct Options {
    settings: BTreeMap<&'static str, String>,
    parameters: Vec<(String, String)>,
    config: Option<PathBuf>,
    /// `systemLog.destination` of the file, which `systemLog.path` must agree with.
    log_destination: Option<String>,
}

/// The form of `kauri serve`.
pub fn command() -> Command {
    let mut serve = Command::new("serve")
        .about("Runs the database server")
        .arg(
            Arg::new("config")
                .short('f')
                .long("config")
                .value_name("FILE")
                .help("Configuration file (YAML)"),
        )
        .arg(
            Arg::new("nounixsocket")
                .long("nounixsocket")
                .action(ArgAction::SetTrue)
                .help("Do not listen on a Unix domain socket"),
        );
    for option in KNOWN {
        let arg = Arg::new(option.flag).long(option.flag).help(option.help);
        serve = serve.arg(match option.kind {
            Kind::Flag => arg.action(ArgAction::SetTrue),
            Kind::Pairs => arg.action(ArgAction::Append).value_name("NAME=VALUE"),
            Kind::Text | Kind::Number | Kind::Decimal => arg.value_name(option.value),
        });
    }
    for (flag, _) in NOT_YET {
        let arg = Arg::new(*flag).long(*flag).hide(true).num_args(0..=1);
        serve = serve.arg(arg.default_missing_value("true"));
    }
    serve
}

impl Options {
    /// Reads the flags and the file that they name.
    pub fn parse(matches: &ArgMatches) -> Result<Options> {
        let mut options = Options {
            settings: BTreeMap::new(),
            parameters: Vec::new(),
            config: None,
            log_destination: None,
        };
        if let Some(file) = matches.get_one::<String>("config") {
            options.config = Some(PathBuf::from(file));
            options.read_file(file)?;
        }
        for (flag, setting) in NOT_YET {
            if matches.value_source(flag).is_some() {
                return Err(not_yet(&format!("--{flag}"), setting));
            }
        }
        for option in KNOWN {
            match option.kind {
                Kind::Flag => {
                    if matches.get_flag(option.flag) {
                        options.settings.insert(option.setting, "true".to_owned());
                    }
                }
                Kind::Pairs => {
                    for pair in matches.get_many::<String>(option.flag).into_iter().flatten() {
                        let Some((name, value)) = pair.split_once('=') else {
                            return Err(bad(format!(
                                "--setParameter takes name=value, not '{pair}'"
                            )));
                        };
                        options.parameters.push((name.to_owned(), value.to_owned()));
                    }
                }
                Kind::Text | Kind::Number | Kind::Decimal => {
                    if let Some(value) = matches.get_one::<String>(option.flag) {
                        options.settings.insert(option.setting, value.clone());
                    }
                }
            }
        }
        if matches.get_flag("nounixsocket") {
            options.settings.insert("net.unixDomainSocket.enabled", "false".to_owned());
        }
        options.check()?;
        Ok(options)
    }

    fn read_file(&mut self, file: &str) -> Result<()> {
        let text = std::fs::read_to_string(file)
            .map_err(|e| bad(format!("cannot read the configuration file {file}: {e}")))?;
        let root: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text)
            .map_err(|e| bad(format!("the configuration file {file} is not valid YAML: {e}")))?;
        if root.is_null() {
            return Ok(());
        }
        self.read_node("", &root, file)
    }

    fn read_node(&mut self, path: &str, node: &serde_yaml_ng::Value, file: &str) -> Result<()> {
        use serde_yaml_ng::Value as Yaml;
        let Yaml::Mapping(fields) = node else {
            return Err(bad(format!("{file}: '{path}' must contain settings")));
        };
        for (name, value) in fields {
            let Some(name) = name.as_str() else {
                return Err(bad(format!(
                    "{file}: the names of settings under '{path}' must be text"
                )));
            };
            let full = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let text = match value {
                Yaml::Mapping(pairs) if full == "setParameter" => {
                    for (name, value) in pairs {
                        let (Some(name), Some(value)) = (name.as_str(), scalar(value)) else {
                            return Err(bad(format!(
                                "{file}: setParameter takes names and values"
                            )));
                        };
                        self.parameters.push((name.to_owned(), value));
                    }
                    continue;
                }
                Yaml::Mapping(_) => {
                    self.read_node(&full, value, file)?;
                    continue;
                }
                other => scalar(other)
                    .ok_or_else(|| bad(format!("{file}: '{full}' must have one value")))?,
            };
            if let Some(option) = KNOWN.iter().find(|o| o.setting == full) {
                self.settings.insert(option.setting, text);
            } else if full == "systemLog.destination" {
                self.log_destination = Some(text);
            } else if full == "systemLog.timeStampFormat" && text == "iso8601-utc" {
                // There is no other.
            } else if full == "storage.journal.enabled" {
                // Files of old versions of mongod have it.
                if text != "true" {
                    return Err(bad(format!("{file}: '{full}' can only be true")));
                }
            } else if NOT_YET.iter().any(|(_, setting)| *setting == full) {
                is_unwanted(&full, &text).then_some(()).ok_or_else(|| not_yet(&full, &full))?;
            } else {
                return Err(bad(format!("{file}: unknown setting '{full}'")));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        for option in KNOWN {
            let Some(value) = self.settings.get(option.setting) else { continue };
            let good = match option.kind {
                Kind::Number => value.parse::<u64>().is_ok(),
                Kind::Decimal => value.parse::<f64>().is_ok_and(|n| n > 0.0),
                Kind::Flag => matches!(value.as_str(), "true" | "false"),
                Kind::Text | Kind::Pairs => true,
            };
            if !good {
                return Err(bad(format!("--{} cannot be '{value}'", option.flag)));
            }
        }
        if self.number("net.port", 27017) > 65535 {
            return Err(bad("--port must be at most 65535".to_owned()));
        }
        let interval = self.number("storage.journal.commitIntervalMs", 100);
        if !(1..=500).contains(&interval) {
            return Err(bad("--journalCommitInterval must be between 1 and 500".to_owned()));
        }
        match (self.log_destination.as_deref(), self.given("systemLog.path")) {
            (Some("file"), Some(_)) | (None, _) => {}
            (Some("file"), None) => {
                let why = "systemLog.path is required if systemLog.destination is to a file";
                return Err(bad(why.to_owned()));
            }
            (Some("syslog"), _) => return Err(not_yet("systemLog.destination: syslog", "syslog")),
            (Some(other), _) => {
                return Err(bad(format!(
                    "Bad value for systemLog.destination: {other}.  Supported targets are: (syslog|file)"
                )));
            }
        }
        let rotation = self.text("systemLog.logRotate", "rename");
        if !matches!(rotation.as_str(), "rename" | "reopen") {
            return Err(bad(format!("unsupported value for logRotate: {rotation}")));
        }
        if rotation == "reopen" && !self.flag("systemLog.logAppend", false) {
            return Err(bad("logAppend must equal true if logRotate is set to reopen".to_owned()));
        }
        if !matches!(self.text("net.sharedMemory", "on").as_str(), "on" | "off") {
            return Err(bad("--sharedMemory must be on or off".to_owned()));
        }
        if !(256..=65_536).contains(&self.number("net.stackKB", 1024)) {
            return Err(bad("--stackKB must be between 256 and 65536".to_owned()));
        }
        if !matches!(self.text("net.workerCores", "own").as_str(), "own" | "any") {
            return Err(bad("--workerCores must be own or any".to_owned()));
        }
        if !matches!(self.text("net.ioUring", "on").as_str(), "on" | "off") {
            return Err(bad("--ioUring must be on or off".to_owned()));
        }
        if !matches!(self.text("net.rdma.mode", "on").as_str(), "on" | "off" | "require") {
            return Err(bad("--rdma must be on, off or require".to_owned()));
        }
        for (setting, flag) in
            [("net.rdma.port", "rdmaPort"), ("net.rdma.gidIndex", "rdmaGidIndex")]
        {
            if self.number(setting, 1) > 255 {
                return Err(bad(format!("--{flag} must be at most 255")));
            }
        }
        if self.profiling_level() < 0 {
            return Err(bad("--profile must be 0 (off), 1 (slowOp) or 2 (all)".to_owned()));
        }
        let rate = self.decimal("operationProfiling.slowOpSampleRate", 1.0);
        if !(0.0..=1.0).contains(&rate) {
            return Err(bad("--slowOpSampleRate must be between 0 and 1".to_owned()));
        }
        let memory = self.text("storage.pmlog.persistentMemory", "auto");
        if !matches!(memory.as_str(), "auto" | "off" | "simulated") {
            return Err(bad("--persistentMemory must be auto, off or simulated".to_owned()));
        }
        for (setting, flag) in PM_LATENCIES {
            if self.number(setting, 0) > PM_LATENCY_NANOS_MAX {
                return Err(bad(format!("--{flag} must be at most {PM_LATENCY_NANOS_MAX}")));
            }
        }
        if !matches!(self.text("storage.pmlog.verify", "quick").as_str(), "quick" | "full") {
            return Err(bad("--verify must be quick or full".to_owned()));
        }
        let segment_mb = self.number("storage.pmlog.segmentSizeMB", 64);
        if segment_mb > 128 || !segment_mb.is_power_of_two() {
            return Err(bad("--segmentSizeMB must be a power of two from 1 to 128".to_owned()));
        }
        self.check_set()
    }

    /// A set's members have the log of `pmlog`.
    fn check_set(&self) -> Result<()> {
        if !(1..=1 << 20).contains(&self.number("replication.oplogSizeMB", 1)) {
            return Err(bad("--oplogSize must be from 1 to 1048576".to_owned()));
        }
        let engine = self.text("storage.engine", "pmlog");
        let leaves = self.flag("replication.leaveReplSet", false);
        if leaves && engine != "pmlog" {
            return Err(bad(format!("--leaveReplSet needs --storageEngine pmlog, not {engine}")));
        }
        let Some(name) = self.given("replication.replSetName") else { return Ok(()) };
        if leaves {
            return Err(bad("--leaveReplSet runs without --replSet".to_owned()));
        }
        if name.is_empty() || name.contains('/') {
            return Err(bad("--replSet needs the name of a replica set, without '/'".to_owned()));
        }
        if engine != "pmlog" {
            return Err(bad(format!(
                "--replSet needs --storageEngine pmlog: {engine} does not replicate its log"
            )));
        }
        if self.flag("storage.repair", false) {
            return Err(bad(
                "--repair runs without --replSet, and sets a member's log back".to_owned()
            ));
        }
        Ok(())
    }

    /// A setting's text.
    pub fn text(&self, setting: &str, default: &str) -> String {
        self.settings.get(setting).cloned().unwrap_or_else(|| default.to_owned())
    }

    /// A setting's text, if it was given.
    pub fn given(&self, setting: &str) -> Option<&str> {
        self.settings.get(setting).map(String::as_str)
    }

    /// A number that was checked.
    pub fn number(&self, setting: &str, default: u64) -> u64 {
        self.settings.get(setting).and_then(|v| v.parse().ok()).unwrap_or(default)
    }

    /// A number that may have a fraction and was checked; not a number if it is none.
    pub fn decimal(&self, setting: &str, default: f64) -> f64 {
        self.settings.get(setting).map_or(default, |v| v.parse().unwrap_or(f64::NAN))
    }

    /// The profiling level of databases without a level of their own; negative if the name is unknown.
    pub fn profiling_level(&self) -> i32 {
        match self.text("operationProfiling.mode", "off").as_str() {
            "off" | "0" => 0,
            "slowOp" | "1" => 1,
            "all" | "2" => 2,
            _ => -1,
        }
    }

    /// A size in GB, in bytes.
    pub fn gigabytes(&self, setting: &str) -> Option<u64> {
        let gigabytes: f64 = self.settings.get(setting)?.parse().ok()?;
        Some((gigabytes * (1u64 << 30) as f64) as u64)
    }

    /// Whether a flag is set.
    pub fn flag(&self, setting: &str, default: bool) -> bool {
        self.settings.get(setting).map_or(default, |v| v == "true")
    }

    /// The parameters to set at the start.
    pub fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    /// The options as `getCmdLineOpts` shows them.
    pub fn to_doc(&self) -> DocBuf {
        DocBuf::build(|out| {
            if let Some(config) = &self.config {
                out.put("config", config.display().to_string());
            }
            let entries: Vec<(Vec<&str>, Value<'_>)> = self
                .settings
                .iter()
                .map(|(setting, text)| (setting.split('.').collect(), typed(text)))
                .collect();
            write_nested(out, &entries, 0);
            if !self.parameters.is_empty() {
                let mut list = out.document("setParameter");
                for (name, value) in &self.parameters {
                    list.put(name, value.as_str());
                }
            }
        })
    }
}

fn write_nested(out: &mut DocWriter<'_>, entries: &[(Vec<&str>, Value<'_>)], depth: usize) {
    let mut at = 0;
    while let Some((path, value)) = entries.get(at) {
        let Some(name) = path.get(depth) else { return };
        if path.len() == depth + 1 {
            out.put_value(name, value);
            at += 1;
            continue;
        }
        let end = entries[at..].iter().take_while(|(p, _)| p.get(depth) == Some(name)).count();
        write_nested(&mut out.document(name), &entries[at..at + end], depth + 1);
        at += end;
    }
}

/// A setting's text as the value that it looks like.
pub fn typed(text: &str) -> Value<'_> {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        text => match text.parse::<i32>() {
            Ok(number) => Value::Int32(number),
            Err(_) => Value::from(text),
        },
    }
}

fn scalar(value: &serde_yaml_ng::Value) -> Option<String> {
    use serde_yaml_ng::Value as Yaml;
    match value {
        Yaml::String(text) => Some(text.clone()),
        Yaml::Bool(flag) => Some(flag.to_string()),
        Yaml::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn bad(message: String) -> Error {
    Error::new(ErrorCode::InvalidOptions, message)
}

fn not_yet(what: &str, setting: &str) -> Error {
    bad(format!(
        "{what} ({setting}) is not available in this version of Kauri; leave it out to run a \
         standalone server without it"
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn parse(args: &[&str]) -> Result<Options> {
        let line = ["kauri", "serve"].iter().chain(args);
        let program = Command::new("kauri").subcommand(command());
        let matches = program.try_get_matches_from(line).map_err(|e| bad(e.to_string()))?;
        let (_, serve) = matches.subcommand().ok_or_else(|| bad("no subcommand".to_owned()))?;
        Options::parse(serve)
    }

    #[test]
    fn flags_override_the_file() {
        let file = std::env::temp_dir().join(format!("kauri-options-{}.yaml", std::process::id()));
        std::fs::write(
            &file,
            "net:\n  port: 1\n  bindIp: 127.0.0.1\nstorage:\n  dbPath: /x\nsetParameter:\n  a: 1\n",
        )
        .unwrap();
        let options = parse(&["-f", file.to_str().unwrap(), "--port", "2"]).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(options.number("net.port", 0), 2);
        assert_eq!(options.text("storage.dbPath", ""), "/x");
        assert_eq!(options.parameters(), [("a".to_owned(), "1".to_owned())]);
        let doc = options.to_doc();
        assert_eq!(doc.as_doc().value("net").as_document().unwrap().value("port"), Value::Int32(2));
    }

    #[test]
    fn a_member_keeps_a_part_of_the_disk_as_its_log() {
        let of = |args: &[&str], size_gb: u64| {
            crate::set::log_bytes(&parse(args).unwrap(), Some(size_gb << 30)) >> 20
        };
        assert_eq!([of(&[], 100), of(&[], 10_000), of(&[], 10)], [5120, 51_200, 990]);
        assert_eq!([of(&[], 2), of(&["--maxSizeGB", "2"], 100)], [512, 512]);
        assert_eq!(of(&["--maxSizeGB", "2", "--oplogSize", "7"], 100), 7);
        assert!(parse(&["--replSet", "a", "--oplogSize", "0"]).is_err());
    }

    #[test]
    fn segments_are_smaller_with_little_space() {
        let mb =
            |args: &[&str], space| crate::engine::segment_bytes(&parse(args).unwrap(), space) >> 20;
        const GB: u64 = 1 << 30;
        assert_eq!((mb(&[], None), mb(&[], Some((9 * GB, 5 * GB)))), (64, 64));
        assert_eq!(mb(&[], Some((9 * GB, 5 * GB + 1))), 32);
        assert_eq!(mb(&["--maxSizeGB", "4"], Some((100 * GB, 0))), 64);
        assert_eq!(mb(&["--maxSizeGB", "3.9"], Some((100 * GB, 0))), 32);
        for given in ["4", "128"] {
            let args = ["--maxSizeGB", "1", "--segmentSizeMB", given];
            assert_eq!(mb(&args, Some((GB, 0))).to_string(), given);
        }
    }

    #[test]
    fn the_logs_destination_agrees_with_its_path() {
        let file = std::env::temp_dir().join(format!("kauri-log-options-{}", std::process::id()));
        let parse_file = |text: &str| {
            std::fs::write(&file, format!("systemLog:\n{text}")).unwrap();
            let outcome = parse(&["-f", file.to_str().unwrap()]);
            std::fs::remove_file(&file).unwrap();
            outcome.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let path = "  path: /x\n  timeStampFormat: iso8601-utc\n  quiet: true\n";
        assert_eq!(parse_file(path), "");
        assert_eq!(parse_file(&format!("{path}  destination: file\n")), "");
        for (text, words) in [
            ("  destination: file\n", "systemLog.path is required"),
            ("  destination: syslog\n", "not available"),
            ("  destination: x\n", "Supported targets are"),
            ("  timeStampFormat: iso8601-local\n", "unknown setting"),
            ("  logRotate: x\n", "unsupported value for logRotate"),
        ] {
            let error = parse_file(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_setting_of_the_file_is_met_or_refused() {
        let file = std::env::temp_dir().join(format!("kauri-met-options-{}", std::process::id()));
        let parse_file = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let outcome = parse(&["-f", file.to_str().unwrap()]);
            std::fs::remove_file(&file).unwrap();
            outcome.err().map(|error| error.to_string()).unwrap_or_default()
        };
        for (text, words) in [
            ("storage:\n  journal:\n    enabled: true\n", ""),
            ("storage:\n  journal:\n    enabled: false\n", "can only be true"),
            ("net:\n  tls:\n    mode: disabled\n", ""),
            ("processManagement:\n  fork: false\n", ""),
            ("operationProfiling:\n  filter: '{ op: \"query\" }'\n", "unknown setting"),
            ("systemLog:\n  component:\n    query:\n      verbosity: 2\n", "unknown setting"),
        ] {
            let error = parse_file(text);
            assert_eq!(error.is_empty(), words.is_empty(), "{text}: {error}");
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn unknown_wrong_and_unsupported_options_are_errors() {
        for (args, words) in [
            (&["--nosuch"][..], "--nosuch"),
            (&["--port", "x"], "--port"),
            (&["--port", "70000"], "65535"),
            (&["--replSet", ""], "name"),
            (&["--replSet", "rs0/host:1"], "name"),
            (&["--replSet", "rs0", "--storageEngine", "wiredTiger"], "pmlog"),
            (&["--replSet", "rs0", "--repair"], "--repair"),
            (&["--auth"], "not available"),
            (&["--journalCommitInterval", "0"], "between 1 and 500"),
            (&["--segmentSizeMB", "3"], "power of two"),
            (&["--persistentMemory", "yes"], "simulated"),
            (&["--profile", "3"], "0 (off), 1 (slowOp) or 2 (all)"),
            (&["--slowOpSampleRate", "1.5"], "between 0 and 1"),
            (&["--slowOpSampleRate", "x"], "between 0 and 1"),
            (&["--sharedMemory", "yes"], "on or off"),
            (&["--ioUring", "yes"], "on or off"),
            (&["--workerCores", "first"], "own or any"),
            (&["--rdma", "auto"], "on, off or require"),
            (&["--rdmaGidIndex", "256"], "at most 255"),
            (&["--verify", "summaries"], "quick or full"),
            (&["--pmReadLatencyNanos", "1000000000"], "at most"),
            (&["--setParameter", "x"], "name=value"),
        ] {
            let error = parse(args).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(words), "{args:?}: {error}");
        }
    }
}
