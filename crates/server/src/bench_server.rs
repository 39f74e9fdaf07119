//! A server that a benchmark starts as a process of its own, and ends.

use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::writelock::command;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start: it reads its whole index.
const START_PATIENCE: Duration = Duration::from_secs(900);

fn failed(error: io::Error) -> Error {
    Error::new(ErrorCode::OperationFailed, error.to_string())
}

/// See the module's head.
pub struct Server {
    child: Child,
    address: SocketAddr,
}

/// A port that is free now.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.port())
}

impl Server {
    /// Starts it with these further arguments, in these control groups, and waits until it listens.
    pub fn start(
        port: u16,
        dbpath: &Path,
        arguments: &[String],
        cgroups: &[PathBuf],
    ) -> Result<Server> {
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = std::process::Command::new(program);
        command
            .args(["serve", "--nounixsocket", "--bind_ip", "127.0.0.1", "--slowms", "100000"])
            .args(["--port", &port.to_string()])
            .arg("--dbpath")
            .arg(dbpath)
            .args(arguments)
            .stdout(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Server { child, address };
        for cgroup in cgroups {
            let file = cgroup.join("cgroup.procs");
            std::fs::write(&file, server.pid().to_string()).map_err(|error| {
                Error::new(ErrorCode::OperationFailed, format!("{}: {error}", file.display()))
            })?;
        }
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            if let Some(status) = server.child.try_wait().map_err(failed)? {
                let message = format!("the server ended at its start: {status}");
                return Err(Error::new(ErrorCode::OperationFailed, message));
            }
            if TcpStream::connect(address).is_ok() {
                return Ok(server);
            }
            if Instant::now() > deadline {
                return Err(Error::new(ErrorCode::OperationFailed, "the server does not start"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a clean shutdown does.
    pub fn stop(mut self) -> Result<()> {
        let mut stream = TcpStream::connect(self.address).map_err(failed)?;
        // It may end before it answers.
        let _ = command(&mut stream, "admin", "shutdown");
        let status = self.child.wait().map_err(failed)?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::new(ErrorCode::OperationFailed, format!("the server: {status}"))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `stop` there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
