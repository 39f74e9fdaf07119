//! Units of time: names, addition, counting and truncation.

use super::civil::{Civil, DAY_MS, days_of_civil, iso_weekday, month_days};
use super::time_zone::TimeZone;
use kauri_base::{Result, bail};
use kauri_bson::Value;

/// A unit of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Unit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
}

impl Unit {
    /// The unit that an argument of this operator names.
    pub fn parse(operator: &str, value: &Value<'_>) -> Result<Unit> {
        let value = value.lossy();
        let Some(text) = value.as_str() else {
            bail!(
                5439013,
                "{operator} requires 'unit' to be a string, but got {}",
                value.type_name()
            );
        };
        Ok(match text {
            "year" => Unit::Year,
            "quarter" => Unit::Quarter,
            "month" => Unit::Month,
            "week" => Unit::Week,
            "day" => Unit::Day,
            "hour" => Unit::Hour,
            "minute" => Unit::Minute,
            "second" => Unit::Second,
            "millisecond" => Unit::Millisecond,
            _ => bail!(FailedToParse, "unknown time unit value: {text}"),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Year => "year",
            Unit::Quarter => "quarter",
            Unit::Month => "month",
            Unit::Week => "week",
            Unit::Day => "day",
            Unit::Hour => "hour",
            Unit::Minute => "minute",
            Unit::Second => "second",
            Unit::Millisecond => "millisecond",
        }
    }

    /// Milliseconds of the unit, if it is a week or shorter and so always as long.
    pub fn fixed_ms(self) -> Option<i64> {
        if self.months().is_some() { None } else { Some(self.ms()) }
    }

    /// Months of a unit that is a whole number of them.
    fn months(self) -> Option<i64> {
        match self {
            Unit::Year => Some(12),
            Unit::Quarter => Some(3),
            Unit::Month => Some(1),
            _ => None,
        }
    }

    /// Milliseconds of a unit that always has the same number of them.
    fn ms(self) -> i64 {
        match self {
            Unit::Week => 7 * DAY_MS,
            Unit::Hour => 3_600_000,
            Unit::Minute => 60_000,
            Unit::Second => 1000,
            Unit::Millisecond => 1,
            _ => DAY_MS,
        }
    }
}

/// 1 (Monday) to 7 (Sunday).
pub(crate) fn parse_start_of_week(operator: &str, value: &Value<'_>) -> Result<i64> {
    let value = value.lossy();
    let Some(text) = value.as_str() else {
        bail!(
            5439015,
            "{operator} requires 'startOfWeek' to be a string, but got {}",
            value.type_name()
        );
    };
    const DAYS: [&str; 7] =
        ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let lower = text.to_ascii_lowercase();
    let known = |day: &str| day == lower || day.get(..3) == Some(lower.as_str());
    match DAYS.iter().position(|day| known(day)) {
        Some(at) => Ok(at as i64 + 1),
        None => bail!(
            5439016,
            "{operator} parameter 'startOfWeek' value cannot be recognized as a day of a week: {text}"
        ),
    }
}

/// A date `amount` units later (or earlier).
pub(crate) fn add(ms: i64, unit: Unit, amount: i64, zone: &TimeZone) -> Result<i64> {
    // No amount leads from one representable date to another that is larger than this.
    const DAYS_MAX: i64 = 213_503_982_335;
    let most = match unit {
        Unit::Year => 584_942_417,
        Unit::Quarter => 584_942_417 * 4,
        Unit::Month => 584_942_417 * 12,
        Unit::Week => DAYS_MAX / 7,
        Unit::Day => DAYS_MAX,
        Unit::Hour => DAYS_MAX * 24,
        Unit::Minute => DAYS_MAX * 24 * 60,
        Unit::Second => DAYS_MAX * 24 * 3600,
        Unit::Millisecond => i64::MAX,
    };
    if amount.unsigned_abs() > most.unsigned_abs() && unit != Unit::Millisecond {
        bail!(5976500, "invalid dateAdd 'amount' parameter value: {amount} {}", unit.name());
    }
    let wide = i128::from(amount);
    let result = match unit {
        Unit::Year | Unit::Quarter | Unit::Month | Unit::Week | Unit::Day => {
            let local = Civil::of_ms(zone.local(ms));
            let moved = match unit.months() {
                Some(months) => add_months(local, amount * months).to_ms(),
                None => local.to_ms() + wide * i128::from(unit.ms()),
            };
            if amount == 0 { i128::from(ms) } else { zone.utc_of_local(moved) }
        }
        _ => i128::from(ms) + wide * i128::from(unit.ms()),
    };
    match i64::try_from(result) {
        Ok(ms) => Ok(ms),
        Err(_) => bail!(5166406, "dateAdd overflowed"),
    }
}

/// The same day of another month, or its last one.
fn add_months(from: Civil, months: i64) -> Civil {
    let total = from.year * 12 + from.month - 1 + months;
    let (year, month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
    Civil { year, month, day: from.day.min(month_days(year, month)), ..from }
}

/// Number of the unit's boundaries between two dates.
pub(crate) fn difference(
    start: i64,
    end: i64,
    unit: Unit,
    zone: &TimeZone,
    week: i64,
) -> Result<i64> {
    let (local_start, local_end) = (zone.local(start), zone.local(end));
    let (from, to) = (Civil::of_ms(local_start), Civil::of_ms(local_end));
    let day_of = |ms: i64| ms.div_euclid(DAY_MS);
    let count = match unit {
        Unit::Year => to.year - from.year,
        Unit::Quarter => (to.year - from.year) * 4 + (to.month - 1) / 3 - (from.month - 1) / 3,
        Unit::Month => (to.year - from.year) * 12 + to.month - from.month,
        Unit::Week => {
            // Days since the week's first day before 1970.
            let week_of = |ms: i64| (day_of(ms) + iso_weekday(0) - week).div_euclid(7);
            week_of(local_end) - week_of(local_start)
        }
        Unit::Day => day_of(local_end) - day_of(local_start),
        Unit::Hour | Unit::Minute => {
            let size = unit.ms();
            let seconds = size / 1000;
            let shift = (zone.offset_at(start) - zone.offset_at(end)) / seconds;
            local_end.div_euclid(size) - local_start.div_euclid(size) + shift
        }
        Unit::Second => end.div_euclid(1000) - start.div_euclid(1000),
        Unit::Millisecond => match end.checked_sub(start) {
            Some(count) => count,
            None => bail!(5166308, "dateDiff overflowed"),
        },
    };
    Ok(count)
}

/// The start of the bin that a date is in; bins are counted from 2000-01-01 in the zone.
pub(crate) fn truncate(ms: i64, unit: Unit, bin: i64, zone: &TimeZone, week: i64) -> Result<i64> {
    const REFERENCE_DAY: i64 = 10_957;
    let local = zone.local(ms);
    let result = match unit {
        Unit::Year | Unit::Quarter | Unit::Month => {
            if bin > 100_000_000_000 {
                bail!(5439006, "dateTrunc unsupported binSize value: {bin}");
            }
            let size = bin * unit.months().unwrap_or(1);
            let at = Civil::of_ms(local);
            let months = (at.year - 2000) * 12 + at.month - 1;
            let start = months.div_euclid(size) * size;
            let (year, month) = (2000 + start.div_euclid(12), start.rem_euclid(12) + 1);
            zone.utc_of_local(i128::from(days_of_civil(year, month, 1)) * i128::from(DAY_MS))
        }
        Unit::Week | Unit::Day => {
            if bin > 100_000_000_000 {
                bail!(5439003, "dateTrunc unsupported binSize value: {bin}");
            }
            let (size, reference) = match unit {
                Unit::Day => (bin, REFERENCE_DAY),
                // The first such weekday from 2000-01-01 on.
                _ => {
                    let skip = (week - iso_weekday(REFERENCE_DAY)).rem_euclid(7);
                    (bin * 7, REFERENCE_DAY + skip)
                }
            };
            let days = local.div_euclid(DAY_MS) - reference;
            let start = reference + days.div_euclid(size) * size;
            zone.utc_of_local(i128::from(start) * i128::from(DAY_MS))
        }
        _ => {
            let Some(size) = bin.checked_mul(unit.ms()) else {
                bail!(5439002, "dateTrunc unsupported binSize value: {bin}");
            };
            let reference = zone.utc_of_local(i128::from(REFERENCE_DAY) * i128::from(DAY_MS));
            let distance = i128::from(ms) - reference;
            reference + distance.div_euclid(i128::from(size)) * i128::from(size)
        }
    };
    match i64::try_from(result) {
        Ok(ms) => Ok(ms),
        Err(_) => bail!(5439005, "dateTrunc overflowed"),
    }
}
