//! The end of a replicated log: what it has stays, later units need no frames, and another one may begin.

use super::*;

/// Whether all units are there that these documents are of.
fn has(table: &Table, ids: &[RecordId]) -> bool {
    let there = |(u, id): (usize, &RecordId)| table.record(*id).doc == doc(u as i64, u as i64, "x");
    ids.iter().enumerate().all(there)
}

#[test]
fn what_is_written_after_the_end_of_the_log_survives_a_restart() {
    let mut fixture = Fixture::new(options());
    let mut ids = vec![fixture.table.insert(&doc(0, 0, "x"))];
    begin(&fixture.engine, at(1, 1));
    ids.push(fixture.table.insert(&doc(1, 1, "x")));
    close(&fixture.engine, at(3, 2));
    log(&fixture.engine).follow();
    assert_eq!(log(&fixture.engine).end_frames(), Err(StorageError::OutOfOrder), "it follows");
    lead(&fixture.engine);
    ids.push(fixture.table.insert(&doc(2, 2, "x")));
    log(&fixture.engine).end_frames().expect("the end");
    assert_eq!(log(&fixture.engine).frames(), FrameRange::default());
    assert_eq!(log(&fixture.engine).end_frames(), Ok(()), "there is none any more");
    ids.push(fixture.table.insert(&doc(3, 3, "x")));
    for clean in [false, true] {
        fixture.engine.flush();
        if clean {
            fixture.engine.close().expect("close");
        }
        fixture = fixture.reopen();
        assert_eq!(log(&fixture.engine).frames(), FrameRange::default());
        assert_eq!(log(&fixture.engine).lead(), Err(StorageError::OutOfOrder));
        assert!(has(&fixture.table, &ids));
        let next = ids.len() as i64;
        ids.push(fixture.table.insert(&doc(next, next, "x")));
    }
    begin(&fixture.engine, at(1, 1));
    let next = ids.len() as i64;
    ids.push(fixture.table.insert(&doc(next, next, "x")));
    let frame = close(&fixture.engine, at(1, 2));
    fixture.engine.flush();
    let fixture = fixture.reopen();
    assert_eq!(log(&fixture.engine).frames(), FrameRange { purged: at(1, 1), last: at(1, 2) });
    assert_eq!(read(&fixture.engine, 2).0, frame);
    lead(&fixture.engine);
    assert!(has(&fixture.table, &ids));
    fixture.engine.close().expect("close");
    let report = verify(&fixture.emulator, &mut |_, _| {}).expect("the check");
    assert!(report.damage.is_empty() && report.documents == ids.len() as u64, "{report:?}");
}

#[test]
fn the_cleaner_frees_what_an_ended_log_had() {
    let fixture = Fixture::new(bounded(40));
    let ids: Vec<RecordId> =
        (0..100).map(|u| fixture.table.insert(&doc(0, u, &kilobyte(u as u64)))).collect();
    begin(&fixture.engine, at(1, 1));
    for round in 0..8 {
        for (u, id) in ids.iter().enumerate() {
            fixture.table.update(*id, &doc(round, u as i64, &kilobyte(round as u64)));
        }
        close(&fixture.engine, at(1, 2 + round as u64));
    }
    fixture.engine.sync().expect("sync");
    clean(&fixture.engine);
    let free = status(&fixture.engine, "segmentsFree");
    log(&fixture.engine).end_frames().expect("the end");
    let fixture = fixture.reopen();
    clean(&fixture.engine);
    let free_now = status(&fixture.engine, "segmentsFree");
    assert!(free_now > free + 5, "{free} segments were free, {free_now} are");
    assert_eq!(fixture.contents().len(), ids.len());
}

fn crashes_at_the_end(config: fn() -> EmulatorConfig, seeds: std::ops::Range<u64>) {
    let (mut ended, mut not) = (0, 0);
    for seed in seeds {
        let emulator = Emulator::new(config());
        let engine = open(&emulator, options());
        let table = described(&engine);
        let mut unit = WriteUnit::new();
        table.create_in(&mut unit);
        table.commit(&mut unit);
        begin(&engine, at(1, 5));
        let many = 1 + seed as i64 % 40;
        let ids: Vec<RecordId> =
            (0..many).map(|u| table.insert(&doc(u, u, &kilobyte(seed)))).collect();
        close(&engine, at(1, 6));
        if seed % 3 == 0 {
            purge(&engine, 6);
        }
        engine.sync().expect("sync");
        let before = emulator.events();
        log(&engine).end_frames().expect("the end");
        for events in before..=emulator.events() {
            let engine = open(&emulator.crash_seeded(events, seed), options());
            let table = described(&engine);
            table.attach();
            match log(&engine).frames().last.index {
                0 => ended += 1,
                _ => {
                    not += 1;
                    assert!(events < emulator.events(), "seed {seed}: it was durable");
                    lead(&engine);
                    log(&engine).end_frames().expect("the end");
                }
            }
            for (u, id) in ids.iter().enumerate() {
                let there = table.record(*id).doc;
                assert_eq!(there, doc(u as i64, u as i64, &kilobyte(seed)), "seed {seed}");
            }
            let id = table.insert(&doc(-1, -1, "behind"));
            engine.sync().expect("sync");
            begin(&engine, at(1, 1));
            assert_eq!(table.record(id).doc, doc(-1, -1, "behind"));
        }
    }
    assert!(ended > 40 && not > 40, "{ended} had ended, {not} had not");
}

#[test]
fn a_crash_while_the_log_ends_leaves_it_ended_or_not() {
    crashes_at_the_end(EmulatorConfig::default, 0..40);
    crashes_at_the_end(EmulatorConfig::persistent_memory, 0..40);
}
