//! OP_QUERY, OP_REPLY and the opcodes that are no longer supported.

use kauri_base::ErrorCode;
use kauri_wire::op_reply::{AWAIT_CAPABLE, QUERY_FAILURE};
use kauri_wire::{
    Header, LegacyOp, Message, OpQuery, OpReply, ReplyWriter, is_connection_fatal, query_flags,
    write_query,
};

const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
/// `{ping: 1}`
const PING: &[u8] = b"\x0f\0\0\0\x10ping\0\x01\0\0\0\0";

fn query(flags: u32, namespace: &str, document: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_query(&mut bytes, 9, flags, namespace, -1, document).unwrap();
    bytes
}

/// `document` as the only field of another one.
fn wrap(name: &str, document: &[u8]) -> Vec<u8> {
    let length = (4 + 1 + name.len() + 1 + document.len() + 1) as i32;
    [&length.to_le_bytes()[..], &[3], name.as_bytes(), &[0], document, &[0]].concat()
}

#[test]
fn a_handshake_is_read() {
    let bytes = query(query_flags::SECONDARY_OK, "admin.$cmd", PING);
    let (header, Message::Query(query)) = Message::parse(&bytes).unwrap() else {
        panic!("not an OP_QUERY")
    };
    assert_eq!(header.request_id, 9);
    assert_eq!(query.command_database(), Some("admin"));
    assert_eq!((query.number_to_skip, query.number_to_return), (0, -1));
    assert_eq!(query.flags, query_flags::SECONDARY_OK);
    assert_eq!(query.command(), PING);
    assert_eq!(query.fields, None);
}

#[test]
fn a_wrapped_command_is_unwrapped() {
    for name in ["$query", "query"] {
        let bytes = query(0, "admin.$cmd", &wrap(name, PING));
        let query = OpQuery::parse(&bytes).unwrap();
        assert_eq!(query.command(), PING);
        assert_eq!(query.flags, 0);
    }
    let other = wrap("other", PING);
    let bytes = query(0, "admin.$cmd", &other);
    assert_eq!(OpQuery::parse(&bytes).unwrap().command(), other);
    let bytes = query(0, "admin.$cmd", EMPTY);
    assert_eq!(OpQuery::parse(&bytes).unwrap().command(), EMPTY);
}

#[test]
fn only_a_cmd_namespace_is_a_command() {
    for (namespace, database) in
        [("a.$cmd", Some("a")), ("a.b", None), (".$cmd", None), ("$cmd", None), ("", None)]
    {
        let bytes = query(0, namespace, EMPTY);
        assert_eq!(OpQuery::parse(&bytes).unwrap().command_database(), database, "{namespace}");
    }
}

#[test]
fn a_malformed_query_is_refused() {
    let mut with_fields = query(0, "a.b", PING);
    with_fields.extend_from_slice(EMPTY);
    assert_eq!(OpQuery::parse(&with_fields).unwrap().fields, Some(EMPTY));
    with_fields.push(0);
    assert_eq!(OpQuery::parse(&with_fields).unwrap_err().code(), ErrorCode::ProtocolError);
    let whole = query(0, "a.b", PING);
    for length in 0..whole.len() {
        assert!(OpQuery::parse(&whole[..length]).is_err(), "{length}");
    }
    let mut three = query(0, "a.b", PING);
    three.extend_from_slice(EMPTY);
    three.extend_from_slice(EMPTY);
    assert_eq!(OpQuery::parse(&three).unwrap_err().code(), ErrorCode::ProtocolError);
}

#[test]
fn a_reply_round_trips() {
    let mut bytes = Vec::new();
    let writer = ReplyWriter::begin(&mut bytes, 4, 9, AWAIT_CAPABLE | QUERY_FAILURE, 77, 2);
    bytes.extend_from_slice(PING);
    bytes.extend_from_slice(EMPTY);
    writer.finish(&mut bytes).unwrap();
    let (header, Message::Reply(reply)) = Message::parse(&bytes).unwrap() else {
        panic!("not an OP_REPLY")
    };
    assert_eq!((header.request_id, header.response_to), (4, 9));
    assert_eq!((reply.response_flags, reply.cursor_id, reply.count), (10, 77, 2));
    assert_eq!(reply.documents().collect::<Vec<_>>(), [PING, EMPTY]);
    bytes[32] = 3;
    assert!(OpReply::parse(&bytes).is_err(), "three documents are announced, two are there");
}

#[test]
fn legacy_opcodes_are_known_and_others_are_fatal() {
    let names = [
        (2001, "OP_UPDATE"),
        (2002, "OP_INSERT"),
        (2005, "OP_GET_MORE"),
        (2006, "OP_DELETE"),
        (2007, "OP_KILL_CURSORS"),
    ];
    for (op_code, name) in names {
        let header = Header { length: 16, request_id: 1, response_to: 0, op_code };
        match Message::parse(&header.to_bytes()) {
            Ok((_, Message::Legacy(legacy))) => {
                assert_eq!(legacy.name(), name);
                assert_eq!(legacy == LegacyOp::GetMore, op_code == 2005);
            }
            _ => panic!("{name}"),
        }
    }
    for op_code in [0, 2, 1000, 2003, 2010, 2011, 2014, -1, i32::MIN] {
        let header = Header { length: 16, request_id: 1, response_to: 0, op_code };
        match Message::parse(&header.to_bytes()) {
            Err(error) => assert!(is_connection_fatal(&error), "{op_code}"),
            Ok(_) => panic!("{op_code}"),
        }
    }
}
