//! This server as a member of a replica set: its handle, its name among a configuration's hosts, the sign that there are
//! commits for the set, and the driver on a worker of its own.

use crate::member_dialer::MemberDialer;
use crate::options::Options;
use kauri_base::log::{self, Attr};
use kauri_base::{CommitSeq, Error, ErrorCode, Result};
use kauri_commands::Server;
use kauri_commands::member_host::ServerHost;
use kauri_commands::server::HostProbe;
use kauri_medium::Directory;
use kauri_medium::plain::PlainDirectory;
use kauri_member::stored::StateFile;
use kauri_member::{Driver, Member, Parts, initial_sync};
use kauri_storage::StorageEngine;
use kauri_transport::{ExecutorOptions, ServiceExecutor};
use std::net::{ToSocketAddrs, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The marker of a directory that leaves its set.
pub(crate) const LEAVING_FILE: &str = "replica-set.leaving";
/// Before the process begins again.
const PAUSE_BEFORE_START: Duration = Duration::from_millis(200);

/// The member of the set that `--replSet` names.
pub fn member(options: &Options) -> Option<Arc<Member>> {
    options.given("replication.replSetName").map(Member::new)
}

/// Whether a host is this server: its port is this one, and an address of its name is one of this machine.
pub fn host_probe(port: u16) -> HostProbe {
    Arc::new(move |host| {
        let is_own_port = host.rsplit_once(':').is_some_and(|(_, text)| text == port.to_string());
        // Only addresses of this machine can be bound.
        is_own_port
            && host.to_socket_addrs().is_ok_and(|mut addresses| {
                addresses.any(|address| UdpSocket::bind((address.ip(), 0)).is_ok())
            })
    })
}

/// The `host:port` of this server in a configuration that names none: the first address it listens at that others may
/// reach, the machine's name if it listens at all of them, and else a loopback address, for a set on one machine.
pub fn member_host(bind_ips: &[String], port: u16, machine: &str) -> String {
    let mut listens_at_all = false;
    for ip in bind_ips.iter().filter(|ip| !ip.contains('/')) {
        let (name, is_all) = (ip.trim_matches(['[', ']']), matches!(ip.as_str(), "*" | "::"));
        let mut addresses = (name, port).to_socket_addrs().into_iter().flatten();
        if is_all || addresses.clone().any(|address| address.ip().is_unspecified()) {
            listens_at_all = true;
        } else if addresses.any(|address| !address.ip().is_loopback()) {
            return host_and_port(name, port);
        }
    }
    match bind_ips.iter().find(|ip| !ip.contains('/')) {
        _ if listens_at_all => format!("{machine}:{port}"),
        Some(ip) => host_and_port(ip.trim_matches(['[', ']']), port),
        None => format!("localhost:{port}"),
    }
}

fn host_and_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// To be called at the end of a worker's tick: tells the member of new commits.
pub fn commit_watch(
    member: Arc<Member>,
    engine: Arc<dyn StorageEngine>,
) -> impl Fn() + Send + Sync {
    let told = AtomicU64::new(0);
    move || {
        let now = engine.visible().0;
        if told.fetch_max(now, Ordering::Relaxed) < now {
            member.note_visible(CommitSeq(now));
        }
    }
}

/// The data directory.
pub(crate) fn directory(options: &Options) -> Result<PlainDirectory> {
    let path = PathBuf::from(options.text("storage.dbPath", "/data/db"));
    PlainDirectory::open(path).map_err(|e| Error::new(ErrorCode::OperationFailed, e.to_string()))
}

/// Whether `--leaveReplSet` was begun here, and not completed.
pub(crate) fn is_leaving(directory: &dyn Directory) -> Result<bool> {
    Ok(directory.read_file(LEAVING_FILE)?.is_some())
}

/// Fails if the data directory is of a member of a set, and no set is named; or if it is about to leave one.
pub fn check_directory(options: &Options) -> Result<()> {
    if options.text("storage.engine", "pmlog") != "pmlog" {
        return Ok(());
    }
    let path = options.text("storage.dbPath", "/data/db");
    let leave = format!("'kauri serve --leaveReplSet --dbpath {path}'");
    let refused = |why: String| {
        let message = format!("{path}: the data directory is of a member of a replica set{why}");
        Err(Error::new(ErrorCode::InvalidReplicaSetConfig, message))
    };
    let directory = Arc::new(directory(options)?);
    if is_leaving(&*directory)? {
        return refused(format!(", and --leaveReplSet was not completed. Run {leave} again"));
    }
    if options.given("replication.replSetName").is_some() {
        return Ok(());
    }
    if initial_sync::is_complete(&*directory)? {
        return refused(format!(
            ", in its initial sync. Start it with --replSet; or run {leave} to make it a server alone"
        ));
    }
    let Some(stored) = StateFile::new(directory).read()? else { return Ok(()) };
    let name = stored.config.as_doc().value("_id").as_str().unwrap_or("?").to_owned();
    refused(format!(
        ". Start it with --replSet {name}; or run {leave} to make it a server alone, which cannot come back to the set"
    ))
}

/// An initial sync that is complete: the copied files take their places. The engine is not open.
pub fn finish_initial_sync(options: &Options) -> Result<()> {
    match options.given("replication.replSetName") {
        Some(_) => install_copied_files(options),
        None => Ok(()),
    }
}

/// See [`finish_initial_sync`].
pub(crate) fn install_copied_files(options: &Options) -> Result<()> {
    let failed = |error: kauri_medium::Error| {
        let text =
            format!("the copied files of the initial sync cannot take their places: {error}");
        Error::new(ErrorCode::OperationFailed, text)
    };
    let directory = directory(options)?;
    if !initial_sync::is_complete(&directory)? {
        return Ok(());
    }
    let _lock = directory.lock()?;
    initial_sync::finish(&directory, |prefix| kauri_storage_log::install_copy(&directory, prefix))
        .map(drop)
        .map_err(failed)
}

/// Bytes of the log that this member keeps.
pub(crate) fn log_bytes(options: &Options, size: Option<u64>) -> u64 {
    const LEAST: u64 = 990 << 20;
    const MOST: u64 = 50 << 30;
    let room = options.gigabytes("storage.maxSizeGB").unwrap_or(u64::MAX);
    let room = room.min(size.unwrap_or(u64::MAX));
    match options.number("replication.oplogSizeMB", 0) {
        0 => (room / 20).clamp(LEAST, MOST).min(room / 4),
        megabytes => megabytes << 20,
    }
}

/// Starts the driver of this server's member on a worker of its own, which it answers.
pub fn start(options: &Options, server: &Arc<Server>) -> Result<Option<Arc<ServiceExecutor>>> {
    let Some(member) = &server.member else { return Ok(None) };
    let executor = ServiceExecutor::start(&ExecutorOptions {
        name: Some("member"),
        workers: 1,
        ..ExecutorOptions::default()
    })?;
    let Some(worker) = executor.workers().first() else { return Ok(None) };
    let engine = server.backend.engine().clone();
    let flushed = engine.clone();
    executor.on_tick_end(Arc::new(move || flushed.flush()));
    executor.on_tick_end(Arc::new(commit_watch(member.clone(), engine.clone())));
    let host = ServerHost {
        server: server.clone(),
        machine_run: machine_run(),
        restart: Box::new(begin_again),
        aside: Box::new(|work| drop(std::thread::spawn(work))),
    };
    let directory = directory(options)?;
    let log_bytes = log_bytes(options, directory.space().map(|(size, _)| size));
    let driver = Driver::new(Parts {
        member: member.clone(),
        engine,
        directory: Arc::new(directory),
        host: Arc::new(host),
        dial: Arc::new(MemberDialer::new(options)),
        log_bytes,
        worker: worker.clone(),
        clock: server.clock.clone(),
        random: server.random.clone(),
    })?;
    worker.spawn(driver.run());
    Ok(Some(executor.clone()))
}

/// The kernel's id of this run of the machine.
fn machine_run() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Executes this program again, with the same arguments, in this process.
fn begin_again(why: &str) {
    let attr = Attr::new().str("reason", why);
    log::warning("REPL", 6_400_010, "member", "The server begins again", attr);
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // Whatever is wrong may be wrong again.
    std::thread::sleep(PAUSE_BEFORE_START);
    // The file may have been replaced by an upgrade; this names the one that runs.
    let error = Command::new("/proc/self/exe").arg0(name).args(arguments).exec();
    let attr = Attr::new().str("error", error.to_string());
    log::error("REPL", 6_400_011, "member", "The server cannot begin again; it ends", attr);
    std::process::exit(14);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_of_this_machine_with_this_port_is_this_server() {
        let is_self = host_probe(27017);
        assert!(is_self("localhost:27017") && is_self("127.0.0.1:27017"));
        assert!(!is_self("localhost:27018"));
        // A block of addresses that no machine has.
        assert!(!is_self("192.0.2.1:27017"));
    }

    #[test]
    fn a_member_is_known_by_an_address_that_others_reach() {
        let host = |list: &str| {
            let ips: Vec<String> = list.split(',').map(str::to_owned).collect();
            member_host(&ips, 5, "machine")
        };
        for (bound, expected) in [
            ("localhost", "localhost:5"),
            ("127.0.0.1", "127.0.0.1:5"),
            ("127.0.0.1,192.0.2.7", "192.0.2.7:5"),
            ("/tmp/a.sock,127.0.0.1", "127.0.0.1:5"),
            ("::1", "[::1]:5"),
            ("2001:db8::1", "[2001:db8::1]:5"),
            ("*", "machine:5"),
            ("0.0.0.0", "machine:5"),
            ("127.0.0.1,::", "machine:5"),
            ("0.0.0.0,192.0.2.7", "192.0.2.7:5"),
        ] {
            assert_eq!(host(bound), expected, "{bound}");
        }
    }
}
