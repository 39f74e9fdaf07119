//! A process without free descriptors. The test has its own process, because the limit is the process's.

mod common;

use common::Server;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Changes this process's limit as soon as it receives a byte. It starts beforehand, because a process can
/// hardly be started without free descriptors.
fn limiter(count: usize) -> Child {
    let command = format!("read go; prlimit --pid={} --nofile={count}:", std::process::id());
    Command::new("sh").args(["-c", &command]).stdin(Stdio::piped()).spawn().unwrap()
}

fn run(mut limiter: Child) {
    limiter.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    assert!(limiter.wait().unwrap().success());
}

fn cpu_ticks(stat: &File) -> u64 {
    let mut text = [0; 1024];
    let count = stat.read_at(&mut text, 0).unwrap();
    let text = std::str::from_utf8(&text[..count]).unwrap();
    let fields: Vec<_> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_server_without_descriptors_serves_on_and_recovers() {
    let server = Server::start();
    let mut known = server.connect();
    assert_eq!(known.ask(b"e"), b"e");
    let stat = File::open("/proc/self/stat").unwrap();
    let more = limiter(1000);
    // The limit bounds descriptor numbers, and a new descriptor gets the lowest free one. The client's end
    // takes that one, and the server has none for its end.
    let next = File::open("/dev/null").unwrap().as_raw_fd();
    let less = limiter(next as usize + 1);
    run(less);
    let mut waiting = server.connect();
    let (start, ticks) = (Instant::now(), cpu_ticks(&stat));
    while start.elapsed() < Duration::from_millis(500) {
        assert_eq!(known.ask(b"l still served"), b"l still served");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let spent = cpu_ticks(&stat) - ticks;
    assert!(spent < 25, "{spent} of 50 ticks: the accept loop spins");
    assert_eq!(server.manager.stats().connections().total_created, 1);
    run(more);
    assert_eq!(waiting.ask(b"e at last"), b"e at last");
}
