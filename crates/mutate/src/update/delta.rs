//! Deltas: an oplog entry's description of an update (`$v: 2`).
//!
//! A delta of a document has sections: `d` names the removed fields, `u` the changed ones, `i` the appended ones,
//! and `s` followed by a field's name is the delta of that field. A delta of an array begins with `a: true`; `l` is
//! the new length, `u` and `s` followed by an index are an element or its delta.
//!
//! Invariant: a delta may be applied to a later state of the document than its original. Parts that do not fit are
//! skipped, because a later entry sets them.

use crate::raw;
use crate::text;
use crate::update::{Applied, check};
use kauri_base::limits::DOCUMENT_DEPTH_STORED_MAX;
use kauri_base::{Result, bail, work};
use kauri_bson::{Doc, Elem, Iter, Type};
use std::collections::HashMap;

/// The change of a field.
enum Change<'d> {
    Removed,
    /// It moves behind the others.
    Moved,
    Replaced(Elem<'d>),
    Changed(Doc<'d>),
}

/// A document's delta, by field.
struct Fields<'d> {
    changes: HashMap<&'d [u8], Change<'d>>,
    /// The final elements, in the order in which new ones are appended.
    present: Vec<Elem<'d>>,
}

/// Appends the changed document; nothing if it stays as it is.
pub(crate) fn apply(diff: Doc<'_>, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<Applied> {
    let base = out.len();
    let writer = Writer { base, original: doc };
    writer.fields(diff, doc, out)?;
    let new = out.get(base..).unwrap_or_default();
    if new == doc.as_bytes() {
        out.truncate(base);
        return Ok(Applied::NOTHING);
    }
    if raw::depth_of(Type::Document, new) > DOCUMENT_DEPTH_STORED_MAX {
        bail!(Overflow, "Document exceeds maximum nesting depth of {DOCUMENT_DEPTH_STORED_MAX}");
    }
    check::same_id(doc, Doc::from_bytes(new)?)?;
    Ok(Applied { modified: true })
}

/// Writes one changed document.
struct Writer<'a> {
    /// Where in the output it begins.
    base: usize,
    original: Doc<'a>,
}

impl Writer<'_> {
    fn check_size(&self, out: &[u8]) -> Result<()> {
        check::internal_size(out.len() - self.base, self.original)
    }

    fn fields(&self, diff: Doc<'_>, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        work::check_stack()?;
        work::tick_bytes(diff.as_bytes().len() + doc.as_bytes().len())?;
        let mut fields = Fields::read(diff)?;
        let start = raw::begin(out);
        for elem in doc {
            match fields.changes.get_mut(elem.key_bytes()) {
                None => raw::put_elem(out, elem),
                Some(Change::Removed | Change::Moved) => {}
                Some(change @ Change::Replaced(_)) => {
                    if let Change::Replaced(new) = std::mem::replace(change, Change::Removed) {
                        raw::put_elem(out, new);
                    }
                }
                Some(Change::Changed(part)) => match (elem.as_doc(), kind(*part)? == elem.ty()) {
                    (Some(old), true) => self.part(*part, elem.key_bytes(), old, out)?,
                    _ => raw::put_elem(out, elem),
                },
            }
        }
        for elem in fields.present {
            // What has replaced another field is in its place.
            if !matches!(fields.changes.get(elem.key_bytes()), Some(Change::Removed)) {
                raw::put_elem(out, elem);
            }
        }
        raw::end(out, start);
        self.check_size(out)
    }

    /// Appends an element with its own delta applied.
    fn part(&self, diff: Doc<'_>, key: &[u8], old: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        let ty = kind(diff)?;
        raw::put_header(out, ty, key);
        match ty {
            Type::Array => self.elements(diff, old, out),
            _ => self.fields(diff, old, out),
        }
    }

    fn elements(&self, diff: Doc<'_>, old: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        work::check_stack()?;
        work::tick_bytes(diff.as_bytes().len() + old.as_bytes().len())?;
        let (length, mut changes) = read_array(diff)?;
        let start = raw::begin(out);
        let mut old = old.iter();
        let mut change = next_element(&mut changes)?;
        let mut index = 0;
        loop {
            let before = if length.is_none_or(|length| index < length) { old.next() } else { None };
            let is_padded = length.is_some_and(|length| index < length);
            if before.is_none() && !is_padded && change.is_none() {
                break;
            }
            work::tick(1)?;
            let key = index.to_string();
            match change.take_if(|(at, _)| *at == index) {
                Some((_, Change::Replaced(new))) => {
                    raw::put_raw(out, new.ty(), key.as_bytes(), new.value_bytes());
                    change = next_element(&mut changes)?;
                }
                Some((_, Change::Changed(part))) => {
                    let old = before.filter(|elem| kind(part).is_ok_and(|ty| ty == elem.ty()));
                    match old.and_then(|elem| elem.as_doc()) {
                        Some(old) => self.part(part, key.as_bytes(), old, out)?,
                        None => raw::put_raw(out, Type::Null, key.as_bytes(), &[]),
                    }
                    change = next_element(&mut changes)?;
                }
                _ => match before {
                    Some(elem) => {
                        raw::put_raw(out, elem.ty(), key.as_bytes(), elem.value_bytes());
                    }
                    None => raw::put_raw(out, Type::Null, key.as_bytes(), &[]),
                },
            }
            if let Some((at, _)) = &change
                && *at <= index
            {
                bail!(BadValue, "index {at} of the diff of an array is out of order");
            }
            self.check_size(out)?;
            index += 1;
        }
        raw::end(out, start);
        Ok(())
    }
}

