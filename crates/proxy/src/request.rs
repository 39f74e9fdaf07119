//! The parsed part of a request: whether a reply comes, and whether it is one of the few requests that a session
//! remembers. All other bytes are forwarded unread.

use kauri_bson::Doc;
use kauri_wire::{Compressor, HEADER_BYTES, Header, Message, OpQuery, flags, flags_of, opcode};
use std::borrow::Cow;

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `hello`, `isMaster`.
    Hello,
    /// `kauriUpgrade`: the driver's connection is no session of the server's.
    Upgrade,
    /// Requests about the session's user, or requests that cannot be parsed.
    Personal,
    /// Requests about a cursor, which is the server's that has it.
    Cursor,
    /// Anything else.
    Other,
}

/// A request, as far as it has to be known.
#[derive(Debug)]
pub struct Request<'a> {
    pub kind: Kind,
    /// The server answers, or ends the session.
    pub wants_reply: bool,
    /// There may be more than one reply.
    pub allows_exhaust: bool,
    pub compressor: Option<Compressor>,
    /// The message, decompressed if it was compressed.
    pub plain: Cow<'a, [u8]>,
}

impl<'a> Request<'a> {
    /// Parses a whole message.
    pub fn of(message: &'a [u8]) -> Request<'a> {
        let mut request = Request {
            kind: Kind::Personal,
            wants_reply: true,
            allows_exhaust: false,
            compressor: None,
            plain: Cow::Borrowed(message),
        };
        let op_code = |message| Header::parse(message).map_or(0, |header| header.op_code);
        if op_code(message) == opcode::COMPRESSED {
            let Some((compressor, plain)) = decompressed(message) else { return request };
            request.compressor = Some(compressor);
            request.plain = Cow::Owned(plain);
        }
        match op_code(&request.plain) {
            opcode::MSG => {
                let bits = flags_of(&request.plain);
                request.wants_reply = bits & flags::MORE_TO_COME == 0;
                request.allows_exhaust = request.wants_reply && bits & flags::EXHAUST_ALLOWED != 0;
                request.kind = body(&request.plain).map_or(Kind::Personal, kind_of);
            }
            opcode::QUERY => {
                let query = OpQuery::parse(&request.plain).ok();
                let command =
                    query.as_ref().and_then(|query| Doc::from_bytes(query.command()).ok());
                request.kind = command.map_or(Kind::Personal, kind_of);
            }
            _ => {}
        }
        request
    }
}

fn decompressed(message: &[u8]) -> Option<(Compressor, Vec<u8>)> {
    let Ok((_, Message::Compressed(compressed))) = Message::parse(message) else { return None };
    let mut plain = Vec::new();
    compressed.decompress(&mut plain).ok()?;
    Some((compressed.compressor, plain))
}

/// The body of an OP_MSG. Drivers send it first; then nothing else has to be read.
fn body(message: &[u8]) -> Option<Doc<'_>> {
    const FLAGS_BYTES: usize = 4;
    let (kind, rest) = message.get(HEADER_BYTES + FLAGS_BYTES..)?.split_first()?;
    if *kind == 0 {
        return Doc::split_prefix(rest).ok().map(|(body, _)| body);
    }
    match Message::parse(message) {
        Ok((_, Message::Msg(msg))) => Doc::from_bytes(msg.body).ok(),
        _ => None,
    }
}

fn kind_of(command: Doc<'_>) -> Kind {
    match command.first().map(|elem| elem.key_bytes()) {
        Some(b"hello" | b"isMaster" | b"ismaster") => Kind::Hello,
        Some(b"kauriUpgrade") => Kind::Upgrade,
        Some(b"saslStart" | b"saslContinue" | b"authenticate" | b"logout") => Kind::Personal,
        Some(b"getMore" | b"killCursors") => Kind::Cursor,
        Some(_) => Kind::Other,
        None => Kind::Personal,
    }
}

