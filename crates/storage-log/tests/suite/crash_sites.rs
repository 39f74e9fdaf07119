//! Every drain, every ordering point and every check is necessary: disabling any one makes a crash test fail.
//! The sites are not listed; they are those that the runs reach.

use crate::crash_target::{SEGMENT, Target, of_headers};
use crate::followers::{crashes, gates};
use crate::log_copy;
use kauri_bson::{DocBuf, Value};
use kauri_conformance::inspect::Reader;
use kauri_conformance::table::{Table, doc};
use kauri_emulator::{About, Emulator, EmulatorConfig};
use kauri_medium::Directory;
use kauri_storage_log::format::marks::{
    MARK_BYTES, MARK_EPOCH_BYTES, MARK_EPOCHS_AT, MARK_SLOT_BYTES, MARK_SLOTS, Mark,
};
use kauri_storage_log::format::meta::Meta;
use kauri_storage_log::format::record::{Kind, RecordHeader, Seed};
use kauri_storage_log::format::segment::{HEADER_COPY_AT, SegmentHeader, Trailer};
use kauri_storage_log::format::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, Stream, TRAILER_BYTES};
use kauri_storage_log::verify;
use kauri_testkit::crash::Recording;
use kauri_testkit::history::Loss;
use kauri_testkit::sites::{Campaign, missed_by};
use kauri_testkit::{CrashTarget, Crashes, Run, damage};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;

const LOG: &str = "pmlog.0";
const META: &str = "kauri.meta";
const MARKS: &str = "pmlog.marks";
const HEADER: usize = SEGMENT_HEADER_BYTES as usize;

type Sites = BTreeMap<String, u64>;

/// A test of a target, with a site disabled if one is named.
fn campaign<'c>(
    name: &'static str,
    target: Target,
    test: impl Fn(&Crashes<'_>, &Target) + Sync + 'c,
) -> Campaign<'c> {
    campaign_of(name, target, |crashes| crashes, test)
}

/// The same for these crash tests.
fn campaign_of<'c>(
    name: &'static str,
    target: Target,
    of: for<'t> fn(Crashes<'t>) -> Crashes<'t>,
    test: impl Fn(&Crashes<'_>, &Target) + Sync + 'c,
) -> Campaign<'c> {
    let run = move |without: Option<&str>| -> Sites {
        let crashes = of(Crashes::new(&target).on_one_thread());
        let crashes = without.into_iter().fold(crashes, Crashes::without);
        test(&crashes, &target);
        crashes.sites_seen()
    };
    Campaign { name, run: Box::new(run) }
}

/// A target with this many segments and no marks: only headers record durable commits.
fn unmarked(segments: u32) -> Target {
    let mut target = Target::new(segments);
    target.options.mark_interval_bytes = u64::MAX;
    target
}

/// A target whose mark file cannot be created. Only the other records of durability count there.
fn without_marks(segments: u32) -> Target {
    Target { marks: false, ..unmarked(segments) }
}

/// Power losses during runs with these seeds.
fn power_losses<'c>(
    name: &'static str,
    target: Target,
    run: Run,
    seeds: Range<u64>,
    images: usize,
) -> Campaign<'c> {
    campaign(name, target, move |crashes, _| {
        for seed in seeds.clone() {
            let recording = crashes.record(seed, &run);
            crashes.power_losses(&recording, seed, images);
        }
    })
}

/// Power losses right before a new header is durable, in a run whose writers clean themselves. The header and
/// the mark before it record the durable commits of such a cleaning. At random points only one power loss in
/// 300 hits this moment.
fn room<'c>(run: Run) -> Campaign<'c> {
    let before = |event: &str| event.contains("begins (segment.header.drain)");
    campaign("room", Target::new(8), move |crashes, _| {
        let recording = crashes.record(1, &run);
        crashes.crashes_at(&recording, Loss::Power, before, 24);
    })
}

/// On persistent memory: deaths of the process between a header's two copies, and power losses while recovery
/// repairs the second copy.
fn headers_twice<'c>(medium: EmulatorConfig) -> Campaign<'c> {
    fn again(crashes: Crashes<'_>) -> Crashes<'_> {
        crashes.again_at(of_headers, 4)
    }
    campaign_of("headers, twice", Target::new(12), again, move |crashes, _| {
        let recording = crashes.record(1, &Run { medium, steps: 900, ..Run::default() });
        crashes.crashes_at(&recording, Loss::Process, of_headers, 2);
    })
}

/// Deaths of the process, and power losses during recovery.
fn deaths<'c>(name: &'static str, medium: EmulatorConfig) -> Campaign<'c> {
    campaign(name, Target::new(14), move |crashes, _| {
        for seed in 1..4 {
            let recording = crashes.record(seed, &Run { medium, steps: 1000, ..Run::default() });
            crashes.process_deaths(&recording, seed, 150);
        }
    })
}

