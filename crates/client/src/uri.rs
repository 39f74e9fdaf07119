//! Connection strings: `mongodb://host:port/?option=value&…`, or the percent-encoded path of a socket as the host.
//!
//! An unknown option is an error, as everywhere in Kauri.

use crate::ClientError;
use std::path::PathBuf;
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

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Host {
    /// A name or address, and a port.
    Tcp(String, u16),
    /// A Unix domain socket.
    Unix(PathBuf),
}

/// A parsed connection string.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uri {
    /// The server.
    pub host: Host,
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

const DEFAULT_PORT: u16 = 27017;
const SPIN: Duration = Duration::from_micros(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Uri {
    /// A server with nothing else said.
    pub fn new(host: Host) -> Self {
        Uri {
            host,
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
            "directconnection" if matches!(value, "true" | "false") => {}
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

fn percent_decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err(format!("'%' needs two hexadecimal digits in '{text}'")),
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("'{text}' is not UTF-8"))
}

fn host(text: &str) -> Result<Host, String> {
    if text.contains(',') {
        return Err("only one server is allowed".to_owned());
    }
    let name = percent_decoded(text)?;
    if name.ends_with(".sock") {
        return Ok(Host::Unix(name.into()));
    }
    let (name, port) = match name.strip_prefix('[') {
        Some(v6) => {
            let (name, rest) = v6.split_once(']').ok_or("'[' without ']'")?;
            (name, rest.strip_prefix(':'))
        }
        None => match name.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (name.as_str(), None),
        },
    };
    let port = match port {
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(format!("'{port}' is not a port")),
        },
        None => DEFAULT_PORT,
    };
    if name.is_empty() { Err("no host".to_owned()) } else { Ok(Host::Tcp(name.to_owned(), port)) }
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
    let mut uri = Uri::new(host(servers)?);
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) =
            option.split_once('=').ok_or_else(|| format!("'{option}' has no value"))?;
        uri.option(name, value)?;
    }
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
    fn errors_name_the_wrong_part() {
        for (text, words) in [
            ("http://h", "mongodb://"),
            ("mongodb://", "no host"),
            ("mongodb://:1", "no host"),
            ("mongodb://h:x", "'x' is not a port"),
            ("mongodb://h:0", "'0' is not a port"),
            ("mongodb://h:70000", "not a port"),
            ("mongodb://[::1", "']'"),
            ("mongodb://a,b", "one server"),
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
