//! Malformed input affects only its sender, with an error or a closed connection.

use crate::common::{Client, TestServer, code_of, show};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{Doc, DocBuf, array, doc};
use kauri_wire::Message;

const MSG: i32 = 2013;

/// A message with this opcode and its correct length.
fn message(op_code: i32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [16 + rest.len() as i32, 7, 0, op_code] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(rest);
    bytes
}

/// An OP_MSG with these flags and sections.
fn op_msg(flags: u32, sections: &[u8]) -> Vec<u8> {
    let mut rest = flags.to_le_bytes().to_vec();
    rest.extend_from_slice(sections);
    message(MSG, &rest)
}

/// The body section.
fn body(doc: &DocBuf) -> Vec<u8> {
    let mut section = vec![0];
    section.extend_from_slice(doc.as_doc().as_bytes());
    section
}

fn ping() -> DocBuf {
    doc! { "ping" => 1, "$db" => "test" }
}

/// The result of a message.
#[derive(Debug, PartialEq)]
enum Fate {
    Code(i64),
    Closed,
}

fn fate(client: &Client, bytes: &[u8]) -> Fate {
    client.send_bytes(bytes);
    let Some(reply) = client.receive_bytes() else {
        assert!(client.is_closed(), "neither answered nor closed");
        return Fate::Closed;
    };
    let (_, Message::Msg(reply)) = Message::parse(&reply).unwrap() else { panic!("no OP_MSG") };
    Fate::Code(code_of(&Doc::from_bytes(reply.body).unwrap().to_buf()))
}

/// Sends each message on its own connection while another connection stays in use.
#[track_caller]
fn expect(cases: &[(&str, Vec<u8>, Fate)]) {
    let test = TestServer::start();
    let witness = test.client();
    witness.insert("c", [doc! { "_id" => 1 }]);
    for (what, bytes, expected) in cases {
        let client = test.client();
        assert_eq!(fate(&client, bytes), *expected, "{what}");
        if let Fate::Code(_) = expected {
            assert_eq!(client.all_ids("c"), [1], "{what}: the connection continues");
        }
        assert_eq!(witness.all_ids("c"), [1], "{what}: other connections continue");
    }
}

#[test]
fn invalid_messages_end_the_connection() {
    let lying = |length: i32| {
        let mut bytes = op_msg(0, &body(&ping()));
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    expect(&[
        ("a length of 0", lying(0), Fate::Closed),
        ("a negative length", lying(-1), Fate::Closed),
        ("shorter than a header", lying(15), Fate::Closed),
        ("longer than any message", lying(48_000_001), Fate::Closed),
        ("the longest length", lying(i32::MAX), Fate::Closed),
        ("text", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), Fate::Closed),
        ("an unknown opcode", message(4711, b"xyz"), Fate::Closed),
        ("a negative opcode", message(-1, &[]), Fate::Closed),
        ("a reply", message(1, &[0; 40]), Fate::Closed),
        ("OP_INSERT", message(2002, &[0; 20]), Fate::Closed),
        ("OP_UPDATE", message(2001, &[0; 20]), Fate::Closed),
        ("an unknown flag that is required", op_msg(1 << 5, &body(&ping())), Fate::Closed),
        (
            "an unknown compressor",
            message(2012, &[0xdd, 7, 0, 0, 9, 0, 0, 0, 99, 1, 2]),
            Fate::Closed,
        ),
    ]);
}

