//! Regular expressions of `$regex`, `$regexMatch` and their like: PCRE syntax, UTF-8 text.
//!
//! Invariants: the work of one match is limited by verbs in the pattern itself (`(*LIMIT_MATCH=…)` and its like; a
//! user's own such verbs can only lower the limits). A compiled pattern is limited by its length. `\w`, `\d` and
//! `\s` are ASCII unless the pattern begins with `(*UCP)`, as in MongoDB.
//!
//! PCRE counts the work per starting position, so a search from all positions of a long text can take quadratic
//! time. Such a search proceeds in windows of a few positions each, which count as work of the operation.
//!
//! This module must not know expressions or document matching.

use kauri_base::{Error, Result, limits, work};
use pcre2::bytes::{CaptureLocations, RegexBuilder};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A compiled regular expression.
pub struct Regex {
    inner: pcre2::bytes::Regex,
    /// The same for the next [`WINDOW`] starting positions alone, for long texts; none where the
    /// pattern can't be confined so or never takes long.
    windowed: OnceLock<Option<pcre2::bytes::Regex>>,
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

/// The literal prefix of every match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiteralPrefix {
    /// The text.
    pub text: String,
    /// Whether the prefix is the whole pattern.
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
    /// Too little stack is left to compile it.
    Stack(Error),
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
            RegexError::Stack(error) => error,
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
        check_stack(pattern).map_err(RegexError::Stack)?;
        let inner = build(&limited(pattern, None), options)
            .map_err(|e| RegexError::Syntax(e.to_string()))?;
        Ok(Regex {
            inner,
            windowed: OnceLock::new(),
            pattern: pattern.to_owned(),
            options: options.to_owned(),
            scratch: Mutex::new(None),
        })
    }

    /// The original pattern.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The original options.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Whether the text holds a match.
    pub fn is_match(&self, text: &str) -> Result<bool> {
        count_search(text.len())?;
        match self.windowed(text) {
            Some(windowed) => {
                let is_match = |at| windowed.is_match_at(text.as_bytes(), at).map_err(match_error);
                let found = by_windows(text, 0, |at| Ok(is_match(at)?.then_some(())))?;
                Ok(found.is_some())
            }
            None => self.inner.is_match(text.as_bytes()).map_err(match_error),
        }
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
        if let Some(windowed) = self.windowed(text) {
            let mut places = windowed.capture_locations();
            return by_windows(text, start, |at| captures(windowed, &mut places, text, at));
        }
        if self.inner.capture_names().len() <= 1 {
            let found =
                self.find_at(text, start)?.map(|span| Captures { span, groups: Vec::new() });
            count_search(searched(text, start, Some(&found)))?;
            return Ok(found);
        }
        let taken = self.scratch.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut places = taken.unwrap_or_else(|| self.inner.capture_locations());
        let found = captures(&self.inner, &mut places, text, start);
        count_search(searched(text, start, found.as_ref().ok()))?;
        *self.scratch.lock().unwrap_or_else(PoisonError::into_inner) = Some(places);
        found
    }

    /// The matcher of windows, for a text that is long enough to need it.
    fn windowed(&self, text: &str) -> Option<&pcre2::bytes::Regex> {
        if text.len() < LONG_TEXT_BYTES || check_stack(&self.pattern).is_err() {
            return None;
        }
        let windowed = self.windowed.get_or_init(|| {
            let wanted = may_take_long(&self.pattern, &self.options);
            let pattern = limited(&self.pattern, Some(&self.options));
            wanted.then(|| build(&pattern, &self.options).ok()).flatten()
        });
        windowed.as_ref()
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

/// Texts below this length are searched at one go.
const LONG_TEXT_BYTES: usize = 16 * 1024;
/// Starting positions of a window, in characters.
const WINDOW: usize = 16;
/// Steps of a window, besides the rest of the text, which each of its positions may scan.
const WINDOW_STEPS: u32 = 32;
/// Steps of a search, besides the text that it scans.
const SEARCH_STEPS: u32 = 4;

/// Counts a search through `bytes` bytes.
fn count_search(bytes: usize) -> Result<()> {
    work::tick(SEARCH_STEPS)?;
    work::tick_bytes(bytes)
}

/// Bytes that a search has scanned.
fn searched(text: &str, start: usize, found: Option<&Option<Captures>>) -> usize {
    let end = found.and_then(Option::as_ref).map_or(text.len(), |found| found.span.1);
    end.saturating_sub(start)
}

/// Stack that PCRE's compilers take for each level of parentheses, of which it allows 250, in bytes.
const LEVEL_STACK_BYTES: usize = 1536;
const LEVELS_MAX: usize = 250;

/// Fails if too little stack is left to compile the pattern.
fn check_stack(pattern: &str) -> Result<()> {
    let (mut open, mut levels) = (0usize, 0usize);
    for byte in pattern.bytes() {
        match byte {
            b'(' => open += 1,
            b')' => open = open.saturating_sub(1),
            _ => {}
        }
        levels = levels.max(open);
    }
    work::check_stack_for(levels.min(LEVELS_MAX) * LEVEL_STACK_BYTES)
}

fn build(pattern: &str, options: &str) -> Result<pcre2::bytes::Regex, pcre2::Error> {
    RegexBuilder::new()
        .caseless(options.contains('i'))
        .multi_line(options.contains('m'))
        .dotall(options.contains('s'))
        .extended(options.contains('x'))
        // Not for \w: it is the crate's only way to a matcher that does not check the rest of the
        // text for valid UTF-8 at each step of a find-all. `limited` takes it back.
        .ucp(true)
        .jit_if_available(true)
        .max_jit_stack_size(Some(limits::REGEX_JIT_STACK_BYTES_MAX))
        .build(pattern)
}

fn captures(
    regex: &pcre2::bytes::Regex,
    places: &mut CaptureLocations,
    text: &str,
    start: usize,
) -> Result<Option<Captures>> {
    let found = regex.captures_read_at(places, text.as_bytes(), start).map_err(match_error)?;
    Ok(found.map(|m| Captures {
        span: (m.start(), m.end()),
        groups: (1..places.len()).map(|i| places.get(i)).collect(),
    }))
}

/// Searches window after window.
fn by_windows<T>(
    text: &str,
    start: usize,
    mut search: impl FnMut(usize) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let mut at = start;
    loop {
        work::tick(WINDOW_STEPS)?;
        work::tick_bytes(text.len() - at)?;
        if let Some(found) = search(at)? {
            return Ok(Some(found));
        }
        let rest = text.get(at..).unwrap_or_default();
        match rest.char_indices().nth(WINDOW) {
            Some((skip, _)) => at += skip,
            None => return Ok(None),
        }
    }
}

/// Whether one starting position may be expensive, and the pattern has the same meaning within a window: it has
/// unbounded repetitions, is not anchored, and neither refers to the start of the search nor controls it.
fn may_take_long(pattern: &str, options: &str) -> bool {
    let rest = pattern.split_at(verbs_length(pattern)).1;
    let repeats = rest.contains(['*', '+']) || rest.contains(",}");
    let anchored = rest.starts_with("\\A") || (rest.starts_with('^') && !options.contains('m'));
    let own_ways = ["(*", "\\G", "(?R", "(?0", "g<0", "g'0", "(?|"];
    let alternatives = rest.contains('|');
    repeats && (!anchored || alternatives) && !own_ways.iter().any(|way| rest.contains(way))
}

fn match_error(error: pcre2::Error) -> Error {
    let code = error.code();
    Error::location(
        51156,
        format!("Error occurred while executing the regular expression. Result code: {code}"),
    )
}

/// The pattern with the limits in front and with ASCII classes unless it requests Unicode's; with `window` (the
/// options), for a search from the next [`WINDOW`] positions only.
fn limited(pattern: &str, window: Option<&str>) -> String {
    let steps = limits::REGEX_MATCH_STEPS_MAX;
    let heap = limits::REGEX_MATCH_HEAP_KIB_MAX;
    let (verbs, rest) = pattern.split_at(verbs_length(pattern));
    let ascii = if verbs.contains("(*UCP)") { "" } else { "(?aDaSaWaP)" };
    let front =
        format!("(*LIMIT_MATCH={steps})(*LIMIT_DEPTH={steps})(*LIMIT_HEAP={heap}){verbs}{ascii}");
    match window {
        None => format!("{front}{rest}"),
        Some(options) => {
            // What a pattern may leave open (a quotation, a comment) is closed before the group is.
            let close = if options.contains('x') { "\\E\n" } else { "\\E" };
            format!("{front}\\G(?s:.{{0,{}}}?)\\K(?:{rest}{close})", WINDOW - 1)
        }
    }
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
    use kauri_base::clock::SystemClock;
    use kauri_base::{ErrorCode, OperationContext};
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

    /// The limit of the settings holds, not PCRE's own, which is ten times as high.
    #[test]
    fn the_limit_is_ours() {
        let regex = Regex::new("(*NO_JIT)^(a+)+$", "").unwrap();
        let text = |n: usize| format!("{}!", "a".repeat(n));
        assert!(!regex.is_match(&text(12)).unwrap());
        assert!(regex.is_match(&text(21)).is_err());
        let raised = build("(*NO_JIT)^(a+)+$", "").unwrap();
        assert!(!raised.is_match(text(21).as_bytes()).unwrap(), "PCRE alone goes through with it");
    }

    #[test]
    fn long_searches_can_be_interrupted() {
        let op = OperationContext::detached(Arc::new(SystemClock::new()));
        op.state().kill(ErrorCode::Interrupted);
        // Every position is looked at to the end of the text: a square of steps.
        let text = "lorem ipsum ".repeat(20_000);
        let regex = Regex::new("(?=.*x)(?=.*y)", "").unwrap();
        let is_match = work::with_meter(&op.meter(), || regex.is_match(&text));
        assert_eq!(is_match.map_err(|e| e.code()), Err(ErrorCode::Interrupted));
        let captures = work::with_meter(&op.meter(), || regex.captures_at(&text, 0));
        assert_eq!(captures.map_err(|e| e.code()), Err(ErrorCode::Interrupted));
    }

    #[test]
    fn windows_find_what_one_search_finds() {
        let filler = "é.ab\n".repeat(5_000);
        let patterns = [
            ("x+y", ""),
            ("(a)|(x+)y", ""),
            ("X+Y", "i"),
            ("^x+y$", "m"),
            ("^x+y|z+", ""),
            ("y*", ""),
            ("x # comment\n +y # more", "x"),
            ("x+y # end", "x"),
            ("x+\\Qy", ""),
            ("(?<=\\n)x+y", ""),
            ("(?s).*x+y", ""),
            ("\\Bx+", ""),
            ("(x)\\1+y", ""),
            ("(?=x+y)", ""),
            ("é*x+", ""),
            ("q+", ""),
            ("x+(?!y)", ""),
            ("[^ab]+xx", ""),
            ("(*UCP)\\w+y", ""),
            ("x{2,}y", ""),
            ("(x+)(?1)y", ""),
        ];
        for position in [0, 1, 7, 15, 16, 17, 18_000] {
            let at = (position..).find(|p| filler.is_char_boundary(*p)).unwrap();
            let text = format!("{}xxxy\n{}", &filler[..at], &filler[at..]);
            assert!(text.len() > LONG_TEXT_BYTES);
            for (pattern, options) in patterns {
                let regex = Regex::new(pattern, options).unwrap();
                let windowed = regex.windowed(&text);
                assert_eq!(windowed.is_some(), may_take_long(pattern, options), "/{pattern}/");
                for start in [0, at] {
                    let mut places = regex.inner.capture_locations();
                    let plain = captures(&regex.inner, &mut places, &text, start).unwrap();
                    let found = regex.captures_at(&text, start).unwrap();
                    assert_eq!(found, plain, "/{pattern}/{options} at {at} from {start}");
                }
                let plain = regex.inner.is_match(text.as_bytes()).unwrap();
                assert_eq!(regex.is_match(&text).unwrap(), plain);
            }
        }
        for pattern in ["(*COMMIT)a+", "a+\\Gb", "a(?R)*b+", "^a+", "\\Aa+", "abc"] {
            assert!(!may_take_long(pattern, ""), "/{pattern}/");
        }
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
