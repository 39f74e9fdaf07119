//! The operating system's counts of a server's reads: of the block device, and of the process.

use super::Target;
use std::io;
use std::path::Path;

/// Bytes of a sector in the kernel's figures, whatever the device's are.
const SECTOR_BYTES: i64 = 512;

/// A block device, by the name that it has in `/sys/class/block`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device(pub String);

/// What a device has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceReads {
    /// Read requests that it has completed.
    pub reads: i64,
    /// Their bytes.
    pub bytes: i64,
}

impl DeviceReads {
    /// The figures of a target's device, if one is named: what it read for the target's control group
    /// if that counts, else for everybody.
    pub fn of(target: &Target) -> io::Result<Option<DeviceReads>> {
        let Some(Device(name)) = &target.device else { return Ok(None) };
        let of_device = |file: &str| {
            let file = Path::new("/sys/class/block").join(name).join(file);
            std::fs::read_to_string(&file)
                .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))
        };
        let number = of_device("dev")?;
        let of_group = target.cgroups.iter().find_map(|group| {
            let read = |file| std::fs::read_to_string(group.join(file)).ok();
            let counts =
                read("blkio.throttle.io_serviced").zip(read("blkio.throttle.io_service_bytes"));
            let counted = counts.map(|(reads, bytes)| parse_blkio(number.trim(), &reads, &bytes));
            counted.or_else(|| Some(parse_io_stat(number.trim(), &read("io.stat")?)))
        });
        match of_group {
            Some(counted) => Ok(Some(counted)),
            None => Ok(parse(&of_device("stat")?)),
        }
    }

    /// What was read in two times.
    pub fn plus(self, other: DeviceReads) -> DeviceReads {
        DeviceReads { reads: self.reads + other.reads, bytes: self.bytes + other.bytes }
    }

    /// What was read after `before`.
    pub fn since(self, before: DeviceReads) -> DeviceReads {
        DeviceReads { reads: self.reads - before.reads, bytes: self.bytes - before.bytes }
    }
}

fn parse(stat: &str) -> Option<DeviceReads> {
    // Completed, merged, sectors, …
    let fields: Vec<i64> = stat.split_whitespace().map_while(|n| n.parse().ok()).collect();
    let (reads, sectors) = (*fields.first()?, *fields.get(2)?);
    Some(DeviceReads { reads, bytes: sectors * SECTOR_BYTES })
}

/// What a control group of version 1 has read of a device; nothing if it has not used it.
fn parse_blkio(device: &str, reads: &str, bytes: &str) -> DeviceReads {
    let of = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(" Read "));
        line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    };
    DeviceReads { reads: of(reads), bytes: of(bytes) }
}

/// The same of a control group of version 2.
fn parse_io_stat(device: &str, stat: &str) -> DeviceReads {
    let line = stat.lines().find_map(|line| line.strip_prefix(device)).unwrap_or("");
    let of = |name| {
        let field = line.split_whitespace().find_map(|field| field.strip_prefix(name));
        field.and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    DeviceReads { reads: of("rios="), bytes: of("rbytes=") }
}

/// Bytes that a target's process has had read from a device.
pub fn process_reads(target: &Target) -> Option<i64> {
    let text = std::fs::read_to_string(format!("/proc/{}/io", target.pid?)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_device_are_read() {
        let stat = "  100  2  3200  40  7 0 56 0 0 12 13 0 0 0 0 0 0\n";
        assert_eq!(parse(stat), Some(DeviceReads { reads: 100, bytes: 3200 * 512 }));
        assert_eq!(parse("100 2"), None);
    }

    #[test]
    fn figures_of_a_control_group_are_read() {
        let of = |reads, bytes| DeviceReads { reads, bytes };
        let lines = |n| format!("254:1 Read 9\n254:0 Read {n}\n254:0 Write 5\nTotal 5\n");
        assert_eq!(parse_blkio("254:0", &lines(7), &lines(4096)), of(7, 4096));
        assert_eq!(parse_blkio("254:0", "Total 0\n", "Total 0\n"), of(0, 0));
        let stat = "8:0 rbytes=1 rios=2\n254:0 rbytes=4096 wbytes=3 rios=7 wios=4\n";
        assert_eq!(parse_io_stat("254:0", stat), of(7, 4096));
        assert_eq!(parse_io_stat("254:0", ""), of(0, 0));
    }
}
