//! The log lines that operators and tools search for. The test has its own process, because the log sink is the
//! process's.

mod common;

use common::{PATIENCE, Server, op};
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex};

/// All lines so far.
#[derive(Default)]
struct Lines {
    lines: Mutex<Vec<String>>,
    changed: Condvar,
}

impl Lines {
    /// Waits for the next unread line with this id and returns it.
    fn take(&self, id: u32) -> String {
        let wanted = format!("\"id\":{id},");
        let mut lines = self.lines.lock().unwrap();
        loop {
            if let Some(at) = lines.iter().position(|line| line.contains(&wanted)) {
                return lines.remove(at);
            }
            let (next, timeout) = self.changed.wait_timeout(lines, PATIENCE).unwrap();
            assert!(!timeout.timed_out(), "no line {id} in {next:#?}");
            lines = next;
        }
    }
}

fn assert_has(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[test]
fn connections_leave_mongodbs_lines() {
    let lines = Arc::new(Lines::default());
    let sink = Arc::clone(&lines);
    kauri_base::log::install(
        Box::new(move |_, line| {
            sink.lines.lock().unwrap().push(line.to_owned());
            sink.changed.notify_all();
        }),
        Box::new(|| 0),
    );
    let server = Server::with(1, 1);
    let address = server.address().to_string();
    assert_has(&lines.take(23015), &["\"Listening on\"", &address, "\"ctx\":\"listener\""]);

    let mut client = server.connect();
    client.ask(b"e");
    let remote = client.stream.local_addr().unwrap().to_string();
    assert_has(
        &lines.take(22943),
        &["\"Connection accepted\"", &remote, "\"connectionId\":1", "\"connectionCount\":1"],
    );
    server.connect().read_to_end();
    assert_has(
        &lines.take(22942),
        &[
            "Connection refused because there are too many open connections",
            "\"connectionCount\":1",
        ],
    );
    drop(client);
    assert_has(
        &lines.take(22944),
        &["\"Connection ended\"", &remote, "\"ctx\":\"conn1\"", "\"connectionCount\":0"],
    );

    let mut client = server.connect();
    client.stream.write_all(&[3, 0, 0, 0]).unwrap();
    client.read_to_end();
    assert_has(&lines.take(4615638), &["\"msgLen\":3", "\"min\":16", "\"max\":48000000"]);
    lines.take(22944);

    let mut client = server.connect();
    client.stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").unwrap();
    client.read_to_end();
    assert_has(&lines.take(22988), &["Client sent an HTTP request", "\"connectionId\":3"]);
    lines.take(22944);

    let mut client = server.connect();
    client.send(&[op::PANIC]);
    client.read_to_end();
    assert_has(&lines.take(7100001), &["\"s\":\"E\"", "\"ctx\":\"conn4\"", "asked to"]);
    lines.take(22944);

    let mut client = server.connect();
    client.send(&[op::BAD_LENGTH]);
    client.read_to_end();
    assert_has(&lines.take(7100003), &["\"s\":\"E\"", "\"ctx\":\"conn5\""]);
    lines.take(22944);
    kauri_base::log::set_quiet(true);
    let mut client = server.connect();
    client.ask(b"e");
    kauri_base::log::set_quiet(false);
    drop(client);
    assert_has(&lines.take(22944), &["\"ctx\":\"conn6\""]);
    let all = lines.lines.lock().unwrap();
    let accepted: Vec<_> = all.iter().filter(|line| line.contains("\"id\":22943,")).collect();
    assert!(accepted.iter().any(|line| line.contains("\"connectionId\":5")), "{accepted:?}");
    assert!(!accepted.iter().any(|line| line.contains("\"connectionId\":6")), "{accepted:?}");
}
