//! Handshakes: which session fits a driver, the hello for a session that has had one, and replies of replica set
//! members, rewritten so that the driver stays on the proxy.
//!
//! Invariant: all other messages are forwarded byte by byte.

use crate::request::Request;
use kauri_base::limits::DOCUMENT_DEPTH_MAX;
use kauri_bson::{Doc, DocBuf, Value, validate};
use kauri_wire::{Compressor, Header, Message, MsgWriter, ReplyWriter, compress, write_query};

/// Fields of a hello that a session remembers. A server accepts `client` once.
const REMEMBERED: [&str; 4] = ["client", "compression", "helloOk", "loadBalanced"];

/// The state of a driver that a session remembers: sessions with the same key are interchangeable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key(Vec<u8>);

/// A driver's hello.
#[derive(Debug, PartialEq, Eq)]
pub struct Hello {
    /// The key that the session will have, if any.
    pub key: Option<Key>,
    /// The hello also begins to authenticate.
    pub is_personal: bool,
    /// The same message without `client`, for a session that remembers this key.
    pub without_client: Option<Vec<u8>>,
}

impl Hello {
    /// Parses a request that is a hello. `None`: it has an unusual form, and no session with a key may get it.
    pub fn of(request: &Request<'_>) -> Option<Hello> {
        let (header, message) = Message::parse(&request.plain).ok()?;
        let command = match &message {
            Message::Msg(msg) if msg.sequences().next().is_none() => msg.body,
            Message::Query(query) => query.command(),
            _ => return None,
        };
        let command = validate(command, DOCUMENT_DEPTH_MAX).ok()?;
        let mut key = Vec::new();
        for elem in command.iter().filter(|elem| REMEMBERED.contains(&elem.key())) {
            key.push(elem.ty() as u8);
            key.extend_from_slice(elem.key_bytes());
            key.push(0);
            key.extend_from_slice(elem.value_bytes());
        }
        let without_client = request.compressor.is_none().then(|| without_client(header, &message));
        Some(Hello {
            key: (!key.is_empty()).then_some(Key(key)),
            is_personal: command.get("speculativeAuthenticate").is_some(),
            without_client: without_client.flatten(),
        })
    }
}

fn without_client(header: Header, message: &Message<'_>) -> Option<Vec<u8>> {
    let kept = |command: &[u8]| {
        let command = Doc::from_bytes(command).ok()?;
        Some(DocBuf::build(|out| {
            command.iter().filter(|e| e.key() != "client").for_each(|elem| out.put_elem(elem));
        }))
    };
    let mut out = Vec::new();
    match message {
        Message::Msg(msg) => {
            let writer = MsgWriter::begin(&mut out, header.request_id, 0, msg.flags);
            out.extend_from_slice(kept(msg.body)?.as_bytes());
            writer.finish(&mut out).ok()?;
        }
        Message::Query(query) if query.command() == query.query && query.fields.is_none() => {
            let (id, namespace, count) =
                (header.request_id, query.namespace, query.number_to_return);
            let command = kept(query.query)?;
            write_query(&mut out, id, query.flags, namespace, count, command.as_bytes()).ok()?;
        }
        _ => return None,
    }
    Some(out)
}

/// The contents of a reply to a hello.
#[derive(Debug, Default)]
pub struct HelloReply {
    /// The session has taken it.
    pub ok: bool,
    /// Its document, if it tells of a set.
    pub of_member: Option<DocBuf>,
    /// The reply as the driver is to get it, if it is to be changed.
    pub changed: Option<Vec<u8>>,
}

impl HelloReply {
    /// For a driver that has reached the proxy at this address.
    pub fn of(reply: &[u8], address: &str) -> HelloReply {
        look(reply, address, None).unwrap_or_default()
    }
}

