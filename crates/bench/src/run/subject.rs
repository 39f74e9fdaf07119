//! Performs a workload's operations over one connection, like YCSB's MongoDB binding: a record is a document with
//! its key as `_id` and its fields' values as binary data; or a file with its key as name.
//!
//! Invariants: a request costs the client little more than its transfer. An operation succeeds only if the reply
//! reports success and has the requested data. This module must not know when operations are due.

use super::failed;
use super::files::Bucket;
use super::link::{Link, brief, succeeded};
use crate::workload::{CoreWorkload, Fields, Operation, Seeded, Store, Values};
use kauri_base::Result;
use kauri_bson::{Doc, DocWriter, Value};
use kauri_client::Uri;
use std::sync::Arc;

/// Bytes of documents that are loaded by one command, and most documents.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_RECORDS: usize = 1_000;

/// How an operation has ended that left the connection in order.
#[derive(Debug)]
pub enum Outcome {
    /// As it should.
    Done,
    /// The reply is another one than it should be: why.
    Wrong(String),
}

/// See the module's head.
pub struct Subject {
    link: Link,
    workload: Arc<CoreWorkload>,
    values: Values<Seeded>,
    /// Where records are files.
    bucket: Option<Bucket>,
    /// Kept, to be used again.
    key: String,
    written: Vec<u8>,
    scratch: Vec<u8>,
}

/// What a reply has to hold.
#[derive(Clone, Copy)]
enum Wanted {
    /// So many documents found, or updated, or inserted.
    Written(i64),
    /// The document of the key, whose fields are verified.
    Record,
    /// From one to so many documents.
    Records(i64),
    Any,
}

