//! What a connection string says about the selection of a server.

use crate::host::Host;
use kauri_bson::DocBuf;
use std::fmt;
use std::time::Duration;

/// Which members may be selected: `readPreference`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the connection string")]
pub enum ReadMode {
    Primary,
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
}

const MODES: [(&str, ReadMode); 5] = [
    ("primary", ReadMode::Primary),
    ("primaryPreferred", ReadMode::PrimaryPreferred),
    ("secondary", ReadMode::Secondary),
    ("secondaryPreferred", ReadMode::SecondaryPreferred),
    ("nearest", ReadMode::Nearest),
];

impl ReadMode {
    /// By its name in connection strings.
    pub fn parse(name: &str) -> Option<ReadMode> {
        MODES.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode)
    }

    /// Its name in connection strings.
    pub fn name(self) -> &'static str {
        MODES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }
}

/// Tags of a member: names and values, each name once.
pub type Tags = Vec<(String, String)>;

/// Which members may be selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadPreference {
    /// `readPreference`.
    pub mode: ReadMode,
    /// `readPreferenceTags`: of these sets the first counts that any member has. Empty: members of any tags.
    pub tag_sets: Vec<Tags>,
    /// `maxStalenessSeconds`: how far a secondary's data may be behind the primary's.
    pub max_staleness: Option<Duration>,
}

impl ReadPreference {
    /// A mode with nothing else said.
    pub fn new(mode: ReadMode) -> ReadPreference {
        ReadPreference { mode, tag_sets: Vec::new(), max_staleness: None }
    }

    /// `$readPreference` of a request.
    pub fn document(&self) -> DocBuf {
        DocBuf::build(|out| {
            out.put("mode", self.mode.name());
            if !self.tag_sets.is_empty() {
                let mut sets = out.array("tags");
                for set in &self.tag_sets {
                    let mut out = sets.document();
                    set.iter().for_each(|(name, value)| out.put(name, value));
                }
            }
            if let Some(most) = self.max_staleness {
                out.put("maxStalenessSeconds", most.as_secs() as i64);
            }
        })
    }
}

/// As connection strings say it.
impl fmt::Display for ReadPreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "readPreference={}", self.mode.name())?;
        for set in &self.tag_sets {
            let tags: Vec<_> = set.iter().map(|(name, value)| format!("{name}:{value}")).collect();
            write!(f, "&readPreferenceTags={}", tags.join(","))?;
        }
        match self.max_staleness {
            Some(most) => write!(f, "&maxStalenessSeconds={}", most.as_secs()),
            None => Ok(()),
        }
    }
}

/// How a server of a set is selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetOptions {
    /// The hosts that are asked first; there is at least one.
    pub seeds: Vec<Host>,
    /// Which members may be selected.
    pub preference: ReadPreference,
    /// `heartbeatFrequencyMS`: after this time a client with `maxStalenessSeconds` asks the servers again.
    pub heartbeat: Duration,
    /// `serverSelectionTimeoutMS`: maximum time until a server fits.
    pub selection_timeout: Duration,
    /// `localThresholdMS`: servers that answer at most so much later than the fastest are equally near.
    pub local_threshold: Duration,
    /// `retryWrites`: a write whose reply is lost is repeated once, if the server can tell the repetition.
    pub retry_writes: bool,
    /// `retryReads`: the same for reads.
    pub retry_reads: bool,
}

const SELECTION_TIMEOUT: Duration = Duration::from_secs(30);
const LOCAL_THRESHOLD: Duration = Duration::from_millis(15);
const HEARTBEAT: Duration = Duration::from_secs(10);

impl SetOptions {
    /// A set with nothing else said.
    pub fn new(seeds: Vec<Host>) -> Self {
        SetOptions {
            seeds,
            preference: ReadPreference::new(ReadMode::Primary),
            heartbeat: HEARTBEAT,
            selection_timeout: SELECTION_TIMEOUT,
            local_threshold: LOCAL_THRESHOLD,
            retry_writes: true,
            retry_reads: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::doc;

    #[test]
    fn a_read_preference_is_told_to_the_server_and_in_errors() {
        let mut preference = ReadPreference::new(ReadMode::SecondaryPreferred);
        assert_eq!(preference.document(), doc! { "mode" => "secondaryPreferred" });
        assert_eq!(preference.to_string(), "readPreference=secondaryPreferred");
        let tag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        preference.tag_sets = vec![vec![tag("dc", "ny"), tag("rack", "1")], Vec::new()];
        preference.max_staleness = Some(Duration::from_secs(120));
        let expected = doc! {
            "mode" => "secondaryPreferred",
            "tags" => kauri_bson::array![doc! { "dc" => "ny", "rack" => "1" }, doc! {}],
            "maxStalenessSeconds" => 120i64
        };
        assert_eq!(preference.document(), expected);
        let text = "readPreference=secondaryPreferred&readPreferenceTags=dc:ny,rack:1\
            &readPreferenceTags=&maxStalenessSeconds=120";
        assert_eq!(preference.to_string(), text);
    }
}
