//! Records that are files, in GridFS's layout: `TABLE.files` has a document for each, `TABLE.chunks` its bytes in
//! pieces of 255 KB.
//!
//! Invariants: a file is in `TABLE.files` only when all of its chunks exist. A read checks that all chunks exist,
//! in order. This module must not know the contents.

use super::link::{Link, brief, succeeded};
use super::subject::Outcome;
use crate::gridfs::{self, BATCH_CHUNKS, CHUNK_BYTES};
use kauri_base::Result;
use kauri_bson::{Doc, DocWriter, Value};

/// Where they are.
pub struct Bucket {
    files: String,
    chunks: String,
}

type Judged<T> = std::result::Result<T, String>;

impl Bucket {
    /// That of this table.
    pub fn of(table: &str) -> Bucket {
        Bucket { files: format!("{table}.files"), chunks: format!("{table}.chunks") }
    }

    /// Removes all files.
    pub fn clear(&self, link: &mut Link) -> Result<Outcome> {
        for name in [&self.files, &self.chunks] {
            let reply = link.ask(|out| out.put("drop", name.as_str()))?;
            match succeeded(reply) {
                // There may be none.
                Err(why) if !why.contains("ns not found") => return Ok(Outcome::Wrong(why)),
                _ => {}
            }
        }
        let reply = link.ask(|out| {
            out.put("createIndexes", self.chunks.as_str());
            let mut indexes = out.array("indexes");
            indexes.push(Value::from(gridfs::index()));
        })?;
        Ok(succeeded(reply).map_or_else(Outcome::Wrong, |()| Outcome::Done))
    }

    /// Writes a new file of this name.
    pub fn write(&self, link: &mut Link, key: &str, bytes: &[u8]) -> Result<Outcome> {
        let pieces: Vec<(i32, &[u8])> = (0..).zip(bytes.chunks(CHUNK_BYTES)).collect();
        for batch in pieces.chunks(BATCH_CHUNKS) {
            let reply = link.ask(|out| {
                out.put("insert", self.chunks.as_str());
                let mut documents = out.array("documents");
                for (n, piece) in batch {
                    let mut chunk = documents.document();
                    chunk.put("_id", format!("{key}:{n}").as_str());
                    chunk.put("files_id", key);
                    chunk.put("n", *n);
                    chunk.put("data", Value::Binary { subtype: 0, bytes: (*piece).into() });
                }
            })?;
            if let Err(why) = inserted(reply, batch.len()) {
                return Ok(Outcome::Wrong(why));
            }
        }
        let reply = link.ask(|out| {
            out.put("insert", self.files.as_str());
            let mut documents = out.array("documents");
            let mut file = documents.document();
            file.put("_id", key);
            file.put("length", bytes.len() as i64);
            file.put("chunkSize", CHUNK_BYTES as i32);
            file.put("uploadDate", Value::DateTime(0));
            file.put("filename", key);
        })?;
        Ok(inserted(reply, 1).map_or_else(Outcome::Wrong, |()| Outcome::Done))
    }

    /// Reads a file into `into`, in place of what is there.
    pub fn read(&self, link: &mut Link, key: &str, into: &mut Vec<u8>) -> Result<Outcome> {
        into.clear();
        let reply = link.ask(|out| {
            out.put("find", self.files.as_str());
            out.document("filter").put("_id", key);
            out.put("limit", 1);
            out.put("singleBatch", true);
        })?;
        let length = match length_of(reply) {
            Ok(length) => length,
            Err(why) => return Ok(Outcome::Wrong(why)),
        };
        let mut cursor = None;
        let mut next = 0;
        loop {
            let reply = link.ask(|out| self.more(cursor, key, out))?;
            match appended(reply, &mut next, into) {
                Err(why) => return Ok(Outcome::Wrong(why)),
                Ok(0) => break,
                Ok(id) => cursor = Some(id),
            }
        }
        match into.len() as i64 == length {
            true => Ok(Outcome::Done),
            false => {
                let (found, key) = (into.len(), key.escape_debug());
                Ok(Outcome::Wrong(format!("'{key}' has {found} bytes instead of {length}")))
            }
        }
    }

    /// Asks for chunks: for the first ones, or for those that the cursor has.
    fn more(&self, cursor: Option<i64>, key: &str, out: &mut DocWriter<'_>) {
        match cursor {
            None => {
                out.put("find", self.chunks.as_str());
                out.document("filter").put("files_id", key);
                out.document("sort").put("n", 1);
            }
            Some(cursor) => {
                out.put("getMore", cursor);
                out.put("collection", self.chunks.as_str());
            }
        }
    }
}

/// So many documents were.
fn inserted(reply: Doc<'_>, count: usize) -> Judged<()> {
    succeeded(reply)?;
    match reply.value("n").to_i64_saturating() {
        Some(n) if n == count as i64 => Ok(()),
        _ => Err(brief(reply)),
    }
}

/// A cursor's documents, and its id.
fn batch(reply: Doc<'_>) -> Judged<(Doc<'_>, i64)> {
    succeeded(reply)?;
    gridfs::batch(reply).ok_or_else(|| brief(reply))
}

fn length_of(reply: Doc<'_>) -> Judged<i64> {
    let (files, _) = batch(reply)?;
    let file = files.first().and_then(|file| file.as_doc());
    let length = file.and_then(|file| file.value("length").as_i64_exact());
    length.ok_or_else(|| "the file is not there".to_owned())
}

/// Appends the chunks of a reply, which must follow `next`; answers the cursor.
fn appended(reply: Doc<'_>, next: &mut i64, into: &mut Vec<u8>) -> Judged<i64> {
    let (chunks, cursor) = batch(reply)?;
    gridfs::append(chunks, next, into)?;
    Ok(cursor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocBuf, doc};

    fn reply(numbers: [i32; 2], id: i64) -> DocBuf {
        let chunk = |n: i32| {
            let data = Value::Binary { subtype: 0, bytes: vec![n as u8; 2].into() };
            Value::from(doc! { "n" => n, "data" => data })
        };
        let batch = Value::array(numbers.map(chunk));
        doc! { "cursor" => doc! { "nextBatch" => batch, "id" => id, "ns" => "ycsb.t.chunks" }, "ok" => 1.0 }
    }

    #[test]
    fn chunks_follow_each_other() {
        let (mut next, mut bytes) = (4, vec![9]);
        assert_eq!(appended(reply([4, 5], 77).as_doc(), &mut next, &mut bytes), Ok(77));
        assert_eq!((next, bytes.as_slice()), (6, &[9, 4, 4, 5, 5][..]));
        let why = appended(reply([6, 8], 0).as_doc(), &mut next, &mut bytes).unwrap_err();
        assert_eq!(why, "chunk 7 of a file is missing");
    }

    #[test]
    fn a_file_that_is_not_there_is_wrong() {
        let none = doc! { "cursor" => doc! { "firstBatch" => Value::array([]), "id" => 0i64 }, "ok" => 1.0 };
        assert_eq!(length_of(none.as_doc()), Err("the file is not there".to_owned()));
        let failed = doc! { "ok" => 0.0, "errmsg" => "no" };
        assert!(length_of(failed.as_doc()).unwrap_err().contains("no"));
    }
}
