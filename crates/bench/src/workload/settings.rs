//! CoreWorkload's properties, by their own names and with their own defaults.
//!
//! Text is converted to numbers here, once, and inconsistent settings are refused with the property's name.
//! Invariant: a `Settings` can be run: no range is empty, no proportion is missing. This module must not know
//! threads or random numbers.
//!
//! Stricter than YCSB, which misinterprets the value or fails later: booleans are `true` or `false`, `insertorder`
//! is `hashed` or `ordered`, fractions are from 0 to 1, proportions are not negative and not all 0, and there is at
//! least one record, field and length to choose from. Settings of YCSB's client and of bindings (`threadcount`,
//! `target`, `mongodb.url`, …) are not read here: the code that drives the workload reads them, and
//! [`Properties::unused`] lists the rest.

use super::generator::{Discrete, Every, Histogram, Hotspot, Length, Uniform, Zipfian};
use super::properties::Properties;
use super::record::{InsertOrder, KeyNames};
use kauri_base::{Error, Result};
use std::time::Duration;

/// What kind an operation of the transaction phase is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `READ`.
    Read,
    /// `UPDATE`.
    Update,
    /// `INSERT`.
    Insert,
    /// `SCAN`.
    Scan,
    /// `READMODIFYWRITE`.
    ReadModifyWrite,
}

/// By what records are chosen (`requestdistribution`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Request {
    /// `uniform`.
    Uniform,
    /// `zipfian`, scrambled.
    Zipfian,
    /// `latest`.
    Latest,
    /// `hotspot`.
    Hotspot,
    /// `movinghotspot`, ours: the hot set of `hotspot` moves by so many records each time
    /// (`movinghotspot.records`, by default all of the hot set, after `movinghotspot.operations` or
    /// `movinghotspot.millis`).
    MovingHotspot {
        /// How far; by default, all of the hot set.
        step: Option<i64>,
        /// When.
        every: Every,
    },
    /// `exponential`.
    Exponential,
    /// `sequential`.
    Sequential,
}

/// What a record is (`kauri.store`, ours).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Store {
    /// `documents`.
    Documents,
    /// `gridfs`: a file of one field's value, which is read as a whole, and written once.
    Files,
}

/// A workload's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What a record is.
    pub store: Store,
    /// The table, or collection (`table`).
    pub table: String,
    /// The fields' names (`fieldcount`, `fieldnameprefix`).
    pub fields: Vec<String>,
    /// How long values are (`fieldlengthdistribution`, `fieldlength`, `minfieldlength`,
    /// `fieldlengthhistogram`).
    pub field_length: Length,
    /// Whether reads and scans take all fields, or one (`readallfields`).
    pub read_all_fields: bool,
    /// Whether reads of all fields name them (`readallfieldsbyname`, of YCSB after 0.17.0).
    pub read_all_fields_by_name: bool,
    /// Whether updates write all fields, or one (`writeallfields`).
    pub write_all_fields: bool,
    /// Whether values are a function of key and field, so that they can be verified (`dataintegrity`).
    pub data_integrity: bool,
    /// Operations by their proportions (`readproportion` and so on).
    pub mix: Discrete<Kind>,
    /// `insertproportion`.
    pub insert_proportion: f64,
    /// `requestdistribution`.
    pub request: Request,
    /// `hotspotdatafraction`.
    pub hotspot_data_fraction: f64,
    /// `hotspotopnfraction`.
    pub hotspot_operation_fraction: f64,
    /// `exponential.percentile`.
    pub exponential_percentile: f64,
    /// `exponential.frac`.
    pub exponential_fraction: f64,
    /// How many records a scan reads (`scanlengthdistribution`, `minscanlength`, `maxscanlength`).
    pub scan_length: Length,
    /// `insertorder` and `zeropadding`.
    pub keys: KeyNames,
    /// Records when the transaction phase begins (`recordcount`): inserts go on from there.
    pub records: i64,
    /// Whether `recordcount` was given: without it YCSB's client loads until it is stopped.
    pub records_given: bool,
    /// The first record that is loaded and asked for (`insertstart`).
    pub insert_start: i64,
    /// How many of them (`insertcount`).
    pub insert_count: i64,
    /// Operations of the transaction phase, of all threads together (`operationcount`); 0 is without end.
    pub operations: i64,
    /// How often a failed insert of the load is tried again (`core_workload_insertion_retry_limit`).
    pub insert_retries_max: i64,
    /// How long to wait before, a fifth more or less (`core_workload_insertion_retry_interval`).
    pub insert_retry_interval: Duration,
}

/// Java's Integer.MAX_VALUE.
const INT_MAX: i64 = i32::MAX as i64;
/// As many fields as make sense: their names are kept.
const FIELDS_MAX: i64 = 1_000_000;
/// More records than anyone has, with room to count on.
const RECORDS_MAX: i64 = 1 << 60;

