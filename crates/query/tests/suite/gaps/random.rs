//! Random rows: the stages agree with naive references. `KAURI_SEED` repeats one case.

use super::{Choice, column, run, seeds};
use kauri_base::clock::SeededRandom;
use kauri_bson::{DocBuf, Value, array, compare, doc};

const CASES: u64 = 1500;

/// A document of `$densify`: its partition's value and its own value, in halves.
#[derive(Clone, Debug)]
struct Row {
    partition: Option<u64>,
    halves: Option<i64>,
}

struct Case {
    rows: Vec<Row>,
    step: i64,
    bounds: Option<(i64, i64)>,
    by_partition: bool,
    partitioned: bool,
    dates: bool,
}

fn case(choice: &Choice) -> Case {
    let small = |limit: u64| choice.below(limit) as i64;
    let row = || Row {
        partition: Some(choice.below(4)).filter(|p| *p > 0),
        halves: Some(small(30) - 10).filter(|_| choice.below(6) > 0),
    };
    let rows = (0..choice.below(9)).map(|_| row()).collect();
    let kind = choice.below(3);
    let lower = small(20) - 10;
    Case {
        rows,
        step: 1 + small(6),
        bounds: Some((lower, lower + small(20))).filter(|_| kind == 0),
        by_partition: kind == 1,
        partitioned: kind == 1 || choice.below(2) == 0,
        dates: choice.below(3) == 0,
    }
}

impl Case {
    fn value(&self, halves: i64) -> Value<'static> {
        match self.dates {
            true => Value::DateTime(halves * 3_600_000),
            false => Value::Double(halves as f64 / 2.0),
        }
    }

    fn stage(&self) -> DocBuf {
        let bounds = match self.bounds {
            Some((lower, upper)) => array![self.value(lower), self.value(upper)],
            None => Value::from(if self.by_partition { "partition" } else { "full" }),
        };
        let range = match self.dates {
            true => doc! { "step" => self.step, "unit" => "hour", "bounds" => bounds },
            false => doc! { "step" => self.value(self.step), "bounds" => bounds },
        };
        let by = if self.partitioned { array!["p"] } else { array![] };
        doc! { "$densify" => doc! { "field" => "v", "partitionByFields" => by, "range" => range } }
    }

    /// All values of each partition, including the generated ones.
    fn expected(&self) -> Vec<(Option<u64>, i64)> {
        let valued: Vec<(Option<u64>, i64)> = (self.rows.iter())
            .filter_map(|row| Some((row.partition.filter(|_| self.partitioned), row.halves?)))
            .collect();
        let mut partitions: Vec<Option<u64>> = valued.iter().map(|(p, _)| *p).collect();
        partitions.sort();
        partitions.dedup();
        if self.bounds.is_some() && !self.partitioned {
            partitions = vec![None];
        }
        let mut all = valued.clone();
        for partition in partitions {
            let own: Vec<i64> =
                valued.iter().filter(|(p, _)| *p == partition).map(|(_, v)| *v).collect();
            let ends = |of: &[i64]| (of.iter().min().copied(), of.iter().max().copied());
            let (lower, upper) = match self.bounds {
                Some((lower, upper)) => (Some(lower), Some(upper - 1)),
                None if self.by_partition => ends(&own),
                None => ends(&valued.iter().map(|(_, v)| *v).collect::<Vec<_>>()),
            };
            let (Some(mut next), Some(last)) = (lower, upper) else { continue };
            while next <= last {
                if !own.contains(&next) {
                    all.push((partition, next));
                }
                next += self.step;
            }
        }
        all.sort();
        all
    }
}

#[test]
fn densified_rows_are_those_of_the_reference() {
    seeds(CASES, |seed| {
        let case = case(&Choice(SeededRandom::new(seed)));
        let docs: Vec<DocBuf> = (case.rows.iter().enumerate())
            .map(|(id, row)| {
                DocBuf::build(|out| {
                    out.put("_id", id as i32);
                    if let Some(p) = row.partition {
                        out.put("p", p as i32);
                    }
                    match row.halves {
                        Some(halves) => out.put_value("v", &case.value(halves)),
                        None if id % 2 == 0 => out.put("v", Value::Null),
                        None => {}
                    }
                })
            })
            .collect();
        let found = run(&docs, &[case.stage()]).unwrap();
        let of = |doc: &DocBuf, name: &str| doc.as_doc().value(name).into_owned();
        let mut given: Vec<(Option<u64>, i64)> = Vec::new();
        let mut without_value = 0;
        for doc in &found {
            let partition = of(doc, "p").as_i64_exact().map(|p| p as u64);
            let halves = match of(doc, "v") {
                Value::DateTime(ms) => ms / 3_600_000,
                Value::Double(value) => (value * 2.0) as i64,
                _ => {
                    without_value += 1;
                    continue;
                }
            };
            given.push((partition.filter(|_| case.partitioned), halves));
        }
        let kept: Vec<&DocBuf> = found.iter().filter(|doc| !of(doc, "_id").is_missing()).collect();
        given.sort();
        assert_eq!(
            given,
            case.expected(),
            "KAURI_SEED={seed} {}",
            kauri_bson::shell_text(case.stage().as_doc())
        );
        assert_eq!(kept.len(), docs.len(), "KAURI_SEED={seed}");
        assert_eq!(without_value, case.rows.iter().filter(|row| row.halves.is_none()).count());
    });
}

/// Rows of window functions: their positions and values.
fn window_rows(choice: &Choice) -> Vec<(i64, Option<f64>)> {
    let mut x = 0;
    (0..choice.below(12))
        .map(|_| {
            x += 1 + choice.below(4) as i64;
            (x, Some(choice.below(100) as f64).filter(|_| choice.below(3) > 0))
        })
        .collect()
}

