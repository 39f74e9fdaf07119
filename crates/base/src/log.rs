//! Log lines in MongoDB's structured form: one JSON object per line.
//!
//! `{"t":{"$date":"…"},"s":"I","c":"NETWORK","id":22943,"ctx":"listener","msg":"…","attr":{…}}` (manual, "Log
//! Messages"). [`Attr`] formats attributes as JSON. The server installs a sink for the lines. Lines before that are
//! dropped.
//!
//! Invariants: an attribute is truncated to `maxLogSizeKB`. The fields `truncated` and `size` of the line name
//! truncated attributes, as in mongod. The lines kept for `getLog` are limited in number and in bytes.

use crate::limits;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

/// Severity: `F`, `E`, `W`, `I`, or `D1`…`D5`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The process ends.
    Fatal,
    /// Something failed.
    Error,
    /// Something is not as it should be.
    Warning,
    /// For the record.
    Info,
    /// For developers, 1 to 5.
    Debug(u8),
}

/// Takes finished lines: severity and the JSON text without a line end.
pub type Sink = Box<dyn Fn(Severity, &str) + Send + Sync>;

/// Gives the current time in milliseconds since 1970 to log lines.
pub type TimeSource = Box<dyn Fn() -> i64 + Send + Sync>;

static SINK: RwLock<Option<(Sink, TimeSource)>> = RwLock::new(None);
static RECENT: Mutex<Recent> = Mutex::new(Recent { lines: VecDeque::new(), bytes: 0 });
static ATTRIBUTE_BYTES_MAX: AtomicUsize = AtomicUsize::new(limits::LOG_ATTRIBUTE_BYTES_MAX);

static WRITTEN: AtomicU64 = AtomicU64::new(0);
/// Warnings of the start, which `getLog: "startupWarnings"` shows however much came after.
static STARTUP_WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
const STARTUP_WARNINGS_MAX: usize = 128;
/// The context of lines of the start.
pub const STARTUP_CTX: &str = "initandlisten";
static VERBOSITY: AtomicU8 = AtomicU8::new(0);
/// The highest of all levels, so that most debug lines cost one load.
static VERBOSITY_MAX: AtomicU8 = AtomicU8::new(0);
/// The levels of components that have one of their own.
static COMPONENTS: RwLock<BTreeMap<String, u8>> = RwLock::new(BTreeMap::new());
static QUIET: AtomicBool = AtomicBool::new(false);

/// Lets debug lines up to this level through, of components that have no level of their own.
pub fn set_verbosity(level: u8) {
    VERBOSITY.store(level, Ordering::Relaxed);
    let components = COMPONENTS.read().unwrap_or_else(PoisonError::into_inner);
    note_highest(&components);
}

/// Sets the levels of components, by the names that lines have. Components that are not named have none of their
/// own.
pub fn set_component_verbosity(levels: BTreeMap<String, u8>) {
    let mut components = COMPONENTS.write().unwrap_or_else(PoisonError::into_inner);
    *components = levels;
    note_highest(&components);
}

fn note_highest(components: &BTreeMap<String, u8>) {
    let own = components.values().copied().max().unwrap_or(0);
    VERBOSITY_MAX.store(own.max(VERBOSITY.load(Ordering::Relaxed)), Ordering::Relaxed);
}

/// Leaves out the lines about connections that come and go.
pub fn set_quiet(is_quiet: bool) {
    QUIET.store(is_quiet, Ordering::Relaxed);
}

/// Whether the lines about connections that come and go are left out.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Whether lines of this severity are written, of this component.
#[inline]
pub fn enabled(severity: Severity, component: &str) -> bool {
    match severity {
        Severity::Debug(level) => {
            level <= VERBOSITY_MAX.load(Ordering::Relaxed) && level <= verbosity_of(component)
        }
        _ => true,
    }
}

fn verbosity_of(component: &str) -> u8 {
    let components = COMPONENTS.read().unwrap_or_else(PoisonError::into_inner);
    components.get(component).copied().unwrap_or_else(|| VERBOSITY.load(Ordering::Relaxed))
}

/// Sends all further lines to `sink`, with the times that `now` gives.
pub fn install(sink: Sink, now: TimeSource) {
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = Some((sink, now));
}

/// The length beyond which attributes are cut, in bytes. 0 stands for no limit.
pub fn set_attribute_bytes_max(bytes: usize) {
    ATTRIBUTE_BYTES_MAX.store(bytes, Ordering::Relaxed);
}

