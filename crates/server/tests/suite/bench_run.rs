//! `kauri bench run` measures what its run file says, alternating between servers. The records that it writes
//! have the contents that the workload defines. A server that does not match the run file is not changed. Speed
//! is not checked.

use crate::rig::{self, Server, eventually};
use kauri_bench::workload::record::{InsertOrder, KeyNames};
use kauri_bson::{Value as Bson, doc};
use kauri_client::Connection;
use serde_yaml_ng::Value;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("kauri-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    /// The command that runs this run file and writes its figures beside it.
    fn bench(&self, file: &str) -> Command {
        std::fs::write(self.0.join("run.toml"), file).unwrap();
        let mut kauri = rig::kauri();
        kauri.args(["bench", "run"]).arg(self.0.join("run.toml"));
        kauri.arg("--json").arg(self.0.join("run.json"));
        kauri
    }

    fn figures(&self) -> Value {
        let text = std::fs::read_to_string(self.0.join("run.json")).unwrap();
        serde_yaml_ng::from_str(&text).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn list<'v>(of: &'v Value, name: &str) -> &'v [Value] {
    of.get(name).and_then(Value::as_sequence).unwrap_or_else(|| panic!("no {name} in {of:?}"))
}

fn number(of: &Value, name: &str) -> f64 {
    of.get(name).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {name} in {of:?}"))
}

fn text<'v>(of: &'v Value, name: &str) -> &'v str {
    of.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name} in {of:?}"))
}

fn records(connection: &mut Connection) -> i64 {
    let count = connection.command("ycsb", &doc! { "count" => "usertable" }).unwrap();
    count.as_doc().value("n").to_i64_saturating().unwrap()
}

/// The page and its plots: as many as expected, without markup from a label and without external references.
fn check_page(place: &Place, name: &str, expected: RangeInclusive<usize>) {
    let page = std::fs::read_to_string(place.0.join("run.html")).unwrap();
    assert!(page.contains(&format!("<h1>{name}</h1>")), "{page}");
    assert!(
        !page.contains("<T>")
            && !page.contains("<&")
            && !page.contains("NaN")
            && !page.contains("no plot"),
        "{page}"
    );
    for elsewhere in ["src=", "href=", "url(", "<script", "@import"] {
        assert!(!page.contains(elsewhere), "{elsewhere} in the page");
    }
    let plots = page.matches("<svg").count();
    assert!(expected.contains(&plots), "{plots} plots");
    for number in 1..=plots {
        let file = place.0.join("svg").join(format!("plot-{number}.svg"));
        let plot = std::fs::read_to_string(file).unwrap();
        assert!(
            plot.contains("xmlns=\"http://www.w3.org/2000/svg\"") && plot.ends_with("</svg>\n")
        );
        assert!(page.contains(plot.trim_end()));
        assert!(
            plot.contains("socket &lt;&amp;&quot;"),
            "no plot without its servers' names: {plot}"
        );
    }
    assert!(page.contains("<pre>an &lt;echo&gt; &amp; more\n</pre>"), "{page}");
}

/// The same server by two of its addresses.
fn servers(server: &Server) -> String {
    format!(
        "[[server]]\nlabel = 'socket'\ntransport = 'unix'\ntopology = 'standalone'\nengine = 'pmlog'\n\
         uri = 'mongodb://{socket}/?sharedMemory=off'\n\
         [[server]]\nlabel = 'rings'\ntransport = 'sharedMemory'\n\
         uri = 'mongodb://{socket}/?sharedMemory=require'\n",
        socket = server.socket().display().to_string().replace('/', "%2F"),
    )
}

