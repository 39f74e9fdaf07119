//! What the receiver of a copy and its source say, as BSON documents.

use crate::stored::{self, Stored};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_replication::reader::{Malformed, Reader};
use kauri_storage::CopyPart;

/// Bytes of a piece, at most.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Bytes of the files that are not the log, at most.
const SMALL_BYTES_MAX: u64 = 256 << 20;
/// Files of a copy, at most.
const FILES_MAX: usize = 8;

/// A file of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// What is copied of it, in order; the rest is zero.
    pub parts: Vec<CopyPart>,
    /// Whether it is a log file, written in place.
    pub is_log: bool,
}

/// What is said.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    /// The receiver wants a copy.
    Begin,
    /// The source has made one, with this number.
    Begun {
        /// Its number.
        copy: u64,
        /// The source's state before it.
        stored: Box<Stored>,
        /// Its files.
        files: Vec<File>,
    },
    /// The receiver wants a piece.
    Read(Piece),
    /// A piece.
    Data(Piece, Vec<u8>),
    /// The source has no such copy.
    Gone(u64),
    /// The receiver has everything of the copy.
    End(u64),
    /// The receiver does not want the copy any more.
    GiveUp(u64),
}

/// A piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Piece {
    /// The copy.
    pub copy: u64,
    /// The file, by its place.
    pub file: usize,
    /// Where it begins.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// A message of this member.
#[derive(Clone, PartialEq, Debug)]
pub struct CopyMessage {
    /// The sender.
    pub from: u64,
    /// What it says.
    pub content: Content,
}

impl CopyMessage {
    /// Its bytes.
    pub fn encode(&self) -> DocBuf {
        DocBuf::build(|out| {
            out.put("from", self.from as i64);
            match &self.content {
                Content::Begin => out.put("begin", true),
                Content::Begun { copy, stored, files } => {
                    out.put("begun", *copy as i64);
                    stored::write(stored, &mut out.document("stored"));
                    let mut array = out.array("files");
                    for file in files {
                        let mut of = array.document();
                        of.put("name", file.name.as_str());
                        of.put("bytes", file.bytes as i64);
                        of.put("log", file.is_log);
                        let numbers = file.parts.iter().flat_map(|part| [part.offset, part.bytes]);
                        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
                        of.put(
                            "parts",
                            Value::Binary { subtype: 0, bytes: bytes.as_slice().into() },
                        );
                    }
                }
                Content::Read(piece) => {
                    out.put("read", piece.copy as i64);
                    put_piece(out, piece);
                }
                Content::Data(piece, bytes) => {
                    out.put("data", piece.copy as i64);
                    put_piece(out, piece);
                    out.put(
                        "content",
                        Value::Binary { subtype: 0, bytes: bytes.as_slice().into() },
                    );
                }
                Content::Gone(copy) => out.put("gone", *copy as i64),
                Content::End(copy) => out.put("end", *copy as i64),
                Content::GiveUp(copy) => out.put("giveUp", *copy as i64),
            }
        })
    }

    /// The message in a document.
    pub fn decode(doc: Doc<'_>) -> Result<CopyMessage, Malformed> {
        let from = number(doc, "from")?;
        let what = doc.iter().nth(1).ok_or(Malformed)?;
        let copy = || number(doc, what.key());
        let content = match what.key() {
            "begin" => Content::Begin,
            "begun" => begun(copy()?, doc)?,
            "read" => Content::Read(piece(copy()?, doc)?),
            "data" => {
                let Value::Binary { bytes, .. } = doc.value("content") else {
                    return Err(Malformed);
                };
                let piece = piece(copy()?, doc)?;
                let is_whole = bytes.len() as u64 == piece.bytes;
                Content::Data(piece, Some(bytes.to_vec()).filter(|_| is_whole).ok_or(Malformed)?)
            }
            "gone" => Content::Gone(copy()?),
            "end" => Content::End(copy()?),
            "giveUp" => Content::GiveUp(copy()?),
            _ => return Err(Malformed),
        };
        Ok(CopyMessage { from, content })
    }
}

fn put_piece(out: &mut kauri_bson::DocWriter<'_>, piece: &Piece) {
    out.put("file", piece.file as i64);
    out.put("offset", piece.offset as i64);
    out.put("bytes", piece.bytes as i64);
}

fn number(doc: Doc<'_>, name: &str) -> Result<u64, Malformed> {
    match doc.value(name) {
        Value::Int64(number) => u64::try_from(number).map_err(|_| Malformed),
        _ => Err(Malformed),
    }
}

fn piece(copy: u64, doc: Doc<'_>) -> Result<Piece, Malformed> {
    let file = usize::try_from(number(doc, "file")?).map_err(|_| Malformed)?;
    let (offset, bytes) = (number(doc, "offset")?, number(doc, "bytes")?);
    if bytes > PIECE_BYTES { Err(Malformed) } else { Ok(Piece { copy, file, offset, bytes }) }
}

fn begun(copy: u64, doc: Doc<'_>) -> Result<Content, Malformed> {
    let Value::Document(stored) = doc.value("stored") else { return Err(Malformed) };
    let stored = stored::read(stored.as_doc()).ok_or(Malformed)?;
    let files = doc.value("files");
    let files = files.as_array().ok_or(Malformed)?.iter().map(|elem| match elem.value() {
        Value::Document(of) => file(of.as_doc()),
        _ => Err(Malformed),
    });
    let files = files.take(FILES_MAX + 1).collect::<Result<Vec<File>, Malformed>>()?;
    let small = files.iter().filter(|file| !file.is_log).map(|file| file.bytes);
    if files.len() > FILES_MAX || small.fold(0, u64::saturating_add) > SMALL_BYTES_MAX {
        return Err(Malformed);
    }
    Ok(Content::Begun { copy, stored: Box::new(stored), files })
}

fn file(doc: Doc<'_>) -> Result<File, Malformed> {
    let name = doc.value("name").as_str().ok_or(Malformed)?.to_owned();
    let bytes = number(doc, "bytes")?;
    let is_log = matches!(doc.value("log"), Value::Bool(true));
    let Value::Binary { bytes: numbers, .. } = doc.value("parts") else { return Err(Malformed) };
    let mut from = Reader(&numbers);
    let mut parts = Vec::new();
    let mut end = 0;
    while !from.0.is_empty() {
        let part = CopyPart { offset: from.long()?, bytes: from.long()? };
        let after = part.offset.checked_add(part.bytes).ok_or(Malformed)?;
        if part.offset < end || part.bytes == 0 || after > bytes {
            return Err(Malformed);
        }
        end = after;
        parts.push(part);
    }
    // A file of the data directory, and no other one.
    let is_name = kauri_medium::directory::check_name(&name).is_ok();
    if !is_name || bytes >= 1 << 60 {
        return Err(Malformed);
    }
    Ok(File { name, bytes, parts, is_log })
}
