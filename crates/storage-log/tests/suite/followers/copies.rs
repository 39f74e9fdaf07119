//! Frames of a leader on a follower: appended they are not seen, applied they give the leader's state.

use super::{BASE, History, Leader, Member, at};
use crate::common::{emulator, status};
use kauri_base::CollectionId;
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_storage::{
    FrameRange, OpKind, RecordId, StorageEngine, StorageError, Truncated, WriteUnit,
};

fn leader(seed: u64) -> Leader {
    Leader::new(Member::new(emulator()), History::default(), seed)
}

/// A leader with so many frames.
pub fn written(seed: u64, frames: u64) -> Leader {
    let mut leader = leader(seed);
    while leader.history.frames.len() < frames as usize {
        leader.write();
        if leader.below(4) == 0 {
            leader.close_frame();
        }
    }
    leader
}

#[test]
fn what_is_applied_is_the_leaders_state_at_every_frame() {
    for (seed, config) in (0..).zip([
        EmulatorConfig::default(),
        EmulatorConfig::persistent_memory(),
        EmulatorConfig { staging: true, ..EmulatorConfig::default() },
    ]) {
        let leader = written(seed, 60);
        let follower = Member::new(Emulator::new(config));
        let mut applied = BASE.index;
        for (index, copied) in &leader.history.frames {
            let before = follower.state();
            follower.append(copied).expect("append");
            assert!(follower.state() == before, "frame {index} is seen before it is applied");
            assert_eq!(follower.apply(), None, "it is not committed");
            assert_eq!(follower.read(*index), **copied);
            if leader.below(2) == 0 {
                continue;
            }
            follower.log().commit_frames(*index);
            while let Some(index) = follower.apply() {
                applied += 1;
                assert_eq!(index, applied);
                follower.check(&leader.history.state(index), &format!("frame {index}"));
            }
        }
        assert!(applied > BASE.index + 40);
        follower.catch_up(&leader.history, "at the end");
        let range = FrameRange { purged: BASE, last: leader.history.last() };
        assert_eq!(follower.log().frames(), range);
        assert_eq!(
            status(&follower.engine, "liveBytes"),
            status(&leader.member.engine, "liveBytes")
        );
    }
}

#[test]
fn a_restart_applies_what_is_committed_and_goes_on() {
    let leader = written(7, 40);
    let mut follower = Member::new(emulator());
    let mut restarts = 0;
    for (index, copied) in &leader.history.frames {
        follower.append(copied).expect("append");
        if leader.below(2) == 0 {
            follower.log().commit_frames(*index);
        }
        if leader.below(2) == 0 {
            follower.apply();
        }
        if leader.below(4) == 0 {
            let committed = follower.log().committed();
            restarts += 1;
            if restarts % 2 == 0 {
                follower.engine.close().expect("close");
            } else {
                follower.engine.sync().expect("sync");
            }
            let emulator = follower.emulator.clone();
            drop(follower);
            follower = Member::open(&emulator);
            let applied = follower.log().applied().index;
            assert_eq!(follower.log().frames().last.index, *index);
            assert!(applied <= committed && follower.log().committed() == applied);
            if restarts % 2 == 0 {
                assert_eq!(applied, committed, "a clean shutdown tells all that is committed");
            }
            follower.check(&leader.history.state(applied), &format!("restart {restarts}"));
        }
    }
    assert!(restarts > 4);
    follower.catch_up(&leader.history, "at the end");
}

#[test]
fn a_follower_takes_over_and_the_leader_follows() {
    let leader = written(3, 20);
    let follower = Member::new(emulator());
    follower.catch_up(&leader.history, "before");
    let mut second = Leader::new(follower, leader.history.clone(), 4);
    let last = second.history.last().index;
    second.close_frame_at(at(5, last + 1));
    for _ in 0..100 {
        second.write();
        if second.below(4) == 0 {
            second.close_frame();
        }
    }
    second.close_frame();
    leader.member.log().follow();
    let mut unit = WriteUnit::new();
    unit.push(CollectionId(999), RecordId(0), OpKind::CreateStore);
    let refused = leader.member.engine.commit(&mut unit).map(drop);
    assert_eq!(refused, Err(StorageError::NotPrimary));
    leader.member.catch_up(&second.history, "the first leader");
}

