//! Every drain and every ordering point of a repair is necessary: without any one, a crash during a repair
//! loses data. The labels are those that repairs reach.

use crate::repair_target::crashes::campaign;
use kauri_emulator::EmulatorConfig;
use kauri_testkit::sites::{Campaign, missed_by};

#[test]
fn disabling_any_repair_safeguard_fails_a_test() {
    let of = |name, medium, seeds: std::ops::Range<u64>| Campaign {
        name,
        run: Box::new(move |without| campaign(medium, seeds.clone(), without).sites),
    };
    let campaigns = [
        of("disk", EmulatorConfig::default(), 1..9),
        of("memory", EmulatorConfig::persistent_memory(), 1..4),
    ];
    let sites = missed_by(&campaigns, &[]);
    assert!(sites.values().all(Option::is_some), "{sites:?}");
    let expected = [
        "repair.aside/directory",
        "repair.aside/file",
        "repair.drain",
        "repair.persist",
        "repair.trailers.drain",
        "repair.trailers.persist",
    ];
    assert!(sites.keys().map(String::as_str).eq(expected), "{sites:?}");
}
