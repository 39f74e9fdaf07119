//! Figures of the machine from the kernel, under the names of MongoDB's diagnostic data.
//!
//! Unreadable figures are left out.

use kauri_bson::DocWriter;
use std::fs::read_to_string;
use std::path::Path;

/// Milliseconds of the unit of times in `/proc/stat` (`USER_HZ`, 100 on Linux).
const TICK_MS: i64 = 10;
const CPU: [&str; 10] = [
    "user_ms",
    "nice_ms",
    "system_ms",
    "idle_ms",
    "iowait_ms",
    "irq_ms",
    "softirq_ms",
    "steal_ms",
    "guest_ms",
    "guest_nice_ms",
];
const COUNTS: [&str; 5] = ["ctxt", "btime", "processes", "procs_running", "procs_blocked"];
const VMSTAT: [&str; 8] =
    ["pgpgin", "pgpgout", "pswpin", "pswpout", "pgfault", "pgmajfault", "nr_dirty", "nr_writeback"];
const DISK: [&str; 11] = [
    "reads",
    "reads_merged",
    "read_sectors",
    "read_time_ms",
    "writes",
    "writes_merged",
    "write_sectors",
    "write_time_ms",
    "io_in_progress",
    "io_time_ms",
    "io_queued_ms",
];

/// Writes all of them.
pub fn write(out: &mut DocWriter<'_>) {
    let text = |path: &str| read_to_string(path).unwrap_or_default();
    write_cpu(&text("/proc/stat"), &mut out.document("cpu"));
    write_memory(&text("/proc/meminfo"), &mut out.document("memory"));
    write_vmstat(&text("/proc/vmstat"), &mut out.document("vmstat"));
    let is_disk = |name: &str| Path::new("/sys/block").join(name).join("device").exists();
    write_disks(&text("/proc/diskstats"), is_disk, &mut out.document("disks"));
}

fn numbers(text: &str) -> impl Iterator<Item = i64> {
    text.split_whitespace().map_while(|word| word.parse().ok())
}

fn write_cpu(stat: &str, out: &mut DocWriter<'_>) {
    let is_core = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    out.put("num_cpus", stat.lines().filter(is_core).count() as i32);
    for line in stat.lines() {
        let Some((name, values)) = line.split_once(' ') else { continue };
        if name == "cpu" {
            for (name, ticks) in CPU.iter().zip(numbers(values)) {
                out.put(name, ticks.saturating_mul(TICK_MS));
            }
        } else if COUNTS.contains(&name)
            && let Some(count) = numbers(values).next()
        {
            out.put(name, count);
        }
    }
}

fn write_memory(meminfo: &str, out: &mut DocWriter<'_>) {
    for line in meminfo.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        if let Some(kib) = value.strip_suffix(" kB").and_then(|value| value.trim().parse().ok()) {
            let kib: i64 = kib;
            out.put(&format!("{name}_kb"), kib);
        }
    }
}

fn write_vmstat(vmstat: &str, out: &mut DocWriter<'_>) {
    for line in vmstat.lines() {
        if let Some((name, value)) = line.split_once(' ')
            && VMSTAT.contains(&name)
            && let Some(count) = numbers(value).next()
        {
            out.put(name, count);
        }
    }
}

fn write_disks(diskstats: &str, is_disk: impl Fn(&str) -> bool, out: &mut DocWriter<'_>) {
    for line in diskstats.lines() {
        // Two numbers of the device, its name, its counts.
        let mut words = line.split_whitespace().skip(2);
        let Some(name) = words.next().filter(|name| is_disk(name)) else { continue };
        let mut disk = out.document(name);
        for (name, count) in DISK.iter().zip(words.map_while(|word| word.parse::<i64>().ok())) {
            disk.put(name, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocBuf, doc};

    #[test]
    fn cpu_times_are_in_milliseconds() {
        let stat = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2\ncpu1 0 0\nintr 5 6\nctxt 11\nbtime 12\n\
                    processes 13\nprocs_running 14\nprocs_blocked 15\n";
        let found = DocBuf::build(|out| write_cpu(stat, out));
        let expected = doc! {
            "num_cpus" => 2, "user_ms" => 10i64, "nice_ms" => 20i64, "system_ms" => 30i64, "idle_ms" => 40i64,
            "iowait_ms" => 50i64, "irq_ms" => 60i64, "softirq_ms" => 70i64, "steal_ms" => 80i64,
            "guest_ms" => 90i64, "guest_nice_ms" => 100i64, "ctxt" => 11i64, "btime" => 12i64,
            "processes" => 13i64, "procs_running" => 14i64, "procs_blocked" => 15i64,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn memory_paging_and_disks_have_their_names() {
        let memory = "MemTotal:        100 kB\nHugePages_Total:   0\nActive(anon):      7 kB\n";
        let found = DocBuf::build(|out| write_memory(memory, out));
        assert_eq!(found, doc! { "MemTotal_kb" => 100i64, "Active(anon)_kb" => 7i64 });
        let found = DocBuf::build(|out| write_vmstat("nr_free 1\npgfault 2\npgmajfault 3\n", out));
        assert_eq!(found, doc! { "pgfault" => 2i64, "pgmajfault" => 3i64 });
        let disks =
            "   8  0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13\n   8  1 sda1 1 2 3 4 5 6 7 8 9 10 11\n";
        let found = DocBuf::build(|out| write_disks(disks, |name| name == "sda", out));
        let sda = doc! {
            "reads" => 1i64, "reads_merged" => 2i64, "read_sectors" => 3i64, "read_time_ms" => 4i64,
            "writes" => 5i64, "writes_merged" => 6i64, "write_sectors" => 7i64, "write_time_ms" => 8i64,
            "io_in_progress" => 9i64, "io_time_ms" => 10i64, "io_queued_ms" => 11i64,
        };
        assert_eq!(found, doc! { "sda" => sda });
    }

    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let found = DocBuf::build(write);
        let count = |section: &str, name: &str| {
            let section = found.as_doc().value(section).into_owned();
            section.as_document().unwrap().value(name).to_i64_saturating().unwrap_or(0)
        };
        assert!(count("cpu", "num_cpus") > 0 && count("cpu", "user_ms") > 0);
        assert!(count("memory", "MemTotal_kb") > 0 && count("vmstat", "pgfault") > 0);
    }
}
