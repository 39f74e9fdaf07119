//! `kauri proxy`: drivers in, one server out over the fastest transport. Its flags are the server's where both have them.

use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::clock::SystemClock;
use kauri_base::log::{self, Attr};
use kauri_base::{Clock, Error, ErrorCode, Result};
use kauri_client::Uri;
use kauri_proxy::{Proxy, ProxyOptions};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long requests that are on their way may still take when the proxy ends.
const STOP_GRACE: Duration = Duration::from_secs(15);
const CTX: &str = "proxy";
const AFTER_HELP: &str = "\
URI is the server's: mongodb://HOST:PORT/ or mongodb://%2Ftmp%2Fmongodb-27017.sock, and options:
  sharedMemory=auto|require|off    shared memory with a server of this host and user
  rdma=auto|require|off            RDMA
  rdmaDevice=NAME                  the device for it [default: the first that is active]
  spinMicros=N                     microseconds to look for a reply before sleeping [default: 20]
  ringBytes=N                      size of the rings, a power of two from 65536 to 1048576
  connectTimeoutMS=N, socketTimeoutMS=N

Drivers connect to the proxy as to the server: mongodb://127.0.0.1:27117, or by the Unix domain socket
mongodb://%2Ftmp%2Fmongodb-27117.sock. The log's line \"Sessions with the server\" tells which transport they get.";

/// The command line's form.
pub fn command() -> Command {
    let text = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help);
    let number = |name: &'static str, default: &'static str, help: &'static str| {
        text(name, help).value_name("N").default_value(default)
    };
    Command::new("proxy")
        .about("Takes any driver's connections to a server over the fastest transport: shared memory, RDMA")
        .after_help(AFTER_HELP)
        .arg(Arg::new("uri").value_name("URI").required(true).help("the server"))
        .arg(number("port", "27117", "port to listen on; 0 for any that is free"))
        .arg(
            text("bind_ip", "addresses to listen on, separated by commas")
                .value_name("TEXT")
                .default_value("127.0.0.1"),
        )
        .arg(text("ipv6", "also listen on IPv6 addresses").action(ArgAction::SetTrue))
        .arg(
            text("unixSocketPrefix", "directory of the Unix domain socket mongodb-<port>.sock")
                .value_name("DIR")
                .default_value("/tmp"),
        )
        .arg(
            text("filePermissions", "permissions of the Unix domain socket")
                .value_name("OCTAL")
                .default_value("0700"),
        )
        .arg(
            text("nounixsocket", "do not listen on a Unix domain socket")
                .action(ArgAction::SetTrue),
        )
        .arg(
            number("maxConns", "10000", "most connections at a time; each has a thread")
                .visible_alias("maxIncomingConnections"),
        )
        .arg(number("maxIdleSessions", "100", "most sessions with the server that are kept unused"))
        .arg(number("maxIdleSeconds", "60", "how long one is kept unused"))
        .arg(text("logpath", "file for the log [default: standard output]").value_name("TEXT"))
        .arg(
            text("logappend", "append to the log file instead of moving it aside")
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
        connections_max: number(matches, "maxConns", COUNT_MAX)? as usize,
        upstream,
        resting_max: number(matches, "maxIdleSessions", COUNT_MAX)? as usize,
        resting_time: Duration::from_secs(number(matches, "maxIdleSeconds", COUNT_MAX)?.max(1)),
    })
}

/// Runs the proxy until it is told to end.
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
    fn flags_are_the_servers() {
        let options = parse(&["mongodb://h:1/?rdma=require", "--port", "5"]).unwrap();
        assert_eq!((options.port, options.bind_ips), (5, vec!["127.0.0.1".to_owned()]));
        assert_eq!(options.unix, Some(("/tmp".into(), 0o700)));
        let line = ["mongodb://h", "--nounixsocket", "--maxIncomingConnections", "7", "--ipv6"];
        let options = parse(&line).unwrap();
        assert_eq!((options.port, options.connections_max, options.ipv6), (27117, 7, true));
        assert_eq!(options.unix, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (args, words) in [
            (&[][..], "URI"),
            (&["http://h"], "mongodb://"),
            (&["mongodb://h/?nosuch=1"], "nosuch"),
            (&["mongodb://h", "--nosuch"], "--nosuch"),
            (&["mongodb://h", "--port", "70000"], "65535"),
            (&["mongodb://h", "--maxConns", "x"], "--maxConns"),
            (&["mongodb://h", "--filePermissions", "9"], "octal"),
        ] {
            let error = parse(args).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(words), "{args:?}: {error}");
        }
    }
}
