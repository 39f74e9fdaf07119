//! Operation of a server: log rotation, signals, start-up warnings, failed starts.

use crate::check::{Place, Server, number};
use kauri_bson::{DocBuf, doc};
use std::path::{Path, PathBuf};
use std::process::Command;

fn lines(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Files beside the log whose names begin with the log's name.
fn aside(log: &Path) -> Vec<PathBuf> {
    let name = log.file_name().unwrap().to_str().unwrap();
    let entries = std::fs::read_dir(log.parent().unwrap()).unwrap().flatten();
    let is_aside = |path: &PathBuf| {
        let other = path.file_name().unwrap().to_str().unwrap();
        other.starts_with(name) && other != name
    };
    entries.map(|entry| entry.path()).filter(is_aside).collect()
}

fn signal(server: &Server, name: &str) {
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
}

fn rotate(server: &mut Server) -> DocBuf {
    server.ask(doc! { "logRotate" => "server", "comment" => "by hand", "$db" => "admin" })
}

/// A server that logs to a file. It listens on a second address, so that its start can be detected.
fn start(place: &Path, log: &Path, args: &[&str]) -> Server {
    let path = log.display().to_string();
    let mut all = vec!["--logpath", path.as_str()];
    all.extend(args);
    Server::start_logging_to(place, log, &all)
}

#[test]
fn the_log_is_rotated_by_the_command_and_by_the_signal() {
    let place = Place::new("rotation");
    std::fs::create_dir(place.0.join("db")).unwrap();
    let log = place.0.join("log");
    std::fs::write(&log, "of an earlier start").unwrap();
    let mut server = start(&place.0.join("db"), &log, &[]);
    let before = aside(&log);
    assert_eq!(before.iter().map(|path| lines(path)).collect::<Vec<_>>(), ["of an earlier start"]);
    // A second rotation in the same second would overwrite the file.
    crate::rig::eventually("a second passes", || {
        let reply = rotate(&mut server);
        let is_done = number(&reply, "ok") == 1.0;
        assert!(is_done || number(&reply, "code") == 37.0, "FileRenameFailed");
        is_done
    });
    assert_eq!(aside(&log).len(), 2);
    let rotated = aside(&log).iter().map(|path| lines(path)).collect::<String>();
    assert!(
        rotated.contains("\"Log rotation initiated\"")
            && rotated.contains("\"comment\":\"by hand\""),
        "{rotated}"
    );
    assert!(lines(&log).contains("Process Details") && !lines(&log).contains("Waiting for"));
    let rotated = || lines(&log).contains("\"signal\":10") || aside(&log).len() > 2;
    signal(&server, "USR1");
    crate::rig::eventually("the signal is handled", rotated);
    let refusal = server.ask(doc! { "logRotate" => "audit", "$db" => "admin" });
    assert_eq!(number(&refusal, "code"), 4.0);
    let elsewhere = server.ask(doc! { "logRotate" => 1, "$db" => "test" });
    assert_eq!(number(&elsewhere, "code"), 13.0);
    server.stop();
}

#[test]
fn a_renamed_log_is_reopened() {
    let place = Place::new("reopening");
    std::fs::create_dir(place.0.join("db")).unwrap();
    let (log, moved) = (place.0.join("log"), place.0.join("moved"));
    std::fs::write(&log, "before\n").unwrap();
    let mut server = start(&place.0.join("db"), &log, &["--logappend", "--logRotate", "reopen"]);
    assert!(lines(&log).starts_with("before\n"), "it is appended to");
    std::fs::rename(&log, &moved).unwrap();
    assert_eq!(number(&rotate(&mut server), "ok"), 1.0);
    assert!(log.exists());
    signal(&server, "USR1");
    crate::rig::eventually("the signal is handled", || lines(&log).contains("\"signal\":10"));
    assert!(aside(&log).is_empty());
    server.stop();
}

#[test]
fn reopening_needs_appending() {
    let place = Place::new("rotation-options");
    for (args, told) in [
        (["--logRotate", "reopen"], "logAppend must equal true if logRotate is set to reopen"),
        (["--logRotate", "never"], "unsupported value for logRotate: never"),
    ] {
        let (text, is_ok) = crate::check::run("serve", &place.0, &args);
        assert!(!is_ok && text.contains(told), "{text}");
    }
}

#[test]
fn other_signals_are_logged() {
    let place = Place::new("signals");
    std::fs::create_dir(place.0.join("db")).unwrap();
    let log = place.0.join("log");
    let mut server = start(&place.0.join("db"), &log, &[]);
    for (name, number) in [("HUP", 1), ("USR2", 12), ("XFSZ", 25)] {
        signal(&server, name);
        let told = format!("\"signal\":{number}");
        crate::rig::eventually(name, || lines(&log).contains(&told));
    }
    assert_eq!(number(&server.ask(doc! { "ping" => 1, "$db" => "admin" }), "ok"), 1.0);
    server.stop();
}

#[test]
fn startup_warnings_are_in_the_log_and_in_get_log() {
    let place = Place::new("warnings");
    let mut server = Server::start(&place.0, &["--bind_ip", "0.0.0.0"]);
    let access = "Access control is not enabled for the database. Read and write access to data and \
                  configuration is unrestricted";
    let beyond = "This server listens beyond localhost without access control";
    let log = server.ask(doc! { "getLog" => "startupWarnings", "$db" => "admin" });
    let kept = log.as_doc().value("log").into_owned();
    let kept: Vec<String> =
        kept.as_array().unwrap().iter().map(|e| e.value().as_str().unwrap().to_owned()).collect();
    for message in [access, beyond] {
        let in_log = server.told.lines().filter(|line| line.contains(message)).collect::<Vec<_>>();
        assert_eq!(in_log.len(), 1, "{message}");
        assert!(in_log[0].contains("\"tags\":[\"startupWarnings\"]"), "{}", in_log[0]);
        assert!(kept.iter().any(|line| line == in_log[0]), "{kept:?}");
    }
    server.stop();
}

/// Names, sizes and modification times of a directory and its contents.
fn snapshot(place: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut all = vec![place.to_owned()];
    all.extend(std::fs::read_dir(place).unwrap().flatten().map(|entry| entry.path()));
    all.sort();
    let of = |path: PathBuf| {
        let metadata = std::fs::metadata(&path).unwrap();
        (path, metadata.len(), metadata.modified().unwrap())
    };
    all.into_iter().map(of).collect()
}

#[test]
fn a_refused_directory_is_not_changed() {
    for (name, files, told) in [
        ("wt", &["WiredTiger", "mongod.lock", "storage.bson"][..], "created by the 'wiredTiger'"),
        ("orphan", &["pmlog.0"], "there is a log, but its kauri.meta is missing"),
    ] {
        let place = Place::new(&format!("refused-{name}"));
        files.iter().for_each(|file| std::fs::write(place.0.join(file), "").unwrap());
        let before = snapshot(&place.0);
        let (text, is_ok) =
            crate::check::run("serve", &place.0, &["--port", "0", "--nounixsocket"]);
        assert!(!is_ok && text.contains(told), "{text}");
        assert_eq!(snapshot(&place.0), before, "{name}");
    }
}

#[test]
fn a_failed_start_reports_its_reason_on_stderr_and_in_the_log() {
    let place = Place::new("start-errors");
    let running = Server::start(&place.0, &[]);
    let log = std::env::temp_dir().join(format!("kauri-start-errors-{}.log", std::process::id()));
    let path = log.display().to_string();
    let args = ["--port", "0", "--nounixsocket", "--logpath", path.as_str()];
    let (text, is_ok) = crate::check::run("serve", &place.0, &args);
    assert!(!is_ok);
    let why = format!(
        "Cannot start server. {}: locked by process {}. Another server uses this data directory",
        place.0.display(),
        running.pid()
    );
    assert!(text.contains(&format!("kauri: {why}")), "{text}");
    let logged = lines(&log);
    assert!(logged.contains("\"id\":20557") && logged.contains(&why), "{logged}");
    std::fs::remove_file(&log).unwrap();
    running.stop();
}

/// Runs the script in its own mount namespace, where it mounts a small file system in memory.
fn on_full_disk(place: &Path, script: &str) -> (String, bool) {
    let kauri = env!("CARGO_BIN_EXE_kauri");
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "bash", "-euo", "pipefail", "-c", script])
        .env("KAURI", kauri)
        .env("PLACE", place)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (told.into_owned(), output.status.success())
}

