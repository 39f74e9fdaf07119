//! A directory with a damaged document. `kauri check` and `kauri serve --verify full` name the document. The
//! server serves the rest. `kauri serve --repair` moves the document aside and exits.

use kauri_bson::{Doc, DocBuf, Value, doc};
use kauri_storage_log::format::Stream;
use kauri_storage_log::format::marks::{MARK_SLOT_BYTES, MARK_SLOTS, Mark};
use kauri_storage_log::format::meta::Meta;
use kauri_storage_log::format::record::{Kind, RecordHeader, Seed};
use kauri_storage_log::format::segment::SegmentHeader;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub struct Place(pub PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("kauri-check-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    /// A directory with this many documents, after a clean shutdown.
    fn filled(name: &str, documents: i32) -> Place {
        let place = Place::new(name);
        let mut server = Server::start(&place.0, &[]);
        server.insert(0..documents);
        server.stop();
        place
    }

    /// The files and their contents.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(&self.0).unwrap().flatten();
        let entries = entries.filter(|entry| entry.file_type().unwrap().is_file());
        let file = |entry: std::fs::DirEntry| {
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        };
        entries.map(file).collect()
    }

    /// The files that a repair has moved aside.
    fn aside(&self) -> Vec<Vec<u8>> {
        let files = self.files().into_iter();
        files.filter(|(name, _)| name.starts_with("quarantine.")).map(|(_, bytes)| bytes).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn kauri(command: &str, place: &Path, args: &[&str]) -> Command {
    let mut kauri = Command::new(env!("CARGO_BIN_EXE_kauri"));
    kauri.arg(command).arg("--dbpath").arg(place).args(args);
    kauri
}

/// The output of a command, and whether it succeeded.
pub fn run(command: &str, place: &Path, args: &[&str]) -> (String, bool) {
    let output = kauri(command, place, args).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (told.into_owned(), output.status.success())
}

pub struct Server {
    child: Child,
    client: TcpStream,
    /// The server's output until it listened.
    pub told: String,
}

impl Server {
    pub fn start(place: &Path, args: &[&str]) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut child = kauri("serve", place, args)
            .args(["--nounixsocket", "--segmentSizeMB", "1", "--port", &port.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !told.contains("Waiting for connections") {
            assert!(lines.read_line(&mut told).unwrap() > 0, "{told}");
        }
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        Server { child, client, told }
    }

    /// A server that logs to this file.
    pub fn start_logging_to(place: &Path, log: &Path, args: &[&str]) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = kauri("serve", place, args)
            .args(["--nounixsocket", "--segmentSizeMB", "1", "--port", &port.to_string()])
            .spawn()
            .unwrap();
        let read = || std::fs::read_to_string(log).unwrap_or_default();
        crate::rig::eventually("it listens", || read().contains("Waiting for connections"));
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        Server { child, client, told: read() }
    }

    fn send(&mut self, command: &DocBuf) {
        let body = command.as_bytes();
        let mut message = ((21 + body.len()) as u32).to_le_bytes().to_vec();
        for word in [1u32, 0, 2013, 0] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.push(0);
        message.extend_from_slice(body);
        self.client.write_all(&message).unwrap();
    }

    pub fn ask(&mut self, command: DocBuf) -> DocBuf {
        self.send(&command);
        let mut head = [0; 21];
        self.client.read_exact(&mut head).unwrap();
        let len = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        let mut body = vec![0; len - head.len()];
        self.client.read_exact(&mut body).unwrap();
        Doc::from_bytes(&body).unwrap().to_buf()
    }

    /// Inserts documents with these numbers.
    pub fn insert(&mut self, ids: std::ops::Range<i32>) {
        for id in ids {
            let text = format!("<{id}>{}", "x".repeat(1000));
            let documents = kauri_bson::array![doc! { "_id" => id, "text" => text.as_str() }];
            let reply =
                self.ask(doc! { "insert" => "c", "documents" => documents, "$db" => "test" });
            assert_eq!(number(&reply, "n"), 1.0);
        }
    }

    fn find(&mut self, id: i32) -> DocBuf {
        let filter = doc! { "_id" => id };
        self.ask(doc! { "find" => "c", "filter" => filter, "$db" => "test" })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn stop(mut self) {
        self.send(&doc! { "shutdown" => 1, "$db" => "admin" });
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn number(doc: &DocBuf, path: &str) -> f64 {
    let (first, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
    match (doc.as_doc().value(first), rest) {
        (Value::Document(inner), Some(rest)) => number(&inner.into_buf(), rest),
        (Value::Int32(n), None) => f64::from(n),
        (Value::Int64(n), None) => n as f64,
        (Value::Double(n), None) => n,
        other => panic!("{path}: {other:?}"),
    }
}

/// Flips a bit of the document whose text begins with this.
fn damage(place: &Path, text: &str) {
    let log = place.join("pmlog.0");
    let mut bytes = std::fs::read(&log).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    bytes[at + 100] ^= 4;
    std::fs::write(&log, bytes).unwrap();
}

/// Whether a line reports the document with this `_id` as damaged.
fn is_named(told: &str, id: &str) -> bool {
    let named = |line: &str| line.contains("\"ns\":\"test.c\"") && is_told(line, id);
    told.lines().any(named)
}

/// The same, if the owner of the document is unknown.
fn is_told(told: &str, id: &str) -> bool {
    let told_of = |line: &str| {
        line.contains("\"Damage found") && line.contains("\"_id\"") && line.contains(id)
    };
    told.lines().any(told_of)
}

#[test]
fn damage_is_reported_intact_data_served_and_damage_repaired() {
    let whole = Place::new("whole");
    let (place, aside) = (whole.0.as_path(), || whole.aside());
    // A new directory needs no verification.
    let mut server = Server::start(place, &["--verify", "full"]);
    server.insert(0..200);
    let stats = server.ask(doc! { "collStats" => "c", "$db" => "test" });
    assert_eq!(number(&stats, "pmlog.liveRecords"), 200.0);
    assert!(number(&stats, "pmlog.liveBytes") > 200_000.0);
    assert_eq!(number(&stats, "pmlog.outdatedRecordsInLog"), 1.0, "the one that creates it");
    let status = server.ask(doc! { "serverStatus" => 1, "$db" => "test" });
    assert!(number(&status, "pmlog.log.writeAmplification") > 1.0);
    assert!(number(&status, "pmlog.liveRatio") > 0.0);
    assert_eq!(number(&status, "pmlog.cleaner.movedBytes"), 0.0);
    server.stop();

    let (told, well) = run("check", place, &["--stats"]);
    assert!(well && told.contains("\"bytesPerSecond\""), "{told}");
    for figure in ["liveRatio", "spaceAmplification", "\"ns\":\"test.c\"", "\"documents\":200"] {
        assert!(told.contains(figure), "{told}");
    }
    let (told, well) = run("serve", place, &["--repair"]);
    assert!(well && told.contains("nothing to repair"), "{told}");

    damage(place, "<17>");
    let is_named = |told: &str| is_named(told, "17");
    let (told, well) = run("check", place, &[]);
    assert!(!well && is_named(&told), "{told}");
    // A start reads no documents by default.
    let server = Server::start(place, &["--verify", "quick"]);
    assert!(!server.told.contains("Damage found"), "{}", server.told);
    server.stop();
    let mut server = Server::start(place, &["--verify", "full"]);
    assert!(is_named(&server.told), "{}", server.told);
    assert!(server.told.contains("Data directory is damaged"), "{}", server.told);
    assert_eq!(number(&server.find(16), "ok"), 1.0);
    let reply = server.find(17);
    assert_eq!(number(&reply, "ok"), 0.0);
    let name = reply.as_doc().value("codeName");
    assert_eq!(name.as_str(), Some("DataCorruptionDetected"), "{reply:?}");
    server.stop();

    let (told, well) = run("serve", place, &["--repair"]);
    assert!(well && is_named(&told) && told.contains("Document lost"), "{told}");
    assert!(told.contains("Data directory repaired"), "{told}");
    assert!(!told.contains("Waiting for connections"), "{told}");
    let mut server = Server::start(place, &["--verify", "full"]);
    assert!(!server.told.contains("is damaged; intact data"), "{}", server.told);
    let count = server.ask(doc! { "count" => "c", "$db" => "test" });
    assert_eq!(number(&count, "n"), 199.0);
    assert_eq!(number(&server.find(17), "ok"), 1.0);
    server.stop();
    // The documents moved aside are superseded now: they are still reported, but no fault remains.
    let (told, well) = run("check", place, &[]);
    assert!(well && is_named(&told) && told.contains("no current document is affected"), "{told}");
    assert!(matches!(&aside()[..], [one] if one.windows(4).any(|text| text == b"<17>")));
    let (told, well) = run("check", place, &["--repair"]);
    assert!(well && !told.contains("Document lost"), "{told}");

    let (told, well) = run("serve", place, &["--repair", "--storageEngine", "ephemeralForTest"]);
    assert!(!well && told.contains("needs --storageEngine pmlog"), "{told}");
}

#[test]
fn a_check_repairs_damage_and_reports_losses() {
    let place = Place::filled("repair", 200);
    let path = place.0.as_path();
    damage(path, "<17>");
    damage(path, "<90>");
    // A check changes nothing, and a check of summaries reads no documents.
    let before = place.files();
    let (told, well) = run("check", path, &["--verify", "summaries"]);
    assert!(well && !told.contains("\"Damage found"), "{told}");
    let (told, well) = run("check", path, &[]);
    assert!(!well && told.contains("has 2 damaged places, 2 of which affect"), "{told}");
    assert_eq!(place.files(), before);
    // A repair reads the documents, whatever the option.
    let (told, well) = run("check", path, &["--repair", "--verify", "summaries"]);
    assert!(well && told.contains("Data directory repaired"), "{told}");
    let line = |with: &str| told.lines().find(|line| line.contains(with)).unwrap_or_default();
    let sum = line("Documents lost");
    assert!(sum.contains("\"ns\":\"test.c\"") && sum.contains("\"documents\":2"), "{told}");
    for id in ["17", "90"] {
        let lost = |line: &str| {
            let named = line.contains("\"_id\"") && line.contains(id) && line.contains("test.c");
            named && line.contains("Document lost") && line.contains("quarantine.")
        };
        assert!(told.lines().any(lost), "{id}: {told}");
    }
    let aside = place.aside();
    for text in [&b"<17>"[..], b"<90>"] {
        assert!(aside.iter().any(|bytes| bytes.windows(4).any(|window| window == text)));
    }
    let (told, well) = run("check", path, &[]);
    assert!(well && told.contains("no current document is affected"), "{told}");
    // All intact documents are readable.
    let mut server = Server::start(path, &[]);
    for id in 0..200 {
        let reply = server.find(id);
        let there = format!("{reply:?}").contains(&format!("<{id}>"));
        assert!(there != [17, 90].contains(&id), "{id}: {reply:?}");
    }
    // No repair runs while a server uses the directory.
    let before = place.aside();
    for (command, args) in [("check", &["--repair"][..]), ("serve", &["--repair"]), ("check", &[])]
    {
        let (told, well) = run(command, path, args);
        assert!(!well, "{command} {args:?}: {told}");
    }
    assert_eq!(place.aside(), before);
    server.stop();
}

#[test]
fn an_unreadable_log_is_reported_and_repaired() {
    let place = Place::filled("followed", 1200);
    let path = place.0.as_path();
    damage(path, "<17>");
    damage(path, "<1150>");
    let log = path.join("pmlog.0");
    let mut bytes = std::fs::read(&log).unwrap();
    // Both copies of the header of the segment with the first document.
    let at = bytes.windows(3).position(|window| window == b"<0>").unwrap() >> 20 << 20;
    bytes[at..at + 4096].fill(0xa5);
    std::fs::write(&log, bytes).unwrap();
    // Segments with intact headers are still read.
    let (told, well) = run("check", path, &[]);
    assert!(!well && told.contains("the header is damaged") && is_told(&told, "1150"), "{told}");
    let (told, well) = run("serve", path, &["--verify", "full", "--port", "0"]);
    assert!(!well && is_told(&told, "1150") && told.contains("is damaged; intact data"), "{told}");
    let (told, well) = run("check", path, &["--repair"]);
    assert!(well && told.contains("Data directory repaired"), "{told}");
    let mended = told
        .lines()
        .find(|line| line.contains("unreadable at this position; repaired"))
        .unwrap_or_default();
    assert!(mended.contains("quarantine.") && mended.contains("it was created again"), "{told}");
    // Other damage is found once the log can be followed.
    assert!(is_named(&told, "17") && is_named(&told, "1150"), "{told}");
    assert_eq!(told.matches("lost; its remains are in the quarantine file").count(), 2, "{told}");
    let headers = place.aside().into_iter().filter(|bytes| bytes.iter().all(|byte| *byte == 0xa5));
    assert_eq!(headers.count(), 1);
    let mut server = Server::start(path, &["--verify", "full"]);
    assert!(!server.told.contains("is damaged; intact data"), "{}", server.told);
    let count = server.ask(doc! { "count" => "c", "$db" => "test" });
    assert_eq!(number(&count, "n"), 1198.0);
    server.stop();
}

#[test]
fn damage_of_an_index_image_is_reported_and_harmless() {
    let place = Place::filled("image", 200);
    let path = place.0.as_path();
    let mut server = Server::start(path, &[]);
    let index = doc! { "key" => doc! { "text" => 1 }, "name" => "by_text" };
    let indexes = kauri_bson::array![index];
    let made = server.ask(doc! { "createIndexes" => "c", "indexes" => indexes, "$db" => "test" });
    assert_eq!(number(&made, "ok"), 1.0);
    server.stop();
    let log = path.join("pmlog.0");
    let mut bytes = std::fs::read(&log).unwrap();
    let is_image = |bytes: &[u8]| {
        SegmentHeader::decode(bytes, true).is_some_and(|header| header.stream == Stream::Image)
    };
    let mut images = 0;
    for image in bytes.chunks_exact_mut(1 << 20).filter(|bytes| is_image(bytes)) {
        image[4096 + 100] ^= 4;
        images += 1;
    }
    assert!(images > 0);
    std::fs::write(&log, bytes).unwrap();
    let untouched = place.files();
    let (told, well) = run("check", path, &[]);
    assert!(well && told.contains("Index image is damaged"), "{told}");
    assert_eq!(place.files(), untouched);
    let mut server = Server::start(path, &["--verify", "full"]);
    assert!(server.told.contains("Index image is damaged"), "{}", server.told);
    let count = doc! { "count" => "c", "hint" => "by_text", "$db" => "test" };
    assert_eq!(number(&server.ask(count), "n"), 200.0);
    server.stop();
}

/// No document can be named here, so nothing can be moved aside.
#[test]
fn a_repair_fails_if_damage_remains() {
    let place = Place::filled("commit", 0);
    let path = place.0.as_path();
    let mut server = Server::start(path, &[]);
    let documents = kauri_bson::array![doc! { "_id" => 1 }, doc! { "_id" => 2 }];
    server.ask(doc! { "insert" => "c", "documents" => documents, "$db" => "test" });
    server.stop();
    let log = path.join("pmlog.0");
    let mut bytes = std::fs::read(&log).unwrap();
    let is_changed = (0..).zip(bytes.chunks_exact_mut(1 << 20)).any(|(segment, bytes)| {
        let Some(header) = SegmentHeader::decode(bytes, true) else { return false };
        let (seed, mut offset) = (Seed::new(segment, header.epoch), 4096);
        while let Some(place) = bytes[offset as usize..].first_chunk_mut()
            && let Some((record, _)) = RecordHeader::decode(place, seed, offset)
        {
            if record.kind == Kind::Commit {
                *place = RecordHeader { seq: record.seq + 1, ..record }.encode(seed, offset).0;
                return true;
            }
            offset += record.record_bytes();
        }
        false
    });
    assert!(is_changed);
    std::fs::write(&log, bytes).unwrap();
    let (told, well) = run("check", path, &[]);
    assert!(!well && told.contains("the summary names another record"), "{told}");
    for command in ["check", "serve"] {
        let (told, well) = run(command, path, &["--repair"]);
        assert!(!well && told.contains("still has 1 damaged place"), "{told}");
        assert!(!told.contains("directory repaired"), "{told}");
    }
}

/// The way in which the client makes its inserts durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sync {
    /// By `fsync`.
    Fsync,
    /// By `j: true` of the last insert.
    Journaled,
    /// It does nothing: it is idle.
    Idle,
}

/// A command that inserts all of these documents.
fn bulk(ids: std::ops::Range<i32>, journaled: bool) -> DocBuf {
    let document = |id: i32| {
        let text = format!("<{id}>{}", "x".repeat(1000));
        Value::from(doc! { "_id" => id, "text" => text.as_str() })
    };
    let documents = Value::array(ids.map(document));
    let concern = doc! { "w" => 1, "j" => journaled };
    doc! { "insert" => "c", "documents" => documents, "writeConcern" => concern, "$db" => "test" }
}

/// The last durable commit by the mark file.
fn marked(place: &Path) -> u64 {
    let read = |name: &str| std::fs::read(place.join(name)).unwrap();
    let directory = Meta::decode(&read("kauri.meta"), true).unwrap().directory;
    let bytes = read("pmlog.marks");
    let slots = bytes.chunks(MARK_SLOT_BYTES).take(MARK_SLOTS);
    let marks = slots.filter_map(|slot| Mark::decode(slot, &directory, true));
    marks.map(|mark| mark.horizon.seq).max().unwrap_or(0)
}

/// The directory of a server killed after a bulk insert of this many documents.
fn killed(documents: i32, memory: &str, sync: Sync) -> Place {
    let place = Place::new(&format!("killed-{memory}-{sync:?}"));
    let mut server = Server::start(&place.0, &["--persistentMemory", memory]);
    let reply = server.ask(bulk(0..documents, sync == Sync::Journaled));
    assert_eq!(number(&reply, "n"), f64::from(documents), "{reply:?}");
    if sync == Sync::Fsync {
        assert_eq!(number(&server.ask(doc! { "fsync" => 1, "$db" => "admin" }), "ok"), 1.0);
    }
    let status = server.ask(doc! { "serverStatus" => 1, "$db" => "test" });
    let last = number(&status, "pmlog.log.lastCommit") as u64;
    // On persistent memory the mark follows the commit within an interval.
    if sync == Sync::Idle || memory == "simulated" {
        crate::rig::eventually("the mark", || marked(&place.0) >= last);
    }
    assert!(last > 0 && marked(&place.0) >= last, "{} of {last}", marked(&place.0));
    // Kill -9.
    drop(server);
    place
}

/// Fails unless a check and a start both report the damage, with the path, the remedy and each of these names.
fn is_reported(path: &Path, names: &[&str], what: &str) {
    let place = path.to_str().unwrap();
    let (told, well) = run("check", path, &[]);
    let way_out = format!("kauri check --repair --dbpath {place}");
    assert!(!well, "{what}: {told}");
    for named in names.iter().chain(&[place, &way_out, "restore the directory from a backup"]) {
        assert!(told.contains(named), "{what}, {named}: {told}");
    }
    let (told, well) = run("serve", path, &["--nounixsocket", "--port", "0"]);
    assert!(!well, "{what}: {told}");
    for named in names.iter().chain(&[place, "--repair", "estore the directory from a backup"]) {
        assert!(told.contains(named), "{what}, {named}: {told}");
    }
    assert!(!told.contains("None"), "{what}: {told}");
}

#[test]
fn unreadable_durable_data_is_reported_after_a_kill() {
    let ways = [
        ("off", Sync::Fsync),
        ("off", Sync::Journaled),
        ("off", Sync::Idle),
        ("simulated", Sync::Fsync),
        ("simulated", Sync::Idle),
    ];
    for (memory, sync) in ways {
        let place = killed(200, memory, sync);
        damage_what_was_killed(place.0.as_path(), memory, &format!("{memory}, {sync:?}"));
    }
}

fn damage_what_was_killed(path: &Path, memory: &str, what: &str) {
    let log = path.join("pmlog.0");
    let (told, well) = run("check", path, &[]);
    assert!(well && !told.contains("\"Damage found"), "{what}: {told}");
    // Entries in the staging file would replace the damaged bytes.
    let _ = std::fs::remove_file(path.join("pmlog.staging"));
    let whole = std::fs::read(&log).unwrap();
    // A document in the middle, and the last one.
    for id in ["150", "199"] {
        damage(path, &format!("<{id}>"));
        let (told, well) = run("check", path, &[]);
        assert!(!well && is_named(&told, id), "{what}: {told}");
        assert!(told.contains("has 1 damaged places, 1 of which affect"), "{what}: {told}");
        std::fs::write(&log, &whole).unwrap();
    }
    // The header of its record: 32 bytes before the document, which begins 29 bytes before its text.
    let text = b"<150>";
    let at = whole.windows(text.len()).position(|bytes| bytes == text).unwrap();
    let id = whole[..at].windows(4).rposition(|bytes| bytes == b"_id\0").unwrap();
    let mut bytes = whole.clone();
    bytes[id - 5 - 32 + 16] ^= 2;
    std::fs::write(&log, &bytes).unwrap();
    let offset = format!("offset {}", (id - 5 - 32) % (1 << 20));
    is_reported(path, &["segment 0", &offset, "though it was durable"], what);
    let (told, _) = run("check", path, &[]);
    assert!(is_told(&told, "150"), "{what}: {told}");
    // A log truncated anywhere.
    for len in [0, 4096, at, (1 << 20) - 1] {
        std::fs::write(&log, &whole[..len]).unwrap();
        let bytes = format!("{len} of ");
        is_reported(path, &["pmlog.0", &bytes, "truncate -s"], &format!("{what}, {len} bytes"));
    }
    // Restored, the log is complete.
    std::fs::write(&log, &whole).unwrap();
    let mut server = Server::start(path, &["--persistentMemory", memory]);
    let count = server.ask(doc! { "count" => "c", "$db" => "test" });
    assert_eq!(number(&count, "n"), 200.0);
    server.stop();
    let (told, well) = run("check", path, &[]);
    assert!(well, "{what}: {told}");
}
