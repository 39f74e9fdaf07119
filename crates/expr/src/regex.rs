//! Regular expressions as `$regex`, `$regexMatch` and their like see them: PCRE syntax, UTF-8 text.
//!
//! Invariants: the work of one match is bounded by limits that are written into the pattern itself
//! (`(*LIMIT_MATCH=…)` and its like; a user's own such verbs can only lower them), and a compiled
//! pattern is bounded by its length. `\w`, `\d` and `\s` are ASCII unless the pattern begins with
//! `(*UCP)`, as in MongoDB.
//!
//! Knows nothing of expressions or of matching documents.

use kauri_base::{Error, Result, limits};
use pcre2::bytes::{CaptureLocations, RegexBuilder};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// A compiled regular expression.
pub struct Regex {
    inner: pcre2::bytes::Regex,
    pattern: String,
    options: String,
    /// Scratch space of the last match with captures; a second thread at once makes its own.
    scratch: Mutex<Option<CaptureLocations>>,
}

/// Byte ranges of a match and of its groups; a group that took no part has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captures {
    /// Start and end of the whole match.
    pub span: (usize, usize),
    /// Start and end of each group in the order of their opening parentheses.
    pub groups: Vec<Option<(usize, usize)>>,
}

/// What every match begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiteralPrefix {
    /// The text.
    pub text: String,
    /// Whether beginning with the text is all that the pattern asks for.
    pub exact: bool,
}

/// Why a pattern was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegexError {
    /// An option other than `i`, `m`, `s`, `x`, `u`.
    BadOption(char),
    /// A zero byte in the pattern.
    NulByte,
    /// PCRE's (or the length limit's) complaint.
    Syntax(String),
}

impl From<RegexError> for Error {
    /// The codes of the query language; expressions have others.
    fn from(error: RegexError) -> Error {
        match error {
            RegexError::BadOption(flag) => {
                Error::location(51108, format!("invalid flag in regex options: {flag}"))
            }
            RegexError::NulByte => {
                Error::bad_value("Regular expression cannot contain an embedded null byte")
            }
            RegexError::Syntax(message) => {
                Error::location(51091, format!("Regular expression is invalid: {message}"))
            }
        }
    }
}

impl Regex {
    /// Compiles a pattern with options from `imsxu`.
    pub fn new(pattern: &str, options: &str) -> Result<Regex> {
        Ok(Self::compile(pattern, options)?)
    }

    /// The same, with an error that says why.
    pub fn compile(pattern: &str, options: &str) -> Result<Regex, RegexError> {
        if let Some(flag) = options.chars().find(|c| !is_option(*c)) {
            return Err(RegexError::BadOption(flag));
        }
        if pattern.contains('\0') {
            return Err(RegexError::NulByte);
        }
        if pattern.len() > limits::REGEX_PATTERN_BYTES_MAX {
            return Err(RegexError::Syntax("regular expression is too large".into()));
        }
        let inner = RegexBuilder::new()
            .caseless(options.contains('i'))
            .multi_line(options.contains('m'))
            .dotall(options.contains('s'))
            .extended(options.contains('x'))
            // Not for \w: it is the crate's only way to a matcher that does not check the rest
            // of the text for valid UTF-8 at each step of a find-all. `limited` takes it back.
            .ucp(true)
            .jit_if_available(true)
            .max_jit_stack_size(Some(limits::REGEX_JIT_STACK_BYTES_MAX))
            .build(&limited(pattern))
            .map_err(|e| RegexError::Syntax(e.to_string()))?;
        Ok(Regex {
            inner,
            pattern: pattern.to_owned(),
            options: options.to_owned(),
            scratch: Mutex::new(None),
        })
    }

    /// The pattern as it was given.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The options as they were given.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Whether the text holds a match.
    pub fn is_match(&self, text: &str) -> Result<bool> {
        self.inner.is_match(text.as_bytes()).map_err(match_error)
    }

    /// Start and end in bytes of the first match at or behind `start`.
    pub fn find_at(&self, text: &str, start: usize) -> Result<Option<(usize, usize)>> {
        if start > text.len() {
            return Ok(None);
        }
        let found = self.inner.find_at(text.as_bytes(), start).map_err(match_error)?;
        Ok(found.map(|m| (m.start(), m.end())))
    }

    /// The first match at or behind `start` with its groups.
    pub fn captures_at(&self, text: &str, start: usize) -> Result<Option<Captures>> {
        if start > text.len() {
            return Ok(None);
        }
        if self.inner.capture_names().len() <= 1 {
            let found = self.find_at(text, start)?;
            return Ok(found.map(|span| Captures { span, groups: Vec::new() }));
        }
        let taken = self.scratch.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut places = taken.unwrap_or_else(|| self.inner.capture_locations());
        let found = self.inner.captures_read_at(&mut places, text.as_bytes(), start);
        let captures = found.map_err(match_error)?.map(|m| Captures {
            span: (m.start(), m.end()),
            groups: (1..places.len()).map(|i| places.get(i)).collect(),
        });
        *self.scratch.lock().unwrap_or_else(PoisonError::into_inner) = Some(places);
        Ok(captures)
    }