impl Settings {
    /// Of these properties.
    pub fn of(properties: &Properties) -> Result<Settings> {
        check_class(properties)?;
        let proportions = proportions(properties)?;
        let insert_proportion = proportions[2].0;
        let proportions_of_changes = proportions[1].0 + proportions[3].0 + proportions[4].0;
        let mix = Discrete::new(proportions).ok_or_else(|| {
            Error::bad_value(
                "readproportion, updateproportion, insertproportion, scanproportion and \
                 readmodifywriteproportion are all 0: at least one has to be above 0",
            )
        })?;
        let prefix = properties.text("fieldnameprefix", "field");
        let count = properties.whole("fieldcount", 10, 1, FIELDS_MAX)?;
        let data_integrity = properties.truth("dataintegrity", false)?;
        if data_integrity && !prefix.is_ascii() {
            return Err(properties.wrong("fieldnameprefix", "ASCII with dataintegrity=true"));
        }
        let records_given = properties.whole_if_set("recordcount", 0, RECORDS_MAX)?.unwrap_or(0);
        let records = if records_given == 0 { INT_MAX } else { records_given };
        let insert_start = properties.whole("insertstart", 0, 0, records - 1)?;
        let most = records - insert_start;
        let seconds = properties.whole("core_workload_insertion_retry_interval", 3, 0, INT_MAX)?;
        let settings = Settings {
            store: store(properties, count, proportions_of_changes)?,
            table: properties.text("table", "usertable"),
            fields: (0..count).map(|number| format!("{prefix}{number}")).collect(),
            field_length: field_length(properties, data_integrity)?,
            read_all_fields: properties.truth("readallfields", true)?,
            read_all_fields_by_name: properties.truth("readallfieldsbyname", false)?,
            write_all_fields: properties.truth("writeallfields", false)?,
            data_integrity,
            mix,
            insert_proportion,
            request: request(properties)?,
            hotspot_data_fraction: properties.number("hotspotdatafraction", 0.2, 0.0, 1.0)?,
            hotspot_operation_fraction: properties.number("hotspotopnfraction", 0.8, 0.0, 1.0)?,
            exponential_percentile: percentile(properties)?,
            exponential_fraction: fraction(properties)?,
            scan_length: scan_length(properties)?,
            keys: key_names(properties)?,
            records,
            records_given: records_given > 0,
            insert_start,
            insert_count: properties.whole("insertcount", most, 1, most)?,
            operations: properties.whole("operationcount", 0, 0, i64::MAX)?,
            insert_retries_max: properties.whole(
                "core_workload_insertion_retry_limit",
                0,
                0,
                INT_MAX,
            )?,
            insert_retry_interval: Duration::from_secs(seconds.unsigned_abs()),
        };
        if settings.request == Request::Zipfian && properties.get("operationcount").is_none() {
            let text = "requestdistribution=zipfian needs operationcount: the keys that will be inserted \
                        are part of the distribution from the beginning";
            return Err(Error::bad_value(text));
        }
        settings.hotspot(properties).map(|_| settings)
    }

    /// The hot set, if there is one that can be drawn from.
    fn hotspot(&self, properties: &Properties) -> Result<Option<Hotspot>> {
        if !matches!(self.request, Request::Hotspot | Request::MovingHotspot { .. }) {
            return Ok(None);
        }
        match self.hot_set() {
            Some(hotspot) => Ok(Some(hotspot)),
            None => {
                let name = "hotspotdatafraction";
                let right = format!(
                    "a fraction that leaves hot and cold ones among {} records",
                    self.insert_count
                );
                Err(properties.get(name).map_or_else(
                    || Error::bad_value(format!("property '{name}' must be {right}")),
                    |_| properties.wrong(name, &right),
                ))
            }
        }
    }

    /// The hot set that `hotspotdatafraction` and `hotspotopnfraction` make of the records.
    pub fn hot_set(&self) -> Option<Hotspot> {
        Hotspot::new(
            self.insert_start,
            self.insert_start + self.insert_count - 1,
            self.hotspot_data_fraction,
            self.hotspot_operation_fraction,
        )
    }
}

/// Files have one field, and are not changed in place.
fn store(properties: &Properties, fields: i64, changes: f64) -> Result<Store> {
    let stores = [("documents", Store::Documents), ("gridfs", Store::Files)];
    let store = properties.one_of("kauri.store", Store::Documents, &stores)?;
    if store == Store::Files && (fields != 1 || changes > 0.0) {
        return Err(Error::bad_value(
            "kauri.store=gridfs needs fieldcount=1, and updateproportion, scanproportion and \
             readmodifywriteproportion 0: a file is read as a whole, and written once",
        ));
    }
    Ok(store)
}