#[test]
fn workloads_run_in_turns_over_two_transports() {
    let server = Server::start("bench-run", &[]);
    let place = Place::new("turns");
    let common = "recordcount = 300, fieldcount = 3, fieldlength = 50, dataintegrity = true";
    let file = format!(
        "name = '<T> & more'\nrounds = 2\nthreads = [1, 3]\nwarmUpSeconds = 0.05\nseconds = 0.3\n{}\
         [[workload]]\npreset = 'A'\nproperties = {{ {common} }}\n\
         [[workload]]\npreset = 'E'\ntarget = 200\nproperties = {{ {common} }}\n\
         [[reference]]\nlabel = 'a <paper>'\nmicros = {{ A = 314, E = 1592.5 }}\n",
        servers(&server).replace("'socket'", "'socket <&\"'")
    );
    let mut command = place.bench(&file);
    command.arg("--html").arg(place.0.join("run.html"));
    command.arg("--svg").arg(place.0.join("svg"));
    std::fs::write(place.0.join("beside.txt"), "an <echo> & more\n").unwrap();
    command.arg("--append").arg(place.0.join("beside.txt"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    // For each number of threads, a workload has throughput, throughput by threads, latencies of two kinds and
    // ratios. E may have no inserts.
    check_page(&place, "&lt;T&gt; &amp; more", 15..=17);
    let page = std::fs::read_to_string(place.0.join("run.html")).unwrap();
    assert!(page.contains(">a &lt;paper&gt;</td><td>314.0</td><td>1592</td>"), "{page}");
    let figures = place.figures();
    let transports: Vec<_> =
        list(&figures, "servers").iter().map(|one| text(one, "transport")).collect();
    assert_eq!(transports, ["unix", "sharedMemory"]);
    let rows = list(&figures, "rows");
    let cases: Vec<_> = rows
        .iter()
        .map(|row| (text(row, "workload"), number(row, "threads") as usize, text(row, "server")))
        .collect();
    let of = |workload: &'static str| {
        [1, 3].into_iter().flat_map(move |threads| {
            ["socket <&\"", "rings"].map(|server| (workload, threads, server))
        })
    };
    assert_eq!(cases, of("A").chain(of("E")).collect::<Vec<_>>());
    let mut inserted = 0.0;
    for row in rows {
        assert_eq!(list(row, "rounds").len(), 2);
        for round in list(row, "rounds") {
            assert!(number(round, "operations") > 0.0, "{}", told(&output));
            assert_eq!(number(round, "errors"), 0.0);
            let kinds = round.get("kinds").unwrap();
            let count = |kind: &str| kinds.get(kind).map_or(0.0, |kind| number(kind, "count"));
            let sum = ["READ", "UPDATE", "SCAN", "INSERT"].map(count).iter().sum::<f64>();
            assert_eq!(sum, number(round, "operations"));
            inserted += count("INSERT");
            let scans = kinds.get("SCAN");
            assert_eq!(scans.is_some(), text(row, "workload") == "E");
            if let Some(scans) = scans {
                let due = scans.get("intended").unwrap();
                assert_eq!(number(due, "count"), number(scans, "count"));
                assert!(number(due, "p50Micros") >= number(scans, "p50Micros"));
            }
        }
    }
    // The last workload's records: loaded, inserted while counted, inserted before and after.
    let mut connection = server.connect("");
    assert!(records(&mut connection) as f64 >= 300.0 + inserted);
    let all = doc! { "find" => "usertable", "batchSize" => 10_000, "singleBatch" => true };
    let all = connection.command("ycsb", &all).unwrap();
    let Bson::Document(cursor) = all.as_doc().value("cursor") else { panic!() };
    let batch = cursor.as_doc().value("firstBatch");
    for record in batch.as_array().unwrap().iter() {
        let Bson::Document(record) = record.value() else { panic!() };
        for field in ["field0", "field1", "field2"] {
            let Bson::Binary { bytes, .. } = record.as_doc().value(field) else { panic!() };
            assert_eq!(bytes.len(), 50);
        }
    }
    let mode = |word: &str| told(&output).lines().filter(|line| line.contains(word)).count();
    assert_eq!(mode("has 300 records"), 2, "each workload is loaded once: {}", told(&output));
}

/// The counts of a kind in the phases of a round.
fn by_phase(round: &Value, kind: &str) -> Vec<f64> {
    let count = |phase: &Value| match phase.get("kinds").and_then(|kinds| kinds.get(kind)) {
        None => 0.0,
        Some(counted) => {
            assert!(number(counted, "meanMicros") <= number(counted, "maxMicros"));
            assert!(number(counted, "p95Micros") <= number(counted, "p99Micros"));
            number(counted, "count")
        }
    };
    list(round, "phases").iter().map(count).collect()
}

#[test]
fn phases_are_parts_of_their_measurement() {
    let server = Server::start("bench-phases", &[]);
    let place = Place::new("phases");
    let file = format!(
        "rounds = 2\nprocesses = [1, 2]\nwarmUpSeconds = 0.05\nseconds = 0.6\nphases = 6\n{}\
         [[workload]]\npreset = 'B'\ntarget = 1000\nproperties = {{ recordcount = 50 }}\n",
        servers(&server)
    );
    let output = place.bench(&file).arg("--html").arg(place.0.join("run.html")).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let figures = place.figures();
    assert_eq!(number(&figures, "phases"), 6.0);
    let rounds = list(&figures, "rows").iter().flat_map(|row| list(row, "rounds"));
    let rounds: Vec<_> = rounds.collect();
    assert_eq!(rounds.len(), 2 * 2 * 2);
    for round in rounds {
        // A thousand per second, a tenth of these for each; delays since the start of the warm-up may be made
        // up for.
        let (mut allowed, mut operations) = (60.0, 0.0);
        for phase in list(round, "phases") {
            assert!((number(phase, "seconds") - 0.1).abs() < 1e-9, "{phase:?}");
            allowed += 100.0;
            operations += number(phase, "operations");
            assert!(operations <= allowed, "{operations} of {allowed}: {phase:?}");
        }
        let kinds = round.get("kinds").unwrap();
        for kind in ["READ", "UPDATE"] {
            let whole = kinds.get(kind).map_or(0.0, |kind| number(kind, "count"));
            let parts = by_phase(round, kind);
            assert_eq!((parts.len(), parts.iter().sum::<f64>()), (6, whole), "{kind}");
        }
        assert!(by_phase(round, "READ").iter().filter(|count| **count > 0.0).count() > 1);
    }
    let words = told(&output);
    assert!(words.contains("phase  op/s  count  mean us"), "{words}");
    let line = |line: &&str| line.starts_with("B ") && line.contains(" READ ");
    assert!(words.lines().filter(line).count() >= 4 * (1 + 2), "{words}");
    let page = std::fs::read_to_string(place.0.join("run.html")).unwrap();
    assert!(page.contains("<h2>Phase by phase</h2>"));
    for plot in
        ["READ by phase, 1 process", "READ by phase, 2 processes", "UPDATE by phase, 1 process"]
    {
        assert!(
            page.contains(&format!(">{plot}</text>")) || page.contains(&format!("{plot}\n")),
            "no plot {plot}"
        );
    }
}

#[test]
fn operations_are_counted_instead_of_time() {
    let server = Server::start("bench-operations", &[]);
    let place = Place::new("operations");
    // No multiple of any number of threads.
    let file = format!(
        "rounds = 2\nthreads = [1, 3]\nprocesses = [1, 2]\nwarmUpSeconds = 0\noperations = 101\n{}\
         [[workload]]\nlabel = 'puts'\nproperties = {{ recordcount = 10, fieldcount = 1, insertproportion = 1, \
         readproportion = 0, updateproportion = 0 }}\n",
        servers(&server)
    );
    let output = place.bench(&file).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let figures = place.figures();
    assert_eq!(number(&figures, "operations"), 101.0);
    let rows = list(&figures, "rows");
    assert_eq!(rows.len(), 2 * 2 * 2);
    for round in rows.iter().flat_map(|row| list(row, "rounds")) {
        assert_eq!((number(round, "operations"), number(round, "errors")), (101.0, 0.0));
        assert!(number(round, "seconds") > 0.0);
    }
    // Two addresses of one server, two rounds, and gaps between the records of the processes.
    let count = records(&mut server.connect(""));
    assert!((10 + 4 * 4 * 101..10 + 4 * 4 * 101 + 40).contains(&count), "{count} records");
}

fn stopped_process(pid: &str) -> bool {
    // A process that no parent has waited for yet is a zombie.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

fn children(pid: u32) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    all.filter_map(|name| name.into_string().ok())
        .filter(|name| {
            let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).unwrap_or_default();
            let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            rest.split(' ').nth(1) == Some(&pid.to_string())
        })
        .collect()
}

