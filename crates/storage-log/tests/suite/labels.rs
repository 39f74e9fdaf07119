//! Everything that makes bytes durable, orders them or compares a CRC has a label. `crash_sites.rs` takes the
//! labels from the sources and must reach all of them. In the engine's sources this is a rule. In the medium's
//! sources, which query the labels, it is a list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Calls that make bytes durable, or pass this on.
const DURABLE: [&str; 12] = [
    ".drain",
    ".persist",
    ".fence",
    ".replace_file",
    ".remove_file",
    ".rename_file",
    ".create_log",
    ".store_pending",
    ".sync_all",
    ".sync_to",
    ".append_persisted",
    ".write_back",
];

/// A crate's sources by path, without tests and comments.
fn sources(of: &str) -> BTreeMap<String, String> {
    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("the sources") {
            let path = entry.expect("the sources").path();
            match path.is_dir() {
                true => collect(&path, files),
                false => files.push(path),
            }
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of).join("src");
    let mut files = Vec::new();
    collect(&folder, &mut files);
    let is_test = |name: &str| name == "tests.rs" || name.ends_with("_tests.rs");
    files.retain(|file| file.file_name().is_some_and(|name| !is_test(&name.to_string_lossy())));
    let source = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).expect("the sources");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let name = file.strip_prefix(&folder).expect("a source").display().to_string();
        (name, code.collect::<Vec<_>>().join("\n"))
    };
    files.into_iter().map(source).collect()
}

/// The arguments of each call of this method.
fn calls<'t>(text: &'t str, method: &str) -> Vec<&'t str> {
    let call = format!("{method}(");
    let starts = text.match_indices(&call).map(|(at, _)| at + call.len());
    let arguments = starts.map(|start| {
        let mut depth = 1;
        let end = text[start..].find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        &text[start..start + end.unwrap_or(0)]
    });
    arguments.collect()
}

/// Whether these arguments contain a label, or pass one on.
fn has_label(arguments: &str) -> bool {
    let word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
    let literal = |text: &str| text.contains('.') && text.split('.').all(word);
    let mut names = arguments.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    arguments.split('"').skip(1).step_by(2).any(literal) || names.any(|name| name == "site")
}

#[test]
fn every_durability_call_has_a_label() {
    let mut found = 0;
    for (file, text) in sources("storage-log") {
        for method in DURABLE {
            for arguments in calls(&text, method) {
                // Vectors are drained too, with ranges as arguments.
                if method == ".drain" && (arguments.is_empty() || arguments.contains("..")) {
                    continue;
                }
                assert!(has_label(arguments), "{file}: {method}({arguments}) has no label");
                found += 1;
            }
        }
        for raw in ["libc::", "std::fs", "File::", "msync", "_mm_", "asm!"] {
            assert!(!text.contains(raw), "{file} goes around the medium: {raw}");
        }
    }
    assert!(found >= 15, "only {found} calls");
}

/// The places of these words: file, function, word and count. Methods of the same name in one file count
/// together.
fn places<'w>(of: &str, what: &[&'w str]) -> BTreeMap<(String, String, &'w str), usize> {
    let mut places = BTreeMap::new();
    for (file, text) in sources(of) {
        let functions: Vec<(usize, &str)> = text
            .match_indices("fn ")
            .filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
            .map(|(at, _)| (at, text[at + 3..].split(['(', '<']).next().unwrap_or_default()))
            .collect();
        for what in what {
            for (at, _) in text.match_indices(what) {
                let before = functions.partition_point(|(start, _)| *start < at);
                let name = before.checked_sub(1).map_or("", |n| functions[n].1);
                // The method's own definition.
                if text[..at].ends_with("fn ") {
                    continue;
                }
                *places.entry((file.clone(), name.to_owned(), *what)).or_default() += 1;
            }
        }
    }
    places
}

fn known<'w>(list: &[(&str, &str, &'w str, usize)]) -> BTreeMap<(String, String, &'w str), usize> {
    list.iter()
        .map(|(file, function, what, count)| {
            ((file.to_string(), function.to_string(), *what), *count)
        })
        .collect()
}

/// The places in the medium's sources, with the emulator as one of its folders.
fn places_of_media<'w>(what: &[&'w str]) -> BTreeMap<(String, String, &'w str), usize> {
    let emulated = places("emulator", what).into_iter();
    let emulated =
        emulated.map(|((file, name, what), n)| ((format!("emulator/{file}"), name, what), n));
    places("medium", what).into_iter().chain(emulated).collect()
}

