//! Latency of commits.

use super::amplification::{RECORD_OVERHEAD, pause_until, segment_bytes};
use super::subject::{Opening, Scratch, Subject};
use super::table::{Goal, Line};
use super::workload::{Choice, Collection, Documents, Reader};
use super::{Kind, Settings};
use crate::compare::median;
use crate::histogram::Histogram;
use kauri_base::{CollectionId, Error, ErrorCode, RecordId, Result, Ticket};
use kauri_storage::{Durability, OpKind, WriteUnit};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

const MANY: usize = 64;
/// Threads that writers are tasks on.
const WORKERS: usize = 2;
/// Updates a second while the cleaner is watched.
const PACE: u64 = 5_000;
/// Slices are longer there, so that there is something to clean.
const CLEANER_SLICES: u32 = 4;

/// A collection that comes and goes before.
const OTHER: CollectionId = CollectionId(11);
/// So many times the documents are written to it: more than will be measured.
const USED_TIMES: u64 = 4;
/// Segments that are open or kept ready.
const KEPT_SEGMENTS: u64 = 4;
/// The cleaner gives segments back within this time.
const GIVEN_BACK_MAX: Duration = Duration::from_secs(60);

/// An engine with an empty collection.
struct Side {
    kind: Kind,
    collection: Collection,
    next_id: AtomicI64,
    subject: Subject,
    _scratch: Scratch,
}

impl Side {
    fn open(kind: Kind, directory: &Path, opening: &Opening) -> Result<Side> {
        let scratch = Scratch::new(directory)?;
        let subject = Subject::open(kind, scratch.path(), opening)?;
        let collection = Collection::create(&subject)?;
        Ok(Side { kind, collection, next_id: AtomicI64::new(0), subject, _scratch: scratch })
    }

    /// Fills a part of the log and gives it back, so that what follows uses segments again.
    fn use_log(&self, settings: &Settings) -> Result<()> {
        const GROUP: u64 = 16;
        let commit = |unit: &mut WriteUnit<'_>| self.collection.commit(unit).map(drop);
        let mut docs = Documents::new(settings.document_bytes, settings.seed);
        let mut unit = WriteUnit::new();
        unit.push(OTHER, RecordId(0), OpKind::CreateStore);
        commit(&mut unit)?;
        for group in 0..USED_TIMES * settings.documents / GROUP {
            unit.clear();
            for id in 0..GROUP {
                unit.insert(OTHER, docs.make((group * GROUP + id) as i64).to_vec());
            }
            commit(&mut unit)?;
        }
        unit.clear();
        unit.push(OTHER, RecordId(0), OpKind::DropStore);
        commit(&mut unit)?;
        self.subject.engine.sync()?;
        let began = Instant::now();
        let total = |name| self.subject.total(name);
        while total("segmentsFree") + KEPT_SEGMENTS < total("segments") {
            if began.elapsed() > GIVEN_BACK_MAX {
                let message = "a dropped collection's segments are not given back";
                return Err(Error::new(ErrorCode::ExceededTimeLimit, message));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn next_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// One writer's commits, handed to the kernel (or to memory that persists) each.
    fn written(&self, settings: &Settings) -> Result<Histogram> {
        let mut docs = Documents::new(settings.document_bytes, settings.seed);
        let mut histogram = Histogram::default();
        let began = Instant::now();
        while began.elapsed() < settings.slice {
            let id = self.next_id();
            let doc = docs.make(id).to_vec();
            let start = Instant::now();
            self.collection.insert_doc(id, &doc)?;
            histogram.record(start.elapsed().as_nanos() as u64);
        }
        Ok(histogram)
    }

    /// Durable commits a second of so many writers.
    fn durable(&self, settings: &Settings, writers: usize) -> Result<f64> {
        let (collection, next_id) = (&self.collection, &self.next_id);
        let began = Instant::now();
        let counts = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..writers)
                .map(|writer| {
                    scope.spawn(move || -> Result<u64> {
                        let seed = settings.seed + writer as u64;
                        let mut docs = Documents::new(settings.document_bytes, seed);
                        let mut count = 0;
                        // Once at least, however late this thread was started.
                        while count == 0 || began.elapsed() < settings.slice {
                            let id = next_id.fetch_add(1, Ordering::Relaxed);
                            let ticket = collection.insert(&mut docs, id)?;
                            ticket.wait(Durability::Durable)?;
                            count += 1;
                        }
                        Ok(count)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(0))).collect::<Vec<_>>()
        });
        let total: u64 = counts.into_iter().sum::<Result<u64>>()?;
        Ok(total as f64 / began.elapsed().as_secs_f64())
    }

    /// The same with writers as tasks, as a server's workers run them: two threads, each with half of
    /// the commits under way, that flush after a round of commits and are woken when some are durable.
    fn durable_tasks(&self, settings: &Settings, writers: usize) -> Result<f64> {
        let (collection, next_id) = (&self.collection, &self.next_id);
        let began = Instant::now();
        let counts = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WORKERS)
                .map(|worker| {
                    let share = (writers + WORKERS - 1 - worker) / WORKERS;
                    scope.spawn(move || work(collection, next_id, settings, worker, share, began))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(0))).collect::<Vec<_>>()
        });
        let total: u64 = counts.into_iter().sum::<Result<u64>>()?;
        Ok(total as f64 / began.elapsed().as_secs_f64())
    }

    fn close(self) -> Result<()> {
        drop(self.collection);
        self.subject.close()
    }
}

