//! The directory `diagnostic.data`: its contents and their timing. Also tested: a killed server, an unwritable
//! directory, and other tools that scan the data directory.

use crate::check;
use crate::rig::diagnostic_data::{Part, Sample, chunks, parts};
use crate::rig::{Server, eventually};
use kauri_bson::DocBuf;
use kauri_client::Connection;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ALL: &str = "diagnosticDataCollection";

/// Starts a server with these parameters of the diagnostic data collection.
fn start(name: &str, parameters: &[&str]) -> Server {
    let parameters: Vec<String> = parameters.iter().map(|rest| format!("{ALL}{rest}")).collect();
    let mut args = Vec::new();
    parameters.iter().for_each(|parameter| args.extend(["--setParameter", parameter.as_str()]));
    Server::start(name, &args)
}

fn place(server: &Server) -> PathBuf {
    server.place.join("db/diagnostic.data")
}

fn interim(server: &Server) -> PathBuf {
    place(server).join("metrics.interim")
}

/// The files of the ring, oldest first.
fn files(server: &Server) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(place(server)) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| !file.to_str().unwrap().contains("metrics.interim"));
    files.sort();
    files
}

/// The chunks of a file that is being written.
fn chunks_so_far(file: &Path) -> Vec<Vec<Sample>> {
    let Ok(bytes) = fs::read(file) else { return Vec::new() };
    let chunks = parts(&bytes).0.into_iter().filter_map(|part| match part {
        Part::Chunk(samples) => Some(samples),
        Part::About(_) => None,
    });
    chunks.collect()
}

fn ring(server: &Server) -> Vec<Vec<Sample>> {
    files(server).iter().flat_map(|file| chunks_so_far(file)).collect()
}

fn set(connection: &mut Connection, rest: &str, value: i32) -> Result<DocBuf, String> {
    let name = format!("{ALL}{rest}");
    let command = DocBuf::build(|out| {
        out.put("setParameter", 1);
        out.put(&name, value);
    });
    connection.command("admin", &command).map_err(|error| error.to_string())
}

fn stop(server: &mut Server) {
    let pid = server.process.child.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert!(server.process.child.wait().unwrap().success());
}

#[test]
fn samples_of_the_running_server_are_in_the_directory() {
    let mut server = start("ftdc", &["PeriodMillis=100", "SamplesPerChunk=5"]);
    let mut connection = server.connect("sharedMemory=off");
    for id in 0..3 {
        connection.command("test", &crate::rig::insert(id, 10)).unwrap();
    }
    let inserts = |samples: &[Sample]| samples.last().unwrap()["serverStatus.opcounters.insert"];
    let is_full = |samples: &Vec<Sample>| samples.len() == 5 && inserts(samples) == 3;
    eventually("a full chunk", || ring(&server).iter().any(is_full));
    stop(&mut server);
    assert!(!interim(&server).exists(), "a clean end leaves all in the ring");
    let [file] = &files(&server)[..] else { panic!("one file") };
    let (parts, torn) = parts(&fs::read(file).unwrap());
    assert_eq!(torn, 0);
    let Part::About(about) = &parts[0] else {
        panic!("a file begins with the document about the server")
    };
    for (section, field) in
        [("buildInfo", "version"), ("hostInfo", "os"), ("getCmdLineOpts", "argv")]
    {
        let section = about.as_doc().get(section).unwrap().as_doc().unwrap();
        assert!(section.get(field).is_some() && section.get("start").is_some());
    }
    let chunks = chunks(file);
    // Fields of a section may appear later, which ends a chunk.
    let steady = chunks.iter().position(|samples| samples.len() == 5).expect("a full chunk");
    let (last, full) = chunks[steady..].split_last().unwrap();
    assert!(full.iter().all(|samples| samples.len() == 5), "the fields are steady");
    assert!(last.len() <= 5);
    let samples: Vec<&Sample> = chunks.iter().flatten().collect();
    let pid = i64::from(server.process.child.id());
    assert!(samples.iter().all(|sample| sample["serverStatus.pid"] == pid));
    for pair in samples.windows(2) {
        let [before, after] = [pair[0], pair[1]];
        assert!(after["start"] / 100 > before["start"] / 100, "one a period");
        assert!(before["end"] >= before["serverStatus.end"] && before["start"] <= before["end"]);
        let inserts = |sample: &Sample| sample["serverStatus.opcounters.insert"];
        assert!(inserts(before) <= inserts(after));
        let busy = |sample: &Sample| sample["systemMetrics.cpu.ctxt"];
        assert!(busy(before) < busy(after));
    }
}