fn look(reply: &[u8], address: &str, compressor: Option<Compressor>) -> Option<HelloReply> {
    let (header, message) = Message::parse(reply).ok()?;
    let mut out = Vec::new();
    let body = match &message {
        Message::Compressed(compressed) if compressor.is_none() => {
            let mut plain = Vec::new();
            compressed.decompress(&mut plain).ok()?;
            return look(&plain, address, Some(compressed.compressor));
        }
        Message::Msg(msg) if msg.sequences().next().is_none() => Doc::from_bytes(msg.body).ok()?,
        Message::Reply(reply) if reply.count == 1 => {
            Doc::from_bytes(reply.documents().next()?).ok()?
        }
        _ => return None,
    };
    let ok = body.value("ok").truthy();
    let told = body;
    let Some(body) = stay(told, address) else {
        return Some(HelloReply { ok, ..HelloReply::default() });
    };
    let (id, answers) = (header.request_id, header.response_to);
    match &message {
        Message::Reply(reply) => {
            let (bits, cursor) = (reply.response_flags, reply.cursor_id);
            let writer = ReplyWriter::begin(&mut out, id, answers, bits, cursor, 1);
            out.extend_from_slice(body.as_bytes());
            writer.finish(&mut out).ok()?;
        }
        _ => {
            let writer = MsgWriter::begin(&mut out, id, answers, kauri_wire::flags_of(reply));
            out.extend_from_slice(body.as_bytes());
            writer.finish(&mut out).ok()?;
        }
    }
    if let Some(compressor) = compressor {
        let plain = std::mem::take(&mut out);
        compress(&plain, compressor, &mut out).ok()?;
    }
    Some(HelloReply { ok, of_member: Some(told.to_buf()), changed: Some(out) })
}

