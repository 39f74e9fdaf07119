//! The named experiments, from the five documents that this project began with: source document, figure or table,
//! result, and implementation of each.
//!
//! Invariant: an experiment that is supported in part only is in the table, too, with the missing feature. This module
//! must not know how commands are run.

pub mod file;

use file::RunFile;

/// How an experiment is made.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// By a command of `kauri bench`: its name, what it is given in any case, and for the small size only.
    Command {
        /// As in `kauri bench NAME`.
        name: &'static str,
        /// In both sizes.
        arguments: &'static [&'static str],
        /// In the small size also.
        small: &'static [&'static str],
        /// Instead of these, only to see that it runs.
        quick: &'static [&'static str],
    },
    /// By a run file of `kauri bench run`.
    File(RunFile),
    /// By one, as far as it can be made; the rest needs this.
    Half(RunFile, &'static str),
    /// By a script beside the program, since it needs more than that: this command.
    Script(&'static str),
}

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// By which it is asked for.
    pub name: &'static str,
    /// The document.
    pub source: &'static str,
    /// Its figure, table or section.
    pub figure: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// How it is made.
    pub how: How,
}

const RDMA: &str = "RDMA Optimization on MongoDB";
const SINGULARITY: &str = "MongoDB with RDMA in Singularity";
const PM: &str = "PM aware storage engine";
const FLASH: &str = "Nytro MegaRAID";
const WRITE_LOCK: &str = "MongoDB's Write Lock";

const FLASH_TIER: &str = "the flash tier in front of disks";

/// A run file of the repository's `bench/experiments`.
macro_rules! run_file {
    ($name:literal, full: $full:expr, quick: $quick:expr) => {
        RunFile {
            name: concat!("bench/experiments/", $name),
            text: include_str!(concat!("../../../../bench/experiments/", $name)),
            full: $full,
            quick: $quick,
        }
    };
}

const SINGULARITY_HOST: RunFile = run_file!(
    "singularity-host.toml",
    full: "rounds = 10",
    quick: "rounds = 1\noperations = 50\nwarmUpSeconds = 0.01"
);
const FLASH_B: RunFile = run_file!("flash-b.toml", full: FLASH_FULL, quick: FLASH_QUICK);
const FLASH_F: RunFile = run_file!("flash-f.toml", full: FLASH_FULL, quick: FLASH_QUICK);
/// As the paper's: 100 GB of data and ten minutes for each phase.
const FLASH_FULL: &str =
    "seconds = 3600\nmemoryMB = 16384\nproperties = { recordcount = 92000000 }";
const FLASH_QUICK: &str = "seconds = 1.2\nproperties = { recordcount = 2000 }";

/// A sweep over sizes as the paper's, by `kauri bench standalone`.
const fn standalone(arguments: &'static [&'static str], small: &'static [&'static str]) -> How {
    How::Command { name: "standalone", arguments, small, quick: small }
}

const SWEEP_SMALL: &[&str] =
    &["--sizes-kb", "1,64", "--rounds", "2", "--millis", "150", "--put-mb", "32"];
const PROFILE_SMALL: &[&str] = &["--rounds", "2", "--millis", "150", "--put-mb", "32"];
const CLIENTS_SMALL: &[&str] = &[
    "--clients",
    "1,2",
    "--client-sizes-kb",
    "1",
    "--rounds",
    "2",
    "--millis",
    "150",
    "--dirs",
    "memory",
];

