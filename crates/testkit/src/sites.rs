//! Taking out one safeguard after the other: each one that code asks [`kauri_medium::Faults`] about
//! must be missed by some crash test.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// A crash test. Runs with a site switched off, if one is named; panics if the engine fails it; and
/// answers which sites it met, and how often.
pub struct Campaign<'c> {
    /// Its name.
    pub name: &'static str,
    /// The test.
    pub run: Box<dyn Fn(Option<&str>) -> BTreeMap<String, u64> + 'c>,
}

/// For each site the campaign that missed it; `None` if none did. Every campaign passes with all
/// sites in place, else this panics. Asked first is the one that `likely` names for a site, then those that
/// took the least time. Alone in its process: panics of all threads are silent meanwhile.
pub fn missed_by(
    campaigns: &[Campaign<'_>],
    likely: &[(&str, &str)],
) -> BTreeMap<String, Option<&'static str>> {
    let mut met = Vec::new();
    for campaign in campaigns {
        let begun = Instant::now();
        let sites = (campaign.run)(None);
        let took = begun.elapsed();
        println!("{}: {} sites, {took:?}", campaign.name, sites.len());
        met.push((took, campaign, sites));
    }
    met.sort_by_key(|(took, ..)| *took);
    let sites: BTreeSet<_> = met.iter().flat_map(|(.., sites)| sites.keys().cloned()).collect();
    let fails = |campaign: &Campaign<'_>, site: &str| {
        catch_unwind(AssertUnwindSafe(|| (campaign.run)(Some(site)))).is_err()
    };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let missed = sites
        .into_iter()
        .map(|site| {
            let meets = met.iter().filter(|(.., sites)| sites.contains_key(&site));
            let mut asked: Vec<_> = meets.map(|(_, campaign, _)| *campaign).collect();
            asked.sort_by_key(|campaign| !likely.contains(&(&*site, campaign.name)));
            let missing = asked.into_iter().find(|campaign| fails(campaign, &site));
            (site, missing.map(|campaign| campaign.name))
        })
        .collect();
    std::panic::set_hook(hook);
    missed
}
