//! A run file: an experiment as TOML.
//!
//! ```toml
//! name = "reads and updates over two transports"
//! rounds = 5            # default 3
//! threads = [1, 4]      # default 1; of each process, each with a connection of its own
//! processes = [1, 2]    # default 1: this one; with more, separate processes
//! warmUpSeconds = 1     # default 1
//! seconds = 5           # of each measurement, default 5
//! phases = 1            # default 1; of the same length, one after the other, each with its own figures
//! # operations = 10000  # instead of seconds: total operations of all threads
//! seed = 7              # default 1
//!
//! [[server]]                   # a server that the run starts has other settings: see `own`
//! label = "TCP"
//! uri = "mongodb://127.0.0.1:27017/?sharedMemory=off&rdma=off"
//! transport = "tcp"            # required; a missing setting is not checked
//! topology = "standalone"      # standalone, replicaSet or sharded
//! engine = "pmlog"
//! medium = "file"
//! memoryLimitMB = 500          # of its control group, as in `hostInfo`
//! optional = false             # true: if the server is missing or different, the run skips it and says so
//!
//! [[workload]]
//! label = "B, uniform"         # default: the preset's letter
//! preset = "B"                 # or file = "my.properties"; with neither CoreWorkload's defaults
//! store = "gridfs"             # default "documents"; records are files then
//! sizes = [1024, 131072]       # optional; one workload per size, with records of one field of that size
//! target = 5000                # operations per second of all threads; default: no limit
//! properties = { recordcount = 100000, requestdistribution = "uniform" }
//!
//! [[reference]]                # figures of others for comparison; optional
//! label = "the paper's TCP"
//! micros = { "B, uniform" = 657 }   # an operation's mean by workload
//! ```
//!
//! This module converts text to an experiment. Errors name the position and the expected value. It must not know
//! how anything is measured.

use super::observe::{Expected, Topology};
use super::phase::Length;
use crate::workload::{Preset, Properties, Settings};
use kauri_base::{Error, Result};
use kauri_client::Uri;
use std::path::Path;
use std::time::Duration;
pub use toml::Table;
use toml::Value;

/// Most rounds, and seconds of a measurement.
const ROUNDS_MAX: i64 = 10_000;
const SECONDS_MAX: f64 = 86_400.0;
/// Most operations, and phases, of a measurement.
const OPERATIONS_MAX: i64 = 1 << 50;
const PHASES_MAX: i64 = 100;
/// Most threads of one measurement.
const THREADS_MAX: i64 = 4_096;
/// Most memory of a server to be asked for, in MB.
const MEMORY_LIMIT_MB_MAX: i64 = 1_000_000_000;
/// Most bytes of a record's field, and of a record that is a file.
const SIZE_MAX: i64 = 15 << 20;
const FILE_SIZE_MAX: i64 = i32::MAX as i64;
/// Most client processes at once.
const PROCESSES_MAX: i64 = 256;
/// Most operations a second to be asked for.
const TARGET_MAX: f64 = 1e9;

/// An experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In reports.
    pub name: String,
    /// Times that each server is measured in each case.
    pub rounds: usize,
    /// Each of these numbers of threads of a process is a case.
    pub threads: Vec<usize>,
    /// Each of these numbers of client processes is a case.
    pub processes: Vec<usize>,
    /// How long each measurement goes on before anything counts.
    pub warm_up: Duration,
    /// How long it counts.
    pub length: Length,
    /// Phases of the same length, one after the other.
    pub phases: usize,
    /// Of all random numbers.
    pub seed: u64,
    /// What is measured in turns.
    pub servers: Vec<Server>,
    /// Those that were optional, and are not there.
    pub left_out: Vec<LeftOut>,
    /// One after the other.
    pub workloads: Vec<Workload>,
    /// To be shown beside it.
    pub references: Vec<Reference>,
}

/// A server, or one of its addresses.
#[derive(Clone, Debug)]
pub struct Server {
    /// In reports.
    pub label: String,
    /// As it was written.
    pub uri_text: String,
    /// How it is reached.
    pub uri: Uri,
    /// What has to be found there.
    pub expected: Expected,
    /// Whether the run goes without it if that is not found.
    pub optional: bool,
}

