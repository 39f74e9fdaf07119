//! Opening a directory: from the log on the medium to stores in memory.
//!
//! 1. [`directory`]: the lock, the metadata file, refusals.
//! 2. [`scan`]: which segments count, what is durable, where the log ends.
//! 3. [`build`]: the address tables, from summaries and records.
//! 4. Make what was kept durable, note the cut, and go on in new segments.
//!
//! Invariants:
//! - What the staging file has is put into the log before anything else. Otherwise nothing is changed on the
//!   medium before the decision of step 2, and then only by replacing the
//!   metadata file, and copies of headers that are not as the one that was gone by. So a crash in a
//!   recovery changes nothing that counts, and a later one decides the same.
//! - Segments that existed are never appended to.

mod build;
mod directory;
mod pending;
mod progress;
mod scan;

use crate::acks::Acks;
use crate::attach::Recovered;
use crate::cleaner::Cleaner;
use crate::collection::Registry;
use crate::core::Core;
use crate::flush::Flushing;
use crate::format::meta::Meta;
use crate::format::segment::HEADER_END;
use crate::format::{META_FILE, SEGMENT_HEADER_BYTES, Stream};
use crate::head::Head;
use crate::images::{self, FoundImages, ImageSegment, Images};
use crate::kick::Kick;
use crate::lock;
use crate::marks::{FoundMarks, Marks};
use crate::options::Options;
use crate::reader::Contents;
use crate::segments::Segments;
use crate::staging::{self, StagingArea};
use crate::status::Counters;
use crate::verified::Verified;
use kauri_base::log::{self, Attr};
use kauri_base::sync::atomic::{AtomicU64, Ordering};
use kauri_base::sync::{Arc, Mutex};
use kauri_base::{Clock, ErrorCode};
use kauri_medium::{
    CacheConfig, Directory, EpochDomain, Medium, MediumKind, SegmentCache, parallel,
};
use kauri_storage::StorageError;
use std::io::IoSlice;

pub use build::Builder;
pub use directory::Opened;
pub use pending::FoundPending;
pub use progress::Progress;
pub use scan::{Kept, Log, Outcome, Place, Scan, Stop};

/// Damage that a recovery or a check found.
pub(crate) fn corrupt(message: String) -> StorageError {
    StorageError::Corruption { collection: None, record: None, message }
}

/// Opens the engine of a directory.
pub fn open(directory: Arc<dyn Directory>, options: Options) -> kauri_base::Result<Arc<Core>> {
    let opened = Opened::open(directory, &options)?;
    report_medium(&*opened.medium);
    recover(opened, options)
}

/// The error of a start whose scan ended early. One that tells the way out itself begins as a refusal does.
fn refusal(directory: &dyn Directory, stop: Stop) -> kauri_base::Error {
    match stop {
        Stop { error, place: Some(Place::Files) } => kauri_base::Error::new(
            ErrorCode::DataCorruptionDetected,
            format!("Cannot start server. {}: {error}", directory.describe()),
        ),
        Stop { error, .. } => error.into(),
    }
}

fn recover(mut opened: Opened, mut options: Options) -> kauri_base::Result<Arc<Core>> {
    let started = options.clock.monotonic();
    options.segment_bytes = opened.meta.segment_bytes;
    let medium = opened.medium.clone();
    let faults = opened.directory.faults().clone();
    let segments = Segments::new(medium.clone(), options.segment_bytes, options.segments_max());
    let id = opened.meta.directory;
    let found = FoundMarks::read(&*opened.directory, &id);
    report_marks(&found, opened.meta.marks);
    let log = Log {
        medium: &*medium,
        faults: &faults,
        segments: &segments,
        meta: &opened.meta,
        marks: &found,
    };
    staging::replay(log, &*opened.directory)?;
    let scan = Scan::new(log, options.open_threads.max(1), &*options.clock).run();
    let mut scan = scan.map_err(|stop| refusal(&*opened.directory, stop))?;
    let mut pending = FoundPending::find(log, &scan.kept)?;
    let tables = build_tables(log, &mut scan, &mut pending, &options)?;

    mend_headers(&*medium, &segments, &scan)?;
    persist_kept(&*medium, &segments, &scan)?;
    let mut marks = Marks::open(&*opened.directory, id, &found);
    opened.meta.marks = marks.is_some();
    opened.meta = note_cut(&*opened.directory, &*medium, &opened.meta, &scan)?;
    if let Some(marks) = &mut marks {
        marks.begin(scan.cut.epoch_next, scan.horizon, &scan.epochs, &found);
    }
    let cache = open_cache(&medium, &tables.domain, &options)?;
    adopt_segments(&segments, &cache, &scan, &tables.image_segments)?;
    let staging = {
        // A log in memory has none, and an older file goes.
        let bytes = if cache.is_direct() { 0 } else { staging::bytes_for(&options) };
        let of = (&opened.meta, options.random.next_u64());
        let at = (tables.domain.register(), scan.horizon.stream(Stream::User));
        StagingArea::create(&*opened.directory, of, bytes, at)?
    };
    let segments_kept = scan.kept.len();
    let core = assemble(opened, options, segments, cache, (tables, staging, marks), &mut scan);
    core.pending.recovered(pending.resolution, pending.at);
    pending.units.into_iter().for_each(|unit| core.adopt_pending(unit));
    let elapsed = core.options.clock.monotonic().saturating_sub(started);
    core.counters.recovery_us.set(elapsed.as_micros() as u64);
    report(&core, &scan, segments_kept);
    Ok(core)
}

