//! Memory per connection. The tests have their own process and run one at a time, because they measure the
//! process's memory.

mod common;

use common::{Client, Server, op};
use kauri_transport::TransportLayer;
use kauri_transport::unix::{UnixOptions, UnixTransport};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Address space and resident memory, in bytes.
fn memory() -> [usize; 2] {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let mut pages = statm.split(' ').map(|pages| pages.parse::<usize>().unwrap());
    [pages.next().unwrap() * 4096, pages.next().unwrap() * 4096]
}

/// The growth of both since `before`.
fn growth(before: [usize; 2]) -> [usize; 2] {
    let now = memory();
    [now[0].saturating_sub(before[0]), now[1].saturating_sub(before[1])]
}

#[test]
fn idle_connections_cost_little_memory() {
    let _alone = alone();
    const COUNT: usize = 2_000;
    const BYTES_EACH_MAX: usize = 4 * 1024;
    assert!(kauri_transport::raise_descriptor_limit().unwrap() > 2 * COUNT as u64 + 500);
    let server = Server::start();
    // All allocations of the first requests are made before the measurement.
    let mut warm: Vec<_> = (0..50).map(|_| server.connect()).collect();
    warm.iter_mut().for_each(|client| assert_eq!(client.ask(b"l warm"), b"l warm"));
    let before = memory();
    let mut clients: Vec<_> = (0..COUNT).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(b"l hello"), b"l hello");
        client.ask(b"e hello again");
    }
    assert_eq!(server.manager.stats().connections().current, COUNT as u64 + 50);
    let [_, resident] = growth(before).map(|bytes| bytes / COUNT);
    assert!(resident <= BYTES_EACH_MAX, "{resident} bytes for each idle connection");
}

#[test]
fn requests_that_wait_cost_little_memory_too() {
    let _alone = alone();
    const COUNT: usize = 1_000;
    const BYTES_EACH_MAX: usize = 16 * 1024;
    assert!(kauri_transport::raise_descriptor_limit().unwrap() > 2 * COUNT as u64 + 500);
    let server = Server::start();
    let mut clients: Vec<_> = (0..COUNT).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.ask(b"e"), b"e"));
    let before = memory();
    clients.iter_mut().for_each(|client| client.send(&[op::WAIT_FOR_END]));
    server.seen.wait_for("waiting", COUNT);
    // Address space too: used buffers would be counted in full.
    let each = growth(before).map(|bytes| bytes / COUNT);
    assert!(each[0] <= BYTES_EACH_MAX, "{each:?} bytes for each waiting request");
    assert!(each[1] <= BYTES_EACH_MAX, "{each:?} bytes for each waiting request");
}

#[test]
fn the_claimed_length_of_a_message_allocates_nothing() {
    let _alone = alone();
    let server = Server::start();
    let mut clients: Vec<_> = (0..200).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.ask(b"e"), b"e"));
    let before = memory();
    for client in &mut clients {
        client.stream.write_all(&48_000_000i32.to_le_bytes()).unwrap();
        client.stream.write_all(&[0; 2000]).unwrap();
    }
    let mut last = server.connect();
    last.ask(b"l");
    let grown = growth(before);
    assert!(grown[0] < 1 << 30, "{grown:?} bytes for 200 beginnings of large messages");
    assert!(grown[1] < 200 * 64 * 1024, "{grown:?} bytes for 200 beginnings of large messages");
}

#[test]
fn connections_that_come_and_go_leave_nothing() {
    let _alone = alone();
    let server = Server::with(1, 100);
    let directory = std::env::temp_dir().join(format!("kauri-churn-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path_prefix = directory.clone();
    let mut unix = UnixTransport::new(UnixOptions { path_prefix, port: 1, permissions: 0o600 });
    unix.setup().unwrap();
    unix.start(&server.manager).unwrap();
    let path = unix.local_addresses().concat();
    let churn = |count: usize| {
        for _ in 0..count {
            let mut client = Client { stream: UnixStream::connect(&path).unwrap() };
            assert_eq!(client.ask(b"l"), b"l");
        }
    };
    churn(1_000);
    let before = memory();
    churn(15_000);
    let [_, resident] = growth(before);
    assert!(resident < 1 << 20, "{resident} bytes are left of 15,000 connections");
    unix.shutdown();
    std::fs::remove_dir_all(&directory).unwrap();
}