/// One of the threads: keeps so many commits under way.
fn work(
    collection: &Collection,
    next_id: &AtomicI64,
    settings: &Settings,
    worker: usize,
    tasks: usize,
    began: Instant,
) -> Result<u64> {
    let mut docs = Documents::new(settings.document_bytes, settings.seed + worker as u64);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut waiting: Vec<Ticket> = Vec::with_capacity(tasks);
    let mut count = 0;
    // Once at least, however late this thread was started.
    while count == 0 && waiting.is_empty() || began.elapsed() < settings.slice {
        for _ in waiting.len()..tasks {
            let id = next_id.fetch_add(1, Ordering::Relaxed);
            match collection.insert(&mut docs, id)?.ticket(Durability::Durable) {
                Some(ticket) => waiting.push(ticket.clone()),
                None => count += 1,
            }
        }
        collection.engine.flush();
        let before = waiting.len();
        let mut failure = None;
        waiting.retain_mut(|ticket| match Pin::new(ticket).poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                failure = failure.take().or(result.err());
                false
            }
        });
        if let Some(error) = failure {
            return Err(error);
        }
        count += (before - waiting.len()) as u64;
        if waiting.len() == tasks {
            std::thread::park();
        }
    }
    count += waiting.len() as u64;
    waiting.into_iter().try_for_each(|ticket| ticket.wait())?;
    Ok(count)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Commits handed to the kernel, and synced ones of 1 and of 64 writers, these as the server would run
/// them: tasks of two workers, or a thread each if the engine blocks.
pub fn commit(settings: &Settings) -> Result<Vec<Line>> {
    let mut written = Line::new("commit of 1 KB, memory as PM, p50", "us", Goal::AtMost(1.0));
    let mut one = Line::new("durable commits, 1 writer", "1/s", Goal::None);
    let mut many = Line::new("durable commits, 64 writers", "1/s", Goal::None);
    let mut threads = Line::new("durable commits, 64 writers on threads", "1/s", Goal::None);
    let mut ratio = Line::new("durable commits, 64 writers / 1 writer", "x", Goal::AtLeast(20.0));
    let open = |kind: &Kind, directory: &Path, persistent_memory: bool| {
        let cache_bytes = settings.cache_bytes();
        let opening = Opening { cache_bytes, persistent_memory, ..Opening::default() };
        Side::open(*kind, directory, &opening)
    };
    let mut sides = Vec::new();
    for kind in &settings.kinds {
        sides.push((
            open(kind, &settings.memory_directory, true)?,
            open(kind, &settings.directory, false)?,
        ));
    }
    let mut figures = vec![[const { Vec::new() }; 4]; sides.len()];
    for _ in 0..settings.rounds {
        for ((memory, disk), figures) in sides.iter().zip(&mut figures) {
            let histogram = memory.written(settings)?;
            let [written, one, many, threads] = figures;
            written.push(histogram.percentile_ns(0.5) as f64 / 1000.0);
            one.push(disk.durable(settings, 1)?);
            let on_threads = disk.durable(settings, MANY)?;
            threads.push(on_threads);
            many.push(match disk.subject.engine.may_block() {
                true => on_threads,
                false => disk.durable_tasks(settings, MANY)?,
            });
        }
    }
    for ((memory, disk), figures) in sides.into_iter().zip(figures) {
        let [first, second, third, fourth] = figures;
        let (single, multiple) = (median(second), median(third));
        written.set(memory.kind, median(first));
        one.set(memory.kind, single);
        many.set(memory.kind, multiple);
        threads.set(memory.kind, median(fourth));
        ratio.set(memory.kind, multiple / single.max(f64::MIN_POSITIVE));
        memory.close()?;
        disk.close()?;
    }
    written.remark(
        "pmlog by stores and fences into mapped memory; WiredTiger by writes to files in memory",
    );
    many.remark("pmlog: tasks of two workers, as in the server; WiredTiger: a thread each");
    let sync = sync_time(&settings.directory)?;
    one.remark(&format!("a sync of one byte there takes {:.3} ms", sync.as_secs_f64() * 1e3));
    Ok(vec![written, one, many, threads, ratio])
}