/// The primitives of durability in the medium's sources: system calls, instructions, and the emulator's events
/// that represent them.
const PRIMITIVES: [&str; 22] = [
    "sync_data(",
    "sync_all(",
    "fsync",
    "fdatasync(",
    "msync",
    "sync_file_range",
    "O_SYNC",
    "O_DSYNC",
    "_mm_sfence(",
    "_mm_stream_si128(",
    "asm!(",
    "lines::fence(",
    "lines::write_back(",
    "lines::store(",
    "direct.fence(",
    "direct.store(",
    "medium.persist(",
    "Event::Fence {",
    "Event::Persist {",
    "Event::DrainBegin {",
    "Event::FileSync {",
    "Event::DirectorySync {",
];

/// The places where the medium makes bytes durable. A new place must query a label (or pass one on to the code
/// that does) and needs a line here. A line without its place fails, too.
#[test]
fn durability_calls_of_the_medium_are_listed() {
    let expected = known(&[
        // `PlainFile::drain`, the only caller, queries the label; GROW_DRAIN.
        ("plain_file.rs", "sync", "sync_data(", 1),
        ("plain_file.rs", "grow_durably", "sync_data(", 1),
        // Label and step.
        ("plain/directory.rs", "write_temporary", "sync_all(", 1),
        ("plain/directory.rs", "sync_directory", "sync_all(", 1),
        // The lock file only tells operators whether a server shut down cleanly; recovery uses the metadata
        // file. So no crash test can detect its loss.
        ("plain/directory.rs", "lock", "sync_all(", 2),
        ("plain/directory.rs", "mark_clean", "sync_all(", 1),
        // Entries in an older staging file do harm only if a backup was restored beside it.
        ("plain/directory.rs", "write_staging", "sync_all(", 1),
        ("plain/directory.rs", "create_staging", "sync_all(", 1),
        ("emulator/directory.rs", "create_staging", "Event::FileSync {", 1),
        ("emulator/directory.rs", "create_staging", "Event::DirectorySync {", 1),
        // The instructions, and their use by `DaxFile` and its memory. Real memory can't lose its power in a
        // test. Crash tests disable the emulator's events instead, at the same calls of the cache.
        ("dax/lines.rs", "fence", "_mm_sfence(", 1),
        ("dax/lines.rs", "write_back_line", "asm!(", 3),
        ("dax/lines.rs", "stream_line", "_mm_stream_si128(", 1),
        ("dax/file.rs", "fence", "lines::fence(", 1),
        ("dax/file.rs", "drain", "lines::fence(", 1),
        ("dax/file.rs", "persist", "lines::write_back(", 1),
        ("dax/file.rs", "store", "lines::store(", 1),
        // Labels of the callers that append, publish, store and seal.
        ("cache/segment.rs", "append_direct", "direct.store(", 1),
        ("cache/segment.rs", "store_last_direct", "direct.store(", 1),
        ("cache/writer.rs", "publish", "direct.fence(", 1),
        ("cache/writer.rs", "store_pending", "medium.persist(", 1),
        ("cache/writer.rs", "seal_with", "medium.persist(", 1),
        // The emulator, behind its queries.
        ("emulator/lib.rs", "persist", "Event::Persist {", 1),
        ("emulator/lib.rs", "drain", "Event::DrainBegin {", 1),
        ("emulator/mapped.rs", "stored", "Event::Persist {", 1),
        ("emulator/mapped.rs", "fenced", "Event::Fence {", 1),
        ("emulator/directory.rs", "replace_file", "Event::FileSync {", 1),
        ("emulator/directory.rs", "sync_directory", "Event::DirectorySync {", 1),
    ]);
    let mut found = places_of_media(&PRIMITIVES);
    // The effects of events on the emulated disk, and their descriptions, request no durability.
    let passive = ["emulator/disk.rs", "emulator/trace.rs", "emulator/images.rs"];
    found.retain(|(file, _, _), _| !passive.contains(&file.as_str()));
    assert_eq!(found, expected);
    // And each label that is passed in is queried.
    let asked = places_of_media(&["enabled(site", "enabled(GROW_DRAIN"]);
    let asked: BTreeSet<_> = asked.keys().map(|(file, name, _)| (&file[..], &name[..])).collect();
    let expected = BTreeSet::from([
        ("plain_file.rs", "drain"),
        ("plain_file.rs", "grow_durably"),
        ("plain_file.rs", "persist"),
        ("plain/directory.rs", "write_temporary"),
        ("plain/directory.rs", "sync_directory"),
        ("emulator/lib.rs", "persist"),
        ("emulator/lib.rs", "drain"),
        ("emulator/lib.rs", "grow"),
        ("emulator/mapped.rs", "stored"),
        ("emulator/mapped.rs", "fenced"),
        ("emulator/directory.rs", "replace_file"),
        ("emulator/directory.rs", "sync_directory"),
    ]);
    assert_eq!(asked, expected);
}