impl Subject {
    /// Connects.
    pub fn open(uri: &Uri, workload: Arc<CoreWorkload>, values: Values<Seeded>) -> Result<Subject> {
        let settings = workload.settings();
        let bucket = (settings.store == Store::Files).then(|| Bucket::of(&settings.table));
        Ok(Subject {
            link: Link::open(uri)?,
            workload,
            values,
            bucket,
            key: String::new(),
            written: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// What it goes through.
    pub fn transport(&self) -> &'static str {
        self.link.transport()
    }

    /// Removes all records.
    pub fn clear(&mut self) -> Result<()> {
        if let Some(bucket) = &self.bucket {
            return match bucket.clear(&mut self.link)? {
                Outcome::Wrong(why) => Err(failed("drop", why)),
                Outcome::Done => Ok(()),
            };
        }
        let dropped = self.ask(Wanted::Any, |out, workload, _| {
            out.put("drop", workload.settings().table.as_str());
        })?;
        match dropped {
            // There may be none.
            Outcome::Wrong(why) if !why.contains("ns not found") => Err(failed("drop", why)),
            _ => Ok(()),
        }
    }

    /// Adds records, as many as go into one command; `None` if there were none left.
    pub fn load(&mut self, records: &mut impl Iterator<Item = i64>) -> Result<Option<Outcome>> {
        if self.bucket.is_some() {
            return records.next().map(|record| self.write_file(record)).transpose();
        }
        let mut batch = std::mem::take(&mut self.written);
        batch.clear();
        let mut count = 0;
        while count < BATCH_RECORDS && batch.len() < BATCH_BYTES {
            let Some(record) = records.next() else { break };
            self.append_document(record, &mut batch);
            count += 1;
        }
        let inserted = (count > 0).then(|| self.insert(&batch, count as i64));
        self.written = batch;
        inserted.transpose()
    }

    /// Appends a record's document.
    fn append_document(&mut self, record: i64, out: &mut Vec<u8>) {
        self.choose(record);
        let mut document = DocWriter::new(out);
        document.put("_id", self.key.as_str());
        self.put_values(Fields::All, &mut document);
    }

    /// Puts new values of these fields of the key.
    fn put_values(&mut self, fields: Fields, out: &mut DocWriter<'_>) {
        let Subject { workload, values, key, scratch, .. } = self;
        for (at, name) in chosen(workload, fields) {
            scratch.clear();
            values.append(key, at, scratch);
            out.put(name, Value::Binary { subtype: 0, bytes: scratch.as_slice().into() });
        }
    }

    /// Inserts these documents, one after the other in `batch`.
    fn insert(&mut self, batch: &[u8], count: i64) -> Result<Outcome> {
        self.ask(Wanted::Written(count), |out, workload, _| {
            out.put("insert", workload.settings().table.as_str());
            let mut documents = out.array("documents");
            let mut rest = batch;
            while let Ok((document, after)) = Doc::split_prefix(rest) {
                documents.push_doc(document);
                rest = after;
            }
        })
    }

    /// Takes the record's key.
    fn choose(&mut self, record: i64) {
        self.key.clear();
        self.workload.append_key(record, &mut self.key);
    }

    /// Performs an operation.
    pub fn perform(&mut self, operation: Operation) -> Result<Outcome> {
        match operation {
            Operation::Insert { record } => {
                let inserted = self.load(&mut std::iter::once(record));
                // Whatever has become of it: later operations do not wait for it.
                self.workload.acknowledge(record)?;
                Ok(inserted?.unwrap_or(Outcome::Done))
            }
            Operation::Read { record, fields } => self.read(record, fields),
            Operation::Update { record, fields } => self.update(record, fields),
            Operation::Scan { record, length, fields } => self.scan(record, length, fields),
            Operation::ReadModifyWrite { record, read, written } => {
                match self.read(record, read)? {
                    Outcome::Done => self.update(record, written),
                    wrong => Ok(wrong),
                }
            }
        }
    }

    /// A new file. Unless values are verified it has the same bytes as the one before, so that what takes time is not
    /// to make them.
    fn write_file(&mut self, record: i64) -> Result<Outcome> {
        self.choose(record);
        let Subject { link, workload, values, bucket, key, scratch, .. } = self;
        if workload.settings().data_integrity || scratch.is_empty() {
            scratch.clear();
            values.append(key, 0, scratch);
        }
        bucket.as_ref().map_or(Ok(Outcome::Done), |bucket| bucket.write(link, key, scratch))
    }

    fn read_file(&mut self, bucket: &Bucket) -> Result<Outcome> {
        let Subject { link, workload, key, written, scratch, .. } = self;
        let outcome = bucket.read(link, key, written)?;
        // What is made up to be compared with must not be taken for a value that was made to be written.
        let verified = workload.settings().data_integrity;
        match outcome {
            Outcome::Done if verified && !workload.verify(key, 0, written, scratch) => {
                Ok(Outcome::Wrong(format!("'{key}' has other bytes than were written")))
            }
            outcome => Ok(outcome),
        }
    }

    fn read(&mut self, record: i64, fields: Fields) -> Result<Outcome> {
        self.choose(record);
        if let Some(bucket) = self.bucket.take() {
            let outcome = self.read_file(&bucket);
            self.bucket = Some(bucket);
            return outcome;
        }
        self.ask(Wanted::Record, |out, workload, key| {
            out.put("find", workload.settings().table.as_str());
            out.document("filter").put("_id", key);
            project(out, workload, fields);
            out.put("limit", 1);
            out.put("singleBatch", true);
        })
    }

    fn scan(&mut self, record: i64, length: i64, fields: Fields) -> Result<Outcome> {
        self.choose(record);
        self.ask(Wanted::Records(length), |out, workload, key| {
            out.put("find", workload.settings().table.as_str());
            out.document("filter").document("_id").put("$gte", key);
            project(out, workload, fields);
            out.document("sort").put("_id", 1);
            out.put("limit", length);
            out.put("batchSize", length);
            out.put("singleBatch", true);
        })
    }

    fn update(&mut self, record: i64, fields: Fields) -> Result<Outcome> {
        self.choose(record);
        let mut written = std::mem::take(&mut self.written);
        written.clear();
        self.put_values(fields, &mut DocWriter::new(&mut written));
        let changes = Doc::from_bytes(&written)?;
        let outcome = self.ask(Wanted::Written(1), |out, workload, key| {
            out.put("update", workload.settings().table.as_str());
            let mut updates = out.array("updates");
            let mut entry = updates.document();
            entry.document("q").put("_id", key);
            entry.document("u").document("$set").put_all(changes);
        });
        self.written = written;
        outcome
    }

    /// Sends a command, which `fill` makes of the workload and the key, and looks at its reply.
    fn ask(
        &mut self,
        wanted: Wanted,
        fill: impl FnOnce(&mut DocWriter<'_>, &CoreWorkload, &str),
    ) -> Result<Outcome> {
        let Subject { link, workload, key, scratch, .. } = self;
        let reply = link.ask(|out| fill(out, workload, key))?;
        let judged = judge(reply, wanted, workload, key, scratch);
        Ok(judged.map_or_else(Outcome::Wrong, |()| Outcome::Done))
    }
}

/// The fields that are meant, by their places and names.
fn chosen(workload: &CoreWorkload, fields: Fields) -> impl Iterator<Item = (usize, &str)> {
    let all = workload.settings().fields.iter().map(String::as_str).enumerate();
    all.filter(move |(at, _)| match fields {
        Fields::Whole | Fields::All => true,
        Fields::One(one) => *at == one,
    })
}

fn project(out: &mut DocWriter<'_>, workload: &CoreWorkload, fields: Fields) {
    if fields == Fields::Whole {
        return;
    }
    let mut projection = out.document("projection");
    chosen(workload, fields).for_each(|(_, name)| projection.put(name, 1));
}

/// Whether a reply is what was wanted; if not, why.
fn judge(
    reply: Doc<'_>,
    wanted: Wanted,
    workload: &CoreWorkload,
    key: &str,
    scratch: &mut Vec<u8>,
) -> std::result::Result<(), String> {
    succeeded(reply)?;
    match wanted {
        Wanted::Any => Ok(()),
        Wanted::Written(count) => match reply.value("n").to_i64_saturating() {
            Some(n) if n == count => Ok(()),
            _ => Err(brief(reply)),
        },
        Wanted::Record | Wanted::Records(_) => {
            let most = if let Wanted::Records(length) = wanted { length } else { 1 };
            let Value::Document(cursor) = reply.value("cursor") else { return Err(brief(reply)) };
            let batch = cursor.as_doc().value("firstBatch");
            let Value::Array(batch) = batch else { return Err(brief(reply)) };
            let mut count = 0;
            for record in batch.as_doc().iter() {
                let Value::Document(record) = record.value() else { return Err(brief(reply)) };
                count += 1;
                if let Wanted::Record = wanted {
                    verify(record.as_doc(), workload, key, scratch)?;
                }
            }
            match (1..=most).contains(&count) {
                true => Ok(()),
                false => Err(format!("{count} records instead of 1 to {most}")),
            }
        }
    }
}

/// Whether a record has the values that it should have, where they can be verified.
fn verify(
    record: Doc<'_>,
    workload: &CoreWorkload,
    key: &str,
    scratch: &mut Vec<u8>,
) -> std::result::Result<(), String> {
    if !workload.settings().data_integrity {
        return Ok(());
    }
    for (at, name) in workload.settings().fields.iter().enumerate() {
        let Value::Binary { bytes, .. } = record.value(name) else { continue };
        if !workload.verify(key, at, &bytes, scratch) {
            return Err(format!("'{key}' has another value in '{name}' than was written"));
        }
    }
    Ok(())
}