/// A server that was left out.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// Its label.
    pub label: String,
    /// Why.
    pub why: String,
}

/// What servers are asked.
#[derive(Clone, Debug)]
pub struct Workload {
    /// In reports.
    pub label: String,
    /// Its settings, by YCSB's names.
    pub properties: Properties,
    /// The same, read.
    pub settings: Settings,
    /// Operations a second of all threads together, if it has a pace.
    pub target: Option<f64>,
}

/// What others have measured.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Who, and what.
    pub label: String,
    /// Workloads' labels, and the mean time of an operation there in microseconds.
    pub us: Vec<(String, f64)>,
}

/// A table that is read: whatever nobody takes is a mistake.
#[derive(Clone)]
pub(super) struct Reader {
    /// Its place, in what is said of mistakes.
    at: String,
    table: Table,
}

impl Reader {
    pub(super) fn new(at: impl Into<String>, table: Table) -> Reader {
        Reader { at: at.into(), table }
    }

    fn wrong(&self, name: &str, value: &Value, right: &str) -> Error {
        let at = &self.at;
        Error::bad_value(format!("{at}: '{name}' is {value}, but must be {right}"))
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>> {
        match self.table.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, &other, "text in quotation marks")),
        }
    }

    pub(super) fn needed(&mut self, name: &str) -> Result<String> {
        let at = self.at.clone();
        self.text(name)?.ok_or_else(|| Error::bad_value(format!("{at}: '{name}' is missing")))
    }

    pub(super) fn whole(&mut self, name: &str, otherwise: i64, min: i64, max: i64) -> Result<i64> {
        match self.table.remove(name) {
            None => Ok(otherwise),
            Some(Value::Integer(number)) if (min..=max).contains(&number) => Ok(number),
            Some(other) => {
                let right = format!("a whole number from {min} to {max}");
                Err(self.wrong(name, &other, &right))
            }
        }
    }

    pub(super) fn number(&mut self, name: &str, min: f64, max: f64) -> Result<Option<f64>> {
        let Some(value) = self.table.remove(name) else { return Ok(None) };
        let number = match value {
            Value::Integer(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            _ => None,
        };
        let right = || format!("a number from {min} to {max}");
        let number = number.filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| self.wrong(name, &value, &right()))
    }

    fn flag(&mut self, name: &str) -> Result<bool> {
        match self.table.remove(name) {
            None => Ok(false),
            Some(Value::Boolean(flag)) => Ok(flag),
            Some(other) => Err(self.wrong(name, &other, "true or false")),
        }
    }

    fn seconds(&mut self, name: &str, otherwise: f64, min: f64) -> Result<Duration> {
        let seconds = self.number(name, min, SECONDS_MAX)?.unwrap_or(otherwise);
        Ok(Duration::from_secs_f64(seconds))
    }

    /// The tables of `[[name]]`.
    fn tables(&mut self, name: &str) -> Result<Vec<Reader>> {
        let right = "tables, each headed";
        let value = self.table.remove(name);
        let Some(Value::Array(entries)) = value else {
            let at = &self.at;
            return Err(Error::bad_value(format!("{at}: expected {right} [[{name}]]")));
        };
        let entry = |(number, entry): (usize, Value)| match entry {
            Value::Table(table) => {
                Ok(Reader::new(format!("{}, {name} {}", self.at, number + 1), table))
            }
            other => Err(self.wrong(name, &other, &format!("{right} [[{name}]]"))),
        };
        entries.into_iter().enumerate().map(entry).collect()
    }

    /// A number of these, 1 if none is said, or a list of such numbers.
    fn counts(&mut self, name: &str, max: i64) -> Result<Vec<usize>> {
        let right = format!("a number of {name} from 1 to {max}, or a list of such");
        let count = |value: &Value| {
            value.as_integer().filter(|count| (1..=max).contains(count)).map(|n| n as usize)
        };
        let value = self.table.remove(name).unwrap_or(Value::Integer(1));
        let counts: Option<Vec<usize>> = match &value {
            Value::Array(counts) => counts.iter().map(count).collect(),
            one => count(one).map(|count| vec![count]),
        };
        let counts = counts.filter(|counts| !counts.is_empty());
        counts.ok_or_else(|| self.wrong(name, &value, &right))
    }

    /// A list of texts; empty if it is not there.
    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<String>> {
        let value = self.table.remove(name).unwrap_or_else(|| Value::Array(Vec::new()));
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let texts = value.as_array().and_then(|all| all.iter().map(text).collect());
        texts.ok_or_else(|| self.wrong(name, &value, "a list of texts in quotation marks"))
    }

    /// The values of `{ name = value, … }` as text; none if it is not there.
    pub(super) fn pairs(&mut self, name: &str) -> Result<Vec<(String, String)>> {
        match self.table.remove(name) {
            None => Ok(Vec::new()),
            Some(Value::Table(table)) => {
                Ok(table.into_iter().map(|(name, value)| (name, plain(value))).collect())
            }
            Some(other) => Err(self.wrong(name, &other, "{ name = value, … }")),
        }
    }

    pub(super) fn finish(self) -> Result<()> {
        match self.table.keys().next() {
            None => Ok(()),
            Some(name) => Err(Error::bad_value(format!("{}: there is no '{name}'", self.at))),
        }
    }
}

