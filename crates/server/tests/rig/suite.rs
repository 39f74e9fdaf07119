//! The behaviour that every transport must have.

use super::{Server, Way, eventually, find, found, insert, payload};
use kauri_base::limits::{DOCUMENT_BYTES_MAX, MESSAGE_BYTES_MAX};
use kauri_bson::{DocBuf, Value, doc};
use kauri_client::ClientError;
use kauri_wire::MsgWriter;

const SIZES: [usize; 12] =
    [0, 1, 100, 1000, 4000, 16_300, 65_500, 65_536, 70_000, 300_000, 5 << 20, (16 << 20) - 100];

/// The documents come back unchanged, and no part of them goes through a socket of another transport.
pub fn documents_of_all_sizes(server: &Server, way: Way, options: &str) {
    let mut connection = server.connect_by(way, options).unwrap();
    connection.command("test", &doc! { "drop" => "c" }).ok();
    let socket_sends =
        || (0..2).map(|w| server.status(&format!("transportWorkers.{w}.sends"))).sum::<i64>();
    let (before, frames) = (socket_sends(), server.counts(way));
    for (id, bytes) in SIZES.into_iter().enumerate() {
        connection.command("test", &insert(id as i32, bytes)).unwrap();
    }
    for (id, bytes) in SIZES.into_iter().enumerate() {
        let reply = connection.command("test", &find(id as i32)).unwrap();
        assert!(found(&reply) == payload(bytes, id), "{bytes} bytes, {options}");
    }
    if way.has_frames() {
        // Each read of the status is a connection over the socket: hello and two commands each.
        assert!(socket_sends() - before <= 16);
        assert!(server.counts(way)[0] - frames[0] >= 24);
    }
}

pub fn a_request_and_its_reply_are_one_frame_each(server: &Server, way: Way) {
    let mut connection = server.open(way);
    connection.command("test", &insert(1, 1000)).unwrap();
    // A worker counts a frame after it was sent.
    let settled = || {
        let mut counts = [0; 4];
        eventually("all frames are counted", || {
            counts = server.counts(way);
            counts[0] == counts[1]
        });
        counts
    };
    let before = settled();
    for _ in 0..1000 {
        assert_eq!(found(&connection.command("test", &find(1)).unwrap()).len(), 1000);
    }
    let spent: Vec<_> = before.iter().zip(settled()).map(|(b, a)| a - b).collect();
    assert_eq!(spent, [1000, 1000, 0, 0]);
}

pub fn many_requests_in_a_row(server: &Server, way: Way) {
    let mut connection = server.open(way);
    connection.command("test", &doc! { "drop" => "c" }).ok();
    connection.command("test", &insert(1, 20_000)).unwrap();
    // More than both rings hold: the server waits for credit while requests still arrive.
    let filler = "x".repeat(900);
    let mut command = find(1);
    command = DocBuf::build(|out| {
        out.put_all(command.as_doc());
        out.put("comment", filler.as_str());
    });
    let ids: Vec<i32> = (0..2000).map(|_| connection.send("test", &command).unwrap()).collect();
    for id in ids {
        let reply = connection.receive().unwrap();
        assert_eq!(reply.response_to, id);
        assert_eq!(found(&reply.checked().unwrap()).len(), 20_000);
    }
}

pub fn a_large_request_and_a_large_reply(server: &Server, way: Way, options: &str) {
    let mut connection = server.connect_by(way, options).unwrap();
    connection.command("test", &doc! { "drop" => "c" }).ok();
    connection.command("test", &insert(1, 12 << 20)).unwrap();
    connection.send("test", &find(1)).unwrap();
    // The server has filled the ring and waits for credit.
    server.until("connections.active", 2);
    eventually("the ring is full", || {
        let before = server.counts(way)[1];
        before > 0 && before == server.counts(way)[1]
    });
    connection.send("test", &insert(2, 5 << 20)).unwrap();
    assert_eq!(found(&connection.receive().unwrap().checked().unwrap()).len(), 12 << 20);
    connection.receive().unwrap().checked().unwrap();
}

