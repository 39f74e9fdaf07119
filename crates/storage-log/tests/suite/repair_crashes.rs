//! Power losses during the repair of a damaged directory: at every event, with any part of the bytes that were
//! not durable. Each damaged piece is still reported by a check, or its complete copy is aside. Intact data
//! does not change. A second repair ends as an undisturbed one does.

use crate::repair_target::crashes::campaign;
use kauri_emulator::EmulatorConfig;

#[test]
fn on_a_disk() {
    let first = kauri_testkit::seed(1);
    let looked = campaign(EmulatorConfig::default(), first..first + 9, None);
    assert!(looked.images > 250 && looked.second > 10, "{looked:?}");
}

#[test]
fn on_persistent_memory() {
    let first = kauri_testkit::seed(1);
    let looked = campaign(EmulatorConfig::persistent_memory(), first..first + 6, None);
    assert!(looked.images > 300 && looked.second > 10, "{looked:?}");
}

/// In the tail a segment's summary is not read, but after the repair it is. The entries of records that were
/// given up must then be gone. These seeds find this case.
#[test]
fn after_a_crash_of_the_server() {
    for seed in [207, 207 + 3] {
        campaign(EmulatorConfig::default(), seed..seed + 1, None);
    }
}