impl Plan {
    /// The numbers of client processes, and of threads of each, that are measured.
    pub fn numbers(&self) -> Vec<(usize, usize)> {
        let threads = |processes| self.threads.iter().map(move |threads| (processes, *threads));
        self.processes.iter().copied().flat_map(threads).collect()
    }

    /// What tells these numbers from the others of the plan, if there are others.
    pub fn numbers_text(&self, (processes, threads): (usize, usize)) -> Option<String> {
        let text = |count: usize, one: &str, more: &str| {
            format!("{count} {}", if count == 1 { one } else { more })
        };
        let threads = (self.threads.len() > 1).then(|| text(threads, "thread", "threads"));
        let processes = (self.processes.len() > 1 || processes > 1)
            .then(|| text(processes, "process", "processes"));
        match (processes, threads) {
            (Some(processes), Some(threads)) => Some(format!("{processes} of {threads}")),
            (processes, threads) => processes.or(threads),
        }
    }

    /// Reads a run file's text, of servers that run already; `name` stands for it in what is said of mistakes, and
    /// workload files that it names lie `within`.
    pub fn parse(name: &str, text: &str, within: &Path) -> Result<Plan> {
        Plan::of_table(name, table(name, text)?, within)
    }

    /// As [`Plan::parse`], of what the text says.
    pub fn of_table(name: &str, table: Table, within: &Path) -> Result<Plan> {
        let mut reader = Reader::new(format!("'{name}'"), table);
        let servers = reader.tables("server")?;
        let workloads = reader.tables("workload")?;
        let references = match reader.table.contains_key("reference") {
            true => reader.tables("reference")?,
            false => Vec::new(),
        };
        let plan = Plan {
            references: references.into_iter().map(reference).collect::<Result<_>>()?,
            name: reader.text("name")?.unwrap_or_else(|| name.to_owned()),
            rounds: reader.whole("rounds", 3, 1, ROUNDS_MAX)? as usize,
            threads: reader.counts("threads", THREADS_MAX)?,
            processes: reader.counts("processes", PROCESSES_MAX)?,
            warm_up: reader.seconds("warmUpSeconds", 1.0, 0.0)?,
            length: length(&mut reader)?,
            phases: reader.whole("phases", 1, 1, PHASES_MAX)? as usize,
            seed: reader.whole("seed", 1, 0, i64::MAX)? as u64,
            servers: servers.into_iter().map(server).collect::<Result<_>>()?,
            left_out: Vec::new(),
            workloads: workloads
                .into_iter()
                .map(|reader| sized(reader, within))
                .collect::<Result<Vec<_>>>()?
                .concat(),
        };
        let at = reader.at.clone();
        reader.finish()?;
        if plan.phases > 1 && matches!(plan.length, Length::Operations(_)) {
            return Err(Error::bad_value(format!("{at}: 'phases' needs 'seconds'")));
        }
        distinct(&at, "server", plan.servers.iter().map(|server| &server.label))?;
        distinct(&at, "workload", plan.workloads.iter().map(|workload| &workload.label))?;
        let known = |name: &str| plan.workloads.iter().any(|workload| workload.label == name);
        let named = plan.references.iter().flat_map(|reference| &reference.us);
        match named.map(|(name, _)| name).find(|name| !known(name)) {
            None => Ok(plan),
            Some(name) => Err(Error::bad_value(format!(
                "{at}: a reference names an unknown workload '{name}'"
            ))),
        }
    }
}

