//! Opens a directory: from the log on the medium to stores in memory.
//!
//! 1. [`directory`]: the lock, the metadata file, refusals.
//! 2. [`scan`]: which segments count, what is durable, where the log ends.
//! 3. [`build`]: the address tables, from summaries and records.
//! 4. Make the kept records durable, note the cut, and continue in new segments.
//!
//! Invariants:
//! - First, the contents of the staging file are copied into the log. Apart from that, the medium does not change
//!   before step 2 has decided. After that, recovery only replaces the metadata file, and header copies that differ
//!   from the copy that was used. So a crash during a recovery changes nothing that counts, and the next recovery
//!   decides the same.
//! - Existing segments are never appended to.

mod build;
mod directory;
mod frames;
mod resolutions;
mod scan;

use crate::acks::Acks;
use crate::core::Core;
use crate::counters::Counters;
use crate::data_directory::DataDirectory;
use crate::durability::Durability;
use crate::flushing::Flushing;
use crate::format::meta::Meta;
use crate::format::segment::HEADER_END;
use crate::format::{META_FILE, SEGMENT_HEADER_BYTES, Stream};
use crate::frames::Frames;
use crate::head::{Head, Unframed};
use crate::images::{self, FoundImages, ImageSegment, Images};
use crate::marks::{FoundMarks, Marks};
use crate::on_medium::{Kept, Log};
use crate::options::Options;
use crate::progress::Progress;
use crate::reader::Contents;
use crate::recovered::Recovered;
use crate::registry::Registry;
use crate::segments::Segments;
use crate::snapshots::Snapshots;
use crate::staging::{self, CommitStaging};
use crate::start::Start;
use crate::verified::Verified;
use kauri_base::log::{self, Attr};
use kauri_base::sync::{Arc, Weak};
use kauri_base::{Clock, ErrorCode};
use kauri_medium::{
    CacheConfig, Directory, EpochDomain, Medium, MediumKind, SegmentCache, parallel,
};
use kauri_storage::StorageError;
use std::io::IoSlice;

pub use build::Builder;
pub use directory::Opened;
pub use frames::settle;
pub use resolutions::FoundPending;
pub use scan::{Outcome, Place, Scan, Stop};

/// Opens the engine of a directory.
pub fn open(directory: Arc<dyn Directory>, options: Options) -> kauri_base::Result<Arc<Core>> {
    let opened = Opened::open(directory, &options)?;
    report_medium(&*opened.medium);
    recover(opened, options)
}

/// The error of a start whose scan ended early. An error that has its own way out begins like a refusal.
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
    let frames = settle(log, &mut scan)?;
    let mut pending = FoundPending::find(log, &scan.kept)?;
    let tables = build_tables(log, &mut scan, (&mut pending, frames.applied), &options)?;

    mend_headers(&*medium, &segments, &scan)?;
    persist_kept(&*medium, &segments, &scan)?;
    let marks = Marks::open(&*opened.directory, id, &found);
    opened.meta.marks = marks.is_some();
    opened.meta = note_cut(&*opened.directory, &*medium, &opened.meta, &scan)?;
    if let Some(marks) = &marks {
        marks.begin(scan.cut.epoch_next, scan.horizon, &scan.epochs, &found);
    }
    let cache = open_cache(&medium, &tables.domain, &options)?;
    let (unframed, applied) = (frames.unframed, frames.applied);
    let frames = Frames::new(frames);
    adopt_segments(&segments, &cache, &scan, (&tables.image_segments, &frames))?;
    let staging = {
        // A log in memory has none, and an older file goes.
        let bytes = if cache.is_direct() { 0 } else { staging::bytes_for(&options) };
        let of = (&opened.meta, options.random.next_u64());
        let at = (tables.domain.register(), scan.horizon.stream(Stream::User));
        CommitStaging::create(&*opened.directory, of, bytes, at)?
    };
    let segments_kept = scan.kept.len();
    let core = assemble(
        opened,
        options,
        segments,
        cache,
        (tables, staging, marks, (frames, unframed, applied)),
        &mut scan,
    );
    core.pending.recovered(pending.resolution, pending.at);
    pending.units.into_iter().for_each(|unit| core.adopt_pending(unit));
    let elapsed = core.options.clock.monotonic().saturating_sub(started);
    core.counters.recovery_us.set(elapsed.as_micros() as u64);
    report(&core, &scan, segments_kept);
    Ok(core)
}

