//! Faults that a test can inject: I/O errors at a chosen I/O, and disabled sites.
//!
//! A *site* is a label for a step whose effect shows only after a crash: a drain, an ordering point, a check of a
//! CRC. Code asks [`Faults::enabled`] (or passes the label to [`crate::Medium::drain`], which asks) and skips the
//! step if the site is disabled. So a test can disable any one site and prove that some crash test then fails.
//! [`Faults::sites_seen`] lists the sites.
//!
//! In a server nothing is disabled, and each question costs one relaxed load.

use crate::sync::lock;
use crate::{Error, IoKind, Result};
use kauri_base::sync::Mutex;
use kauri_base::sync::atomic::{AtomicBool, Ordering};
use std::collections::{BTreeMap, BTreeSet};

/// A label of one place in the code, unique in the program: `"commit.drain"`.
pub type Site = &'static str;

/// An error to be injected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The device fails.
    Eio,
    /// The file system is full.
    Enospc,
}

impl Fault {
    fn error(self, kind: IoKind) -> Error {
        match self {
            Fault::Eio => Error::Io { kind, errno: libc::EIO },
            Fault::Enospc => Error::NoSpace,
        }
    }
}

struct Injection {
    kind: IoKind,
    skip: u64,
    times: u64,
    fault: Fault,
}

#[derive(Default)]
struct Inner {
    seen: BTreeMap<String, u64>,
    disabled: BTreeSet<String>,
    io_counts: BTreeMap<IoKind, u64>,
    injections: Vec<Injection>,
}

/// The faults of one directory and what is in it.
#[derive(Default)]
pub struct Faults {
    watched: AtomicBool,
    inner: Mutex<Inner>,
}

impl Faults {
    /// No faults, nothing recorded.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on sites and I/Os are counted. Setting any fault does this too.
    pub fn watch(&self) {
        self.watched.store(true, Ordering::Release);
    }

    /// Whether what stands at `site` is to be done. Always, unless a test switched it off.
    #[inline]
    pub fn enabled(&self, site: Site) -> bool {
        !self.watched.load(Ordering::Relaxed) || self.ask(site)
    }

    /// As [`Faults::enabled`] for one step of what stands at `site`: the label is `site/step`.
    #[inline]
    pub fn step_enabled(&self, site: Site, step: &str) -> bool {
        !self.watched.load(Ordering::Relaxed) || self.ask(&format!("{site}/{step}"))
    }

    #[cold]
    fn ask(&self, label: &str) -> bool {
        let mut inner = lock(&self.inner);
        match inner.seen.get_mut(label) {
            Some(count) => *count += 1,
            None => drop(inner.seen.insert(label.to_owned(), 1)),
        }
        !inner.disabled.contains(label)
    }

    /// Switches a site off. The label as [`Faults::sites_seen`] gives it.
    pub fn disable(&self, label: &str) {
        self.watch();
        lock(&self.inner).disabled.insert(label.to_owned());
    }

    /// Switches a site on again.
    pub fn enable(&self, label: &str) {
        lock(&self.inner).disabled.remove(label);
    }

    /// Every site that was asked about since [`Faults::watch`], switched off or not, and how often.
    pub fn sites_seen(&self) -> Vec<(String, u64)> {
        lock(&self.inner).seen.iter().map(|(label, count)| (label.clone(), *count)).collect()
    }

    /// Makes I/Os of this kind fail: after `skip` more of them the next `times`.
    pub fn inject(&self, kind: IoKind, skip: u64, times: u64, fault: Fault) {
        self.watch();
        lock(&self.inner).injections.push(Injection { kind, skip, times, fault });
    }

    /// Takes back every injection.
    pub fn clear_injections(&self) {
        lock(&self.inner).injections.clear();
    }

    /// How many I/Os of this kind were asked for since [`Faults::watch`], failed ones included.
    pub fn io_count(&self, kind: IoKind) -> u64 {
        lock(&self.inner).io_counts.get(&kind).copied().unwrap_or(0)
    }

    /// Asked by media and directories before each I/O.
    #[inline]
    pub fn before_io(&self, kind: IoKind) -> Result<()> {
        if self.watched.load(Ordering::Relaxed) { self.count_io(kind) } else { Ok(()) }
    }

    #[cold]
    fn count_io(&self, kind: IoKind) -> Result<()> {
        let mut inner = lock(&self.inner);
        *inner.io_counts.entry(kind).or_default() += 1;
        let mut fault = None;
        for injection in inner.injections.iter_mut().filter(|i| i.kind == kind) {
            if injection.skip > 0 {
                injection.skip -= 1;
            } else if injection.times > 0 {
                injection.times -= 1;
                fault = fault.or(Some(injection.fault));
            }
        }
        inner.injections.retain(|i| i.times > 0);
        fault.map_or(Ok(()), |fault| Err(fault.error(kind)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_injection_hits_the_chosen_io_of_its_kind() {
        let faults = Faults::new();
        faults.inject(IoKind::Store, 2, 1, Fault::Enospc);
        assert_eq!(faults.before_io(IoKind::Drain), Ok(()));
        assert_eq!(faults.before_io(IoKind::Store), Ok(()));
        assert_eq!(faults.before_io(IoKind::Store), Ok(()));
        assert_eq!(faults.before_io(IoKind::Store), Err(Error::NoSpace));
        assert_eq!(faults.before_io(IoKind::Store), Ok(()));
        assert_eq!(faults.io_count(IoKind::Store), 4);
        assert_eq!(faults.io_count(IoKind::Drain), 1);
    }

    #[test]
    fn sites_are_listed_and_switched_off_one_by_one() {
        let faults = Faults::new();
        assert!(faults.enabled("unwatched"));
        faults.disable("a/file");
        assert!(faults.step_enabled("a", "directory"));
        assert!(!faults.step_enabled("a", "file"));
        assert!(faults.enabled("a"));
        faults.enable("a/file");
        assert!(faults.step_enabled("a", "file"));
        let seen = faults.sites_seen();
        let expected = [("a", 1), ("a/directory", 1), ("a/file", 2)];
        assert_eq!(seen, expected.map(|(label, count)| (label.to_owned(), count)));
    }
}