/// All, in the order of the documents.
pub const EXPERIMENTS: [Experiment; 23] = [
    Experiment {
        name: "rdma-profile-1kb-disk",
        source: RDMA,
        figure: "Figure 6",
        shows: "stages of a Put and a Get of 1 KB, and processor time; data on a disk",
        how: standalone(&["--only", "put,get", "--sizes-kb", "1", "--dirs", "disk"], PROFILE_SMALL),
    },
    Experiment {
        name: "rdma-profile-1mb-disk",
        source: RDMA,
        figure: "Figure 7",
        shows: "the same with 1 MB",
        how: standalone(
            &["--only", "put,get", "--sizes-kb", "1024", "--dirs", "disk"],
            PROFILE_SMALL,
        ),
    },
    Experiment {
        name: "rdma-profile-1kb-memory",
        source: RDMA,
        figure: "Figure 8",
        shows: "stages of a Put and a Get of 1 KB, and processor time; data in memory",
        how: standalone(
            &["--only", "put,get", "--sizes-kb", "1", "--dirs", "memory"],
            PROFILE_SMALL,
        ),
    },
    Experiment {
        name: "rdma-profile-1mb-memory",
        source: RDMA,
        figure: "Figure 9",
        shows: "the same with 1 MB",
        how: standalone(
            &["--only", "put,get", "--sizes-kb", "1024", "--dirs", "memory"],
            PROFILE_SMALL,
        ),
    },
    Experiment {
        name: "rdma-standalone-disk",
        source: RDMA,
        figure: "Figure 10 (section 4.3)",
        shows: "Put, Get and half of each by size, one client; data on a disk",
        how: standalone(&["--only", "put,get,mixed", "--dirs", "disk"], SWEEP_SMALL),
    },
    Experiment {
        name: "rdma-standalone-memory",
        source: RDMA,
        figure: "Figure 11 (section 4.3)",
        shows: "the same; data in memory",
        how: standalone(&["--only", "put,get,mixed", "--dirs", "memory"], SWEEP_SMALL),
    },
    Experiment {
        name: "rdma-models",
        source: RDMA,
        figure: "Figure 12 (section 4.3)",
        shows: "reading neural network models of 91, 219 and 528 MB through GridFS",
        how: standalone(
            &["--only", "models"],
            &["--model-mb", "9,22,53", "--rounds", "2", "--dirs", "memory"],
        ),
    },
    Experiment {
        name: "rdma-replica-set",
        source: RDMA,
        figure: "Figure 10 (section 4.4)",
        shows: "Put, Get and half of each by size on a replica set of four",
        how: standalone(
            &["--replica-set", "--only", "put,get,mixed"],
            &[
                "--sizes-kb",
                "1,64",
                "--rounds",
                "2",
                "--millis",
                "150",
                "--put-mb",
                "32",
                "--dirs",
                "memory",
            ],
        ),
    },
    Experiment {
        name: "rdma-replica-set-models",
        source: RDMA,
        figure: "Figure 11 (section 4.4)",
        shows: "reading models from a replica set",
        how: standalone(
            &["--replica-set", "--only", "models"],
            &["--model-mb", "9,22,53", "--rounds", "2", "--dirs", "memory"],
        ),
    },
    Experiment {
        name: "rdma-clients-1-thread",
        source: RDMA,
        figure: "Figure 12 (section 4.5), one server",
        shows: "one to four client processes of one thread each",
        how: standalone(&["--only", "clients", "--threads", "1"], CLIENTS_SMALL),
    },
    Experiment {
        name: "rdma-clients-2-threads",
        source: RDMA,
        figure: "Figure 13 (section 4.5), one server",
        shows: "one to four client processes of two threads each",
        how: standalone(&["--only", "clients", "--threads", "2"], CLIENTS_SMALL),
    },
    Experiment {
        name: "rdma-replica-set-clients",
        source: RDMA,
        figure: "Figures 12 and 13 (section 4.5)",
        shows: "one to four client nodes of one and two threads on a replica set of four",
        how: standalone(&["--replica-set", "--only", "clients", "--threads", "1,2"], CLIENTS_SMALL),
    },
    Experiment {
        name: "singularity-host",
        source: SINGULARITY,
        figure: "table 1",
        shows: "100 % Put, 1 KB to 128 KB, on the host, over each transport that there is",
        how: How::File(SINGULARITY_HOST),
    },
    Experiment {
        name: "singularity-container",
        source: SINGULARITY,
        figure: "table 2",
        shows: "the same in a container, beside the host",
        how: How::Script("scripts/bench_containers --limits-mb 4096"),
    },
    Experiment {
        name: "singularity-memory",
        source: SINGULARITY,
        figure: "the run with 500 MB",
        shows: "the same with the container's memory limited",
        how: How::Script("scripts/bench_containers --limits-mb 500"),
    },
    Experiment {
        name: "pm-ycsb",
        source: PM,
        figure: "Benchmarks, (1) and (2)",
        shows: "YCSB A to F, one thread: pmlog beside WiredTiger, persistent memory beside flash",
        how: How::Command {
            name: "ycsb",
            arguments: &[],
            small: &["--documents", "50000", "--rounds", "3", "--slice-ms", "100"],
            quick: QUICK,
        },
    },
    Experiment {
        name: "pm-write-amplification",
        source: PM,
        figure: "Benchmarks, endurance",
        shows: "bytes written for each byte of documents, in both engines",
        how: How::Command {
            name: "engine",
            arguments: &["--only", "insert,zipf,uniform,sparse,dense"],
            small: ENGINE_SMALL,
            quick: QUICK,
        },
    },
    Experiment {
        name: "pm-capacity",
        source: PM,
        figure: "Benchmarks, capacity",
        shows: "space and memory that documents take, in both engines",
        how: How::Command {
            name: "engine",
            arguments: &["--only", "insert,memory"],
            small: ENGINE_SMALL,
            quick: QUICK,
        },
    },
    Experiment {
        name: "flash-b",
        source: FLASH,
        figure: "workload B",
        shows: "95 % reads, 5 % updates, uniform, data 100 : flash 44 : memory 16, six phases",
        how: How::Half(FLASH_B, FLASH_TIER),
    },
    Experiment {
        name: "flash-f",
        source: FLASH,
        figure: "workload F",
        shows: "read-modify-write, uniform, data 100 : flash 44 : memory 16, six phases",
        how: How::Half(FLASH_F, FLASH_TIER),
    },
    Experiment {
        name: "write-lock-hot",
        source: WRITE_LOCK,
        figure: "first scatter",
        shows: "reads beside writes that find their documents in memory, by lock granularity",
        how: How::Script("scripts/writelock --writes hot"),
    },
    Experiment {
        name: "write-lock-cold",
        source: WRITE_LOCK,
        figure: "second scatter",
        shows: "reads beside writes that wait for the disk",
        how: How::Script("scripts/writelock --writes cold"),
    },
    Experiment {
        name: "transports",
        source: RDMA,
        figure: "section 2.3's comparison, on one host",
        shows: "one session over TCP, a Unix domain socket and shared memory, beside a raw TCP echo",
        how: How::Command {
            name: "transports",
            arguments: &[],
            small: &["--rounds", "3", "--millis", "200"],
            quick: &["--rounds", "1", "--millis", "50", "--spins", "0,10"],
        },
    },
];

