//! This server as a member of a replica set: its handle, its name among a configuration's hosts, and the sign that
//! there are commits for the set.

use crate::options::Options;
use kauri_commands::server::HostProbe;
use kauri_member::Member;
use kauri_storage::StorageEngine;
use std::net::{ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// To be called at the end of a worker's tick: tells the member of new commits.
pub fn commit_watch(
    member: Arc<Member>,
    engine: Arc<dyn StorageEngine>,
) -> impl Fn() + Send + Sync {
    let told = AtomicU64::new(0);
    move || {
        let now = engine.visible().0;
        if told.fetch_max(now, Ordering::Relaxed) < now {
            member.note_commits();
        }
    }
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
}
