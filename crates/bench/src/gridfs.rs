//! GridFS's layout (<https://github.com/mongodb/specifications/tree/master/source/gridfs>): a collection `files`
//! with a document for each file, and `chunks` with its bytes in pieces, found by `{files_id, n}` in the order of
//! `n`.
//!
//! Must not know how commands are transferred.

use kauri_bson::{Doc, DocBuf, Value, doc};

/// Bytes of a piece: GridFS's default.
pub const CHUNK_BYTES: usize = 255 << 10;
/// Pieces that are inserted by one command: some 8 MB.
pub const BATCH_CHUNKS: usize = 32;

/// The index of the pieces.
pub fn index() -> DocBuf {
    doc! { "key" => doc! { "files_id" => 1, "n" => 1 }, "name" => "files_id_1_n_1", "unique" => true }
}

/// The documents of a cursor's reply, and its id; 0 if there are no more.
pub fn batch(reply: Doc<'_>) -> Option<(Doc<'_>, i64)> {
    let cursor = reply.get("cursor")?.as_doc()?;
    let batch = cursor.get("firstBatch").or_else(|| cursor.get("nextBatch"))?;
    Some((batch.as_doc()?, cursor.value("id").as_i64_exact()?))
}

/// Appends the bytes of a batch's pieces, the first of which must be the one numbered `next`.
pub fn append(chunks: Doc<'_>, next: &mut i64, into: &mut Vec<u8>) -> Result<(), String> {
    for chunk in chunks {
        let chunk = chunk.as_doc().ok_or("a chunk that is no document")?;
        match (chunk.value("n").as_i64_exact(), chunk.value("data")) {
            (Some(n), Value::Binary { bytes, .. }) if n == *next => into.extend_from_slice(&bytes),
            _ => return Err(format!("chunk {next} of a file is missing")),
        }
        *next += 1;
    }
    Ok(())
}