/// The class that YCSB would load.
fn check_class(properties: &Properties) -> Result<()> {
    const CLASS: &str = "site.ycsb.workloads.CoreWorkload";
    /// Its name in YCSB before 0.16.
    const OLD: &str = "com.yahoo.ycsb.workloads.CoreWorkload";
    properties.one_of("workload", (), &[(CLASS, ()), (OLD, ())])
}

fn proportions(properties: &Properties) -> Result<[(f64, Kind); 5]> {
    let of = |name, otherwise| properties.number(name, otherwise, 0.0, f64::INFINITY);
    Ok([
        (of("readproportion", 0.95)?, Kind::Read),
        (of("updateproportion", 0.05)?, Kind::Update),
        (of("insertproportion", 0.0)?, Kind::Insert),
        (of("scanproportion", 0.0)?, Kind::Scan),
        (of("readmodifywriteproportion", 0.0)?, Kind::ReadModifyWrite),
    ])
}

fn key_names(properties: &Properties) -> Result<KeyNames> {
    let orders = [("hashed", InsertOrder::Hashed), ("ordered", InsertOrder::Ordered)];
    Ok(KeyNames {
        order: properties.one_of("insertorder", InsertOrder::Hashed, &orders)?,
        digits_min: properties.whole("zeropadding", 1, 0, 1000)?.unsigned_abs() as usize,
    })
}

fn field_length(properties: &Properties, data_integrity: bool) -> Result<Length> {
    const NAME: &str = "fieldlengthdistribution";
    let max = properties.whole("fieldlength", 100, 0, INT_MAX)?;
    let min = properties.whole("minfieldlength", 1, 0, INT_MAX)?;
    let file = properties.text("fieldlengthhistogram", "hist.txt");
    let words = [("constant", 0), ("uniform", 1), ("zipfian", 2), ("histogram", 3)];
    let which = properties.one_of(NAME, 0, &words)?;
    if data_integrity && which != 0 {
        return Err(properties.wrong(NAME, "constant with dataintegrity=true"));
    }
    if matches!(which, 1 | 2) && min > max {
        return Err(Error::bad_value(format!(
            "property 'minfieldlength' is {min}, but must be at most fieldlength, which is {max}"
        )));
    }
    Ok(match which {
        1 => Length::Uniform(Uniform::new(min, max)),
        2 => Length::Zipfian(Zipfian::new(min, max)),
        3 => {
            let text = std::fs::read_to_string(&file).map_err(|error| {
                let text = format!("property 'fieldlengthhistogram': '{file}': {error}");
                Error::bad_value(text)
            })?;
            Length::Histogram(Histogram::parse(&file, &text)?)
        }
        _ => Length::Constant(max),
    })
}

fn scan_length(properties: &Properties) -> Result<Length> {
    let max = properties.whole("maxscanlength", 1000, 1, INT_MAX)?;
    let min = properties.whole("minscanlength", 1, 1, INT_MAX)?;
    if min > max {
        return Err(Error::bad_value(format!(
            "property 'minscanlength' is {min}, but must be at most maxscanlength, which is {max}"
        )));
    }
    let words = [("uniform", false), ("zipfian", true)];
    Ok(match properties.one_of("scanlengthdistribution", false, &words)? {
        false => Length::Uniform(Uniform::new(min, max)),
        true => Length::Zipfian(Zipfian::new(min, max)),
    })
}

fn percentile(properties: &Properties) -> Result<f64> {
    const NAME: &str = "exponential.percentile";
    let percentile = properties.number(NAME, 95.0, 0.0, 100.0)?;
    let inside = percentile > 0.0 && percentile < 100.0;
    if inside { Ok(percentile) } else { Err(properties.wrong(NAME, "above 0 and below 100")) }
}

fn fraction(properties: &Properties) -> Result<f64> {
    const NAME: &str = "exponential.frac";
    // YCSB's default, of which it says that it is 1/7; it is 6/7.
    let fraction = properties.number(NAME, 0.8571428571, 0.0, f64::INFINITY)?;
    if fraction > 0.0 { Ok(fraction) } else { Err(properties.wrong(NAME, "above 0")) }
}