fn windowed(rows: &[(i64, Option<f64>)], function: DocBuf) -> Vec<Option<f64>> {
    let mut docs: Vec<DocBuf> = (rows.iter())
        .map(|(x, y)| doc! { "x" => *x, "y" => y.map_or(Value::Null, Value::Double) })
        .collect();
    docs.reverse();
    let spec = doc! { "sortBy" => doc! { "x" => 1 }, "output" => doc! { "r" => function } };
    let found = run(&docs, &[doc! { "$setWindowFields" => spec }]).unwrap();
    column(&found, "r").iter().map(Value::as_f64_lossy).collect()
}

fn check(seed: u64, found: Vec<Option<f64>>, expected: Vec<Option<f64>>) {
    let is_near = |a: &Option<f64>, b: &Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * (1.0 + b.abs()),
        (a, b) => a == b,
    };
    let is_right = found.len() == expected.len()
        && found.iter().zip(&expected).all(|(found, expected)| is_near(found, expected));
    assert!(is_right, "KAURI_SEED={seed}: {found:?}, not {expected:?}");
}

/// The rows in the window of each row, by documents or by range.
fn frames(choice: &Choice, rows: &[(i64, Option<f64>)]) -> (DocBuf, Vec<Vec<(i64, Option<f64>)>>) {
    let low = choice.below(7) as i64 - 4;
    let high = low + choice.below(6) as i64;
    let by_range = choice.below(2) == 0;
    let of = |at: usize| {
        let is_within = |other: &usize| {
            let far = match by_range {
                true => rows[*other].0 - rows[at].0,
                false => *other as i64 - at as i64,
            };
            (low..=high).contains(&far)
        };
        (0..rows.len()).filter(is_within).map(|other| rows[other]).collect()
    };
    let name = if by_range { "range" } else { "documents" };
    (doc! { name => array![low, high] }, (0..rows.len()).map(of).collect())
}

#[test]
fn derivatives_and_integrals_are_those_of_the_reference() {
    seeds(CASES, |seed| {
        let choice = Choice(SeededRandom::new(seed));
        let rows = window_rows(&choice);
        let (window, of) = frames(&choice, &rows);
        let slope = |frame: &Vec<(i64, Option<f64>)>| {
            let ((x0, y0), (x1, y1)) = (*frame.first()?, *frame.last()?);
            if x0 == x1 { None } else { Some((y1? - y0?) / (x1 - x0) as f64) }
        };
        let function =
            doc! { "$derivative" => doc! { "input" => "$y" }, "window" => window.clone() };
        check(seed, windowed(&rows, function), of.iter().map(slope).collect());
        let whole: Vec<_> = rows.iter().map(|(x, y)| (*x, Some(y.unwrap_or(3.0)))).collect();
        let area = |frame: &Vec<(i64, Option<f64>)>| {
            frame.first()?;
            let part = |pair: &[(i64, Option<f64>)]| {
                let y = |at: usize| pair[at].1.unwrap_or(3.0);
                (pair[1].0 - pair[0].0) as f64 * (y(0) + y(1)) / 2.0
            };
            Some(frame.windows(2).map(part).sum::<f64>())
        };
        let function = doc! { "$integral" => doc! { "input" => "$y" }, "window" => window };
        check(seed, windowed(&whole, function), of.iter().map(area).collect());
    });
}

#[test]
fn averages_and_lines_are_those_of_the_reference() {
    seeds(CASES, |seed| {
        let choice = Choice(SeededRandom::new(seed));
        let rows = window_rows(&choice);
        let n = 1 + choice.below(5) as i32;
        let alpha = 2.0 / (f64::from(n) + 1.0);
        let mut average: Option<f64> = None;
        let averages = rows.iter().map(|(_, y)| {
            if let Some(y) = y {
                average = Some(average.map_or(*y, |last| y * alpha + last * (1.0 - alpha)));
            }
            average
        });
        let averages = averages.collect();
        let function = doc! { "$expMovingAvg" => doc! { "input" => "$y", "N" => n } };
        check(seed, windowed(&rows, function), averages);
        let line = |at: usize| {
            let known = |(x, y): &(i64, Option<f64>)| y.map(|y| (*x as f64, y));
            let (x0, y0) = rows[..=at].iter().rev().find_map(known)?;
            let (x1, y1) = rows[at..].iter().find_map(known)?;
            let x = rows[at].0 as f64;
            Some(if x0 == x1 { y0 } else { y0 + (y1 - y0) * (x - x0) / (x1 - x0) })
        };
        let expected = (0..rows.len()).map(line).collect();
        check(seed, windowed(&rows, doc! { "$linearFill" => "$y" }), expected);
    });
}

#[test]
fn partitions_follow_the_comparison_order() {
    let docs = [
        doc! { "p" => 1, "v" => 0 },
        doc! { "p" => 1.0, "v" => 2 },
        doc! { "v" => 0 },
        doc! { "p" => Value::Null, "v" => 3 },
        doc! { "v" => 2 },
    ];
    let stage = doc! { "$densify" => doc! {
    "field" => "v", "partitionByFields" => array!["p"], "range" => doc! { "step" => 1, "bounds" => "partition" } } };
    let found = run(&docs, &[stage]).unwrap();
    assert_eq!(found.len(), docs.len() + 2);
    let made: Vec<&DocBuf> = found.iter().filter(|doc| !docs.contains(doc)).collect();
    let ones =
        made.iter().filter(|doc| compare(&doc.as_doc().value("p"), &Value::Int32(1)).is_eq());
    assert_eq!(ones.count(), 1);
    assert_eq!(made.iter().filter(|doc| ***doc == doc! { "v" => 1 }).count(), 1);
}