/// Damage to a directory after a clean shutdown. Marks repeat the metadata file's record of durable commits;
/// without marks only that file has it.
fn rot<'c>(name: &'static str, target: Target) -> Campaign<'c> {
    campaign(name, target, move |crashes, target| {
        for seed in 1..4 {
            let run = Run { steps: 1500, close: true, ..Run::default() };
            let recording = crashes.record(seed, &run);
            let report = damage::after_shutdown(crashes, target, &recording, seed, 700);
            println!("{report:?}");
            assert!(report.refused > 20 && report.reported > 20, "{report:?}");
        }
    })
}

/// Each bit of the metadata file's first copy is flipped: the second one is used.
fn metadata<'c>() -> Campaign<'c> {
    campaign("metadata", unmarked(16), |crashes, _| {
        let run = Run { steps: 100, close: true, ..Run::default() };
        let recording = crashes.record(1, &run);
        let end = recording.timeline.end();
        let left = recording.emulator.process_death_image();
        let bytes = left.read_file(META).ok().flatten().expect("the metadata");
        let used = bytes.iter().take(4096).rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for bit in (8..used + 8).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
            let image = recording.emulator.process_death_image();
            let mut damaged = bytes.clone();
            damaged[bit.0] ^= 1 << bit.1;
            image.replace_file(META, &damaged, "test").expect("replacing");
            crashes.recover(&image, &recording.timeline, end..=end);
            crashes.note_sites(&image);
        }
    })
}

/// Each bit of a segment's trailer is flipped: the records themselves hold all information, so nothing is lost.
fn trailers<'c>() -> Campaign<'c> {
    campaign("trailers", unmarked(16), |crashes, _| {
        flip_bits(crashes, 1, |_| SEGMENT - TRAILER_BYTES as usize..SEGMENT);
    })
}

/// The same with every third bit of a summary.
fn summary_bits<'c>() -> Campaign<'c> {
    campaign("summary bits", unmarked(16), |crashes, _| {
        flip_bits(crashes, 3, |segment| {
            let trailer = &segment[SEGMENT - TRAILER_BYTES as usize..];
            let trailer = Trailer::decode(trailer, SEGMENT as u32, true).expect("a trailer");
            let begin = trailer.summary_offset as usize;
            begin..begin + trailer.summary_bytes as usize
        });
    })
}

/// Flips every `step`th bit of a part of the newest segment after a clean shutdown, one at a time: all data is
/// intact.
fn flip_bits(crashes: &Crashes<'_>, step: usize, part: fn(&[u8]) -> Range<usize>) {
    let recording = crashes.record(1, &Run { steps: 400, close: true, ..Run::default() });
    let end = recording.timeline.end();
    let log = log_of(&recording.emulator.process_death_image()).expect("the log");
    let of_user = |segment: &SegmentHeader| segment.stream == Stream::User;
    let headers = log.chunks(SEGMENT).filter_map(|bytes| SegmentHeader::decode(bytes, true));
    let newest = headers.filter(of_user).filter(|h| !records(&log, h).is_empty());
    let newest = newest.max_by_key(|header| header.epoch).expect("a segment");
    let start = newest.segment as usize * SEGMENT;
    let part = part(&log[start..][..SEGMENT]);
    for bit in (part.start * 8..part.end * 8).step_by(step) {
        let image = recording.emulator.process_death_image();
        let (at, flipped) = (start + bit / 8, log[start + bit / 8] ^ 1 << (bit % 8));
        let medium = image.open_log(LOG).expect("the log");
        medium.store(at as u64, &[IoSlice::new(&[flipped])]).expect("storing");
        crashes.recover(&image, &recording.timeline, end..=end);
        crashes.note_sites(&image);
    }
}

