//! The servers that a run starts: each a process with its own directory, and a control group if its memory is
//! limited.
//!
//! Invariant: dropping them removes all of that.

use crate::limit::Limit;
use crate::server::{Server, free_port};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::run::own::{Own, Place};
use std::path::PathBuf;

/// A directory that goes when it is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is where such things are cleared away in any case.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One of them. Fields are dropped in order: first the server ends.
pub struct Running {
    server: Server,
    /// Where it listens.
    pub place: Place,
    _limit: Option<Limit>,
    _scratch: Scratch,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::OperationFailed, error.to_string())
}

impl Running {
    /// Starts it; `number` tells it from the others of this process.
    pub fn start(own: &Own, number: usize) -> Result<Running> {
        let name = format!("kauri-run-{}-{number}", std::process::id());
        let limit = own.memory_mb.map(|mb| Limit::new(&name, mb)).transpose()?;
        let scratch = Scratch(std::env::temp_dir().join(&name));
        let data = scratch.0.join("db");
        std::fs::create_dir_all(&data)
            .map_err(|error| failed(format!("cannot create {}: {error}", data.display())))?;
        let port = free_port()?;
        let mut arguments = own.arguments.clone();
        arguments.extend(["--unixSocketPrefix".to_owned(), scratch.0.display().to_string()]);
        let groups: Vec<PathBuf> = limit.iter().map(|limit| limit.group().to_owned()).collect();
        let server = Server::start(port, &data, &arguments, &groups)?;
        let place = Place {
            host: server.address().ip().to_string(),
            port,
            socket: scratch.0.join(format!("mongodb-{port}.sock")),
        };
        Ok(Running { server, place, _limit: limit, _scratch: scratch })
    }

    /// Ends it as a clean shutdown does.
    pub fn stop(self) -> Result<()> {
        self.server.stop()
    }
}
