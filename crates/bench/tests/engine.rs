//! Runs each measurement of the engines at a small size. Each measurement must give a figure and a verdict for
//! each goal.

use kauri_bench::engine::{self, Goal, Kind, Measurement, Settings};

#[test]
fn every_part_gives_figures() {
    // All measurements except the one that starts the program itself.
    let measurements = Measurement::ALL
        .into_iter()
        .filter(|measurement| *measurement != Measurement::Memory)
        .collect();
    let settings = Settings { measurements, kinds: vec![Kind::PmLog], ..Settings::quick() };
    let mut said = Vec::new();
    let lines = engine::run(&settings, &mut |text| said.push(text.to_owned())).expect("measuring");
    assert_eq!(said.iter().filter(|text| text.starts_with("measuring")).count(), 11);
    assert!(lines.len() >= 20, "{} lines", lines.len());
    for line in &lines {
        let figure = line.pmlog.unwrap_or_else(|| panic!("{} has no figure", line.name));
        assert!(figure.is_finite() && figure > 0.0, "{}: {figure}", line.name);
        assert_eq!(line.is_met().is_some(), line.goal != Goal::None, "{}", line.name);
    }
    let named = |name: &str| {
        let line = lines.iter().find(|line| line.name.contains(name));
        line.and_then(|line| line.pmlog).unwrap_or_else(|| panic!("{name} is not in the table"))
    };
    // A result independent of the machine: a document is written once, with some overhead.
    assert!((1.0..1.5).contains(&named("inserts in groups")), "{}", named("inserts in groups"));
    assert!(named("uniform updates at") > 1.1, "{}", named("uniform updates at"));
    let table = engine::render(&lines);
    assert!(table.contains("goal") && table.contains("check: "), "{table}");
    assert_eq!(engine::json(&lines).matches("\"name\"").count(), lines.len());
}