/// A member of a unit is replaced by another valid record. The unit is then not the committed one, so recovery
/// drops all of it.
fn forgery<'c>() -> Campaign<'c> {
    campaign("forgery", unmarked(16), |crashes, _| {
        let mut forged = 0;
        for seed in 1..12 {
            let recording = crashes.record(seed, &Run { steps: 800, ..Run::default() });
            for member in 0..6 {
                let image = recording.emulator.process_death_image();
                if forge(&image, member) {
                    forged += 1;
                    let Recording { timeline, .. } = &recording;
                    crashes.recover(&image, timeline, 0..=timeline.end());
                }
            }
        }
        assert!(forged > 5, "only {forged} units to forge");
    })
}

/// Changes the text of a document that belongs to a unit of several, and fixes all CRCs of the record.
fn forge(image: &Emulator, which: usize) -> bool {
    let log = image.open_log(LOG).expect("the log");
    let mut bytes = log_of(image).expect("the log");
    let headers = || bytes.chunks(SEGMENT).filter_map(|b| SegmentHeader::decode(b, true));
    // Damage in the durable part is checked less closely.
    let durable = headers().map(|header| header.horizon.seq).max().unwrap_or(0);
    let durable = durable.max(marked_seq(image));
    let users = headers().filter(|header| header.stream == Stream::User);
    // Prepared segments may have no records.
    let used = users.filter(|header| !records(&bytes, header).is_empty());
    let Some(last) = used.max_by_key(|header| header.epoch) else { return false };
    let start = last.segment as usize * SEGMENT;
    let (mut members, mut candidates) = (Vec::new(), Vec::new());
    for (offset, header) in records(&bytes, &last) {
        match header.kind {
            Kind::Put if header.flags == 0 => members.push((offset, header)),
            Kind::Commit => candidates.append(&mut members),
            _ => members.clear(),
        }
    }
    // The text ends before two zeros.
    candidates.retain(|(offset, header)| {
        let text_end = start + (offset + RECORD_HEADER_BYTES + header.payload_len) as usize - 3;
        header.seq > durable && bytes[text_end].is_ascii_alphanumeric()
    });
    let Some((offset, mut header)) = candidates.into_iter().rev().nth(which) else { return false };
    let payload = start + (offset + RECORD_HEADER_BYTES) as usize;
    let payload = &mut bytes[payload..payload + header.payload_len as usize];
    payload[header.payload_len as usize - 3] ^= 1;
    header.payload_crc = crc32c::crc32c(payload);
    let (encoded, _) = header.encode(Seed::new(last.segment, last.epoch), offset);
    let at = start as u64 + u64::from(offset);
    log.store(at, &[IoSlice::new(&encoded), IoSlice::new(payload)]).expect("storing");
    true
}

/// The last durable commit by the mark file.
fn marked_seq(image: &Emulator) -> u64 {
    let meta = image.read_file(META).ok().flatten().expect("the metadata");
    let id = Meta::decode(&meta, true).expect("the metadata").directory;
    let marks = image.read_file(MARKS).ok().flatten().expect("the mark file");
    let slots = marks.chunks(MARK_SLOT_BYTES).take(MARK_SLOTS);
    let marks = slots.filter_map(|slot| Mark::decode(slot, &id, true));
    marks.map(|mark| mark.horizon.seq).max().unwrap_or(0)
}

/// The records of a segment in the log's bytes, with their offsets in the segment.
fn records(log: &[u8], segment: &SegmentHeader) -> Vec<(u32, RecordHeader)> {
    let seed = Seed::new(segment.segment, segment.epoch);
    let bytes = &log[segment.segment as usize * SEGMENT..][..SEGMENT];
    let mut offset = SEGMENT_HEADER_BYTES;
    let mut found = Vec::new();
    while let Some(header) = bytes.get(offset as usize..).and_then(|b| b.first_chunk()) {
        let Some((header, _)) = RecordHeader::decode(header, seed, offset) else { break };
        found.push((offset, header));
        offset += header.record_bytes();
    }
    found
}

