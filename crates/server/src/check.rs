//! `kauri check`: checks a data directory that no server uses, and repairs it with `--repair`. `kauri serve
//! --verify full` and `--repair` use the same code.
//!
//! Findings are log lines. The exit status is 0 if no damage affects current documents; the remains of a repair do
//! not.

use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::clock::SystemClock;
use kauri_base::log::{self, Attr};
use kauri_base::{Clock, CollectionId, Error, ErrorCode, Result};
use kauri_bson::Doc;
use kauri_medium::plain::PlainDirectory;
use kauri_medium::{Directory, parallel};
use kauri_storage_log::{Damage, Report};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const CTX: &str = "check";
/// Parts of the histogram of segments.
const PARTS: u64 = 10;

/// The command line's form.
pub fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("check")
        .about("Checks a data directory that no server uses")
        .arg(
            Arg::new("dbpath")
                .long("dbpath")
                .value_name("DIR")
                .default_value("/data/db")
                .help("Directory of the data files"),
        )
        .arg(
            Arg::new("verify")
                .long("verify")
                .value_name("full|summaries")
                .hide_possible_values(true)
                .value_parser(["full", "summaries"])
                .default_value("full")
                .help("Extent of the check: every record in use, or what recovery reads"),
        )
        .arg(flag("stats", "Report disk space by collection and segment"))
        .arg(flag("repair", "Move damaged records aside, so that a server can start"))
}

/// Does what the flags say.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let clock = Arc::new(SystemClock::new());
    let times = clock.clone();
    log::install(Box::new(|_, line| println!("{line}")), Box::new(move || times.unix_ms()));
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let path = text("dbpath");
    if !Path::new(&path).is_dir() {
        let message = format!("Data directory {path} not found. Give its path with --dbpath.");
        return Err(Error::new(ErrorCode::NonExistentPath, message));
    }
    let directory: Arc<dyn Directory> = Arc::new(PlainDirectory::open(Path::new(&path))?);
    let full = text("verify") == "full" || matches.get_flag("repair");
    let report = look(&directory, full, &*clock)?;
    let names = names(&report);
    report.damage.iter().for_each(|damage| tell(damage, &names));
    if matches.get_flag("stats") {
        stats(&report, &names);
    }
    if report.damage.is_empty() {
        return Ok(());
    }
    if matches.get_flag("repair") {
        return repair(&directory, &report, &names, &*clock);
    }
    if matters(&report) == 0 {
        return Ok(());
    }
    let way_out = format!(
        "Run 'kauri check --repair --dbpath {path}' to move damaged records aside, or restore the directory from a \
         backup"
    );
    Err(damaged(&*directory, &report, "has", &way_out))
}

/// Before a server starts: reads everything and reports damage. The server starts anyway if the log is readable,
/// because intact data can be served.
pub fn before_start(directory: &Arc<dyn Directory>) -> Result<()> {
    if directory.read_file(kauri_storage_log::format::META_FILE)?.is_none() {
        return Ok(());
    }
    let report = look(directory, true, &SystemClock::new())?;
    let names = names(&report);
    report.damage.iter().for_each(|damage| tell(damage, &names));
    // What is damaged and outdated matters to nobody; a repair leaves it, too.
    if matters(&report) > 0 {
        let attr = Attr::new()
            .num("damaged", report.damage.len())
            .num("ofCurrentDocuments", matters(&report));
        let message = "Data directory is damaged; intact data is served. Run with --repair to move damaged \
                       records aside";
        log::warning("STORAGE", 6_200_210, CTX, message, attr);
    }
    Ok(())
}

/// `kauri serve --repair`: mends the directory.
pub fn mend(directory: &Arc<dyn Directory>) -> Result<()> {
    let clock = SystemClock::new();
    let report = look(directory, true, &clock)?;
    let names = names(&report);
    report.damage.iter().for_each(|damage| tell(damage, &names));
    if report.damage.is_empty() {
        log::info("STORAGE", 6_200_211, CTX, "No damage found; nothing to repair", Attr::new());
        return Ok(());
    }
    repair(directory, &report, &names, &clock)
}

/// Places of damage that matter to documents.
fn matters(report: &Report) -> usize {
    report.damage.iter().filter(|damage| damage.current != Some(false)).count()
}

fn damaged(directory: &dyn Directory, report: &Report, what: &str, way_out: &str) -> Error {
    let message = format!(
        "the {} {what} {} damaged places, {} of which affect current documents. {way_out}",
        directory.describe(),
        report.damage.len(),
        matters(report)
    );
    Error::new(ErrorCode::DataCorruptionDetected, message)
}

