//! Replays the workloads with Java's random numbers and compares the operations.

use super::facts::same;
use super::java::ThreadLocalRandom;
use super::{Finding, Wrong, properties};
use kauri_bench::workload::generator::{
    Exponential, Histogram, Hotspot, ScrambledZipfian, Sequential, SkewedLatest, Uniform, Zipfian,
};
use kauri_bench::workload::{CoreWorkload, Fields, Operation, Random, Stream};
use std::fmt::Write;
use std::sync::Arc;

/// Draws the next number.
pub type Draw<R> = Box<dyn FnMut(&mut R) -> i64>;

/// The generator that the Java side names so.
pub fn draw_of<R: Random + 'static>(spec: &str) -> Result<Draw<R>, Wrong> {
    let (name, rest) = spec.split_once(' ').ok_or("no arguments")?;
    if name == "histogram" {
        let (block, counts) = rest.split_once(' ').ok_or("no counts")?;
        let counts = counts.split(',').map(str::parse).collect::<Result<Vec<i64>, _>>()?;
        let histogram = Histogram::new(counts, block.parse()?).ok_or("no histogram")?;
        return Ok(Box::new(move |random| histogram.next(random)));
    }
    let of = rest.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    let whole: Vec<i64> = of.iter().map(|number| *number as i64).collect();
    Ok(match (name, whole.as_slice(), of.as_slice()) {
        ("constant", &[value], _) => Box::new(move |_| value),
        ("uniform", &[low, high], _) => {
            let uniform = Uniform::new(low, high);
            Box::new(move |random| uniform.next(random))
        }
        ("sequential", &[low, high], _) => {
            let sequential = Sequential::new(low, high);
            Box::new(move |_| sequential.next())
        }
        ("zipfian", &[low, high, ..], of) => {
            let zipfian = match of.get(2) {
                Some(theta) => Zipfian::with_theta(low, high, *theta),
                None => Zipfian::new(low, high),
            };
            Box::new(move |random| zipfian.next(random))
        }
        ("scrambled", &[low, high], _) => {
            let scrambled = ScrambledZipfian::new(low, high);
            Box::new(move |random| scrambled.next(random))
        }
        ("latest", &[count], _) => {
            let mut latest = SkewedLatest::new(count - 1);
            Box::new(move |random| latest.next(count - 1, random))
        }
        ("growing", &[count], _) => {
            let (mut latest, mut newest) = (SkewedLatest::new(count - 1), count - 2);
            Box::new(move |random| {
                newest += 1;
                latest.next(newest, random)
            })
        }
        ("hotspot", &[low, high, ..], &[_, _, fraction, share]) => {
            let hotspot = Hotspot::new(low, high, fraction, share).ok_or("no hotspot")?;
            Box::new(move |random| hotspot.next(random))
        }
        ("exponential", _, &[percentile, range]) => {
            let exponential = Exponential::of_percentile(percentile, range);
            Box::new(move |random| exponential.next(random) as i64)
        }
        _ => return Err("a generator of no known name".into()),
    })
}

pub fn generator(
    spec: &str,
    mut random: ThreadLocalRandom,
    values: &str,
) -> Result<Finding, Wrong> {
    let mut draw = draw_of(spec)?;
    for (at, value) in values.split(' ').enumerate() {
        let (ours, theirs) = (draw(&mut random), value.parse::<i64>()?);
        if ours != theirs {
            return Err(format!("the value {at} is {ours}, not {theirs}").into());
        }
    }
    Ok(Finding::Equal)
}

/// Operations as the database receives them, each followed by a semicolon.
pub fn operations(pairs: &str, random: ThreadLocalRandom, lines: &str) -> Result<Finding, Wrong> {
    let workload = Arc::new(CoreWorkload::of(&properties(pairs))?);
    let mut stream = Stream::new(workload.clone(), random);
    let mut left = lines;
    let mut done = 0;
    while !left.is_empty() {
        let mut ours = String::new();
        append_lines(&workload, stream.next_operation(), &mut ours)?;
        left = left.strip_prefix(ours.as_str()).ok_or_else(|| {
            let theirs = left.split(';').next().unwrap_or_default();
            format!("operation {done} is {ours:?}, not {theirs:?}")
        })?;
        done += 1;
    }
    same(left, "")
}

fn append_lines(
    workload: &CoreWorkload,
    operation: Operation,
    out: &mut String,
) -> Result<(), Wrong> {
    let fields = |fields: Fields| {
        let all = &workload.settings().fields;
        match fields {
            Fields::Whole => "*".to_owned(),
            Fields::One(at) => all[at].clone(),
            Fields::All => {
                let mut names = all.clone();
                names.sort();
                names.join(",")
            }
        }
    };
    let mut line = |name: &str, record: i64, length: &str, of: Fields| {
        write!(out, "{name} {} {length} {};", workload.key(record), fields(of))
    };
    match operation {
        Operation::Insert { record } => {
            workload.acknowledge(record)?;
            line("insert", record, "", Fields::All)?;
        }
        Operation::Read { record, fields } => line("read", record, "", fields)?,
        Operation::Update { record, fields } => line("update", record, "", fields)?,
        Operation::Scan { record, length, fields } => {
            line("scan", record, &length.to_string(), fields)?;
        }
        Operation::ReadModifyWrite { record, read, written } => {
            line("read", record, "", read)?;
            line("update", record, "", written)?;
        }
    }
    Ok(())
}
