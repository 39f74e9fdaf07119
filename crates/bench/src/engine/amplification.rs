//! Bytes written to the medium per byte of documents, and the space of documents.
//!
//! Three counts: the engine's own, the kernel's for this process, and the device's, which includes other processes.
//! The figure is the first one for pmlog, which writes its bytes once, and the second one for WiredTiger.

use super::subject::{Opening, Scratch, Subject, device_written_bytes, process_written_bytes};
use super::table::{Goal, Line};
use super::workload::{Choice, Collection, Documents, Reader};
use super::{Kind, Settings};
use kauri_base::Result;
use std::time::{Duration, Instant};

/// The name of the sparse regime's line.
pub const SPARSE: &str = "write amplification, 300 updates/s";

/// Segments of a log of limited size, at least: few enough bytes to fill in a short time, and so many
/// segments that the open and the reserved ones matter as little as in a large log.
const SEGMENTS: u64 = 256;
/// The same of one that is filled again and again. At 85 % use each percent of the log that is open,
/// prepared or reserved adds 0.3 to the figure; these are eight to ten segments.
const SEGMENTS_OVERWRITTEN: u64 = 2048;
/// What a record takes beside its document: its header, and its entry in the summary, about.
pub const RECORD_OVERHEAD: u64 = 37;
/// Inserts in a unit.
const GROUP: i64 = 16;

/// Counters before something is written.
struct Counters {
    given: u64,
    process: u64,
    device: Option<u64>,
    documents: u64,
}

impl Counters {
    fn take(subject: &Subject, settings: &Settings) -> Counters {
        Counters {
            given: subject.given_bytes(),
            process: process_written_bytes(),
            device: device_written_bytes(&settings.directory),
            documents: 0,
        }
    }

    /// Brings everything to the medium and divides by the documents' bytes.
    fn divide(&self, subject: &Subject, settings: &Settings, line: &mut Line) -> Result<()> {
        subject.checkpoint()?;
        let bytes = (self.documents * settings.document_bytes as u64).max(1) as f64;
        let now = Counters::take(subject, settings);
        let given = (now.given - self.given) as f64 / bytes;
        let process = (now.process - self.process) as f64 / bytes;
        // WiredTiger writes blocks to the file system's cache that it frees again before they are
        // synced; what counts is what is left of that. In memory nothing is.
        let counts =
            if subject.kind == Kind::WiredTiger && process > 0.0 { process } else { given };
        line.set(subject.kind, counts);
        let device = now.device.zip(self.device).map(|(now, then)| (now - then) as f64 / bytes);
        let device = device.map_or("no device".to_owned(), |device| format!("device {device:.2}"));
        line.remark(&format!(
            "{}: {given:.2} by its own count, {process:.2} by the kernel's for the process, {device}",
            subject.kind.name()
        ));
        Ok(())
    }
}

/// Bytes of a segment of a log of this size.
pub fn segment_bytes(log_bytes: u64) -> u32 {
    part_of(log_bytes, SEGMENTS)
}

fn part_of(log_bytes: u64, segments: u64) -> u32 {
    1 << (log_bytes / segments).clamp(128 << 10, 64 << 20).ilog2()
}

/// Inserts in groups, nothing else.
pub fn insert(settings: &Settings) -> Result<Vec<Line>> {
    let mut line =
        Line::new("write amplification, inserts in groups of 16", "x", Goal::AtMost(1.05))
            .anchored(2.16, 2.16);
    let mut space = Line::new("space after inserts / documents", "x", Goal::None);
    for kind in &settings.kinds {
        let scratch = Scratch::new(&settings.directory)?;
        let bytes = settings.documents * settings.document_bytes as u64;
        let opening = Opening {
            cache_bytes: settings.cache_bytes(),
            segment_bytes: segment_bytes(bytes * 4),
            checkpoint_s: settings.checkpoint_s,
            ..Opening::default()
        };
        let subject = Subject::open(*kind, scratch.path(), &opening)?;
        let collection = Collection::create(&subject)?;
        let mut docs = Documents::new(settings.document_bytes, settings.seed);
        let mut counters = Counters::take(&subject, settings);
        collection.load(&mut docs, 0, settings.documents as i64, GROUP)?;
        counters.documents = settings.documents;
        counters.divide(&subject, settings, &mut line)?;
        space.set(*kind, subject.space_bytes() as f64 / bytes as f64);
        drop(collection);
        subject.close()?;
    }
    space.remark("WiredTiger's journal not counted");
    Ok(vec![line, space])
}