/// Where persistence must be requested: a start after a clean shutdown and a power loss reads only summaries
/// and no documents, as it does without the power loss.
fn summaries<'c>() -> Campaign<'c> {
    campaign("summaries", Target::new(16), |crashes, target| {
        let medium = EmulatorConfig { persist_required: true, ..EmulatorConfig::default() };
        let run = Run { medium, steps: 2000, close: true, ..Run::default() };
        let recording = crashes.record(1, &run);
        let events = recording.emulator.events();
        let bytes_read = |image: &Emulator| {
            crashes.equip(image);
            let opened = target.open(image).expect("opening");
            let status = DocBuf::build(|out| opened.engine().write_status(out));
            let recovery = status.as_doc().value("recovery");
            let read = recovery.as_document().map(|doc| doc.value("bytesRead").into_owned());
            let Some(Value::Int64(read)) = read else { panic!("no bytesRead in {recovery:?}") };
            read
        };
        let image = recording.emulator.crash_at(events, &mut |_| 0);
        let read = bytes_read(&image);
        let log = image.open_log(LOG).expect("the log").len() as i64;
        assert!(read < log / 4, "{read} of {log} bytes were read");
        assert_eq!(read, bytes_read(&recording.emulator.process_death_image()));
    })
}

/// On persistent memory: wherever a record survives, both copies of its segment's header do, and while the
/// first is stored the second is intact.
fn headers<'c>(medium: EmulatorConfig) -> Campaign<'c> {
    campaign("headers", Target::new(14), move |crashes, _| {
        let recording = crashes.record(1, &Run { medium, steps: 800, ..Run::default() });
        let (mut looked, mut copies) = (0, 0);
        for at in 0..recording.emulator.events() {
            let event = recording.emulator.describe_event(at).unwrap_or_default();
            if !event.starts_with("store") {
                continue;
            }
            // All record bytes, and of the headers only the durable ones.
            let mut copying = None;
            let image = recording.emulator.crash_at(at + 1, &mut |choice| match choice.about {
                About::Sector { offset, stored_at, .. } => {
                    let within = offset as usize % SEGMENT;
                    if (HEADER_COPY_AT..HEADER).contains(&within) && stored_at.last() == Some(&at) {
                        copying = Some(offset as usize / SEGMENT);
                    }
                    if within < HEADER { 0 } else { choice.options - 1 }
                }
                _ => 0,
            });
            let Some(bytes) = log_of(&image) else { continue };
            if let Some(segment) = copying {
                let stored = log_of(&recording.emulator.process_death_at(at + 1, usize::MAX));
                let header =
                    |bytes: &[u8]| SegmentHeader::decode(&bytes[segment * SEGMENT..], true);
                assert_eq!(header(&bytes), header(&stored.expect("a log")), "after {at} events");
                copies += 1;
            }
            for (number, segment) in bytes.chunks_exact(SEGMENT).enumerate() {
                // Between its two copies a recycled segment has a new and an old header.
                if copying == Some(number) {
                    continue;
                }
                let first = SegmentHeader::decode(segment, true);
                let copy = SegmentHeader::decode(&segment[HEADER_COPY_AT..], true);
                let begins = |header: &Option<SegmentHeader>| {
                    let header = header.as_ref()?;
                    let seed = Seed::new(header.segment, header.epoch);
                    RecordHeader::decode(segment[HEADER..].first_chunk()?, seed, HEADER as u32)
                };
                if begins(&first).is_some() || begins(&copy).is_some() {
                    looked += 1;
                    assert_eq!(first, copy, "after {at} events");
                }
            }
        }
        assert!(looked > 1000 && copies > 2, "{looked} segments, {copies} copies");
    })
}

/// The bytes of the log.
fn log_of(image: &Emulator) -> Option<Vec<u8>> {
    let log = image.open_log(LOG).ok()?;
    let mut bytes = vec![0; log.len() as usize];
    log.read(0, &mut bytes).expect("reading");
    Some(bytes)
}

/// On persistent memory: the summary and trailer of a sealed segment are durable when it is sealed.
fn sealed<'c>(medium: EmulatorConfig) -> Campaign<'c> {
    campaign("sealed", Target::new(16), move |crashes, _| {
        let run = Run { medium, steps: 1000, close: true, ..Run::default() };
        let recording = crashes.record(1, &run);
        let image = recording.emulator.crash_at(recording.emulator.events(), &mut |_| 0);
        let bytes = log_of(&image).expect("the log");
        let mut sealed = 0;
        for segment in bytes.chunks_exact(SEGMENT) {
            let Some(header) = SegmentHeader::decode(segment, true) else { continue };
            if records(&bytes, &header).is_empty() {
                continue;
            }
            let trailer = &segment[SEGMENT - TRAILER_BYTES as usize..];
            let trailer = Trailer::decode(trailer, SEGMENT as u32, true).expect("a trailer");
            assert_eq!(trailer.epoch, header.epoch);
            let summary = &segment[trailer.summary_offset as usize..];
            let summary = &summary[..trailer.summary_bytes as usize];
            assert_eq!(crc32c::crc32c(summary), trailer.summary_crc);
            sealed += 1;
        }
        assert!(sealed > 5, "{sealed} sealed segments");
    })
}

