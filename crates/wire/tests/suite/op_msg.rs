//! Valid OP_MSG messages, and malformed ones.

use kauri_base::ErrorCode;
use kauri_wire::{Message, MsgWriter, OpMsg, begin_msg_of, flags, flags_of, is_connection_fatal};

/// `{a: <value>}` with an int32.
fn document(value: i32) -> Vec<u8> {
    let mut bytes = vec![12, 0, 0, 0, 0x10, b'a', 0];
    bytes.extend_from_slice(&value.to_le_bytes());
    bytes.push(0);
    bytes
}

fn message(flags: u32, sections: &[u8]) -> Vec<u8> {
    let mut bytes = ((20 + sections.len()) as i32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0xDD, 0x07, 0, 0]);
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(sections);
    bytes
}

fn body_section() -> Vec<u8> {
    [&[0][..], &document(1)].concat()
}

fn sequence_section(identifier: &[u8], documents: &[u8]) -> Vec<u8> {
    let size = (4 + identifier.len() + 1 + documents.len()) as i32;
    [&[1][..], &size.to_le_bytes(), identifier, &[0], documents].concat()
}

fn error_of(bytes: &[u8]) -> kauri_base::Error {
    match Message::parse(bytes) {
        Ok(_) => panic!("{bytes:?} was accepted"),
        Err(error) => error,
    }
}

#[test]
fn body_and_sequences_come_in_any_order() {
    let two = [document(2), document(3)].concat();
    let sections =
        [sequence_section(b"documents", &two), body_section(), sequence_section(b"empty", b"")];
    let bytes = message(0, &sections.concat());
    let msg = OpMsg::parse(&bytes).unwrap();
    assert_eq!(msg.body, document(1));
    let names: Vec<_> = msg.sequences().map(|s| (s.identifier, s.count)).collect();
    assert_eq!(names, [("documents", 2), ("empty", 0)]);
    let documents: Vec<_> = msg.sequences().flat_map(|s| s.documents()).collect();
    assert_eq!(documents, [document(2), document(3)]);
    assert!(!msg.is_fire_and_forget() && !msg.allows_exhaust());
}

#[test]
fn required_and_optional_flags_are_distinguished() {
    let bytes = message(flags::MORE_TO_COME | flags::EXHAUST_ALLOWED | 1 << 31, &body_section());
    let msg = OpMsg::parse(&bytes).unwrap();
    assert!(msg.is_fire_and_forget() && msg.allows_exhaust());
    assert_eq!(flags_of(&bytes), msg.flags);
    assert_eq!(flags_of(&bytes[..19]), 0);
    for bit in 2..16 {
        let error = error_of(&message(1 << bit, &body_section()));
        assert_eq!(error.code(), ErrorCode::IllegalOpMsgFlag, "bit {bit}");
        assert!(is_connection_fatal(&error));
    }
    let error = error_of(&message(4, &body_section()));
    assert_eq!(
        error.message(),
        "Message contains illegal flags value: Ob00000000000000000000000000000100"
    );
}

#[test]
fn each_malformation_has_mongodbs_code() {
    let body = body_section();
    let sequence = sequence_section(b"d", &document(1));
    let mut no_eoo = body.clone();
    *no_eoo.last_mut().unwrap() = 1;
    let cases: Vec<(&str, Vec<u8>, i32)> = vec![
        ("no sections", vec![], 40587),
        ("no body", sequence.clone(), 40587),
        ("two bodies", [body.clone(), body.clone()].concat(), 40430),
        ("one name twice", [&body[..], &sequence, &sequence].concat(), 40431),
        (
            "three sequences",
            [&body[..], &sequence, &sequence_section(b"e", b""), &sequence_section(b"f", b"")]
                .concat(),
            233,
        ),
        ("unknown section", [&body[..], &[2]].concat(), 40432),
        ("garbage at the end", [&body[..], b"garbage"].concat(), 40432),
        ("body cut short", body[..body.len() - 1].to_vec(), 22),
        ("body without a length", vec![0, 12, 0], 15),
        ("body without an end", no_eoo, 22),
        ("body too short", vec![0, 4, 0, 0, 0, 0], 22),
        ("body of negative length", vec![0, 0, 0, 0, 0x80, 0], 22),
        ("sequence of negative size", [&body[..], &[1, 0, 0, 0, 0x80]].concat(), 15),
        ("sequence smaller than its size field", [&body[..], &[1, 3, 0, 0, 0]].concat(), 15),
        ("sequence without a name", [&body[..], &[1, 4, 0, 0, 0]].concat(), 15),
        ("sequence with an endless name", [&body[..], &[1, 6, 0, 0, 0, b'a', b'b']].concat(), 15),
        ("sequence beyond the message", [&body[..], &[1, 99, 0, 0, 0, b'a', 0]].concat(), 15),
        (
            "sequence with half a document",
            [&body[..], &sequence_section(b"d", &document(1)[..7])].concat(),
            22,
        ),
        ("sequence with a bad name", [&body[..], &sequence_section(b"\xff", b"")].concat(), 2),
    ];
    for (what, sections, code) in cases {
        let error = error_of(&message(0, &sections));
        assert_eq!(error.code().number(), code, "{what}: {error:?}");
        assert_eq!(is_connection_fatal(&error), code == 233, "{what}");
    }
    assert_eq!(error_of(&message(0, &[])[..18]).code(), ErrorCode::ProtocolError);
}

