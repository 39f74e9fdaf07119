//! The block states, step by step. Separate from `block.rs`, which the model checker's test compiles, too.

use super::block::{Block, Settled, Tick};

fn yes() -> bool {
    true
}

#[test]
fn a_used_block_stays_and_can_be_revived() {
    let block = Block::new();
    assert!(!block.look());
    assert!(block.begin_load());
    assert!(!block.begin_load());
    assert!(block.finish_load(false), "to be tracked");
    assert!(block.look());
    assert_eq!(block.tick(false, yes), Tick::Keep);
    assert_eq!(block.tick(false, || false), Tick::Keep);
    assert_eq!(block.tick(false, yes), Tick::Settle);
    assert!(block.look(), "revived");
    assert_eq!(block.settle(true), Settled::Kept);
    assert_eq!(block.tick(false, yes), Tick::Keep, "it has been referred to");
    assert_eq!(block.tick(false, yes), Tick::Settle);
    assert_eq!(block.settle(true), Settled::Dropping);
    assert!(!block.look());
    assert!(!block.begin_load());
    block.dropped();
    assert!(block.begin_load());
    block.fail_load();
    assert!(block.begin_load());
    assert!(block.finish_load(false), "to be tracked again");
}

#[test]
fn an_awaited_block_stays_for_a_limited_time() {
    let block = Block::new();
    assert!(block.begin_load());
    block.finish_load(true);
    assert_eq!(block.tick(true, yes), Tick::Keep);
    assert_eq!(block.tick(true, yes), Tick::Keep);
    assert!(block.look());
    assert_eq!(block.tick(true, yes), Tick::Keep);
    assert_eq!(block.tick(true, yes), Tick::Settle);
    let abandoned = Block::new();
    assert!(abandoned.begin_load());
    abandoned.finish_load(true);
    assert_eq!(abandoned.tick(false, yes), Tick::Settle);
}

#[test]
fn a_peek_changes_no_state() {
    let block = Block::new();
    assert!(!block.peek());
    assert!(block.begin_load());
    assert!(!block.peek(), "nothing is in it yet");
    block.finish_load(false);
    assert!(block.peek());
    assert_eq!(block.tick(false, yes), Tick::Settle, "nobody has used it");
    assert!(!block.peek(), "it may go at any time, and must not be kept");
    assert_eq!(block.settle(true), Settled::Dropping);
    assert!(!block.peek());
}

#[test]
fn a_settle_after_recycling_does_not_touch_the_new_contents() {
    let block = Block::new();
    assert!(block.appended());
    assert_eq!(block.tick(false, yes), Tick::Settle);
    assert!(block.empty());
    assert!(!block.appended(), "its name is in the batch");
    assert_eq!(block.settle(true), Settled::Kept);
    assert!(block.look());
}

#[test]
fn a_block_that_may_not_be_evicted_stays() {
    let block = Block::new();
    block.appended();
    assert_eq!(block.tick(false, yes), Tick::Settle);
    assert_eq!(block.settle(false), Settled::Kept);
    assert!(block.look());
}

#[test]
fn the_clock_forgets_an_empty_block_once() {
    let block = Block::new();
    assert!(block.appended());
    assert!(block.empty());
    assert_eq!(block.tick(false, yes), Tick::Forget);
    assert!(block.appended(), "to be tracked again");
    assert!(block.empty());
    assert_eq!(block.settle(true), Settled::Gone);
}

#[test]
fn a_block_of_dead_data_is_evicted_like_an_unused_one() {
    let block = Block::new();
    block.fade();
    assert!(block.appended());
    assert!(block.look());
    block.fade();
    assert_eq!(block.tick(false, yes), Tick::Settle);
    block.fade();
    assert!(block.look(), "revived");
    block.fade();
    assert_eq!(block.settle(true), Settled::Kept);
    assert_eq!(block.tick(false, yes), Tick::Settle);
}