fn look(directory: &Arc<dyn Directory>, full: bool, clock: &dyn Clock) -> Result<Report> {
    let started = clock.monotonic();
    let due = AtomicI64::new(clock.unix_ms() + 1000);
    let progress = |done: u32, of: u32| {
        let now = clock.unix_ms();
        if now >= due.load(Ordering::Relaxed) {
            due.store(now + 1000, Ordering::Relaxed);
            let percent = u64::from(done) * 100 / u64::from(of.max(1));
            let attr = Attr::new().num("percent", percent).num("segments", done).num("of", of);
            log::info("STORAGE", 6_200_201, CTX, "Checking the data directory", attr);
        }
    };
    let report = kauri_storage_log::verify_with(&**directory, full, parallel::cores(), &progress)?;
    let seconds = clock.monotonic().saturating_sub(started).as_secs_f64().max(1e-6);
    let attr = Attr::new()
        .num("segments", report.segments)
        .num("segmentsUsed", report.extents.len())
        .num("records", report.records)
        .num("documents", report.documents)
        .num("bytes", report.bytes)
        .num("bytesPerSecond", (report.bytes as f64 / seconds) as u64)
        .num("droppedRecords", report.dropped_records)
        .num("damaged", report.damage.len())
        .num("damagedInImages", report.images.len());
    log::info("STORAGE", 6_200_202, CTX, "Checked the data directory", attr);
    for damage in &report.images {
        let attr = with_place(damage, &names(&report)).str("what", &damage.what);
        let message = "Index image is damaged; the index is built from the documents";
        log::warning("STORAGE", 6_200_213, CTX, message, attr);
    }
    Ok(report)
}

type Names = HashMap<CollectionId, String>;

fn names(report: &Report) -> Names {
    let docs = report.catalog.iter().filter_map(|bytes| Doc::from_bytes(bytes).ok());
    let found = docs.filter_map(kauri_catalog::collection_of);
    found.map(|(id, ns)| (id, ns.as_str().to_owned())).collect()
}

fn with_place(damage: &Damage, names: &Names) -> Attr {
    let mut attr = Attr::new();
    if let Some(collection) = damage.collection {
        if let Some(name) = names.get(&collection) {
            attr = attr.str("ns", name);
        }
        attr = attr.num("collection", collection.0);
    }
    if let Some(record) = damage.record {
        attr = attr.num("record", record.0);
    }
    if let Some(id) = id_of(&damage.payload_start) {
        attr = attr.str("_id", id);
    }
    attr.num("segment", damage.segment).num("offset", damage.offset)
}

/// The `_id` of a damaged document, if its beginning is readable: the `_id` comes first.
fn id_of(start: &[u8]) -> Option<String> {
    const KNOWN: [(u8, usize); 4] = [(0x07, 12), (0x10, 4), (0x12, 8), (0x01, 8)];
    let (kind, rest) = start.get(4..)?.split_first()?;
    let value = rest.strip_prefix(b"_id\0")?;
    let len = match KNOWN.iter().find(|(known, _)| known == kind) {
        Some((_, len)) => *len,
        None if *kind == 0x02 => {
            let len = u32::from_le_bytes(*value.first_chunk()?);
            4 + usize::try_from(len).ok()?
        }
        None => return None,
    };
    // As a document of its own.
    let size = 4 + 1 + 4 + len + 1;
    let mut bytes = u32::try_from(size).ok()?.to_le_bytes().to_vec();
    bytes.push(*kind);
    bytes.extend_from_slice(b"_id\0");
    bytes.extend_from_slice(value.get(..len)?);
    bytes.push(0);
    let doc = Doc::from_bytes(&bytes).ok()?;
    Some(format!("{:?}", doc.value("_id")))
}

fn tell(damage: &Damage, names: &Names) {
    let mut attr = with_place(damage, names).str("what", &damage.what);
    if let Some(current) = damage.current {
        attr = attr.num("current", current);
    }
    if damage.current == Some(false) {
        log::warning(
            "STORAGE",
            6_200_203,
            CTX,
            "Damage found; no current document is affected",
            attr,
        );
    } else {
        log::error("STORAGE", 6_200_203, CTX, "Damage found", attr);
    }
}

