//! System calls of the server per request, counted by `strace`.

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
/// Maximum number of other calls: clocks, the end of the count.
const BESIDES: u64 = REQUESTS / 10;

/// The serving threads. Other threads make calls by the clock only.
fn workers(server: &Server) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.process.child.id())).unwrap();
    let threads = threads.map(|thread| thread.unwrap().path());
    let serves = |thread: &std::path::PathBuf| {
        std::fs::read_to_string(thread.join("comm")).unwrap().starts_with("worker")
    };
    let ids: Vec<_> = threads
        .filter(serves)
        .map(|thread| thread.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 2);
    ids
}

/// The workers' system calls during this many finds of 1 KB: their sum, and each by name.
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
    let mut strace = Command::new("strace")
        .args(["-c", "-U", "calls,name"])
        .args(workers(server).iter().map(|id| format!("--attach={id}")))
        .arg("-o")
        .arg(&counts)
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace");
    let mut told = String::new();
    let mut lines = BufReader::new(strace.stderr.take().unwrap());
    while told.matches("attached").count() < workers(server).len() {
        assert!(lines.read_line(&mut told).unwrap() > 0, "{told}");
    }
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

/// Number of ring polls per epoll call of a spinning worker.
const LOOKS_AN_EPOLL: i64 = 32;

fn while_spinning() {
    let server = start("spinning", &["--spinMicros", "10000000"]);
    let options = "spinMicros=10000000";
    let spins =
        || (0..2).map(|w| server.status(&format!("transportWorkers.{w}.spins"))).sum::<i64>();
    let before = spins();
    let (rdma, by_name) = calls(&server, Way::Rdma, options);
    let looks = by_name.get("epoll_wait").copied().unwrap_or(0);
    let spun = spins() - before;
    println!("of these {looks} looks into epoll, in {spun} looks into rings");
    assert!(looks as i64 <= spun / LOOKS_AN_EPOLL + BESIDES as i64, "{looks} of {spun}");
    assert!(rdma - looks <= REQUESTS + BESIDES, "{by_name:?}");
    assert!(rdma - looks >= REQUESTS, "each post is one with Soft-RoCE: {by_name:?}");
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
