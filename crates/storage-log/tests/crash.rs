//! Crashes at any point of seeded runs: what was promised is there, and nothing but a prefix.

mod crash_target;

use crash_target::Target;
use kauri_testkit::{Crashes, Run};

#[test]
fn power_losses() {
    let seed = kauri_testkit::seed(1);
    let target = Target::new(16);
    let crashes = Crashes::new(&target);
    let recording = crashes.record(seed, &Run::default());
    let report = crashes.power_losses(&recording, seed, 300);
    println!("{report:?}");
    println!("{:?}", crashes.sites_seen());
    assert!(report.images >= 290);
}