fn repair(
    directory: &Arc<dyn Directory>,
    report: &Report,
    names: &Names,
    clock: &dyn Clock,
) -> Result<()> {
    let options = kauri_storage_log::Options {
        open_threads: parallel::cores(),
        ..kauri_storage_log::Options::default()
    };
    let mended = kauri_storage_log::salvage(&**directory, &options)?;
    for place in &mended {
        let attr = with_place(&place.damage, names)
            .str("what", &place.damage.what)
            .num("bytes", place.damage.payload_len)
            .str("file", &place.file)
            .num("lossy", place.lossy);
        let message = "Log was unreadable at this position; repaired";
        log::warning("STORAGE", 6_200_214, CTX, message, attr);
    }
    let (again, new_names);
    let (report, names) = if mended.is_empty() {
        (report, names)
    } else {
        again = look(directory, true, clock)?;
        new_names = self::names(&again);
        again.damage.iter().for_each(|damage| tell(damage, &new_names));
        (&again, &new_names)
    };
    let repaired = kauri_storage_log::repair(directory, options, report)?;
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    for (damage, file) in &repaired.lost {
        let attr = with_place(damage, names).str("file", file);
        log::warning(
            "STORAGE",
            6_200_204,
            CTX,
            "Document lost; its remains are in the quarantine file",
            attr,
        );
        let id = damage.collection.unwrap_or(CollectionId::CATALOG);
        let name = names.get(&id).cloned().unwrap_or_else(|| format!("collection {}", id.0));
        *lost.entry(name).or_default() += 1;
    }
    for (name, documents) in &lost {
        let attr = Attr::new().str("ns", name).num("documents", documents);
        log::warning("STORAGE", 6_200_205, CTX, "Documents lost", attr);
    }
    let again = look(directory, true, clock)?;
    if again.damage.iter().any(|damage| damage.current != Some(false)) {
        let way_out = "Restore the directory from a backup";
        return Err(damaged(&**directory, &again, "still has", way_out));
    }
    let attr = Attr::new().num("documents", repaired.lost.len()).num("collections", lost.len());
    let attr = attr.num("placesMended", mended.len());
    log::info("STORAGE", 6_200_206, CTX, "Data directory repaired", attr);
    Ok(())
}

fn stats(report: &Report, names: &Names) {
    let segment_bytes = u64::from(report.segment_bytes);
    let live: u64 = report.extents.iter().map(|extent| extent.live).sum();
    let used = report.extents.len() as u64 * segment_bytes;
    let documents: u64 = report.collections.iter().map(|collection| collection.bytes).sum();
    let moved = report.extents.iter().filter(|extent| extent.moved).count();
    let ratio = |part: u64, of: u64| format!("{:.3}", part as f64 / of.max(1) as f64);
    let attr = Attr::new()
        .num("segmentBytes", segment_bytes)
        .num("segments", report.segments)
        .num("segmentsUsed", report.extents.len())
        .num("segmentsOfTheCleaner", moved)
        .num("segmentsOpenedEver", report.segments_opened)
        .num("fileBytes", u64::from(report.segments) * segment_bytes)
        .num("usedBytes", used)
        .num("liveBytes", live)
        .num("documentBytes", documents)
        .num("liveRatio", ratio(live, used))
        .num("spaceAmplification", ratio(used, documents))
        .num("bytesEverPerDocumentByte", ratio(report.segments_opened * segment_bytes, documents));
    log::info("STORAGE", 6_200_207, CTX, "Disk space", attr);
    let mut histogram = [0u64; PARTS as usize];
    for extent in &report.extents {
        let part = (extent.live * PARTS / segment_bytes.max(1)).min(PARTS - 1);
        histogram[part as usize] += 1;
    }
    let mut attr = Attr::new();
    for (part, count) in (0..PARTS).zip(histogram) {
        attr = attr.num(&format!("{}%", part * 100 / PARTS), count);
    }
    log::info(
        "STORAGE",
        6_200_208,
        CTX,
        "Number of segments by minimum percentage of live bytes",
        attr,
    );
    let mut seen = BTreeSet::new();
    for collection in &report.collections {
        let name = names.get(&collection.id).cloned().unwrap_or_default();
        seen.insert(collection.id);
        let attr = Attr::new()
            .str("ns", name)
            .num("collection", collection.id.0)
            .num("documents", collection.records)
            .num("bytes", collection.bytes)
            .num("storageBytes", collection.storage_bytes);
        log::info("STORAGE", 6_200_209, CTX, "Collection", attr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocBuf, Value};

    #[test]
    fn the_id_of_a_damaged_document_is_reported() {
        for (id, expected) in [
            (Value::ObjectId([7; 12]), "0707"),
            (Value::Int32(5), "5"),
            (Value::Int64(1 << 40), "1099511627776"),
            (Value::from("key"), "key"),
        ] {
            let doc = DocBuf::build(|out| {
                out.put_value("_id", &id);
                out.put("text", "damaged from here");
            });
            let mut bytes = doc.as_bytes().to_vec();
            let last = bytes.len() - 4;
            bytes[last] ^= 0xff;
            let told = id_of(&bytes).unwrap_or_default();
            assert!(told.contains(expected), "{told}");
        }
        for bytes in [&b""[..], b"\x10\0\0\0\x02_id\0\xff\xff\xff\xff", b"\x10\0\0\0\x10x\0"] {
            assert_eq!(id_of(bytes), None);
        }
    }
}
