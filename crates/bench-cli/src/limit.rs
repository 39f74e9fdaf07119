//! A control group with a memory limit for a server that a benchmark starts.
//!
//! Invariant: dropping it removes the group; its processes must have ended before. This module must not know the
//! group's processes.

use kauri_base::{Error, ErrorCode, Result};
use kauri_machine::ControlGroups;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// See the module's head.
#[derive(Debug)]
pub struct Limit {
    group: PathBuf,
}

impl Limit {
    /// Makes one of this name with so many MB.
    pub fn new(name: &str, mb: u64) -> Result<Limit> {
        let groups = ControlGroups::of_process();
        let missing = || failed("no control group of this process limits memory".to_owned());
        let (own, file) = groups.own().ok_or_else(missing)?;
        let group = within(own, file).join(name);
        let outcome = Limit::make(group.clone(), file, mb);
        outcome.map_err(|why| failed(format!("{}: {why}", group.display())))
    }

    fn make(group: PathBuf, file: &str, mb: u64) -> io::Result<Limit> {
        fs::create_dir(&group)?;
        let limit = Limit { group };
        fs::write(limit.group.join(file), (mb << 20).to_string())?;
        Ok(limit)
    }

    /// Its directory.
    pub fn group(&self) -> &Path {
        &self.group
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // One that is not empty stays; nothing can be done about that here.
        let _ = fs::remove_dir(&self.group);
    }
}

/// Where another group may be made. In version 2 (`memory.max`) a group that has processes has no groups in it that
/// are limited, so it is beside the own one.
fn within<'g>(own: &'g Path, file: &str) -> &'g Path {
    let above = own.parent().filter(|above| above.join("cgroup.subtree_control").is_file());
    match (file, above) {
        ("memory.max", Some(above)) => above,
        _ => own,
    }
}

fn failed(why: String) -> Error {
    let needed = "a memory limit needs a control group that this user may create: run as root, or in a delegated group \
                  (systemd-run --user --scope -p Delegate=yes)";
    Error::new(ErrorCode::OperationFailed, format!("{needed}; {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_made_where_limits_hold_and_goes() {
        let top = std::env::temp_dir().join(format!("kauri-limit-{}", std::process::id()));
        let own = top.join("own");
        fs::create_dir_all(&own).unwrap();
        // Version 1 has groups within any group, version 2 beside the one that has processes.
        assert_eq!(within(&own, "memory.limit_in_bytes"), own);
        assert_eq!(within(&own, "memory.max"), own);
        fs::write(top.join("cgroup.subtree_control"), "memory").unwrap();
        assert_eq!(within(&own, "memory.limit_in_bytes"), own);
        assert_eq!(within(&own, "memory.max"), top);
        let limit = Limit::make(top.join("new"), "memory.max", 5).unwrap();
        assert_eq!(limit.group(), top.join("new"));
        assert_eq!(fs::read_to_string(top.join("new/memory.max")).unwrap(), "5242880");
        // A directory that is none of the kernel's is empty only without its file.
        fs::remove_file(top.join("new/memory.max")).unwrap();
        drop(limit);
        assert!(!top.join("new").exists());
        fs::remove_dir_all(&top).unwrap();
    }
}
