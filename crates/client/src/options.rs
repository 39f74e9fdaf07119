//! What a connection string says about the selection of a server.

use crate::host::Host;
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

/// How a server of a set is selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetOptions {
    /// The hosts that are asked first; there is at least one.
    pub seeds: Vec<Host>,
    /// `readPreference`.
    pub mode: ReadMode,
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

impl SetOptions {
    /// A set with nothing else said.
    pub fn new(seeds: Vec<Host>) -> Self {
        SetOptions {
            seeds,
            mode: ReadMode::Primary,
            selection_timeout: SELECTION_TIMEOUT,
            local_threshold: LOCAL_THRESHOLD,
            retry_writes: true,
            retry_reads: true,
        }
    }
}
