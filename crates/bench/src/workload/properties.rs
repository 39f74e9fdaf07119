//! Java properties: `.properties` files and `-p name=value`.
//!
//! A workload file of YCSB gives the same names and values here (`java.util.Properties.load` of a byte stream,
//! which is ISO 8859-1). Invariants: the last setting of a property wins. A wrong value is an error that names the
//! property, the value and the expected form. Unused properties can be listed ([`Properties::unused`]). This module
//! must not know which properties exist.

use kauri_base::{Error, Result};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// Names and values.
#[derive(Clone, Default, Debug)]
pub struct Properties {
    of: BTreeMap<String, Property>,
}

#[derive(Clone, Debug)]
struct Property {
    value: String,
    asked_for: Cell<bool>,
}

fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\u{C}')
}

impl Properties {
    /// None.
    pub fn new() -> Properties {
        Properties::default()
    }

    /// Of these.
    pub fn of(pairs: &[(&str, &str)]) -> Properties {
        let mut properties = Properties::new();
        pairs.iter().for_each(|(name, value)| properties.set(*name, *value));
        properties
    }

    /// Sets one, whatever it was.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let property = Property { value: value.into(), asked_for: Cell::new(false) };
        self.of.insert(name.into(), property);
    }

    /// Sets those of a file; `name` is the file's in what is said of mistakes.
    pub fn load(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        for (line, logical) in logical_lines(&text) {
            let at = |error: Error| {
                Error::bad_value(format!("'{name}', line {line}: {}", error.message()))
            };
            let (key, value) = split(&logical);
            self.set(unescape(key).map_err(at)?, unescape(value).map_err(at)?);
        }
        Ok(())
    }

    /// Sets one as `-p name=value` says.
    pub fn load_argument(&mut self, argument: &str) -> Result<()> {
        let (name, value) = argument.split_once('=').ok_or_else(|| {
            Error::bad_value(format!(
                "-p takes name=value, such as recordcount=1000, not '{argument}'"
            ))
        })?;
        self.set(name, value);
        Ok(())
    }

    /// All names and values, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.of.iter().map(|(name, property)| (name.as_str(), property.value.as_str()))
    }

    /// The value of this name. Counts as asking for it.
    pub fn get(&self, name: &str) -> Option<&str> {
        let property = self.of.get(name)?;
        property.asked_for.set(true);
        Some(&property.value)
    }

    /// A text, or what it is otherwise.
    pub fn text(&self, name: &str, otherwise: &str) -> String {
        self.get(name).unwrap_or(otherwise).to_owned()
    }

    /// The names that nobody has asked for: unknown ones.
    pub fn unused(&self) -> Vec<&str> {
        let unused = self.of.iter().filter(|(_, property)| !property.asked_for.get());
        unused.map(|(name, _)| name.as_str()).collect()
    }

    /// An error if there are unknown names: it names them.
    pub fn expect_all_used(&self) -> Result<()> {
        match self.unused().as_slice() {
            [] => Ok(()),
            [name] => Err(Error::bad_value(format!("unknown property '{name}'"))),
            names => Err(Error::bad_value(format!("unknown properties '{}'", names.join("', '")))),
        }
    }

    /// The error for a value that is not what it should be.
    pub fn wrong(&self, name: &str, right: impl Display) -> Error {
        let value = self.of.get(name).map_or("", |property| &property.value);
        Error::bad_value(format!("property '{name}' is '{value}', but must be {right}"))
    }

    fn parsed<T: FromStr>(
        &self,
        name: &str,
        right: impl Display,
        is_right: impl FnOnce(&T) -> bool,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.trim().parse().ok().filter(is_right) {
            Some(value) => Ok(Some(value)),
            None => Err(self.wrong(name, right)),
        }
    }

    /// A whole number from `min` to `max`, if it is set.
    pub fn whole_if_set(&self, name: &str, min: i64, max: i64) -> Result<Option<i64>> {
        let right = format!("a whole number from {min} to {max}");
        self.parsed(name, right, |value| (min..=max).contains(value))
    }

    /// A whole number from `min` to `max`, or what it is otherwise.
    pub fn whole(&self, name: &str, otherwise: i64, min: i64, max: i64) -> Result<i64> {
        Ok(self.whole_if_set(name, min, max)?.unwrap_or(otherwise))
    }

    /// A number from `min` to `max`, or what it is otherwise.
    pub fn number(&self, name: &str, otherwise: f64, min: f64, max: f64) -> Result<f64> {
        let right = match max.is_finite() {
            true => format!("a number from {min} to {max}"),
            false => format!("a number of {min} or more"),
        };
        let value = self
            .parsed(name, right, |value: &f64| value.is_finite() && (min..=max).contains(value))?;
        Ok(value.unwrap_or(otherwise))
    }

    /// True or false, in capitals or not, or what it is otherwise. YCSB takes all but "true" for false.
    pub fn truth(&self, name: &str, otherwise: bool) -> Result<bool> {
        match self.get(name).map(|value| value.trim().to_ascii_lowercase()).as_deref() {
            None => Ok(otherwise),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(_) => Err(self.wrong(name, "true or false")),
        }
    }

    /// One of several words, or what it is otherwise.
    pub fn one_of<T: Copy>(&self, name: &str, otherwise: T, words: &[(&str, T)]) -> Result<T> {
        let Some(value) = self.get(name) else { return Ok(otherwise) };
        match words.iter().find(|(word, _)| *word == value.trim()) {
            Some((_, thing)) => Ok(*thing),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(self.wrong(name, words.join(" or ")))
            }
        }
    }
}

