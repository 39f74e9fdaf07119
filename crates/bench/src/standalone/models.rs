//! Models: large files in GridFS's layout, read one chunk after the other.
//!
//! The time of a read ends when the last byte is in the client's memory. Length and checksum are compared
//! afterwards.

use super::requests::{noise, ok_body, read_from};
use super::rows::ModelRound;
use crate::cpu::busy_time;
use crate::gridfs::{self, BATCH_CHUNKS, CHUNK_BYTES};
use kauri_base::clock::SeededRandom;
use kauri_bson::{Doc, DocBuf, Value, array, doc};
use kauri_client::{ClientError, Connection, Uri};
use std::time::Instant;

const DATABASE: &str = "standalone_models";

/// A model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    /// Its file's name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

impl Model {
    /// The model of so many megabytes (of 2^20 bytes): the paper's have names.
    pub fn of_megabytes(megabytes: u64) -> Model {
        let name = super::paper::MODELS.iter().find(|model| model.megabytes == megabytes);
        let name = name.map_or(format!("model-{megabytes}"), |model| model.name.to_owned());
        Model { name, bytes: megabytes << 20 }
    }
}

fn command(connection: &mut Connection, command: &DocBuf) -> Result<DocBuf, ClientError> {
    connection.send(DATABASE, command)?;
    Ok(ok_body(connection.receive_message()?)?.to_buf())
}

/// Stores models in place of those that were there.
pub fn store(uri: &Uri, models: &[Model], seed: u64) -> Result<(), ClientError> {
    let mut connection = Connection::open(uri)?;
    command(&mut connection, &doc! { "dropDatabase" => 1 })?;
    let indexes = array![gridfs::index()];
    command(&mut connection, &doc! { "createIndexes" => "fs.chunks", "indexes" => indexes })?;
    for (id, model) in models.iter().enumerate() {
        store_one(&mut connection, id as i64, model, seed)?;
    }
    Ok(())
}

fn store_one(
    connection: &mut Connection,
    id: i64,
    model: &Model,
    seed: u64,
) -> Result<(), ClientError> {
    let random = SeededRandom::new(seed ^ id as u64);
    let (mut left, mut n, mut checksum) = (model.bytes as usize, 0i32, 0u32);
    while left > 0 {
        let mut chunks = Vec::with_capacity(BATCH_CHUNKS);
        while left > 0 && chunks.len() < BATCH_CHUNKS {
            let data = noise(left.min(CHUNK_BYTES), &random);
            checksum = crc32c::crc32c_append(checksum, &data);
            left -= data.len();
            let data = Value::Binary { subtype: 0, bytes: data.into() };
            let chunk_id = id << 32 | i64::from(n);
            chunks.push(Value::from(
                doc! { "_id" => chunk_id, "files_id" => id, "n" => n, "data" => data },
            ));
            n += 1;
        }
        let insert = doc! { "insert" => "fs.chunks", "documents" => Value::array(chunks) };
        command(connection, &insert)?;
    }
    let metadata = doc! { "crc32c" => i64::from(checksum) };
    let file = doc! {
        "_id" => id, "length" => model.bytes as i64, "chunkSize" => CHUNK_BYTES as i32,
        "uploadDate" => Value::DateTime(0), "filename" => model.name.as_str(), "metadata" => metadata,
    };
    command(connection, &doc! { "insert" => "fs.files", "documents" => array![file] }).map(drop)
}

/// Drops all models.
pub fn drop_all(uri: &Uri) -> Result<(), ClientError> {
    command(&mut Connection::open(uri)?, &doc! { "dropDatabase" => 1 }).map(drop)
}

/// What `fs.files` tells of a file.
struct File {
    id: i64,
    length: u64,
    checksum: u32,
}

fn protocol(what: impl Into<String>) -> ClientError {
    ClientError::Protocol(what.into())
}

/// The documents of a cursor's batch, and the cursor.
fn batch(body: Doc<'_>) -> Result<(Doc<'_>, i64), ClientError> {
    gridfs::batch(body).ok_or_else(|| protocol("a cursor without a batch"))
}

fn find_file(connection: &mut Connection, name: &str) -> Result<File, ClientError> {
    let filter = doc! { "filename" => name };
    let find = doc! { "find" => "fs.files", "filter" => filter, "limit" => 1 };
    let find = read_from(connection, find);
    let body = command(connection, &find)?;
    let (files, _) = batch(body.as_doc())?;
    let file = files.first().and_then(|file| file.as_doc());
    let file = file.ok_or_else(|| protocol(format!("there is no model {name}")))?;
    let metadata = file.get("metadata").and_then(|metadata| metadata.as_doc());
    let number = |value: Value<'_>| value.as_i64_exact().ok_or_else(|| protocol("a file's number"));
    Ok(File {
        id: number(file.value("_id"))?,
        length: number(file.value("length"))? as u64,
        checksum: number(metadata.map_or(Value::Missing, |m| m.value("crc32c")))? as u32,
    })
}