#[test]
fn records_inserted_by_several_processes_are_found_later() {
    let server = Server::start("bench-processes", &[]);
    let place = Place::new("processes");
    let common = "recordcount = 200, fieldcount = 2, fieldlength = 30, dataintegrity = true, \
                  readproportion = 0.5, updateproportion = 0, insertproportion = 0.5, \
                  requestdistribution = 'latest'";
    let file = format!(
        "rounds = 2\nthreads = [1, 2]\nprocesses = [1, 2, 3]\nwarmUpSeconds = 0.05\nseconds = 0.2\n{}\
         [[workload]]\nlabel = 'D'\nproperties = {{ {common} }}\n\
         [[workload]]\nlabel = 'paced'\ntarget = 300\nproperties = {{ {common} }}\n",
        servers(&server)
    );
    let output = place.bench(&file).output().unwrap();
    // Each process reads only existing records: a duplicate or a gap would show in a reply.
    assert!(output.status.success(), "{}", told(&output));
    let words = told(&output);
    assert!(words.contains("3 processes of 2 threads, round 2 of 2: rings"), "{words}");
    assert!(words.contains("processes  threads"), "{words}");
    let figures = place.figures();
    let rows = list(&figures, "rows");
    let cases: Vec<_> = rows.iter().map(|row| number(row, "processes") as usize).collect();
    assert_eq!(cases, [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3].repeat(2));
    let mut inserted = 0;
    for row in rows {
        let paced = text(row, "workload") == "paced";
        for round in list(row, "rounds") {
            assert_eq!(number(round, "errors"), 0.0);
            let operations = number(round, "operations");
            assert!(operations > 0.0 && number(round, "seconds") > 0.1, "{round:?}");
            // All threads of all processes together, within 0.25 s.
            assert!(!paced || operations <= 75.0, "{round:?}");
            let inserts = round.get("kinds").and_then(|kinds| kinds.get("INSERT"));
            inserted +=
                if paced { inserts.map_or(0.0, |one| number(one, "count")) as i64 } else { 0 };
        }
    }
    // The last workload's records: exactly the keys of the numbers up to some limit.
    let mut connection = server.connect("");
    let count = records(&mut connection);
    assert!(count >= 200 + inserted, "{count} records, {inserted} inserted");
    let names = KeyNames { order: InsertOrder::Hashed, digits_min: 1 };
    for record in 0..count {
        let find = doc! { "count" => "usertable", "query" => doc! { "_id" => names.name(record) } };
        let found = connection.command("ycsb", &find).unwrap();
        assert_eq!(found.as_doc().value("n").to_i64_saturating(), Some(1), "record {record}");
    }
    let compared = rig::kauri()
        .args(["bench", "compare", "run.json", "--labels", "socket,rings"])
        .current_dir(&place.0)
        .output()
        .unwrap();
    // One line for each case: two workloads, six numbers, with its figures.
    assert!(told(&compared).contains("figures have fewer than 5 rounds"), "{}", told(&compared));
}

