//! What clients and the world know together.

use super::process::lock;
use kauri_consistency::lists::Transaction;
use kauri_testkit::Dice;
use kauri_transport::fake::{FakeClient, FakeTransport};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// How often something was met, by its name.
pub type Counts = BTreeMap<&'static str, u64>;

/// See the module's head.
#[derive(Default)]
pub struct Shared {
    doors: Mutex<BTreeMap<u64, Arc<FakeTransport>>>,
    history: Mutex<Vec<Transaction>>,
    counts: Mutex<Counts>,
    faults: Mutex<Vec<String>>,
    hash: AtomicU64,
    clock: AtomicU64,
    values: AtomicU64,
    over: AtomicBool,
    /// Programs of clients that have not ended.
    running: AtomicU64,
    copies: AtomicU64,
}

impl Shared {
    /// So many members have data.
    pub fn set_copies(&self, copies: u64) {
        self.copies.store(copies, Ordering::Relaxed);
    }

    /// How many members have data.
    pub fn copies(&self) -> u64 {
        self.copies.load(Ordering::Relaxed)
    }

    /// Whether clients are to end.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Clients are to end, or may begin again.
    pub fn set_over(&self, is_over: bool) {
        self.over.store(is_over, Ordering::Relaxed);
    }

    /// The next moment of the history.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A value that nobody else has.
    pub fn next_value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes a transaction on lists.
    pub fn note(&self, transaction: Transaction) {
        lock(&self.history).push(transaction);
    }

    /// The transactions so far.
    pub fn history(&self) -> Vec<Transaction> {
        lock(&self.history).clone()
    }

    /// Notes a fault.
    pub fn fault(&self, text: impl Into<String>) {
        lock(&self.faults).push(text.into());
    }

    /// The faults so far.
    pub fn faults(&self) -> Vec<String> {
        lock(&self.faults).clone()
    }

    /// Counts what was met.
    pub fn count(&self, what: &'static str) {
        *lock(&self.counts).entry(what).or_default() += 1;
    }

    /// How often that was met.
    pub fn counted(&self, what: &str) -> u64 {
        lock(&self.counts).get(what).copied().unwrap_or_default()
    }

    /// Everything that was met.
    pub fn counts(&self) -> Counts {
        lock(&self.counts).clone()
    }

    /// Mixes bytes into the hash of the run.
    pub fn mix(&self, bytes: &[u8]) {
        let mut hash = self.hash.load(Ordering::Relaxed);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            hash = (hash ^ u64::from_le_bytes(word))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29);
        }
        self.hash.store(hash, Ordering::Relaxed);
    }

    /// The hash of the run so far.
    pub fn hash(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }

    /// A member runs from now on, or does so no longer.
    pub fn set_door(&self, member: u64, door: Option<Arc<FakeTransport>>) {
        let before = match door {
            Some(door) => lock(&self.doors).insert(member, door),
            None => lock(&self.doors).remove(&member),
        };
        drop(before);
    }

    /// A connection to a member, if it runs.
    pub fn connect(&self, member: u64) -> Option<FakeClient> {
        let door = lock(&self.doors).get(&member).cloned();
        door?.connect()
    }

    /// A member that runs.
    pub fn any_member(&self, dice: &Dice) -> Option<u64> {
        let members: Vec<u64> = lock(&self.doors).keys().copied().collect();
        dice.pick(&members).copied()
    }

    /// A program begins.
    pub fn begin_program(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// A program has ended.
    pub fn end_program(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Programs that have not ended.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }
}
