//! A server that a benchmark starts as a process of its own, and ends.

use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::writelock::command;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

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

/// Reads a server's log to its end; sends when it tells that it listens.
fn listens(log: Option<ChildStdout>) -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = log.into_iter().flat_map(|log| BufReader::new(log).lines());
        for line in lines.map_while(io::Result::ok) {
            if line.contains("Waiting for connections") {
                // Whoever has lost patience has gone.
                let _ = sender.send(());
            }
        }
    });
    receiver
}

impl Server {
    /// Starts it with these further arguments, in these control groups, and waits until it listens: on this
    /// machine's own address, unless the arguments say `--bind_ip` and one address.
    pub fn start(
        port: u16,
        dbpath: &Path,
        arguments: &[String],
        cgroups: &[PathBuf],
    ) -> Result<Server> {
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = std::process::Command::new(program);
        command
            .args(["serve", "--slowms", "100000"])
            .args(["--port", &port.to_string()])
            .arg("--dbpath")
            .arg(dbpath)
            .args(arguments)
            .stdout(Stdio::piped());
        if !arguments.iter().any(|argument| argument == "--unixSocketPrefix") {
            command.arg("--nounixsocket");
        }
        let bound = arguments.iter().skip_while(|argument| *argument != "--bind_ip").nth(1);
        if bound.is_none() {
            command.args(["--bind_ip", "127.0.0.1"]);
        }
        let host = bound.map_or("127.0.0.1", String::as_str);
        let host: IpAddr = host.parse().map_err(|_| {
            Error::bad_value(format!("a server listens on an address, not on '{host}'"))
        })?;
        let mut child = command.spawn().map_err(failed)?;
        let ready = listens(child.stdout.take());
        let address = SocketAddr::new(host, port);
        let mut server = Server { child, address };
        for cgroup in cgroups {
            let file = cgroup.join("cgroup.procs");
            std::fs::write(&file, server.pid().to_string()).map_err(|error| {
                Error::new(ErrorCode::OperationFailed, format!("{}: {error}", file.display()))
            })?;
        }
        match ready.recv_timeout(START_PATIENCE) {
            Ok(()) => Ok(server),
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::new(ErrorCode::OperationFailed, "the server does not start"))
            }
            // It has closed its output.
            Err(RecvTimeoutError::Disconnected) => {
                let status = server.child.wait().map_err(failed)?;
                let message = format!("the server ended at its start: {status}");
                Err(Error::new(ErrorCode::OperationFailed, message))
            }
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