/// Synced commits in a log whose segments have been written before, as they are once a log has reached its
/// size.
pub fn commit_reused(settings: &Settings) -> Result<Vec<Line>> {
    let mut one = Line::new("durable commits, log used before, 1 writer", "1/s", Goal::None);
    let mut many = Line::new("durable commits, log used before, 64 writers", "1/s", Goal::None);
    let mut ratio = Line::new("the same there, 64 writers / 1 writer", "x", Goal::AtLeast(20.0));
    one.remark("a file's first writes cost the file system more than later ones");
    if settings.kinds.contains(&Kind::PmLog) {
        let opening = Opening { cache_bytes: settings.cache_bytes(), ..Opening::default() };
        let side = Side::open(Kind::PmLog, &settings.directory, &opening)?;
        side.use_log(settings)?;
        let (mut ones, mut manies) = (Vec::new(), Vec::new());
        for _ in 0..settings.rounds {
            ones.push(side.durable(settings, 1)?);
            manies.push(side.durable_tasks(settings, MANY)?);
        }
        let (single, multiple) = (median(ones), median(manies));
        one.set(side.kind, single);
        many.set(side.kind, multiple);
        ratio.set(side.kind, multiple / single.max(f64::MIN_POSITIVE));
        side.close()?;
    }
    Ok(vec![one, many, ratio])
}

/// How long a sync of a small write takes in a directory.
pub fn sync_time(directory: &Path) -> Result<Duration> {
    let measured = || -> std::io::Result<Duration> {
        let path = directory.join(format!("kauri-bench-{}-sync", std::process::id()));
        let mut file = std::fs::File::create(&path)?;
        std::io::Write::write_all(&mut file, b"x")?;
        let began = Instant::now();
        file.sync_data()?;
        let time = began.elapsed();
        std::fs::remove_file(&path)?;
        Ok(time)
    };
    measured().map_err(|error| Error::new(ErrorCode::OperationFailed, error.to_string()))
}

/// An engine that is updated at a steady pace.
struct Paced {
    kind: Kind,
    side: Side,
    reader: Reader,
    docs: Documents,
    choice: Choice,
    histogram: Histogram,
    /// Of updates without a pace.
    closed: Histogram,
}

impl Paced {
    fn open(
        kind: Kind,
        settings: &Settings,
        documents: u64,
        opening: &Opening,
        warm: u64,
    ) -> Result<Paced> {
        let side = Side::open(kind, &settings.directory, opening)?;
        let mut docs = Documents::new(settings.document_bytes, settings.seed);
        side.collection.load(&mut docs, 0, documents as i64, 16)?;
        side.subject.checkpoint()?;
        let mut paced = Paced {
            kind,
            reader: Reader::new(&*side.subject.engine),
            side,
            docs,
            choice: Choice::uniform(documents, settings.seed),
            histogram: Histogram::default(),
            closed: Histogram::default(),
        };
        for _ in 0..warm {
            paced.update()?;
        }
        Ok(paced)
    }

    fn update(&mut self) -> Result<()> {
        let id = self.choice.next();
        self.side.collection.update(&mut self.reader, &mut self.docs, id)
    }

    fn slice(&mut self, time: Duration) -> Result<()> {
        let began = Instant::now();
        let mut count = 0u64;
        while began.elapsed() < time {
            let start = Instant::now();
            self.update()?;
            self.histogram.record(start.elapsed().as_nanos() as u64);
            count += 1;
            pause_until(began, Duration::from_secs_f64(count as f64 / PACE as f64));
        }
        Ok(())
    }

    /// As fast as it goes.
    fn closed_slice(&mut self, time: Duration) -> Result<()> {
        let began = Instant::now();
        let mut last = Duration::ZERO;
        while last < time {
            self.update()?;
            let now = began.elapsed();
            self.closed.record((now - last).as_nanos() as u64);
            last = now;
        }
        Ok(())
    }

    fn p99_us(&self) -> f64 {
        self.histogram.percentile_ns(0.99) as f64 / 1000.0
    }

    fn closed_p99_us(&self) -> f64 {
        self.closed.percentile_ns(0.99) as f64 / 1000.0
    }

