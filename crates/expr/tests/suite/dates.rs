//! Dates.

use crate::cases;

#[test]
fn parts() {
    cases! {
        "{$year: '$d'}", "{d: Date(1718454645123)}" => "2024";
        "{$month: Date(1718454645123)}" => "6";
        "{$dayOfMonth: Date(1718454645123)}" => "15";
        "{$dayOfWeek: Date(1718454645123)}" => "7";
        "{$dayOfYear: Date(1718454645123)}" => "167";
        "{$hour: {date: Date(1718454645123), timezone: 'America/New_York'}}" => "8";
        "{$minute: {date: Date(1718454645123), timezone: '+05:45'}}" => "15";
        "{$second: Date(1718454645123)}" => "45";
        "{$millisecond: Date(-1)}" => "999";
        "{$week: Date(1718454645123)}" => "23";
        "{$isoWeek: Date(1718454645123)}" => "24";
        "{$isoWeekYear: Date(1609459200000)}" => "2020L";
        "{$isoDayOfWeek: [Date(1718454645123)]}" => "6";
        "{$year: Id('666d9c000000000000000000')}" => "2024";
        "{$year: Time(1718454645, 1)}" => "2024";
        "{$year: Date(9223372036854775807)}" => "292278994";
        "{$year: null}" => "null";
        "{$year: {date: Date(0), timezone: null}}" => "null";
        "{$year: 'x'}" => 16006;
        "{$year: [Date(0), Date(0)]}" => 40536;
        "{$year: {timezone: 'UTC'}}" => 40539;
        "{$year: {date: Date(0), zone: 'UTC'}}" => 40535;
        "{$year: {date: '$d', timezone: 'Nowhere/City'}}" => 40485;
        "{$year: {date: Date(0), timezone: 1}}" => 40517;
        "{$dateToParts: {date: Date(1718454645123)}}"
            => "{year: 2024, month: 6, day: 15, hour: 12, minute: 30, second: 45, millisecond: 123}";
        "{$dateToParts: {date: Date(1609459200000), iso8601: true}}"
            => "{isoWeekYear: 2020, isoWeek: 53, isoDayOfWeek: 5, hour: 0, minute: 0, second: 0, millisecond: 0}";
        "{$dateToParts: {date: Date(0), iso8601: 1}}" => 40521;
        "{$dateFromParts: {year: 2024, month: 14, day: -1}}" => "Date(1738195200000)";
        "{$dateFromParts: {isoWeekYear: 2024, isoWeek: 24, isoDayOfWeek: 6}}" => "Date(1718409600000)";
        "{$dateFromParts: {year: 2024, timezone: 'Asia/Tokyo'}}" => "Date(1704034800000)";
        "{$dateFromParts: {year: 10000}}" => 40523;
        "{$dateFromParts: {year: 2024, isoWeek: 1}}" => 40489;
        "{$dateFromParts: {isoWeekYear: 2024, month: 1}}" => 40525;
        "{$dateFromParts: {month: 1}}" => 40516;
        "{$dateFromParts: {year: 2024, month: 1.5}}" => 40515;
        "{$dateFromParts: {year: 2024, month: null}}" => "null";
    }
}

#[test]
fn texts() {
    cases! {
        "{$dateToString: {date: Date(1718454645123)}}" => "'2024-06-15T12:30:45.123Z'";
        "{$dateToString: {date: Date(1718454645123), timezone: 'Europe/Berlin'}}"
            => "'2024-06-15T14:30:45.123'";
        "{$dateToString: {date: Date(1718454645123), format: '%d/%m/%Y %H:%M:%S.%L %j %u %w %U %V %G %b %B %% %z %Z', timezone: '-03:30'}}"
            => "'15/06/2024 09:00:45.123 167 6 7 23 24 2024 Jun June % -0330 -210'";
        "{$dateToString: {date: null, onNull: 'none'}}" => "'none'";
        "{$dateToString: {date: Date(0), format: '%x'}}" => 18536;
        "{$dateToString: {date: Date(0), format: '%'}}" => 18535;
        "{$dateToString: {date: Date(0), format: 1}}" => 18533;
        "{$dateToString: {date: Date(253402300800000), format: '%Y'}}" => 18537;
        "{$dateToString: {format: '%Y'}}" => 18628;
        "{$dateFromString: {dateString: '2024-06-15T12:30:45.123Z'}}" => "Date(1718454645123)";
        "{$dateFromString: {dateString: '2024-06-15', timezone: 'America/New_York'}}"
            => "Date(1718424000000)";
        "{$dateFromString: {dateString: '15.06.2024', format: '%d.%m.%Y'}}" => "Date(1718409600000)";
        "{$dateFromString: {dateString: '2024-24-6', format: '%G-%V-%u'}}" => "Date(1718409600000)";
        "{$dateFromString: {dateString: '2024-06-15 +0530', format: '%Y-%m-%d %z'}}"
            => "Date(1718389800000)";
        "{$dateFromString: {dateString: '2024', format: '%Y'}}" => 241;
        "{$dateFromString: {dateString: 'x', onError: 'bad'}}" => "'bad'";
        "{$dateFromString: {dateString: 1, onError: 'bad'}}" => "'bad'";
        "{$dateFromString: {dateString: null, onNull: 'none'}}" => "'none'";
        "{$dateFromString: {dateString: '2024-06-15T00:00:00+02:00', timezone: 'Europe/Berlin'}}" => 241;
        "{$dateFromString: {dateString: '2024-02-30'}}" => 241;
        "{$dateFromString: {dateString: '2024', format: '%Q'}}" => 18536;
        "{$dateFromString: {dateString: '2024', format: 1}}" => 40684;
    }
}