fn request(properties: &Properties) -> Result<Request> {
    let step = properties.whole_if_set("movinghotspot.records", -RECORDS_MAX, RECORDS_MAX)?;
    let operations = properties.whole_if_set("movinghotspot.operations", 1, i64::MAX)?;
    let millis = properties.whole_if_set("movinghotspot.millis", 1, INT_MAX)?;
    let every = match (operations, millis) {
        (Some(count), None) => Some(Every::Operations(count.unsigned_abs())),
        (None, Some(millis)) => Some(Every::Time(Duration::from_millis(millis.unsigned_abs()))),
        _ => None,
    };
    let moving = Request::MovingHotspot { step, every: every.unwrap_or(Every::Operations(1)) };
    let words = [
        ("uniform", Request::Uniform),
        ("zipfian", Request::Zipfian),
        ("latest", Request::Latest),
        ("hotspot", Request::Hotspot),
        ("movinghotspot", moving),
        ("exponential", Request::Exponential),
        ("sequential", Request::Sequential),
    ];
    let request = properties.one_of("requestdistribution", Request::Uniform, &words)?;
    if matches!(request, Request::MovingHotspot { .. }) && every.is_none() {
        return Err(Error::bad_value(
            "requestdistribution=movinghotspot needs one of movinghotspot.operations and \
             movinghotspot.millis: when the hot set moves",
        ));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_ycsb() {
        let settings = Settings::of(&Properties::new()).expect("the defaults");
        assert_eq!(settings.table, "usertable");
        assert_eq!((settings.fields.len(), settings.fields[9].as_str()), (10, "field9"));
        assert!(matches!(settings.field_length, Length::Constant(100)));
        assert!(settings.read_all_fields && !settings.write_all_fields);
        assert!(!settings.data_integrity && !settings.read_all_fields_by_name);
        assert_eq!(settings.request, Request::Uniform);
        assert_eq!(
            (settings.hotspot_data_fraction, settings.hotspot_operation_fraction),
            (0.2, 0.8)
        );
        assert_eq!((settings.records, settings.insert_start), (2_147_483_647, 0));
        assert_eq!((settings.insert_count, settings.operations), (2_147_483_647, 0));
        assert_eq!(settings.keys, KeyNames { order: InsertOrder::Hashed, digits_min: 1 });
        assert_eq!(settings.insert_retry_interval, Duration::from_secs(3));
        assert_eq!(settings.exponential_percentile, 95.0);
        let Length::Uniform(scan) = settings.scan_length else { panic!("no uniform scans") };
        assert_eq!(scan, Uniform::new(1, 1000));
    }

    #[track_caller]
    fn refused(pairs: &[(&str, &str)], expected: &[&str]) {
        let error = Settings::of(&Properties::of(pairs)).expect_err("a mistake");
        for text in expected {
            assert!(error.message().contains(text), "{error}");
        }
    }

    #[test]
    fn what_cannot_run_is_refused_by_name() {
        refused(&[("recordcount", "-1")], &["'recordcount' is '-1'", "from 0 to"]);
        refused(&[("readproportion", "-0.5")], &["'readproportion' is '-0.5'", "0 or more"]);
        refused(&[("readproportion", "0"), ("updateproportion", "0")], &["at least one"]);
        refused(
            &[("requestdistribution", "zipf")],
            &["'requestdistribution' is 'zipf'", "zipfian"],
        );
        refused(&[("requestdistribution", "zipfian")], &["operationcount"]);
        refused(
            &[("workload", "site.ycsb.workloads.RestWorkload")],
            &["'workload'", "CoreWorkload"],
        );
        refused(&[("insertorder", "order")], &["'insertorder'", "hashed or ordered"]);
        refused(&[("readallfields", "yes")], &["'readallfields'", "true or false"]);
        refused(&[("fieldcount", "0")], &["'fieldcount'", "from 1"]);
        refused(&[("recordcount", "10"), ("insertstart", "10")], &["'insertstart'", "0 to 9"]);
        let beyond = [("recordcount", "10"), ("insertstart", "4"), ("insertcount", "7")];
        refused(&beyond, &["'insertcount' is '7'", "1 to 6"]);
        refused(
            &[("minscanlength", "5"), ("maxscanlength", "4")],
            &["'minscanlength' is 5", "is 4"],
        );
        refused(&[("scanlengthdistribution", "constant")], &["'scanlengthdistribution'"]);
        refused(&[("exponential.percentile", "100")], &["'exponential.percentile'", "below 100"]);
        refused(&[("exponential.frac", "0")], &["'exponential.frac'", "above 0"]);
        let hot = [("requestdistribution", "hotspot"), ("hotspotdatafraction", "1")];
        refused(&hot, &["'hotspotdatafraction' is '1'", "leaves hot and cold ones"]);
        let few = [("requestdistribution", "hotspot"), ("recordcount", "4")];
        refused(&few, &["'hotspotdatafraction' must be", "among 4 records"]);
        refused(&[("requestdistribution", "movinghotspot")], &["movinghotspot.millis"]);
        let integrity = ("dataintegrity", "true");
        refused(
            &[integrity, ("fieldlengthdistribution", "uniform")],
            &["constant with dataintegrity"],
        );
        refused(&[integrity, ("fieldnameprefix", "größe")], &["ASCII"]);
        let file = [("fieldlengthdistribution", "histogram"), ("fieldlengthhistogram", "/none")];
        refused(&file, &["'fieldlengthhistogram'", "'/none'"]);
    }
}
