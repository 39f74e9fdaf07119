//! A server that a benchmark starts as a process and stops.
//!
//! Invariants: the server is in its control groups before it runs. A signal to the benchmark's terminal does not
//! reach it, and it never outlives the benchmark.

use kauri_base::{Error, ErrorCode, Result};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
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
    /// Ends the server when its input does: with this process.
    watcher: Child,
    address: SocketAddr,
}

/// Starts the command in a process group of its own.
fn apart(command: &mut Command) -> Result<Child> {
    command.process_group(0).spawn().map_err(failed)
}

/// The command of a shell that goes into control groups, and is the server then.
fn inside(cgroups: &[PathBuf], program: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    let script =
        r#"while [ "$1" != -- ]; do echo $$ >"$1" || exit 1; shift; done; shift; exec "$@""#;
    command.args(["-c", script, "sh"]);
    command.args(cgroups.iter().map(|cgroup| cgroup.join("cgroup.procs")));
    command.arg("--").arg(program);
    command
}

fn watcher(of: &Child) -> Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"read -r _; kill "$1""#, "sh", &of.id().to_string()]);
    apart(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()))
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
        let mut command = match cgroups {
            [] => Command::new(program),
            _ => inside(cgroups, &program),
        };
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
            Error::bad_value(format!("--bind_ip must be an IP address, not '{host}'"))
        })?;
        let mut child = apart(&mut command)?;
        let ready = listens(child.stdout.take());
        let address = SocketAddr::new(host, port);
        let watcher = watcher(&child).inspect_err(|_| drop(child.kill()))?;
        let mut server = Server { child, watcher, address };
        match ready.recv_timeout(START_PATIENCE) {
            Ok(()) => Ok(server),
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::new(ErrorCode::OperationFailed, "the server did not start in time"))
            }
            // It has closed its output.
            Err(RecvTimeoutError::Disconnected) => {
                let status = server.child.wait().map_err(failed)?;
                let message = format!("the server exited during startup: {status}");
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

    /// Ends it in order, by a signal: the `shutdown` command is for clients on a loopback address only.
    pub fn stop(mut self) -> Result<()> {
        drop(self.watcher.stdin.take());
        let status = self.child.wait().map_err(failed)?;
        match status.success() {
            true => Ok(()),
            false => {
                Err(Error::new(ErrorCode::OperationFailed, format!("the server failed: {status}")))
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `stop` there is nothing left to end.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
