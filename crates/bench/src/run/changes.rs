//! Significant differences between two results of `kauri bench run`.
//!
//! Each figure has a value per round. Two sets of rounds differ if a rank-sum test (Mann-Whitney, exact, with
//! mid-ranks for ties) is significant at the 1 % level and their medians differ by more than [`EFFECT_MIN`]. With
//! fewer than [`ROUNDS_MIN`] rounds on either side, no difference is significant, and the report says so.
//!
//! This module must not know where results come from, nor how they were measured.

use super::failed;
use super::report::SCHEMA;
use crate::columns::aligned;
use crate::compare::median;
use kauri_base::Result;
use serde_yaml_ng::Value;
use std::collections::BTreeMap;

/// The test's level.
const CHANCE_MAX: f64 = 0.01;
/// Smaller differences of medians are not told, as a part of the first.
const EFFECT_MIN: f64 = 0.02;
/// The fewest rounds for which the test can come to its level: of two times five, ranked apart, there are two
/// orders in 252.
const ROUNDS_MIN: usize = 5;

/// What a figure is of. Figures of the same place are compared.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    workload: String,
    processes: i64,
    threads: i64,
    server: String,
    figure: String,
}

/// A result's figures, each with its values, a round each.
#[derive(Clone, PartialEq, Debug)]
pub struct Figures {
    name: String,
    rounds: BTreeMap<Place, Vec<f64>>,
}

/// A figure that has changed.
#[derive(Clone, PartialEq, Debug)]
struct Change {
    place: Place,
    medians: [f64; 2],
    chance: f64,
}

impl Change {
    fn ratio(&self) -> f64 {
        let [before, after] = self.medians;
        after / before.abs().max(1e-12)
    }

    /// More operations a second are better, less of anything else is.
    fn is_worse(&self) -> bool {
        (self.ratio() > 1.0) != (self.place.figure == PER_SECOND)
    }
}

const PER_SECOND: &str = "op/s";

/// What came of a comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    labels: [String; 2],
    compared: usize,
    /// Figures with fewer rounds than a difference can be told by.
    few: usize,
    changes: Vec<Change>,
}

fn text<'v>(of: &'v Value, name: &str) -> Option<&'v str> {
    of.get(name)?.as_str()
}

fn list<'v>(of: &'v Value, name: &str) -> Option<&'v [Value]> {
    Some(of.get(name)?.as_sequence()?.as_slice())
}

/// The figures of one round that are compared, by their names.
fn figures_of(round: &Value) -> Vec<(String, f64)> {
    let number = |of: &Value, name: &str| of.get(name).and_then(Value::as_f64);
    let mut all = Vec::new();
    let mut add = |name: String, value: Option<f64>| {
        all.extend(value.filter(|value| value.is_finite()).map(|value| (name, value)));
    };
    add(PER_SECOND.to_owned(), number(round, "operationsPerSecond"));
    add("server CPU us".to_owned(), number(round, "serverCpuMicros"));
    let kinds = round.get("kinds").and_then(Value::as_mapping);
    for (kind, counted) in kinds.into_iter().flatten() {
        let kind = kind.as_str().unwrap_or_default();
        let due = counted.get("intended");
        for percentile in ["p50", "p95", "p99"] {
            let field = format!("{percentile}Micros");
            add(format!("{kind} {percentile} us"), number(counted, &field));
            add(format!("{kind} {percentile} due us"), due.and_then(|due| number(due, &field)));
        }
    }
    all
}

impl Figures {
    /// Of a result's JSON; `from` says in errors where that lies.
    pub fn parse(from: &str, json: &str) -> Result<Figures> {
        // JSON is YAML, and this program reads YAML already.
        let result: Value = serde_yaml_ng::from_str(json)
            .map_err(|_| failed(from, "not JSON; 'kauri bench run --json' writes results"))?;
        let no_result = || failed(from, "not a result of 'kauri bench run --json'");
        if text(&result, "schema") != Some(SCHEMA) {
            return Err(no_result());
        }
        let name = text(&result, "name").unwrap_or_default().to_owned();
        let mut figures = Figures { name, rounds: BTreeMap::new() };
        for row in list(&result, "rows").ok_or_else(no_result)? {
            figures.add_row(row).ok_or_else(no_result)?;
        }
        Ok(figures)
    }

