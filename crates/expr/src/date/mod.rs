//! Dates: the civil calendar, time zones, units, formats.
//!
//! A date is milliseconds since 1970 in a long; calendar arithmetic is done in wide integers, so
//! that every long has its year, month and day.

pub(crate) mod civil;
pub(crate) mod format;
pub(crate) mod text;
pub(crate) mod time_zone;
pub(crate) mod unit;
