//! Connection strings: `mongodb://host:port,…/?option=value&…`, or the percent-encoded path of a socket as a host.
//!
//! Several hosts, `replicaSet` or `directConnection=false` mean a replica set, whose members are found out. One host
//! without these is that server, whatever it is. An unknown option is an error, as everywhere in Kauri.

use crate::ClientError;
pub use crate::host::Host;
use crate::host::{HOSTS_MAX, percent_decoded};
use crate::options::{ReadMode, ReadPreference, SetOptions, Tags};
use std::str::FromStr;
use std::time::Duration;

/// Whether a transport is to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// If it can be had.
    Auto,
    /// Without it there is no connection.
    Require,
    /// No.
    Off,
}

/// A parsed connection string.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uri {
    /// The server; of a set the first host of the connection string.
    pub host: Host,
    /// `replicaSet`: the name of the server's set.
    pub set_name: Option<String>,
    /// How a server of the set is selected. `None`: the server is `host`.
    pub set: Option<SetOptions>,
    /// `sharedMemory`.
    pub shared_memory: Wanted,
    /// `rdma`.
    pub rdma: Wanted,
    /// `rdmaDevice`: by default the first with an active port.
    pub rdma_device: Option<String>,
    /// `spinMicros`: maximum time to poll for a reply before sleeping, if polling needs no system call.
    pub spin: Duration,
    /// `ringBytes`: requested size of the ring; 0: the server's choice.
    pub ring_bytes: u32,
    /// `connectTimeoutMS`: maximum total time until the first request; 0: forever.
    pub connect_timeout: Duration,
    /// `socketTimeoutMS`: maximum silence of the server while the client waits, also when connecting.
    pub socket_timeout: Option<Duration>,
    /// `appName`.
    pub app_name: Option<String>,
    /// Whether the handshake has the client's metadata. A proxy leaves that to its own clients, because a server
    /// accepts it once per session. Not an option of connection strings.
    pub introduces: bool,
}

const HEARTBEAT_MIN: Duration = Duration::from_millis(500);
/// Smallest `maxStalenessSeconds`.
const STALENESS_MIN: Duration = Duration::from_secs(90);
/// How often a primary without work writes something, at least.
const IDLE_WRITE_PERIOD: Duration = Duration::from_secs(10);
const SPIN: Duration = Duration::from_micros(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Uri {
    /// A server with nothing else said.
    pub fn new(host: Host) -> Self {
        Uri {
            host,
            set_name: None,
            set: None,
            shared_memory: Wanted::Auto,
            rdma: Wanted::Auto,
            rdma_device: None,
            spin: SPIN,
            ring_bytes: 0,
            connect_timeout: CONNECT_TIMEOUT,
            socket_timeout: None,
            app_name: None,
            introduces: true,
        }
    }

    /// The same for one server, whatever it is.
    pub fn to(&self, host: Host) -> Uri {
        Uri { host, set_name: None, set: None, ..self.clone() }
    }

    /// Fails if no connection can be as it says.
    pub(crate) fn check(&self) -> crate::Result<()> {
        if self.shared_memory == Wanted::Require && self.rdma == Wanted::Require {
            let why =
                "a connection has one transport: sharedMemory and rdma can't both be required";
            return Err(ClientError::Uri(why.to_owned()));
        }
        Ok(())
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number =
            || value.parse::<u32>().map_err(|_| format!("{name} must be a number, not '{value}'"));
        let millis = || number().map(|n| Duration::from_millis(n.into()));
        match name.to_ascii_lowercase().as_str() {
            "sharedmemory" => self.shared_memory = wanted(name, value)?,
            "rdma" => self.rdma = wanted(name, value)?,
            "rdmadevice" => self.rdma_device = Some(percent_decoded(value)?),
            "spinmicros" => self.spin = Duration::from_micros(number()?.into()),
            "ringbytes" => self.ring_bytes = number()?,
            "connecttimeoutms" => self.connect_timeout = millis()?,
            "sockettimeoutms" => self.socket_timeout = Some(millis()?).filter(|t| !t.is_zero()),
            "appname" => self.app_name = Some(percent_decoded(value)?),
            "replicaset" if value.is_empty() => return Err(format!("{name} must be a name")),
            "replicaset" => self.set_name = Some(percent_decoded(value)?),
            _ => return Err(format!("the option '{name}={value}' is unknown")),
        }
        Ok(())
    }
}

fn wanted(name: &str, value: &str) -> Result<Wanted, String> {
    match value {
        "auto" => Ok(Wanted::Auto),
        "require" => Ok(Wanted::Require),
        "off" => Ok(Wanted::Off),
        _ => Err(format!("{name} must be auto, require or off, not '{value}'")),
    }
}

fn truth(name: &str, value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| format!("{name} must be true or false, not '{value}'"))
}

