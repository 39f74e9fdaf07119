//! `dropConnections`: closes connections to other servers. This server opens none, so the command only checks its
//! arguments.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{Result, bail};

/// See the module's head.
pub const COMMAND: Command =
    Command { ..Command::admin("dropConnections", "closes connections to other servers", run) };

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("dropConnections");
        let mut given = false;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "hostAndPort" => {
                    let Some(hosts) = args.given(elem, Args::array)? else { continue };
                    given = true;
                    for host in hosts {
                        if let Some(host) = args.given(host, Args::string)? {
                            check(&host)?;
                        }
                    }
                }
                _ => args.other(elem)?,
            }
        }
        if !given {
            return Err(args.missing("hostAndPort"));
        }
        Ok(())
    })
}

/// Fails unless it is a host, or a host and a port.
fn check(address: &str) -> Result<()> {
    // An IPv6 address is in brackets if a port follows.
    let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, rest.strip_prefix(':').or(Some(""))),
        None => match address.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => {
                bail!(
                    FailedToParse,
                    "More than one ':' detected. If this is an ipv6 address, it needs to be surrounded by '[' and ']'; \
                     {address}"
                )
            }
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    if host.is_empty() {
        bail!(FailedToParse, "Empty host component parsing HostAndPort from \"{address}\"");
    }
    match port.map(str::parse::<u16>) {
        None | Some(Ok(1..)) => Ok(()),
        _ => bail!(FailedToParse, "Bad port number parsing HostAndPort from \"{address}\""),
    }
}