#[test]
fn invalid_documents_get_a_reply() {
    let broken = |change: fn(&mut Vec<u8>)| {
        let mut section = body(&doc! { "ping" => "text", "$db" => "test" });
        change(&mut section);
        op_msg(0, &section)
    };
    let sequence = |length: i32, rest: &[u8]| {
        let mut sections = body(&doc! { "insert" => "c", "$db" => "test" });
        sections.push(1);
        sections.extend_from_slice(&length.to_le_bytes());
        sections.extend_from_slice(rest);
        op_msg(0, &sections)
    };
    let mut deep = doc! {};
    for _ in 0..250 {
        deep = doc! { "d" => deep };
    }
    let deep = doc! { "ping" => 1, "a" => deep, "$db" => "test" };
    // The text of `ping` begins behind the section's kind, the length, the type and the name.
    expect(&[
        ("a type that is none", broken(|b| b[5] = 0x55), Fate::Code(22)),
        ("a name that is no UTF-8", broken(|b| b[7] = 0xff), Fate::Code(22)),
        ("a string that is no UTF-8", broken(|b| b[15] = 0xff), Fate::Code(0)),
        ("a string without its end", broken(|b| b[11] = 3), Fate::Code(22)),
        ("a string of negative length", broken(|b| b[14] = 0xff), Fate::Code(22)),
        ("a document longer than its message", broken(|b| b[2] = 0x7f), Fate::Code(22)),
        ("a document of negative length", broken(|b| b[4] = 0xff), Fate::Code(22)),
        ("nesting without end", op_msg(0, &body(&deep)), Fate::Code(15)),
        ("no body", op_msg(0, &[]), Fate::Code(40587)),
        ("two bodies", op_msg(0, &[body(&ping()), body(&ping())].concat()), Fate::Code(40430)),
        ("an unknown section", op_msg(0, &[9]), Fate::Code(40432)),
        ("a sequence of negative length", sequence(-5, b"documents\0"), Fate::Code(15)),
        ("a sequence that ends early", sequence(400, b"documents\0"), Fate::Code(15)),
        ("a sequence without a name", sequence(8, b"name"), Fate::Code(15)),
        ("no database", op_msg(0, &body(&doc! { "ping" => 1 })), Fate::Code(40571)),
        ("no command", op_msg(0, &body(&doc! { "$db" => "test" })), Fate::Code(59)),
    ]);
}

#[test]
fn random_bit_flips_affect_only_their_sender() {
    let test = TestServer::start();
    let witness = test.client();
    witness.insert("c", [doc! { "_id" => 1 }]);
    let random = SeededRandom::new(77);
    let pick = |bound: usize| (random.next_u64() % bound as u64) as usize;
    let update = doc! { "q" => doc! { "_id" => 5 }, "u" => doc! { "$set" => doc! { "a" => 1 } } };
    let commands = [
        doc! { "find" => "x", "filter" => doc! { "_id" => 1 } },
        doc! { "insert" => "x", "documents" => array![doc! { "a" => doc! { "b" => "text" } }] },
        doc! { "update" => "x", "updates" => array![update] },
        doc! { "aggregate" => "x", "cursor" => doc! {}, "pipeline" => array![
            doc! { "$match" => doc! { "a" => doc! { "$in" => array![1, "b"] } } },
            doc! { "$group" => doc! { "_id" => "$a", "n" => doc! { "$sum" => 1 } } },
        ] },
        doc! { "createIndexes" => "x", "indexes" => array![
            doc! { "key" => doc! { "a" => 1 }, "name" => "a" }
        ] },
    ];
    let (mut answered, mut ended) = (0, 0);
    let mut client = test.client();
    for _ in 0..1_500 {
        let mut bytes = client.message(&commands[pick(commands.len())]);
        for _ in 0..1 + pick(3) {
            // The length is kept, or else the server would wait for more bytes. The flags are kept, or else
            // there is no reply.
            let at = 20 + pick(bytes.len() - 20);
            bytes[at] = random.next_u64() as u8;
        }
        match fate(&client, &bytes) {
            Fate::Code(_) => answered += 1,
            Fate::Closed => {
                ended += 1;
                client = test.client();
            }
        }
    }
    assert!(answered > 1_000, "{answered} answered, {ended} connections ended");
    assert_eq!(witness.all_ids("c"), [1]);
    witness.validate("c");
}

#[test]
fn messages_may_be_split_and_half_messages_are_harmless() {
    let test = TestServer::start();
    let (slow, other) = (test.client(), test.client());
    let bytes = slow.message(&doc! { "insert" => "c", "documents" => array![doc! { "_id" => 1 }] });
    for piece in bytes.chunks(3) {
        slow.send_bytes(piece);
        assert_eq!(code_of(&other.run(&doc! { "ping" => 1 })), 0);
    }
    assert_eq!(code_of(&slow.receive().unwrap()), 0);
    slow.send_bytes(&bytes[..bytes.len() - 1]);
    drop(slow);
    assert_eq!(other.all_ids("c"), [1]);
}