/// Any power loss during a directory's first start: the metadata file names a mark file only if it exists with
/// a mark. Otherwise a check would report damage.
fn marks_begin(crashes: &Crashes<'_>, target: &Target, medium: EmulatorConfig) {
    let emulator = Emulator::new(medium);
    crashes.equip(&emulator);
    drop(target.open(&emulator).expect("opening"));
    crashes.note_sites(&emulator);
    let mut marked = 0;
    for at in 0..=emulator.events() {
        for image in emulator.crash_one_by_one_at(at, 8) {
            let Ok(report) = verify(&image, &mut |_, _| {}) else { continue };
            assert_eq!(report.damage, [], "after {at} events");
            marked += usize::from(image.list().is_ok_and(|files| files.iter().any(|f| f == MARKS)));
        }
    }
    assert!(marked > 20, "{marked}");
}

/// After each sync a power loss leaves only durable data, and the last record is damaged: this is reported. And
/// each bit of the mark file is flipped: all data is intact.
fn marks<'c>(name: &'static str, medium: EmulatorConfig) -> Campaign<'c> {
    campaign(name, unmarked(16), move |crashes, target| {
        marks_begin(crashes, target, medium);
        let emulator = Emulator::new(medium);
        crashes.equip(&emulator);
        let opened = target.open(&emulator).expect("opening");
        let table = Table::create(&opened.engine(), 10, &[]);
        for u in 0..12 {
            let id = table.insert(&doc(0, u, &format!("<{u}>")));
            opened.engine().sync().expect("sync");
            let image = emulator.crash_at(emulator.events(), &mut |_| 0);
            let mut log = log_of(&image).expect("the log");
            let text = format!("<{u}>");
            let at = log.windows(text.len()).rposition(|bytes| bytes == text.as_bytes());
            let at = at.expect("the document");
            log[at] ^= 1;
            let medium = image.open_log(LOG).expect("the log");
            medium.store(at as u64, &[IoSlice::new(&log[at..=at])]).expect("storing");
            crashes.equip(&image);
            if let Ok(opened) = target.open(&image) {
                let table = Table::new(&opened.engine(), 10, &[]);
                let found = Reader::new(&*opened.engine()).get(&*table.store(), id);
                assert!(found.is_err(), "{id} is {found:?}");
            }
            crashes.note_sites(&image);
        }
        crashes.note_sites(&emulator);
        let whole = emulator.process_death_image();
        let bytes = whole.read_file(MARKS).ok().flatten().expect("the mark file");
        let slots = (0..MARK_SLOTS).flat_map(|slot| {
            let start = slot * MARK_SLOT_BYTES;
            start..start + MARK_BYTES
        });
        let entries = MARK_EPOCHS_AT..MARK_EPOCHS_AT + 4 * MARK_EPOCH_BYTES;
        for (at, bit) in slots.chain(entries).flat_map(|at| [(at, 0), (at, 3), (at, 7)]) {
            let image = emulator.process_death_image();
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            image.replace_file(MARKS, &bytes, "test").expect("replacing");
            crashes.equip(&image);
            let opened = target.open(&image).expect("opening");
            assert_eq!(Table::new(&opened.engine(), 10, &[]).records().len(), 12);
            crashes.note_sites(&image);
        }
    })
}

/// The labels that the engine's code queries: all names in the form of a label, except files. Every drain,
/// persist and file operation has a label, because the medium requires one. The labels of repairs belong to
/// `repair_sites.rs`.
fn labels_in_source() -> BTreeSet<String> {
    fn collect(folder: &Path, labels: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("the sources") {
            let path = entry.expect("the sources").path();
            if path.is_dir() {
                collect(&path, labels);
            } else if path.file_name().is_some_and(|name| name != "tests.rs") {
                let text = std::fs::read_to_string(&path).expect("the sources");
                let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                labels.extend(text.split('"').filter(|part| is_label(part)).map(str::to_owned));
            }
        }
    }
    let mut labels = BTreeSet::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut labels);
    assert!(labels.len() > 20, "{labels:?}");
    labels
}

