//! Reads recorded data back with a decoder that knows only the format.

use super::chunk::Chunk;
use super::decode::{Part, Sample, chunks, metrics, parts};
use super::files::Limits;
use super::recorder::{Recorder, Rules};
use super::{Episode, Notice, Settings};
use kauri_base::{ErrorCode, Timestamp};
use kauri_bson::{Decimal128, DocBuf, Value, array, doc};
use kauri_commands::parameters::Parameters;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const START_MS: i64 = 1_769_860_800_000;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("kauri-ftdc-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn directory(&self) -> PathBuf {
        self.0.join("diagnostic.data")
    }

    /// The files of the ring, oldest first.
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory()).unwrap().flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
        files.retain(|path| !path.ends_with("metrics.interim"));
        files.sort();
        files
    }

    fn interim(&self) -> PathBuf {
        self.directory().join("metrics.interim")
    }

    /// The numbers of the samples in the ring.
    fn numbers(&self) -> Vec<i64> {
        self.files().iter().flat_map(|file| numbers(file)).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn numbers(file: &Path) -> Vec<i64> {
    chunks(file).into_iter().flatten().map(|sample| sample["n"]).collect()
}

const RULES: Rules = Rules {
    samples_per_chunk: 10,
    samples_per_interim: 3,
    limits: Limits { file_bytes: 1 << 20, all_bytes: 10 << 20 },
};

fn sample(n: i64) -> DocBuf {
    doc! { "start" => Value::DateTime(START_MS + n * 1000), "n" => n }
}

fn about() -> DocBuf {
    doc! { "buildInfo" => doc! { "version" => "8" } }
}

fn record(recorder: &mut Recorder, numbers: std::ops::Range<i64>) {
    for n in numbers {
        recorder.add(sample(n), &about, &RULES).unwrap();
    }
}

fn decoded(chunk: &Chunk) -> Vec<Sample> {
    match parts(chunk.to_doc().unwrap().as_bytes()) {
        (parts, 0) => match &parts[..] {
            [Part::Chunk(samples)] => samples.clone(),
            other => panic!("{other:?}"),
        },
        (_, torn) => panic!("{torn} bytes are no document"),
    }
}

/// A sample of every type of field, with values that only modulo 2^64 have a difference.
fn all_types(n: i64) -> DocBuf {
    let extremes = [i64::MIN, i64::MAX, 0, -1, 127, 128, 1 << 32];
    let doubles = [0.5, -1e300, f64::NAN, f64::INFINITY, 1e18];
    let at = |n: i64| Timestamp { seconds: (n * 77_777_777) as u32, increment: n as u32 };
    doc! {
        "start" => Value::DateTime(START_MS + n * 1000),
        "text" => format!("text {n}").as_str(),
        "same" => 7,
        "inner" => doc! {
            "long" => extremes[n as usize % extremes.len()],
            "list" => array![n % 3, doc! { "flag" => n % 2 == 0 }, 0, 0],
            "none" => Value::Null,
        },
        "double" => doubles[n as usize % doubles.len()],
        "decimal" => Decimal128::parse("12.5").unwrap(),
        "at" => at(n),
        "back" => -n * n,
        "end" => Value::DateTime(START_MS - n),
    }
}

#[test]
fn samples_of_all_types_are_read_back() {
    let mut chunk = Chunk::new(all_types(0));
    for n in 1..300 {
        assert!(chunk.add(all_types(n).as_doc()));
    }
    let found = decoded(&chunk);
    assert_eq!(found.len(), 300);
    for (n, sample) in found.iter().enumerate() {
        let expected: Sample = metrics(all_types(n as i64).as_doc()).into_iter().collect();
        assert_eq!(*sample, expected, "{n}");
    }
    let one = Chunk::new(all_types(5));
    assert_eq!(decoded(&one), [metrics(all_types(5).as_doc()).into_iter().collect::<Sample>()]);
}

#[test]
fn a_sample_with_other_fields_starts_a_chunk() {
    let start = || Value::DateTime(START_MS);
    let first =
        || doc! { "start" => start(), "a" => 1, "b" => doc! { "c" => 1i64 }, "d" => "text" };
    let mut chunk = Chunk::new(first());
    for other in [
        doc! { "start" => start(), "a" => 1, "b" => doc! { "c" => 1i64 } },
        doc! { "start" => start(), "a" => 1, "b" => doc! { "c" => 1i64 }, "d" => "text", "e" => 1 },
        doc! { "start" => start(), "a" => 1, "b" => doc! { "c" => 1i64, "x" => 1 }, "d" => "text" },
        doc! { "start" => start(), "a" => 1, "b" => doc! {}, "d" => "text" },
        doc! { "start" => start(), "a" => 1, "x" => doc! { "c" => 1i64 }, "d" => "text" },
        doc! { "start" => start(), "a" => 1.0, "b" => doc! { "c" => 1i64 }, "d" => "text" },
        doc! { "start" => start(), "a" => 1, "b" => 2, "d" => "text" },
    ] {
        assert!(!chunk.add(other.as_doc()), "{}", kauri_bson::shell_text(other.as_doc()));
    }
    assert!(chunk.add(
        doc! { "start" => start(), "a" => 9, "b" => doc! { "c" => 1i64 }, "d" => "other" }.as_doc()
    ));
    assert_eq!(decoded(&chunk).len(), 2, "what was refused is not in it");

    let place = Place::new("fields");
    let mut recorder = Recorder::new(place.directory());
    record(&mut recorder, 0..4);
    let start = Value::DateTime(START_MS + 4000);
    recorder.add(doc! { "start" => start, "n" => 4i64, "m" => 1 }, &about, &RULES).unwrap();
    record(&mut recorder, 5..7);
    recorder.finish(&about, &RULES).unwrap();
    let lengths: Vec<_> = chunks(&place.files()[0]).iter().map(Vec::len).collect();
    assert_eq!((lengths, place.numbers()), (vec![4, 1, 2], (0..7).collect()));
}

#[test]
fn a_chunk_stays_within_its_memory_limit() {
    let wide = || DocBuf::build(|out| (0..200_000).for_each(|n| out.put(&n.to_string(), n)));
    let mut chunk = Chunk::new(wide());
    let mut samples = 1;
    while !chunk.is_full(300) {
        assert!(chunk.add(wide().as_doc()));
        samples += 1;
    }
    assert_eq!(samples, 6);
}

#[test]
fn full_chunks_go_into_the_ring_and_the_unfinished_one_into_the_interim_file() {
    let place = Place::new("ring");
    let mut recorder = Recorder::new(place.directory());
    record(&mut recorder, 0..2);
    assert_eq!(place.files()[0].file_name().unwrap(), "metrics.2026-01-31T12-00-00Z-00000");
    assert!(!place.interim().exists());
    record(&mut recorder, 2..9);
    assert_eq!((place.numbers(), numbers(&place.interim())), (vec![], (0..9).collect()));
    record(&mut recorder, 9..14);
    let lengths: Vec<_> = chunks(&place.files()[0]).iter().map(Vec::len).collect();
    assert_eq!((lengths, numbers(&place.interim())), (vec![10], (10..13).collect()));
    recorder.finish(&about, &RULES).unwrap();
    assert_eq!(place.numbers(), (0..14).collect::<Vec<_>>());
    assert!(!place.interim().exists());
    // A later sample begins another file, which tells of the server, too.
    record(&mut recorder, 14..15);
    recorder.finish(&about, &RULES).unwrap();
    let files = place.files();
    assert_eq!((files.len(), place.numbers()), (2, (0..15).collect()));
    for file in files {
        let (parts, _) = parts(&fs::read(file).unwrap());
        assert_eq!(parts[0], Part::About(about()));
    }
}

#[test]
fn the_directory_stays_within_its_limit() {
    let place = Place::new("bounded");
    fs::create_dir(place.directory()).unwrap();
    fs::write(place.directory().join("notes"), vec![0; 50_000]).unwrap();
    let limits = Limits { file_bytes: 4_000, all_bytes: 20_000 };
    let rules = Rules { limits, ..RULES };
    let mut recorder = Recorder::new(place.directory());
    // Differences that do not compress.
    let noise = |n: i64| {
        let mixed = (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 1) as i64
    };
    let noisy = |n: i64| {
        DocBuf::build(|out| {
            out.put_all(sample(n).as_doc());
            (0..20).for_each(|field| out.put(&format!("f{field}"), noise(n * 20 + field)));
        })
    };
    let mut deleted = false;
    for n in 0..600 {
        recorder.add(noisy(n), &about, &rules).unwrap();
        let files = place.files();
        let ours = files.iter().filter(|file| !file.ends_with("notes"));
        let sizes: Vec<u64> = ours.map(|file| fs::metadata(file).unwrap().len()).collect();
        let interim = fs::metadata(place.interim()).map_or(0, |file| file.len());
        assert!(sizes.iter().all(|bytes| *bytes <= 4_000), "{sizes:?}");
        assert!(sizes.iter().sum::<u64>() + interim <= 20_000, "{sizes:?}, {interim}");
        deleted |= n > 300 && sizes.len() > 3;
    }
    assert!(deleted, "there were several files");
    fs::remove_file(place.directory().join("notes")).expect("what is not ours stays");
    let kept = place.numbers();
    assert!(kept[0] > 400 && kept.len() > 50, "the oldest go: {kept:?}");
    assert_eq!(kept, (kept[0]..600).collect::<Vec<_>>());
    // The limit is lowered, and a file may be as large as the directory: half of it is used.
    let limits = Limits { file_bytes: 10_000, all_bytes: 10_000 };
    for n in 600..700 {
        recorder.add(noisy(n), &about, &Rules { limits, ..RULES }).unwrap();
        let interim = fs::metadata(place.interim()).map_or(0, |file| file.len());
        let sizes = place.files().into_iter().map(|file| fs::metadata(file).unwrap().len());
        let sizes: Vec<u64> = sizes.collect();
        assert!(sizes.iter().all(|bytes| *bytes <= 5_000), "{sizes:?}");
        let is_lowered = n >= 610;
        assert!(!is_lowered || sizes.iter().sum::<u64>() + interim <= 10_000, "{sizes:?}");
    }
}

#[test]
fn the_chunk_of_a_killed_process_is_kept_once() {
    let place = Place::new("killed");
    let mut killed = Recorder::new(place.directory());
    record(&mut killed, 0..17);
    drop(killed);
    assert_eq!(numbers(&place.interim()), (10..16).collect::<Vec<_>>());
    let mut recorder = Recorder::new(place.directory());
    record(&mut recorder, 20..21);
    assert!(!place.interim().exists());
    assert_eq!(place.numbers(), (0..16).collect::<Vec<_>>());
    // Killed after the chunk went into the ring, and before the interim file was removed.
    record(&mut recorder, 21..29);
    let interim = fs::read(place.interim()).unwrap();
    record(&mut recorder, 29..30);
    drop(recorder);
    fs::write(place.interim(), interim).unwrap();
    let mut recorder = Recorder::new(place.directory());
    record(&mut recorder, 40..41);
    recorder.finish(&about, &RULES).unwrap();
    assert_eq!(place.numbers(), (0..16).chain(20..30).chain(40..41).collect::<Vec<_>>());
}

#[test]
fn torn_files_are_tolerated() {
    let place = Place::new("torn");
    let mut recorder = Recorder::new(place.directory());
    record(&mut recorder, 0..14);
    drop(recorder);
    let last = place.files().remove(0);
    let (bytes, interim) = (fs::read(&last).unwrap(), fs::read(place.interim()).unwrap());
    fs::write(&last, &bytes[..bytes.len() - 7]).unwrap();
    for damaged in [&interim[..interim.len() - 1], b"", b"\x05\0\0\0\0", &[0xff; 100]] {
        fs::write(place.interim(), damaged).unwrap();
        let mut recorder = Recorder::new(place.directory());
        record(&mut recorder, 20..22);
        recorder.finish(&about, &RULES).unwrap();
        assert!(!place.interim().exists());
        let new = place.files().pop().unwrap();
        assert_eq!(numbers(&new), [20, 21]);
        fs::remove_file(new).unwrap();
    }
    assert_eq!(fs::read(last).unwrap().len(), bytes.len() - 7, "the torn file is left alone");
}

#[test]
fn deleted_files_are_created_again() {
    let place = Place::new("deleted");
    let mut recorder = Recorder::new(place.directory());
    record(&mut recorder, 0..1);
    fs::remove_dir_all(place.directory()).unwrap();
    record(&mut recorder, 1..3);
    assert_eq!(numbers(&place.interim()), [0, 1, 2]);
    record(&mut recorder, 3..10);
    assert_eq!(place.numbers(), (0..10).collect::<Vec<_>>());
    fs::remove_file(&place.files()[0]).unwrap();
    record(&mut recorder, 10..20);
    assert_eq!(place.numbers(), (10..20).collect::<Vec<_>>());
}

#[test]
fn recording_resumes_when_the_directory_exists() {
    let place = Place::new("refused");
    fs::write(place.directory(), "no directory").unwrap();
    let mut recorder = Recorder::new(place.directory());
    for n in 0..20 {
        recorder.add(sample(n), &about, &RULES).unwrap_err();
    }
    fs::remove_file(place.directory()).unwrap();
    record(&mut recorder, 20..24);
    recorder.finish(&about, &RULES).unwrap();
    assert_eq!(place.numbers(), [20, 21, 22, 23]);
}

#[test]
fn the_first_of_several_errors_and_their_end_are_reported() {
    let mut episode = Episode::default();
    let failed = || Err(ErrorKind::StorageFull.into());
    let outcomes = [
        (Ok(true), ""),
        (Ok(false), ""),
        (failed(), "fails"),
        (Ok(false), ""),
        (failed(), ""),
        (Ok(true), "goes on"),
        (Ok(true), ""),
        (failed(), "fails"),
    ];
    for (at, (outcome, expected)) in outcomes.into_iter().enumerate() {
        let told = match episode.note(outcome) {
            Some(Notice::Fails(_)) => "fails",
            Some(Notice::GoesOn) => "goes on",
            None => "",
        };
        assert_eq!(told, expected, "{at}");
    }
}

#[test]
fn parameters_have_mongods_defaults_and_bounds() {
    let (settings, parameters) = (Arc::new(Settings::default()), Parameters::default());
    settings.define_parameters(&parameters);
    let name = |rest: &str| format!("diagnosticDataCollection{rest}");
    let set = |rest: &str, value: i32| {
        let code = |error: kauri_base::Error| error.code();
        parameters.set(&[(&name(rest), Value::Int32(value))]).map(drop).map_err(code)
    };
    let refused = Err(ErrorCode::BadValue);
    for (rest, default, least) in [
        ("PeriodMillis", 1000, 100),
        ("SamplesPerChunk", 300, 2),
        ("SamplesPerInterimUpdate", 10, 2),
        ("DirectorySizeMB", 200, 10),
        ("FileSizeMB", 10, 1),
    ] {
        assert_eq!(parameters.number(&name(rest)), default, "{rest}");
        assert_eq!(set(rest, least - 1), refused, "{rest}");
        let version = settings.now().version;
        assert_eq!(set(rest, least), Ok(()), "{rest}");
        assert_eq!(settings.now().version, version + 1, "the thread is woken");
    }
    let now = settings.now();
    let limits = Limits { file_bytes: 1 << 20, all_bytes: 10 << 20 };
    assert_eq!(now.rules, Rules { samples_per_chunk: 2, samples_per_interim: 2, limits });
    assert_eq!((now.period_ms, now.enabled), (100, true));
    assert_eq!(set("FileSizeMB", 11), refused, "more than the directory");
    assert_eq!(set("DirectorySizeMB", 20), Ok(()));
    assert_eq!(set("FileSizeMB", 11), Ok(()));
    assert_eq!(set("DirectorySizeMB", 10), refused, "less than a file");
    assert_eq!(set("Enabled", 0), Ok(()));
    assert!(!settings.now().enabled);
}
