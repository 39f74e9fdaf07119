//! The statements of a session's numbered write, and what a retry of one answers.
//!
//! A unit that executes statements names them. What each has come to is empty for a document that was inserted,
//! changed or deleted; else it is a document with the `_id` that an upsert has inserted (`u`), and the document that a
//! find-and-modify shows (`v`).

use kauri_bson::{Doc, DocBuf, Value};
use kauri_storage::NumberedWrite;

/// The statements that are about to run.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// The session (`lsid.id`).
    pub session: [u8; 16],
    /// Its number for the write (`txnNumber`).
    pub number: i64,
    /// The statements' numbers, by their places.
    pub statements: Vec<i32>,
}

impl Numbered {
    /// For a unit that inserts the documents at these places.
    pub fn inserts(&self, first: usize, count: usize) -> Box<NumberedWrite> {
        let statements = self.statements.iter().skip(first).take(count);
        self.unit(statements.map(|number| (*number, Vec::new())).collect())
    }

    /// For the unit of the first statement.
    pub fn one(&self, upserted: Option<&Value<'_>>, shown: Option<Doc<'_>>) -> Box<NumberedWrite> {
        let result = match (upserted, shown) {
            (None, None) => Vec::new(),
            _ => {
                let result = DocBuf::build(|out| {
                    if let Some(id) = upserted {
                        out.put_value("u", id);
                    }
                    if let Some(shown) = shown {
                        out.put("v", shown);
                    }
                });
                result.into_vec()
            }
        };
        self.unit(self.statements.first().map(|number| (*number, result)).into_iter().collect())
    }

    fn unit(&self, statements: Vec<(i32, Vec<u8>)>) -> Box<NumberedWrite> {
        Box::new(NumberedWrite { session: self.session, number: self.number, statements })
    }
}

/// What a statement has come to that was executed before: one document was inserted, changed or deleted.
#[derive(Default, Debug, PartialEq)]
pub struct Stored {
    /// The `_id` that an upsert has inserted.
    pub upserted: Option<Value<'static>>,
    /// The document that a find-and-modify shows.
    pub shown: Option<DocBuf>,
}

impl Stored {
    /// From the bytes of a unit's statement; `None` if they are not of one.
    pub fn read(bytes: &[u8]) -> Option<Stored> {
        if bytes.is_empty() {
            return Some(Stored::default());
        }
        let doc = Doc::from_bytes(bytes).ok()?;
        Some(Stored {
            upserted: doc.get("u").map(|id| id.value().into_owned()),
            shown: doc.get("v").and_then(|elem| elem.as_doc()).map(Doc::to_buf),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::doc;

    #[test]
    fn results_are_read_back() {
        let numbered = Numbered { session: [1; 16], number: 3, statements: vec![4, 5, 9] };
        let inserts = numbered.inserts(1, 2).statements;
        assert_eq!(inserts, [(5, Vec::new()), (9, Vec::new())]);
        let shown = doc! { "_id" => 1, "a" => doc! {} };
        for (id, shown) in [
            (None, None),
            (Some(Value::Null), None),
            (None, Some(shown.clone())),
            (Some(Value::Int32(1)), Some(shown)),
        ] {
            let unit = numbered.one(id.as_ref(), shown.as_ref().map(|shown| shown.as_doc()));
            assert_eq!((unit.number, unit.statements[0].0, unit.statements.len()), (3, 4, 1));
            let read = Stored::read(&unit.statements[0].1);
            assert_eq!(read, Some(Stored { upserted: id, shown }));
        }
        assert_eq!(Stored::read(&[1, 2, 3]), None);
    }
}
