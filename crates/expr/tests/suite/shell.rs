//! Values in the notation of MongoDB's shell, for tables of cases.
//!
//! `{a: 1, "b.c": [2L, 1.5, 1.5d]}`: an int, a long, a double, a decimal. Names need quotes only if they have
//! other characters than letters, digits, `_` and `$`. Also `null`, `undefined`, `missing`, `MinKey`, `MaxKey`,
//! `NaN`, `Infinity`, `/re/i`, `Date(ms)`, `Id("hex")`, `Bin(subtype, "hex")`, `Time(seconds, increment)`,
//! `Code("…")`, `Symbol("…")`.

use kauri_base::Timestamp;
use kauri_bson::{Decimal128, DocBuf, Value};

/// The value of a text; panics with the rest of the text if it is invalid.
pub fn value(text: &str) -> Value<'static> {
    let mut reader = Reader { rest: text };
    let value = reader.value();
    reader.space();
    assert!(reader.rest.is_empty(), "unread: {} of {text}", reader.rest);
    value
}

/// The same for a document.
pub fn document(text: &str) -> DocBuf {
    match value(text) {
        Value::Document(doc) => doc.into_buf(),
        other => panic!("no document: {other:?}"),
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) {
        assert!(self.eat(token), "{token:?} expected at {}", self.rest);
    }

    fn word(&mut self) -> &'t str {
        self.space();
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '$' | '.' | '-' | '+'))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn value(&mut self) -> Value<'static> {
        self.space();
        match self.rest.chars().next() {
            Some('{') => self.object(),
            Some('[') => self.array(),
            Some('"' | '\'') => self.string().into(),
            Some('/') => self.regex(),
            _ => self.named(),
        }
    }

    fn object(&mut self) -> Value<'static> {
        self.expect("{");
        let mut fields = Vec::new();
        while !self.eat("}") {
            self.space();
            let name = match self.rest.chars().next() {
                Some('"' | '\'') => self.string(),
                _ => self.word().to_owned(),
            };
            self.expect(":");
            fields.push((name, self.value()));
            if !self.eat(",") {
                self.expect("}");
                break;
            }
        }
        DocBuf::build(|w| fields.iter().for_each(|(name, value)| w.put_value(name, value))).into()
    }

    fn array(&mut self) -> Value<'static> {
        self.expect("[");
        let mut items = Vec::new();
        while !self.eat("]") {
            items.push(self.value());
            if !self.eat(",") {
                self.expect("]");
                break;
            }
        }
        Value::array(items)
    }

    fn string(&mut self) -> String {
        self.space();
        let quote = self.rest.chars().next().expect("a quote");
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return text;
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, '0')) => text.push('\0'),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                c => text.push(c),
            }
        }
        panic!("open string: {}", self.rest)
    }

    fn regex(&mut self) -> Value<'static> {
        let end = self.rest[1..].find('/').expect("a closing slash") + 1;
        let pattern = self.rest[1..end].to_owned();
        self.rest = &self.rest[end + 1..];
        let options = self.word().to_owned();
        Value::Regex { pattern: pattern.into(), options: options.into() }
    }

    fn hex(&mut self) -> Vec<u8> {
        let text = self.string();
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    }

    fn number(&mut self) -> i64 {
        self.word().parse().expect("a number")
    }

    fn named(&mut self) -> Value<'static> {
        let word = self.word();
        if self.eat("(") {
            let value = match word {
                "Date" => Value::DateTime(self.number()),
                "Id" => Value::ObjectId(self.hex().try_into().expect("12 bytes")),
                "Bin" => {
                    let subtype = self.number() as u8;
                    self.expect(",");
                    Value::Binary { subtype, bytes: self.hex().into() }
                }
                "Time" => {
                    let seconds = self.number() as u32;
                    self.expect(",");
                    Value::Timestamp(Timestamp { seconds, increment: self.number() as u32 })
                }
                "Code" => Value::Code(self.string().into()),
                "Symbol" => Value::Symbol(self.string().into()),
                _ => panic!("no such function: {word}"),
            };
            self.expect(")");
            return value;
        }
        match word {
            "null" => Value::Null,
            "undefined" => Value::Undefined,
            "missing" => Value::Missing,
            "true" => true.into(),
            "false" => false.into(),
            "MinKey" => Value::MinKey,
            "MaxKey" => Value::MaxKey,
            "NaN" => f64::NAN.into(),
            "Infinity" => f64::INFINITY.into(),
            "-Infinity" => f64::NEG_INFINITY.into(),
            _ => number(word),
        }
    }
}

fn number(word: &str) -> Value<'static> {
    if let Some(long) = word.strip_suffix('L') {
        return long.parse::<i64>().expect("a long").into();
    }
    if let Some(decimal) = word.strip_suffix('d') {
        return Value::Decimal128(Decimal128::parse(decimal).expect("a decimal"));
    }
    match word.parse::<i32>() {
        Ok(int) => int.into(),
        Err(_) => word.parse::<f64>().unwrap_or_else(|_| panic!("no value: {word:?}")).into(),
    }
}
