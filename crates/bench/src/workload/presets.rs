//! The settings of the six core workloads.
//!
//! The mixes of YCSB's files `workloada` to `workloadf`, as our own data; other properties have CoreWorkload's
//! default. Invariant: the numbers of records and operations are those of YCSB's files, a thousand, and meant to be
//! overridden. This module must not know how a setting is read.

use super::properties::Properties;

/// One of the six.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preset {
    /// Its letter.
    pub letter: char,
    /// What it does, briefly.
    pub about: &'static str,
    /// Its proportions, distribution and lengths.
    settings: &'static [(&'static str, &'static str)],
}

/// What all have.
const COMMON: &[(&str, &str)] = &[
    ("workload", "site.ycsb.workloads.CoreWorkload"),
    ("recordcount", "1000"),
    ("operationcount", "1000"),
    ("readallfields", "true"),
    ("readproportion", "0"),
    ("updateproportion", "0"),
    ("insertproportion", "0"),
    ("scanproportion", "0"),
    ("readmodifywriteproportion", "0"),
    ("requestdistribution", "zipfian"),
];

/// All of them.
pub const PRESETS: [Preset; 6] = [
    Preset {
        letter: 'A',
        about: "50 % read, 50 % update",
        settings: &[("readproportion", "0.5"), ("updateproportion", "0.5")],
    },
    Preset {
        letter: 'B',
        about: "95 % read, 5 % update",
        settings: &[("readproportion", "0.95"), ("updateproportion", "0.05")],
    },
    Preset { letter: 'C', about: "read", settings: &[("readproportion", "1")] },
    Preset {
        letter: 'D',
        about: "95 % read latest, 5 % insert",
        settings: &[
            ("readproportion", "0.95"),
            ("insertproportion", "0.05"),
            ("requestdistribution", "latest"),
        ],
    },
    Preset {
        letter: 'E',
        about: "95 % scan, 5 % insert",
        settings: &[
            ("scanproportion", "0.95"),
            ("insertproportion", "0.05"),
            ("maxscanlength", "100"),
            ("scanlengthdistribution", "uniform"),
        ],
    },
    Preset {
        letter: 'F',
        about: "50 % read, 50 % read-modify-write",
        settings: &[("readproportion", "0.5"), ("readmodifywriteproportion", "0.5")],
    },
];

impl Preset {
    /// The one of this letter, or of the name of YCSB's file (`workloada`), in capitals or not.
    pub fn of(name: &str) -> Option<&'static Preset> {
        let name = name.to_ascii_uppercase();
        let letter = name.strip_prefix("WORKLOAD").unwrap_or(&name);
        PRESETS.iter().find(|preset| letter.len() == 1 && letter.starts_with(preset.letter))
    }

    /// Its properties.
    pub fn properties(&self) -> Properties {
        let mut properties = Properties::of(COMMON);
        self.settings.iter().for_each(|(name, value)| properties.set(*name, *value));
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_letters_or_files() {
        for name in ["a", "A", "workloada", "WorkloadA"] {
            assert_eq!(Preset::of(name).map(|preset| preset.letter), Some('A'));
        }
        for name in ["", "g", "ab", "workload", "workloadg"] {
            assert!(Preset::of(name).is_none(), "{name}");
        }
    }

    /// Those of `ycsb/`, for YCSB's own client.
    #[test]
    fn the_files_say_the_same() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ycsb/workloads");
        for preset in &PRESETS {
            let name = format!("workload{}", preset.letter.to_ascii_lowercase());
            let bytes = std::fs::read(format!("{directory}/{name}")).expect("a file of this name");
            let mut file = Properties::new();
            file.load(&name, &bytes).expect("properties");
            assert!(file.iter().eq(preset.properties().iter()), "{name}");
        }
    }

    #[test]
    fn proportions_add_up() {
        for preset in &PRESETS {
            let properties = preset.properties();
            let sum: f64 = properties
                .iter()
                .filter(|(name, _)| name.ends_with("proportion"))
                .map(|(_, value)| value.parse::<f64>().expect("a number"))
                .sum();
            assert!((sum - 1.0).abs() < 1e-12, "{}: {sum}", preset.letter);
        }
    }
}