/// `name:value,…`, or nothing.
fn tags(name: &str, value: &str) -> Result<Tags, String> {
    let mut tags = Tags::new();
    for one in value.split(',').filter(|one| !one.is_empty()) {
        let wrong = || format!("{name} must be tags like dc:ny,rack:1, not '{value}'");
        let (tag, of) = one.split_once(':').ok_or_else(wrong)?;
        let tag = percent_decoded(tag)?;
        if tag.is_empty() || tags.iter().any(|(known, _)| *known == tag) {
            return Err(wrong());
        }
        tags.push((tag, percent_decoded(of)?));
    }
    Ok(tags)
}

/// A number of seconds; -1: any.
fn staleness(name: &str, value: &str) -> Result<Option<Duration>, String> {
    match value.parse::<i32>() {
        Ok(-1) => Ok(None),
        Ok(seconds) if seconds > 0 => Ok(Some(Duration::from_secs(seconds as u64))),
        _ => Err(format!("{name} must be -1 or a positive number, not '{value}'")),
    }
}

/// Fails if the estimate of a secondary's staleness, whose error is up to the sum of these times, says too little.
fn check_staleness(
    preference: &ReadPreference,
    heartbeat: Duration,
    has_heartbeat: bool,
) -> Result<(), String> {
    if heartbeat < HEARTBEAT_MIN {
        return Err(format!("heartbeatFrequencyMS must be at least {}", HEARTBEAT_MIN.as_millis()));
    }
    let Some(most) = preference.max_staleness else {
        // Nothing else looks at the servers while all is well.
        let why = "heartbeatFrequencyMS needs maxStalenessSeconds";
        return if has_heartbeat { Err(why.to_owned()) } else { Ok(()) };
    };
    let least = STALENESS_MIN.max(heartbeat + IDLE_WRITE_PERIOD);
    if most < least {
        return Err(format!("maxStalenessSeconds must be at least {}", least.as_secs_f64()));
    }
    Ok(())
}

/// The options that say how a server of a set is selected.
#[derive(Default)]
struct SetGiven {
    direct: Option<bool>,
    mode: Option<ReadMode>,
    tag_sets: Vec<Tags>,
    max_staleness: Option<Duration>,
    heartbeat: Option<Duration>,
    selection_timeout: Option<Duration>,
    local_threshold: Option<Duration>,
    retry_writes: Option<bool>,
    retry_reads: Option<bool>,
    /// One of them, for an error.
    named: Option<String>,
}

impl SetGiven {
    /// Whether it is one of these options.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let millis = || match value.parse::<u32>() {
            Ok(millis) => Ok(Some(Duration::from_millis(millis.into()))),
            Err(_) => Err(format!("{name} must be a number, not '{value}'")),
        };
        match name.to_ascii_lowercase().as_str() {
            "directconnection" => {
                self.direct = Some(truth(name, value)?);
                return Ok(true);
            }
            "readpreference" => {
                let mode = ReadMode::parse(value);
                self.mode = Some(mode.ok_or_else(|| format!("{name}={value} is no mode"))?);
            }
            "readpreferencetags" => self.tag_sets.push(tags(name, value)?),
            "maxstalenessseconds" => self.max_staleness = staleness(name, value)?,
            "heartbeatfrequencyms" => self.heartbeat = millis()?,
            "serverselectiontimeoutms" => self.selection_timeout = millis()?,
            "localthresholdms" => self.local_threshold = millis()?,
            "retrywrites" => self.retry_writes = Some(truth(name, value)?),
            "retryreads" => self.retry_reads = Some(truth(name, value)?),
            _ => return Ok(false),
        }
        self.named = Some(name.to_owned());
        Ok(true)
    }

    fn preference(&self) -> Result<ReadPreference, String> {
        let mode = self.mode.unwrap_or(ReadMode::Primary);
        let tag_sets = self.tag_sets.clone();
        if mode == ReadMode::Primary && tag_sets.iter().any(|set| !set.is_empty()) {
            return Err("readPreferenceTags needs another readPreference than primary".to_owned());
        }
        if mode == ReadMode::Primary && self.max_staleness.is_some() {
            return Err("maxStalenessSeconds needs another readPreference than primary".to_owned());
        }
        let tag_sets = if mode == ReadMode::Primary { Vec::new() } else { tag_sets };
        Ok(ReadPreference { mode, tag_sets, max_staleness: self.max_staleness })
    }

    /// The options of a set of these hosts, if the connection string means one.
    fn options(self, seeds: Vec<Host>, has_name: bool) -> Result<Option<SetOptions>, String> {
        if self.direct == Some(true) && seeds.len() > 1 {
            return Err("directConnection=true allows only one host".to_owned());
        }
        let is_set = seeds.len() > 1 || has_name || self.direct == Some(false);
        if self.direct == Some(true) || !is_set {
            return match self.named {
                None => Ok(None),
                Some(name) => Err(format!("{name} needs several hosts or replicaSet")),
            };
        }
        let preference = self.preference()?;
        let usual = SetOptions::new(seeds);
        let heartbeat = self.heartbeat.unwrap_or(usual.heartbeat);
        check_staleness(&preference, heartbeat, self.heartbeat.is_some())?;
        Ok(Some(SetOptions {
            preference,
            heartbeat,
            selection_timeout: self.selection_timeout.unwrap_or(usual.selection_timeout),
            local_threshold: self.local_threshold.unwrap_or(usual.local_threshold),
            retry_writes: self.retry_writes.unwrap_or(usual.retry_writes),
            retry_reads: self.retry_reads.unwrap_or(usual.retry_reads),
            ..usual
        }))
    }
}

