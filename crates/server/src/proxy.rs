//! `kauri proxy`: forwards drivers' connections to one server or a set's primary over shared memory or RDMA. Flags that
//! the server has, too, have the same names.

use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::clock::SystemClock;
use kauri_base::log::{self, Attr};
use kauri_base::{Clock, Error, ErrorCode, Result};
use kauri_client::Uri;
use kauri_proxy::{Proxy, ProxyOptions};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Maximum time for requests in flight when the proxy stops.
const STOP_GRACE: Duration = Duration::from_secs(15);
const CTX: &str = "proxy";
const AFTER_HELP: &str = "\
URI: mongodb://HOST:PORT/ or mongodb://%2Ftmp%2Fmongodb-27017.sock, with these options:
  sharedMemory=auto|require|off    Shared memory with a server of the same host and user
  rdma=auto|require|off            RDMA
  rdmaDevice=NAME                  RDMA device [default: the first with an active port]
  spinMicros=N                     Maximum time to poll for a reply before sleeping, in microseconds [default: 20]
  ringBytes=N                      Size of the rings, in bytes: a power of two from 65536 to 1048576
  connectTimeoutMS=N, socketTimeoutMS=N
Several hosts, or replicaSet=NAME, mean a replica set, whose primary the proxy follows, with these options:
  readPreference=MODE              Follow another member: primaryPreferred, secondary, secondaryPreferred, nearest
  readPreferenceTags=TAG:VALUE,... Follow a member with these tags; several times: the first set that any member has
  maxStalenessSeconds=N            Follow no secondary that is further behind, at least 90
  heartbeatFrequencyMS=N           How often that is looked at [default: 10000]
  serverSelectionTimeoutMS=N       Maximum time that drivers wait for a server that fits [default: 30000]
  localThresholdMS=N               How much later than the fastest a server may answer to fit [default: 15]

Drivers connect to the proxy like to a server: mongodb://127.0.0.1:27117, or the Unix domain socket
mongodb://%2Ftmp%2Fmongodb-27117.sock. The log message \"Sessions with the server\" names the transport in use.";

/// The command line's form.
pub fn command() -> Command {
    let text = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help);
    let number = |name: &'static str, default: &'static str, help: &'static str| {
        text(name, help).value_name("N").default_value(default)
    };
    Command::new("proxy")
        .about("Forwards drivers' connections to a server, or a set's primary, over shared memory or RDMA")
        .after_help(AFTER_HELP)
        .arg(
            Arg::new("uri")
                .value_name("URI")
                .required(true)
                .help("Connection string of the server or set"),
        )
        .arg(number("port", "27117", "Port to listen on. With 0, a free port"))
        .arg(
            text("bind_ip", "Addresses to listen on, separated by commas")
                .value_name("ADDRESSES")
                .default_value("127.0.0.1"),
        )
        .arg(text("ipv6", "Listen on IPv6 addresses, too").action(ArgAction::SetTrue))
        .arg(
            text("unixSocketPrefix", "Directory of the Unix domain socket, mongodb-<port>.sock")
                .value_name("DIR")
                .default_value("/tmp"),
        )
        .arg(
            text("filePermissions", "Permissions of the Unix domain socket")
                .value_name("OCTAL")
                .default_value("0700"),
        )
        .arg(
            text("nounixsocket", "Do not listen on a Unix domain socket")
                .action(ArgAction::SetTrue),
        )
        .arg(number("workers", "0", "Worker threads. With 0, one per core"))
        .arg(
            number("maxConns", "10000", "Maximum number of drivers' connections")
                .visible_alias("maxIncomingConnections"),
        )
        .arg(number("maxIdleSessions", "100", "Maximum number of idle sessions with the server"))
        .arg(number(
            "maxIdleSeconds",
            "60",
            "Maximum time that a session stays idle before it is closed, in seconds",
        ))
        .arg(text("logpath", "Log file [default: standard output]").value_name("FILE"))
        .arg(
            text("logappend", "Append to the log file at startup instead of renaming the old one")
                .action(ArgAction::SetTrue),
        )
}

fn bad(message: String) -> Error {
    Error::new(ErrorCode::InvalidOptions, message)
}

fn text<'m>(matches: &'m ArgMatches, name: &str) -> &'m str {
    matches.get_one::<String>(name).map_or("", String::as_str)
}

