//! Requests and replies as messages: unpacking, the reply's format, compression, the document of an error.

use crate::server::Server;
use crate::set;
use kauri_base::{Error, Result, bail};
use kauri_bson::{Doc, DocWriter};
use kauri_transport::ReplyBuf;
use kauri_wire::{Compressor, Header, Message, MsgWriter, ReplyWriter, flags, query_flags};
use std::sync::atomic::{AtomicI32, Ordering};

/// Ids of replies.
pub static NEXT_REQUEST_ID: AtomicI32 = AtomicI32::new(1);

/// The format of the request, and so of the reply.
#[derive(Clone, Copy)]
pub struct Form {
    pub header: Header,
    /// OP_QUERY, answered by OP_REPLY.
    pub legacy: bool,
    /// The flag of OP_QUERY by which a secondary may answer.
    pub secondary_ok: bool,
    pub checksum: bool,
    pub no_reply: bool,
    /// The compressor of the request, and its length on the wire.
    pub compressed: Option<(Compressor, usize)>,
    pub exhaust_allowed: bool,
}

/// A reply that was compressed, and its lengths.
pub struct CompressedReply {
    pub compressor: Compressor,
    pub plain: usize,
    pub packed: usize,
}

/// Parses the message, decompressed if need be.
pub fn unpack<'m>(request: &'m [u8], unpacked: &'m mut Vec<u8>) -> Result<(Form, Message<'m>)> {
    let (header, message) = Message::parse(request)?;
    let mut form = Form {
        header,
        legacy: false,
        secondary_ok: false,
        checksum: false,
        no_reply: false,
        compressed: None,
        exhaust_allowed: false,
    };
    let message = match message {
        Message::Compressed(compressed) => {
            compressed.decompress(unpacked)?;
            form.compressed = Some((compressed.compressor, unpacked.len()));
            let (_, inner) = Message::parse(unpacked)?;
            if matches!(inner, Message::Compressed(_)) {
                bail!(ProtocolError, "a compressed message within a compressed message");
            }
            inner
        }
        other => other,
    };
    match &message {
        Message::Msg(msg) => {
            form.checksum = msg.flags & flags::CHECKSUM_PRESENT != 0;
            form.no_reply = msg.is_fire_and_forget();
            form.exhaust_allowed = msg.allows_exhaust();
        }
        Message::Query(query) => {
            form.legacy = true;
            form.secondary_ok = query.flags & query_flags::SECONDARY_OK != 0;
        }
        _ => {}
    }
    Ok((form, message))
}

/// A reply under way.
pub enum Open {
    Msg(MsgWriter),
    Query(ReplyWriter),
}

/// Begins a reply; also answers its id.
pub fn begin_reply(form: Form, response_to: i32, out: &mut Vec<u8>) -> (i32, Open) {
    let id = NEXT_REQUEST_ID.fetch_add(1, Ordering::Relaxed);
    if form.legacy {
        let capable = kauri_wire::op_reply::AWAIT_CAPABLE;
        return (id, Open::Query(ReplyWriter::begin(out, id, response_to, capable, 0, 1)));
    }
    let flags = if form.checksum { flags::CHECKSUM_PRESENT } else { 0 };
    (id, Open::Msg(MsgWriter::begin(out, id, response_to, flags)))
}

/// Completes the message. A message that is too long is replaced by an error. Returns the difference that
/// compression makes, if it was compressed.
pub fn finish_reply(
    server: &Server,
    open: Open,
    form: Form,
    reply: &mut ReplyBuf,
) -> Option<CompressedReply> {
    let out = reply.buffer();
    let done = match open {
        Open::Msg(writer) => writer.finish(out),
        Open::Query(writer) => writer.finish(out),
    };
    if let Err(error) = done {
        out.clear();
        let (_, open) = begin_reply(form, form.header.request_id, out);
        {
            let mut writer = DocWriter::new(out);
            write_error(&mut writer, server, &error);
        }
        let _ = match open {
            Open::Msg(writer) => writer.finish(out),
            Open::Query(writer) => writer.finish(out),
        };
    }
    let (compressor, _) = form.compressed?;
    let plain = std::mem::take(out);
    if kauri_wire::compress(&plain, compressor, out).is_err() {
        *out = plain;
        return None;
    }
    Some(CompressedReply { compressor, plain: plain.len(), packed: out.len() })
}

/// `{ok: 0, errmsg, code, codeName, …}`.
pub fn write_error(out: &mut DocWriter<'_>, server: &Server, error: &Error) {
    if !error.labels().is_empty() {
        let mut labels = out.array("errorLabels");
        error.labels().iter().for_each(|label| labels.push(label.as_ref()));
    }
    out.put("ok", 0.0);
    out.put("errmsg", error.message());
    out.put("code", error.code().number());
    out.put("codeName", error.code().name());
    if let Some(extra) = error.extra().and_then(|e| Doc::from_bytes(e).ok()) {
        out.put_all(extra);
    }
    set::reply::put_topology_version(out, server, error.code());
    set::reply::put_times(out, server);
}
