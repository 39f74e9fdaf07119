//! The mark file: the durable horizon, updated in place after each sync, so that a recovery can distinguish a torn
//! tail from damage, even without later writes.
//!
//! A mark is stored after the drain that it describes has returned, and before that drain is acknowledged. So the
//! mark outlives the process. It outlives a power loss after a sync of the mark file. Commits never wait for that
//! sync: the preparer syncs the mark file when the log is idle, or every [`SYNC_AFTER`] under load, and so does an
//! explicit sync of the engine.
//!
//! Invariants:
//! - A mark covers only what was durable when the mark was stored. Horizons only grow, so an outdated or lost mark
//!   covers less, but is never wrong. The same holds for the epochs of segments. A mark counts until the next cut;
//!   after that the metadata file covers more.
//! - One slot has the last synced mark and is not written. All later marks go to the other slot, until that slot
//!   has a synced mark that was not overwritten. So a torn store or a failed sync leaves the mark of the previous
//!   sync, whatever the medium's atomic unit is.
//! - The file only serves to find damage. If it cannot be written, the engine logs that once and works without it.

use crate::format::MARK_FILE;
use crate::format::marks::{
    MARK_EPOCH_BYTES, MARK_EPOCHS_AT, MARK_SLOT_BYTES, MARK_SLOTS, Mark, decode_epoch, encode_epoch,
};
use crate::format::segment::Horizon;
use crate::lock;
use kauri_base::log::{self, Attr};
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_base::sync::{Arc, Mutex};
use kauri_medium::{Directory, Faults, Medium, Result};
use std::io::IoSlice;
use std::time::Duration;

/// Maximum time of a mark without a sync while commits continue.
const SYNC_AFTER: Duration = Duration::from_secs(5);
/// The file grows by so much.
const GROW_BYTES: u64 = 4096;

/// The contents of a directory's mark file.
#[derive(Clone, Default, Debug)]
pub struct FoundMarks {
    /// The newest mark.
    pub mark: Mark,
    /// For each segment the epoch that it was opened with last, at least; 0: not known.
    pub epochs: Vec<u64>,
    /// Why the file can't be read, if it is there.
    pub unreadable: Option<String>,
    /// Whether it is there.
    pub exists: bool,
    slot: usize,
}

impl FoundMarks {
    /// Reads the file of the directory of this id.
    pub fn read(directory: &dyn Directory, id: &[u8; 16]) -> FoundMarks {
        match directory.read_file(MARK_FILE) {
            Ok(None) => FoundMarks::default(),
            Ok(Some(bytes)) => FoundMarks::of_file(&bytes, id, directory.faults()),
            Err(error) => FoundMarks {
                unreadable: Some(error.to_string()),
                exists: true,
                ..FoundMarks::default()
            },
        }
    }

    fn of_file(bytes: &[u8], id: &[u8; 16], faults: &Faults) -> FoundMarks {
        let mut found = FoundMarks { exists: true, ..FoundMarks::default() };
        let check = faults.enabled("marks.crc");
        for slot in 0..MARK_SLOTS {
            let mark = bytes
                .get(slot * MARK_SLOT_BYTES..)
                .and_then(|bytes| Mark::decode(bytes, id, check));
            if let Some(mark) = mark.filter(|mark| mark.number > found.mark.number) {
                (found.mark, found.slot) = (mark, slot);
            }
        }
        let check = faults.enabled("marks.epoch.crc");
        let entries = bytes.get(MARK_EPOCHS_AT..).unwrap_or_default();
        found.epochs = (0..)
            .zip(entries.chunks_exact(MARK_EPOCH_BYTES))
            .map(|(segment, entry)| decode_epoch(entry, id, segment, check).unwrap_or(0))
            .collect();
        found
    }

    /// Why it can't serve, if that is so and there was one.
    pub fn missing(&self, expected: bool) -> Option<String> {
        match &self.unreadable {
            Some(error) => Some(format!("cannot read {MARK_FILE}: {error}")),
            None if expected && !self.exists => Some(format!("{MARK_FILE} is missing")),
            None if expected && self.mark.number == 0 => {
                Some(format!("{MARK_FILE} has no mark of this directory"))
            }
            None => None,
        }
    }

    /// The epoch that a segment had, at least; 0: not known.
    pub fn epoch(&self, segment: u32) -> u64 {
        self.epochs.get(segment as usize).copied().unwrap_or(0)
    }

    /// The highest epoch that was given out, at least.
    pub fn epoch_last(&self) -> u64 {
        self.epochs.iter().copied().max().unwrap_or(0)
    }

    /// Segments that the log had, at least.
    pub fn segments(&self) -> u32 {
        self.epochs.iter().rposition(|epoch| *epoch > 0).map_or(0, |last| last as u32 + 1)
    }
}

/// The file while the engine is open.
pub struct Marks {
    file: Arc<dyn Medium>,
    directory: [u8; 16],
    /// Changed only where no mark is stored.
    cut: AtomicU64,
    slots: Mutex<Slots>,
    /// Held by the thread that syncs.
    syncing: Mutex<()>,
    failed: AtomicBool,
}

#[derive(Default)]
struct Slots {
    /// The last mark that was stored.
    last: Mark,
    /// The slot of the next mark.
    next: usize,
    /// The number of the last mark that was synced.
    synced: u64,
    /// Whether something was stored since the last sync began.
    unsynced: bool,
    /// The number of the last mark when it was last asked whether a sync is due.
    seen: u64,
    /// When something was last synced.
    synced_at: Duration,
}

