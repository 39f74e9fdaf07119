//! A member that is sent anything.

use crate::codec::drawn;
use crate::set::{config, disk, member};
use kauri_replication::consensus::Acknowledge::{Durable, Written};
use kauri_replication::{Change, Config, Frame, Log};
use kauri_testkit::Dice;

/// No message ends a member's process, whatever it says, and a commit point does not fall.
#[test]
fn a_member_survives_all_messages() {
    let mut accepted = 0;
    for seed in 0..4_000 {
        let dice = Dice::new(seed);
        let acknowledge = if dice.percent(50) { Written } else { Durable };
        let voters = 1 + dice.below(4);
        let config =
            Config { priorities: [(1, dice.below(3) as u32)].into(), ..config(1, acknowledge) };
        let mut of = member(config, disk(voters, 1, &[]));
        let (mut applied, mut committed) = (0, 0);
        for _ in 0..150 {
            match dice.below(20) {
                0 | 1 => (0..dice.below(30)).for_each(|_| of.tick()),
                2 | 3 => {
                    let frame = Frame { first: of.next_unit(), units: 1, bytes: 1 };
                    let _ = of.propose(frame);
                }
                4 => accepted += u64::from(of.read(dice.bits()).is_ok()),
                5 => accepted += u64::from(of.change(&[Change::Voter(1 + dice.below(5))]).is_ok()),
                6 => accepted += u64::from(of.hand_over(1 + dice.below(5)).is_ok()),
                7 => of.log_for_sync().sync(),
                _ => accepted += u64::from(of.step(drawn(&dice)).is_ok()),
            }
            if dice.percent(70) {
                let output = of.advance();
                applied = output.committed.last().map_or(applied, |entry| entry.index);
                if dice.percent(80) {
                    of.applied(applied);
                }
            }
            let points = (of.written_commit(), of.durable_commit());
            assert!(committed <= points.0 && points.1 <= points.0 && points.0 <= 100, "{points:?}");
            committed = points.0;
        }
    }
    assert!(accepted > 30_000, "{accepted}");
}
