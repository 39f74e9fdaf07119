//! RDMA clients that disconnect at any step leave no resources behind.

use crate::raw::{Raw, ask_ping, ping};
use crate::rig::{Server, Way, eventually};
use crate::sessions::start;
use kauri_bson::doc;
use std::net::Shutdown;
use std::time::Instant;

pub const TESTS: &[crate::Test] =
    &[("a_disconnect_at_any_step_leaves_nothing_behind", disconnect_at_any_step)];

/// Number of connections; KAURI_TEST_CONNECTS overrides it.
const CONNECTS: usize = 300;

/// The use of a server's device by sessions: pinned bytes, queue pairs, windows, and the number of sessions. It
/// must return to its start value. `status` returns a count of the section `rdma`.
pub fn used_of(mut status: impl FnMut(&str) -> i64) -> [i64; 4] {
    [
        status("verbs.pinnedBytes") - status("pool.bytes"),
        status("verbs.queuePairsCreated") - status("verbs.queuePairsDestroyed"),
        status("verbs.windowsAllocated") - status("verbs.windowsDeallocated"),
        status("sessions"),
    ]
}

pub fn used(server: &Server) -> [i64; 4] {
    used_of(|name| server.status(&format!("rdma.{name}")))
}

/// Every second client upgrades, sends one request and disconnects properly. The others disconnect at a random
/// step of the handshake. A few of these keep their end of the queue pair.
fn disconnect_at_any_step() {
    let connects = std::env::var("KAURI_TEST_CONNECTS").ok().filter(|text| !text.is_empty());
    let connects = connects.map_or(CONNECTS, |text| text.parse().unwrap());
    let server = start("leaks", &[]);
    // Once for each worker, to allocate permanent resources.
    drop([(); 4].map(|()| server.open(Way::Rdma)));
    eventually("all resources are freed", || used(&server) == [0; 4]);
    server.until("connections.current", 1);
    let (before, descriptors) = (used(&server), server.descriptors());
    let (watched, switched) = (server.watched(), server.status("rdma.switched"));
    assert_eq!(before, [0; 4]);
    let mut kept = Vec::new();
    let (began, mut in_order) = (Instant::now(), 0);
    let mut random = 88_172_645_463_325_252u64;
    for round in 0..connects {
        if round % 2 == 0 {
            let mut connection = server.open(Way::Rdma);
            connection.command("admin", &doc! { "ping" => 1 }).unwrap();
            in_order += 1;
            continue;
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut raw = Raw::connect(&server);
        match random % 7 {
            0 => {}
            1 => drop(raw.answer(&raw.dial(), |_| {})),
            2 => kept.push(raw.offer().0),
            3 => kept.push(raw.switch()),
            4 => {
                let (mut end, probe) = raw.offer();
                end.probe(probe);
            }
            5 => ask_ping(&mut raw.switch()),
            // In the middle of a message, with the queue pair gone before the stream.
            _ => {
                let mut end = raw.switch();
                end.send(&ping()[..20], &[]);
                drop(end);
                raw.socket.shutdown(Shutdown::Both).unwrap();
            }
        }
        kept.truncate(50);
    }
    let took = began.elapsed();
    eventually("all resources are freed", || used(&server) == before);
    println!(
        "{connects} connects in {took:?}, {:.0} a second",
        connects as f64 / took.as_secs_f64()
    );
    server.until("connections.current", 1);
    eventually("the descriptors are closed", || server.descriptors() <= descriptors);
    eventually("nothing is watched", || server.watched() <= watched);
    assert!(server.status("rdma.switched") - switched >= in_order);
    assert_eq!(server.status("rdma.verbs.leaks"), 0);
    assert_eq!(
        server.status("rdma.verbs.registrations"),
        server.status("rdma.verbs.deregistrations") + 1,
        "the memory for large messages stays"
    );
    server.open(Way::Rdma).command("admin", &doc! { "ping" => 1 }).unwrap();
}