#[test]
fn a_server_starts_on_a_full_disk_again_and_again() {
    let place = Place::new("full-disk");
    // Fills the file system to the last byte after a first start, and starts twice more.
    let script = r#"
        mount -t tmpfs -o size=24m tmpfs "$PLACE"
        serve() {
            mkfifo /tmp/kauri-full-$$ 
            "$KAURI" serve --dbpath "$PLACE" --port 0 --nounixsocket --segmentSizeMB 1 \
                >/tmp/kauri-full-$$ 2>&1 & pid=$!
            while read -r line; do
                echo "$line"
                case "$line" in *"Waiting for connections"*) kill -TERM $pid;; esac
            done </tmp/kauri-full-$$
            rm /tmp/kauri-full-$$
            wait $pid
        }
        serve
        cat /dev/zero >"$PLACE/fill" 2>/dev/null || true
        serve
        serve
        cat /dev/zero >>"$PLACE/fill" 2>/dev/null || true
        serve
        echo all is well
    "#;
    let (told, is_ok) = on_full_disk(&place.0, script);
    assert!(is_ok && told.ends_with("all is well\n"), "{told}");
    assert_eq!(told.matches("Waiting for connections").count(), 4, "{told}");
}

#[test]
fn a_new_directory_on_a_full_disk_is_refused_with_the_needed_space() {
    let place = Place::new("full-new");
    let script = r#"
        mount -t tmpfs -o size=1m tmpfs "$PLACE"
        cat /dev/zero >"$PLACE/fill" 2>/dev/null || true
        ! "$KAURI" serve --dbpath "$PLACE" --port 0 --nounixsocket --segmentSizeMB 1
    "#;
    let (told, is_ok) = on_full_disk(&place.0, script);
    assert!(is_ok, "{told}");
    let why = format!(
        "{}: no space left on device. The file system has 0 bytes free, a start needs 4194304 bytes",
        place.0.display()
    );
    // On standard error and in the log.
    assert_eq!(told.matches(&why).count(), 2, "{told}");
    assert!(!told.contains("NoSpace") && !told.contains("Some("), "{told}");
}