    fn add_row(&mut self, row: &Value) -> Option<()> {
        let place = |figure| {
            let (workload, server) = (text(row, "workload")?, text(row, "server")?);
            let threads = row.get("threads")?.as_i64()?;
            // Results from before there could be several have none.
            let processes = row.get("processes").map_or(Some(1), Value::as_i64)?;
            let (workload, server) = (workload.into(), server.into());
            Some(Place { workload, processes, threads, server, figure })
        };
        for round in list(row, "rounds")? {
            for (figure, value) in figures_of(round) {
                self.rounds.entry(place(figure)?).or_default().push(value);
            }
        }
        Some(())
    }

    /// Those of one server, as if it were the only one and had no label.
    pub fn of_server(&self, label: &str) -> Result<Figures> {
        let rounds: BTreeMap<Place, Vec<f64>> = self
            .rounds
            .iter()
            .filter(|(place, _)| place.server == label)
            .map(|(place, rounds)| {
                (Place { server: String::new(), ..place.clone() }, rounds.clone())
            })
            .collect();
        if rounds.is_empty() {
            let mut there: Vec<&str> = self.rounds.keys().map(|place| &*place.server).collect();
            there.dedup();
            there.sort_unstable();
            there.dedup();
            let why = format!("unknown server label; the labels are: {}", there.join(", "));
            return Err(failed(label, why));
        }
        Ok(Figures { name: self.name.clone(), rounds })
    }
}

/// Compares what both have; `labels` are what they are called.
pub fn compare(labels: [&str; 2], before: &Figures, after: &Figures) -> Result<Comparison> {
    if before.name != after.name {
        let why = format!("two experiments: '{}' and '{}'", before.name, after.name);
        return Err(failed("the results cannot be compared", why));
    }
    let (mut compared, mut few, mut changes) = (0, 0, Vec::new());
    for (place, old) in &before.rounds {
        let Some(new) = after.rounds.get(place) else { continue };
        compared += 1;
        if old.len().min(new.len()) < ROUNDS_MIN {
            few += 1;
            continue;
        }
        let medians = [median(old.iter().copied()), median(new.iter().copied())];
        let change = Change { place: place.clone(), medians, chance: chance(old, new) };
        if change.chance <= CHANCE_MAX && (change.ratio() - 1.0).abs() >= EFFECT_MIN {
            changes.push(change);
        }
    }
    if compared == 0 {
        let why = "the results share no workload, number of processes and threads, and server; compare \
                   two servers of one result with --labels";
        return Err(failed("the results cannot be compared", why));
    }
    Ok(Comparison { labels: labels.map(str::to_owned), compared, few, changes })
}

impl Comparison {
    /// Whether anything has become worse.
    pub fn is_worse(&self) -> bool {
        self.changes.iter().any(Change::is_worse)
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        if !self.changes.is_empty() {
            let [before, after] = &self.labels;
            let head = [
                "workload",
                "processes",
                "threads",
                "server",
                "figure",
                before,
                after,
                "times",
                "chance",
                "",
            ];
            let mut lines = vec![head.map(str::to_owned).to_vec()];
            lines.extend(self.changes.iter().map(|change| {
                let [before, after] = change.medians;
                let place = &change.place;
                vec![
                    place.workload.clone(),
                    place.processes.to_string(),
                    place.threads.to_string(),
                    place.server.clone(),
                    place.figure.clone(),
                    format!("{before:.1}"),
                    format!("{after:.1}"),
                    format!("{:.3}", change.ratio()),
                    format!("{:.4}", change.chance),
                    if change.is_worse() { "worse" } else { "better" }.to_owned(),
                ]
            }));
            let mut left = [0, 3, 4, 9];
            if self.changes.iter().all(|change| change.place.processes == 1) {
                lines.iter_mut().for_each(|line| drop(line.remove(1)));
                left = [0, 2, 3, 8];
            }
            out = aligned(&lines, &left) + "\n";
        }
        let told = self.compared - self.few;
        match (self.changes.len(), told) {
            (_, 0) => {}
            (0, _) => out += &format!("Of {told} figures none has changed beyond noise.\n"),
            (some, _) => out += &format!("Of {told} figures {some} have changed beyond noise.\n"),
        }
        if self.few > 0 {
            out += &format!(
                "{} figures have fewer than {ROUNDS_MIN} rounds: no change of theirs can be told from noise.\n",
                self.few
            );
        }
        out
    }
}

