//! CPU time and memory of a process, from /proc.

use std::time::Duration;

/// Linux counts user and system time in hundredths of a second, whatever its own tick is.
const TICK: Duration = Duration::from_millis(10);
/// Of user time in /proc/PID/stat, counted from behind the command's name.
const USER_TIME_FIELD: usize = 11;

/// User and system time that a process has used, its ended threads included. `None` if there is no
/// such process.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(USER_TIME_FIELD);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * (user + system))
}

/// Time that a process's threads have run, to the scheduler's last look at them: for spans in which hundredths
/// of a second are too coarse and no thread ends. As [`cpu_time`] where the kernel does not tell.
pub fn busy_time(pid: u32) -> Option<Duration> {
    let of_thread = |thread: std::fs::DirEntry| -> Option<u64> {
        let told = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        told.split_whitespace().next()?.parse().ok()
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let busy_ns: u64 = threads.filter_map(Result::ok).filter_map(of_thread).sum();
    if busy_ns > 0 { Some(Duration::from_nanos(busy_ns)) } else { cpu_time(pid) }
}

/// Memory of a process that is really there, in bytes.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_both() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        let mut sum = 0u64;
        while cpu_time(pid).unwrap() < before + 2 * TICK {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(busy_time(pid).unwrap() >= TICK);
        assert_eq!(busy_time(u32::MAX), None);
        assert!(resident_bytes(pid).unwrap() > 100_000);
        assert_eq!(cpu_time(u32::MAX), None);
    }
}
