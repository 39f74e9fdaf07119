//! What has to be forgotten with frames that are cut off: index images, counts of copies, and what marks tell.

use super::{BASE, History, Leader, Member, at, log, table};
use crate::common::{emulator, kilobyte, open, status};
use kauri_base::{CollectionId, RecordId};
use kauri_conformance::table::{TableIndex, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::Directory;
use kauri_storage::{StorageEngine, Truncated, WriteUnit};
use kauri_storage_log::{Options, PmLog};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

const ID: CollectionId = CollectionId(10);

/// A leader with a collection.
fn leader(emulator: Emulator) -> Leader {
    let leader = Leader::new(Member::new(emulator), History::default(), 1);
    let table = table(&leader.member.engine, ID);
    let mut unit = WriteUnit::new();
    table.create_in(&mut unit);
    table.commit(&mut unit);
    table.indexes.iter().for_each(TableIndex::set_complete);
    leader
}

/// Documents with these unique keys.
fn insert_all(leader: &Leader, of: Range<i64>) -> Vec<RecordId> {
    let table = table(&leader.member.engine, ID);
    of.map(|u| table.insert(&doc(u, u, &kilobyte(u as u64)))).collect()
}

/// Another leader that has the frames up to this index.
fn other(history: &History, index: u64) -> Leader {
    let member = Member::new(emulator());
    let history = history.cut(index);
    member.catch_up(&history, "another leader");
    let mut other = Leader::new(member, history, 2);
    other.close_frame_at(at(5, index + 1));
    other
}

/// A clean shutdown writes images of all that is applied, even if it is not committed.
#[test]
fn an_image_of_what_was_cut_off_is_not_used() {
    let mut first = leader(emulator());
    // So many that their images take several segments, of which not all are used again.
    let fill = |of: Range<i64>| {
        let table = table(&first.member.engine, ID);
        let mut unit = WriteUnit::new();
        for u in of {
            table.insert_in(&mut unit, &doc(u, u, ""));
        }
        table.commit(&mut unit);
    };
    (0..40).for_each(|n| fill(200 * n..200 * (n + 1)));
    let index = first.close_frame();
    first.member.log().commit_frames(index);
    first.member.engine.sync().expect("sync");
    table(&first.member.engine, ID).update(RecordId(8000), &doc(9999, 9999, ""));
    first.close_frame();
    first.member.engine.close().expect("close");
    assert!(status(&first.member.engine, "indexImages.written") > 0);
    let history = first.history.clone();
    let directory = first.member.emulator.clone();
    drop(first);

    let member = Member::open(&directory);
    assert_eq!(member.log().applied().index, index);
    assert_eq!(status(&member.engine, "indexImages.loaded"), 0);
    member.check(&history.state(index), "opened");
    // A segment that was opened since keeps the start's cut.
    member.log().close_frame(at(4, index + 2), 0, &[]).expect("closing");
    assert_eq!(member.log().truncate_frames(index), Ok(Truncated::Done));
    let mut other = other(&history, index);
    insert_all(&other, 9000..9010);
    other.close_frame();
    member.catch_up(&other.history, "other frames");
    member.engine.sync().expect("sync");
    drop(member);

    let member = Member::open(&directory);
    member.catch_up(&other.history, "opened again");
    member.check(&other.history.state(other.history.last().index), "opened again");
    assert_eq!(status(&member.engine, "indexImages.loaded"), 0, "images of what was cut off");
}

/// A tombstone stays as long as there are copies of its record, and those that were cut off were never counted.
#[test]
fn copies_that_were_cut_off_are_not_counted_when_their_space_is_used_again() {
    for config in [EmulatorConfig::default(), EmulatorConfig::persistent_memory()] {
        let mut first = leader(emulator());
        let ids = insert_all(&first, 0..20);
        let index = first.close_frame();
        let update = |leader: &Leader, k: i64| {
            let table = table(&leader.member.engine, ID);
            for (u, id) in (0..).zip(&ids) {
                table.update(*id, &doc(k, u, &kilobyte(u as u64)));
            }
        };
        (1..12).for_each(|k| update(&first, k));
        first.close_frame();
        let follower = Member::new(Emulator::new(config));
        first.history.frames.values().for_each(|copied| follower.append(copied).expect("append"));
        follower.log().commit_frames(index);
        while follower.apply().is_some() {}
        assert_eq!(follower.log().truncate_frames(index), Ok(Truncated::Done));
        let free = status(&follower.engine, "segmentsFree");
        assert!(free > 3, "{free} segments are free");
        // The others' frames take their space, then the documents are deleted.
        let mut other = other(&first.history, index);
        insert_all(&other, 100..300);
        other.close_frame();
        let table = table(&other.member.engine, ID);
        ids.iter().for_each(|id| table.delete(*id));
        other.close_frame();
        follower.catch_up(&other.history, "other frames");
        let counts = |member: &Member| {
            ["liveBytes", "log.lastCommit"].map(|name| status(&member.engine, name))
        };
        follower.engine.sync().expect("sync");
        let again = Member::open(&follower.emulator.process_death_image());
        again.catch_up(&other.history, "opened again");
        assert_eq!(counts(&follower), counts(&again));
        // Purged and cleaned, the tombstones are needed for the first copies.
        let last = other.history.last().index;
        follower.log().purge_frames(last).expect("purge");
        for _ in 0..4 {
            while follower.engine.clean_once().expect("cleaning") {}
            follower.engine.sync().expect("sync");
            follower.engine.flush_round().expect("a round");
            let again = Member::open(&follower.emulator.process_death_image());
            again.catch_up(&other.history, "cleaned and opened again");
            again.check(&other.history.state(last), "cleaned and opened again");
            assert_eq!(counts(&follower), counts(&again));
        }
    }
}

/// Without marks in the log only the mark file tells what was synced after a cut.
#[test]
fn the_mark_file_tells_what_is_durable_behind_a_cut() {
    let options = Options { mark_interval_bytes: u64::MAX, ..super::options() };
    let begin = |directory: &Emulator| -> Arc<PmLog> {
        let engine = open(directory, options.clone());
        log(&engine).begin_frames(BASE).expect("begin");
        engine
    };
    let directory = emulator();
    let engine = begin(&directory);
    let (first, second) = (at(1, BASE.index + 1), at(1, BASE.index + 2));
    log(&engine).close_frame(first, 0, b"kept").expect("closing");
    log(&engine).close_frame(second, 0, b"cut off").expect("closing");
    assert_eq!(log(&engine).truncate_frames(first.index), Ok(Truncated::Done));
    log(&engine).close_frame(at(2, second.index), 0, b"the last frame").expect("closing");
    engine.sync().expect("sync");
    let image = directory.process_death_image();
    let bytes = image.read_file("pmlog.0").expect("reading").expect("the log");
    let found = bytes.windows(14).position(|bytes| bytes == b"the last frame");
    let file = image.open_log("pmlog.0").expect("the log");
    // The header of the frame's record.
    file.store(found.expect("the frame") as u64 - 60, &[IoSlice::new(b"damage")]).expect("damage");
    let result = PmLog::open(Arc::new(image), options.clone());
    assert!(result.is_err(), "a damaged frame was taken for the end of the log");
}