/// Overwrites at 85 % use. WiredTiger has no size to fill; it gets the same updates.
pub fn overwrite(settings: &Settings, zipf: bool) -> Result<Vec<Line>> {
    let (name, goal) = if zipf { ("Zipf .99", 2.5) } else { ("uniform", 3.8) };
    let fill = settings.fill * 100.0;
    let title = format!("write amplification, {name} updates at {fill:.0} % use");
    let mut line = Line::new(title, "x", Goal::AtMost(goal));
    let mut space =
        Line::new(format!("space, {name} at {fill:.0} % use / documents"), "x", Goal::AtMost(1.22));
    let documents = settings.overwritten;
    for kind in &settings.kinds {
        let scratch = Scratch::new(&settings.directory)?;
        let bytes = documents * settings.document_bytes as u64;
        let records = documents * (settings.document_bytes as u64 + RECORD_OVERHEAD);
        let segment = part_of((records as f64 / settings.fill) as u64, SEGMENTS_OVERWRITTEN);
        let segments = ((records as f64 / settings.fill) / f64::from(segment)).ceil() as u64;
        let opening = Opening {
            cache_bytes: settings.cache_bytes_default(),
            compressed: false,
            segment_bytes: segment,
            log_bytes_max: segments * u64::from(segment),
            checkpoint_s: settings.checkpoint_s,
            ..Opening::default()
        };
        let subject = Subject::open(*kind, scratch.path(), &opening)?;
        let collection = Collection::create(&subject)?;
        let mut docs = Documents::new(settings.document_bytes, settings.seed);
        collection.load(&mut docs, 0, documents as i64, GROUP)?;
        subject.engine.sync()?;
        let mut choice = match zipf {
            true => Choice::zipf(documents, settings.seed),
            false => Choice::uniform(documents, settings.seed),
        };
        let mut reader = Reader::new(&*subject.engine);
        let mut update = |count: u64| -> Result<()> {
            for _ in 0..count {
                collection.update(&mut reader, &mut docs, choice.next())?;
            }
            Ok(())
        };
        // First until cleaning is in its stride.
        update(documents * 3)?;
        subject.checkpoint()?;
        let mut counters = Counters::take(&subject, settings);
        update(documents * 2)?;
        counters.documents = documents * 2;
        counters.divide(&subject, settings, &mut line)?;
        space.set(*kind, subject.space_bytes() as f64 / bytes as f64);
        if *kind == Kind::PmLog {
            let live = records as f64 / opening.log_bytes_max as f64;
            line.remark(&format!("{segments} segments, {:.1} % of them live", live * 100.0));
        }
        drop((collection, reader));
        subject.close()?;
    }
    space.remark("WiredTiger's journal not counted");
    Ok(vec![line, space])
}

/// Dense updates a second: what is known of WiredTiger was measured at this rate.
const DENSE: u64 = 60_000;
/// Sparse ones.
const SPARSE_RATE: u64 = 300;

/// Uniform updates for a time, few or many a second.
pub fn update(settings: &Settings, sparse: bool) -> Result<Vec<Line>> {
    let mut line = match sparse {
        true => Line::new(SPARSE, "x", Goal::AtMost(2.2)).anchored(27.5, 27.5),
        false => {
            let name = format!("write amplification, {DENSE} updates/s");
            Line::new(name, "x", Goal::None).anchored(1.6, 1.6)
        }
    };
    let per_second = if sparse { SPARSE_RATE } else { DENSE };
    let mut rate = Line::new("dense updates, reached", "1/s", Goal::None);
    for kind in &settings.kinds {
        let scratch = Scratch::new(&settings.directory)?;
        let opening = Opening {
            cache_bytes: settings.cache_bytes_default(),
            checkpoint_s: settings.checkpoint_s,
            // With snappy, what does not compress is in blocks of up to 128 KB at first: half as good.
            compressed: false,
            ..Opening::default()
        };
        let subject = Subject::open(*kind, scratch.path(), &opening)?;
        let collection = Collection::create(&subject)?;
        let mut docs = Documents::new(settings.document_bytes, settings.seed);
        collection.load(&mut docs, 0, settings.documents as i64, GROUP)?;
        subject.checkpoint()?;
        drop(collection);
        subject.close()?;
        // Opened again: right after a load WiredTiger holds pages of up to 10 MB, and writes all of
        // one for one changed record.
        let subject = Subject::open(*kind, scratch.path(), &opening)?;
        let collection = Collection::attach(&subject)?;
        let mut choice = Choice::uniform(settings.documents, settings.seed);
        let mut reader = Reader::new(&*subject.engine);
        let mut counters = Counters::take(&subject, settings);
        let began = Instant::now();
        let mut done = 0u64;
        while began.elapsed() < settings.updating {
            // Some at a time: a sleep takes longer than a dense update's share of time.
            for _ in 0..(per_second / 1000).max(1) {
                collection.update(&mut reader, &mut docs, choice.next())?;
                done += 1;
            }
            pause_until(began, Duration::from_secs_f64(done as f64 / per_second as f64));
        }
        let seconds = began.elapsed().as_secs_f64();
        counters.documents = done;
        counters.divide(&subject, settings, &mut line)?;
        rate.set(*kind, done as f64 / seconds);
        drop((collection, reader));
        subject.close()?;
    }
    line.remark(&format!(
        "{} documents, {} s, WiredTiger's checkpoints every {} s, blocks of 32 KB without snappy",
        settings.documents,
        settings.updating.as_secs_f64(),
        settings.checkpoint_s
    ));
    Ok(if sparse { vec![line] } else { vec![line, rate] })
}

/// Sleeps until so long after the beginning: the pace of updates that come at a given rate.
pub fn pause_until(began: Instant, due: Duration) {
    if let Some(left) = due.checked_sub(began.elapsed()) {
        std::thread::sleep(left);
    }
}