#[test]
fn a_failing_process_ends_the_run_with_its_message() {
    let server = Server::start("bench-lost", &[]);
    let place = Place::new("lost");
    let file = format!(
        "rounds = 1\nprocesses = 2\nwarmUpSeconds = 0\nseconds = 3600\n{}\
         [[workload]]\npreset = 'C'\nproperties = {{ recordcount = 10 }}\n",
        servers(&server)
    );
    let mut bench = place.bench(&file);
    let child = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("both processes run", || children(child.id()).len() == 2);
    let clients = children(child.id());
    drop(server);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert!(told(&output).contains("a client process: the connection: "), "{}", told(&output));
    assert!(clients.iter().all(|client| stopped_process(client)), "{clients:?}");
}

#[test]
fn stopped_processes_report_their_results_and_never_outlive_the_run() {
    let server = Server::start("bench-orphans", &[]);
    let place = Place::new("orphans");
    let file = format!(
        "rounds = 1\nprocesses = 2\nwarmUpSeconds = 0\nseconds = 3600\n{}\
         [[workload]]\npreset = 'C'\nproperties = {{ recordcount = 10 }}\n",
        servers(&server)
    );
    for signal in ["-INT", "-KILL"] {
        let mut child = place.bench(&file).stderr(Stdio::piped()).spawn().unwrap();
        let busy = || server.status("opcounters.query");
        let before = busy();
        eventually("both processes run and work", || {
            children(child.id()).len() == 2 && busy() > before + 100
        });
        let clients = children(child.id());
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let status = child.wait().unwrap();
        assert_eq!(status.success(), signal == "-INT");
        eventually("none is left", || clients.iter().all(|client| stopped_process(client)));
    }
    let figures = place.figures();
    assert_eq!(figures.get("stopped").and_then(Value::as_bool), Some(true));
    let rows = list(&figures, "rows");
    let first = list(&rows[0], "rounds").first().unwrap();
    assert!(number(first, "operations") > 100.0 && number(first, "clientCpuMicros") >= 0.0);
}