/// What the log makes in memory.
struct Tables {
    domain: Arc<EpochDomain>,
    registry: Registry,
    counters: Counters,
    images: Images,
    image_segments: Vec<ImageSegment>,
    /// For each segment that counts the collections with records in it.
    collections: Vec<Vec<u32>>,
}

fn build_tables(
    log: Log<'_>,
    scan: &mut Outcome,
    pending: &mut FoundPending,
    options: &Options,
) -> Result<Tables, StorageError> {
    let segments = log.segments;
    let threads = options.open_threads.max(1);
    let domain = EpochDomain::new();
    let builder = Builder::new(domain.clone(), segments, threads, pending.resolution.clone());
    let collections = add_segments(&builder, scan, threads, &*options.clock)?;
    let summary_bytes = scan.kept.iter().map(|kept| kept.contents.len()).sum();
    crate::memory::check_recovery(builder.records(), summary_bytes, options.memory_bytes_max)?;
    let counters = Counters::default();
    counters.recovery_bytes.set(scan.bytes_read);
    counters.recovery_records.set(builder.records());
    let registry = Registry::default();
    let found = images::find(log, scan.images.clone(), (pending.resolved_by, scan.cut.seq))?;
    scan.cuts_used.extend(&found.cuts_used);
    let changed = builder.finish(&registry, &found.since());
    pending.keep(&registry, segments, &domain);
    keep_images(segments, scan, &found);
    let image_segments = found.segments.clone();
    let images = Images::new(scan.cut.seq, found, changed);
    Ok(Tables { domain, registry, counters, images, image_segments, collections })
}

/// The cache may read what counts; where nothing is live, nothing counts.
fn adopt_segments(
    segments: &Segments,
    cache: &SegmentCache,
    scan: &Outcome,
    images: &[ImageSegment],
) -> Result<(), StorageError> {
    for kept in &scan.kept {
        if segments.get(kept.segment).live() == 0 {
            segments.free(kept.segment);
        } else {
            cache.adopt_segment(kept.segment, kept.end).map_err(crate::io_error)?;
        }
    }
    for image in images {
        cache.adopt_segment(image.segment, image.end).map_err(crate::io_error)?;
    }
    Ok(())
}

