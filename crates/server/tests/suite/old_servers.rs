//! `kauri bench run` against servers that are older than `hello` and OP_MSG.
//!
//! The old server is a front end before a current server. It accepts only OP_QUERY and says so in its
//! `isMaster`, as MongoDB 3.4 does. Any other message closes the connection and fails the test.

use crate::rig::{self, Server};
use kauri_bson::{Doc, DocBuf, doc};
use kauri_client::Connection;
use kauri_wire::{HEADER_BYTES, Message, ReplyWriter};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The wire version of 3.4.
const WIRE_VERSION: i32 = 5;

struct Front {
    uri: String,
    commands: Arc<AtomicU64>,
}

/// Serves until the process ends.
fn front(server: &Server) -> Front {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("mongodb://{}/", listener.local_addr().unwrap());
    let (commands, behind) = (Arc::new(AtomicU64::new(0)), server.uri("sharedMemory=off&rdma=off"));
    let counted = commands.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (behind, counted) = (Connection::open(&behind).unwrap(), counted.clone());
            std::thread::spawn(move || serve(client, behind, &counted));
        }
    });
    Front { uri, commands }
}

fn serve(mut client: TcpStream, mut behind: Connection, counted: &AtomicU64) {
    while let Some(message) = receive(&mut client) {
        let Ok((header, Message::Query(query))) = Message::parse(&message) else { return };
        let Some(database) = query.command_database() else { return };
        let command = Doc::from_bytes(query.command()).unwrap();
        counted.fetch_add(1, Ordering::Relaxed);
        let reply = match command.first().map(|e| e.key()) {
            Some("hello") => {
                doc! { "ok" => 0, "errmsg" => "no such command: 'hello'", "code" => 59 }
            }
            Some("isMaster") => {
                doc! { "ismaster" => true, "maxWireVersion" => WIRE_VERSION, "minWireVersion" => 0, "ok" => 1.0 }
            }
            _ => behind.command(database, &command.to_buf()).unwrap_or_else(
                |error| doc! { "ok" => 0, "errmsg" => error.to_string().as_str(), "code" => 1 },
            ),
        };
        let mut answer = Vec::new();
        let writer = ReplyWriter::begin(&mut answer, 1, header.request_id, 8, 0, 1);
        answer.extend_from_slice(reply.as_doc().as_bytes());
        writer.finish(&mut answer).unwrap();
        if client.write_all(&answer).is_err() {
            return;
        }
    }
}

fn receive(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut message = vec![0; HEADER_BYTES];
    client.read_exact(&mut message).ok()?;
    let length = i32::from_le_bytes(message[..4].try_into().unwrap());
    message.resize(usize::try_from(length).ok()?, 0);
    client.read_exact(&mut message[HEADER_BYTES..]).ok()?;
    Some(message)
}

#[test]
fn commands_use_op_query_with_servers_that_support_nothing_else() {
    let server = Server::start("old-client", &[]);
    let front = front(&server);
    let mut connection = Connection::open(&front.uri.parse().unwrap()).unwrap();
    assert_eq!(connection.greeting().value("maxWireVersion"), WIRE_VERSION.into());
    let insert = doc! { "insert" => "c", "documents" => kauri_bson::array![doc! { "_id" => 1 }] };
    connection.command("test", &insert).unwrap();
    let found: DocBuf = connection.command("test", &doc! { "count" => "c" }).unwrap();
    assert_eq!(found.as_doc().value("n").to_i64_saturating(), Some(1));
    let error = connection.command("test", &doc! { "hello" => 1 }).unwrap_err();
    assert!(error.to_string().contains("no such command: 'hello'"), "{error}");
    // With a current server it continues with OP_MSG.
    let today = server.connect("sharedMemory=off&rdma=off");
    assert_eq!(today.greeting().value("maxWireVersion"), 25.into());
}

#[test]
fn the_benchmark_runs_against_a_server_without_hello() {
    let server = Server::start("old-bench", &[]);
    let front = front(&server);
    let mut kauri = rig::kauri();
    kauri.args(["bench", "run", "--uri", &front.uri, "--workload", "A", "--threads", "1,2"]);
    kauri.args(["--property", "recordcount=50", "--seconds", "0.1", "--rounds", "1"]);
    kauri.args(["--warm-up-seconds", "0"]);
    let output = kauri.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    // The records were loaded, and some were read.
    assert!(front.commands.load(Ordering::Relaxed) > 50, "{told}");
    let mut connection = server.connect("");
    let count = connection.command("ycsb", &doc! { "count" => "usertable" }).unwrap();
    assert_eq!(count.as_doc().value("n").to_i64_saturating(), Some(50), "{told}");
}