fn is_label(text: &str) -> bool {
    let word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let files = ["kauri.meta", "pmlog.marks", "pmlog.staging", "storage.bson"];
    let of_repair = text.starts_with("repair.");
    !of_repair && text.contains('.') && text.split('.').all(word) && !files.contains(&text)
}

/// The campaign that detects a site which other campaigns reach without detecting it. The table only saves
/// their time.
const LIKELY: [(&str, &str); 31] = [
    ("install.copy/directory", "installed"),
    ("clean.told.drain", "moved"),
    ("truncate.drain", "followers"),
    ("truncate.meta/directory", "followers"),
    ("clean.copy.fence", "deaths, memory"),
    ("clean.moved.drain", "shutdown"),
    ("clean.moved.lines", "memory"),
    ("clean.moved.persist", "asked for"),
    ("clean.room.drain", "room"),
    ("close.drain", "shutdown"),
    ("close.meta/directory", "summaries"),
    ("create.log/directory", "creation, no marks"),
    ("commit.fence", "memory"),
    ("marks.crc", "marks"),
    ("marks.create/directory", "marks"),
    ("marks.drain", "marks"),
    ("marks.epoch.crc", "marks"),
    ("meta.crc", "metadata"),
    ("read.header.crc", "rot"),
    ("read.payload.crc", "rot"),
    ("record.header.crc", "memory"),
    ("recovery.drain", "deaths"),
    ("recovery.header.drain", "headers, twice"),
    ("recovery.header.persist", "headers, twice"),
    ("recovery.persist", "deaths, memory"),
    ("segment.header.copy.fence", "headers"),
    ("segment.header.copy.lines", "headers"),
    ("segment.header.crc", "rot"),
    ("segment.header.fence", "headers"),
    ("segment.summary.crc", "summary bits"),
    ("unit.crc", "forgery"),
];

#[test]
fn disabling_any_safeguard_fails_a_test() {
    let run = Run::default();
    let asked = EmulatorConfig { persist_required: true, ..EmulatorConfig::default() };
    let memory = EmulatorConfig::persistent_memory();
    let staged = EmulatorConfig { staging: true, ..EmulatorConfig::default() };
    let creation = Run { steps: 4, ..run };
    let shutdown = Run { steps: 200, close: true, ..run };
    // Only the writers themselves flush, sync and clean, when they have no room.
    let alone = Run {
        steps: 1500,
        document_bytes: 600 << 10,
        maintain_percent: 0,
        definitions_percent: 5,
        ..run
    };
    let campaigns = [
        power_losses("creation", Target::new(16), creation, 1..4, 200),
        power_losses("creation, no marks", without_marks(16), creation, 1..4, 200),
        power_losses("shutdown", Target::new(16), shutdown, 1..4, 100),
        summaries(),
        power_losses("plain", Target::new(14), Run { steps: 2000, ..run }, 1..3, 200),
        power_losses("asked for", Target::new(14), Run { medium: asked, ..run }, 1..3, 150),
        power_losses("writers alone", Target::new(8), alone, 1..3, 200),
        room(alone),
        deaths("deaths", EmulatorConfig::default()),
        power_losses("staged", Target::new(14), Run { medium: staged, ..run }, 1..4, 200),
        deaths("deaths, staged", staged),
        power_losses("memory", Target::new(14), Run { medium: memory, ..run }, 1..3, 150),
        deaths("deaths, memory", memory),
        headers(memory),
        headers_twice(memory),
        sealed(memory),
        forgery(),
        rot("rot", unmarked(16)),
        rot("rot, no marks", without_marks(16)),
        metadata(),
        trailers(),
        summary_bits(),
        marks("marks", EmulatorConfig::default()),
        marks("marks, asked for", asked),
        Campaign { name: "followers", run: Box::new(crashes::sites) },
        Campaign { name: "moved", run: Box::new(gates::sites) },
        Campaign { name: "installed", run: Box::new(log_copy::sites) },
    ];
    let sites = missed_by(&campaigns, &LIKELY);
    for label in labels_in_source() {
        let steps = format!("{label}/");
        let met = sites.keys().any(|site| *site == label || site.starts_with(&steps));
        assert!(met, "no campaign comes by {label}");
    }
    let not_missed = sites.iter().filter(|(_, campaign)| campaign.is_none());
    let not_missed: Vec<_> = not_missed.map(|(site, _)| site.as_str()).collect();
    assert!(not_missed.is_empty(), "{not_missed:?}");
}