/// The places where CRCs are computed and compared, with their number in each function. A new comparison must
/// depend on a label and needs a line or a higher count.
#[test]
fn every_crc_is_made_or_compared_under_a_label() {
    const MADE: &str = "";
    let expected = [
        ("format/record.rs", "encode", 1, MADE),
        ("format/record.rs", "unit_crc", 1, MADE),
        ("format/segment.rs", "encode", 2, MADE),
        ("format/marks.rs", "encode", 1, MADE),
        ("format/staging.rs", "new", 2, MADE),
        ("format/staging.rs", "encode", 2, MADE),
        ("format/record.rs", "new", 1, MADE),
        ("format/meta.rs", "encode_contents", 1, MADE),
        ("head.rs", "mark_record", 1, MADE),
        ("frame_writer.rs", "append_copied_unit", 2, MADE),
        ("frame_writer.rs", "append_frame_record", 1, MADE),
        ("open_segment.rs", "seal", 1, MADE),
        ("commit/pending_log.rs", "append_resolution", 1, MADE),
        ("commit/mod.rs", "append", 2, MADE),
        ("commit/look_up.rs", "make", 1, MADE),
        ("commit/bury.rs", "bury_damaged", 1, MADE),
        ("close/images.rs", "append", 1, MADE),
        ("salvage.rs", "header", 1, MADE),
        ("format/record.rs", "decode", 1, "record.header.crc read.header.crc"),
        ("format/segment.rs", "decode", 2, "segment.header.crc segment.trailer.crc"),
        ("format/marks.rs", "decode", 1, "marks.crc"),
        ("format/marks.rs", "epoch_crc", 3, "marks.epoch.crc"),
        ("format/meta.rs", "decode_contents", 1, "meta.crc"),
        ("format/staging.rs", "decode", 2, "staging.crc"),
        ("reader.rs", "read_summary", 1, "segment.summary.crc"),
        ("reader.rs", "next", 1, "record.payload.crc"),
        ("read.rs", "is_whole", 1, "read.payload.crc"),
        ("recovery/scan.rs", "take", 1, "unit.crc"),
    ];
    let found = places("storage-log", &["crc32c::crc32c", "unit_crc("]);
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for ((file, function, _), count) in &found {
        *counts.entry((file, function)).or_default() += count;
    }
    let listed = expected.iter().map(|(file, name, count, _)| ((*file, *name), *count));
    let listed: BTreeMap<_, _> = listed.collect();
    assert_eq!(counts, listed);
    let sources = sources("storage-log");
    let arguments = sources.values().flat_map(|text| calls(text, "enabled"));
    let labels = arguments.filter_map(|arguments| arguments.split('"').nth(1));
    let labels: BTreeSet<_> = labels.filter(|label| label.ends_with(".crc")).collect();
    let listed: BTreeSet<_> =
        expected.iter().flat_map(|(_, _, _, labels)| labels.split_whitespace()).collect();
    assert_eq!(labels, listed);
    // Elsewhere they are passed on, never compared.
    for (file, text) in &sources {
        for line in text.lines().filter(|line| line.contains("==") || line.contains("!=")) {
            let compares = line.contains("crc");
            let known = expected.iter().any(|(of, _, _, labels)| of == file && !labels.is_empty());
            assert!(!compares || known, "{file} compares a CRC: {line}");
        }
    }
    // Checks with the answer as a parameter are called with it. The check of a whole directory and repairs
    // check everything.
    for (file, text) in &sources {
        for check in ["SegmentHeader::decode", "Trailer::decode", "Meta::decode"] {
            for arguments in calls(text, check) {
                let asks = arguments.contains("check") || arguments.contains(".enabled(");
                let checks_all = matches!(file.as_str(), "verify.rs" | "salvage.rs");
                assert!(asks || checks_all, "{file}: {check}({arguments})");
            }
        }
    }
}
