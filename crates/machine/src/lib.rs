//! The machine of the process, its memory, and the limits of a container.

mod control_group;

pub use control_group::{ControlGroups, Memory};
use std::fs::{File, read_to_string};
use std::io::Read;
use std::path::Path;

/// The machine that the process runs on.
#[derive(Clone, Default)]
pub struct Machine {
    /// The host's name.
    pub hostname: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// Memory that the process may use (a container's limit), in bytes.
    pub memory_limit_bytes: u64,
    /// The distribution and its version.
    pub os_name: String,
    /// The kernel's version.
    pub os_version: String,
    /// Bytes of a memory page.
    pub page_bytes: u64,
    /// Files that the process may have open.
    pub open_files_max: u64,
    /// The CPU's model and features as reported by the kernel.
    pub cpu: String,
}

/// Memory of the process, in bytes.
#[derive(Clone, Copy, Default)]
pub struct ProcessMemory {
    /// In RAM.
    pub resident: u64,
    /// Mapped.
    pub mapped: u64,
}

/// Reads the machine's properties.
pub fn look() -> Machine {
    let text = |path: &str| read_to_string(path).unwrap_or_default().trim().to_owned();
    let memory_bytes = memory_bytes();
    Machine {
        hostname: text("/proc/sys/kernel/hostname"),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes,
        memory_limit_bytes: ControlGroups::of_process()
            .limit()
            .unwrap_or(memory_bytes)
            .min(memory_bytes),
        os_name: os_name(),
        os_version: text("/proc/sys/kernel/osrelease"),
        page_bytes: 4096,
        open_files_max: open_files_max(),
        cpu: field("/proc/cpuinfo", "model name"),
    }
}

/// The machine's memory: all, and what can't be had without swapping.
pub fn memory() -> Option<Memory> {
    // Both are among the first three lines.
    let mut head = [0; 256];
    let text = read_start(Path::new("/proc/meminfo"), &mut head)?;
    let bytes = |name| {
        let kib = text.lines().find_map(|line| line.strip_prefix(name))?;
        kib.trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
    };
    let (limit, available) = (bytes("MemTotal:")?, bytes("MemAvailable:")?);
    Some(Memory { limit, used: limit.saturating_sub(available) })
}

/// The beginning of a file of the kernel's, as far as it has room, without memory of its own.
pub fn read_start<'a>(path: &Path, room: &'a mut [u8]) -> Option<&'a str> {
    let count = File::open(path).ok()?.read(room).ok()?;
    let text = room.get(..count)?;
    // The cut may be within a character.
    str::from_utf8(text).or_else(|e| str::from_utf8(&text[..e.valid_up_to()])).ok()
}

/// The process's memory now.
pub fn process_memory() -> ProcessMemory {
    let statm = read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = statm.split_whitespace().filter_map(|n| n.parse::<u64>().ok());
    let mapped = pages.next().unwrap_or(0) * 4096;
    let resident = pages.next().unwrap_or(0) * 4096;
    ProcessMemory { resident, mapped }
}

fn open_files_max() -> u64 {
    let limits = read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    line.split_whitespace().filter_map(|word| word.parse().ok()).next().unwrap_or(0)
}

fn memory_bytes() -> u64 {
    let total = field("/proc/meminfo", "MemTotal");
    total.trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

fn os_name() -> String {
    let release = read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_owned()
}

/// The first value of this name in a file of `name: value` lines.
fn field(path: &str, name: &str) -> String {
    let text = read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_default()
}
