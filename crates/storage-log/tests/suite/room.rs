//! A unit starts only if the available segments have room for all its records, in whichever segments they land.

use crate::common::{self, Fixture, SEGMENT_BYTES, options};
use kauri_conformance::table::doc;
use kauri_storage::{StorageEngine, WriteUnit};
use kauri_storage_log::Options;

/// A unit of two documents that need a segment each. The open segment has room for the first, or nearly so, and
/// a mark comes before them.
#[test]
fn a_mark_takes_room_before_the_unit_does() {
    let text = |bytes: u32| "x".repeat(bytes as usize);
    let half = SEGMENT_BYTES * 5 / 8;
    let mut marks = 0;
    for spare in (0..600).step_by(8) {
        let options = Options { mark_interval_bytes: 1, ..options() };
        let fixture = Fixture::new(options);
        // Header, records of the table and the like take less than 6 KB.
        let filler = SEGMENT_BYTES - half - 6 * 1024 + spare * 4;
        fixture.table.insert(&doc(0, 0, &text(filler)));
        fixture.engine.sync().expect("sync");
        let mut unit = WriteUnit::new();
        for number in 1..=2 {
            fixture.table.insert_in(&mut unit, &doc(0, number, &text(half)));
        }
        let before = common::status(&fixture.engine, "log.marks");
        fixture.table.commit(&mut unit);
        marks += common::status(&fixture.engine, "log.marks") - before;
        fixture.table.check();
    }
    assert!(marks > 20, "{marks} marks");
}