const QUICK: &[&str] = &["--quick"];
const ENGINE_SMALL: &[&str] = &[
    "--documents",
    "100000",
    "--rounds",
    "3",
    "--slice-ms",
    "200",
    "--seconds",
    "10",
    "--checkpoint-seconds",
    "5",
];

impl Experiment {
    /// By its name.
    pub fn of(name: &str) -> Option<&'static Experiment> {
        EXPERIMENTS.iter().find(|one| one.name == name)
    }
}

/// All as a table.
pub fn table() -> String {
    let head = ["name", "from", "figure", "what it shows"].map(str::to_owned).to_vec();
    let line = |one: &Experiment| {
        let shows = match one.how {
            How::Half(_, what) => format!("{}; the part without {what}", one.shows),
            How::Script(script) => format!("{}: {script}", one.shows),
            _ => one.shows.to_owned(),
        };
        vec![one.name.to_owned(), one.source.to_owned(), one.figure.to_owned(), shows]
    };
    let lines: Vec<_> = std::iter::once(head).chain(EXPERIMENTS.iter().map(line)).collect();
    crate::columns::aligned(&lines, &[0, 1, 2, 3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_documentation_names_every_experiment_and_no_other() {
        let documents = include_str!("../../../../docs/benchmarks.md");
        let (_, section) = documents.split_once("## Experiments by name").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        // A row names experiments of one document: | `name`, `name` | document | figure |
        let written: BTreeSet<&str> = rows
            .filter_map(|row| row.split(" | ").next())
            .flat_map(|names| names.trim_end_matches('`').split("`, `"))
            .collect();
        let known: BTreeSet<_> = EXPERIMENTS.iter().map(|one| one.name).collect();
        assert_eq!(known.len(), EXPERIMENTS.len(), "a name twice");
        assert_eq!(written, known);
    }
}