impl<'d> Fields<'d> {
    fn read(diff: Doc<'d>) -> Result<Fields<'d>> {
        if diff.is_empty() {
            bail!(4770500, "Expected diff to be non-empty");
        }
        let mut fields = Fields { changes: HashMap::new(), present: Vec::new() };
        let mut last = 0;
        for section in diff {
            let Some(&name) = section.key_bytes().first() else {
                bail!(4770505, "Expected sections field names in diff to be non-empty ");
            };
            let order = match name {
                b'd' => 1,
                b'u' => 2,
                b'i' => 3,
                b's' => 4,
                _ => 0,
            };
            if order == 0 || order < last || (order == last && name != b's') {
                bail!(4770503, "Unexpected section: {} in document diff", char::from(name));
            }
            last = order;
            let Some(doc) = section.as_doc().filter(|_| section.ty() == Type::Document) else {
                bail!(4770507, "Expected {} section to be type object", char::from(name));
            };
            fields.add(name, section, doc)?;
        }
        Ok(fields)
    }

    fn add(&mut self, name: u8, section: Elem<'d>, doc: Doc<'d>) -> Result<()> {
        if name == b's' {
            let field = section.key_bytes().get(1..).unwrap_or_default();
            return self.note(field, Change::Changed(doc));
        }
        for elem in doc {
            let change = match name {
                b'd' => Change::Removed,
                b'u' => Change::Replaced(elem),
                _ => Change::Moved,
            };
            if name == b'i' && elem.key_bytes() == b"_id" {
                bail!(ImmutableField, "a diff cannot insert the field '_id'");
            }
            if name != b'd' {
                self.present.push(elem);
            }
            self.note(elem.key_bytes(), change)?;
        }
        Ok(())
    }

    /// Notes what becomes of a field, which only one section may say.
    fn note(&mut self, field: &'d [u8], change: Change<'d>) -> Result<()> {
        if self.changes.insert(field, change).is_some() {
            let field = String::from_utf8_lossy(field);
            bail!(4728000, "duplicate field name in diff: {field}");
        }
        Ok(())
    }
}

/// The kind of a delta: document or array.
fn kind(diff: Doc<'_>) -> Result<Type> {
    match diff.first() {
        None => bail!(4770500, "Expected diff to be non-empty"),
        Some(first) if first.key() == "a" => Ok(Type::Array),
        Some(_) => Ok(Type::Document),
    }
}

/// The new length, if the delta of an array gives one, and what follows.
fn read_array(diff: Doc<'_>) -> Result<(Option<u64>, Iter<'_>)> {
    let mut entries = diff.iter();
    if let Some(header) = entries.next()
        && header.value() != kauri_bson::Value::Bool(true)
    {
        bail!(4770520, "Expected array header to be value true but got {}", text::elem(header));
    }
    let rest = entries.clone();
    match entries.next().filter(|entry| entry.key() == "l") {
        None => Ok((None, rest)),
        Some(entry) if entry.ty() == Type::Int32 => {
            Ok((Some(entry.value().to_i64_saturating().unwrap_or(0).max(0) as u64), entries))
        }
        Some(_) => bail!(4770507, "Expected l section to be type int"),
    }
}

/// The next change of an array, with its index.
fn next_element<'d>(entries: &mut Iter<'d>) -> Result<Option<(u64, Change<'d>)>> {
    let Some(entry) = entries.next() else { return Ok(None) };
    let Some((&name, digits)) = entry.key_bytes().split_first().filter(|(_, d)| !d.is_empty())
    else {
        bail!(
            4770521,
            "expected field name to be at least two characters long, but found: {}",
            entry.key()
        );
    };
    let index = std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
    let Some(index) = index.and_then(|digits| digits.parse().ok()) else {
        bail!(4770512, "Expected integer but got {}", String::from_utf8_lossy(digits));
    };
    match (name, entry.as_doc()) {
        (b'u', _) => Ok(Some((index, Change::Replaced(entry)))),
        (b's', Some(part)) if entry.ty() == Type::Document => {
            Ok(Some((index, Change::Changed(part))))
        }
        (b's', _) => {
            bail!(4770501, "expected sub diff at index {index} but got {}", text::elem(entry))
        }
        _ => bail!(
            4770502,
            "Expected either 'u' (update) or 's' (sub diff) at index {index} but got {}",
            text::elem(entry)
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::cx::UpdateCx;
    use crate::update::Update;
    use kauri_base::Result;
    use kauri_bson::{Doc, DocBuf, Value, array, doc};

    /// The changed document; `None` if it stays as it is.
    fn try_apply(before: &DocBuf, diff: DocBuf) -> Result<Option<DocBuf>> {
        let update = Update::parse_oplog(doc! { "$v" => 2, "diff" => diff }.as_doc())?;
        let mut out = b"before".to_vec();
        let applied = update.apply(before.as_doc(), &UpdateCx::default(), &mut out)?;
        assert_eq!(applied.modified, out.len() > 6);
        let new = &out[6..];
        applied.modified.then(|| Doc::from_bytes(new).map(Doc::to_buf)).transpose()
    }

    #[track_caller]
    fn check(before: DocBuf, diff: DocBuf, after: DocBuf) {
        let new = try_apply(&before, diff.clone()).unwrap().unwrap_or(before);
        assert_eq!(new, after);
        let again = try_apply(&new, diff).unwrap();
        assert_eq!(again.unwrap_or(new), after, "applied again");
    }

    #[track_caller]
    fn fails(diff: DocBuf, code: i32) {
        let before = doc! { "_id" => 1, "a" => array![1, 2], "b" => doc! { "c" => 1 } };
        let error = try_apply(&before, diff).unwrap_err();
        assert_eq!(error.code().number(), code, "{}", error.message());
    }

    #[test]
    fn fields_go_change_in_place_and_come_last() {
        let before = || doc! { "_id" => 1, "a" => 1, "b" => 2, "c" => 3 };
        check(
            before(),
            doc! { "d" => doc! { "a" => false, "x" => false } },
            doc! { "_id" => 1, "b" => 2, "c" => 3 },
        );
        check(
            before(),
            doc! { "u" => doc! { "b" => "new", "x" => 1 }, "i" => doc! { "a" => 5, "y" => 2 } },
            doc! { "_id" => 1, "b" => "new", "c" => 3, "x" => 1, "a" => 5, "y" => 2 },
        );
        let stays = try_apply(&before(), doc! { "u" => doc! { "b" => 2 } }).unwrap();
        assert_eq!(stays, None, "what is so already is no change");
    }

    #[test]
    fn parts_of_documents_and_arrays_change() {
        let before = doc! { "_id" => 1, "a" => array![1, doc! { "x" => 1 }, 3], "b" => doc! { "c" => doc! { "d" => 1 } } };
        let diff = doc! {
            "sa" => doc! { "a" => true, "u0" => "new", "s1" => doc! { "i" => doc! { "y" => 2 } }, "u4" => 5 },
            "sb" => doc! { "sc" => doc! { "u" => doc! { "d" => 2 } } },
        };
        let list = array!["new", doc! { "x" => 1, "y" => 2 }, 3, Value::Null, 5];
        check(
            before,
            diff,
            doc! { "_id" => 1, "a" => list, "b" => doc! { "c" => doc! { "d" => 2 } } },
        );
        let before = || doc! { "_id" => 1, "a" => array![1, 2, 3] };
        let resized = |l: i32| doc! { "sa" => doc! { "a" => true, "l" => l } };
        check(before(), resized(1), doc! { "_id" => 1, "a" => array![1] });
        check(before(), resized(4), doc! { "_id" => 1, "a" => array![1, 2, 3, Value::Null] });
        check(before(), resized(0), doc! { "_id" => 1, "a" => array![] });
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let part = || doc! { "u" => doc! { "x" => 1 } };
        let before = doc! { "_id" => 1, "a" => 1, "b" => array![1] };
        let diff = doc! { "sa" => part(), "sb" => part(), "smissing" => part() };
        assert_eq!(try_apply(&before, diff).unwrap(), None);
        let diff = doc! { "sb" => doc! { "a" => true, "s0" => part(), "s1" => part() } };
        check(before, diff, doc! { "_id" => 1, "a" => 1, "b" => array![Value::Null, Value::Null] });
    }

    #[test]
    fn malformed_deltas_are_refused() {
        fails(doc! {}, 4770500);
        fails(doc! { "sb" => doc! {} }, 4770500);
        fails(doc! { "x" => doc! {} }, 4770503);
        fails(doc! { "i" => doc! {}, "d" => doc! {} }, 4770503);
        fails(doc! { "u" => doc! {}, "u" => doc! {} }, 4770503);
        fails(doc! { "u" => 1 }, 4770507);
        fails(doc! { "u" => doc! { "_id" => 2 } }, 66);
        fails(doc! { "d" => doc! { "_id" => false } }, 66);
        let of_array = |name: &str, value: Value<'static>| {
            doc! { "sa" => DocBuf::build(|out| {
                out.put("a", true);
                out.put_value(name, &value);
            }) }
        };
        fails(doc! { "sa" => doc! { "a" => false } }, 4770520);
        fails(of_array("l", "long".into()), 4770507);
        fails(of_array("u", 1.into()), 4770521);
        fails(of_array("ux", 1.into()), 4770512);
        fails(of_array("u+1", 1.into()), 4770512);
        fails(of_array("s1", 1.into()), 4770501);
        fails(of_array("d1", 1.into()), 4770502);
        fails(doc! { "sa" => doc! { "a" => true, "u1" => 1, "u0" => 1 } }, 2);
        fails(doc! { "sa" => doc! { "a" => true, "u0" => 1, "u0" => 1 } }, 2);
        // Neither fills the memory.
        fails(of_array("l", i32::MAX.into()), 10334);
        fails(of_array("u99999999999", 1.into()), 10334);
    }
}
