//! A server that spills to its data directory: its temporary files, also after kill -9.

use crate::check::{Place, Server, number};
use kauri_bson::{DocBuf, doc};
use std::path::Path;

const LITTLE: &[&str] = &["--setParameter", "internalQueryMaxBlockingSortMemoryUsageBytes=20000"];

/// Names in the directory of temporary files.
fn names(place: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(place.join("_tmp")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Bytes of unnamed files that the process has open in the directory of temporary files.
fn open_bytes(place: &Path, pid: u32) -> u64 {
    let of_file = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let target = std::fs::read_link(entry.path()).ok()?;
        let is_spilled = target.starts_with(place.join("_tmp"));
        is_spilled.then(|| std::fs::metadata(entry.path()).map_or(0, |file| file.len()))
    };
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(of_file).sum()
}

fn sort(server: &mut Server, batch: i32) -> DocBuf {
    server.ask(doc! {
    "find" => "c", "sort" => doc! { "text" => -1 }, "batchSize" => batch, "$db" => "test" })
}

#[test]
fn spilled_files_are_unnamed_and_end_with_their_cursor() {
    let place = Place::new("spilling");
    let place = place.0.as_path();
    std::fs::create_dir(place.join("_tmp")).unwrap();
    std::fs::write(place.join("_tmp/kauri-spill-1-0"), "of a server that died").unwrap();
    let mut server = Server::start(place, LITTLE);
    assert_eq!(names(place), [""; 0]);
    server.insert(0..400);
    let reply = sort(&mut server, 5);
    assert_eq!(number(&reply, "ok"), 1.0);
    assert_eq!(names(place), [""; 0]);
    assert!(open_bytes(place, server.pid()) > 300_000);
    let id = number(&reply, "cursor.id");
    assert!(id != 0.0);
    // Reading the rest ends the cursor, and with it the file.
    let id = reply.as_doc().value("cursor").as_document().unwrap().value("id").into_owned();
    let more = server.ask(doc! {
    "getMore" => id, "collection" => "c", "$db" => "test" });
    assert_eq!(number(&more, "cursor.id"), 0.0);
    crate::rig::eventually("the file is closed", || open_bytes(place, server.pid()) == 0);
    // A server killed with an open file leaves none.
    sort(&mut server, 5);
    assert!(open_bytes(place, server.pid()) > 300_000);
    drop(server);
    assert_eq!(names(place), [""; 0]);
    let mut server = Server::start(place, LITTLE);
    assert_eq!(number(&sort(&mut server, 500), "ok"), 1.0);
    server.stop();
}

#[test]
fn a_full_disk_fails_only_operations_that_spill() {
    let place = Place::new("spilling-full");
    let free = "internalQuerySpillingMinAvailableDiskSpaceBytes=9223372036854775807";
    let mut server = Server::start(&place.0, &[LITTLE, &["--setParameter", free]].concat());
    server.insert(0..400);
    assert_eq!(number(&sort(&mut server, 5), "code"), 14031.0);
    server.insert(400..410);
    let parameter = "internalQuerySpillingMinAvailableDiskSpaceBytes";
    server.ask(doc! { "setParameter" => 1, parameter => 0, "$db" => "admin" });
    assert_eq!(number(&sort(&mut server, 5), "ok"), 1.0);
    server.stop();
}

#[test]
fn slow_query_lines_report_spilling() {
    let place = Place::new("spilling-slow");
    let mut server = Server::start(&place.0, LITTLE);
    server.insert(0..100);
    server.ask(doc! { "profile" => 0, "slowms" => 0, "$db" => "test" });
    let reply = sort(&mut server, 5);
    let id = reply.as_doc().value("cursor").as_document().unwrap().value("id").into_owned();
    server.ask(doc! { "getMore" => id, "collection" => "c", "$db" => "test" });
    server.ask(doc! { "find" => "c", "sort" => doc! { "_id" => 1 }, "$db" => "test" });
    let log = server.ask(doc! { "getLog" => "global", "$db" => "admin" });
    let lines = log.as_doc().value("log").into_owned();
    let lines = lines.as_array().unwrap().iter();
    let lines = lines.map(|line| line.value().as_str().unwrap_or_default().to_owned());
    let slow: Vec<String> = lines.filter(|line| line.contains("Slow query")).collect();
    let told = |name: &str| -> Vec<bool> {
        let of_name =
            slow.iter().filter(|line| line.contains(&format!("\"command\":{{\"{name}\":")));
        of_name.map(|line| line.contains("\"usedDisk\":true")).collect()
    };
    assert_eq!((told("find"), told("getMore")), (vec![true, false], vec![true]), "{slow:?}");
    server.stop();
}