/// A replica set member's description of itself, rewritten to a set with this address only. `None`: the server is
/// not a member.
fn stay(body: Doc<'_>, address: &str) -> Option<DocBuf> {
    body.get("setName")?;
    let is_primary = body.value("isWritablePrimary").truthy() || body.value("ismaster").truthy();
    Some(DocBuf::build(|out| {
        for elem in body {
            match elem.key() {
                "hosts" | "passives" | "arbiters" => {}
                "primary" if !is_primary => {}
                "primary" | "me" => out.put(elem.key(), address),
                "setName" => {
                    out.put_elem(elem);
                    out.put("hosts", Value::array([Value::from(address)]));
                }
                _ => out.put_elem(elem),
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{array, doc};
    use kauri_wire::flags;

    fn msg(body: &DocBuf, bits: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let writer = MsgWriter::begin(&mut out, 9, 4, bits);
        out.extend_from_slice(body.as_bytes());
        writer.finish(&mut out).unwrap();
        out
    }

    fn query(namespace: &str, command: &DocBuf) -> Vec<u8> {
        let mut out = Vec::new();
        write_query(&mut out, 9, 4, namespace, -1, command.as_bytes()).unwrap();
        out
    }

    fn body(message: &[u8]) -> DocBuf {
        match Message::parse(message).unwrap().1 {
            Message::Msg(msg) => Doc::from_bytes(msg.body).unwrap().to_buf(),
            Message::Query(query) => Doc::from_bytes(query.query).unwrap().to_buf(),
            Message::Reply(reply) => {
                Doc::from_bytes(reply.documents().next().unwrap()).unwrap().to_buf()
            }
            Message::Compressed(compressed) => {
                let mut plain = Vec::new();
                compressed.decompress(&mut plain).unwrap();
                body(&plain)
            }
            Message::Legacy(_) => panic!("legacy"),
        }
    }

    fn hello(name: &str, app: &str) -> DocBuf {
        let client = doc! { "application" => doc! { "name" => app } };
        doc! { name => 1, "client" => client, "compression" => array!["zstd"], "$db" => "admin" }
    }

    #[test]
    fn sessions_fit_drivers_that_say_the_same() {
        let key = |message: &[u8]| Hello::of(&Request::of(message)).unwrap().key;
        let first = key(&msg(&hello("hello", "a"), 0));
        assert!(first.is_some());
        assert_eq!(first, key(&msg(&hello("hello", "a"), flags::CHECKSUM_PRESENT)));
        assert_eq!(first, key(&query("admin.$cmd", &hello("isMaster", "a"))));
        assert_ne!(first, key(&msg(&hello("hello", "b"), 0)));
        let (app, none) = (doc! { "application" => doc! { "name" => "a" } }, array![]);
        let other = doc! { "hello" => 1, "client" => app, "compression" => none };
        assert_ne!(first, key(&msg(&other, 0)));
        assert_eq!(key(&msg(&doc! { "hello" => 1, "$db" => "admin" }, 0)), None);
        let speculative = doc! { "hello" => 1, "speculativeAuthenticate" => doc! { "a" => 1 } };
        assert!(Hello::of(&Request::of(&msg(&speculative, 0))).unwrap().is_personal);
    }

    #[test]
    fn a_hello_without_client_is_otherwise_the_same() {
        let expected = doc! { "hello" => 1, "compression" => array!["zstd"], "$db" => "admin" };
        for bits in [0, flags::CHECKSUM_PRESENT, flags::EXHAUST_ALLOWED] {
            let message = msg(&hello("hello", "a"), bits);
            let stripped = Hello::of(&Request::of(&message)).unwrap().without_client.unwrap();
            assert_eq!(body(&stripped), expected);
            assert_eq!(kauri_wire::flags_of(&stripped), bits);
            assert_eq!(stripped[4..8], message[4..8]);
        }
        let message = query("admin.$cmd", &hello("isMaster", "a"));
        let stripped = Hello::of(&Request::of(&message)).unwrap().without_client.unwrap();
        assert_eq!(body(&stripped).as_doc().count(), 3);
        let wrapped = query("admin.$cmd", &doc! { "$query" => hello("isMaster", "a") });
        assert_eq!(Hello::of(&Request::of(&wrapped)).unwrap().without_client, None);
        // What is no BSON stays the server's to refuse.
        let mut broken = msg(&hello("hello", "a"), 0);
        // The type of its first field: header, flags, the section's kind and the document's length come before.
        broken[16 + 4 + 1 + 4] = 0x50;
        assert_eq!(Hello::of(&Request::of(&broken)), None);
    }

    fn member(primary: bool) -> DocBuf {
        doc! {
            "isWritablePrimary" => primary,
            "secondary" => !primary,
            "hosts" => array!["a:1", "b:2"],
            "passives" => array!["c:3"],
            "arbiters" => array!["d:4"],
            "setName" => "rs0",
            "primary" => "a:1",
            "me" => if primary { "a:1" } else { "b:2" },
            "topologyVersion" => doc! { "counter" => 5i64 },
            "ok" => 1.0
        }
    }

    #[test]
    fn a_member_of_a_set_is_alone_and_a_standalone_is_what_it_was() {
        for bits in [0, flags::CHECKSUM_PRESENT, flags::MORE_TO_COME] {
            let changed = HelloReply::of(&msg(&member(true), bits), "p:9").changed.unwrap();
            let expected = doc! {
                "isWritablePrimary" => true,
                "secondary" => false,
                "setName" => "rs0",
                "hosts" => array!["p:9"],
                "primary" => "p:9",
                "me" => "p:9",
                "topologyVersion" => doc! { "counter" => 5i64 },
                "ok" => 1.0
            };
            assert_eq!(body(&changed), expected);
            assert_eq!(kauri_wire::flags_of(&changed), bits);
            let mut small = Vec::new();
            compress(&msg(&member(true), bits), Compressor::Zlib, &mut small).unwrap();
            let changed = HelloReply::of(&small, "p:9").changed.unwrap();
            assert_eq!(body(&changed), expected);
            assert_eq!(Header::parse(&changed).unwrap().op_code, 2012);
        }
        let secondary = body(&HelloReply::of(&msg(&member(false), 0), "p:9").changed.unwrap());
        assert!(secondary.as_doc().get("primary").is_none());
        assert_eq!(secondary.as_doc().value("me"), Value::from("p:9"));
        let mut legacy = Vec::new();
        let writer = ReplyWriter::begin(&mut legacy, 1, 2, 8, 0, 1);
        legacy.extend_from_slice(member(true).as_bytes());
        writer.finish(&mut legacy).unwrap();
        let changed = HelloReply::of(&legacy, "p:9").changed.unwrap();
        assert_eq!(body(&changed).as_doc().get("hosts").unwrap().as_doc().unwrap().count(), 1);
        assert_eq!(changed[4..12], legacy[4..12]);
        let standalone = msg(&doc! { "isWritablePrimary" => true, "ok" => 1.0 }, 0);
        let reply = HelloReply::of(&standalone, "p:9");
        assert!(reply.ok && reply.changed.is_none());
        assert!(!HelloReply::of(&msg(&doc! { "ok" => 0.0 }, 0), "p:9").ok);
    }
}
