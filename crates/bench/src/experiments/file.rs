//! An experiment as a run file of the repository's `bench/experiments`, which can be copied and changed.
//!
//! The file has the small size. Other sizes are TOML overlays: settings of the run, `properties` of every workload,
//! `memoryMB` of every started server.
//!
//! Invariant: an overlay only changes settings that the file has, so that a wrong name is an error. This module
//! must not know how run files are run.

use kauri_base::{Error, Result};
use toml::{Table, Value};

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct RunFile {
    /// Its name in the repository.
    pub name: &'static str,
    /// What it says.
    pub text: &'static str,
    /// For real hardware.
    pub full: &'static str,
    /// Only to see that it runs.
    pub quick: &'static str,
}

/// How large an experiment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Minutes on two cores.
    Small,
    /// For real hardware.
    Full,
    /// Only to see that it runs.
    Quick,
}

fn each<'t>(table: &'t mut Table, name: &str) -> impl Iterator<Item = &'t mut Table> {
    let entries = table.get_mut(name).and_then(Value::as_array_mut);
    entries.into_iter().flatten().filter_map(Value::as_table_mut)
}

/// The servers' `serve`.
fn served(table: &mut Table) -> impl Iterator<Item = &mut Table> {
    each(table, "server").filter_map(|server| server.get_mut("serve")?.as_table_mut())
}

impl RunFile {
    /// What it says in this size.
    pub fn of_size(&self, size: Size) -> Result<Table> {
        let read = |text: &str| crate::run::plan::table(self.name, text);
        let mut table = read(self.text)?;
        let over = match size {
            Size::Small => return Ok(table),
            Size::Full => read(self.full)?,
            Size::Quick => read(self.quick)?,
        };
        for (name, value) in over {
            match (name.as_str(), value) {
                ("properties", Value::Table(properties)) => {
                    for workload in each(&mut table, "workload") {
                        if let Some(own) =
                            workload.get_mut("properties").and_then(Value::as_table_mut)
                        {
                            own.extend(properties.clone());
                        }
                    }
                }
                ("memoryMB", value) => {
                    served(&mut table)
                        .for_each(|serve| drop(serve.insert(name.clone(), value.clone())));
                }
                (_, value) => {
                    let known = table.insert(name.clone(), value);
                    known.ok_or_else(|| {
                        Error::bad_value(format!("'{}': there is no '{name}' to change", self.name))
                    })?;
                }
            }
        }
        Ok(table)
    }
}

/// Lets the servers that are started listen at this address.
pub fn bind(table: &mut Table, address: &str) {
    for serve in served(table) {
        if let Some(arguments) = serve.get_mut("arguments").and_then(Value::as_array_mut) {
            arguments.extend(["--bind_ip", address].map(Value::from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::{EXPERIMENTS, How};
    use crate::run::own::Owned;
    use crate::run::phase::Length;
    use crate::run::plan::Plan;
    use std::path::Path;

    fn plan(mut table: Table) -> Plan {
        let owned = Owned::take("x", &mut table).unwrap();
        Plan::of_table("x", owned.fill(table, &owned.nowhere()), Path::new("")).unwrap()
    }

    fn files() -> impl Iterator<Item = &'static RunFile> {
        EXPERIMENTS.iter().filter_map(|one| match &one.how {
            How::File(file) | How::Half(file, _) => Some(file),
            _ => None,
        })
    }

    #[test]
    fn every_file_is_a_run_in_every_size() {
        let mut count = 0;
        for file in files() {
            for size in [Size::Small, Size::Full, Size::Quick] {
                let plan = plan(file.of_size(size).unwrap());
                assert!(!plan.servers.is_empty() && !plan.workloads.is_empty(), "{}", file.name);
            }
            count += 1;
        }
        assert_eq!(count, 3);
    }

    #[test]
    fn the_models_are_files_of_the_papers_sizes() {
        let text = include_str!("../../../../bench/experiments/models.toml");
        let plan = plan(crate::run::plan::table("models.toml", text).unwrap());
        let labels: Vec<_> = plan.workloads.iter().map(|one| one.label.as_str()).collect();
        assert_eq!(labels, ["read, 91 MB", "read, 219 MB", "read, 528 MB", "write, 91 MB"]);
    }

    #[test]
    fn the_flash_papers_runs_have_its_phases_threads_and_memory() {
        for name in ["flash-b", "flash-f"] {
            let file = files().find(|file| file.name.contains(name)).unwrap();
            for (size, seconds, bytes) in
                [(Size::Small, 60, 640 << 20), (Size::Full, 3600, 16 << 30)]
            {
                let plan = plan(file.of_size(size).unwrap());
                assert_eq!((plan.length.text(), plan.phases), (format!("{seconds} s"), 6));
                assert_eq!(plan.threads, [8]);
                assert_eq!(plan.servers[0].expected.memory_limit_mb, Some(bytes >> 20));
                // A record of YCSB's is 1171 bytes of BSON: 10 fields of 100 bytes, their names, and the key.
                let settings = &plan.workloads[0].settings;
                let ratio = bytes as f64 / (settings.records as f64 * 1171.0);
                assert!((0.155..0.165).contains(&ratio), "{ratio}");
            }
        }
    }

    #[test]
    fn the_container_papers_run_has_its_sizes_and_operations() {
        let file = files().find(|file| file.name.contains("singularity")).unwrap();
        for size in [Size::Small, Size::Full] {
            let plan = plan(file.of_size(size).unwrap());
            assert_eq!(plan.length, Length::Operations(10_000));
            let labels: Vec<_> = plan.workloads.iter().map(|one| one.label.as_str()).collect();
            assert_eq!(
                labels,
                ["1 KB", "2 KB", "4 KB", "8 KB", "16 KB", "32 KB", "64 KB", "128 KB"]
            );
        }
    }

    #[test]
    fn servers_listen_where_they_are_told_to() {
        let file = files().find(|file| file.name.contains("singularity")).unwrap();
        let mut table = file.of_size(Size::Quick).unwrap();
        bind(&mut table, "10.0.0.2");
        let owned = Owned::take("x", &mut table).unwrap();
        let [own] = &owned.servers[..] else { panic!("{owned:?}") };
        assert_eq!(own.arguments, ["--bind_ip", "10.0.0.2"]);
    }

    #[test]
    fn what_is_not_in_the_file_is_not_laid_over_it() {
        let file =
            RunFile { name: "f", text: "rounds = 1", full: "round = 2", quick: "rounds = 3" };
        assert_eq!(file.of_size(Size::Quick).unwrap()["rounds"].as_integer(), Some(3));
        let why = file.of_size(Size::Full).unwrap_err();
        assert!(why.message().contains("no 'round' to change"), "{why}");
    }
}