/// Whether another reply follows this one.
pub fn more_to_come(reply: &[u8]) -> bool {
    let has = |message: &[u8]| flags_of(message) & flags::MORE_TO_COME != 0;
    match Header::parse(reply).map(|header| header.op_code) {
        Some(opcode::MSG) => has(reply),
        Some(opcode::COMPRESSED) => decompressed(reply).is_some_and(|(_, plain)| {
            let inner = Header::parse(&plain).map(|header| header.op_code);
            inner == Some(opcode::MSG) && has(&plain)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::doc;
    use kauri_wire::{MsgWriter, compress, write_query};

    fn msg(command: &kauri_bson::DocBuf, bits: u32, sequence_first: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let writer = MsgWriter::begin(&mut out, 7, 0, bits);
        if sequence_first {
            out.pop();
            let sequence = writer.begin_sequence(&mut out, "documents");
            out.extend_from_slice(doc! { "a" => 1 }.as_bytes());
            sequence.finish(&mut out);
            out.push(0);
        }
        out.extend_from_slice(command.as_bytes());
        writer.finish(&mut out).unwrap();
        out
    }

    fn known(message: &[u8]) -> (Kind, bool, bool) {
        let request = Request::of(message);
        (request.kind, request.wants_reply, request.allows_exhaust)
    }

    #[test]
    fn requests_are_known_by_their_first_field_and_their_flags() {
        let find = doc! { "find" => "hello" };
        for first in [false, true] {
            for bits in [0, flags::CHECKSUM_PRESENT] {
                assert_eq!(known(&msg(&find, bits, first)), (Kind::Other, true, false));
            }
        }
        let exhaust = flags::EXHAUST_ALLOWED;
        assert_eq!(known(&msg(&find, exhaust, false)), (Kind::Other, true, true));
        let silent = flags::MORE_TO_COME | exhaust;
        assert_eq!(known(&msg(&find, silent, false)), (Kind::Other, false, false));
        for (name, kind) in [
            ("hello", Kind::Hello),
            ("isMaster", Kind::Hello),
            ("ismaster", Kind::Hello),
            ("Hello", Kind::Other),
            ("getMore", Kind::Cursor),
            ("killCursors", Kind::Cursor),
            ("kauriUpgrade", Kind::Upgrade),
            ("saslStart", Kind::Personal),
            ("authenticate", Kind::Personal),
        ] {
            let command = doc! { name => 1, "$db" => "admin" };
            assert_eq!(known(&msg(&command, 0, false)).0, kind, "{name}");
            assert_eq!(known(&msg(&command, 0, true)).0, kind, "{name}");
            let mut query = Vec::new();
            write_query(&mut query, 1, 0, "admin.$cmd", -1, command.as_bytes()).unwrap();
            assert_eq!(known(&query), (kind, true, false), "{name}");
            let wrapped = doc! { "$query" => command };
            query.clear();
            write_query(&mut query, 1, 0, "admin.$cmd", -1, wrapped.as_bytes()).unwrap();
            assert_eq!(known(&query).0, kind, "{name}");
        }
    }

    #[test]
    fn compressed_requests_are_known_and_broken_ones_are_nobodys() {
        let hello = msg(&doc! { "hello" => 1 }, flags::MORE_TO_COME, false);
        for compressor in Compressor::NEGOTIABLE {
            let mut small = Vec::new();
            compress(&hello, compressor, &mut small).unwrap();
            assert_eq!(known(&small), (Kind::Hello, false, false));
            assert!(more_to_come(&small));
            let last = small.len() - 1;
            small.truncate(last);
            small[..4].copy_from_slice(&(last as i32).to_le_bytes());
            assert_eq!(known(&small), (Kind::Personal, true, false));
        }
        assert!(more_to_come(&hello));
        for cut in 16..hello.len() {
            let mut message = hello[..cut].to_vec();
            message[..4].copy_from_slice(&(cut as i32).to_le_bytes());
            assert_ne!(known(&message).0, Kind::Hello, "{cut}");
        }
    }
}
