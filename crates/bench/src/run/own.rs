//! The servers that a run starts itself.
//!
//! ```toml
//! [[server]]
//! label = "shared memory, 500 MB"
//! serve = { arguments = ["--storageEngine", "pmlog"], memoryMB = 500 }
//! over = "sharedMemory"        # tcp, unix, sharedMemory or rdma; default tcp
//! ```
//!
//! Invariant: entries with the same `serve` are addresses of one server; a further server with the same settings
//! has a `name`. This module must not know how servers are started.

use super::plan::Reader;
use crate::standalone::way::{WAYS, Way};
use kauri_base::{Error, Result};
use std::path::PathBuf;
use toml::{Table, Value};

/// Most memory that a server can be given, in MB.
const MEMORY_MB_MAX: i64 = 1_000_000_000;

/// A server to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Own {
    /// Tells it from others that are started alike.
    name: Option<String>,
    /// What `kauri serve` is given.
    pub arguments: Vec<String>,
    /// The limit of its memory.
    pub memory_mb: Option<u64>,
}

/// Where one listens that was started.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The path of its Unix domain socket.
    pub socket: PathBuf,
}

/// Which server of a run file is one of those, and how it is gone to.
#[derive(Clone, Debug)]
struct Address {
    /// Its place among the run file's servers.
    server: usize,
    /// Its place among those to be started.
    own: usize,
    way: &'static Way,
}

/// All of a run file.
#[derive(Clone, Debug)]
pub struct Owned {
    /// Those to be started.
    pub servers: Vec<Own>,
    addresses: Vec<Address>,
}

fn tables(table: &mut Table) -> impl Iterator<Item = (usize, &mut Table)> {
    let servers = table.get_mut("server").and_then(Value::as_array_mut);
    let entries = servers.into_iter().flatten().enumerate();
    entries.filter_map(|(at, entry)| Some((at, entry.as_table_mut()?)))
}

fn own(mut reader: Reader) -> Result<Own> {
    let memory = reader.whole("memoryMB", 0, 1, MEMORY_MB_MAX)?;
    let own = Own {
        name: reader.text("name")?,
        arguments: reader.texts("arguments")?,
        memory_mb: u64::try_from(memory).ok().filter(|mb| *mb > 0),
    };
    reader.finish()?;
    Ok(own)
}

impl Owned {
    /// Takes them out of what the run file `name` says. Their servers have no address then.
    pub fn take(name: &str, table: &mut Table) -> Result<Owned> {
        let mut owned = Owned { servers: Vec::new(), addresses: Vec::new() };
        for (server, entry) in tables(table) {
            let at = format!("'{name}', server {}", server + 1);
            let wrong = |why: String| Error::bad_value(format!("{at}: {why}"));
            let serve = match entry.remove("serve") {
                None => continue,
                Some(Value::Table(serve)) => own(Reader::new(format!("{at}, serve"), serve))?,
                Some(other) => {
                    let right = "{ arguments = […], memoryMB = … }";
                    return Err(wrong(format!("'serve' is {other}, but must be {right}")));
                }
            };
            if entry.contains_key("uri") {
                return Err(wrong("either 'uri' or 'serve', not both".to_owned()));
            }
            let over = entry.remove("over").unwrap_or_else(|| "tcp".into());
            let way = over.as_str().and_then(Way::parse).ok_or_else(|| {
                let known = WAYS.iter().map(|way| way.name).collect::<Vec<_>>().join(", ");
                wrong(format!("'over' is {over}, but must be one of {known}"))
            })?;
            let known = owned.servers.iter().position(|one| *one == serve);
            let own = known.unwrap_or(owned.servers.len());
            if known.is_none() {
                owned.servers.push(serve);
            }
            owned.addresses.push(Address { server, own, way });
        }
        Ok(owned)
    }

    /// What the run file says with their addresses: they listen there, in their order.
    pub fn fill(&self, mut table: Table, places: &[Place]) -> Table {
        for (at, entry) in tables(&mut table) {
            let Some(address) = self.addresses.iter().find(|address| address.server == at) else {
                continue;
            };
            let mut put = |name: &str, value: Value| {
                entry.entry(name).or_insert(value);
            };
            if let Some(Place { host, port, socket }) = places.get(address.own) {
                put("uri", address.way.address(host, *port, socket).into());
            }
            put("transport", address.way.name.into());
            put("label", address.way.label.into());
            if let Some(mb) = self.servers.get(address.own).and_then(|own| own.memory_mb) {
                put("memoryLimitMB", Value::Integer(mb as i64));
            }
        }
        table
    }

    /// Places before there are any.
    pub fn nowhere(&self) -> Vec<Place> {
        let socket = PathBuf::from("/nowhere");
        vec![Place { host: "127.0.0.1".to_owned(), port: 1, socket }; self.servers.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::plan::Plan;
    use std::path::Path;

    const FILE: &str = "
        [[server]]
        serve = { arguments = ['--workers', '2'], memoryMB = 500 }
        [[server]]
        uri = 'mongodb://h:1'
        [[server]]
        serve = { memoryMB = 500, arguments = ['--workers', '2'] }
        over = 'sharedMemory'
        label = 'rings'
        [[server]]
        serve = { name = 'b', arguments = ['--workers', '2'], memoryMB = 500 }
        over = 'unix'
        [[workload]]
        preset = 'A'
    ";

    #[test]
    fn what_is_served_alike_is_one_server_of_several_addresses() {
        let mut table: Table = FILE.parse().unwrap();
        let owned = Owned::take("x", &mut table).unwrap();
        let [one, other] = &owned.servers[..] else { panic!("{owned:?}") };
        assert_eq!(one.arguments, ["--workers", "2"]);
        assert_eq!((one.memory_mb, other.memory_mb), (Some(500), Some(500)));
        let mut places = owned.nowhere();
        places[1].socket = PathBuf::from("/tmp/s");
        let plan = Plan::of_table("x", owned.fill(table, &places), Path::new("")).unwrap();
        let found: Vec<_> = plan
            .servers
            .iter()
            .map(|one| {
                let to = one.uri_text.split_once("/?").map_or(&*one.uri_text, |uri| uri.0);
                let expected = &one.expected;
                (&*one.label, to, expected.transport.as_deref(), expected.memory_limit_mb)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("TCP", "mongodb://127.0.0.1:1", Some("tcp"), Some(500)),
                ("mongodb://h:1", "mongodb://h:1", None, None),
                ("rings", "mongodb://%2Fnowhere", Some("sharedMemory"), Some(500)),
                ("Unix socket", "mongodb://%2Ftmp%2Fs", Some("unix"), Some(500)),
            ]
        );
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        for (server, words) in [
            ("serve = {}\nuri = 'mongodb://h:1'", "server 1: either 'uri' or 'serve'"),
            ("serve = {}\nover = 'wires'", "one of tcp, unix, sharedMemory, rdma"),
            ("serve = 1", "'serve' is 1, but must be { arguments"),
            ("serve = { memory = 1 }", "server 1, serve: there is no 'memory'"),
            ("serve = { memoryMB = 0 }", "'memoryMB' is 0"),
            ("serve = { arguments = [1] }", "'arguments' is [1]"),
        ] {
            let mut table: Table = format!("[[server]]\n{server}").parse().unwrap();
            let why = Owned::take("x", &mut table).unwrap_err();
            assert!(why.message().contains(words), "{why}");
        }
    }
}
