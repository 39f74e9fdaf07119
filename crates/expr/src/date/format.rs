//! Format strings: `%Y-%m-%dT%H:%M:%S.%LZ`, for writing dates and for reading them.

use super::civil::{Civil, DAY_MS, days_of_civil, iso_weeks, iso_year_start, month_days};
use super::text::{Moment, Offset};
use super::time_zone::TimeZone;
use kauri_base::{Result, bail};
use std::fmt::Write as _;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The purpose of a format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Writing,
    Reading,
}

/// Checks the specifiers.
pub(crate) fn check(format: &str, usage: Use) -> Result<()> {
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            continue;
        }
        let Some(specifier) = chars.next() else {
            bail!(18535, "Unmatched '%' at end of format string");
        };
        let known = "dGHjLmMSuVYzZ%bB".contains(specifier)
            || (usage == Use::Writing && "Uw".contains(specifier));
        if !known {
            bail!(18536, "Invalid format character '%{specifier}' in format string");
        }
    }
    Ok(())
}

/// The default: with a `Z` where the zone is UTC.
pub(crate) fn iso(zone: &TimeZone) -> &'static str {
    if zone.is_utc() { "%Y-%m-%dT%H:%M:%S.%LZ" } else { "%Y-%m-%dT%H:%M:%S.%L" }
}

/// Writes a date by a checked format.
pub(crate) fn write(ms: i64, zone: &TimeZone, format: &str) -> Result<String> {
    let offset = zone.offset_at(ms);
    let at = Civil::of_ms(zone.local(ms));
    let mut out = String::with_capacity(format.len() + 16);
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let month = MONTHS.get(at.month as usize - 1).copied().unwrap_or_default();
        let written = match chars.next() {
            Some('Y') => write!(out, "{:04}", year_in_range(at.year)?),
            Some('m') => write!(out, "{:02}", at.month),
            Some('d') => write!(out, "{:02}", at.day),
            Some('H') => write!(out, "{:02}", at.hour),
            Some('M') => write!(out, "{:02}", at.minute),
            Some('S') => write!(out, "{:02}", at.second),
            Some('L') => write!(out, "{:03}", at.ms),
            Some('j') => write!(out, "{:03}", at.day_of_year()),
            Some('w') => write!(out, "{}", at.iso_weekday() % 7 + 1),
            Some('U') => write!(out, "{:02}", at.sunday_week()),
            Some('G') => write!(out, "{:04}", year_in_range(at.iso_week().0)?),
            Some('V') => write!(out, "{:02}", at.iso_week().1),
            Some('u') => write!(out, "{}", at.iso_weekday()),
            Some('b') => write!(out, "{}", month.get(..3).unwrap_or_default()),
            Some('B') => write!(out, "{month}"),
            Some('z') => {
                let (sign, size) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
                write!(out, "{sign}{:02}{:02}", size / 60, size % 60)
            }
            Some('Z') => write!(out, "{}", offset / 60),
            Some('%') => write!(out, "%"),
            _ => Ok(()),
        };
        // Writing to a string does not fail.
        let _ = written;
    }
    Ok(out)
}

fn year_in_range(year: i64) -> Result<i64> {
    if !(0..=9999).contains(&year) {
        bail!(18537, "$dateToString is only defined on year 0-9999, tried to use year {year}");
    }
    Ok(year)
}

/// The result of a format so far.
#[derive(Default)]
struct Read {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    hour: Option<i64>,
    minute: Option<i64>,
    second: Option<i64>,
    ms: Option<i64>,
    offset: Option<Offset>,
}

/// Reads a date by a checked format; an error says in words what does not fit.
pub(crate) fn read(text: &str, format: &str) -> Result<Moment, String> {
    let mut read = Read::default();
    let mut rest = text;
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            rest = rest.strip_prefix(c).ok_or_else(|| "Format literal not found".to_owned())?;
            continue;
        }
        let specifier = chars.next().unwrap_or('%');
        rest = read_one(specifier, rest, &mut read)
            .ok_or_else(|| format!("no match for %{specifier} at '{rest}'"))?;
    }
    if !rest.is_empty() {
        return Err("Trailing data".to_owned());
    }
    read.finish()
}

