//! Comparisons whose results follow from their arguments, without random numbers.

use super::java::Machine;
use super::{Finding, Wrong, properties};
use kauri_bench::histogram::Histogram;
use kauri_bench::workload::generator::{
    SCRAMBLED_ITEM_COUNT, SCRAMBLED_ZETA, ZIPFIAN_CONSTANT, Zipfian, zeta,
};
use kauri_bench::workload::record::{append_random, hash64};
use kauri_bench::workload::{CoreWorkload, Properties, Random, Values};
use std::sync::Arc;

/// Sums of a million rounded powers differ in their last digits between mathematical libraries.
const ROUNDING: f64 = 1e-12;

/// Equal if both are the same text.
pub fn same(ours: &str, theirs: &str) -> Result<Finding, Wrong> {
    if ours == theirs { Ok(Finding::Equal) } else { Err(format!("ours is {ours:?}").into()) }
}

fn number(bits: &str) -> Result<f64, Wrong> {
    Ok(f64::from_bits(bits.parse()?))
}

/// Equal if a double has these bits, near if they are as good as those.
fn near(ours: f64, bits: &str) -> Result<Finding, Wrong> {
    let theirs = number(bits)?;
    if ours.to_bits() == theirs.to_bits() {
        Ok(Finding::Equal)
    } else if (ours - theirs).abs() <= ROUNDING * theirs.abs() {
        Ok(Finding::Near)
    } else {
        Err(format!("ours is {ours}, theirs {theirs}").into())
    }
}

pub fn constant(name: &str, value: &str) -> Result<Finding, Wrong> {
    match name {
        "theta" => same(&ZIPFIAN_CONSTANT.to_bits().to_string(), value),
        "zeta" => same(&SCRAMBLED_ZETA.to_bits().to_string(), value),
        "items" => same(&SCRAMBLED_ITEM_COUNT.to_string(), value),
        _ => Err("a constant of no known name".into()),
    }
}

pub fn hash(number: &str, hash: &str) -> Result<Finding, Wrong> {
    same(&hash64(number.parse()?).to_string(), hash)
}

/// Percentiles of these values, each as a share of all values with the result of the Java histogram. Java's
/// buckets may report more than the longest value; ours do not. The Java version in YCSB rounds ranks to the
/// nearest; ours and later Java versions round up.
pub fn latencies(values: &str, percentiles: &str) -> Result<Finding, Wrong> {
    let mut histogram = Histogram::default();
    for value in values.split(' ') {
        histogram.record(value.parse()?);
    }
    for percentile in percentiles.split(' ') {
        let (part, theirs) = percentile.split_once(':').ok_or("a percentile without a value")?;
        let theirs = theirs.parse::<u64>()?.min(histogram.max_ns());
        let count = histogram.count() as f64;
        let rank = (part.parse::<f64>()? * count + 0.5).floor().max(1.0);
        let ours = histogram.percentile_ns(rank / count);
        if ours != theirs {
            return Err(format!("at {part}: ours is {ours}, theirs {theirs}").into());
        }
    }
    Ok(Finding::Equal)
}

fn workload(pairs: &str) -> Result<CoreWorkload, Wrong> {
    let properties = properties(pairs);
    let workload = CoreWorkload::of(&properties)?;
    properties.expect_all_used()?;
    Ok(workload)
}

pub fn key(order: &str, padding: &str, number: &str, key: &str) -> Result<Finding, Wrong> {
    let workload = workload(&format!("insertorder={order},zeropadding={padding}"))?;
    same(&workload.key(number.parse()?), key)
}

pub fn value(length: &str, number: &str, field: &str, value: &str) -> Result<Finding, Wrong> {
    let workload = Arc::new(workload(&format!("dataintegrity=true,fieldlength={length}"))?);
    let (key, field) = (workload.key(number.parse()?), field.parse()?);
    if !workload.verify(&key, field, value.as_bytes(), &mut Vec::new()) {
        return Err("it is not verified".into());
    }
    let mut values = Values::new(workload, kauri_bench::workload::Seeded::new(1));
    let mut ours = Vec::new();
    values.append(&key, field, &mut ours);
    same(&String::from_utf8(ours)?, value)
}

pub fn letters(length: &str, bytes: &str, machine: Machine) -> Result<Finding, Wrong> {
    let mut random = machine.at(length.parse()?);
    // Java draws the first letters before any is requested, and draws them again when all are used.
    random.bits32();
    let mut ours = Vec::new();
    append_random(&mut ours, length.parse()?, &mut random);
    same(&to_hex(&ours), bytes)
}

pub fn zeta_of(items: &str, theta: &str, sum: &str) -> Result<Finding, Wrong> {
    near(zeta(0, 0.0, items.parse()?, number(theta)?), sum)
}

pub fn grown(from: &str, to: &str, zeta: &str, eta: &str) -> Result<Finding, Wrong> {
    let mut zipfian = Zipfian::new(0, from.parse::<i64>()? - 1);
    zipfian.next_of(to.parse()?, &mut kauri_bench::workload::Seeded::new(1));
    let (ours, _, ours_eta) = zipfian.parameters();
    match (near(ours, zeta)?, near(ours_eta, eta)?) {
        (Finding::Equal, Finding::Equal) => Ok(Finding::Equal),
        _ => Ok(Finding::Near),
    }
}

/// The number of records that each thread of the client has loaded, in ascending order, and the keys in order.
pub fn load(pairs: &str, threads: &str, shares: &str, keys: &str) -> Result<Finding, Wrong> {
    let (workload, threads) = (workload(pairs)?, threads.parse()?);
    let loaded: Vec<Vec<String>> = (0..threads)
        .map(|thread| workload.loading(thread, threads).map(|one| workload.key(one)).collect())
        .collect();
    let mut ours: Vec<usize> = loaded.iter().map(Vec::len).collect();
    ours.sort_unstable();
    let ours: Vec<String> = ours.iter().map(usize::to_string).collect();
    same(&ours.join(" "), shares)?;
    let mut ours: Vec<String> = loaded.into_iter().flatten().collect();
    ours.sort_unstable();
    same(&ours.join(" "), keys)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>, Wrong> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

/// A file's bytes, and `{name=value, …}`, both in hexadecimal digits.
pub fn file(bytes: &str, result: &str) -> Result<Finding, Wrong> {
    let mut properties = Properties::new();
    let ours = match properties.load("a file", &from_hex(bytes)?) {
        Err(_) => "wrong".to_owned(),
        Ok(()) => {
            let pair =
                |(n, v): (&str, &str)| format!("{}={}", to_hex(n.as_bytes()), to_hex(v.as_bytes()));
            format!("{{{}}}", properties.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
    };
    same(&ours, result)
}