#[test]
fn a_checksum_is_written_and_checked() {
    let mut bytes = b"before".to_vec();
    let writer = MsgWriter::begin(&mut bytes, 7, 8, flags::CHECKSUM_PRESENT);
    bytes.extend_from_slice(&document(1));
    writer.finish(&mut bytes).unwrap();
    let bytes = bytes.split_off(6);
    let (header, parsed) = Message::parse(&bytes).unwrap();
    assert_eq!((header.request_id, header.response_to), (7, 8));
    let Message::Msg(msg) = parsed else { panic!("not an OP_MSG") };
    assert_eq!(msg.body, document(1));
    for at in 4..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        assert!(Message::parse(&flipped).is_err() || flipped[12..16] != bytes[12..16], "{at}");
    }
    let mut flipped = bytes.clone();
    flipped[30] ^= 1;
    let error = error_of(&flipped);
    assert_eq!(error.code(), ErrorCode::ChecksumMismatch);
    assert!(is_connection_fatal(&error));
    assert_eq!(error_of(&message(1, &[0, 0, 0, 0])).code().number(), 51251);
    assert_eq!(error_of(&message(1, &[])).code().number(), 51251);
}

#[test]
fn the_writer_builds_what_the_reader_reads() {
    let mut bytes = Vec::new();
    let writer = MsgWriter::begin(&mut bytes, 3, 0, flags::MORE_TO_COME);
    bytes.extend_from_slice(&document(5));
    let sequence = writer.begin_sequence(&mut bytes, "documents");
    bytes.extend_from_slice(&document(6));
    bytes.extend_from_slice(&document(7));
    sequence.finish(&mut bytes);
    writer.finish(&mut bytes).unwrap();
    let msg = OpMsg::parse(&bytes).unwrap();
    assert!(msg.is_fire_and_forget());
    assert_eq!(msg.body, document(5));
    let sequence = msg.sequences().next().unwrap();
    assert_eq!((sequence.identifier, sequence.count), ("documents", 2));
    assert_eq!(sequence.documents().last().unwrap(), document(7));
}

#[test]
fn a_length_known_beforehand_gives_the_same_bytes() {
    let (mut at_once, mut patched) = (Vec::new(), Vec::new());
    begin_msg_of(&mut at_once, 1, 2, 0, 12).unwrap();
    at_once.extend_from_slice(&document(9));
    let writer = MsgWriter::begin(&mut patched, 1, 2, 0);
    patched.extend_from_slice(&document(9));
    writer.finish(&mut patched).unwrap();
    assert_eq!(at_once, patched);
}

#[test]
fn a_message_beyond_the_limit_is_not_written() {
    let error = begin_msg_of(&mut Vec::new(), 1, 2, 0, 48_000_000 - 20).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BSONObjectTooLarge);
    begin_msg_of(&mut Vec::new(), 1, 2, 0, 48_000_000 - 21).unwrap();
    let mut bytes = Vec::new();
    let writer = MsgWriter::begin(&mut bytes, 1, 2, 0);
    bytes.resize(48_000_001, 0);
    assert_eq!(writer.finish(&mut bytes).unwrap_err().code(), ErrorCode::BSONObjectTooLarge);
}