/// What a run file's text says.
pub fn table(name: &str, text: &str) -> Result<Table> {
    text.parse().map_err(|why| Error::bad_value(format!("'{name}': {why}")))
}

fn length(reader: &mut Reader) -> Result<Length> {
    let counted = reader.table.contains_key("operations");
    if counted && reader.table.contains_key("seconds") {
        let at = &reader.at;
        return Err(Error::bad_value(format!("{at}: either 'seconds' or 'operations', not both")));
    }
    Ok(match reader.whole("operations", 0, 1, OPERATIONS_MAX)? {
        0 => Length::Time(reader.seconds("seconds", 5.0, 0.001)?),
        count => Length::Operations(count as u64),
    })
}

fn reference(mut reader: Reader) -> Result<Reference> {
    let label = reader.needed("label")?;
    let mut us = Vec::new();
    for (name, text) in reader.pairs("micros")? {
        let micros = text.parse().ok().filter(|micros: &f64| micros.is_finite() && *micros > 0.0);
        let right = "numbers of microseconds above 0 by workload";
        us.push((name, micros.ok_or_else(|| reader.wrong("micros", &Value::String(text), right))?));
    }
    reader.finish()?;
    Ok(Reference { label, us })
}

fn server(mut reader: Reader) -> Result<Server> {
    let uri_text = reader.needed("uri")?;
    let at = reader.at.clone();
    let uri = uri_text.parse().map_err(|why| Error::bad_value(format!("{at}: {why}")))?;
    let topology = match reader.text("topology")? {
        None => None,
        Some(name) => Some(Topology::of(&name).ok_or_else(|| {
            let right = "standalone, replicaSet or sharded";
            reader.wrong("topology", &Value::String(name.clone()), right)
        })?),
    };
    let server = Server {
        label: reader.text("label")?.unwrap_or_else(|| uri_text.clone()),
        uri_text,
        uri,
        expected: Expected {
            transport: reader.text("transport")?,
            topology,
            engine: reader.text("engine")?,
            medium: reader.text("medium")?,
            memory_limit_mb: memory_limit_mb(&mut reader)?,
        },
        optional: reader.flag("optional")?,
    };
    reader.finish()?;
    Ok(server)
}

fn memory_limit_mb(reader: &mut Reader) -> Result<Option<u64>> {
    let limit = reader.whole("memoryLimitMB", 0, 1, MEMORY_LIMIT_MB_MAX)?;
    Ok(u64::try_from(limit).ok().filter(|mb| *mb > 0))
}

/// A workload, or one for each of its sizes.
fn sized(mut reader: Reader, within: &Path) -> Result<Vec<Workload>> {
    if !reader.table.contains_key("sizes") {
        return Ok(vec![workload(reader, within, None)?]);
    }
    let are_files = reader.table.get("store").and_then(Value::as_str) == Some("gridfs");
    let sizes = reader.counts("sizes", if are_files { FILE_SIZE_MAX } else { SIZE_MAX })?;
    let of = |size: usize| workload(reader.clone(), within, Some(size as u64));
    sizes.into_iter().map(of).collect()
}