/// Each session has a request in flight at the same time.
pub fn cursors_errors_and_many_sessions(server: &Server, way: Way, sessions: usize) {
    let mut connections: Vec<_> = (0..sessions).map(|_| server.open(way)).collect();
    let documents =
        |from: i32| Value::array((from..from + 100).map(|id| Value::from(doc! { "_id" => id })));
    for (at, connection) in connections.iter_mut().enumerate() {
        let command = doc! { "insert" => "many", "documents" => documents(at as i32 * 100) };
        connection.send("test", &command).unwrap();
    }
    for connection in &mut connections {
        connection.receive().unwrap().checked().unwrap();
    }
    let reply = connections[7].command("test", &doc! { "find" => "many" }).unwrap();
    let cursor = reply.as_doc().get("cursor").unwrap().as_doc().unwrap();
    let id = cursor.value("id").to_i64_saturating().unwrap();
    assert_ne!(id, 0);
    let more = doc! { "getMore" => id, "collection" => "many" };
    let reply = connections[7].command("test", &more).unwrap();
    let cursor = reply.as_doc().get("cursor").unwrap().as_doc().unwrap();
    assert_eq!(cursor.get("nextBatch").unwrap().as_doc().unwrap().count(), sessions * 100 - 101);
    let error = connections[8].command("test", &doc! { "nonsense" => 1 }).unwrap_err();
    assert!(matches!(error, ClientError::Command(error) if error.code().number() == 59));
    let section = format!("{}.sessions", way.section());
    assert_eq!(server.status(&section), sessions as i64);
    drop(connections);
    server.until(&section, 0);
}

/// A client that disconnects right after sending its request.
pub fn requests_without_replies_are_executed(server: &Server, way: Way) {
    for id in 0..20 {
        let mut connection = server.open(way);
        connection.send("test", &insert(id, 100)).unwrap();
    }
    let mut connection = server.open(Way::Unix);
    eventually("all documents are inserted", || {
        let reply = connection.command("test", &doc! { "count" => "c" }).unwrap();
        reply.as_doc().value("n").to_i64_saturating() == Some(20)
    });
}

/// An insert of these documents as one message with a document sequence of any length.
fn insert_sequence(documents: &[DocBuf]) -> Vec<u8> {
    let mut message = Vec::new();
    let writer = MsgWriter::begin(&mut message, 1, 0, 0);
    message.extend_from_slice(doc! { "insert" => "limit", "$db" => "test" }.as_bytes());
    let sequence = writer.begin_sequence(&mut message, "documents");
    documents.iter().for_each(|document| message.extend_from_slice(document.as_bytes()));
    sequence.finish(&mut message);
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_le_bytes());
    message
}

/// The largest valid message is accepted, and its documents come back in the largest possible reply. One byte
/// more ends the session.
pub fn messages_of_the_maximum_size(server: &Server, way: Way) {
    let document = |id: i32, bytes: usize| {
        // Length and end, then the elements: int32 `_id`, binary `x`.
        let value = payload(bytes - 5 - 9 - 8, id as usize);
        doc! { "_id" => id, "x" => Value::Binary { subtype: 0, bytes: value.into() } }
    };
    let whole = |bytes: usize| {
        let mut documents = vec![document(0, DOCUMENT_BYTES_MAX), document(1, DOCUMENT_BYTES_MAX)];
        documents.push(document(2, 1000));
        let rest = bytes - insert_sequence(&documents).len() + 1000;
        documents[2] = document(2, rest);
        (insert_sequence(&documents), documents)
    };
    let (message, documents) = whole(MESSAGE_BYTES_MAX);
    assert_eq!(message.len(), 48_000_000);
    let mut connection = server.open(way);
    connection.command("test", &doc! { "drop" => "limit" }).ok();
    let frames = server.counts(way);
    connection.send_message(&message).unwrap();
    let reply = connection.receive().unwrap().checked().unwrap();
    assert_eq!(reply.as_doc().value("n").to_i64_saturating(), Some(3));
    for (id, document) in documents.iter().enumerate() {
        let filter = doc! { "_id" => id as i32 };
        let command = doc! { "find" => "limit", "filter" => filter, "singleBatch" => true };
        let reply = connection.command("test", &command).unwrap();
        let cursor = reply.as_doc().get("cursor").unwrap().as_doc().unwrap();
        let got = cursor.get("firstBatch").unwrap().as_doc().unwrap().first().unwrap();
        assert!(got.as_doc().unwrap().as_bytes() == document.as_bytes(), "document {id}");
    }
    if way.has_frames() {
        let spent: Vec<_> = frames.iter().zip(server.counts(way)).map(|(b, a)| a - b).collect();
        assert!(spent[0] >= 4 && spent[1] >= 4, "{spent:?}");
    }
    let (message, _) = whole(MESSAGE_BYTES_MAX + 1);
    // The server may reject the length while the rest is still being sent.
    let sent = connection.send_message(&message);
    assert!(sent.is_err() || connection.receive().is_err());
    server.open(way).command("admin", &doc! { "ping" => 1 }).unwrap();
}
