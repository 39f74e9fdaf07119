//! The options of `kauri serve`: mongod's flags, and its YAML file.
//!
//! Each option has one name, the one in the file (`net.port`); flags are other ways to write it, and
//! win over the file. An unknown flag or setting, and one that asks for what does not exist yet, is
//! an error that says so.

use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{DocBuf, DocWriter, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What kind of value an option takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flag,
    Text,
    Number,
    /// A number that may have a fraction.
    Decimal,
    /// `name=value`, any number of times.
    Pairs,
}

/// One option: its setting's name, its flag, its kind, its help.
struct Known {
    setting: &'static str,
    flag: &'static str,
    kind: Kind,
    help: &'static str,
}

const fn known(setting: &'static str, flag: &'static str, kind: Kind, help: &'static str) -> Known {
    Known { setting, flag, kind, help }
}

const KNOWN: &[Known] = &[
    known(
        "storage.dbPath",
        "dbpath",
        Kind::Text,
        "directory of the data files [default: /data/db]",
    ),
    known("net.port", "port", Kind::Number, "port to listen on [default: 27017]"),
    known(
        "net.bindIp",
        "bind_ip",
        Kind::Text,
        "addresses to listen on, separated by commas [default: localhost]",
    ),
    known("net.bindIpAll", "bind_ip_all", Kind::Flag, "listen on all addresses"),
    known("net.ipv6", "ipv6", Kind::Flag, "also listen on IPv6 addresses"),
    known(
        "net.maxIncomingConnections",
        "maxConns",
        Kind::Number,
        "most connections at a time [default: 65536]",
    ),
    known(
        "net.unixDomainSocket.enabled",
        "unixDomainSocket",
        Kind::Flag,
        "listen on a Unix domain socket [default: on]",
    ),
    known(
        "net.unixDomainSocket.pathPrefix",
        "unixSocketPrefix",
        Kind::Text,
        "directory of the Unix domain socket [default: /tmp]",
    ),
    known(
        "net.unixDomainSocket.filePermissions",
        "filePermissions",
        Kind::Text,
        "permissions of the Unix domain socket [default: 0700]",
    ),
    known(
        "net.sharedMemory",
        "sharedMemory",
        Kind::Text,
        "on: clients over the Unix domain socket, of the server's own user, may change over to shared \
         memory; off: they may not [default: on]",
    ),
    known(
        "net.rdma.mode",
        "rdma",
        Kind::Text,
        "on: clients over TCP may change over to RDMA, if there is a device; off: they may not; require: \
         without a device the server does not start [default: on]",
    ),
    known(
        "net.rdma.device",
        "rdmaDevice",
        Kind::Text,
        "the RDMA device [default: the first that has an active port]",
    ),
    known(
        "net.rdma.port",
        "rdmaPort",
        Kind::Number,
        "the RDMA device's port [default: the one that has the address which a client comes to]",
    ),
    known(
        "net.rdma.gidIndex",
        "rdmaGidIndex",
        Kind::Number,
        "the place of the GID in the port's table [default: the one of the address which a client comes \
         to]",
    ),
    known(
        "net.rdma.memoryMB",
        "rdmaMemoryMB",
        Kind::Number,
        "most memory that sessions over RDMA may pin, in MB [default: 256]",
    ),
    known(
        "net.rdma.poolMB",
        "rdmaPoolMB",
        Kind::Number,
        "memory that is pinned for large messages over RDMA, in MB; without any they are slower [default: 64]",
    ),
    known(
        "net.spinMicros",
        "spinMicros",
        Kind::Number,
        "most microseconds that a worker looks for requests before it sleeps; fewer while none come in time [default: 0]",
    ),
    known(
        "net.workers",
        "workers",
        Kind::Number,
        "worker threads [default: one per core; with an engine that blocks 64]",
    ),
    known(
        "net.stackKB",
        "stackKB",
        Kind::Number,
        "stack of a request, in KB, 256 to 65536; more lets requests nest deeper before they fail with \
         Overflow [default: 1024]",
    ),
    known(
        "net.workerCores",
        "workerCores",
        Kind::Text,
        "own: with as many workers as cores, each stays on a core of its own while it has several requests \
         at a time, and lets who runs there finish; any: all that is left to the kernel [default: own]",
    ),
    known(
        "net.ioUring",
        "ioUring",
        Kind::Text,
        "on: replies that become ready together, within 0.1 ms, are sent in one system call, where the kernel \
         lets io_uring be used; off: one by one [default: on]",
    ),
    known("systemLog.path", "logpath", Kind::Text, "file for the log [default: standard output]"),
    known(
        "systemLog.logAppend",
        "logappend",
        Kind::Flag,
        "append to the log file instead of moving it aside",
    ),
    known(
        "systemLog.logRotate",
        "logRotate",
        Kind::Text,
        "what logRotate and SIGUSR1 do with the log file. rename: it is moved aside, by the time; reopen: it is opened \
         anew, after another program has moved it; needs --logappend [default: rename]",
    ),
    known("systemLog.quiet", "quiet", Kind::Flag, "log less"),
    known("systemLog.verbosity", "verbosity", Kind::Number, "log more, 1 to 5"),
    known(
        "processManagement.pidFilePath",
        "pidfilepath",
        Kind::Text,
        "file to write the process id to",
    ),
    known(
        "storage.engine",
        "storageEngine",
        Kind::Text,
        "pmlog (default), wiredTiger (if it was built in), or ephemeralForTest (in memory, nothing is \
         kept)",
    ),
    known(
        "storage.cacheSizeGB",
        "cacheSizeGB",
        Kind::Decimal,
        "memory for documents, in GB [default: half of the memory beyond 1 GB]",
    ),
    known(
        "storage.wiredTiger.engineConfig.cacheSizeGB",
        "wiredTigerCacheSizeGB",
        Kind::Decimal,
        "WiredTiger's cache, in GB [default: as --cacheSizeGB]",
    ),
    known(
        "storage.maxSizeGB",
        "maxSizeGB",
        Kind::Decimal,
        "most disk space for data, in GB [default: no limit]",
    ),
    known(
        "storage.pmlog.segmentSizeMB",
        "segmentSizeMB",
        Kind::Number,
        "size of a new data directory's segments, in MB, a power of two up to 128, where \
         documents larger than that are refused [default: 64, 32 with less than 4 GB of room]",
    ),
    known(
        "storage.pmlog.recoveryThreads",
        "recoveryThreads",
        Kind::Number,
        "threads that read the log at the start and build indexes [default: one per core]",
    ),
    known(
        "storage.pmlog.verify",
        "verify",
        Kind::Text,
        "what is checked before the server starts: quick, what a start reads; full, every record's CRC \
         [default: quick]",
    ),
    known(
        "storage.repair",
        "repair",
        Kind::Flag,
        "check every record, move damaged ones aside, and exit",
    ),
    known(
        "storage.pmlog.persistentMemory",
        "persistentMemory",
        Kind::Text,
        "auto: the log is mapped where MAP_SYNC succeeds (DAX), and is a file elsewhere; off: it is a \
         file; simulated: ordinary memory stands in, and a loss of power may lose anything [default: \
         auto]",
    ),
    known(
        "storage.pmlog.readLatencyNanos",
        "pmReadLatencyNanos",
        Kind::Number,
        "nanoseconds added to each read of a record in persistent memory, as if it were slower; also \
         a server parameter [default: 0]",
    ),
    known(
        "storage.pmlog.lineLatencyNanos",
        "pmLineLatencyNanos",
        Kind::Number,
        "nanoseconds added to each 64 bytes written to persistent memory; also a server parameter \
         [default: 0]",
    ),
    known(
        "storage.pmlog.fenceLatencyNanos",
        "pmFenceLatencyNanos",
        Kind::Number,
        "nanoseconds added to each fence, at which a commit waits for persistent memory; also a server \
         parameter [default: 0]",
    ),
    known(
        "storage.journal.commitIntervalMs",
        "journalCommitInterval",
        Kind::Number,
        "milliseconds until a write that nobody waits for is durable, 1 to 500 [default: 100]",
    ),
    known(
        "operationProfiling.slowOpThresholdMs",
        "slowms",
        Kind::Number,
        "operations that take this long are logged [default: 100]",
    ),
    known("setParameter", "setParameter", Kind::Pairs, "sets a server parameter: name=value"),
];