#[test]
fn a_killed_server_leaves_its_newest_samples() {
    let parameters = ["PeriodMillis=100", "SamplesPerInterimUpdate=2"];
    let mut server = start("ftdc-killed", &parameters);
    eventually("an interim file", || interim(&server).exists());
    let first = |samples: &[Vec<Sample>]| samples[0][0]["start"];
    let begun = first(&chunks(&interim(&server)));
    eventually("more of it", || {
        chunks_so_far(&interim(&server)).first().is_some_and(|samples| samples.len() >= 6)
    });
    server.process.child.kill().unwrap();
    server.process.child.wait().unwrap();
    let left = chunks(&interim(&server));
    assert_eq!((left.len(), first(&left)), (1, begun));
    assert!(left[0].len() >= 6);
    server.restart(&["--setParameter", &format!("{ALL}{}", parameters[0])]);
    eventually("a second file", || files(&server).len() == 2);
    eventually("they are in it", || chunks_so_far(&files(&server)[1]).first() == left.first());
    assert!(!interim(&server).exists() || chunks(&interim(&server))[0][0] != left[0][0]);
}

#[test]
fn changed_parameters_take_effect_at_once() {
    let mut server = start("ftdc-parameters", &["Enabled=false"]);
    let mut connection = server.connect("sharedMemory=off");
    assert!(!place(&server).exists());
    for (rest, value, error) in [
        ("PeriodMillis", 99, "99 is not greater than or equal to 100"),
        ("SamplesPerChunk", 1, "1 is not greater than or equal to 2"),
        ("SamplesPerInterimUpdate", 1, "1 is not greater than or equal to 2"),
        ("DirectorySizeMB", 9, "9 is not greater than or equal to 10"),
        ("FileSizeMB", 0, "0 is not greater than or equal to 1"),
        ("FileSizeMB", 201, "less than or equal to '200'"),
    ] {
        let told = set(&mut connection, rest, value).unwrap_err();
        assert!(told.contains(error), "{told}");
    }
    // A month.
    set(&mut connection, "PeriodMillis", i32::MAX).unwrap();
    set(&mut connection, "Enabled", 1).unwrap();
    eventually("a file", || files(&server).len() == 1);
    set(&mut connection, "PeriodMillis", 100).unwrap();
    set(&mut connection, "SamplesPerChunk", 3).unwrap();
    eventually("chunks of three", || {
        ring(&server).iter().filter(|samples| samples.len() == 3).count() > 1
    });
    // Buffered samples are written.
    set(&mut connection, "SamplesPerChunk", 1000).unwrap();
    set(&mut connection, "SamplesPerInterimUpdate", 2).unwrap();
    eventually("an interim file", || interim(&server).exists());
    let count = ring(&server).len();
    set(&mut connection, "Enabled", 0).unwrap();
    eventually("the rest", || !interim(&server).exists() && ring(&server).len() == count + 1);
    let before = fs::read(&files(&server)[0]).unwrap();
    set(&mut connection, "SamplesPerChunk", 2).unwrap();
    set(&mut connection, "Enabled", 1).unwrap();
    eventually("another file", || {
        files(&server).get(1).is_some_and(|f| !chunks_so_far(f).is_empty())
    });
    assert_eq!(fs::read(&files(&server)[0]).unwrap(), before);
    set(&mut connection, "Enabled", 0).unwrap();
    stop(&mut server);
}