fn number(matches: &ArgMatches, name: &str, most: u64) -> Result<u64> {
    let text = text(matches, name);
    let wrong = || bad(format!("--{name} must be a number up to {most}, not '{text}'"));
    text.parse().ok().filter(|number| *number <= most).ok_or_else(wrong)
}

fn options(matches: &ArgMatches) -> Result<ProxyOptions> {
    const COUNT_MAX: u64 = 1_000_000;
    const WORKERS_MAX: u64 = 1024;
    let upstream: Uri =
        text(matches, "uri").parse().map_err(|e: kauri_client::ClientError| bad(e.to_string()))?;
    let permissions = text(matches, "filePermissions");
    let permissions = u32::from_str_radix(permissions, 8)
        .map_err(|_| bad(format!("--filePermissions must be octal, not '{permissions}'")))?;
    let prefix = text(matches, "unixSocketPrefix").into();
    let bind_ips = text(matches, "bind_ip").split(',').map(|ip| ip.trim().to_owned());
    Ok(ProxyOptions {
        bind_ips: bind_ips.filter(|ip| !ip.is_empty()).collect(),
        port: number(matches, "port", 65_535)? as u16,
        ipv6: matches.get_flag("ipv6"),
        unix: (!matches.get_flag("nounixsocket")).then_some((prefix, permissions)),
        workers: number(matches, "workers", WORKERS_MAX)? as usize,
        connections_max: number(matches, "maxConns", COUNT_MAX)? as usize,
        upstream,
        resting_max: number(matches, "maxIdleSessions", COUNT_MAX)? as usize,
        resting_time: Duration::from_secs(number(matches, "maxIdleSeconds", COUNT_MAX)?.max(1)),
    })
}

/// Runs the proxy until it is stopped.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let options = options(matches)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let path = matches.get_one::<String>("logpath").map(String::as_str);
    let rotation = crate::logging::Rotation::Rename;
    let log = crate::logging::install_to(path, matches.get_flag("logappend"), rotation, &clock)?;
    let (stop, stopped) = mpsc::channel();
    crate::serve::handle_signals(stop, log)?;
    let attr = Attr::new()
        .num("pid", std::process::id())
        .str("server", text(matches, "uri"))
        .str("version", kauri_commands::server::VERSION);
    log::info("CONTROL", 6_300_100, CTX, "Kauri proxy starting", attr);
    if let Err(error) = kauri_transport::raise_descriptor_limit() {
        let attr = Attr::new().str("error", error.to_string());
        log::warning("CONTROL", 6200101, CTX, "Cannot raise the limit of open files", attr);
    }
    let proxy = Proxy::start(&options)?;
    // It fails only if the thread of the signals has ended; then there is no other way to stop.
    let _ = stopped.recv();
    log::info("CONTROL", 23138, CTX, "Shutting down", Attr::new().num("exitCode", 0));
    proxy.stop(STOP_GRACE);
    log::info("CONTROL", 8423404, CTX, "Shutdown complete", Attr::new());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<ProxyOptions> {
        let line = ["proxy"].iter().chain(args);
        options(&command().try_get_matches_from(line).map_err(|e| bad(e.to_string()))?)
    }

    #[test]
    fn proxy_flags_match_the_servers() {
        let options =
            parse(&["mongodb://h:1/?rdma=require", "--port", "5", "--workers", "3"]).unwrap();
        assert_eq!(options.workers, 3);
        assert_eq!((options.port, options.bind_ips), (5, vec!["127.0.0.1".to_owned()]));
        assert_eq!(options.unix, Some(("/tmp".into(), 0o700)));
        let line = ["mongodb://h", "--nounixsocket", "--maxIncomingConnections", "7", "--ipv6"];
        let options = parse(&line).unwrap();
        assert_eq!((options.port, options.connections_max, options.ipv6), (27117, 7, true));
        assert_eq!(options.unix, None);
    }

    #[test]
    fn errors_name_the_wrong_option() {
        for (args, words) in [
            (&[][..], "URI"),
            (&["http://h"], "mongodb://"),
            (&["mongodb://h/?nosuch=1"], "nosuch"),
            (&["mongodb://h", "--nosuch"], "--nosuch"),
            (&["mongodb://h", "--port", "70000"], "65535"),
            (&["mongodb://h", "--maxConns", "x"], "--maxConns"),
            (&["mongodb://h", "--workers", "1025"], "1024"),
            (&["mongodb://h", "--filePermissions", "9"], "octal"),
        ] {
            let error = parse(args).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(words), "{args:?}: {error}");
        }
    }
}