#[test]
fn a_value_that_was_not_written_by_the_workload_is_an_error() {
    let server = Server::start("bench-wrong", &[]);
    let place = Place::new("wrong");
    let file = format!(
        "rounds = 1\nwarmUpSeconds = 0\nseconds = 1.5\n{}\
         [[workload]]\npreset = 'C'\nproperties = {{ recordcount = 1, dataintegrity = true }}\n",
        servers(&server)
    );
    let child = place.bench(&file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut connection = server.connect("");
    let forge = doc! { "update" => "usertable", "updates" => kauri_bson::array![
        doc! { "q" => doc! {}, "u" => doc! { "$set" => doc! { "field0" => Bson::Binary { subtype: 0, bytes: b"x".into() } } } }
    ] };
    eventually("the record was forged", || {
        let forged = connection.command("ycsb", &forge).unwrap();
        forged.as_doc().value("nModified").to_i64_saturating() == Some(1)
    });
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert!(told(&output).contains("has another value in 'field0'"), "{}", told(&output));
}

#[test]
fn files_are_written_whole_and_read_back() {
    let server = Server::start("bench-files", &[]);
    let place = Place::new("files");
    // Three chunks, one complete, one of one byte.
    let file = format!(
        "rounds = 2\nthreads = 2\nprocesses = 2\nwarmUpSeconds = 0\noperations = 40\n{}\
         [[workload]]\nstore = 'gridfs'\nsizes = [700000, 261120, 1]\nproperties = {{ recordcount = 3, \
         readproportion = 0.6, updateproportion = 0, insertproportion = 0.4, dataintegrity = true }}\n",
        servers(&server)
    );
    let output = place.bench(&file).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let figures = place.figures();
    let rows = list(&figures, "rows");
    assert_eq!(rows.len(), 2 * 3);
    for round in rows.iter().flat_map(|row| list(row, "rounds")) {
        assert_eq!((number(round, "operations"), number(round, "errors")), (40.0, 0.0));
        for kind in ["READ", "INSERT"] {
            let kind = round.get("kinds").and_then(|kinds| kinds.get(kind)).unwrap();
            assert!(number(kind, "count") > 0.0);
        }
    }
    // The last workload's files: one chunk of one byte each.
    let mut connection = server.connect("");
    let mut count = |collection: &str| {
        let count = connection.command("ycsb", &doc! { "count" => collection }).unwrap();
        count.as_doc().value("n").to_i64_saturating().unwrap()
    };
    let (files, chunks) = (count("usertable.files"), count("usertable.chunks"));
    assert!(files > 3 && files == chunks, "{files} files, {chunks} chunks");
}

#[test]
fn a_file_of_which_a_chunk_is_missing_is_an_error() {
    let server = Server::start("bench-chunk", &[]);
    let place = Place::new("chunk");
    let file = format!(
        "rounds = 1\nwarmUpSeconds = 0\nseconds = 1.5\n{}\
         [[workload]]\nstore = 'gridfs'\nsizes = [700000]\nproperties = {{ recordcount = 1, readproportion = 1, \
         updateproportion = 0 }}\n",
        servers(&server)
    );
    let child = place.bench(&file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut connection = server.connect("");
    let lose = doc! { "delete" => "usertable.chunks", "deletes" => kauri_bson::array![
        doc! { "q" => doc! { "n" => 1 }, "limit" => 1 }
    ] };
    eventually("a chunk was lost", || {
        let file = doc! { "count" => "usertable.files" };
        let there = connection.command("ycsb", &file).unwrap();
        there.as_doc().value("n").to_i64_saturating() == Some(1)
    });
    let lost = connection.command("ycsb", &lose).unwrap();
    assert_eq!(lost.as_doc().value("n").to_i64_saturating(), Some(1));
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert!(told(&output).contains("chunk 1 of a file is missing"), "{}", told(&output));
}

#[test]
fn a_server_that_does_not_match_the_run_file_is_not_changed() {
    let server = Server::start("bench-other", &[]);
    let place = Place::new("other");
    for (line, words) in [
        ("topology = 'sharded'", "rings: the topology should be sharded, but is standalone"),
        ("engine = 'wiredTiger'", "the engine should be wiredTiger, but is pmlog"),
        ("medium = 'dax'", "the medium should be dax, but is file"),
        ("memoryLimitMB = 3", "the limit of memory should be 3 MB, but is "),
        ("wheels = 4", "server 2: there is no 'wheels'"),
    ] {
        let file = format!("{}{line}\n[[workload]]\npreset = 'A'\n", servers(&server));
        let output = place.bench(&file).output().unwrap();
        assert!(!output.status.success());
        assert!(told(&output).contains(words), "{}", told(&output));
    }
    assert_eq!(records(&mut server.connect("")), 0);
}

#[test]
fn flags_replace_a_run_file() {
    let server = Server::start("bench-flags", &[]);
    let place = Place::new("flags");
    let socket = server.socket().display().to_string().replace('/', "%2F");
    let run = |more: &[&str]| {
        let mut kauri = rig::kauri();
        kauri.args(["bench", "run", "--uri", &format!("mongodb://{socket}/?sharedMemory=off")]);
        kauri.args(["--seconds", "0.1", "--warm-up-seconds", "0", "--rounds", "2"]).args(more);
        kauri.arg("--json").arg(place.0.join("run.json")).output().unwrap()
    };
    let output = run(&["--workload", "C", "--property", "recordcount=50", "--threads", "1,2"]);
    assert!(output.status.success(), "{}", told(&output));
    let figures = place.figures();
    let rows = list(&figures, "rows");
    let cases: Vec<_> =
        rows.iter().map(|row| (text(row, "workload"), number(row, "threads") as usize)).collect();
    assert_eq!(cases, [("C", 1), ("C", 2)]);
    assert!(rows.iter().all(|row| list(row, "rounds").len() == 2));
    assert_eq!(records(&mut server.connect("")), 50);
    assert!(told(&run(&["--workload", "X"])).contains("a letter from A to F"));
    assert!(told(&run(&["file.toml"])).contains("cannot be used with"));
}

#[test]
fn an_interrupt_gives_the_results_so_far() {
    let server = Server::start("bench-stop", &[]);
    let place = Place::new("stop");
    let file = format!(
        "rounds = 1000\nwarmUpSeconds = 0\nseconds = 0.2\n{}\
         [[workload]]\npreset = 'C'\nproperties = {{ recordcount = 100 }}\n",
        servers(&server)
    );
    let mut child = place.bench(&file).stderr(Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.contains("round 3 of 1000")));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert!(lines.any(|line| line.contains("interrupted; the results are incomplete")));
    assert!(child.wait().unwrap().success());
    let figures = place.figures();
    assert_eq!(figures.get("stopped").and_then(Value::as_bool), Some(true));
    let rows = list(&figures, "rows");
    assert!(rows.iter().all(|row| list(row, "rounds").len() >= 2));
}

#[test]
fn results_are_compared() {
    let server = Server::start("bench-compare", &[]);
    let place = Place::new("compare");
    let common = "recordcount = 50, fieldcount = 1, fieldlength = 20";
    let file = format!(
        "rounds = 5\nthreads = [1]\nwarmUpSeconds = 0.01\nseconds = 0.05\n{}\
         [[workload]]\npreset = 'C'\nproperties = {{ {common} }}\n",
        servers(&server)
    );
    let output = place.bench(&file).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let compare = |arguments: &[&str]| {
        let mut kauri = rig::kauri();
        kauri.args(["bench", "compare"]).args(arguments).current_dir(&place.0);
        let output = kauri.output().unwrap();
        (output.status.code(), told(&output))
    };
    let (status, words) = compare(&["run.json", "run.json"]);
    assert_eq!(status, Some(0), "{words}");
    assert!(words.contains("none has changed beyond noise") && !words.contains("worse"), "{words}");
    assert_eq!(compare(&["run.json", "--labels", "rings,rings"]).0, Some(0));
    // The same, but every round is half as fast as the slowest.
    let mut slow = place.figures();
    let rows = slow.get_mut("rows").and_then(Value::as_sequence_mut).unwrap();
    for row in rows {
        for round in row.get_mut("rounds").and_then(Value::as_sequence_mut).unwrap() {
            *round.get_mut("operationsPerSecond").unwrap() = Value::from(1.5);
        }
    }
    std::fs::write(place.0.join("slow.json"), serde_yaml_ng::to_string(&slow).unwrap()).unwrap();
    let (status, words) = compare(&["run.json", "slow.json"]);
    assert_eq!(status, Some(1), "{words}");
    assert_eq!(words.matches("worse").count(), 2, "for each server: {words}");
    let (status, words) = compare(&["slow.json", "run.json"]);
    assert_eq!(status, Some(0), "{words}");
    assert_eq!(words.matches("better").count(), 2, "{words}");
    for (arguments, why) in [
        (&["run.json", "run.toml"][..], "not a result of"),
        (&["run.json", "nowhere.json"], "cannot read 'nowhere.json'"),
        (&["run.json", "--labels", "socket"], "takes two"),
        (&["run.json", "--labels", "socket,x"], "the labels are: rings, socket"),
        (&["run.json"], "Usage"),
    ] {
        let (status, words) = compare(arguments);
        assert_eq!(status, Some(2), "{words}");
        assert!(words.contains(why), "{words}");
    }
}

/// Servers that the run starts itself.
const OWN: &str = "
    [[server]]
    serve = { arguments = ['--segmentSizeMB', '32'] }
    [[server]]
    serve = { arguments = ['--segmentSizeMB', '32'] }
    over = 'sharedMemory'
    [[server]]
    serve = { name = 'another', arguments = ['--segmentSizeMB', '32'] }
    over = 'unix'
    [[workload]]
    sizes = [100, 2048]
    properties = { recordcount = 20, dataintegrity = true }
    ";

#[test]
fn a_run_starts_its_own_servers() {
    let place = Place::new("own");
    let missing = "[[server]]\nlabel = 'absent'\nuri = 'mongodb://127.0.0.1:1/'\noptional = true\n";
    let file = format!("rounds = 2\nwarmUpSeconds = 0\noperations = 30\n{missing}{OWN}");
    let output = place.bench(&file).arg("--html").arg(place.0.join("run.html")).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let figures = place.figures();
    let servers = list(&figures, "servers");
    let found: Vec<_> =
        servers.iter().map(|one| (text(one, "label"), text(one, "transport"))).collect();
    let expected = [("TCP", "tcp"), ("shared memory", "sharedMemory"), ("Unix socket", "unix")];
    assert_eq!(found, expected);
    let rows: Vec<_> = list(&figures, "rows")
        .iter()
        .map(|row| (text(row, "workload"), text(row, "server")))
        .collect();
    let of = |workload| expected.map(|(label, _)| (workload, label));
    assert_eq!(rows, [of("100 B"), of("2 KB")].concat());
    for round in list(&figures, "rows").iter().flat_map(|row| list(row, "rounds")) {
        assert_eq!((number(round, "operations"), number(round, "errors")), (30.0, 0.0));
    }
    // Two addresses of one server are filled once; missing parts are named everywhere.
    let filled = told(&output).lines().filter(|line| line.contains("has 20 records")).count();
    assert_eq!(filled, 2 * 2, "{}", told(&output));
    assert!(told(&output).contains("left out: absent: "), "{}", told(&output));
    assert_eq!(text(&list(&figures, "leftOut")[0], "label"), "absent");
    let page = std::fs::read_to_string(place.0.join("run.html")).unwrap();
    assert!(page.contains("Left out: absent: "));
    for uri in servers.iter().map(|one| text(one, "uri")).filter(|uri| uri.contains("%2F")) {
        let folder = uri.split("%2F").find(|part| part.starts_with("kauri-run-")).unwrap();
        assert!(!std::env::temp_dir().join(folder).exists(), "{folder} is left");
    }
}

#[test]
fn all_servers_left_out_is_a_failure() {
    let place = Place::new("none");
    let file =
        "[[server]]\nuri = 'mongodb://127.0.0.1:1/'\noptional = true\n[[workload]]\npreset = 'A'\n";
    let output = place.bench(file).output().unwrap();
    assert!(!output.status.success());
    assert!(told(&output).contains("all of its servers were left out"), "{}", told(&output));
}

#[test]
fn own_servers_never_outlive_the_run() {
    let place = Place::new("own-orphans");
    for signal in ["-INT", "-KILL"] {
        let file = format!("rounds = 1\nwarmUpSeconds = 0\nseconds = 3600\n{OWN}");
        let mut child = place.bench(&file).stderr(Stdio::piped()).spawn().unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let mut lines = lines.map(Result::unwrap);
        assert_eq!(
            lines.by_ref().filter(|line| line.contains("has 20 records")).take(2).count(),
            2
        );
        let own = children(child.id());
        assert_eq!(own.len(), 4, "two servers, and what ends them otherwise");
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().success(), signal == "-INT");
        eventually("none is left", || own.iter().all(|one| stopped_process(one)));
    }
}