#[test]
fn calendar_arithmetic() {
    cases! {
        "{$dateAdd: {startDate: Date(1706659200000), unit: 'month', amount: 1}}" => "Date(1709164800000)";
        "{$dateAdd: {startDate: Date(1706659200000), unit: 'year', amount: -1L}}" => "Date(1675123200000)";
        "{$dateSubtract: {startDate: Date(1000), unit: 'second', amount: 1}}" => "Date(0)";
        "{$dateAdd: {startDate: Date(1710003600000), unit: 'day', amount: 1, timezone: 'America/New_York'}}"
            => "Date(1710086400000)";
        "{$dateAdd: {startDate: Date(0), unit: 'day', amount: 1.5}}" => 5166405;
        "{$dateAdd: {startDate: Date(0), unit: 'days', amount: 1}}" => 9;
        "{$dateAdd: {startDate: 'x', unit: 'day', amount: 1}}" => 5166403;
        "{$dateAdd: {startDate: Date(0), unit: 'year', amount: 9999999999L}}" => 5976500;
        "{$dateAdd: {startDate: Date(9223372036854775807), unit: 'day', amount: 1}}" => 5166406;
        "{$dateSubtract: {startDate: Date(0), unit: 'day', amount: -9223372036854775808L}}" => 6045000;
        "{$dateAdd: {startDate: Date(0), unit: null, amount: 1}}" => "null";
        "{$dateDiff: {startDate: Date(1703980800000), endDate: Date(1704067200000), unit: 'year'}}" => "1L";
        "{$dateDiff: {startDate: Date(1704067200000), endDate: Date(1703980800000), unit: 'month'}}" => "-1L";
        "{$dateDiff: {startDate: Date(1718409600000), endDate: Date(1718496000000), unit: 'week'}}" => "1L";
        "{$dateDiff: {startDate: Date(1718409600000), endDate: Date(1718496000000), unit: 'week', startOfWeek: 'mon'}}"
            => "0L";
        "{$dateDiff: {startDate: Date(1710050400000), endDate: Date(1710057600000), unit: 'hour', timezone: 'America/New_York'}}"
            => "2L";
        "{$dateDiff: {startDate: Date(0), endDate: 'x', unit: 'day'}}" => 5166307;
        "{$dateDiff: {startDate: Date(0), endDate: Date(0), unit: 'week', startOfWeek: 'x'}}" => 5439016;
        "{$dateTrunc: {date: Date(1718454645123), unit: 'month'}}" => "Date(1717200000000)";
        "{$dateTrunc: {date: Date(1718454645123), unit: 'hour', binSize: 6}}" => "Date(1718452800000)";
        "{$dateTrunc: {date: Date(1718454645123), unit: 'week', startOfWeek: 'monday'}}" => "Date(1717977600000)";
        "{$dateTrunc: {date: Date(1718454645123), unit: 'day', timezone: 'Asia/Tokyo'}}" => "Date(1718377200000)";
        "{$dateTrunc: {date: Date(1718454645123), unit: 'quarter', binSize: 2}}" => "Date(1704067200000)";
        "{$dateTrunc: {date: Date(0), unit: 'day', binSize: 0}}" => 5439018;
        "{$dateTrunc: {date: Date(0), unit: 'day', binSize: 'x'}}" => 5439017;
        "{$dateTrunc: {date: Date(0), unit: 'year', binSize: 100000000001L}}" => 5439006;
    }
}

#[test]
fn timestamps() {
    cases! {
        "{$tsSecond: Time(5, 7)}" => "5L";
        "{$tsIncrement: Time(5, 7)}" => "7L";
        "{$tsSecond: 1}" => 5687301;
        "{$tsIncrement: Date(0)}" => 5687302;
    }
}