/// A number of bytes for a reader.
fn bytes_text(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

fn workload(mut reader: Reader, within: &Path, size: Option<u64>) -> Result<Workload> {
    let (preset, file) = (reader.text("preset")?, reader.text("file")?);
    let at = reader.at.clone();
    let (mut properties, named) = match (preset, file) {
        (Some(_), Some(_)) => {
            return Err(Error::bad_value(format!("{at}: either 'preset' or 'file', not both")));
        }
        (Some(letter), None) => {
            let preset = Preset::of(&letter).ok_or_else(|| {
                reader.wrong("preset", &Value::String(letter.clone()), "a letter from A to F")
            })?;
            (preset.properties(), preset.letter.to_string())
        }
        (None, Some(file)) => (properties_of(&within.join(&file), &at)?, file),
        (None, None) => (Properties::new(), "workload".to_owned()),
    };
    if let Some(store) = reader.text("store")? {
        properties.set("kauri.store", store);
    }
    for (name, value) in reader.pairs("properties")? {
        if size.is_some() && matches!(name.as_str(), "fieldcount" | "fieldlength") {
            return Err(Error::bad_value(format!("{at}: either 'sizes' or '{name}', not both")));
        }
        properties.set(name, value);
    }
    let mut label = reader.text("label")?;
    if let Some(size) = size {
        properties.set("fieldcount", "1");
        properties.set("fieldlength", size.to_string());
        let before = label.or_else(|| (named != "workload").then(|| named.clone()));
        let before = before.map_or(String::new(), |before| before + ", ");
        label = Some(before + &bytes_text(size));
    }
    let placed = |why: Error| Error::bad_value(format!("{at}: {}", why.message()));
    let settings = Settings::of(&properties).map_err(placed)?;
    properties.expect_all_used().map_err(placed)?;
    let workload = Workload {
        label: label.unwrap_or(named),
        target: reader.number("target", 0.001, TARGET_MAX)?,
        properties,
        settings,
    };
    reader.finish()?;
    Ok(workload)
}

fn properties_of(path: &Path, at: &str) -> Result<Properties> {
    let shown = path.display().to_string();
    let bytes = std::fs::read(path)
        .map_err(|why| Error::bad_value(format!("{at}: cannot read '{shown}': {why}")))?;
    let mut properties = Properties::new();
    properties.load(&shown, &bytes)?;
    Ok(properties)
}

/// A value as a property's: text without its quotation marks.
fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Labels tell apart.
fn distinct<'l>(at: &str, what: &str, labels: impl Iterator<Item = &'l String>) -> Result<()> {
    let mut labels: Vec<_> = labels.collect();
    labels.sort();
    match labels.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => {
            let label = pair[0];
            Err(Error::bad_value(format!("{at}: there is more than one {what} '{label}'")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
        name = "both"
        rounds = 2
        threads = [1, 8]
        processes = 2
        warmUpSeconds = 0
        seconds = 0.5
        [[server]]
        label = "TCP"
        uri = "mongodb://h:1/?rdma=off"
        transport = "tcp"
        topology = "standalone"
        [[server]]
        uri = "mongodb://h:1"
        [[workload]]
        preset = "b"
        target = 500
        properties = { recordcount = 77, requestdistribution = "uniform", dataintegrity = true }
    "#;

    fn parse(text: &str) -> Result<Plan> {
        Plan::parse("x.toml", text, Path::new("/nowhere"))
    }

    #[test]
    fn a_run_file_is_an_experiment() {
        let plan = parse(WHOLE).unwrap();
        assert_eq!((plan.name.as_str(), plan.rounds, plan.seed), ("both", 2, 1));
        assert_eq!((&plan.threads[..], &plan.processes[..]), (&[1, 8][..], &[2][..]));
        assert_eq!(plan.warm_up, Duration::ZERO);
        assert_eq!((plan.length, plan.phases), (Length::Time(Duration::from_millis(500)), 1));
        let [tcp, any] = &plan.servers[..] else { panic!() };
        assert_eq!((tcp.label.as_str(), any.label.as_str()), ("TCP", "mongodb://h:1"));
        assert_eq!(tcp.expected.transport.as_deref(), Some("tcp"));
        assert_eq!(tcp.expected.topology, Some(Topology::Standalone));
        assert_eq!(any.expected, Expected::default());
        let [b] = &plan.workloads[..] else { panic!() };
        assert_eq!((b.label.as_str(), b.target, b.settings.records), ("B", Some(500.0), 77));
        assert!(b.settings.data_integrity);
    }

    #[test]
    fn a_workload_of_several_sizes_is_one_for_each() {
        let sizes = |text: &str| {
            let plan = parse(&WHOLE.replace("preset = \"b\"", text)).unwrap();
            let of = |one: &Workload| {
                (
                    one.label.clone(),
                    one.properties.get("fieldlength").map(str::to_owned),
                    one.target,
                )
            };
            plan.workloads.iter().map(of).collect::<Vec<_>>()
        };
        let found = sizes("sizes = [1024, 1048576, 100]");
        let expected = [("1 KB", "1024"), ("1 MB", "1048576"), ("100 B", "100")];
        let expected =
            expected.map(|(label, bytes)| (label.to_owned(), Some(bytes.to_owned()), Some(500.0)));
        assert_eq!(found, expected);
        let files = "store = 'gridfs'\nsizes = [553648128]";
        let text =
            WHOLE.replace("preset = \"b\"", files).replace("= 77", "= 77, updateproportion = 0");
        let file = &parse(&text).unwrap().workloads[0];
        assert_eq!(
            (file.label.as_str(), file.settings.store),
            ("528 MB", crate::workload::Store::Files)
        );
        let labels = |text: &str| sizes(text).into_iter().map(|one| one.0).collect::<Vec<_>>();
        assert_eq!(labels("preset = 'c'\nsizes = [1024]"), ["C, 1 KB"]);
        assert_eq!(
            labels("preset = 'c'\nlabel = 'x'\nsizes = [1024, 2048]"),
            ["x, 1 KB", "x, 2 KB"]
        );
    }

    #[test]
    fn a_mistake_is_told_with_its_place_and_what_is_right() {
        let changed = |from: &str, to: &str| {
            assert!(WHOLE.contains(from), "{from}");
            parse(&WHOLE.replacen(from, to, 1)).unwrap_err().message().to_owned()
        };
        for (from, to, words) in [
            ("preset = \"b\"", "store = 'gridfs'", "a file is read as a whole"),
            ("preset = \"b\"", "store = 'x'", "'kauri.store'"),
            ("rounds = 2", "rounds = 0", "'rounds' is 0, but must be a whole number from 1"),
            ("rounds = 2", "round = 2", "'x.toml': there is no 'round'"),
            ("[1, 8]", "[]", "'threads' is []"),
            ("[1, 8]", "'8'", "a number of threads"),
            ("processes = 2", "processes = [2, 0]", "a number of processes from 1 to 256"),
            ("seconds = 0.5", "seconds = -1", "'seconds' is -1"),
            ("seconds = 0.5", "operations = 0", "'operations' is 0"),
            ("seconds = 0.5", "seconds = 1\noperations = 9", "'seconds' or 'operations', not both"),
            ("seconds = 0.5", "phases = 101", "'phases' is 101"),
            ("seconds = 0.5", "operations = 9\nphases = 2", "'phases' needs 'seconds'"),
            ("mongodb://h:1/?rdma=off", "h:1", "'x.toml', server 1: invalid connection string"),
            ("\"standalone\"", "\"ring\"", "'topology' is \"ring\", but must be standalone"),
            ("preset = \"b\"", "preset = \"g\"", "a letter from A to F"),
            ("preset = \"b\"", "preset = 'b'\nsizes = [0]", "'sizes' is [0]"),
            ("recordcount = 77", "fieldlength = 1 }\nsizes = [1]\n#", "'sizes' or 'fieldlength'"),
            ("preset = \"b\"", "file = \"w\"", "workload 1: cannot read '/nowhere/w'"),
            ("recordcount = 77", "recordcount = -1", "'recordcount' is '-1'"),
            ("recordcount", "recordcounts", "unknown property 'recordcounts'"),
            ("uri = \"mongodb://h:1\"", "label = \"a\"", "server 2: 'uri' is missing"),
            ("uri = \"mongodb://h:1\"", "uri = \"mongodb://h\"\nlabel = \"TCP\"", "more than one"),
            ("[[workload]]", "[workload]", "[[workload]]"),
            ("rounds = 2", "rounds = ", "'x.toml': "),
            ("transport = \"tcp\"", "optional = 1", "'optional' is 1, but must be true or false"),
            (
                "[[workload]]",
                "[[reference]]\nlabel = 'p'\nmicros = { b = 'x' }\n[[workload]]",
                "above 0",
            ),
            (
                "[[workload]]",
                "[[reference]]\nlabel = 'p'\nmicros = { X = 5 }\n[[workload]]",
                "names an unknown workload 'X'",
            ),
        ] {
            let message = changed(from, to);
            assert!(message.contains(words), "{to}: {message}");
        }
    }
}