#[test]
fn what_does_not_fit_is_refused() {
    let leader = written(11, 8);
    let follower = Member::new(emulator());
    let frames: Vec<super::Copied> =
        leader.history.frames.values().map(|copied| (**copied).clone()).collect();
    let refused = |copied: &super::Copied| {
        let error = follower.append(copied).expect_err("it is taken");
        assert_eq!(follower.log().frames().last.index, follower.log().applied().index.max(100));
        error
    };
    assert_eq!(refused(&frames[1]), StorageError::OutOfOrder);
    let (frame, records) = frames.iter().find(|(_, records)| records.len() > 3).expect("a frame");
    let mut follower_frames = frames.iter().take_while(|(f, _)| f.position != frame.position);
    let changed: [fn(&mut super::Copied); 7] = [
        |(_, records)| drop(records.pop()),
        |(frame, _)| frame.bytes += 8,
        |(_, records)| records[0].kind = 14,
        |(_, records)| records[1].seq.0 += 1,
        |(_, records)| records.iter_mut().for_each(|record| record.alone = !record.alone),
        |(frame, _)| frame.seq.0 += 1,
        |(_, records)| records[0].record = 1 << 50,
    ];
    assert!(follower_frames.all(|copied| follower.append(copied).is_ok()));
    let last = follower.log().frames().last.index;
    for (n, change) in changed.iter().enumerate() {
        let mut copied = (frame.clone(), records.clone());
        change(&mut copied);
        let result = follower.append(&copied);
        assert!(matches!(result, Err(StorageError::Corruption { .. })), "{n}: {result:?}");
    }
    let mut older = (frame.clone(), records.clone());
    older.0.position.term = 0;
    assert_eq!(follower.append(&older), Err(StorageError::OutOfOrder));
    assert_eq!(follower.log().frames().last.index, last);
    follower.catch_up(&leader.history, "afterwards");
    assert_eq!(leader.member.append(&frames[0]), Err(StorageError::OutOfOrder), "it leads");
}

#[test]
fn what_is_not_applied_is_cut_off_at_once() {
    for config in [EmulatorConfig::default(), EmulatorConfig::persistent_memory()] {
        let leader = written(13, 40);
        let follower = Member::new(Emulator::new(config));
        let (middle, last) = (BASE.index + 20, leader.history.last().index);
        leader.history.frames.values().for_each(|copied| follower.append(copied).expect("append"));
        follower.log().commit_frames(middle - 5);
        while follower.apply().is_some() {}
        assert_eq!(follower.log().truncate_frames(middle - 6), Err(StorageError::OutOfOrder));
        assert_eq!(follower.log().truncate_frames(last), Ok(Truncated::Done));
        assert_eq!(follower.log().truncate_frames(middle), Ok(Truncated::Done));
        assert_eq!(follower.log().frames().last.index, middle);
        assert_eq!(follower.log().read_frame(middle + 1), Ok(None));
        let history = leader.history.cut(middle);
        let other = Member::new(emulator());
        other.catch_up(&history, "the other one");
        let mut other = Leader::new(other, history, 14);
        for _ in 0..40 {
            other.write();
        }
        other.close_frame_at(at(9, middle + 1));
        other.close_frame_at(at(9, middle + 2));
        follower.catch_up(&other.history, "with other frames");
        follower.engine.sync().expect("sync");
        let image = follower.emulator.process_death_image();
        let again = Member::open(&image);
        assert_eq!(again.log().frames().last, at(9, middle + 2));
        again.catch_up(&other.history, "opened again");
        // What it has applied, it can only forget at the next start.
        leader.member.log().follow();
        assert_eq!(leader.member.log().truncate_frames(middle), Ok(Truncated::AtNextStart));
        // Clients that still ask it look for another leader.
        let refused = leader.member.append(&other.history.frames[&(middle + 1)]);
        assert_eq!(refused, Err(StorageError::NotPrimary));
        let emulator = leader.member.emulator.clone();
        drop(leader);
        Member::open(&emulator).catch_up(&other.history, "the deposed leader");
    }
}