    /// The text that every match begins with, where the pattern is anchored (`^abc`): the bounds of
    /// an index scan.
    pub fn literal_prefix(&self) -> Option<LiteralPrefix> {
        literal_prefix(&self.pattern, &self.options)
    }
}

impl std::fmt::Debug for Regex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}/{}", self.pattern, self.options)
    }
}

/// Whether this is an option of regular expressions.
pub fn is_option(flag: char) -> bool {
    matches!(flag, 'i' | 'm' | 's' | 'x' | 'u')
}

fn match_error(error: pcre2::Error) -> Error {
    let code = error.code();
    Error::location(
        51156,
        format!("Error occurred while executing the regular expression. Result code: {code}"),
    )
}

/// The pattern with the limits in front and with ASCII classes unless it asks for Unicode's.
fn limited(pattern: &str) -> String {
    let steps = limits::REGEX_MATCH_STEPS_MAX;
    let heap = limits::REGEX_MATCH_HEAP_KIB_MAX;
    let (verbs, rest) = pattern.split_at(verbs_length(pattern));
    let ascii = if verbs.contains("(*UCP)") { "" } else { "(?aDaSaWaP)" };
    format!("(*LIMIT_MATCH={steps})(*LIMIT_DEPTH={steps})(*LIMIT_HEAP={heap}){verbs}{ascii}{rest}")
}

/// The length of the settings (`(*UTF)(*CRLF)…`) that a pattern begins with. Verbs that are part of
/// the pattern proper (`(*ACCEPT)`, `(*SKIP)`, `(*atomic:…)`) are not among them.
fn verbs_length(pattern: &str) -> usize {
    const SETTINGS: [&str; 17] = [
        "UTF",
        "UTF8",
        "UCP",
        "NOTEMPTY",
        "NOTEMPTY_ATSTART",
        "NO_AUTO_POSSESS",
        "NO_DOTSTAR_ANCHOR",
        "NO_JIT",
        "NO_START_OPT",
        "CR",
        "LF",
        "CRLF",
        "ANYCRLF",
        "ANY",
        "NUL",
        "BSR_ANYCRLF",
        "BSR_UNICODE",
    ];
    let mut length = 0;
    while let Some(verb) = pattern[length..].strip_prefix("(*") {
        let Some(end) = verb.find(')') else { break };
        let name = &verb[..end];
        let limit = name.split_once('=').is_some_and(|(name, _)| name.starts_with("LIMIT_"));
        if !limit && !SETTINGS.contains(&name) {
            break;
        }
        length += 2 + end + 1;
    }
    length
}

fn literal_prefix(pattern: &str, options: &str) -> Option<LiteralPrefix> {
    if options.contains('i') || pattern.contains('|') {
        return None;
    }
    let rest = match pattern.strip_prefix("\\A") {
        Some(rest) => rest,
        None if options.contains('m') => return None,
        None => pattern.strip_prefix('^')?,
    };
    let extended = options.contains('x');
    let mut text = String::new();
    let mut chars = rest.chars().peekable();
    let mut exact = true;
    let mut quoting = false;
    while let Some(c) = chars.next() {
        if quoting {
            if c == '\\' && chars.peek() == Some(&'E') {
                chars.next();
                quoting = false;
            } else {
                text.push(c);
            }
            continue;
        }
        match c {
            '*' | '?' | '{' => {
                // The character before may be there or not.
                text.pop();
                exact = false;
                break;
            }
            '\\' => match chars.next() {
                Some('Q') => quoting = true,
                Some('E') => {}
                Some(escaped) if !escaped.is_ascii_alphanumeric() && escaped.is_ascii() => {
                    text.push(escaped);
                }
                _ => {
                    exact = false;
                    break;
                }
            },
            '.' if chars.clone().eq("*".chars()) && options.contains('s') => break,
            '^' | '$' | '.' | '[' | ']' | '(' | ')' | '+' => {
                exact = false;
                break;
            }
            '#' if extended => {
                exact = false;
                break;
            }
            c if extended && c.is_ascii_whitespace() => {}
            c => text.push(c),
        }
    }
    Some(LiteralPrefix { text, exact })
}

/// The regular expressions that were compiled last, for patterns that come from documents.
pub struct RegexCache {
    recent: Mutex<VecDeque<Arc<Regex>>>,
}

impl RegexCache {
    const ENTRIES_MAX: usize = 8;

    /// An empty cache.
    pub fn new() -> Self {
        RegexCache { recent: Mutex::new(VecDeque::new()) }
    }

    /// The compiled pattern, from the cache if it is there.
    pub fn get(&self, pattern: &str, options: &str) -> Result<Arc<Regex>, RegexError> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let place = recent.iter().position(|r| r.pattern == pattern && r.options == options);
        let regex = match place.and_then(|place| recent.remove(place)) {
            Some(regex) => regex,
            None => Arc::new(Regex::compile(pattern, options)?),
        };
        recent.truncate(Self::ENTRIES_MAX - 1);
        recent.push_front(Arc::clone(&regex));
        Ok(regex)
    }
}

