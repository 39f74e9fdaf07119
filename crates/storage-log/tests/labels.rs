//! Everything that makes bytes durable, orders them or compares a CRC has a label, so that
//! `crash_sites.rs`, which takes the labels from the sources, comes by all of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What makes something durable, or passes that on.
const DURABLE: [&str; 11] = [
    ".drain",
    ".persist",
    ".fence",
    ".replace_file",
    ".remove_file",
    ".create_log",
    ".store_pending",
    ".sync_all",
    ".sync_to",
    ".append_persisted",
    ".write_back",
];

/// The engine's sources without their tests and comments, by path.
fn sources() -> BTreeMap<String, String> {
    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("the sources") {
            let path = entry.expect("the sources").path();
            match path.is_dir() {
                true => collect(&path, files),
                false => files.push(path),
            }
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&folder, &mut files);
    files.retain(|file| file.file_name().is_some_and(|name| name != "tests.rs"));
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

/// Whether these arguments hold a label, or hand one on.
fn has_label(arguments: &str) -> bool {
    let word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
    let literal = |text: &str| text.contains('.') && text.split('.').all(word);
    let mut names = arguments.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    arguments.split('"').skip(1).step_by(2).any(literal) || names.any(|name| name == "site")
}

#[test]
fn whatever_makes_durable_has_a_label() {
    let mut found = 0;
    for (file, text) in sources() {
        // Repairs are made by hand, with the damaged directory kept aside.
        if file == "repair.rs" {
            continue;
        }
        for method in DURABLE {
            for arguments in calls(&text, method) {
                // Vectors are drained too: of ranges.
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

/// Comparisons of CRCs, by file. Who adds one gives it a label that `Faults` is asked about, and a
/// place here.
#[test]
fn every_comparison_of_a_crc_is_known() {
    let expected = BTreeMap::from([
        // read.payload.crc; read.header.crc compares in `RecordHeader::decode`.
        ("read.rs", 1),
        // meta.crc
        ("format/meta.rs", 1),
        // record.header.crc
        ("format/record.rs", 1),
        // segment.header.crc, and the trailer's, behind which the summary's own counts.
        ("format/segment.rs", 2),
        // segment.summary.crc, record.payload.crc
        ("reader.rs", 2),
        // unit.crc
        ("recovery/scan.rs", 1),
    ]);
    let mut found = BTreeMap::new();
    let mut labels = std::collections::BTreeSet::new();
    let sources = sources();
    for (file, text) in &sources {
        let compares = |line: &&str| {
            let sign = line.contains("==") || line.contains("!=");
            sign && line.contains("crc")
        };
        let count = text.lines().filter(compares).count();
        if count > 0 {
            found.insert(file.as_str(), count);
        }
        for arguments in calls(text, "enabled") {
            labels.extend(arguments.split('"').nth(1).filter(|label| label.ends_with(".crc")));
        }
    }
    assert_eq!(found, expected);
    assert_eq!(labels.len(), 8, "{labels:?}");
}