impl Marks {
    /// Opens the file, and creates it if necessary; then its name is durable and it has a mark. `None`, which is
    /// logged, if that fails.
    pub fn open(directory: &dyn Directory, id: [u8; 16], found: &FoundMarks) -> Option<Marks> {
        let open = || -> Result<Arc<dyn Medium>> {
            let file = directory.create_log(MARK_FILE, "marks.create")?;
            file.grow(MARK_EPOCHS_AT as u64)?;
            Ok(file)
        };
        let file = open().inspect_err(|error| report_failure(&error.to_string())).ok()?;
        // The one that was found may be the only one.
        let next = (found.slot + 1) % MARK_SLOTS;
        let synced = found.mark.number;
        let slots = Slots { last: found.mark, next, synced, ..Slots::default() };
        let marks = Marks {
            file,
            directory: id,
            cut: AtomicU64::new(found.mark.cut),
            slots: Mutex::new(slots),
            syncing: Mutex::new(()),
            failed: AtomicBool::new(false),
        };
        if found.mark.number == 0 {
            // From then on a file without a mark is one that was lost.
            marks.store(found.mark.horizon);
            marks.sync(Duration::ZERO);
        }
        (!marks.failed.load(Ordering::Acquire)).then_some(marks)
    }

    /// The directory has a new cut and segments of these epochs, all of it durable. Afterwards the mark file's
    /// contents about that are durable, too.
    pub fn begin(&self, cut: u64, horizon: Horizon, epochs: &[(u32, u64)], found: &FoundMarks) {
        self.cut(cut);
        for (segment, epoch) in epochs {
            if found.epoch(*segment) != *epoch {
                self.opened(*segment, *epoch);
            }
        }
        self.store(horizon);
        self.sync(Duration::ZERO);
    }

    /// The log has been cut off before segments of this epoch.
    pub fn cut(&self, epoch_next: u64) {
        self.cut.store(epoch_next, Ordering::Release);
    }

    /// All of this is durable. Stores the mark for it, unless the last one covers it.
    pub fn store(&self, mut horizon: Horizon) {
        let mut slots = lock(&self.slots);
        let cut = self.cut.load(Ordering::Acquire);
        if slots.last.cut == cut {
            // What another thread has told meanwhile stays told.
            horizon.raise(&slots.last.horizon);
        }
        let told = Mark { cut, horizon, ..slots.last };
        let is_told = slots.last == told && told.number > 0;
        if is_told || self.failed.load(Ordering::Acquire) {
            return;
        }
        let mark = Mark { number: slots.last.number.saturating_add(1), cut, horizon };
        let at = (slots.next * MARK_SLOT_BYTES) as u64;
        if self.put(at, &mark.encode(&self.directory)) {
            (slots.last, slots.unsynced) = (mark, true);
        }
    }

    /// A segment has a durable header of this epoch.
    pub fn opened(&self, segment: u32, epoch: u64) {
        if self.failed.load(Ordering::Acquire) {
            return;
        }
        let at = (MARK_EPOCHS_AT + segment as usize * MARK_EPOCH_BYTES) as u64;
        let end = (at + MARK_EPOCH_BYTES as u64).next_multiple_of(GROW_BYTES);
        if let Err(error) = self.file.grow(end) {
            return self.fail(&error);
        }
        if self.put(at, &encode_epoch(&self.directory, segment, epoch)) {
            lock(&self.slots).unsynced = true;
        }
    }

    fn put(&self, at: u64, bytes: &[u8]) -> bool {
        let stored = self.file.store(at, &[IoSlice::new(bytes)]);
        let stored =
            stored.and_then(|()| self.file.persist(at, bytes.len() as u64, "marks.persist"));
        stored.inspect_err(|error| self.fail(error)).is_ok()
    }

    /// Makes stored marks durable. Returns whether that took a sync.
    pub fn sync(&self, now: Duration) -> bool {
        let syncing = lock(&self.syncing);
        let number = {
            let mut slots = lock(&self.slots);
            if !slots.unsynced || self.failed.load(Ordering::Acquire) {
                return false;
            }
            slots.unsynced = false;
            slots.last.number
        };
        // Nobody who stores a mark waits for this.
        if let Err(error) = self.file.drain("marks.drain") {
            self.fail(&error);
            return false;
        }
        let mut slots = lock(&self.slots);
        if number == slots.last.number && number > slots.synced {
            slots.next = (slots.next + 1) % MARK_SLOTS;
            slots.synced = number;
        }
        slots.synced_at = now;
        drop((slots, syncing));
        true
    }

    /// Whether it is time for a sync: no mark has been stored since this was last asked, or the last sync
    /// is long ago. Asked once a commit interval.
    pub fn is_due(&self, now: Duration) -> bool {
        let mut slots = lock(&self.slots);
        let idle = slots.seen == slots.last.number;
        slots.seen = slots.last.number;
        slots.unsynced && (idle || now.saturating_sub(slots.synced_at) >= SYNC_AFTER)
    }

    /// The file's contents stay valid; nothing is added to it.
    fn fail(&self, error: &dyn std::fmt::Display) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            report_failure(&error.to_string());
        }
    }
}

fn report_failure(error: &str) {
    let attr = Attr::new().str("file", MARK_FILE).str("error", error);
    let message = "Cannot write the mark file: damage of the last synced data may be mistaken for the end of \
                   the log. Check the disk, then restart";
    log::warning("STORAGE", 6_200_024, "pmlog", message, attr);
}
