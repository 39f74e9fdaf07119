//! Runs the YCSB experiment at a small size, directly on the engines. The experiment must judge its own
//! figures.

use kauri_bench::engine::Kind;
use kauri_bench::ycsb::{self, Engines, Medium, Plan, Workload};
use std::collections::HashMap;
use std::time::Duration;

fn plan() -> Plan {
    let directory = std::env::temp_dir();
    Plan {
        media: vec![Medium::Pm, Medium::Flash],
        ratios: vec![0.1],
        documents: 1_000,
        rounds: 3,
        slice: Duration::from_millis(5),
        directories: HashMap::from([(Medium::Pm, directory.clone()), (Medium::Flash, directory)]),
        ..Plan::quick()
    }
}

#[test]
fn every_workload_gives_figures() {
    let plan = plan();
    let mut said = Vec::new();
    let say = &mut |text: &str| said.push(text.to_owned());
    let rows = ycsb::run(&plan, &mut Engines::new(&plan), say).expect("measuring");
    assert!(said.iter().any(|text| text.contains("loading pmlog on pm")), "{said:?}");
    for workload in Workload::ALL {
        for medium in ["pm", "flash"] {
            let name =
                format!("\"compared\":\"{medium}\",\"cache\":0.1,\"workload\":\"{workload:?}\"");
            assert_eq!(ycsb::json(&rows).matches(&name).count(), 1, "{name}");
        }
    }
    assert!(rows.iter().all(|row| row.one.rate > 100.0 && row.one.operations >= 3), "{rows:?}");
    let table = ycsb::render(&rows);
    assert!(table.contains("workload") && table.contains("MISSED: "), "{table}");
    if plan.kinds.contains(&Kind::WiredTiger) {
        // Both ran the same operations alternately, so each row has a valid ratio.
        assert!(rows.iter().all(|row| row.times.is_some() && row.void.is_none()), "{rows:?}");
    } else {
        assert!(rows.iter().all(|row| row.is_met().is_none()), "{rows:?}");
    }
}

#[test]
fn a_directory_that_is_missing_is_named() {
    let plan = Plan { media: vec![Medium::Disk], ..plan() };
    let error = ycsb::run(&plan, &mut Engines::new(&plan), &mut |_| {}).expect_err("no directory");
    assert!(error.message().contains("'disk'"), "{}", error.message());
}