#[test]
fn a_server_that_starts_without_the_collection_writes_nothing() {
    let mut server = start("ftdc-off", &["Enabled=false", "PeriodMillis=100"]);
    stop(&mut server);
    assert!(!place(&server).exists());
}

#[test]
fn the_oldest_files_are_deleted_first() {
    let mut server = start("ftdc-bounded", &["Enabled=false"]);
    fs::create_dir(place(&server)).unwrap();
    for day in 1..=12 {
        let name = format!("metrics.2020-01-{day:02}T00-00-00Z-00000");
        fs::write(place(&server).join(name), vec![0; 1 << 20]).unwrap();
    }
    fs::write(place(&server).join("notes"), "ours").unwrap();
    let mut connection = server.connect("sharedMemory=off");
    set(&mut connection, "DirectorySizeMB", 10).unwrap();
    set(&mut connection, "PeriodMillis", 100).unwrap();
    set(&mut connection, "Enabled", 1).unwrap();
    let is_ours = |file: &PathBuf| !file.to_str().unwrap().contains("metrics.2020");
    eventually("a file", || files(&server).iter().filter(|file| is_ours(file)).count() == 2);
    stop(&mut server);
    let left: Vec<_> = files(&server);
    let days = left.iter().filter(|file| !is_ours(file));
    let days: Vec<&str> =
        days.map(|file| &file.file_name().unwrap().to_str().unwrap()[16..18]).collect();
    assert_eq!(days, ["04", "05", "06", "07", "08", "09", "10", "11", "12"]);
    assert!(place(&server).join("notes").exists(), "files of other programs stay");
}

#[test]
fn a_directory_that_cannot_be_written_costs_one_line() {
    let mut server = start("ftdc-refused", &["Enabled=false"]);
    fs::write(place(&server), "no directory").unwrap();
    let mut connection = server.connect("sharedMemory=off");
    set(&mut connection, "SamplesPerInterimUpdate", 2).unwrap();
    set(&mut connection, "PeriodMillis", 100).unwrap();
    set(&mut connection, "Enabled", 1).unwrap();
    server.tells("Cannot write diagnostic data", 1);
    connection.command("test", &crate::rig::insert(1, 10)).unwrap();
    fs::remove_file(place(&server)).unwrap();
    server.tells("Diagnostic data collection resumed", 1);
    eventually("samples", || interim(&server).exists());
    stop(&mut server);
    assert!(!ring(&server).is_empty());
    assert_eq!(server.process.told("Cannot write diagnostic data"), 1);
}

#[test]
fn checks_and_repairs_leave_the_directory_alone() {
    let place = check::Place::new("ftdc-check");
    let mut server = check::Server::start(&place.0, &[]);
    server.insert(0..10);
    server.stop();
    let directory = place.0.join("diagnostic.data");
    assert!(directory.is_dir());
    let torn = directory.join("metrics.2020-01-01T00-00-00Z-00000");
    fs::write(&torn, "torn").unwrap();
    fs::write(directory.join("metrics.interim"), "torn, too").unwrap();
    let contents = || {
        let entries = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> = entries.map(|path| (fs::read(&path).unwrap(), path)).collect();
        all.sort();
        all
    };
    let before = contents();
    for (command, args) in [("check", &[][..]), ("serve", &["--repair"])] {
        let (told, is_ok) = check::run(command, &place.0, args);
        assert!(is_ok && !told.contains("diagnostic"), "{told}");
        assert_eq!(contents(), before, "{command}");
    }
    let server = check::Server::start(&place.0, &["--verify", "full"]);
    server.stop();
    assert_eq!(fs::read(torn).unwrap(), b"torn");
}
