//! What connections cost in memory. Alone in its file, and one test at a time, since what is measured
//! is the whole process's.

mod common;

use common::{Server, op};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn idle_connections_cost_little_memory() {
    let _alone = alone();
    const COUNT: usize = 2_000;
    const BYTES_EACH_MAX: usize = 4 * 1024;
    assert!(kauri_transport::raise_descriptor_limit().unwrap() > 2 * COUNT as u64 + 500);
    let server = Server::start();
    // Everything that the first requests need is there before it is measured.
    let mut warm: Vec<_> = (0..50).map(|_| server.connect()).collect();
    warm.iter_mut().for_each(|client| assert_eq!(client.ask(b"l warm"), b"l warm"));
    let before = resident_bytes();
    let mut clients: Vec<_> = (0..COUNT).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(b"l hello"), b"l hello");
        client.ask(b"e hello again");
    }
    assert_eq!(server.manager.stats().connections().current, COUNT as u64 + 50);
    let each = resident_bytes().saturating_sub(before) / COUNT;
    assert!(each <= BYTES_EACH_MAX, "{each} bytes for each idle connection");
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
    let before = resident_bytes();
    clients.iter_mut().for_each(|client| client.send(&[op::WAIT_FOR_END]));
    server.seen.wait_for("waiting", COUNT);
    let each = resident_bytes().saturating_sub(before) / COUNT;
    assert!(each <= BYTES_EACH_MAX, "{each} bytes for each waiting request");
}

#[test]
fn the_claimed_length_of_a_message_allocates_nothing() {
    let _alone = alone();
    let server = Server::start();
    let mut clients: Vec<_> = (0..200).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.ask(b"e"), b"e"));
    let before = resident_bytes();
    for client in &mut clients {
        client.stream.write_all(&48_000_000i32.to_le_bytes()).unwrap();
        client.stream.write_all(&[0; 2000]).unwrap();
    }
    let mut last = server.connect();
    last.ask(b"l");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 200 * 64 * 1024, "{grown} bytes for 200 beginnings of large messages");
}
