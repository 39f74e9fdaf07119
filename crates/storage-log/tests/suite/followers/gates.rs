//! What the cleaner has to wait for: a start applies only what the medium says is committed, and the rest may be cut
//! off.

use super::{BASE, History, Leader, Member, at, table};
use crate::common::{emulator, kilobyte, status};
use crate::log_copy::write;
use kauri_base::{CollectionId, RecordId};
use kauri_conformance::table::{Table, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::Directory;
use kauri_storage::{LogPosition, StorageEngine, WriteUnit};
use std::collections::BTreeMap;
use std::ops::Range;

const ID: CollectionId = CollectionId(10);
const DOCUMENTS: i64 = 200;

/// A leader with some segments of documents, all committed and purged.
struct Filled {
    member: Member,
    table: Table,
    ids: Vec<RecordId>,
}

impl Filled {
    fn new(config: EmulatorConfig) -> Filled {
        Filled::on(Emulator::new(config))
    }

    fn on(emulator: Emulator) -> Filled {
        let member = Member::new(emulator);
        let leader = Leader::new(member, History::default(), 1);
        let member = leader.member;
        let table = table(&member.engine, ID);
        let mut unit = WriteUnit::new();
        table.create_in(&mut unit);
        table.commit(&mut unit);
        let insert = |u: i64| table.insert(&doc(0, u, &kilobyte(u as u64)));
        let ids = (0..DOCUMENTS).map(insert).collect();
        let filled = Filled { member, table, ids };
        let last = filled.close();
        filled.member.log().commit_frames(last);
        filled.member.log().purge_frames(last).expect("purge");
        filled.member.engine.sync().expect("sync");
        filled
    }

    /// Replaces every nth document.
    fn update(&self, k: i64, nth: usize) {
        for (u, id) in (0..).zip(&self.ids).step_by(nth) {
            self.table.update(*id, &doc(k, u, &kilobyte(u as u64)));
        }
    }

    fn close(&self) -> u64 {
        let LogPosition { index, .. } = self.member.log().frames().last;
        self.member.log().close_frame(at(1, index + 1), 0, &[]).expect("closing");
        index + 1
    }

    fn sealed(&self) {
        self.member.engine.sync().expect("sync");
        self.member.engine.flush_round().expect("a round");
        self.member.engine.sync().expect("sync");
    }

    fn clean(&self) {
        while self.member.engine.clean_once().expect("cleaning") {}
    }

    fn number(&self, name: &str) -> i64 {
        status(&self.member.engine, name)
    }
}

/// The numbers of documents by their `k`.
fn ks(member: &Member) -> Vec<i64> {
    let records = table(&member.engine, ID).records();
    records.values().map(|record| kauri_conformance::table::number(&record.doc, "k")).collect()
}

#[test]
fn an_emptied_segment_is_given_back_once_what_replaced_it_is_committed() {
    for config in [EmulatorConfig::default(), EmulatorConfig::persistent_memory()] {
        let filled = Filled::new(config);
        filled.update(1, 1);
        let index = filled.close();
        filled.sealed();
        filled.clean();
        let free = filled.number("segmentsFree");
        assert!(filled.number("segmentsEmptying") > 0, "nothing waits");
        // Others need room meanwhile.
        for k in 2..6 {
            filled.update(k, 1);
            filled.close();
            filled.sealed();
            filled.clean();
        }
        let image = filled.member.emulator.process_death_image();
        let member = Member::open(&image);
        assert_eq!(member.log().applied().index, index - 1);
        assert_eq!(ks(&member), vec![0; DOCUMENTS as usize]);
        let copy = filled.member.engine.copy_log().expect("a copy");
        let member = Member::open(&write(&*copy, config, || {}));
        assert_eq!(ks(&member), vec![0; DOCUMENTS as usize]);
        drop(copy);
        filled.member.log().commit_frames(index);
        let waiting = filled.number("segmentsEmptying");
        filled.clean();
        let freed = filled.number("segmentsFree") - free;
        assert!(waiting > filled.number("segmentsEmptying") || freed > 0, "all still wait");
        filled.member.log().commit_frames(u64::MAX);
        filled.member.log().commit_frames(filled.member.log().frames().last.index);
        filled.close();
    }
}

#[test]
fn the_medium_says_what_is_committed_before_it_is_moved() {
    for (seed, config) in (0..).zip([
        EmulatorConfig::default(),
        EmulatorConfig::persistent_memory(),
        EmulatorConfig { staging: true, ..EmulatorConfig::default() },
    ]) {
        crashes_while_it_moves(seed..seed + 1, || Emulator::new(config));
    }
}

/// For `crash_sites`: the same with a site switched off. Answers which sites were met.
pub fn sites(without: Option<&str>) -> BTreeMap<String, u64> {
    let emulator = emulator();
    without.into_iter().for_each(|site| emulator.faults().disable(site));
    crashes_while_it_moves(0..4, || emulator.clone());
    emulator.faults().sites_seen().into_iter().collect()
}

fn crashes_while_it_moves(seeds: Range<u64>, emulator: impl Fn() -> Emulator) {
    let (mut images, mut moved) = (0, 0);
    {
        let filled = Filled::on(emulator());
        for round in 1..6 {
            filled.update(round, 2);
            let index = filled.close();
            filled.sealed();
            filled.member.log().commit_frames(index);
            filled.member.log().purge_frames(index).expect("purge");
            let before = filled.member.emulator.events();
            filled.clean();
            for event in before..=filled.member.emulator.events() {
                for seed in seeds.clone() {
                    let image = filled.member.emulator.crash_seeded(event, seed);
                    let member = Member::open(&image);
                    let applied = member.log().applied().index;
                    assert!(applied <= index && applied >= index - 1, "{applied} of {index}");
                    let k = if applied == index { round } else { round - 1 };
                    assert!(ks(&member).iter().step_by(2).all(|found| *found == k), "{event}");
                    images += 1;
                }
            }
        }
        moved += filled.number("cleaner.movedRecords");
    }
    assert!(images > 20 && moved > 40, "{images} images, {moved} records moved");
}

#[test]
fn nothing_is_purged_that_is_not_committed_and_applied() {
    let filled = Filled::new(EmulatorConfig::default());
    let purged = filled.member.log().frames().purged.index;
    filled.update(1, 1);
    filled.close();
    let last = filled.close();
    filled.member.log().purge_frames(last).expect("purge");
    assert_eq!(filled.member.log().frames().purged.index, purged, "it is not committed");
    filled.member.log().commit_frames(last - 1);
    filled.member.log().purge_frames(last).expect("purge");
    assert_eq!(filled.member.log().frames().purged.index, last - 1);

    let follower = Member::new(emulator());
    let leader = super::copies::written(1, 3);
    leader.history.frames.values().for_each(|copied| follower.append(copied).expect("append"));
    follower.log().commit_frames(leader.history.last().index);
    assert_eq!(follower.apply(), Some(BASE.index + 1));
    follower.log().purge_frames(leader.history.last().index).expect("purge");
    assert_eq!(follower.log().frames().purged.index, BASE.index + 1, "the rest is not applied");
}

#[test]
fn the_frames_before_the_newest_bytes_may_be_purged() {
    let filled = Filled::new(EmulatorConfig::default());
    let log = filled.member.log();
    let purged = log.frames().purged.index;
    assert_eq!(log.frames_before(0), purged, "there are no frames");
    for k in 0..12 {
        filled.update(k, 4);
        filled.close();
    }
    let last = log.frames().last.index;
    let behind = |index: u64| -> u64 {
        let bytes = |index| log.read_frame_alone(index).expect("reading").expect("a frame").bytes;
        (index + 1..=last).map(bytes).sum()
    };
    let mut before = last;
    for bytes in (0..1 << 20).step_by(50_000) {
        let index = log.frames_before(bytes);
        assert!(index < last && index <= before, "{bytes}: {index} after {before}");
        before = index;
        if index > purged {
            assert!(behind(index) >= bytes, "{bytes}: {}", behind(index));
            // Not much more than that.
            assert!(behind(index) <= bytes + 3 * 65_536 + 60_000, "{bytes}: {}", behind(index));
        }
    }
    assert_eq!(before, purged, "more than there is");
    let middle = log.frames_before(200_000);
    assert!(middle > purged);
    log.commit_frames(last);
    log.purge_frames(middle).expect("purge");
    assert_eq!(log.frames_before(200_000), middle);
    assert_eq!(log.term_of(middle), Some(1));
    assert_eq!(log.read_frame_alone(middle), Ok(None));
}
