//! The file system of a directory.

use std::io;
use std::path::{Path, PathBuf};

/// A mounted file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// `ext4`, `tmpfs`, …
    pub kind: String,
    /// The device, or what stands for it.
    pub source: String,
}

/// The file system of a directory that is there.
pub fn of(directory: &Path) -> io::Result<FileSystem> {
    let path = directory.canonicalize()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let none = || io::Error::other(format!("{} lies on no mounted file system", path.display()));
    find(&mounts, &path).ok_or_else(none)
}

/// The last mount on the longest prefix of the path.
fn find(mounts: &str, path: &Path) -> Option<FileSystem> {
    let mut best: Option<(usize, FileSystem)> = None;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let point = PathBuf::from(left.split(' ').nth(4)?.replace("\\040", " "));
        let depth = point.components().count();
        let deeper = best.as_ref().is_none_or(|(known, _)| depth >= *known);
        let mut words = right.split(' ');
        if deeper && path.starts_with(&point) {
            let (kind, source) = (words.next()?.to_owned(), words.next()?.to_owned());
            best = Some((depth, FileSystem { kind, source }));
        }
    }
    best.map(|(_, found)| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_and_last_mount_counts() {
        let mounts = "\
            22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            23 22 0:21 / /dev rw - devtmpfs dev rw\n\
            24 23 0:22 / /dev/shm rw,nosuid - tmpfs shm rw\n\
            25 22 0:30 / /mnt/a\\040b rw - xfs /dev/vdb rw\n\
            26 25 0:31 / /mnt/a\\040b rw - btrfs /dev/vdc rw\n";
        let kind = |path: &str| find(mounts, Path::new(path)).map(|found| found.kind);
        assert_eq!(kind("/tmp/x").as_deref(), Some("ext4"));
        assert_eq!(kind("/dev/shm/db").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/dev/shmem").as_deref(), Some("devtmpfs"));
        assert_eq!(kind("/mnt/a b/c").as_deref(), Some("btrfs"));
        assert_eq!(find(mounts, Path::new("/")).unwrap().source, "/dev/vda");
        assert!(of(&std::env::temp_dir()).is_ok());
    }
}
