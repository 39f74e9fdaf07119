//! The input and output of a client process, as text.
//!
//! An order is TOML: the settings of a run file's server and workload, and the process's share of them. The result
//! is one line of fields separated by tabs: `done`, counted nanoseconds, nanoseconds of CPU, inserted records, the
//! number of phases (0 if undivided), then for each of [`super::phase::KINDS`], or of each phase, errors, latencies
//! and latencies from due times, then some of the wrong replies; or `failed` and the reason. Before it there may be
//! lines `so far` with the number of operations. The same program reads and writes both.
//!
//! This module must not know how processes are started.

use super::failed;
use super::phase::{Counted, Figures, Kinds, Length};
use super::plan::Reader;
use crate::histogram::Histogram;
use crate::workload::{ProcessShare, Properties};
use kauri_base::{Error, Result};
use std::time::Duration;
use toml::{Table, Value};

/// See the module's head.
#[derive(Clone, Debug)]
pub struct Order {
    /// The server's, in reports.
    pub label: String,
    /// How it is reached.
    pub uri: String,
    /// What has to be gone through.
    pub transport: String,
    /// The workload's settings, by YCSB's names.
    pub properties: Properties,
    /// Which of the processes it is.
    pub share: ProcessShare,
    /// Of this process.
    pub threads: usize,
    /// Operations a second of all processes together.
    pub target: Option<f64>,
    /// How long it goes on before anything counts.
    pub warm_up: Duration,
    /// How long it counts.
    pub length: Length,
    /// Into how many phases that falls.
    pub phases: usize,
    /// Of its random numbers.
    pub seed: u64,
}

fn nanos(time: Duration) -> Value {
    Value::Integer(time.as_nanos() as i64)
}

impl Order {
    /// As text.
    pub fn to_text(&self) -> String {
        let properties = self.properties.iter();
        let properties = properties.map(|(name, value)| (name.to_owned(), value.into()));
        let mut table = Table::new();
        let mut put = |name: &str, value: Value| drop(table.insert(name.to_owned(), value));
        put("label", self.label.as_str().into());
        put("uri", self.uri.as_str().into());
        put("transport", self.transport.as_str().into());
        put("properties", Value::Table(properties.collect()));
        put("process", Value::Integer(self.share.number.into()));
        put("processes", Value::Integer(self.share.of.into()));
        put("insertsFrom", Value::Integer(self.share.inserts_from));
        put("threads", Value::Integer(self.threads as i64));
        if let Some(target) = self.target {
            put("target", Value::Float(target));
        }
        put("warmUp", nanos(self.warm_up));
        match self.length {
            Length::Time(time) => put("measure", nanos(time)),
            Length::Operations(count) => put("operations", Value::Integer(count as i64)),
        }
        put("phases", Value::Integer(self.phases as i64));
        put("seed", Value::Integer(self.seed.cast_signed()));
        table.to_string()
    }

    /// What this text says.
    pub fn parse(text: &str) -> Result<Order> {
        let table = text.parse().map_err(|why| failed("an order", why))?;
        let mut order = Reader::new("an order", table);
        let mut properties = Properties::new();
        for (name, value) in order.pairs("properties")? {
            properties.set(name, value);
        }
        let mut whole = |name: &str| order.whole(name, 0, i64::MIN, i64::MAX);
        let share = ProcessShare {
            number: whole("process")? as u32,
            of: whole("processes")? as u32,
            inserts_from: whole("insertsFrom")?,
        };
        let threads = whole("threads")? as usize;
        let mut time = |name| Ok::<_, Error>(Duration::from_nanos(whole(name)? as u64));
        let (warm_up, time) = (time("warmUp")?, time("measure")?);
        let length = match whole("operations")? {
            0 => Length::Time(time),
            count => Length::Operations(count as u64),
        };
        let phases = whole("phases")? as usize;
        let seed = whole("seed")?.cast_unsigned();
        let read = Order {
            label: order.needed("label")?,
            uri: order.needed("uri")?,
            transport: order.needed("transport")?,
            properties,
            share,
            threads,
            target: order.number("target", 0.0, f64::MAX)?,
            warm_up,
            length,
            phases,
            seed,
        };
        order.finish()?;
        Ok(read)
    }
}