/// The hosts of a connection string, each once.
fn hosts(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts = Vec::new();
    for one in text.split(',') {
        let one = Host::parse(one)?;
        if !hosts.contains(&one) {
            hosts.push(one);
        }
    }
    match hosts.len() {
        0..=HOSTS_MAX => Ok(hosts),
        count => Err(format!("{count} hosts: a set has at most {HOSTS_MAX} members")),
    }
}

impl FromStr for Uri {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self, ClientError> {
        parse(text).map_err(ClientError::Uri)
    }
}

fn parse(text: &str) -> Result<Uri, String> {
    let rest = text.strip_prefix("mongodb://").ok_or("it must start with mongodb://")?;
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (servers, _database) = rest.split_once('/').unwrap_or((rest, ""));
    if servers.contains('@') {
        return Err("authentication is not supported".to_owned());
    }
    let hosts = hosts(servers)?;
    let mut uri = Uri::new(hosts.first().ok_or("no host")?.clone());
    let mut given = SetGiven::default();
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) =
            option.split_once('=').ok_or_else(|| format!("'{option}' has no value"))?;
        if !given.take(name, value)? {
            uri.option(name, value)?;
        }
    }
    uri.set = given.options(hosts, uri.set_name.is_some())?;
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_options_are_read() {
        let tcp = |name: &str, port| Uri::new(Host::Tcp(name.to_owned(), port));
        let socket = Uri::new(Host::Unix("/tmp/mongodb-27017.sock".into()));
        for (text, expected) in [
            ("mongodb://localhost", tcp("localhost", 27017)),
            ("mongodb://db.example.com:1234/", tcp("db.example.com", 1234)),
            ("mongodb://[::1]:5", tcp("::1", 5)),
            ("mongodb://[::1]/test", tcp("::1", 27017)),
            ("mongodb://%2Ftmp%2Fmongodb-27017.sock", socket.clone()),
            (
                "mongodb://%2Ftmp%2Fmongodb-27017.sock/db?sharedMemory=require&spinMicros=7",
                Uri { shared_memory: Wanted::Require, spin: Duration::from_micros(7), ..socket },
            ),
            (
                "mongodb://h/?rdma=off&rdmaDevice=mlx5_0&appName=a%20b&socketTimeoutMS=9&directConnection=true",
                Uri {
                    rdma: Wanted::Off,
                    rdma_device: Some("mlx5_0".to_owned()),
                    app_name: Some("a b".to_owned()),
                    socket_timeout: Some(Duration::from_millis(9)),
                    ..tcp("h", 27017)
                },
            ),
            (
                "mongodb://h?connectTimeoutMS=20&ringBytes=65536&socketTimeoutMS=0",
                Uri {
                    connect_timeout: Duration::from_millis(20),
                    ring_bytes: 65536,
                    ..tcp("h", 27017)
                },
            ),
        ] {
            assert_eq!(text.parse::<Uri>().unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn several_hosts_or_a_name_mean_a_set() {
        let parsed = |text: &str| text.parse::<Uri>().unwrap();
        let [a, b] = [("a", 1), ("b", 27017)].map(|(name, port)| Host::Tcp(name.to_owned(), port));
        let two = parsed("mongodb://a:1,b,a:1");
        assert_eq!((&two.host, &two.set_name), (&a, &None));
        assert_eq!(two.set, Some(SetOptions::new(vec![a.clone(), b])));
        assert_eq!(two.to(a.clone()), parsed("mongodb://a:1"));
        let named = parsed("mongodb://a:1/?replicaSet=rs%20&retryWrites=false&retryReads=false");
        let one = SetOptions::new(vec![a]);
        assert_eq!(named.set_name.as_deref(), Some("rs "));
        let once = SetOptions { retry_writes: false, retry_reads: false, ..one.clone() };
        assert_eq!(named.set, Some(once));
        assert_eq!(parsed("mongodb://a:1/?directConnection=false").set, Some(one.clone()));
        let direct = parsed("mongodb://a:1/?directConnection=true&replicaSet=rs");
        assert_eq!((direct.set_name.as_deref(), direct.set), (Some("rs"), None));
        let text = "mongodb://a:1/?replicaSet=r&readPreference=secondaryPreferred\
            &serverSelectionTimeoutMS=7&localThresholdMS=0";
        let expected = SetOptions {
            preference: ReadPreference::new(ReadMode::SecondaryPreferred),
            selection_timeout: Duration::from_millis(7),
            local_threshold: Duration::ZERO,
            ..one.clone()
        };
        assert_eq!(parsed(text).set, Some(expected));
        let text = "mongodb://a:1/?replicaSet=r&readPreference=nearest&maxStalenessSeconds=120\
            &readPreferenceTags=dc:n%20y,rack:1&heartbeatFrequencyMS=500&readPreferenceTags=";
        let tag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let preference = ReadPreference {
            tag_sets: vec![vec![tag("dc", "n y"), tag("rack", "1")], Vec::new()],
            max_staleness: Some(Duration::from_secs(120)),
            ..ReadPreference::new(ReadMode::Nearest)
        };
        let heartbeat = Duration::from_millis(500);
        assert_eq!(parsed(text).set, Some(SetOptions { preference, heartbeat, ..one.clone() }));
        let any = "mongodb://a:1/?replicaSet=r&maxStalenessSeconds=-1&readPreferenceTags=";
        assert_eq!(parsed(any).set, Some(one));
        let many: Vec<_> = (0..=HOSTS_MAX).map(|n| format!("h{n}")).collect();
        assert!(format!("mongodb://{}", many.join(",")).parse::<Uri>().is_err());
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (text, words) in [
            ("http://h", "mongodb://"),
            ("mongodb://", "no host"),
            ("mongodb://:1", "no host"),
            ("mongodb://h:x", "'x' is not a port"),
            ("mongodb://h:0", "'0' is not a port"),
            ("mongodb://h:70000", "not a port"),
            ("mongodb://[::1", "']'"),
            ("mongodb://a,,b", "no host"),
            ("mongodb://a,b/?directConnection=true", "only one host"),
            ("mongodb://a/?replicaSet=", "must be a name"),
            ("mongodb://a,b/?readPreference=first", "is no mode"),
            ("mongodb://a/?readPreference=nearest", "needs several hosts"),
            ("mongodb://a/?directConnection=yes", "true or false"),
            ("mongodb://a,b/?localThresholdMS=x", "must be a number"),
            ("mongodb://a,b/?maxStalenessSeconds=90", "needs another readPreference"),
            ("mongodb://a,b/?readPreferenceTags=a:b", "needs another readPreference"),
            ("mongodb://a/?readPreferenceTags=", "needs several hosts"),
            ("mongodb://a,b/?readPreference=nearest&readPreferenceTags=a", "must be tags"),
            ("mongodb://a,b/?readPreference=nearest&readPreferenceTags=a:b,a:c", "must be tags"),
            ("mongodb://a,b/?readPreference=nearest&maxStalenessSeconds=89", "at least 90"),
            ("mongodb://a,b/?readPreference=nearest&maxStalenessSeconds=0", "a positive number"),
            (
                "mongodb://a,b/?readPreference=nearest&maxStalenessSeconds=99&heartbeatFrequencyMS=90000",
                "at least 100",
            ),
            ("mongodb://a,b/?heartbeatFrequencyMS=499", "at least 500"),
            ("mongodb://a,b/?heartbeatFrequencyMS=500", "needs maxStalenessSeconds"),
            ("mongodb://u:p@h", "authentication"),
            ("mongodb://h/?rdma=yes", "auto, require or off"),
            ("mongodb://h/?tls=true", "'tls=true' is unknown"),
            ("mongodb://h/?rdma", "no value"),
            ("mongodb://h/?spinMicros=-1", "must be a number"),
            ("mongodb://%2", "hexadecimal"),
            ("mongodb://%ff", "UTF-8"),
        ] {
            let error = text.parse::<Uri>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
