//! Warnings at startup: access to the data, and unsuitable limits and settings of the system. They go to the log
//! and to `getLog: "startupWarnings"`, with mongod's ids and texts where mongod has them.

use crate::options::Options;
use kauri_base::log::{self, Attr, STARTUP_CTX};
use std::path::{Path, PathBuf};

/// Open files that are recommended, as mongod's.
const OPEN_FILES_MIN: u64 = 64_000;
/// Processes and threads of the server's user.
const PROCESSES_MIN: u64 = 4_096;
/// Memory that the staging file and the rings of sessions lock.
const LOCKED_BYTES_MIN: u64 = 8 << 20;
const HUGE_PAGES: &str = "sys/kernel/mm/transparent_hugepage";

/// A warning that is due.
#[derive(Clone, PartialEq, Debug)]
struct Due {
    id: u32,
    message: String,
    /// Attributes that are texts, and those that are numbers.
    texts: Vec<(&'static str, String)>,
    numbers: Vec<(&'static str, u64)>,
}

impl Due {
    fn new(id: u32, message: impl Into<String>) -> Due {
        Due { id, message: message.into(), texts: Vec::new(), numbers: Vec::new() }
    }

    fn text(mut self, name: &'static str, value: impl Into<String>) -> Due {
        self.texts.push((name, value.into()));
        self
    }

    fn number(mut self, name: &'static str, value: u64) -> Due {
        self.numbers.push((name, value));
        self
    }
}

/// Logs the warnings that are due.
pub fn log_all(options: &Options) {
    let system = System { root: PathBuf::from("/") };
    let db_path = PathBuf::from(options.text("storage.dbPath", "/data/db"));
    let db_path = db_path.canonicalize().unwrap_or(db_path);
    let bind = if options.flag("net.bindIpAll", false) {
        Some("*".to_owned())
    } else {
        options.given("net.bindIp").map(str::to_owned)
    };
    let keeps_data = options.text("storage.engine", "pmlog") != "ephemeralForTest";
    let mut due = of_access(bind.as_deref());
    due.extend(system.of_user());
    due.extend(system.of_limits());
    due.extend(system.of_kernel());
    due.extend(system.of_file_system(&db_path).filter(|_| keeps_data));
    for due in due {
        let mut attr = Attr::new();
        for (name, value) in &due.texts {
            attr = attr.str(name, value);
        }
        for (name, value) in &due.numbers {
            attr = attr.num(name, value);
        }
        log::warning("CONTROL", due.id, STARTUP_CTX, &due.message, attr);
    }
}

/// Warnings about access to the data. `bind`: the addresses of the operator.
fn of_access(bind: Option<&str>) -> Vec<Due> {
    let mut due = vec![Due::new(
        22120,
        "Access control is not enabled for the database. Read and write access to data and configuration is \
         unrestricted",
    )];
    match bind {
        None => due.push(Due::new(
            22140,
            "This server is bound to localhost. Remote systems will be unable to connect to this server. Start \
             the server with --bind_ip <address> to specify which IP addresses it should serve responses from, \
             or with --bind_ip_all to bind to all interfaces. If this behavior is desired, start the server \
             with --bind_ip 127.0.0.1 to disable this warning",
        )),
        Some(bind) if bind.split(',').any(|address| !is_local(address.trim())) => due.push(
            Due::new(
                6_200_130,
                "This server listens beyond localhost without access control. Every host that can connect can \
                 read and change all data. Restrict --bind_ip, or admit only trusted hosts by a firewall",
            )
            .text("bindIp", bind),
        ),
        Some(_) => {}
    }
    due
}

fn is_local(address: &str) -> bool {
    let ip = address.parse::<std::net::IpAddr>();
    // A path is that of a Unix domain socket.
    address.is_empty()
        || address == "localhost"
        || address.starts_with('/')
        || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// The kernel's files about the system, below this directory.
struct System {
    root: PathBuf,
}

impl System {
    fn read(&self, path: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    fn of_user(&self) -> Option<Due> {
        let status = self.read("proc/self/status")?;
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        // The real and the effective one.
        let effective = uids.split_whitespace().nth(1)?;
        let message = "You are running this process as the root user, which is not recommended";
        (effective == "0").then(|| Due::new(22138, message))
    }

    /// A soft limit of the process; none if it is unlimited or unknown.
    fn limit(&self, name: &str) -> Option<u64> {
        let limits = self.read("proc/self/limits")?;
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }

    fn of_limits(&self) -> Vec<Due> {
        let of = |name, least| self.limit(name).filter(|limit| *limit < least);
        let mut due = Vec::new();
        if let Some(files) = of("Max open files", OPEN_FILES_MIN) {
            due.push(
                Due::new(22184, "Soft rlimits for open file descriptors too low")
                    .number("currentValue", files)
                    .number("recommendedMinimum", OPEN_FILES_MIN),
            );
        }
        if let Some(processes) = of("Max processes", PROCESSES_MIN) {
            due.push(
                Due::new(6_200_131, "Soft rlimit for processes too low")
                    .number("currentValue", processes)
                    .number("recommendedMinimum", PROCESSES_MIN),
            );
        }
        if let Some(locked) = of("Max locked memory", LOCKED_BYTES_MIN) {
            due.push(
                Due::new(22188, "Soft rlimit for locked memory too low")
                    .number("lockedMemoryBytes", locked)
                    .number("minLockedMemoryBytes", LOCKED_BYTES_MIN),
            );
        }
        if let Some(bytes) = self.limit("Max file size") {
            due.push(
                Due::new(
                    6_200_132,
                    "File size is limited (ulimit -f). Writes fail when the log reaches the limit",
                )
                .number("currentValue", bytes),
            );
        }
        due
    }

    fn of_kernel(&self) -> Vec<Due> {
        let mut due = Vec::new();
        if self.root.join("sys/devices/system/node/node1").exists() {
            let maps = self.read("proc/self/numa_maps").unwrap_or_default();
            let policy = maps.lines().next().and_then(|line| line.split(' ').nth(1));
            if policy.is_some_and(|policy| !policy.starts_with("interleave")) {
                due.push(Due::new(
                    22167,
                    "You are running on a NUMA machine. We suggest launching kauri like this to avoid \
                     performance problems: numactl --interleave=all kauri [other options]",
                ));
            }
        }
        due.extend(self.setting("proc/sys/vm/overcommit_memory", |value| value == 2).map(
            |(path, value)| {
                Due::new(
                    22171,
                    "Journaling and memory allocation work best if overcommit_memory is set to 1",
                )
                .text("sysfsFile", path)
                .number("currentValue", value)
            },
        ));
        due.extend(self.setting("proc/sys/vm/zone_reclaim_mode", |value| value != 0).map(
            |(path, value)| {
                Due::new(
                    22174,
                    "We suggest setting zone_reclaim_mode to 0. See \
                 http://www.kernel.org/doc/Documentation/sysctl/vm.txt",
                )
                .text("sysfsFile", path)
                .number("currentValue", value)
            },
        ));
        due.extend(self.setting("proc/sys/vm/swappiness", |value| value > 1).filter(|_| self.has_swap()).map(
            |(path, value)| {
                Due::new(
                    8_386_700,
                    "We suggest setting swappiness to 0 or 1, as swapping can cause performance problems.",
                )
                .text("sysfsFile", path)
                .number("currentValue", value)
            },
        ));
        due.extend(self.of_huge_pages());
        due
    }

    /// A number of the kernel's and its path, if it is wrong.
    fn setting(&self, path: &str, is_wrong: impl Fn(u64) -> bool) -> Option<(String, u64)> {
        let value = self.read(path)?.parse().ok()?;
        is_wrong(value).then(|| (format!("/{path}"), value))
    }

    fn has_swap(&self) -> bool {
        self.read("proc/swaps").is_some_and(|swaps| swaps.lines().count() > 1)
    }

    fn of_huge_pages(&self) -> Vec<Due> {
        let is_always = |file: &str| {
            let modes = self.read(&format!("{HUGE_PAGES}/{file}"));
            modes.is_some_and(|modes| modes.contains("[always]"))
        };
        let mut due = Vec::new();
        if is_always("enabled") {
            for (file, id) in [("enabled", 22178), ("defrag", 22181)] {
                if is_always(file) {
                    let message = format!(
                        "/{HUGE_PAGES}/{file} is 'always'. We suggest setting it to 'never'"
                    );
                    // The log's head asks for huge pages by itself.
                    due.push(Due::new(id, message.replace("'never'", "'madvise'")));
                }
            }
        }
        due
    }

    /// A file system on which data is slow, or soon gone.
    fn of_file_system(&self, path: &Path) -> Option<Due> {
        let mounts = self.read("proc/self/mountinfo")?;
        let mounted = mounts.lines().filter_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let top = Path::new(place.split(' ').nth(4)?);
            path.starts_with(top).then(|| (top.components().count(), kind.split(' ').next()))
        });
        // The last of those that are mounted one over the other.
        let (_, kind) = mounted.max_by_key(|(depth, _)| *depth)?;
        let kind = kind?;
        let message = match kind {
            "tmpfs" | "ramfs" => {
                "The data directory is in memory. The data is lost when the machine stops"
            }
            "overlay" | "aufs" => {
                "The data directory is in a container's layer. The data is lost with the container, and writes \
                 are slow. Use a volume"
            }
            "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "9p" | "afs" | "ceph" | "glusterfs" => {
                "The data directory is on a network file system, which may lose synced writes. Use a local \
                 file system"
            }
            fuse if fuse.starts_with("fuse") => {
                "The data directory is on a file system in user space, which may lose synced writes. Use a \
                 local file system"
            }
            _ => return None,
        };
        let due = Due::new(6_200_133, message).text("fileSystem", kind);
        Some(due.text("dbPath", path.display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(due: impl IntoIterator<Item = Due>) -> Vec<u32> {
        due.into_iter().map(|due| due.id).collect()
    }

    #[test]
    fn access_beyond_localhost_is_warned_of() {
        assert_eq!(ids(of_access(None)), [22120, 22140]);
        for local in ["127.0.0.1", "localhost,::1", "localhost, 127.1.2.3,/tmp/kauri.sock"] {
            assert_eq!(ids(of_access(Some(local))), [22120], "{local}");
        }
        for open in ["*", "0.0.0.0", "::", "localhost,192.0.2.1", "db.example.net"] {
            assert_eq!(ids(of_access(Some(open))), [22120, 6_200_130], "{open}");
        }
    }

    /// A root with these files.
    fn system(name: &str, files: &[(&str, &str)]) -> System {
        let root = std::env::temp_dir().join(format!("kauri-system-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        System { root }
    }

    impl Drop for System {
        fn drop(&mut self) {
            if self.root.starts_with(std::env::temp_dir()) {
                let _ = std::fs::remove_dir_all(&self.root);
            }
        }
    }

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max file size             FSIZE            unlimited            bytes     \n\
        Max processes             PROC                94000                processes \n\
        Max open files            FILES                 1048576              files     \n\
        Max locked memory         LOCKED              8388608              bytes     \n";

    fn limits(file_bytes: &str, processes: &str, files: &str, locked: &str) -> Vec<u32> {
        let text = LIMITS
            .replace("FSIZE", file_bytes)
            .replace("PROC", processes)
            .replace("FILES", files)
            .replace("LOCKED", locked);
        ids(system(&format!("limits-{file_bytes}-{files}"), &[("proc/self/limits", &text)])
            .of_limits())
    }

    #[test]
    fn small_limits_are_warned_of() {
        assert_eq!(limits("unlimited", "94000", "64000", "8388608"), [0; 0]);
        assert_eq!(limits("unlimited", "unlimited", "unlimited", "unlimited"), [0; 0]);
        let all = [22184, 6_200_131, 22188, 6_200_132];
        assert_eq!(limits("1000", "4095", "63999", "65536"), all);
    }

    #[test]
    fn root_is_warned_of() {
        let user = |uids: &str| {
            let status = format!("Name:\tkauri\nUid:\t{uids}\nGid:\t0\t0\t0\t0\n");
            let name = format!("user-{}", uids.len());
            ids(system(&name, &[("proc/self/status", &status)]).of_user())
        };
        assert_eq!(user("0\t0\t0\t0"), [22138]);
        assert_eq!(user("1000\t1000\t1000\t1000"), [0; 0]);
        assert_eq!(user("0\t1000\t1000\t0"), [0; 0], "not its effective user");
    }

    #[test]
    fn unsuitable_kernel_settings_are_warned_of() {
        let good = [
            ("proc/sys/vm/overcommit_memory", "0\n"),
            ("proc/sys/vm/zone_reclaim_mode", "0\n"),
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/swaps", "Filename Type Size Used Priority\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/mm/transparent_hugepage/defrag", "[always] defer madvise never\n"),
        ];
        assert_eq!(ids(system("good", &good).of_kernel()), [0; 0]);
        let bad = [
            ("proc/sys/vm/overcommit_memory", "2\n"),
            ("proc/sys/vm/zone_reclaim_mode", "1\n"),
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/swaps", "Filename Type Size Used Priority\n/swap file 1 0 -2\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
            ("sys/kernel/mm/transparent_hugepage/defrag", "[always] defer madvise never\n"),
            ("sys/devices/system/node/node1/cpulist", "1\n"),
            ("proc/self/numa_maps", "00400000 default file=/usr/bin/kauri mapped=6 N4=6\n"),
        ];
        let all = [22167, 22171, 22174, 8_386_700, 22178, 22181];
        assert_eq!(ids(system("bad", &bad).of_kernel()), all);
        let interleaved = [
            ("sys/devices/system/node/node1/cpulist", "1\n"),
            ("proc/self/numa_maps", "00400000 interleave:0-1 file=/usr/bin/kauri mapped=6\n"),
        ];
        assert_eq!(ids(system("interleaved", &interleaved).of_kernel()), [0; 0]);
        assert_eq!(ids(system("unknown", &[]).of_kernel()), [0; 0]);
    }

    #[test]
    fn unreliable_file_systems_are_warned_of() {
        let mounts = "22 1 0:20 / / rw shared:1 - ext4 /dev/vda rw\n\
            30 22 0:31 / /mem rw - tmpfs tmpfs rw\n\
            31 30 0:32 / /mem/disk rw - xfs /dev/vdb rw\n\
            32 22 0:33 / /net rw - nfs4 host:/x rw\n\
            33 22 0:34 / /user rw - fuse.sshfs x rw\n\
            34 22 0:35 / /layer rw - overlay overlay rw\n";
        let system = system("mounts", &[("proc/self/mountinfo", mounts)]);
        let kind = |path: &str| {
            let due = system.of_file_system(Path::new(path))?;
            assert_eq!(due.id, 6_200_133);
            due.texts.into_iter().find(|(name, _)| *name == "fileSystem").map(|(_, kind)| kind)
        };
        assert_eq!(kind("/data/db"), None);
        assert_eq!(kind("/mem/db").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/mem/disk/db"), None);
        assert_eq!(kind("/memory"), None, "a name that begins alike");
        assert_eq!(kind("/net/db").as_deref(), Some("nfs4"));
        assert_eq!(kind("/user").as_deref(), Some("fuse.sshfs"));
        assert_eq!(kind("/layer/x/y").as_deref(), Some("overlay"));
    }
}