#[test]
fn an_own_server_has_the_memory_limit_of_the_run_file() {
    let place = Place::new("own-memory");
    let file = "rounds = 1\nwarmUpSeconds = 0\noperations = 30\n[[server]]\nserve = { memoryMB = 300 }\n\
                [[workload]]\npreset = 'A'\nproperties = { recordcount = 20 }\n";
    let output = place.bench(file).output().unwrap();
    if output.status.success() {
        let figures = place.figures();
        let server = &list(&figures, "servers")[0];
        assert_eq!(number(server, "memoryLimitMB"), 300.0);
    } else {
        // If no control group can be created, the server is not run without a limit.
        assert!(told(&output).contains("needs a control group"), "{}", told(&output));
        assert!(!place.0.join("run.json").exists());
    }
}

#[test]
fn a_long_measurement_reports_progress() {
    let server = Server::start("bench-so-far", &[]);
    let places = [1, 2].map(|processes| (processes, Place::new(&format!("so-far-{processes}"))));
    let started = places.each_ref().map(|(processes, place)| {
        let file = format!(
            "rounds = 1\nprocesses = {processes}\nwarmUpSeconds = 0\nseconds = 3600\n{}\
             [[workload]]\npreset = 'C'\nproperties = {{ table = 't{processes}', recordcount = 10 }}\n",
            servers(&server)
        );
        place.bench(&file).stderr(Stdio::piped()).spawn().unwrap()
    });
    for mut child in started {
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let mut lines = lines.map(Result::unwrap);
        let line = lines.find(|line| line.contains(" so far, ")).unwrap();
        let operations = line.split(' ').rev().skip_while(|word| *word != "operations").nth(1);
        assert!(operations.unwrap().parse::<u64>().unwrap() > 0, "{line}");
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        assert!(lines.any(|line| line.contains("interrupted; the results are incomplete")));
        assert!(child.wait().unwrap().success());
    }
}