#[test]
fn running_out_of_disk_space_is_logged_once_per_episode() {
    let place = Place::new("disk-episode");
    std::fs::create_dir(place.0.join("db")).unwrap();
    let log = place.0.join("log");
    let mut server = start(&place.0.join("db"), &log, &["--maxSizeGB", "0.02"]);
    let mut next = 0;
    let mut fill = |server: &mut Server| loop {
        let documents = kauri_bson::array![doc! { "_id" => next, "text" => "x".repeat(20_000) }];
        let reply = server.ask(doc! { "insert" => "c", "documents" => documents, "$db" => "test" });
        if number(&reply, "n") == 0.0 {
            return reply;
        }
        next += 1;
        assert!(next < 10_000, "the disk is never full");
    };
    fill(&mut server);
    fill(&mut server);
    let told = |words: &str| lines(&log).matches(words).count();
    let out = "No disk space left for data";
    assert_eq!(told(out), 1);
    let delete = kauri_bson::array![doc! { "q" => doc! {}, "limit" => 0 }];
    let reply = server.ask(doc! { "delete" => "c", "deletes" => delete, "$db" => "test" });
    assert!(number(&reply, "n") > 100.0, "{reply:?}");
    let last = fill(&mut server);
    assert_eq!((told("Disk space is available again"), told(out)), (1, 2), "{last:?}");
    server.stop();
}