/// The engine that goes on where the log ends. What the scan has kept of segments is the engine's then.
fn assemble(
    opened: Opened,
    options: Options,
    segments: Segments,
    cache: SegmentCache,
    (tables, staging, marks): (Tables, Option<StagingArea>, Option<Marks>),
    scan: &mut Outcome,
) -> Arc<Core> {
    let Opened { directory, lock: directory_lock, meta, medium } = opened;
    let faults = directory.faults().clone();
    let (horizon, epoch_next) = (scan.horizon, scan.epoch_next);
    let user = horizon.stream(Stream::User);
    let recovered = Recovered::new(std::mem::take(&mut scan.kept), tables.collections);
    Arc::new_cyclic(|core| Core {
        acks: Acks::new(core.clone(), scan.cut.seq),
        options,
        directory,
        directory_lock: Mutex::new(Some(directory_lock)),
        faults,
        medium,
        domain: tables.domain,
        cache,
        verified: Verified::new(),
        segments,
        registry: tables.registry,
        head: Mutex::new(Head::new(scan.cut.seq, user)),
        visible: AtomicU64::new(scan.cut.seq),
        snapshots: Default::default(),
        pending: Default::default(),
        claims: Default::default(),
        preparing: Mutex::new(()),
        flushing: Mutex::new(Flushing::new(scan.cut.seq, user)),
        flush_asked: AtomicU64::new(0),
        staging,
        marks,
        sealing: Mutex::new(()),
        syncing: Mutex::new(()),
        durable: Mutex::new(horizon),
        cleaner_written: Mutex::new(horizon.cleaner()),
        cleaner: Mutex::new(Cleaner::default()),
        cleaner_kick: Kick::default(),
        ahead_kick: Kick::default(),
        freed_kick: Kick::default(),
        reap: Mutex::default(),
        epoch_next: AtomicU64::new(epoch_next),
        meta: Mutex::new(meta),
        scratch: Mutex::default(),
        memory: Default::default(),
        images: Mutex::new(tables.images),
        recovered: Mutex::new(Arc::new(recovered)),
        counters: tables.counters,
    })
}

/// Answers for each segment the collections with records in it.
fn add_segments(
    builder: &Builder<'_>,
    scan: &Outcome,
    threads: usize,
    clock: &dyn Clock,
) -> Result<Vec<Vec<u32>>, StorageError> {
    let of = scan.kept.len();
    let message = "Building address tables";
    let progress = Progress::new(clock, "STORAGE", message, "segments", of as u64);
    parallel::try_map(threads, of, |n| {
        let Some(kept) = scan.kept.get(n) else { return Ok(Vec::new()) };
        let collections = builder.add_segment(kept)?;
        progress.add(1, kept.contents.len(), |attr| attr);
        Ok(collections)
    })
}

/// Makes both copies of each header what this recovery goes by. A segment is opened again by storing one
/// copy after the other: were the second still torn, or of an earlier epoch, a crash while the first is
/// stored would leave none, or the old contents. [`persist_kept`] makes it durable.
fn mend_headers(
    medium: &dyn Medium,
    segments: &Segments,
    scan: &Outcome,
) -> Result<(), StorageError> {
    if scan.copies.is_empty() {
        return Ok(());
    }
    // After the death of the process alone the copy to go by may not be durable yet.
    for (header, _) in &scan.copies {
        let at = segments.file_offset(header.segment);
        let len = u64::from(SEGMENT_HEADER_BYTES);
        medium.persist(at, len, "recovery.header.persist").map_err(crate::io_error)?;
    }
    medium.drain("recovery.header.drain").map_err(crate::io_error)?;
    scan.copies.iter().try_for_each(|(header, copy)| {
        let bytes = header.encode();
        let Some(bytes) = bytes.get(..HEADER_END) else { return Ok(()) };
        let at = segments.file_offset(header.segment) + u64::from(*copy);
        medium.store(at, &[IoSlice::new(bytes)]).map_err(crate::io_error)
    })
}

/// Asks that what this recovery goes by and what may not be durable yet be made so: after the death of
/// the process alone it may be in the processor's caches. Headers say which old contents are gone.
fn persist_kept(
    medium: &dyn Medium,
    segments: &Segments,
    scan: &Outcome,
) -> Result<(), StorageError> {
    let persist = |segment, len| {
        medium
            .persist(segments.file_offset(segment), u64::from(len), "recovery.persist")
            .map_err(crate::io_error)
    };
    for segment in 0..segments.usage().count {
        persist(segment, SEGMENT_HEADER_BYTES)?;
    }
    let read_whole = |kept: &&scan::Kept| matches!(kept.contents, Contents::Records(_));
    scan.kept.iter().filter(read_whole).try_for_each(|kept| persist(kept.segment, kept.end))
}

/// Image segments that are of use stay, the others are free.
fn keep_images(segments: &Segments, scan: &Outcome, found: &FoundImages) {
    for header in &scan.images {
        match found.segments.iter().find(|kept| kept.epoch == header.epoch) {
            Some(kept) => {
                let segment = segments.get(kept.segment);
                segment.opened(kept.epoch, Stream::Image);
                segment.sealed(kept.end, 0);
            }
            None => segments.free(header.segment),
        }
    }
}