/// The bytes of a file into `into`.
fn receive(
    connection: &mut Connection,
    file: &File,
    into: &mut Vec<u8>,
) -> Result<(), ClientError> {
    let (filter, sort) = (doc! { "files_id" => file.id }, doc! { "n" => 1 });
    let find = doc! { "find" => "fs.chunks", "filter" => filter, "sort" => sort };
    let find = read_from(connection, find);
    connection.send(DATABASE, &find)?;
    let mut next = 0;
    loop {
        let (chunks, cursor) = batch(ok_body(connection.receive_message()?)?)?;
        gridfs::append(chunks, &mut next, into).map_err(protocol)?;
        if cursor == 0 {
            return Ok(());
        }
        connection.send(DATABASE, &doc! { "getMore" => cursor, "collection" => "fs.chunks" })?;
    }
}

/// Whether these are the file's bytes.
fn verify(file: &File, name: &str, bytes: &[u8]) -> Result<(), ClientError> {
    if bytes.len() as u64 != file.length {
        return Err(protocol(format!(
            "model {name}: {} bytes instead of {}",
            bytes.len(),
            file.length
        )));
    }
    match crc32c::crc32c(bytes) {
        checksum if checksum == file.checksum => Ok(()),
        checksum => Err(protocol(format!(
            "model {name}: its checksum is {checksum:08x} instead of {:08x}",
            file.checksum
        ))),
    }
}

/// Reads a model once, from the server whose process is `pid`. `memory` is kept between readings, so that none
/// pays for new memory.
pub fn read(
    uri: &Uri,
    pid: u32,
    name: &str,
    memory: &mut Vec<u8>,
) -> Result<ModelRound, ClientError> {
    let mut connection = Connection::open(uri)?;
    memory.clear();
    let cpu = || (busy_time(pid), busy_time(std::process::id()));
    let (server_before, client_before) = cpu();
    let began = Instant::now();
    let file = find_file(&mut connection, name)?;
    receive(&mut connection, &file, memory)?;
    let wall = began.elapsed();
    let (server_after, client_after) = cpu();
    verify(&file, name, memory)?;
    Ok(ModelRound {
        wall,
        server_cpu: server_after.zip(server_before).map(|(after, before)| after - before),
        client_cpu: client_after.zip(client_before).map(|(after, before)| after - before),
        secondary: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(numbers: [i32; 3]) -> DocBuf {
        let chunk = |n: i32| {
            let data = Value::Binary { subtype: 0, bytes: vec![n as u8; 3].into() };
            Value::from(doc! { "n" => n, "data" => data })
        };
        let batch = Value::array(numbers.map(chunk));
        doc! { "cursor" => doc! { "id" => 7i64, "nextBatch" => batch } }
    }

    fn received(numbers: [i32; 3]) -> Result<Vec<u8>, ClientError> {
        let body = chunks(numbers);
        let (found, cursor) = batch(body.as_doc())?;
        assert_eq!(cursor, 7);
        let (mut next, mut into) = (4, Vec::new());
        gridfs::append(found, &mut next, &mut into).map_err(protocol)?;
        assert_eq!(next, 7);
        Ok(into)
    }

    #[test]
    fn a_wrong_byte_and_a_missing_chunk_are_found() {
        let bytes = received([4, 5, 6]).unwrap();
        assert_eq!(bytes, [4, 4, 4, 5, 5, 5, 6, 6, 6]);
        assert!(received([4, 6, 5]).unwrap_err().to_string().contains("chunk 5"));
        let file = File { id: 1, length: 9, checksum: crc32c::crc32c(&bytes) };
        verify(&file, "m", &bytes).unwrap();
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            let error = verify(&file, "m", &wrong).unwrap_err().to_string();
            assert!(error.contains("model m: its checksum"), "{error}");
        }
        let error = verify(&file, "m", &bytes[..8]).unwrap_err().to_string();
        assert!(error.contains("8 bytes instead of 9"), "{error}");
    }

    #[test]
    fn the_papers_models_have_names() {
        assert_eq!(Model::of_megabytes(528), Model { name: "vgg16".to_owned(), bytes: 528 << 20 });
        assert_eq!(Model::of_megabytes(2).name, "model-2");
    }
}