#[test]
fn documents_at_the_limit_are_accepted_and_larger_ones_refused() {
    let test = TestServer::start();
    let client = test.client();
    let of_bytes = |id: i32, bytes: usize| {
        // The overhead: the document's end and length, `_id`, and the string's header.
        let pad = "p".repeat(bytes - 24);
        let doc = doc! { "_id" => id, "pad" => pad.as_str() };
        assert_eq!(doc.as_doc().as_bytes().len(), bytes);
        doc
    };
    const MAX: usize = 16 * 1024 * 1024;
    client.insert("c", [of_bytes(1, MAX)]);
    let over = doc! { "insert" => "c", "documents" => array![of_bytes(2, MAX + 1)] };
    let reply = client.run(&over);
    assert_ne!(code_of(&reply) + errors(&reply), 0, "{}", show(&reply));
    assert_eq!(client.all_ids("c"), [1]);
    client.send(&doc! { "find" => "c", "filter" => doc! { "_id" => 1 } });
    assert!(client.receive_bytes().unwrap().len() > MAX);
    let grow = doc! { "$set" => doc! { "more" => "x" } };
    let update = doc! { "update" => "c", "updates" => array![
        doc! { "q" => doc! { "_id" => 1 }, "u" => grow }
    ] };
    let reply = client.run(&update);
    assert_ne!(code_of(&reply) + errors(&reply), 0, "{}", show(&reply));
    assert_eq!(client.all_ids("c"), [1]);
}

/// The code of the first write error; 0 if there is none.
fn errors(reply: &DocBuf) -> i64 {
    let errors = reply.as_doc().value("writeErrors");
    let Some(errors) = errors.as_array() else { return 0 };
    let first = errors.iter().next().unwrap();
    first.as_doc().unwrap().value("code").as_i64_exact().unwrap()
}

/// A document sequence that repeats this document.
fn sequence(name: &str, document: &[u8], times: usize) -> Vec<u8> {
    let mut section = vec![1];
    section
        .extend_from_slice(&((4 + name.len() + 1 + document.len() * times) as i32).to_le_bytes());
    section.extend_from_slice(name.as_bytes());
    section.push(0);
    section.extend_from_slice(&document.repeat(times));
    section
}

/// The statements are counted before any is validated: these would fail validation.
#[test]
fn too_many_write_statements_are_refused_before_they_are_validated() {
    const TOO_MANY: usize = kauri_base::limits::WRITE_BATCH_MAX + 1;
    const INVALID_LENGTH: i64 = 16;
    // Valid by its length, with an unknown element type.
    let wrong = [8, 0, 0, 0, 0x99, b'a', 0, 0];
    let of = |command: &str, field: &str, times: usize| {
        let head = DocBuf::build(|out| {
            if command == "bulkWrite" {
                out.put(command, 1);
                out.put("nsInfo", array![doc! { "ns" => "test.c" }]);
                out.put("$db", "admin");
            } else {
                out.put(command, "c");
                out.put("$db", "test");
            }
        });
        op_msg(0, &[body(&head), sequence(field, &wrong, times)].concat())
    };
    let test = TestServer::start();
    let client = test.client();
    for (command, field) in [
        ("insert", "documents"),
        ("update", "updates"),
        ("delete", "deletes"),
        ("bulkWrite", "ops"),
    ] {
        assert_eq!(fate(&client, &of(command, field, 1)), Fate::Code(22), "{command}");
        let fate = fate(&client, &of(command, field, TOO_MANY));
        assert_eq!(fate, Fate::Code(INVALID_LENGTH), "{command}");
    }
    // The elements of an array in the body are valid BSON but no statements.
    let numbers = kauri_bson::Value::array((0..TOO_MANY as i32).map(kauri_bson::Value::Int32));
    for (command, field) in [("insert", "documents"), ("update", "updates"), ("delete", "deletes")]
    {
        let reply = client.run(&doc! { command => "c", field => numbers.clone() });
        assert_eq!(code_of(&reply), INVALID_LENGTH, "{}", show(&reply));
    }
    let reply = client.admin().run(&doc! { "bulkWrite" => 1, "ops" => numbers });
    assert_eq!(code_of(&reply), INVALID_LENGTH, "{}", show(&reply));
}

#[test]
fn a_database_name_with_a_dot_is_invalid_on_both_paths() {
    let test = TestServer::start();
    let client = test.client();
    client.on("a").ok(doc! { "insert" => "b.c", "documents" => array![doc! { "_id" => 1 }] });
    let by_id = || doc! { "_id" => 1 };
    for command in [
        doc! { "find" => "c", "filter" => by_id() },
        doc! { "find" => "c", "filter" => by_id(), "comment" => "by the ordinary path" },
        doc! { "insert" => "c", "documents" => array![doc! { "_id" => 2 }] },
        doc! { "delete" => "c", "deletes" => array![doc! { "q" => by_id(), "limit" => 1 }] },
    ] {
        assert_eq!(client.on("a.b").fails(command), 73);
    }
    assert_eq!(client.on("a").all_ids("b.c"), [1]);
}
