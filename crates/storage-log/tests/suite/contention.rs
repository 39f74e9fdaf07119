//! Many threads write to the same few records while the log is flushed and cleaned. The outcome follows the
//! commit sequence: no update of a deleted record, no id given twice, no lost update, no invented version.

use crate::crash_target::Target;
use kauri_testkit::history::Loss;
use kauri_testkit::{Crashes, Run};

#[test]
fn threads_contend_for_few_records() {
    let first = kauri_testkit::seed(1);
    let target = Target::new(14);
    let run = Run {
        threads: true,
        sessions: 8,
        steps: 8_000,
        document_bytes: 1 << 10,
        definitions_percent: 2,
        ..Run::default()
    };
    let (mut conflicts, mut runs) = (0, 0);
    // The number of conflicts depends on the scheduler.
    while runs < 8 || conflicts < 500 {
        let crashes = Crashes::new(&target);
        // Ends with a check of all indexes and of the history.
        let recording = crashes.record(first + runs, &run);
        conflicts += recording.counts.conflicts.get();
        let (timeline, events) = (&recording.timeline, recording.emulator.events());
        let states = timeline.promised(events, Loss::Process)..=timeline.end();
        crashes.recover(&recording.emulator.process_death_image(), timeline, states);
        runs += 1;
        assert!(runs < 80, "only {conflicts} units met another one");
    }
}
