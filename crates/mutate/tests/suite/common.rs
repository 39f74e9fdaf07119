//! Documents in the shell's notation, for tables of cases.
//!
//! `{a: 1, "b c": [1.5, 7L, "x", null, true], d: {$set: …}}`; also `undefined`, `minKey`, `maxKey`,
//! `/pattern/i`, `date(0)`, `ts(1, 2)`, `oid(7)`, `dec("1.5")`, `nan`, `inf`. An empty text is a missing value.

use kauri_base::Timestamp;
use kauri_bson::{Decimal128, DocBuf, Value};

/// Parses one document.
pub fn parse_doc(text: &str) -> DocBuf {
    match parse_value(text) {
        Value::Document(doc) => doc.into_buf(),
        other => panic!("not a document: {other:?} in {text}"),
    }
}

/// Parses one value.
pub fn parse_value(text: &str) -> Value<'static> {
    let mut parser = Parser { rest: text.trim() };
    let value = parser.value();
    assert_eq!(parser.rest.trim(), "", "left over in {text}");
    value
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    fn eat(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) {
        assert!(self.eat(token), "expected {token:?} at {:?}", self.rest);
    }

    fn take_while(&mut self, good: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !good(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn text(&mut self) -> String {
        let mut text = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return text;
                }
                '\\' => match chars.next() {
                    Some((_, '0')) => text.push('\0'),
                    Some((_, c)) => text.push(c),
                    None => break,
                },
                c => text.push(c),
            }
        }
        panic!("a text without an end: {}", self.rest);
    }

    fn value(&mut self) -> Value<'static> {
        if self.eat("{") {
            let mut fields: Vec<(String, Value<'static>)> = Vec::new();
            while !self.eat("}") {
                let name = if self.eat("\"") {
                    self.text()
                } else {
                    self.take_while(|c| !c.is_whitespace() && !":}".contains(c)).to_owned()
                };
                self.expect(":");
                fields.push((name, self.value()));
                self.eat(",");
            }
            return DocBuf::build(|w| fields.iter().for_each(|(k, v)| w.put_value(k, v))).into();
        }
        if self.eat("[") {
            let mut items = Vec::new();
            while !self.eat("]") {
                items.push(self.value());
                self.eat(",");
            }
            return Value::array(items);
        }
        if self.eat("\"") {
            return Value::String(self.text().into());
        }
        if self.eat("/") {
            let pattern = self.take_while(|c| c != '/').to_owned();
            self.expect("/");
            let options = self.take_while(char::is_alphabetic).to_owned();
            return Value::Regex { pattern: pattern.into(), options: options.into() };
        }
        self.word()
    }

    fn word(&mut self) -> Value<'static> {
        self.rest = self.rest.trim_start();
        let word = self.take_while(|c| c.is_alphanumeric() || "+-.".contains(c));
        match word {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "undefined" => Value::Undefined,
            "minKey" => Value::MinKey,
            "maxKey" => Value::MaxKey,
            "nan" => Value::Double(f64::NAN),
            "inf" => Value::Double(f64::INFINITY),
            "-inf" => Value::Double(f64::NEG_INFINITY),
            "date" => Value::DateTime(self.arguments()[0]),
            "ts" => {
                let parts = self.arguments();
                Value::Timestamp(Timestamp { seconds: parts[0] as u32, increment: parts[1] as u32 })
            }
            "oid" => Value::ObjectId([self.arguments()[0] as u8; 12]),
            "dec" => {
                self.expect("(\"");
                let text = self.text();
                self.expect(")");
                Value::Decimal128(Decimal128::parse(&text).unwrap())
            }
            _ => number(word),
        }
    }

    fn arguments(&mut self) -> Vec<i64> {
        self.expect("(");
        let inner = self.take_while(|c| c != ')').to_owned();
        self.expect(")");
        inner.split(',').map(|n| n.trim().parse().unwrap()).collect()
    }
}

fn number(word: &str) -> Value<'static> {
    let bad = |what: &str| -> ! { panic!("{what}: {word:?}") };
    if let Some(long) = word.strip_suffix('L') {
        return Value::Int64(long.parse().unwrap_or_else(|_| bad("no long")));
    }
    if word.contains(['.', 'e']) {
        return Value::Double(word.parse().unwrap_or_else(|_| bad("no double")));
    }
    Value::Int32(word.parse().unwrap_or_else(|_| bad("no int")))
}

/// The cases of a table: lines that are neither empty nor comments, with their numbers.
pub fn cases(table: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = table.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// The expected result of a case.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// This document, to the byte.
    Doc(DocBuf),
    /// No change.
    Same,
    /// An error of this code.
    Error(i32),
}

/// Splits a case at its arrow: the input, the expected result, and a part of the error's message.
pub fn split_case(line: &str) -> (Vec<&str>, Outcome, &str) {
    let (given, expected) = line.split_once(" -> ").unwrap_or_else(|| panic!("no arrow: {line}"));
    let given = given.split(" | ").map(str::trim).collect();
    let expected = expected.trim();
    if expected == "same" {
        return (given, Outcome::Same, "");
    }
    match expected.strip_prefix("error ") {
        Some(error) => {
            let (code, message) = error.split_once(' ').unwrap_or((error, ""));
            (given, Outcome::Error(code.parse().unwrap()), message.trim())
        }
        None => (given, Outcome::Doc(parse_doc(expected)), ""),
    }
}

/// Checks the result of a case: the document written, nothing written, or an error.
pub fn check_outcome(
    line: usize,
    case: &str,
    expected: &Outcome,
    message: &str,
    actual: kauri_base::Result<Option<DocBuf>>,
) {
    match (expected, actual) {
        (Outcome::Doc(expected), Ok(Some(actual))) => {
            assert!(*expected == actual, "line {line}: {case}\n  gave {actual:?}");
        }
        (Outcome::Same, Ok(None)) => {}
        (Outcome::Error(code), Err(error)) => {
            assert_eq!(error.code().number(), *code, "line {line}: {case}\n  gave {error:?}");
            let found = error.message().contains(message);
            assert!(found, "line {line}: {case}\n  gave {:?}", error.message());
        }
        (_, actual) => panic!("line {line}: {case}\n  gave {actual:?}"),
    }
}