/// The lines with their numbers, without comments and empty ones; a line whose last backslash stands alone
/// goes on in the next one, behind the blanks there.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let (mut lines, mut current, mut began, mut open) = (Vec::new(), String::new(), 0, false);
    let unix = text.replace("\r\n", "\n");
    // Behind the last line's end there is no line.
    let unix = unix.strip_suffix(['\n', '\r']).unwrap_or(&unix);
    for (at, line) in unix.split(['\n', '\r']).enumerate() {
        let line = line.trim_start_matches(is_blank);
        let is_first = current.is_empty();
        open = false;
        if is_first && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        if is_first {
            began = at + 1;
        }
        let backslashes = line.len() - line.trim_end_matches('\\').len();
        open = backslashes % 2 == 1;
        if open {
            current.push_str(line.strip_suffix('\\').unwrap_or(line));
        } else {
            current.push_str(line);
            lines.push((began, std::mem::take(&mut current)));
        }
    }
    // Java takes a file that ends with a lone backslash for one with an empty name, but not before \r\n.
    if !current.is_empty() || open && !text.ends_with("\r\n") {
        lines.push((began, current));
    }
    lines
}

/// Key and value: between them blanks, or one `=` or `:` with blanks around.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.char_indices().find(|(_, letter)| {
        let ends = !escaped && (is_blank(*letter) || matches!(letter, '=' | ':'));
        escaped = *letter == '\\' && !escaped;
        ends
    });
    let (key, rest) = line.split_at(end.map_or(line.len(), |(at, _)| at));
    let rest = rest.trim_start_matches(is_blank);
    let value = rest.strip_prefix(['=', ':']).map(|value| value.trim_start_matches(is_blank));
    (key, value.unwrap_or(rest))
}

