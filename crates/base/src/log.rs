//! Log lines in MongoDB's structured form: one JSON object a line.
//!
//! `{"t":{"$date":"…"},"s":"I","c":"NETWORK","id":22943,"ctx":"listener","msg":"…","attr":{…}}`
//! (manual, "Log Messages"). Attributes are given as JSON text by [`Attr`]. Where lines go is the
//! server's business: it installs a sink; until then they are dropped.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

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
static RAMLOG: OnceLock<std::sync::Mutex<std::collections::VecDeque<String>>> = OnceLock::new();
const RAMLOG_LINES_MAX: usize = 1024;

static WRITTEN: AtomicU64 = AtomicU64::new(0);
/// Warnings of the start, which `getLog: "startupWarnings"` shows however much came after.
static STARTUP_WARNINGS: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
const STARTUP_WARNINGS_MAX: usize = 128;
/// The context of lines of the start.
pub const STARTUP_CTX: &str = "initandlisten";
static VERBOSITY: AtomicU8 = AtomicU8::new(0);

/// Lets debug lines up to this level through.
pub fn set_verbosity(level: u8) {
    VERBOSITY.store(level, Ordering::Relaxed);
}

/// Whether lines of this severity are written.
#[inline]
pub fn enabled(severity: Severity) -> bool {
    match severity {
        Severity::Debug(level) => level <= VERBOSITY.load(Ordering::Relaxed),
        _ => true,
    }
}

/// Sends all further lines to `sink`, with the times that `now` gives.
pub fn install(sink: Sink, now: TimeSource) {
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = Some((sink, now));
}

/// How many lines were ever written.
pub fn lines_written() -> u64 {
    WRITTEN.load(Ordering::Relaxed)
}

/// The warnings of the start.
pub fn startup_warnings() -> Vec<String> {
    STARTUP_WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The newest lines, oldest first (`getLog: "global"`).
pub fn recent_lines() -> Vec<String> {
    let ring = RAMLOG.get_or_init(Default::default);
    ring.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

/// Attributes of a line, in order.
#[derive(Default)]
pub struct Attr {
    json: String,
}

impl Attr {
    /// No attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a string.
    pub fn str(mut self, key: &str, value: impl AsRef<str>) -> Self {
        self.key(key);
        write_json_string(&mut self.json, value.as_ref());
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

    fn key(&mut self, key: &str) {
        if !self.json.is_empty() {
            self.json.push(',');
        }
        write_json_string(&mut self.json, key);
        self.json.push(':');
    }
}

/// Writes one line. `component` is MongoDB's (`NETWORK`, `STORAGE`, `COMMAND`, `QUERY`, `INDEX`,
/// `CONTROL`, …), `id` a number of our own that never changes its meaning, `ctx` the thread or
/// session.
pub fn line(severity: Severity, component: &str, id: u32, ctx: &str, msg: &str, attr: Attr) {
    if !enabled(severity) {
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
    if !attr.json.is_empty() {
        text.push_str(",\"attr\":{");
        text.push_str(&attr.json);
        text.push('}');
    }
    text.push('}');
    sink(severity, &text);
    WRITTEN.fetch_add(1, Ordering::Relaxed);
    if severity == Severity::Warning && ctx == STARTUP_CTX {
        let mut warnings = STARTUP_WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.len() < STARTUP_WARNINGS_MAX {
            warnings.push(text.clone());
        }
    }
    let mut ring =
        RAMLOG.get_or_init(Default::default).lock().unwrap_or_else(PoisonError::into_inner);
    if ring.len() == RAMLOG_LINES_MAX {
        ring.pop_front();
    }
    ring.push_back(text);
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
    fn strings_are_escaped() {
        let mut text = String::new();
        write_json_string(&mut text, "a\"b\\c\n\u{1}é");
        assert_eq!(text, "\"a\\\"b\\\\c\\n\\u0001é\"");
    }
}