/// Makes what was kept durable, then notes where the log ends.
fn note_cut(
    directory: &dyn Directory,
    medium: &dyn Medium,
    before: &Meta,
    scan: &Outcome,
) -> Result<Meta, StorageError> {
    medium.drain("recovery.drain").map_err(crate::io_error)?;
    let (cut, horizon, epoch_next) = (&scan.cut, &scan.horizon, scan.epoch_next);
    let mut meta = before.clone();
    meta.clean = false;
    meta.epoch_next = epoch_next;
    meta.horizon = *horizon;
    meta.cuts.retain(|before| scan.cuts_used.contains(&before.epoch_next));
    // A recovery that came no further than this decided the same.
    meta.cuts.retain(|before| before.epoch_next != cut.epoch_next);
    meta.cuts.push(*cut);
    directory.replace_file(META_FILE, &meta.encode(), "recovery.meta").map_err(crate::io_error)?;
    Ok(meta)
}

fn open_cache(
    medium: &Arc<dyn Medium>,
    domain: &Arc<EpochDomain>,
    options: &Options,
) -> Result<SegmentCache, StorageError> {
    let config = CacheConfig {
        segment_bytes: options.segment_bytes as usize,
        segments_max: options.segments_max(),
        budget_bytes: options.cache_bytes,
        io_threads: options.read_threads,
        name: "pmlog-cache",
        ..CacheConfig::default()
    };
    SegmentCache::new(medium.clone(), domain.clone(), config).map_err(crate::io_error)
}

/// Says by which path writes become durable, and what that promises.
fn report_medium(medium: &dyn Medium) {
    let kind = medium.kind();
    let attr = Attr::new()
        .str("kind", kind.name())
        .str("description", medium.describe())
        .str("durableBy", kind.durable_by())
        .str("survivesPowerLoss", kind.power_loss());
    const CTX: &str = "initandlisten";
    match kind {
        MediumKind::SimulatedDax => {
            let message =
                "Memory stands in for persistent memory: a loss of power may lose anything";
            log::warning("STORAGE", 6_200_021, CTX, message, attr);
        }
        _ => log::info("STORAGE", 6_200_020, CTX, "Log medium", attr),
    }
}

/// Says so if the mark file can't serve, though there was one.
fn report_marks(found: &FoundMarks, expected: bool) {
    if let Some(why) = found.missing(expected) {
        let message = "The mark file can't be used. Damage of what was synced before the last process ended may \
                       be taken for the end of the log. It is made anew";
        log::warning("STORAGE", 6_200_025, "initandlisten", message, Attr::new().str("why", why));
    }
}

fn report(core: &Core, scan: &Outcome, segments_kept: usize) {
    let stores = core.registry.read().stores.len();
    log::info(
        "STORAGE",
        6_200_002,
        "initandlisten",
        "Recovered the log",
        Attr::new()
            .str("medium", core.medium.describe())
            .num("segments", segments_kept)
            .num("records", core.counters.recovery_records.get())
            .num("collections", stores)
            .num("lastCommit", scan.cut.seq)
            .num("droppedRecords", scan.dropped_records)
            .num("durationMicros", core.counters.recovery_us.get()),
    );
}

impl Core {
    /// Ends a clean shutdown: everything is durable and sealed, and the metadata file says so.
    pub fn close(&self) -> Result<(), StorageError> {
        self.check_alive()?;
        lock(&self.head).close()?;
        self.close_cleaner()?;
        self.flush_now()?;
        self.seal_full()?;
        self.sync_all("close.drain")?;
        self.write_images()?;
        self.sync_all("close.drain")?;
        self.sync_marks();
        let mut horizon = self.horizon();
        horizon.streams[Stream::User as usize] = lock(&self.head).position();
        let mut meta = lock(&self.meta);
        meta.clean = true;
        meta.epoch_next = self.epoch_next.load(Ordering::Acquire);
        meta.horizon = horizon;
        self.directory
            .replace_file(META_FILE, &meta.encode(), "close.meta")
            .map_err(crate::io_error)?;
        // Nothing may follow what the metadata file says is all.
        self.acks.fail("the engine has been closed");
        if let Some(directory_lock) = lock(&self.directory_lock).take() {
            directory_lock.release_clean().map_err(crate::io_error)?;
        }
        Ok(())
    }
}
