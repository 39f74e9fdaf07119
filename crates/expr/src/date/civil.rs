//! The proleptic Gregorian calendar, days since 1970, ISO weeks.

/// Milliseconds of a day.
pub(crate) const DAY_MS: i64 = 86_400_000;

/// A point on the calendar and the clock, without a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Civil {
    pub year: i64,
    /// 1 to 12
    pub month: i64,
    /// 1 to 31
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    pub ms: i64,
}

impl Civil {
    /// The point at this many milliseconds since 1970.
    pub fn of_ms(ms: i64) -> Civil {
        let (days, rest) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
        let (year, month, day) = civil_of_days(days);
        Civil {
            year,
            month,
            day,
            hour: rest / 3_600_000,
            minute: rest / 60_000 % 60,
            second: rest / 1000 % 60,
            ms: rest % 1000,
        }
    }

    /// Days since 1970.
    pub fn days(self) -> i64 {
        days_of_civil(self.year, self.month, self.day)
    }

    /// Milliseconds since 1970, in a type wide enough for any input.
    pub fn to_ms(self) -> i128 {
        i128::from(self.days()) * i128::from(DAY_MS)
            + i128::from(self.hour) * 3_600_000
            + i128::from(self.minute) * 60_000
            + i128::from(self.second) * 1000
            + i128::from(self.ms)
    }

    /// 1 to 366
    pub fn day_of_year(self) -> i64 {
        self.days() - days_of_civil(self.year, 1, 1) + 1
    }

    /// 1 (Monday) to 7 (Sunday)
    pub fn iso_weekday(self) -> i64 {
        iso_weekday(self.days())
    }

    /// The ISO year and week.
    pub fn iso_week(self) -> (i64, i64) {
        let week = (self.day_of_year() - self.iso_weekday() + 10) / 7;
        if week < 1 {
            (self.year - 1, iso_weeks(self.year - 1))
        } else if week > iso_weeks(self.year) {
            (self.year + 1, 1)
        } else {
            (self.year, week)
        }
    }

    /// The week of the year, weeks beginning on Sundays; days before the first one are in week 0.
    pub fn sunday_week(self) -> i64 {
        let weekday = self.iso_weekday() % 7;
        (self.day_of_year() - weekday + 6) / 7
    }
}

/// 1 (Monday) to 7 (Sunday) of a day since 1970, which was a Thursday.
pub(crate) fn iso_weekday(days: i64) -> i64 {
    (days + 3).rem_euclid(7) + 1
}

/// Weeks of an ISO year: 53 if it begins or ends with a Thursday.
pub(crate) fn iso_weeks(year: i64) -> i64 {
    let first = iso_weekday(days_of_civil(year, 1, 1));
    let last = iso_weekday(days_of_civil(year, 12, 31));
    if first == 4 || last == 4 { 53 } else { 52 }
}

/// The Monday that an ISO year begins with, in days since 1970.
pub(crate) fn iso_year_start(year: i64) -> i64 {
    let fourth = days_of_civil(year, 1, 4);
    fourth - (iso_weekday(fourth) - 1)
}

pub(crate) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// 28 to 31
pub(crate) fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 of a date; day 0 and below, and above the month's end, count on.
pub(crate) fn days_of_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last one.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day since 1970.
pub(crate) fn civil_of_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// `2024-06-15T12:30:45.123Z`
pub(crate) fn iso_text(ms: i64) -> String {
    let c = Civil::of_ms(ms);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        c.year, c.month, c.day, c.hour, c.minute, c.second, c.ms
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_some_centuries_goes_there_and_back() {
        let mut previous = civil_of_days(-800_001);
        for days in -800_000..=800_000 {
            let (year, month, day) = civil_of_days(days);
            assert_eq!(days_of_civil(year, month, day), days);
            let next = match previous {
                (y, m, d) if d < month_days(y, m) => (y, m, d + 1),
                (y, 12, _) => (y + 1, 1, 1),
                (y, m, _) => (y, m + 1, 1),
            };
            assert_eq!((year, month, day), next);
            previous = next;
        }
        for ms in [i64::MIN, i64::MAX, 0, -1] {
            assert_eq!(Civil::of_ms(ms).to_ms(), i128::from(ms));
        }
    }

    #[test]
    fn weeks() {
        // date, ISO year, ISO week, ISO weekday, week from Sunday
        let cases = [
            ((2021, 1, 1), 2020, 53, 5, 0),
            ((2021, 1, 3), 2020, 53, 7, 1),
            ((2021, 1, 4), 2021, 1, 1, 1),
            ((2018, 12, 31), 2019, 1, 1, 52),
            ((2017, 1, 1), 2016, 52, 7, 1),
            ((1970, 1, 1), 1970, 1, 4, 0),
            ((2016, 12, 31), 2016, 52, 6, 52),
        ];
        for ((year, month, day), iso_year, week, weekday, sunday) in cases {
            let ms = days_of_civil(year, month, day) * DAY_MS;
            let civil = Civil::of_ms(ms);
            assert_eq!(civil.iso_week(), (iso_year, week), "{civil:?}");
            assert_eq!(civil.iso_weekday(), weekday, "{civil:?}");
            assert_eq!(civil.sunday_week(), sunday, "{civil:?}");
            assert_eq!(iso_year_start(iso_year) + (week - 1) * 7 + weekday - 1, civil.days());
        }
    }
}
