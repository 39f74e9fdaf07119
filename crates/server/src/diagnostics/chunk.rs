//! Samples, packed in the format of MongoDB's diagnostic data, which its tools read.
//!
//! A chunk is a document `{_id: date, type: 1, data: binary}`. The binary has the length of the unpacked data as
//! u32, then the data, compressed by zlib:
//!
//! | part | form |
//! |---|---|
//! | the first sample | BSON |
//! | metrics of a sample | u32 |
//! | samples after the first | u32 |
//! | differences | varints, metric by metric; a zero is followed by the number of further zeros |
//!
//! All integers are little-endian. A metric is a number, a boolean, a date, or half of a timestamp, in the order of
//! the document. A number that is not an integer is truncated. A difference is to the previous sample, modulo 2^64.
//!
//! Invariant: all samples of a chunk have the same fields of the same types.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use kauri_base::limits;
use kauri_bson::{Doc, DocBuf, Value};
use std::io::{Result, Write};

/// `type` of the document at the head of a file.
const ABOUT: i32 = 0;
/// `type` of a chunk.
const CHUNK: i32 = 1;

/// A chunk in the making.
pub struct Chunk {
    first: DocBuf,
    /// Metrics of the newest sample.
    newest: Vec<u64>,
    /// The metrics of the sample that is being added.
    next: Vec<u64>,
    /// Differences, sample by sample.
    differences: Vec<u64>,
    samples: usize,
}

impl Chunk {
    /// A chunk that begins with this sample.
    pub fn new(first: DocBuf) -> Chunk {
        let mut newest = Vec::new();
        extract(first.as_doc(), first.as_doc(), &mut newest);
        Chunk { first, next: Vec::new(), newest, differences: Vec::new(), samples: 1 }
    }

    /// Adds a sample. Answers false, and adds nothing, if its fields or their types differ.
    pub fn add(&mut self, sample: Doc<'_>) -> bool {
        self.next.clear();
        if !extract(sample, self.first.as_doc(), &mut self.next) {
            return false;
        }
        let differences =
            self.next.iter().zip(&self.newest).map(|(now, was)| now.wrapping_sub(*was));
        self.differences.extend(differences);
        std::mem::swap(&mut self.newest, &mut self.next);
        self.samples += 1;
        true
    }

    /// Samples in it.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Whether it has `samples_max` samples, or has reached its memory limit.
    pub fn is_full(&self, samples_max: usize) -> bool {
        let bytes = (self.differences.len() + self.newest.len()) * size_of::<u64>();
        self.samples >= samples_max || bytes > limits::DIAGNOSTIC_CHUNK_BYTES_MAX
    }

    /// The chunk as a document.
    pub fn to_doc(&self) -> Result<DocBuf> {
        let count = self.newest.len();
        let mut plain = self.first.as_bytes().to_vec();
        plain.extend_from_slice(&(count as u32).to_le_bytes());
        plain.extend_from_slice(&((self.samples - 1) as u32).to_le_bytes());
        let mut zeros = 0;
        for metric in 0..count {
            for difference in self.differences.iter().skip(metric).step_by(count) {
                if *difference == 0 {
                    zeros += 1;
                    continue;
                }
                write_zeros(&mut plain, &mut zeros);
                write_varint(&mut plain, *difference);
            }
        }
        write_zeros(&mut plain, &mut zeros);
        let length = (plain.len() as u32).to_le_bytes();
        let mut packed = ZlibEncoder::new(length.to_vec(), Compression::default());
        packed.write_all(&plain)?;
        let bytes = packed.finish()?;
        Ok(DocBuf::build(|out| {
            out.put("_id", self.first.as_doc().value("start"));
            out.put("type", CHUNK);
            out.put_value("data", &Value::Binary { subtype: 0, bytes: bytes.into() });
        }))
    }
}

/// The document at the head of a file that begins at `now_ms`.
pub fn head(about: &DocBuf, now_ms: i64) -> DocBuf {
    DocBuf::build(|out| {
        out.put("_id", Value::DateTime(now_ms));
        out.put("type", ABOUT);
        out.put("doc", about);
    })
}

/// Whether the document is a chunk, judging by its fields.
pub fn is_chunk(doc: Doc<'_>) -> bool {
    doc.value("type") == Value::Int32(CHUNK)
        && matches!(doc.value("data"), Value::Binary { subtype: 0, .. })
}

fn write_zeros(out: &mut Vec<u8>, zeros: &mut u64) {
    if *zeros > 0 {
        write_varint(out, 0);
        write_varint(out, *zeros - 1);
        *zeros = 0;
    }
}

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the metrics of a sample. False if its fields or their types differ from those of `first`.
fn extract(sample: Doc<'_>, first: Doc<'_>, out: &mut Vec<u64>) -> bool {
    let mut others = first.iter();
    for elem in sample {
        let other = others.next();
        let Some(other) =
            other.filter(|other| other.ty() == elem.ty() && other.key_bytes() == elem.key_bytes())
        else {
            return false;
        };
        if let (Some(inner), Some(other)) = (elem.as_doc(), other.as_doc()) {
            if !extract(inner, other, out) {
                return false;
            }
            continue;
        }
        match elem.value() {
            Value::Bool(flag) => out.push(u64::from(flag)),
            Value::DateTime(ms) => out.push(ms as u64),
            Value::Timestamp(at) => out.extend([u64::from(at.seconds), u64::from(at.increment)]),
            value => out.extend(value.to_i64_saturating().map(|number| number as u64)),
        }
    }
    others.next().is_none()
}
