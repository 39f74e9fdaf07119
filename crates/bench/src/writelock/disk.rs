//! What the operating system counts of a server's reads: of the block device, and of the process.

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
    /// The figures of a target's device, if one is named.
    pub fn of(target: &Target) -> io::Result<Option<DeviceReads>> {
        let Some(Device(name)) = &target.device else { return Ok(None) };
        let file = Path::new("/sys/class/block").join(name).join("stat");
        let text = std::fs::read_to_string(&file)
            .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
        Ok(parse(&text))
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
}