/// The state that the log describes, in memory.
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
    (pending, applied): (&mut FoundPending, u64),
    options: &Options,
) -> Result<Tables, StorageError> {
    let segments = log.segments;
    let threads = options.open_threads.max(1);
    let domain = EpochDomain::new();
    let counts = (pending.resolution.clone(), applied);
    let builder = Builder::new(domain.clone(), segments, threads, counts);
    let collections = add_segments(&builder, scan, threads, &*options.clock)?;
    let summary_bytes = scan.kept.iter().map(|kept| kept.contents.len()).sum();
    crate::memory::check_recovery(builder.records(), summary_bytes, options.memory_bytes_max)?;
    let counters = Counters::default();
    counters.recovery_bytes.set(scan.bytes_read);
    counters.recovery_records.set(builder.records());
    let registry = Registry::default();
    let found = images::find(log, scan.images.clone(), (pending.resolved_by, applied))?;
    scan.cuts_used.extend(&found.cuts_used);
    let changed = builder.finish(&registry, &found.since());
    pending.keep(&registry, segments, &domain);
    keep_images(segments, scan, &found);
    let image_segments = found.segments.clone();
    let images = Images::new(applied, found, changed);
    Ok(Tables { domain, registry, counters, images, image_segments, collections })
}

/// The cache may read what counts. Segments without live records have nothing that counts, unless they have frames.
fn adopt_segments(
    segments: &Segments,
    cache: &SegmentCache,
    scan: &Outcome,
    (images, frames): (&[ImageSegment], &Frames),
) -> Result<(), StorageError> {
    for kept in &scan.kept {
        let is_retained = kept.stream == Stream::User && frames.retains(kept.epoch);
        if segments.get(kept.segment).live() == 0 && !is_retained {
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

/// What a start has found or made besides the log and its cache.
type Found = (Tables, Option<CommitStaging>, Option<Marks>, (Frames, Unframed, u64));

/// The engine that continues where the log ends. It takes over the segments that the scan has kept.
fn assemble(
    opened: Opened,
    options: Options,
    segments: Segments,
    cache: SegmentCache,
    (tables, staging, marks, (frames, unframed, applied)): Found,
    scan: &mut Outcome,
) -> Arc<Core> {
    let Opened { directory, lock: directory_lock, meta, medium } = opened;
    let (horizon, seq) = (scan.horizon, scan.cut.seq);
    let user = horizon.stream(Stream::User);
    let recovered = Recovered::new(std::mem::take(&mut scan.kept), tables.collections);
    segments.set_epoch_next(scan.epoch_next);
    Arc::new_cyclic(|core: &Weak<Core>| Core {
        weak: core.clone(),
        acks: Acks::new(core.clone(), seq),
        directory: DataDirectory::new(directory, directory_lock, meta, medium),
        domain: tables.domain,
        cache,
        verified: Verified::new(),
        segments,
        registry: tables.registry,
        head: Head::new((seq, user), unframed, (frames.has_begun(), applied)),
        durability: Durability::new(horizon, marks),
        flushing: Flushing::new(seq, user),
        staging,
        snapshots: Snapshots::new(options.versions_bytes_max),
        pending: Default::default(),
        frames,
        claims: Default::default(),
        files: Default::default(),
        cleaner: Default::default(),
        preparer: Default::default(),
        scratches: Default::default(),
        memory: Default::default(),
        start: Start::new(tables.images, recovered),
        counters: tables.counters,
        options,
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

/// Makes both copies of each header equal to the one that this recovery used. A segment is opened again by storing
/// one copy after the other. If the second copy were still torn, or of an earlier epoch, a crash during the store
/// of the first would leave no copy, or the old contents. [`persist_kept`] makes it durable.
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

/// Makes durable what this recovery used and what may not be durable yet: after the death of the process alone it
/// may be in the processor's caches. Headers say which old contents are gone.
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
    let read_whole = |kept: &&Kept| matches!(kept.contents, Contents::Records(_));
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

/// Makes the kept records durable, then notes the end of the log.
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
                "Ordinary memory simulates persistent memory: a power loss may lose all data";
            log::warning("STORAGE", 6_200_021, CTX, message, attr);
        }
        _ => log::info("STORAGE", 6_200_020, CTX, "Log medium", attr),
    }
}

/// Says so if the mark file can't serve, though there was one.
fn report_marks(found: &FoundMarks, expected: bool) {
    if let Some(why) = found.missing(expected) {
        let message = "Mark file is unusable and is created again: damage of data that the last process synced may be \
                       mistaken for the end of the log";
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
            .str("medium", core.directory.medium().describe())
            .num("segments", segments_kept)
            .num("records", core.counters.recovery_records.get())
            .num("collections", stores)
            .num("lastCommit", scan.cut.seq)
            .num("droppedRecords", scan.dropped_records)
            .num("durationMicros", core.counters.recovery_us.get()),
    );
}
