//! Large messages over RDMA. They go in pieces through the pool, or through the ring if there is no pool. A
//! malicious client harms only itself.

use crate::raw::Raw;
use crate::rig::{Server, Way, eventually, find, found, insert, message_to, payload};
use crate::sessions::start;
use kauri_bson::{Value, doc};
use kauri_client::{Connection, Sequence};
use kauri_transport::rdma::DialedEnd;
use kauri_transport::ring::Fabric;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub const TESTS: &[crate::Test] = &[
    ("large_messages_go_in_pieces", large_messages_go_in_pieces),
    ("large_messages_share_a_small_pool", large_messages_share_a_small_pool),
    ("large_messages_without_a_pool_go_through_the_ring", without_a_pool),
    ("a_malicious_large_message_ends_only_its_own_session", malicious_large_messages),
    ("an_unfinished_large_message_holds_no_memory", unfinished_large_messages),
    ("large_messages_of_disconnected_clients_arrive", disconnects_after_sending),
    ("unread_replies_leave_half_of_the_pool_to_others", unread_large_replies),
    ("bulk_inserts_of_small_documents_go_in_pieces", bulk_inserts),
];

const LARGE: usize = 12 << 20;
/// Maximum bytes of a piece.
const PIECE: usize = 256 << 10;

fn all_is_free(server: &Server) -> bool {
    server.status("rdma.pool.freeBytes") == server.status("rdma.pool.bytes")
}

fn large_messages_go_in_pieces() {
    let server = start("pieces", &[]);
    let mut connection = server.open(Way::Rdma);
    connection.command("test", &insert(1, 100)).unwrap();
    let look = || {
        ["piecesIn", "piecesOut", "framesIn", "framesOut", "verbs.registrations"]
            .map(|name| server.status(&format!("rdma.{name}")))
    };
    let before = look();
    connection.command("test", &insert(2, LARGE)).unwrap();
    let reply = connection.command("test", &find(2)).unwrap();
    assert!(found(&reply) == payload(LARGE, 2));
    // A worker counts a frame after it was sent.
    let pieces = (LARGE / PIECE) as i64;
    eventually("all frames are counted", || look()[1] - before[1] >= pieces);
    let spent: Vec<_> = look().iter().zip(before).map(|(after, before)| after - before).collect();
    let [pieces_in, pieces_out, frames_in, frames_out, registrations] = spent[..] else { panic!() };
    assert!((pieces..pieces + 3).contains(&pieces_in), "{spent:?}");
    assert!((pieces..pieces + 3).contains(&pieces_out), "{spent:?}");
    // Frames of the pieces, the offer, the small messages, and the rest of large ones.
    assert!(frames_in <= pieces_in + 12 && frames_out <= pieces_out + 12, "{spent:?}");
    assert_eq!(registrations, 0);
    eventually("all resources are freed", || all_is_free(&server));
}