/// The length beyond which attributes are cut, in bytes.
pub fn attribute_bytes_max() -> usize {
    match ATTRIBUTE_BYTES_MAX.load(Ordering::Relaxed) {
        0 => usize::MAX,
        bytes => bytes,
    }
}

/// Number of lines written so far.
pub fn lines_written() -> u64 {
    WRITTEN.load(Ordering::Relaxed)
}

/// The warnings of the start.
pub fn startup_warnings() -> Vec<String> {
    STARTUP_WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The newest lines, oldest first (`getLog: "global"`).
pub fn recent_lines() -> Vec<String> {
    RECENT.lock().unwrap_or_else(PoisonError::into_inner).lines.iter().cloned().collect()
}

/// The newest lines.
struct Recent {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Recent {
    /// Adds a line and drops the oldest ones beyond the limits. A line beyond the limit of all is dropped itself.
    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > limits::LOG_LINES_KEPT_MAX
            || self.bytes > limits::LOG_BYTES_KEPT_MAX
        {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
        }
    }
}

/// Attributes of a line, in order.
#[derive(Default)]
pub struct Attr {
    json: String,
    /// Members of the line's `truncated` and `size`.
    truncated: String,
    size: String,
}

impl Attr {
    /// No attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a string, cut to the limit of attributes.
    pub fn str(mut self, key: &str, value: impl AsRef<str>) -> Self {
        let value = value.as_ref();
        let kept = &value[..value.floor_char_boundary(attribute_bytes_max())];
        self.key(key);
        write_json_string(&mut self.json, kept);
        if kept.len() < value.len() {
            let what = format!("{{\"type\":\"string\",\"size\":{}}}", value.len());
            self.cut(key, &what, value.len());
        }
        self
    }

    /// Adds anything that prints as a JSON number or boolean.
    pub fn num(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.key(key);
        let _ = write!(self.json, "{value}");
        self
    }

    /// Adds ready JSON text.
    pub fn json(mut self, key: &str, value: impl AsRef<str>) -> Self {
        self.key(key);
        self.json.push_str(value.as_ref());
        self
    }

    /// Notes what an attribute lost to the limit: `truncated` is JSON that names the first value that is missing,
    /// `size` the attribute's length in bytes.
    pub fn cut(&mut self, key: &str, truncated: &str, size: usize) {
        write_key(&mut self.truncated, key);
        self.truncated.push_str(truncated);
        write_key(&mut self.size, key);
        let _ = write!(self.size, "{size}");
    }

    fn key(&mut self, key: &str) {
        write_key(&mut self.json, key);
    }
}

/// A member's name, behind those that are there.
fn write_key(members: &mut String, key: &str) {
    if !members.is_empty() {
        members.push(',');
    }
    write_json_string(members, key);
    members.push(':');
}

/// Writes one line. `component` is MongoDB's (`NETWORK`, `STORAGE`, `COMMAND`, `QUERY`, `INDEX`,
/// `CONTROL`, …), `id` a number of our own that never changes its meaning, `ctx` the thread or
/// session.
pub fn line(severity: Severity, component: &str, id: u32, ctx: &str, msg: &str, attr: Attr) {
    if !enabled(severity, component) {
        return;
    }
    let sink = SINK.read().unwrap_or_else(PoisonError::into_inner);
    let Some((sink, now)) = sink.as_ref() else { return };
    let mut text = String::with_capacity(160 + attr.json.len());
    text.push_str("{\"t\":{\"$date\":\"");
    write_iso_date(&mut text, now());
    text.push_str("\"},\"s\":\"");
    match severity {
        Severity::Fatal => text.push('F'),
        Severity::Error => text.push('E'),
        Severity::Warning => text.push('W'),
        Severity::Info => text.push('I'),
        Severity::Debug(level) => {
            let _ = write!(text, "D{level}");
        }
    }
    text.push_str("\",\"c\":");
    write_json_string(&mut text, component);
    let _ = write!(text, ",\"id\":{id},\"ctx\":");
    write_json_string(&mut text, ctx);
    text.push_str(",\"msg\":");
    write_json_string(&mut text, msg);
    let is_of_start = severity == Severity::Warning && ctx == STARTUP_CTX;
    write_members(&mut text, "attr", &attr.json);
    if is_of_start {
        text.push_str(",\"tags\":[\"startupWarnings\"]");
    }
    write_members(&mut text, "truncated", &attr.truncated);
    write_members(&mut text, "size", &attr.size);
    text.push('}');
    sink(severity, &text);
    WRITTEN.fetch_add(1, Ordering::Relaxed);
    if is_of_start {
        let mut warnings = STARTUP_WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.len() < STARTUP_WARNINGS_MAX {
            warnings.push(text.clone());
        }
    }
    RECENT.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

fn write_members(line: &mut String, name: &str, members: &str) {
    if !members.is_empty() {
        let _ = write!(line, ",\"{name}\":{{{members}}}");
    }
}

/// An information line.
pub fn info(component: &str, id: u32, ctx: &str, msg: &str, attr: Attr) {
    line(Severity::Info, component, id, ctx, msg, attr);
}

/// A warning line.
pub fn warning(component: &str, id: u32, ctx: &str, msg: &str, attr: Attr) {
    line(Severity::Warning, component, id, ctx, msg, attr);
}

/// An error line.
pub fn error(component: &str, id: u32, ctx: &str, msg: &str, attr: Attr) {
    line(Severity::Error, component, id, ctx, msg, attr);
}

/// `value` as a JSON string with its quotes, appended to `out`.
pub fn write_json_string(out: &mut String, value: &str) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// `2026-01-31T12:00:00.000+00:00`, as MongoDB prints times in its log.
pub fn write_iso_date(out: &mut String, unix_ms: i64) {
    let days = unix_ms.div_euclid(86_400_000);
    let ms = unix_ms.rem_euclid(86_400_000);
    let (year, month, day) = civil_from_days(days);
    let _ = write!(
        out,
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}+00:00",
        ms / 3_600_000,
        ms / 60_000 % 60,
        ms / 1000 % 60,
        ms % 1000
    );
}

/// Year, month and day of a day number since 1970 (Howard Hinnant, "chrono-compatible low-level
/// date algorithms", `civil_from_days`).
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    let year = yoe + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_print_as_mongod_prints_them() {
        let mut text = String::new();
        write_iso_date(&mut text, 1_769_860_800_123);
        assert_eq!(text, "2026-01-31T12:00:00.123+00:00");
        text.clear();
        write_iso_date(&mut text, -1);
        assert_eq!(text, "1969-12-31T23:59:59.999+00:00");
    }

    #[test]
    fn a_long_attribute_is_truncated_and_named() {
        let long = "é".repeat(limits::LOG_ATTRIBUTE_BYTES_MAX);
        let attr = Attr::new().str("a", "x").str("b", &long).num("c", 1).str("d", &long[2..]);
        let kept = "é".repeat(limits::LOG_ATTRIBUTE_BYTES_MAX / 2);
        assert_eq!(attr.json, format!("\"a\":\"x\",\"b\":\"{kept}\",\"c\":1,\"d\":\"{kept}\""));
        let (size, size_of_d) = (long.len(), long.len() - 2);
        assert_eq!(
            attr.truncated,
            format!(
                "\"b\":{{\"type\":\"string\",\"size\":{size}}},\"d\":{{\"type\":\"string\",\"size\":{size_of_d}}}"
            )
        );
        assert_eq!(attr.size, format!("\"b\":{size},\"d\":{size_of_d}"));
    }

    #[test]
    fn the_kept_lines_have_a_limit_in_number_and_in_bytes() {
        let mut recent = Recent { lines: VecDeque::new(), bytes: 0 };
        for n in 0..3 * limits::LOG_LINES_KEPT_MAX {
            recent.push(n.to_string());
        }
        assert_eq!(recent.lines.len(), limits::LOG_LINES_KEPT_MAX);
        assert_eq!(recent.lines[0], (2 * limits::LOG_LINES_KEPT_MAX).to_string());
        let long = "x".repeat(limits::LOG_BYTES_KEPT_MAX / 3);
        (0..7).for_each(|_| recent.push(long.clone()));
        assert_eq!((recent.lines.len(), recent.bytes), (3, 3 * long.len()));
        recent.push("y".repeat(limits::LOG_BYTES_KEPT_MAX + 1));
        assert_eq!((recent.lines.len(), recent.bytes), (0, 0));
    }

    #[test]
    fn strings_are_escaped() {
        let mut text = String::new();
        write_json_string(&mut text, "a\"b\\c\n\u{1}é");
        assert_eq!(text, "\"a\\\"b\\\\c\\n\\u0001é\"");
    }
}