/// What stands there without backslashes.
fn unescape(text: &str) -> Result<String> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    // Two \u may make one character.
    let mut out: Vec<u16> = Vec::with_capacity(text.len());
    let mut units = [0; 2];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let plain = match letter {
            '\\' => match letters.next() {
                Some('t') => '\t',
                Some('r') => '\r',
                Some('n') => '\n',
                Some('f') => '\u{C}',
                Some('u') => {
                    let digits: String = letters.by_ref().take(4).collect();
                    let is_hex = digits.len() == 4 && digits.bytes().all(|d| d.is_ascii_hexdigit());
                    let unit = u16::from_str_radix(&digits, 16).ok().filter(|_| is_hex);
                    out.push(unit.ok_or_else(|| {
                        Error::bad_value(format!(
                            "'\\u{digits}' is not \\u and four hexadecimal digits"
                        ))
                    })?);
                    continue;
                }
                Some(other) => other,
                None => break,
            },
            other => other,
        };
        out.extend_from_slice(plain.encode_utf16(&mut units));
    }
    Ok(String::from_utf16_lossy(&out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(text: &str) -> Vec<(String, String)> {
        let mut properties = Properties::new();
        properties.load("test", text.as_bytes()).expect("properties");
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        properties.iter().map(own).collect()
    }

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let expected: Vec<(String, String)> =
            expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        assert_eq!(loaded(text), expected, "{text:?}");
    }

    #[test]
    fn separators() {
        for text in
            ["a=b", "a:b", "a b", " a = b", "\ta\t:\tb", "a\u{C}b", "a=b\n", "a=b\r\n", "a=b\r"]
        {
            check(text, &[("a", "b")]);
        }
        check("a==b", &[("a", "=b")]);
        check("a = : b", &[("a", ": b")]);
        check("a b = c", &[("a", "b = c")]);
        check("a", &[("a", "")]);
        check("=b", &[("", "b")]);
        check("a=b ", &[("a", "b ")]);
        check("a=1\nb=2\na=3", &[("a", "3"), ("b", "2")]);
    }

    #[test]
    fn comments_and_empty_lines() {
        check("# a=b\n! c=d\n  # e=f\n\n \t\ng=h # not a comment", &[("g", "h # not a comment")]);
        check("# goes not on \\\na=b", &[("a", "b")]);
        check("a=b\\\n#c", &[("a", "b#c")]);
    }

    #[test]
    fn continued_lines() {
        check("a=b\\\n   c\\\r\n\td", &[("a", "bcd")]);
        check("a=b\\\\\nc=d", &[("a", "b\\"), ("c", "d")]);
        check("a=b\\\\\\\nc=d", &[("a", "b\\c=d")]);
        check("a=b\\", &[("a", "b")]);
        check("a=b\\\n\nc=d", &[("a", "b"), ("c", "d")]);
        check("a\\\n b", &[("ab", "")]);
        check("\\", &[("", "")]);
        check("\\\n", &[("", "")]);
        check("\\\r\n", &[]);
        check("\\\n# c", &[]);
        check("\\\n\na=b", &[("a", "b")]);
    }

    #[test]
    fn escapes() {
        check("a\\ b\\=c\\:d = e", &[("a b=c:d", "e")]);
        check("a=\\t\\n\\r\\f\\q\\\\", &[("a", "\t\n\r\u{C}q\\")]);
        check("a=\\u00e9\\u20AC\\uD83D\\uDE00", &[("a", "é€😀")]);
        check("\\#a=b", &[("#a", "b")]);
        let mut properties = Properties::new();
        let error = properties.load("w.txt", b"\n# c\na=\\u12x4").expect_err("no number");
        assert!(error.message().contains("'w.txt', line 3: '\\u12x4'"), "{error}");
        properties.load("w.txt", b"a=\xE9").expect("ISO 8859-1");
        assert_eq!(properties.get("a"), Some("é"));
    }

    #[test]
    fn getters_name_what_is_wrong() {
        let mut properties = Properties::of(&[("count", "ten"), ("share", "2"), ("yes", "TRUE ")]);
        properties.load_argument("order=random=ly").expect("an argument");
        assert_eq!(properties.get("order"), Some("random=ly"));
        let message = |error: Error| error.message().to_owned();
        assert_eq!(
            message(properties.whole("count", 1, 0, 99).expect_err("no number")),
            "property 'count' is 'ten', but must be a whole number from 0 to 99"
        );
        assert_eq!(
            message(properties.number("share", 0.5, 0.0, 1.0).expect_err("too much")),
            "property 'share' is '2', but must be a number from 0 to 1"
        );
        assert_eq!(
            message(
                properties.one_of("order", 1, &[("hashed", 1), ("ordered", 2)]).expect_err("?")
            ),
            "property 'order' is 'random=ly', but must be hashed or ordered"
        );
        assert_eq!(
            message(properties.truth("count", true).expect_err("neither")),
            "property 'count' is 'ten', but must be true or false"
        );
        assert!(properties.truth("yes", false).expect("a truth"));
        assert_eq!(properties.whole("none", 7, 0, 9).expect("otherwise"), 7);
        assert_eq!(properties.number("share", 0.5, 0.0, f64::INFINITY).expect("a number"), 2.0);
        assert!(properties.load_argument("recordcount").is_err());
    }

    #[test]
    fn what_nobody_asked_for_is_told() {
        let properties = Properties::of(&[("recordcount", "1"), ("recordcuont", "2"), ("x", "3")]);
        assert_eq!(properties.get("recordcount"), Some("1"));
        assert_eq!(properties.unused(), ["recordcuont", "x"]);
        let error = properties.expect_all_used().expect_err("unknown names");
        assert_eq!(error.message(), "unknown properties 'recordcuont', 'x'");
        let _ = (properties.get("recordcuont"), properties.get("x"));
        properties.expect_all_used().expect("all used");
    }
}