/// Settings and names of the latencies that are added to persistent memory: reads, lines, fences.
pub const PM_LATENCIES: [(&str, &str); 3] = [
    ("storage.pmlog.readLatencyNanos", "pmReadLatencyNanos"),
    ("storage.pmlog.lineLatencyNanos", "pmLineLatencyNanos"),
    ("storage.pmlog.fenceLatencyNanos", "pmFenceLatencyNanos"),
];
/// Most that may be added: a tenth of a second.
pub const PM_LATENCY_NANOS_MAX: u64 = 100_000_000;

/// Flags and settings of mongod that ask for what is not there yet.
const NOT_YET: &[(&str, &str)] = &[
    ("replSet", "replication.replSetName"),
    ("configsvr", "sharding.clusterRole"),
    ("shardsvr", "sharding.clusterRole"),
    ("auth", "security.authorization"),
    ("keyFile", "security.keyFile"),
    ("tlsMode", "net.tls.mode"),
    ("tlsCertificateKeyFile", "net.tls.certificateKeyFile"),
    ("fork", "processManagement.fork"),
    ("profile", "operationProfiling.mode"),
    ("directoryperdb", "storage.directoryPerDB"),
];

/// The options of a server.
pub struct Options {
    settings: BTreeMap<&'static str, String>,
    parameters: Vec<(String, String)>,
    config: Option<PathBuf>,
}

