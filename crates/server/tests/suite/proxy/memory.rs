//! What drivers cost the proxy. With KAURI_DRIVERS=5000, and `ulimit -n` for four descriptors each, as many as that.

use super::stand::{Stand, eventually, find, insert, is_found};
use kauri_client::Connection;

/// What a driver takes at rest, of all kinds, shared memory included.
const DRIVER_BYTES_MAX: usize = 36 << 10;
/// More than both rings of a session hold.
const LARGE_BYTES: usize = 600 << 10;
/// Drivers before the first look: what all have in common is there then.
const FIRST: usize = 20;

/// Resident memory of a process.
fn resident_bytes(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn a_driver_at_rest_takes_little_memory() {
    let count: usize = std::env::var("KAURI_DRIVERS").map_or(300, |n| n.parse().unwrap());
    kauri_transport::raise_descriptor_limit().unwrap();
    let stand = Stand::start("memory", &[]);
    stand.direct().command("test", &insert(1, 1000)).unwrap();
    stand.direct().command("test", &insert(2, LARGE_BYTES)).unwrap();
    let more = |drivers: &mut Vec<Connection>, until: usize| {
        while drivers.len() < until {
            let mut driver = stand.driver();
            for id in [1, 1, 1, 1, 2, 1] {
                let bytes = if id == 1 { 1000 } else { LARGE_BYTES };
                assert!(is_found(&driver.command("test", &find(id)).unwrap(), id, bytes));
            }
            // The client's own memory is not what is tried.
            driver.trim();
            drivers.push(driver);
        }
    };
    let mut drivers = Vec::new();
    more(&mut drivers, FIRST);
    let before = resident_bytes(stand.proxy.child.id());
    more(&mut drivers, count);
    let at_most = before + (count - FIRST) * DRIVER_BYTES_MAX;
    eventually("drivers rest", || resident_bytes(stand.proxy.child.id()) <= at_most);
    assert_eq!(stand.status("sharedMemory.sessions"), count as i64);
    let after = resident_bytes(stand.proxy.child.id());
    let each = after.saturating_sub(before) / (count - FIRST);
    println!("{count} drivers: {after} bytes, {each} a driver");
    // All of them are there.
    for driver in &mut drivers {
        driver.send("test", &find(1)).unwrap();
    }
    for driver in &mut drivers {
        assert!(is_found(&driver.receive().unwrap().checked().unwrap(), 1, 1000));
    }
}