/// How often chance alone would rank these two sets as far apart, or further: of all ways to choose as many of
/// the ranks as the first has, the part whose sum is as far from the middle.
fn chance(first: &[f64], second: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = first.iter().map(|value| (*value, true)).collect();
    all.extend(second.iter().map(|value| (*value, false)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Twice the ranks, so that those between two are whole.
    let mut ranks = vec![0; all.len()];
    let mut at = 0;
    for equal in all.chunk_by(|a, b| a.0 == b.0) {
        let rank = 2 * at + equal.len() + 1;
        ranks.iter_mut().skip(at).take(equal.len()).for_each(|place| *place = rank);
        at += equal.len();
    }
    let chosen: usize = ranks.iter().zip(&all).filter(|(_, one)| one.1).map(|(rank, _)| rank).sum();
    let whole: usize = ranks.iter().sum();
    // ways[k][s]: in how many ways k ranks have the sum s.
    let mut ways = vec![vec![0.0; whole + 1]; first.len() + 1];
    if let Some(none) = ways.first_mut().and_then(|sums| sums.first_mut()) {
        *none = 1.0;
    }
    for rank in ranks {
        for count in (1..=first.len()).rev() {
            let (fewer, these) = ways.split_at_mut(count);
            let (Some(fewer), Some(these)) = (fewer.last(), these.first_mut()) else { continue };
            these.iter_mut().skip(rank).zip(fewer).for_each(|(sum, before)| *sum += before);
        }
    }
    // The middle is `first` of all ranks' mean; both sides times their number, to stay whole.
    let middle = whole * first.len();
    let distance = |sum: usize| (sum * all.len()).abs_diff(middle);
    let sums = ways.last().map(Vec::as_slice).unwrap_or_default();
    let far = sums.iter().enumerate().filter(|(sum, _)| distance(*sum) >= distance(chosen));
    far.map(|(_, ways)| ways).sum::<f64>() / sums.iter().sum::<f64>().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::RandomSource;
    use kauri_base::clock::SeededRandom;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn chance_is_that_of_the_exact_test() {
        let up = |from: i32, to: i32| (from..=to).map(f64::from).collect::<Vec<_>>();
        assert!(close(chance(&up(1, 5), &up(6, 10)), 2.0 / 252.0));
        assert!(close(chance(&up(6, 10), &up(1, 5)), 2.0 / 252.0));
        assert!(close(chance(&up(1, 3), &up(4, 6)), 0.1));
        assert!(close(chance(&up(1, 5), &up(1, 5)), 1.0));
        // The table of Mann and Whitney (1947): with 4 and 5, a statistic of 2 and less has 4 of 126 on each side.
        assert!(close(chance(&[1.0, 2.0, 3.0, 6.0], &[4.0, 5.0, 7.0, 8.0, 9.0]), 8.0 / 126.0));
        // All equal.
        assert!(close(chance(&[7.0; 5], &[7.0; 6]), 1.0));
        // Ranks 1.5, 1.5, 3 against 4, 5, 6: of 20 choices one on each side is as far.
        assert!(close(chance(&[1.0, 1.0, 2.0], &[3.0, 4.0, 5.0]), 0.1));
    }

    /// A result of so many rounds, whose throughput is scattered by this part and multiplied by `speed`.
    fn result(seed: u64, rounds: usize, scatter: f64, speed: f64) -> Figures {
        let random = SeededRandom::new(seed);
        let mut row = String::new();
        for _ in 0..rounds {
            let unit = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            let per_s = 50_000.0 * speed * (1.0 + scatter * (2.0 * unit - 1.0));
            let p50 = 1e6 / per_s;
            row += &format!(
                "{{\"operationsPerSecond\":{per_s},\"serverCpuMicros\":9.5,\"kinds\":{{\"READ\":{{\"p50Micros\":{p50}}}}}}},"
            );
        }
        let json = format!(
            "{{\"schema\":\"{SCHEMA}\",\"name\":\"n\",\"rows\":[{{\"workload\":\"A\",\"threads\":2,\
             \"server\":\"s\",\"rounds\":[{}]}}]}}",
            row.trim_end_matches(',')
        );
        Figures::parse("it", &json).unwrap()
    }

    #[test]
    fn a_slowdown_of_five_percent_is_found_among_noise_of_one() {
        for seed in 0..50 {
            let (before, after) = (result(seed, 7, 0.01, 1.0), result(seed + 100, 7, 0.01, 0.95));
            let comparison = compare(["a", "b"], &before, &after).unwrap();
            assert!(comparison.is_worse());
            let figures: Vec<_> =
                comparison.changes.iter().map(|change| &*change.place.figure).collect();
            assert_eq!(figures, ["READ p50 us", PER_SECOND], "seed {seed}");
            let better = compare(["b", "a"], &after, &before).unwrap();
            assert!(!better.is_worse() && better.changes.len() == 2);
            assert!(comparison.table().contains("worse") && better.table().contains("better"));
        }
    }

    #[test]
    fn noise_is_not_reported_nor_a_result_with_itself() {
        for seed in 0..200 {
            let (one, other) = (result(seed, 7, 0.01, 1.0), result(seed + 1000, 7, 0.01, 1.0));
            for comparison in [compare(["a", "b"], &one, &other), compare(["a", "a"], &one, &one)] {
                let comparison = comparison.unwrap();
                assert_eq!(comparison.changes, [], "seed {seed}");
                assert!(comparison.table().contains("Of 3 figures none has changed"));
            }
        }
    }

    #[test]
    fn numbers_of_processes_are_cases_of_their_own() {
        let of = |processes: i64, speed: f64| {
            let rounds = result(1, 7, 0.01, speed).rounds.into_iter();
            rounds.map(move |(place, rounds)| (Place { processes, ..place }, rounds))
        };
        let both = |second: f64| Figures {
            name: "n".to_owned(),
            rounds: of(1, 1.0).chain(of(2, second)).collect(),
        };
        let comparison = compare(["a", "b"], &both(2.0), &both(1.0)).unwrap();
        let changed: Vec<_> =
            comparison.changes.iter().map(|change| change.place.processes).collect();
        assert_eq!((changed, comparison.compared), (vec![2, 2], 6));
        assert!(comparison.table().contains("processes"));
        let alone = compare(["a", "b"], &result(1, 7, 0.0, 2.0), &result(1, 7, 0.0, 1.0)).unwrap();
        assert!(alone.is_worse() && !alone.table().contains("processes"));
    }

    #[test]
    fn too_few_rounds_are_said_to_be_so() {
        let (one, other) = (result(1, 4, 0.01, 1.0), result(2, 9, 0.01, 0.5));
        let comparison = compare(["a", "b"], &one, &other).unwrap();
        assert!(!comparison.is_worse());
        assert!(comparison.table().starts_with("3 figures have fewer than 5 rounds"));
    }

    #[test]
    fn what_is_no_result_or_another_experiment_is_refused() {
        for rubbish in ["", "{", "[1]", "{\"schema\":\"x\"}", "\u{0}"] {
            let error = Figures::parse("f.json", rubbish).unwrap_err().to_string();
            assert!(error.contains("f.json: not "), "{rubbish:?}: {error}");
        }
        let one = result(1, 5, 0.0, 1.0);
        let other = Figures { name: "m".to_owned(), ..one.clone() };
        let error = compare(["a", "b"], &one, &other).unwrap_err().to_string();
        assert!(error.contains("two experiments: 'n' and 'm'"), "{error}");
        let nothing = Figures { rounds: BTreeMap::new(), ..one.clone() };
        assert!(compare(["a", "b"], &one, &nothing).is_err());
        let error = one.of_server("x").unwrap_err().to_string();
        assert!(error.contains("the labels are: s"), "{error}");
        assert_eq!(one.of_server("s").unwrap().rounds.len(), 3);
    }
}