impl Default for RegexCache {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for RegexCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RegexCache")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn matches(pattern: &str, options: &str, text: &str) -> bool {
        Regex::new(pattern, options).unwrap().is_match(text).unwrap()
    }

    #[test]
    fn options_and_character_classes() {
        let cases = [
            ("^HE", "i", "hello", true),
            ("^line2", "", "line1\nline2", false),
            ("^line2", "m", "line1\r\nline2", true),
            ("a.b", "", "a\nb", false),
            ("a.b", "s", "a\nb", true),
            ("hel lo # x", "x", "hello", true),
            ("^.$", "u", "é", true),
            ("é", "i", "É", true),
            (r"^\w$", "", "é", false),
            (r"(*UCP)^\w$", "", "é", true),
            (r"(*ANYCRLF)(*UCP)^\d$", "", "٣", true),
            (r"^\d$", "", "٣", false),
            (r"\bcaf\b", "", "café", true),
            (r"(*ACCEPT)a", "", "b", true),
            ("(a)(?<n>b)?", "", "ac", true),
        ];
        for (pattern, options, text, expected) in cases {
            assert_eq!(matches(pattern, options, text), expected, "/{pattern}/{options} {text:?}");
        }
    }

    #[test]
    fn refused_patterns_have_their_codes() {
        let long = "a".repeat(limits::REGEX_PATTERN_BYTES_MAX + 1);
        let cases = [
            ("a", "g", 51108),
            ("a\0b", "", 2),
            ("[a", "", 51091),
            ("(a", "", 51091),
            (&long, "", 51091),
        ];
        for (pattern, options, code) in cases {
            assert_eq!(Regex::new(pattern, options).unwrap_err().code().number(), code);
        }
        assert!(Regex::new(&long[1..], "").is_ok());
    }

    #[test]
    fn runaway_patterns_end_in_an_error() {
        let text = format!("{}!", "a".repeat(64));
        for pattern in ["^(a+)+$", "(*LIMIT_MATCH=4000000000)^(a+)+$", "(*NO_JIT)^(a+)+$"] {
            let start = Instant::now();
            let error = Regex::new(pattern, "").unwrap().is_match(&text).unwrap_err();
            assert_eq!(error.code().number(), 51156, "{pattern}");
            assert!(start.elapsed() < Duration::from_secs(5), "{pattern}");
        }
        // Interpreted, with a large subject: memory is bounded too.
        let regex = Regex::new("(*NO_JIT)^(?:(a)|b)*$", "").unwrap();
        assert!(regex.is_match(&"a".repeat(500_000)).is_err());
    }

    #[test]
    fn captures_and_positions() {
        let regex = Regex::new("(a)|(b)|(ç)", "").unwrap();
        let found = regex.captures_at("xçb", 0).unwrap().unwrap();
        assert_eq!(found, Captures { span: (1, 3), groups: vec![None, None, Some((1, 3))] });
        let found = regex.captures_at("xçb", found.span.1).unwrap().unwrap();
        assert_eq!(found.groups, vec![None, Some((3, 4)), None]);
        assert_eq!(regex.find_at("xçb", 4).unwrap(), None);
        assert_eq!(regex.find_at("xçb", 99).unwrap(), None);
    }

    #[test]
    fn literal_prefixes() {
        let cases: [(&str, &str, Option<(&str, bool)>); 16] = [
            ("^abc", "", Some(("abc", true))),
            ("\\Aabc", "m", Some(("abc", true))),
            ("^abc", "m", None),
            ("^abc", "i", None),
            ("abc", "", None),
            ("^abc|d", "", None),
            ("^abc.*", "", Some(("abc", false))),
            ("^abc.*", "s", Some(("abc", true))),
            ("^abç*", "", Some(("ab", false))),
            ("^a\\.b\\d", "", Some(("a.b", false))),
            ("^\\Qa.b\\Ec", "", Some(("a.bc", true))),
            ("^a b", "x", Some(("ab", true))),
            ("^a b", "", Some(("a b", true))),
            ("^ab{2}", "", Some(("a", false))),
            ("^ab+", "", Some(("ab", false))),
            ("^", "", Some(("", true))),
        ];
        for (pattern, options, expected) in cases {
            let prefix = Regex::new(pattern, options).unwrap().literal_prefix();
            let prefix = prefix.as_ref().map(|p| (p.text.as_str(), p.exact));
            assert_eq!(prefix, expected, "/{pattern}/{options}");
        }
    }

    #[test]
    fn the_cache_stays_small() {
        let cache = RegexCache::new();
        let first = cache.get("a", "").unwrap();
        assert!(Arc::ptr_eq(&first, &cache.get("a", "").unwrap()));
        assert!(!Arc::ptr_eq(&first, &cache.get("a", "i").unwrap()));
        for i in 0..100 {
            cache.get(&format!("x{i}"), "").unwrap();
        }
        assert_eq!(cache.recent.lock().unwrap().len(), RegexCache::ENTRIES_MAX);
        assert!(cache.get("[", "").is_err());
    }
}