/// The command line's form.
pub fn command() -> Command {
    let mut serve = Command::new("serve")
        .about("Runs the database server")
        .arg(
            Arg::new("config")
                .short('f')
                .long("config")
                .value_name("FILE")
                .help("YAML file of options"),
        )
        .arg(
            Arg::new("nounixsocket")
                .long("nounixsocket")
                .action(ArgAction::SetTrue)
                .help("do not listen on a Unix domain socket"),
        );
    for option in KNOWN {
        let arg = Arg::new(option.flag).long(option.flag).help(option.help);
        serve = serve.arg(match option.kind {
            Kind::Flag => arg.action(ArgAction::SetTrue),
            Kind::Pairs => arg.action(ArgAction::Append).value_name("NAME=VALUE"),
            Kind::Text => arg.value_name("TEXT"),
            Kind::Number | Kind::Decimal => arg.value_name("N"),
        });
    }
    for (flag, _) in NOT_YET {
        let arg = Arg::new(*flag).long(*flag).hide(true).num_args(0..=1);
        serve = serve.arg(arg.default_missing_value("true"));
    }
    Command::new("kauri")
        .about("Kauri, a document database that speaks MongoDB's wire protocol")
        .version(kauri_commands::server::VERSION)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve)
        .subcommand(crate::proxy::command())
        .subcommand(crate::check::command())
        .subcommand(crate::bench::command())
        .subcommand(crate::bench::echo_command())
        .subcommand(crate::bench_standalone::client_command())
        .subcommand(crate::bench_run::client_command())
}

impl Options {
    /// Reads the flags and the file that they name.
    pub fn parse(matches: &ArgMatches) -> Result<Options> {
        let mut options =
            Options { settings: BTreeMap::new(), parameters: Vec::new(), config: None };
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
            return Err(bad(format!("{file}: '{path}' should hold settings")));
        };
        for (name, value) in fields {
            let Some(name) = name.as_str() else {
                return Err(bad(format!("{file}: a setting's name under '{path}' is no text")));
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
                    .ok_or_else(|| bad(format!("{file}: '{full}' should have one value")))?,
            };
            if let Some(option) = KNOWN.iter().find(|o| o.setting == full) {
                self.settings.insert(option.setting, text);
            } else if full == "systemLog.destination" || full == "storage.journal.enabled" {
                // Both follow from other settings; mongod's files usually have them.
            } else if NOT_YET.iter().any(|(_, setting)| *setting == full) && text != "disabled" {
                return Err(not_yet(&full, &full));
            } else if full != "security.authorization" {
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
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        let line = ["kauri", "serve"].iter().chain(args);
        let matches = command().try_get_matches_from(line).map_err(|e| bad(e.to_string()))?;
        let (_, serve) = matches.subcommand().ok_or_else(|| bad("no subcommand".to_owned()))?;
        Options::parse(serve)
    }

    #[test]
    fn flags_win_over_the_file() {
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
    fn segments_are_smaller_where_there_is_little_room() {
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
    fn what_is_unknown_wrong_or_not_there_yet_is_an_error() {
        for (args, words) in [
            (&["--nosuch"][..], "--nosuch"),
            (&["--port", "x"], "--port"),
            (&["--port", "70000"], "65535"),
            (&["--replSet", "rs0"], "not available"),
            (&["--auth"], "not available"),
            (&["--journalCommitInterval", "0"], "between 1 and 500"),
            (&["--segmentSizeMB", "3"], "power of two"),
            (&["--persistentMemory", "yes"], "simulated"),
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