#[test]
fn open_cursors_are_memory_of_operations_until_they_are_closed() {
    const OPEN: i64 = 10;
    const BYTES: usize = 1_000_000;
    let place = Place::new("cursor-memory");
    let mut server = Server::start(&place.0, &[]);
    let filler = "y".repeat(BYTES);
    for id in 0..20 {
        let documents = kauri_bson::array![doc! { "_id" => id, "v" => filler.as_str() }];
        server.ask(doc! { "insert" => "c", "documents" => documents, "$db" => "test" });
    }
    let used = |server: &mut Server| {
        let status = server.ask(doc! { "serverStatus" => 1, "$db" => "admin" });
        let memory = status.as_doc().value("operationMemory").into_owned();
        memory.as_document().unwrap().value("bytesUsed").to_i64_saturating().unwrap()
    };
    let before = used(&mut server);
    let mut ids = Vec::new();
    for _ in 0..OPEN {
        // Its buffer of 1 MB is used again for the next reply.
        server.ask(doc! { "find" => "c", "limit" => 1, "$db" => "test" });
        let reply = server.ask(doc! { "find" => "c", "batchSize" => 100, "$db" => "test" });
        let cursor = reply.as_doc().value("cursor").into_owned();
        ids.push(cursor.as_document().unwrap().value("id").to_i64_saturating().unwrap());
    }
    // The document that does not fit into a reply waits in the cursor.
    let held = used(&mut server) - before;
    assert!(held >= OPEN * BYTES as i64, "{held} bytes in {OPEN} cursors");
    for id in ids {
        let ids = kauri_bson::array![id];
        server.ask(doc! { "killCursors" => "c", "cursors" => ids, "$db" => "test" });
    }
    let left = used(&mut server) - before;
    assert!(left < BYTES as i64, "{left} bytes");
    server.stop();
}

#[test]
fn the_memory_of_a_cursor_does_not_grow_with_its_batches() {
    const BATCHES: i32 = 4_000;
    let place = Place::new("batch-memory");
    let mut server = Server::start(&place.0, &[]);
    for first in (0..BATCHES).step_by(1000) {
        let ids = (first..first + 1000).map(|id| kauri_bson::Value::from(doc! { "_id" => id }));
        let documents = kauri_bson::Value::array(ids);
        server.ask(doc! { "insert" => "c", "documents" => documents, "$db" => "test" });
    }
    let used = |server: &mut Server| {
        let status = server.ask(doc! { "serverStatus" => 1, "$db" => "admin" });
        let memory = status.as_doc().value("operationMemory").into_owned();
        memory.as_document().unwrap().value("bytesUsed").to_i64_saturating().unwrap()
    };
    let reply = server.ask(doc! { "find" => "c", "batchSize" => 1, "$db" => "test" });
    let id = reply.as_doc().value("cursor").as_document().unwrap().value("id").into_owned();
    let more = doc! { "getMore" => id, "collection" => "c", "batchSize" => 1, "$db" => "test" };
    server.ask(more.clone());
    let before = used(&mut server);
    for _ in 3..BATCHES {
        assert_eq!(number(&server.ask(more.clone()), "ok"), 1.0);
    }
    let grown = used(&mut server) - before;
    assert!(grown < i64::from(BATCHES) * 8, "{grown} bytes by {BATCHES} batches");
    server.stop();
}

#[test]
fn options_of_the_start_are_shown_as_parameters() {
    let shown = |args: &[&str]| {
        let place = Place::new("shown-parameters");
        let mut server = Server::start(&place.0, args);
        let command = doc! { "getParameter" => 1, "logLevel" => 1, "journalCommitInterval" => 1, "$db" => "admin" };
        let reply = server.ask(command);
        server.stop();
        (number(&reply, "logLevel"), number(&reply, "journalCommitInterval"))
    };
    assert_eq!(shown(&[]), (0.0, 100.0));
    assert_eq!(shown(&["--verbosity", "2", "--journalCommitInterval", "50"]), (2.0, 50.0));
    let both = ["--verbosity", "2", "--setParameter", "logLevel=1"];
    assert_eq!(shown(&both), (1.0, 100.0));
}