    fn max_ms(&self) -> f64 {
        self.histogram.max_ns() as f64 / 1e6
    }

    fn close(self) -> Result<()> {
        drop(self.reader);
        self.side.close()
    }
}

/// Updates with the cleaner at work in a log that is 85 % full, beside one that has room and no
/// cleaner.
pub fn cleaner(settings: &Settings) -> Result<Vec<Line>> {
    let documents = settings.documents.min(100_000);
    let records = documents * (settings.document_bytes as u64 + RECORD_OVERHEAD);
    let segment = segment_bytes((records as f64 / settings.fill) as u64);
    let segments = (records as f64 / settings.fill / f64::from(segment)).ceil() as u64;
    let roomy = Opening {
        cache_bytes: settings.cache_bytes(),
        segment_bytes: segment,
        cleaner: false,
        checkpoint_s: settings.checkpoint_s,
        ..Opening::default()
    };
    let full = Opening { log_bytes_max: segments * u64::from(segment), cleaner: true, ..roomy };
    let mut on = Paced::open(Kind::PmLog, settings, documents, &full, documents * 2)?;
    let mut off = Paced::open(Kind::PmLog, settings, documents, &roomy, documents / 2)?;
    let mut wiredtiger = match settings.kinds.contains(&Kind::WiredTiger) {
        true => Some(Paced::open(Kind::WiredTiger, settings, documents, &roomy, documents / 2)?),
        false => None,
    };
    let moved = on.side.subject.figure("cleaner", "movedRecords");
    let time = settings.slice * CLEANER_SLICES;
    for round in 0..settings.rounds {
        // What WiredTiger leaves to be written meets each of them.
        let mut sides = [&mut on, &mut off];
        if round % 2 == 1 {
            sides.reverse();
        }
        sides.into_iter().try_for_each(|side| side.slice(time))?;
        wiredtiger.as_mut().map_or(Ok(()), |paced| paced.slice(time))?;
    }
    let moved = on.side.subject.figure("cleaner", "movedRecords") - moved;
    let fill = settings.fill * 100.0;
    let mut p99 =
        Line::new(format!("update p99, cleaner at work at {fill:.0} %"), "us", Goal::None);
    let mut without = Line::new("update p99, no cleaner", "us", Goal::None);
    let mut ratio = Line::new("update p99, cleaner / no cleaner", "x", Goal::AtMost(1.25));
    let mut most =
        Line::new(format!("update max, cleaner at work at {fill:.0} %"), "ms", Goal::AtMost(50.0));
    let mut most_without = Line::new("update max, no cleaner", "ms", Goal::None);
    p99.pmlog = Some(on.p99_us());
    without.pmlog = Some(off.p99_us());
    ratio.pmlog = Some(on.p99_us() / off.p99_us().max(f64::MIN_POSITIVE));
    most.pmlog = Some(on.max_ms());
    most_without.pmlog = Some(off.max_ms());
    if let Some(paced) = &wiredtiger {
        p99.set(paced.kind, paced.p99_us());
        most.set(paced.kind, paced.max_ms());
    }
    p99.remark(&format!(
        "{PACE} updates/s, one writer; the cleaner moved {moved} records meanwhile"
    ));
    on.close()?;
    off.close()?;
    wiredtiger.map_or(Ok(()), Paced::close)?;
    Ok(vec![p99, without, ratio, most, most_without, closed(settings)?])
}

/// Updates one after the other, of as many documents as WiredTiger is known with, by both engines in turns.
fn closed(settings: &Settings) -> Result<Line> {
    let name = "update p99, no cleaner, as fast as it goes";
    let mut line = Line::new(name, "us", Goal::None).anchored(46.0, 46.0);
    let opening = Opening {
        cache_bytes: settings.cache_bytes(),
        cleaner: false,
        checkpoint_s: settings.checkpoint_s,
        ..Opening::default()
    };
    let mut sides = Vec::new();
    for kind in &settings.kinds {
        sides.push(Paced::open(*kind, settings, settings.documents, &opening, 0)?);
    }
    let time = settings.slice * CLEANER_SLICES;
    for _ in 0..settings.rounds {
        sides.iter_mut().try_for_each(|side| side.closed_slice(time))?;
    }
    for side in sides {
        line.set(side.kind, side.closed_p99_us());
        let (rest, most) = (side.closed.percentile_ns(0.999), side.closed.max_ns());
        let (rest, most) = (rest as f64 / 1e3, most as f64 / 1e6);
        line.remark(&format!("{}: p99.9 {rest:.0} us, max {most:.1} ms", side.kind.name()));
        side.close()?;
    }
    Ok(line)
}