fn read_one<'t>(specifier: char, rest: &'t str, read: &mut Read) -> Option<&'t str> {
    let (slot, least, most) = match specifier {
        'Y' => (&mut read.year, 4, 4),
        'm' => (&mut read.month, 1, 2),
        'd' => (&mut read.day, 1, 2),
        'H' => (&mut read.hour, 1, 2),
        'M' => (&mut read.minute, 1, 2),
        'S' => (&mut read.second, 1, 2),
        'L' => return read_fraction(rest, read),
        'j' => (&mut read.day_of_year, 1, 3),
        'G' => (&mut read.iso_year, 4, 4),
        'V' => (&mut read.iso_week, 1, 2),
        'u' => (&mut read.iso_day, 1, 1),
        'b' | 'B' => {
            let (month, rest) = super::text::month_name(rest)?;
            read.month = Some(month);
            return Some(rest);
        }
        'z' => {
            let (offset, rest) = super::text::offset(rest)?;
            read.offset = Some(offset);
            return Some(rest);
        }
        'Z' => {
            let (sign, digits) = match rest.strip_prefix('-') {
                Some(digits) => (-1, digits),
                None => (1, rest.strip_prefix('+').unwrap_or(rest)),
            };
            let (minutes, rest) = digits_of(digits, 1, 4)?;
            read.offset = Some(Offset::Seconds(sign * minutes * 60));
            return Some(rest);
        }
        _ => return rest.strip_prefix('%'),
    };
    let (number, rest) = digits_of(rest, least, most)?;
    *slot = Some(number);
    Some(rest)
}

fn digits_of(text: &str, least: usize, most: usize) -> Option<(i64, &str)> {
    let count = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    if count < least {
        return None;
    }
    let (digits, rest) = text.split_at(count);
    Some((digits.parse().ok()?, rest))
}

/// Up to three digits are a fraction of a second: `.5` is 500 ms.
fn read_fraction<'t>(rest: &'t str, read: &mut Read) -> Option<&'t str> {
    let (number, behind) = digits_of(rest, 1, 3)?;
    let count = rest.len() - behind.len();
    read.ms = Some(number * 10i64.pow(3 - count as u32));
    Some(behind)
}

impl Read {
    fn finish(self) -> Result<Moment, String> {
        let iso = self.iso_year.is_some() || self.iso_week.is_some() || self.iso_day.is_some();
        let calendar = self.year.is_some() || self.month.is_some() || self.day.is_some();
        if iso && (calendar || self.day_of_year.is_some()) {
            return Err("Mixing of ISO dates with natural dates is not allowed".to_owned());
        }
        let days = if iso {
            let year = self.iso_year.ok_or("an ISO year is missing")?;
            let (week, day) = (self.iso_week.unwrap_or(1), self.iso_day.unwrap_or(1));
            if !(1..=iso_weeks(year)).contains(&week) || !(1..=7).contains(&day) {
                return Err("The ISO week or day is out of range".to_owned());
            }
            iso_year_start(year) + (week - 1) * 7 + day - 1
        } else {
            let missing = || {
                "an incomplete date/time string has been found, with elements missing".to_owned()
            };
            let year = self.year.ok_or_else(missing)?;
            match (self.day_of_year, self.month, self.day) {
                (Some(day), None, None) => {
                    if day < 1 || day > 365 + i64::from(super::civil::is_leap(year)) {
                        return Err("The day of the year is out of range".to_owned());
                    }
                    // Counted from 0 here, where writing counts from 1: as MongoDB has it.
                    days_of_civil(year, 1, 1) + day
                }
                (_, Some(month), Some(day)) => {
                    if !(1..=12).contains(&month) || !(1..=month_days(year, month)).contains(&day) {
                        return Err("The parsed date was invalid".to_owned());
                    }
                    days_of_civil(year, month, day)
                }
                _ => return Err(missing()),
            }
        };
        let (hour, minute) = (self.hour.unwrap_or(0), self.minute.unwrap_or(0));
        let (second, ms) = (self.second.unwrap_or(0), self.ms.unwrap_or(0));
        if hour > 23 || minute > 59 || second > 59 {
            return Err("The parsed time was invalid".to_owned());
        }
        let time = ((hour * 60 + minute) * 60 + second) * 1000 + ms;
        Ok(Moment { local: days * DAY_MS + time, offset: self.offset })
    }
}
