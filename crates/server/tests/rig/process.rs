//! A `kauri serve` or `kauri proxy` process, stopped when dropped, and its log.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Waits until the condition holds, at most a minute.
#[track_caller]
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    within(Duration::from_secs(60), Duration::from_millis(1), what, is_so);
}

/// Polls the condition, with a pause that leaves the processor to others.
#[track_caller]
pub fn within(patience: Duration, pause: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let ends = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < ends, "not within {patience:?}: {what}");
        std::thread::sleep(pause);
    }
}

/// See the module's head.
pub struct Process {
    pub child: Child,
    pub log: Arc<Mutex<String>>,
}

impl Process {
    /// Starts the process and waits until it listens.
    pub fn start(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut told = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !told.contains("Waiting for connections") {
            assert!(lines.read_line(&mut told).unwrap() > 0, "{told}");
        }
        let log = Arc::new(Mutex::new(told));
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
                kept.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Process { child, log }
    }

    pub fn told(&self, words: &str) -> usize {
        self.log.lock().unwrap().matches(words).count()
    }

    /// Prints the end of the log, which may explain a failed test.
    pub fn show_log(&self) {
        const LINES: usize = 60;
        let log = self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let lines: Vec<&str> = log.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(LINES)).for_each(|line| println!("{line}"));
    }

    /// Waits until the log has these words this many times.
    pub fn tells(&self, words: &str, times: usize) {
        eventually(words, || self.told(words) >= times);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
