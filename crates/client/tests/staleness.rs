//! A client with `maxStalenessSeconds` leaves a secondary that falls behind, and tells servers what it wants.

use kauri_bson::{Doc, DocBuf, Value, array, doc};
use kauri_client::set::Follower;
use kauri_wire::{Message, MsgWriter, ReplyWriter};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time after which a hang is certain, even on a busy machine.
const HANGS: Duration = Duration::from_secs(120);
/// Some time: the first write's, in milliseconds.
const START_MS: i64 = 1_700_000_000_000;

/// A member that answers hello, and echoes everything else with its role.
struct Member {
    listener: TcpListener,
    is_primary: bool,
    /// The newest write, in milliseconds after the start.
    last_write_ms: AtomicI64,
}

impl Member {
    fn new(is_primary: bool) -> Arc<Member> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Arc::new(Member { listener, is_primary, last_write_ms: AtomicI64::new(0) })
    }

    fn host(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    fn serve(self: Arc<Self>, hosts: Vec<String>) {
        thread::spawn(move || {
            while let Ok((stream, _)) = self.listener.accept() {
                let (member, hosts) = (Arc::clone(&self), hosts.clone());
                thread::spawn(move || member.answer(stream, &hosts));
            }
        });
    }

    /// Until the client goes.
    fn answer(&self, mut stream: TcpStream, hosts: &[String]) -> Option<()> {
        loop {
            let mut message = vec![0; 4];
            stream.read_exact(&mut message).ok()?;
            let length = i32::from_le_bytes(message[..4].try_into().unwrap()) as usize;
            message.resize(length, 0);
            stream.read_exact(&mut message[4..]).ok()?;
            let id = i32::from_le_bytes(message[4..8].try_into().unwrap());
            let mut out = Vec::new();
            match Message::parse(&message).unwrap().1 {
                Message::Msg(msg) => {
                    let reply = self.reply(Doc::from_bytes(msg.body).unwrap(), hosts);
                    let writer = MsgWriter::begin(&mut out, 1, id, 0);
                    out.extend_from_slice(reply.as_doc().as_bytes());
                    writer.finish(&mut out).unwrap();
                }
                Message::Query(query) => {
                    let reply = self.reply(Doc::from_bytes(query.command()).unwrap(), hosts);
                    let writer = ReplyWriter::begin(&mut out, 1, id, 8, 0, 1);
                    out.extend_from_slice(reply.as_doc().as_bytes());
                    writer.finish(&mut out).unwrap();
                }
                _ => panic!("what is this?"),
            }
            stream.write_all(&out).ok()?;
        }
    }

    fn reply(&self, command: Doc<'_>, hosts: &[String]) -> DocBuf {
        if !matches!(command.first().unwrap().key(), "hello" | "isMaster") {
            return doc! {
                "ok" => 1.0,
                "isPrimary" => self.is_primary,
                "wanted" => command.value("$readPreference")
            };
        }
        let wrote_ms = START_MS + self.last_write_ms.load(Ordering::SeqCst);
        DocBuf::build(|out| {
            out.put("ok", 1.0);
            out.put("setName", "r");
            out.put(if self.is_primary { "isWritablePrimary" } else { "secondary" }, true);
            let mut list = out.array("hosts");
            hosts.iter().for_each(|host| list.push(host));
            drop(list);
            out.put("tags", doc! { "dc" => "ny" });
            out.put("lastWrite", doc! { "lastWriteDate" => Value::DateTime(wrote_ms) });
            out.put("maxWireVersion", 25);
        })
    }
}

#[test]
fn a_secondary_that_falls_behind_is_left() {
    let (primary, secondary) = (Member::new(true), Member::new(false));
    let hosts = vec![primary.host(), secondary.host()];
    for member in [&primary, &secondary] {
        Arc::clone(member).serve(hosts.clone());
    }
    let uri = format!(
        "mongodb://{}/?replicaSet=r&readPreference=secondaryPreferred&readPreferenceTags=dc:ny\
         &maxStalenessSeconds=90&heartbeatFrequencyMS=500&localThresholdMS=60000\
         &sharedMemory=off&rdma=off",
        hosts.join(",")
    );
    let mut follower = Follower::open(&uri.parse().unwrap()).unwrap();
    let mut read = || follower.command("test", &doc! { "find" => "c" }).unwrap();
    let reply = read();
    assert_eq!(reply.as_doc().value("isPrimary"), Value::Bool(false));
    let wanted = doc! {
        "mode" => "secondaryPreferred",
        "tags" => array![doc! { "dc" => "ny" }],
        "maxStalenessSeconds" => 90i64
    };
    assert_eq!(reply.as_doc().value("wanted"), Value::from(wanted));
    // 80 s and the heartbeat's half second are allowed.
    primary.last_write_ms.store(80_000, Ordering::SeqCst);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        assert_eq!(read().as_doc().value("isPrimary"), Value::Bool(false));
    }
    primary.last_write_ms.store(100_000, Ordering::SeqCst);
    let began = Instant::now();
    while read().as_doc().value("isPrimary") == Value::Bool(false) {
        assert!(began.elapsed() < HANGS, "the secondary is not left");
    }
    // It has caught up: after the next look reads may go to it again, and none fails.
    secondary.last_write_ms.store(100_000, Ordering::SeqCst);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        read();
    }
}
