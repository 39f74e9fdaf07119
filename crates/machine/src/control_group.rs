//! The control groups that limit the process's memory: those of the process and their parents, of version 1 or 2,
//! as far as they are visible. In a container the outermost visible group is its own.
//!
//! This module must not know how the limits are used.

use crate::read_start;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// From here on a number stands for no limit (version 1).
const NO_LIMIT: u64 = 1 << 60;

/// Where a version's figures are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Files {
    limits: &'static [&'static str],
    used: &'static str,
    /// Fields of `memory.stat`: what the kernel takes back when it needs memory.
    reclaimable: [&'static str; 2],
}

const VERSION_1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    reclaimable: ["total_active_file", "total_inactive_file"],
};
const VERSION_2: Files = Files {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    reclaimable: ["active_file", "inactive_file"],
};

/// The memory limit of a group, and its use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Most bytes.
    pub limit: u64,
    /// Bytes that the kernel can't take back by itself.
    pub used: u64,
}

impl Memory {
    /// The unused part.
    pub fn left(self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlGroups {
    groups: Vec<(PathBuf, Files)>,
}

impl ControlGroups {
    /// The groups of this process.
    pub fn of_process() -> ControlGroups {
        let text = |path: &str| read_to_string(path).unwrap_or_default();
        ControlGroups::find(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"))
    }

    /// Those that the two files of `/proc` tell of.
    fn find(cgroup: &str, mounts: &str) -> ControlGroups {
        let mut groups = Vec::new();
        for line in cgroup.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let files = match controllers {
                "" => VERSION_2,
                _ if controllers.split(',').any(|name| name == "memory") => VERSION_1,
                _ => continue,
            };
            let Some((root, top)) = mounts.lines().find_map(|line| mounted(line, files)) else {
                continue;
            };
            let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
            // Of one that lies elsewhere nothing is seen but the top.
            let parts = below.components().take_while(|part| part.as_os_str() != "..");
            let mut own = PathBuf::from(top);
            own.extend(parts);
            let up = own.ancestors().take_while(|group| group.starts_with(top));
            groups.extend(up.map(|group| (group.to_owned(), files)));
        }
        ControlGroups { groups }
    }

    /// The innermost, and its file of the limit.
    pub fn own(&self) -> Option<(&Path, &'static str)> {
        let (group, files) = self.groups.first()?;
        Some((group, files.limits.first()?))
    }

    /// The lowest limit, if there is any.
    pub fn limit(&self) -> Option<u64> {
        self.groups.iter().filter_map(|(group, files)| limit(group, files)).min()
    }

    /// The memory of the group with the least left.
    pub fn memory(&self) -> Option<Memory> {
        let memories = self.groups.iter().filter_map(|(group, files)| {
            Some(Memory { limit: limit(group, files)?, used: used(group, files)? })
        });
        memories.min_by_key(|memory| memory.left())
    }
}

/// The root and the place of this mount, if it is where the files are.
fn mounted(line: &str, files: Files) -> Option<(&str, &str)> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (root, top) = (place.next()?, place.next()?);
    let mut kind = kind.split(' ');
    let (name, options) = (kind.next()?, kind.nth(1)?);
    let is_it = match files == VERSION_2 {
        true => name == "cgroup2",
        false => name == "cgroup" && options.split(',').any(|option| option == "memory"),
    };
    is_it.then_some((root, top))
}

fn number(file: &Path) -> Option<u64> {
    read_start(file, &mut [0; 32])?.trim().parse().ok()
}

fn limit(group: &Path, files: &Files) -> Option<u64> {
    let limits = files.limits.iter().filter_map(|file| number(&group.join(file)));
    limits.filter(|limit| *limit < NO_LIMIT).min()
}

fn used(group: &Path, files: &Files) -> Option<u64> {
    let all = number(&group.join(files.used))?;
    let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
    let reclaimable = stat.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        files.reclaimable.contains(&name).then(|| bytes.trim().parse::<u64>().unwrap_or(0))
    });
    Some(all.saturating_sub(reclaimable.sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "5 4 0:31 / /sys/fs/cgroup/memory rw shared:3 - cgroup cgroup rw,memory";
    const V2: &str = "6 4 0:32 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw";

    fn places(cgroup: &str, mounts: &str) -> Vec<String> {
        let groups = ControlGroups::find(cgroup, mounts).groups;
        groups.iter().map(|(group, _)| group.display().to_string()).collect()
    }

    #[test]
    fn groups_are_found_up_to_the_outermost_that_is_seen() {
        let both = format!("{V1}\n{V2}\n");
        let v1 = "/sys/fs/cgroup/memory";
        assert_eq!(
            places("5:cpu,memory:/a/b\n1:cpu:/c\n", &both),
            [format!("{v1}/a/b"), format!("{v1}/a"), v1.to_owned()]
        );
        assert_eq!(
            places("0::/x\n", &both),
            ["/sys/fs/cgroup/unified/x", "/sys/fs/cgroup/unified"]
        );
        // A container's own group is mounted at the top; one beside it is not seen.
        let own = "6 4 0:32 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw";
        assert_eq!(places("0::/docker/1\n", own), ["/sys/fs/cgroup"]);
        assert_eq!(places("0::/docker/1/sub\n", own), ["/sys/fs/cgroup/sub", "/sys/fs/cgroup"]);
        assert_eq!(places("0::/../2\n", V2), ["/sys/fs/cgroup/unified"]);
        assert!(places("0::/x\n3:memory:/y\n", "").is_empty());
        assert!(places("nonsense\n", &both).is_empty());
    }

    #[test]
    fn the_tightest_group_counts() {
        let top = std::env::temp_dir().join(format!("kauri-groups-{}", std::process::id()));
        let inner = top.join("inner");
        std::fs::create_dir_all(&inner).unwrap();
        let put = |at: &Path, file: &str, text: &str| std::fs::write(at.join(file), text).unwrap();
        let v2 =
            ControlGroups { groups: vec![(inner.clone(), VERSION_2), (top.clone(), VERSION_2)] };
        assert_eq!((v2.limit(), v2.memory()), (None, None));
        put(&inner, "memory.max", "max\n");
        put(&inner, "memory.current", "100\n");
        assert_eq!((v2.limit(), v2.memory()), (None, None));
        put(&top, "memory.max", "1000\n");
        put(&top, "memory.high", "900\n");
        put(&top, "memory.current", "700\n");
        put(&top, "memory.stat", "anon 500\nactive_file 80\ninactive_file 20\nslab 5\n");
        assert_eq!(v2.memory(), Some(Memory { limit: 900, used: 600 }));
        put(&inner, "memory.max", "120\n");
        assert_eq!(v2.memory(), Some(Memory { limit: 120, used: 100 }));
        assert_eq!(v2.limit(), Some(120));
        let v1 = ControlGroups { groups: vec![(top.clone(), VERSION_1)] };
        put(&top, "memory.limit_in_bytes", "9223372036854771712\n");
        put(&top, "memory.usage_in_bytes", "70\n");
        assert_eq!(v1.memory(), None);
        put(&top, "memory.limit_in_bytes", "4096\n");
        put(&top, "memory.stat", "active_file 1\ntotal_active_file 8\ntotal_inactive_file 2\n");
        assert_eq!(v1.memory(), Some(Memory { limit: 4096, used: 60 }));
        std::fs::remove_dir_all(&top).unwrap();
    }
}