/// A field of what is told.
fn field(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

/// What a process tells that has carried out its order: its figures, and how many records it has inserted.
pub fn told(outcome: &Result<(Figures, i64)>) -> String {
    let (figures, inserted) = match outcome {
        Ok(done) => done,
        Err(why) => return format!("failed\t{}", field(why.message())),
    };
    let mut fields = vec![
        "done".to_owned(),
        figures.wall.as_nanos().to_string(),
        figures.client_cpu.as_nanos().to_string(),
        inserted.to_string(),
        figures.phases.len().to_string(),
    ];
    let whole = figures.phases.is_empty().then_some(&figures.kinds);
    for counted in whole.into_iter().chain(&figures.phases).flatten() {
        fields.push(counted.errors.to_string());
        fields.push(counted.latency.to_text());
        fields.push(counted.intended.to_text());
    }
    fields.extend(figures.shown.iter().map(|why| field(why)));
    fields.join("\t")
}

/// What this line tells of a process of the server with this label.
pub fn parse_told(label: &str, line: &str) -> Result<(Figures, i64)> {
    let line = line.trim_end_matches('\n');
    if let Some(why) = line.strip_prefix("failed\t") {
        return Err(failed("a client process", why));
    }
    let mut fields = line.split('\t');
    if fields.next() != Some("done") {
        return Err(failed(label, "a client process has ended early"));
    }
    parse_done(fields).ok_or_else(|| failed(label, "a client process told what can't be read"))
}

fn parse_done<'l>(mut fields: impl Iterator<Item = &'l str>) -> Option<(Figures, i64)> {
    let mut time = || Some(Duration::from_nanos(fields.next()?.parse().ok()?));
    let (wall, client_cpu) = (time()?, time()?);
    let inserted = fields.next()?.parse().ok()?;
    let mut phases = vec![Kinds::default(); fields.next()?.parse::<usize>().ok()?.max(1)];
    for counted in phases.iter_mut().flatten() {
        *counted = Counted {
            errors: fields.next()?.parse().ok()?,
            latency: Histogram::from_text(fields.next()?)?,
            intended: Histogram::from_text(fields.next()?)?,
        };
    }
    let shown = fields.map(str::to_owned).collect();
    Some((Figures { wall, client_cpu, shown, ..Figures::of_phases(phases) }, inserted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_back() {
        let order = Order {
            label: "a \"label\"\nof two lines".to_owned(),
            uri: "mongodb://h:1/?rdma=off".to_owned(),
            transport: "tcp".to_owned(),
            properties: Properties::of(&[("recordcount", "77"), ("table", "a = 'b'")]),
            share: ProcessShare { number: 1, of: 3, inserts_from: 1 << 40 },
            threads: 4,
            target: Some(1.5),
            warm_up: Duration::from_nanos(1),
            length: Length::Time(Duration::from_secs(86_400)),
            phases: 6,
            seed: u64::MAX - 1,
        };
        for (target, length) in [
            (Some(1.5), order.length),
            (Some(2000.0), Length::Operations(1)),
            (None, Length::Operations(1 << 50)),
        ] {
            let order = Order { target, length, ..order.clone() };
            let back = Order::parse(&order.to_text()).unwrap();
            assert_eq!(format!("{back:?}"), format!("{order:?}"));
        }
        assert!(Order::parse("threads = 1").unwrap_err().message().contains("'label' is missing"));
    }

    #[test]
    fn what_a_process_tells_comes_back() {
        let mut figures = Figures {
            wall: Duration::from_nanos(5),
            client_cpu: Duration::from_micros(7),
            shown: vec!["one\tof two\nlines".to_owned(), "other".to_owned()],
            ..Figures::default()
        };
        figures.kinds[2].latency.record(1500);
        figures.kinds[2].intended.record(2500);
        figures.kinds[2].errors = 1;
        let line = told(&Ok((figures.clone(), 9))) + "\n";
        let (back, inserted) = parse_told("s", &line).unwrap();
        assert_eq!((back.wall, back.client_cpu), (figures.wall, figures.client_cpu));
        assert_eq!((inserted, back.operations(), back.errors()), (9, 1, 1));
        assert_eq!(back.kinds[2].intended.max_ns(), 2500);
        assert_eq!(back.shown, ["one of two lines", "other"]);
        let phase = || {
            let mut kinds = Kinds::default();
            kinds[0].latency.record(10);
            kinds
        };
        let divided = Figures::of_phases(vec![phase(), Kinds::default(), phase()]);
        let (back, _) = parse_told("s", &told(&Ok((divided, 0)))).unwrap();
        let counts = |kinds: &Kinds| kinds[0].latency.count();
        assert_eq!(back.phases.iter().map(counts).collect::<Vec<_>>(), [1, 0, 1]);
        assert_eq!(counts(&back.kinds), 2);
        let refused = told(&Err(failed("the connection", "no\nserver")));
        for (line, words) in [
            (refused.as_str(), "a client process: the connection: no server"),
            ("", "s: a client process has ended early"),
            ("done\t1\t2\t3\t0\tx\t0 0 0", "can't be read"),
            (line.get(..20).unwrap(), "can't be read"),
        ] {
            let error = parse_told("s", line).err().unwrap().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
