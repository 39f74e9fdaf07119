//! The address of a server in a connection string.

use std::fmt;
use std::path::PathBuf;

const DEFAULT_PORT: u16 = 27017;
/// Members of a set.
pub const HOSTS_MAX: usize = 50;

/// The address of a server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Host {
    /// A name or address, and a port.
    Tcp(String, u16),
    /// A Unix domain socket.
    Unix(PathBuf),
}

impl Host {
    /// One host of a connection string or of a set's configuration: `name:port`, `[address]:port`, or a socket's path.
    pub fn parse(text: &str) -> Result<Host, String> {
        host(text)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Tcp(name, port) if name.contains(':') => write!(f, "[{name}]:{port}"),
            Host::Tcp(name, port) => write!(f, "{name}:{port}"),
            Host::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

fn host(text: &str) -> Result<Host, String> {
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
    if name.is_empty() {
        Err("no host".to_owned())
    } else {
        Ok(Host::Tcp(name.to_ascii_lowercase(), port))
    }
}

/// The text with its `%XX` replaced.
pub fn percent_decoded(text: &str) -> Result<String, String> {
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
