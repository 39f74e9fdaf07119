//! What a request costs the server in system calls, as `strace` counts them.

use crate::rig::{Server, Way, find, found, insert};
use crate::sessions::start;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

pub const TESTS: &[crate::Test] = &[
    ("system_calls_of_a_request_while_both_sides_spin", while_spinning),
    ("system_calls_of_a_request_while_both_sides_sleep", asleep),
];

const REQUESTS: u64 = 400;
/// What the server does besides: its clocks, the end of the count.
const BESIDES: u64 = REQUESTS / 20;

/// The server's system calls during so many finds of 1 KB: all of them, and each by its name.
fn calls(server: &Server, way: Way, options: &str) -> (u64, BTreeMap<String, u64>) {
    let mut connection = server.connect_by(way, options).unwrap();
    connection.command("test", &insert(1, 1000)).ok();
    let mut ask = |times: u64| {
        for _ in 0..times {
            assert_eq!(found(&connection.command("test", &find(1)).unwrap()).len(), 1000);
        }
    };
    ask(50);
    let counts = server.place.join("calls");
    let pid = server.process.child.id().to_string();
    let mut strace = Command::new("strace")
        .args(["-f", "-c", "-U", "calls,name", "-p", &pid, "-o"])
        .arg(&counts)
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace");
    let mut told = String::new();
    let mut lines = BufReader::new(strace.stderr.take().unwrap());
    while !told.contains("attached") {
        assert!(lines.read_line(&mut told).unwrap() > 0, "{told}");
    }
    // Until it has attached to all threads it has said so of none.
    ask(REQUESTS);
    let ended = Command::new("kill").args(["-INT", &strace.id().to_string()]).status().unwrap();
    assert!(ended.success());
    strace.wait().unwrap();
    let table = std::fs::read_to_string(counts).unwrap();
    let rows = table.lines().filter_map(|line| {
        let (count, name) = line.trim().split_once(' ')?;
        Some((name.trim().to_owned(), count.parse::<u64>().ok()?))
    });
    let mut by_name: BTreeMap<_, _> = rows.collect();
    let total = by_name.remove("total").unwrap_or_else(|| panic!("{table}"));
    println!("{way:?}, {options}: {:.2} a request: {by_name:?}", total as f64 / REQUESTS as f64);
    (total, by_name)
}

fn while_spinning() {
    let server = start("spinning", &["--spinMicros", "10000000"]);
    let options = "spinMicros=10000000";
    let (rdma, _) = calls(&server, Way::Rdma, options);
    assert!(rdma <= REQUESTS + BESIDES, "{rdma}");
    assert!(rdma >= REQUESTS, "each post is one with Soft-RoCE: {rdma}");
    calls(&server, Way::Tcp, options);
}

fn asleep() {
    let server = start("sleeping", &[]);
    let options = "spinMicros=0";
    let (rdma, _) = calls(&server, Way::Rdma, options);
    assert!(rdma <= 4 * REQUESTS + BESIDES, "{rdma}");
    assert!(rdma >= REQUESTS, "{rdma}");
    let (tcp, _) = calls(&server, Way::Tcp, options);
    assert!(tcp >= 3 * REQUESTS, "it waits, receives and sends: {tcp}");
}