/// More sessions with large messages than the pool has chunks: each gets its own data.
fn large_messages_share_a_small_pool() {
    let server = Arc::new(start("pool", &["--rdmaPoolMB", "1"]));
    assert_eq!(server.status("rdma.pool.bytes"), 4 * PIECE as i64);
    let done = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..12)
        .map(|id| {
            let (server, done) = (Arc::clone(&server), Arc::clone(&done));
            std::thread::spawn(move || {
                let mut connection = server.open(Way::Rdma);
                for _ in 0..3 {
                    connection
                        .send("test", &doc! { "delete" => "c", "deletes" => deletes(id) })
                        .unwrap();
                    connection.send("test", &insert(id, 2 << 20)).unwrap();
                    connection.send("test", &find(id)).unwrap();
                    connection.send("test", &find(id)).unwrap();
                    for _ in 0..2 {
                        connection.receive().unwrap().checked().unwrap();
                    }
                    for _ in 0..2 {
                        let reply = connection.receive().unwrap().checked().unwrap();
                        assert!(found(&reply) == payload(2 << 20, id as usize));
                    }
                }
                done.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(done.load(Ordering::SeqCst), 12);
    assert!(server.status("rdma.pool.exhausted") > 0);
    assert!(server.status("rdma.piecesOut") > 0);
    eventually("all resources are freed", || all_is_free(&server));
    assert_eq!(server.status("rdma.failed"), 0);
}

fn deletes(id: i32) -> Value<'static> {
    Value::array([Value::from(doc! { "q" => doc! { "_id" => id }, "limit" => 1 })])
}

fn without_a_pool() {
    let server = start("poolless", &["--rdmaPoolMB", "0"]);
    let mut connection = server.open(Way::Rdma);
    connection.command("test", &insert(1, LARGE)).unwrap();
    assert!(found(&connection.command("test", &find(1)).unwrap()) == payload(LARGE, 1));
    assert_eq!(server.status("rdma.piecesIn") + server.status("rdma.piecesOut"), 0);
    // A client that offers zones in spite of this is invalid.
    let mut raw = Raw::connect(&server);
    let mut end = raw.switch();
    offer(&mut end, END_OF_PROBE, [(1 << 40, 1); 2]);
    assert!(raw.ended());
    server.tells("invalid zones", 1);
    connection.command("admin", &doc! { "ping" => 1 }).unwrap();
}

const OFFER: u32 = 4 << 28 | 40;
const PIECE_FRAME: u32 = 5 << 28 | 12;
/// The ring offset after the probe.
const END_OF_PROBE: u32 = 16;

/// Offers invalid zones of 1 MB: address and key of each.
fn offer(end: &mut DialedEnd, at: u32, zones: [(u64, u32); 2]) {
    let mut told = Vec::new();
    for (address, key) in zones {
        told.extend_from_slice(&address.to_le_bytes());
        told.extend_from_slice(&key.to_le_bytes());
        told.extend_from_slice(&(1u32 << 20).to_le_bytes());
    }
    end.fabric().write(at, [&[0; 8], &told, &[]], OFFER);
}

fn malicious_large_messages() {
    let server = start("liars", &[]);
    let mut honest = server.open(Way::Rdma);
    honest.command("test", &insert(1, LARGE)).unwrap();
    let go_on = |honest: &mut Connection| {
        assert!(found(&honest.command("test", &find(1)).unwrap()).len() == LARGE);
        eventually("all resources are freed", || all_is_free(&server));
    };
    // The device denies the server the read.
    for (nth, zones) in [[(1 << 40, 1); 2], [(0, 0); 2]].into_iter().enumerate() {
        let mut raw = Raw::connect(&server);
        let mut end = raw.switch();
        offer(&mut end, END_OF_PROBE, zones);
        let length = (PIECE as u32).to_le_bytes();
        end.fabric().write(END_OF_PROBE + 48, [&[0; 8], &length, &[]], PIECE_FRAME);
        server.tells("RDMA session failed", nth + 1);
        assert!(raw.ended(), "its request has been received, and there is no other transport");
        go_on(&mut honest);
    }
    // Invalid pieces, and pieces without zones.
    for (nth, length) in [0, 4095, PIECE as u32 + 1, u32::MAX].into_iter().enumerate() {
        let mut raw = Raw::connect(&server);
        let mut end = raw.switch();
        offer(&mut end, END_OF_PROBE, [(1 << 40, 1); 2]);
        let length = length.to_le_bytes();
        end.fabric().write(END_OF_PROBE + 48, [&[0; 8], &length, &[]], PIECE_FRAME);
        assert!(raw.ended());
        server.tells("invalid zones", nth + 1);
    }
    let mut raw = Raw::connect(&server);
    let mut end = raw.switch();
    end.fabric().write(END_OF_PROBE, [&[0; 8], &[0, 0, 1, 0], &[]], PIECE_FRAME);
    assert!(raw.ended());
    server.tells("invalid zones", 5);
    // A reply zone that the device does not let the server write.
    let mut raw = Raw::connect(&server);
    let mut end = raw.switch();
    offer(&mut end, END_OF_PROBE, [(1 << 40, 1); 2]);
    let request = message_to("test", &find(1));
    end.fabric().write(
        END_OF_PROBE + 48,
        [&[0; 8], &request, &[]],
        1 << 28 | (8 + request.len() as u32),
    );
    assert!(raw.ended());
    server.tells("RDMA session failed", 3);
    go_on(&mut honest);
}

/// Clients that announce a message of 40 MB, send a part of it, and stay or disconnect.
fn unfinished_large_messages() {
    let server = start("unfinished", &["--rdmaPoolMB", "1"]);
    let mut kept = Vec::new();
    for round in 0..8 {
        let mut raw = Raw::connect(&server);
        let mut end = raw.switch();
        end.offer();
        let mut message = vec![0; PIECE];
        message[..4].copy_from_slice(&(40i32 << 20).to_le_bytes());
        message[12..16].copy_from_slice(&2013i32.to_le_bytes());
        assert_eq!(end.send(&message, &[]), PIECE);
        server.until("rdma.piecesIn", round + 1);
        if round % 2 == 0 {
            kept.push((raw, end));
        }
    }
    // As many sessions wait as there are chunks, and all chunks are free.
    eventually("all resources are freed", || all_is_free(&server));
    server.until("rdma.sessions", 4);
    let mut connection = server.open(Way::Rdma);
    connection.command("test", &insert(1, LARGE)).unwrap();
    drop(kept);
    server.until("rdma.sessions", 1);
}

/// Clients that disconnect right after sending their requests, whose data lies in their own memory.
fn disconnects_after_sending() {
    let server = start("unwaited", &[]);
    for id in 0..10 {
        let mut connection = server.open(Way::Rdma);
        connection.send("test", &insert(id, 100_000 + 300_000 * (id as usize % 3))).unwrap();
    }
    let mut connection = server.open(Way::Unix);
    eventually("all documents are inserted", || {
        let count = connection.command("test", &doc! { "count" => "c" }).unwrap();
        count.as_doc().value("n").to_i64_saturating() == Some(10)
    });
    eventually("all resources are freed", || all_is_free(&server));
}

/// Clients that request large replies and do not receive them. The server keeps the data until they continue,
/// or frees it when they disconnect.
fn unread_large_replies() {
    let server = start("untaken", &["--rdmaPoolMB", "4"]);
    let mut honest = server.open(Way::Rdma);
    honest.command("test", &insert(1, LARGE)).unwrap();
    let free = || server.status("rdma.pool.freeBytes");
    let mut lazy: Vec<_> = (0..4).map(|_| server.open(Way::Rdma)).collect();
    for connection in &mut lazy {
        // It has zones from its first large reply on.
        connection.command("test", &find(1)).unwrap();
    }
    eventually("all resources are freed", || all_is_free(&server));
    let before = server.status("rdma.piecesOut");
    let mut gone = Vec::new();
    for connection in &mut lazy {
        connection.send("test", &find(1)).unwrap();
        let mut raw = Raw::connect(&server);
        let mut end = raw.switch();
        end.offer();
        let request = message_to("test", &find(1));
        assert_eq!(end.send(&request, &[]), request.len());
        gone.push((raw, end));
    }
    // Each client has got as much as its zone holds, and the rest is kept. A worker counts the last pieces before that
    // late.
    let sent = || server.status("rdma.piecesOut") >= before + 8 * 4;
    eventually("each zone is full", sent);
    eventually("half is free", || free() >= 2 << 20);
    assert!(free() < 4 << 20, "nothing is kept");
    for _ in 0..3 {
        assert!(found(&honest.command("test", &find(1)).unwrap()) == payload(LARGE, 1));
        honest.command("test", &doc! { "delete" => "c", "deletes" => deletes(2) }).unwrap();
        honest.command("test", &insert(2, LARGE)).unwrap();
    }
    for connection in &mut lazy {
        let reply = connection.receive().unwrap().checked().unwrap();
        assert!(found(&reply) == payload(LARGE, 1));
    }
    drop(gone);
    eventually("all resources are freed", || all_is_free(&server));
    server.until("rdma.sessions", 5);
    assert_eq!(server.status("rdma.failed"), 0);
}

fn bulk_inserts() {
    let server = start("bulk", &[]);
    let mut connection = server.open(Way::Rdma);
    let text = "x".repeat(1000);
    let owned: Vec<_> = (0..3000).map(|id| doc! { "_id" => id, "x" => text.as_str() }).collect();
    let documents: Vec<_> = owned.iter().map(|document| document.as_doc()).collect();
    let body = doc! { "insert" => "c", "$db" => "test" };
    let sequences = [Sequence { name: "documents", documents: &documents }];
    connection.send_request(body.as_doc(), &sequences).unwrap();
    let reply = connection.receive().unwrap().checked().unwrap();
    assert_eq!(reply.as_doc().value("n").to_i64_saturating(), Some(3000));
    let (pieces, frames) = (server.status("rdma.piecesIn"), server.status("rdma.framesIn"));
    assert!((11..15).contains(&pieces) && frames < pieces + 40, "{pieces} pieces, {frames} frames");
}
