//! Compares the YCSB workloads with operations that the core of YCSB itself has drawn
//! (`tests/clients/ycsb-core.sh`).
//!
//! `ycsb_core presets` prints the properties of the workloads A to F, one per line, for the Java side.
//! `ycsb_core FILE` reads the output of the Java side. Results that follow from their arguments, or from random
//! numbers of a known state, must be equal. Operations that both sides draw at random must pass a chi-square
//! test. The program prints the differences and the number of comparisons.

mod facts;
mod java;
mod replay;
mod statistics;

use java::Machine;
use kauri_bench::workload::Properties;
use kauri_bench::workload::presets::PRESETS;
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

/// An error in one line.
type Wrong = Box<dyn Error>;

/// The probability that any of the random comparisons fails without a real difference.
const FALSE_ALARM: f64 = 5e-7;

/// `a=b,c=d` as properties.
fn properties(pairs: &str) -> Properties {
    let mut properties = Properties::new();
    pairs
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .for_each(|(n, v)| properties.set(n, v));
    properties
}

fn print_presets() {
    for preset in &PRESETS {
        let properties = preset.properties();
        let pairs: Vec<String> =
            properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
        println!("{}", pairs.join(","));
    }
}

/// The result of one line.
enum Finding {
    /// Equal, to the bit.
    Equal,
    /// Equal except for rounding.
    Near,
    /// Drawn at random, with the likelihood of a difference at least this large.
    Likely(f64),
}

fn compare(fields: &[&str], machine: &mut Option<Machine>) -> Result<Finding, Wrong> {
    let known = || machine.ok_or("no line 'machine' before this one");
    match fields {
        ["machine", step, rest @ ..] => {
            *machine = Some(Machine::proven(step.parse()?, rest)?);
            Ok(Finding::Equal)
        }
        ["constant", name, value] => facts::constant(name, value),
        ["hash", number, hash] => facts::hash(number, hash),
        ["key", order, padding, number, key] => facts::key(order, padding, number, key),
        ["value", length, number, field, value] => facts::value(length, number, field, value),
        ["letters", length, bytes] => facts::letters(length, bytes, known()?),
        ["zeta", items, theta, sum] => facts::zeta_of(items, theta, sum),
        ["grown", from, to, zeta, eta] => facts::grown(from, to, zeta, eta),
        ["load", pairs, threads, shares, keys] => facts::load(pairs, threads, shares, keys),
        ["file", bytes, result] => facts::file(bytes, result),
        ["latencies", values, percentiles] => facts::latencies(values, percentiles),
        ["replay", spec, seed, values] => {
            replay::generator(spec, known()?.at(seed.parse()?), values)
        }
        ["operations", pairs, seed, lines] => {
            replay::operations(pairs, known()?.at(seed.parse()?), lines)
        }
        ["histogram", spec, counts] => statistics::generator(spec, counts).map(Finding::Likely),
        ["core", pairs, what, counts] => {
            statistics::operations(pairs, what, counts).map(Finding::Likely)
        }
        _ => Err("a line of no known kind".into()),
    }
}

fn run(text: &str) -> ExitCode {
    let (mut machine, mut wrong, mut drawn) = (None, Vec::new(), Vec::new());
    if let Err(error) = statistics::prove() {
        eprintln!("ycsb_core: {error}");
        return ExitCode::FAILURE;
    }
    let mut tally: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let kind = fields.first().copied().unwrap_or_default();
        let counts = tally.entry(kind).or_default();
        counts.0 += 1;
        // The name is at the beginning; some lines are long.
        let name: String = line.chars().take(200).collect();
        match compare(&fields, &mut machine) {
            Ok(Finding::Equal) => {}
            Ok(Finding::Near) => counts.1 += 1,
            Ok(Finding::Likely(likelihood)) => drawn.push((likelihood, name)),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    let limit = FALSE_ALARM / drawn.len().max(1) as f64;
    drawn.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    for (likelihood, name) in drawn.iter().filter(|(one, _)| one.is_nan() || *one < limit) {
        wrong.push(format!(
            "{name}: a difference of likelihood {likelihood:.1e}, limit {limit:.1e}"
        ));
    }
    for (kind, (count, near)) in &tally {
        let wrong = wrong.iter().filter(|text| text.starts_with(&format!("{kind}\t"))).count();
        let rounding =
            if *near > 0 { format!(", {near} of them but for rounding") } else { String::new() };
        println!("{kind}: {count} compared, {wrong} wrong{rounding}");
    }
    if let Some((likelihood, name)) = drawn.first() {
        println!("least likely, of {} drawn at random: {likelihood:.1e}: {name}", drawn.len());
    }
    wrong.iter().take(10).for_each(|text| println!("WRONG {text}"));
    let all: u32 = tally.values().map(|(count, _)| count).sum();
    println!("{}", all as usize - wrong.len());
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("presets") => {
            print_presets();
            ExitCode::SUCCESS
        }
        Some(path) => match std::fs::read_to_string(path) {
            Ok(text) => run(&text),
            Err(error) => {
                eprintln!("ycsb_core: {path}: {error}");
                ExitCode::FAILURE
            }
        },
        None => {
            eprintln!("usage: ycsb_core presets | FILE");
            ExitCode::FAILURE
        }
    }
}
