//! Converts command-line flags to the contents of a run file. This module must not know how a run file is read.

use kauri_base::{Error, Result};
use toml::{Table, Value};

/// What was given, as text.
#[derive(Clone, Default, Debug)]
pub struct Flags {
    /// Servers' connection strings.
    pub uris: Vec<String>,
    /// YCSB's core workloads, by their letters; A if there are none.
    pub workloads: Vec<String>,
    /// `name=value` for all workloads.
    pub properties: Vec<String>,
    /// Operations a second.
    pub target: Option<f64>,
    /// Names of a run file and their values: numbers, or lists of such separated by commas.
    pub numbers: Vec<(&'static str, String)>,
}

/// A number as TOML has it.
fn number(name: &str, text: &str) -> Result<Value> {
    let whole = text.parse().ok().map(Value::Integer);
    let any = || text.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Float);
    whole
        .or_else(any)
        .ok_or_else(|| Error::bad_value(format!("{name} must be a number, not '{text}'")))
}

fn numbers(name: &str, text: &str) -> Result<Value> {
    match text.contains(',') {
        false => number(name, text),
        true => {
            Ok(Value::Array(text.split(',').map(|one| number(name, one)).collect::<Result<_>>()?))
        }
    }
}

impl Flags {
    /// What a run file would say.
    pub fn table(&self) -> Result<Table> {
        let text = |text: &str| Value::String(text.to_owned());
        let mut properties = Table::new();
        for pair in &self.properties {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Error::bad_value(format!("a property is NAME=VALUE, not '{pair}'"))
            })?;
            properties.insert(name.to_owned(), text(value));
        }
        let server = |uri: &String| Value::Table(Table::from_iter([("uri".to_owned(), text(uri))]));
        let workload = |letter: &str| {
            let mut workload = Table::new();
            workload.insert("preset".to_owned(), text(letter));
            workload.insert("properties".to_owned(), Value::Table(properties.clone()));
            if let Some(target) = self.target {
                workload.insert("target".to_owned(), Value::Float(target));
            }
            Value::Table(workload)
        };
        let workloads: Vec<Value> = match &self.workloads[..] {
            [] => vec![workload("A")],
            letters => letters.iter().map(|letter| workload(letter)).collect(),
        };
        let mut table = Table::new();
        for (name, given) in &self.numbers {
            table.insert((*name).to_owned(), numbers(name, given)?);
        }
        table.insert("server".to_owned(), Value::Array(self.uris.iter().map(server).collect()));
        table.insert("workload".to_owned(), Value::Array(workloads));
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::plan::Plan;
    use std::path::Path;

    fn given(properties: &[&str], numbers: &[(&'static str, &str)]) -> Result<Plan> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let flags = Flags {
            uris: owned(&["mongodb://h:1", "mongodb://h:2/?rdma=off"]),
            workloads: owned(&["B", "c"]),
            properties: owned(properties),
            target: Some(50.0),
            numbers: numbers.iter().map(|(name, text)| (*name, (*text).to_owned())).collect(),
        };
        Plan::of_table("the command line", flags.table()?, Path::new(""))
    }

    #[test]
    fn flags_are_what_a_run_file_would_say() {
        let numbers = [("rounds", "2"), ("threads", "1,8"), ("seconds", "0.5")];
        let plan = given(&["recordcount=77", "requestdistribution=uniform"], &numbers).unwrap();
        assert_eq!(
            (plan.rounds, plan.threads, plan.length.text().as_str()),
            (2, vec![1, 8], "0.5 s")
        );
        let uris: Vec<_> = plan.servers.iter().map(|server| server.uri_text.as_str()).collect();
        assert_eq!(uris, ["mongodb://h:1", "mongodb://h:2/?rdma=off"]);
        let [b, c] = &plan.workloads[..] else { panic!() };
        assert_eq!((b.label.as_str(), b.settings.records, b.target), ("B", 77, Some(50.0)));
        assert_eq!((c.label.as_str(), c.settings.records), ("C", 77));
    }

    #[test]
    fn what_is_wrong_is_told() {
        let message = |outcome: Result<Plan>| outcome.unwrap_err().message().to_owned();
        assert!(message(given(&["recordcount"], &[])).contains("NAME=VALUE, not 'recordcount'"));
        assert!(
            message(given(&["recordcounts=1"], &[])).contains("unknown property 'recordcounts'")
        );
        assert!(message(given(&[], &[("rounds", "two")])).contains("rounds must be a number"));
        assert!(message(given(&[], &[("rounds", "0")])).contains("'rounds' is 0"));
    }
}
