//! What the machine and the process are, as the kernel tells it.

use kauri_commands::server::{Machine, ProcessMemory};
use std::fs::read_to_string;

/// The machine.
pub fn machine() -> Machine {
    let memory_bytes = memory_total();
    Machine {
        hostname: line("/proc/sys/kernel/hostname"),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes,
        memory_limit_bytes: memory_limit().unwrap_or(memory_bytes).min(memory_bytes),
        os_name: os_name(),
        os_version: format!("Kernel {}", line("/proc/sys/kernel/osrelease")),
        page_bytes: PAGE_BYTES,
        cpu: cpu_model(),
    }
}

/// The unit of `/proc/self/statm` on the platforms that Kauri runs on.
const PAGE_BYTES: u64 = 4096;

/// The memory that the process has.
pub fn process_memory() -> ProcessMemory {
    let text = read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
    let mapped = pages.next().unwrap_or(0) * PAGE_BYTES;
    ProcessMemory { resident: pages.next().unwrap_or(0) * PAGE_BYTES, mapped }
}

fn line(path: &str) -> String {
    read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn field(text: &str, name: &str, separator: char) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(separator)?;
        (key.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
    })
}

fn memory_total() -> u64 {
    let text = read_to_string("/proc/meminfo").unwrap_or_default();
    let value = field(&text, "MemTotal", ':').unwrap_or_default();
    let kilobytes = value.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// A control group's limit, if it has one.
fn memory_limit() -> Option<u64> {
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| line(path).parse().ok())
}

fn os_name() -> String {
    let text = read_to_string("/etc/os-release").unwrap_or_default();
    field(&text, "PRETTY_NAME", '=').unwrap_or_else(|| std::env::consts::OS.to_owned())
}

fn cpu_model() -> String {
    let text = read_to_string("/proc/cpuinfo").unwrap_or_default();
    field(&text, "model name", ':').unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}
