//! Disables one safeguard after the other: without any single one that code asks [`kauri_medium::Faults`] about,
//! some crash test must fail.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

/// A crash test. Runs with a site switched off, if one is named, without threads; panics if the engine
/// fails it; and answers which sites it met, and how often.
pub struct Campaign<'c> {
    /// Its name.
    pub name: &'static str,
    /// The test.
    pub run: Box<dyn Fn(Option<&str>) -> BTreeMap<String, u64> + Sync + 'c>,
}

/// For each site the campaign that missed it; `None` if none did. Every campaign passes with all
/// sites in place, else this panics. Asked first is the one that `likely` names for a site, then those that
/// took the least time. Each processor looks at a site of its own.
pub fn missed_by(
    campaigns: &[Campaign<'_>],
    likely: &[(&str, &str)],
) -> BTreeMap<String, Option<&'static str>> {
    let mut met = on_all_processors(campaigns, |campaign| {
        let begun = Instant::now();
        let sites = (campaign.run)(None);
        let took = begun.elapsed();
        println!("{}: {} sites, {took:?}", campaign.name, sites.len());
        (took, campaign, sites)
    });
    met.sort_by_key(|(took, ..)| *took);
    let sites: BTreeSet<_> = met.iter().flat_map(|(.., sites)| sites.keys().cloned()).collect();
    let sites: Vec<_> = sites.into_iter().collect();
    let missed = on_all_processors(&sites, |site| {
        let meets = met.iter().filter(|(.., sites)| sites.contains_key(site));
        let mut asked: Vec<_> = meets.map(|(_, campaign, _)| *campaign).collect();
        asked.sort_by_key(|campaign| !likely.contains(&(&**site, campaign.name)));
        let begun = Instant::now();
        let mut count = 0;
        let fails = |campaign: &&Campaign<'_>| {
            count += 1;
            quietly(|| (campaign.run)(Some(site))).is_err()
        };
        let missing = asked.into_iter().find(fails);
        let missing = missing.map(|campaign| campaign.name);
        println!("{site}: missed by {missing:?}, {count} asked, {:?}", begun.elapsed());
        (site.clone(), missing)
    });
    missed.into_iter().collect()
}

/// What comes of each of these, in any order. A panic goes on.
fn on_all_processors<'t, T: Sync, R: Send>(
    of: &'t [T],
    work: impl Fn(&'t T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let turns = || {
        while let Some(one) = of.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = work(one);
            done.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        }
    };
    std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(turns)).collect();
        for thread in threads {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Whether panics of this thread are expected.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Calls this; if it panics nothing is said, whatever other threads do.
fn quietly<R>(call: impl FnOnce() -> R) -> std::thread::Result<R> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                hook(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    QUIET.set(false);
    result
}
