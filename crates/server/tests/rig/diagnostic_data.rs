//! Reads files of diagnostic data as MongoDB's tools do, independently of the code that writes them.
#![allow(dead_code, reason = "each program uses its part")]

use flate2::read::ZlibDecoder;
use kauri_bson::{Doc, DocBuf, Value};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Metrics by their dotted paths.
pub type Sample = BTreeMap<String, i64>;

/// A part of a file.
#[derive(Clone, PartialEq, Debug)]
pub enum Part {
    /// A document about the server.
    About(DocBuf),
    Chunk(Vec<Sample>),
}

/// The parts of a file, and the number of bytes behind them that are no document.
pub fn parts(bytes: &[u8]) -> (Vec<Part>, usize) {
    let (mut all, mut rest) = (Vec::new(), bytes);
    while let Some(length) = rest.get(..4).map(|length| u32_at(length, 0) as usize) {
        let Some(bytes) = rest.get(..length) else { break };
        let doc = Doc::from_bytes(bytes).unwrap();
        rest = &rest[length..];
        assert!(matches!(doc.value("_id"), Value::DateTime(_)));
        all.push(match (doc.value("type"), doc.value("data")) {
            (Value::Int32(0), _) => Part::About(doc.get("doc").unwrap().as_doc().unwrap().to_buf()),
            (Value::Int32(1), Value::Binary { subtype: 0, bytes }) => Part::Chunk(samples(&bytes)),
            other => panic!("{other:?}"),
        });
    }
    (all, rest.len())
}

/// The chunks of a complete file.
pub fn chunks(file: &Path) -> Vec<Vec<Sample>> {
    let (parts, torn) = parts(&std::fs::read(file).unwrap());
    assert_eq!(torn, 0, "{}", file.display());
    let chunks = parts.into_iter().filter_map(|part| match part {
        Part::Chunk(samples) => Some(samples),
        Part::About(_) => None,
    });
    chunks.collect()
}

/// The metrics of a document, in order.
pub fn metrics(doc: Doc<'_>) -> Vec<(String, i64)> {
    let mut all = Vec::new();
    walk(doc, "", &mut all);
    all
}

fn walk(doc: Doc<'_>, path: &str, all: &mut Vec<(String, i64)>) {
    for elem in doc {
        let name = format!("{path}{}", elem.key());
        match elem.value() {
            Value::Document(_) | Value::Array(_) => {
                walk(elem.as_doc().unwrap(), &format!("{name}."), all);
            }
            Value::Int32(number) => all.push((name, number.into())),
            Value::Int64(number) => all.push((name, number)),
            Value::Double(number) => all.push((name, number as i64)),
            Value::Bool(flag) => all.push((name, flag.into())),
            Value::DateTime(ms) => all.push((name, ms)),
            Value::Timestamp(at) => {
                all.push((format!("{name}.t"), at.seconds.into()));
                all.push((format!("{name}.i"), at.increment.into()));
            }
            Value::Decimal128(_) => {
                all.push((name, elem.value().to_i64_saturating().unwrap()));
            }
            _ => {}
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn samples(data: &[u8]) -> Vec<Sample> {
    let mut plain = Vec::new();
    ZlibDecoder::new(&data[4..]).read_to_end(&mut plain).unwrap();
    assert_eq!(u32_at(data, 0) as usize, plain.len());
    let length = u32_at(&plain, 0) as usize;
    let first = metrics(Doc::from_bytes(&plain[..length]).unwrap());
    assert_eq!(u32_at(&plain, length) as usize, first.len());
    let more = u32_at(&plain, length + 4) as usize;
    let mut numbers = Numbers { bytes: plain[length + 8..].iter(), zeros: 0 };
    let mut all = vec![Sample::new(); more + 1];
    for (name, value) in first {
        let mut value = value;
        all[0].insert(name.clone(), value);
        for sample in &mut all[1..] {
            value = value.wrapping_add(numbers.next() as i64);
            sample.insert(name.clone(), value);
        }
    }
    assert_eq!((numbers.bytes.len(), numbers.zeros), (0, 0), "nothing is left");
    all
}

struct Numbers<'a> {
    bytes: std::slice::Iter<'a, u8>,
    zeros: u64,
}

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        if self.zeros > 0 {
            self.zeros -= 1;
            return 0;
        }
        let number = self.varint();
        if number == 0 {
            self.zeros = self.varint();
        }
        number
    }

    fn varint(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.bytes.next().unwrap();
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return number;
            }
            shift += 7;
        }
    }
}
