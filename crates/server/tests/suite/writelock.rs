//! The write-lock experiment at a small size. It runs to its end in each mode and loses no write. Its figures
//! match the operations it performed. Speed is not checked.

use serde_yaml_ng::Value;
use std::net::TcpListener;
use std::process::Command;

fn number(point: &Value, name: &str) -> f64 {
    let value = point.get(name).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no {name} in {point:?}"))
}

#[test]
fn the_experiment_runs_in_all_modes() {
    let place = std::env::temp_dir().join(format!("kauri-writelock-{}", std::process::id()));
    let json = place.join("figures.json");
    let dbpath = place.join("db");
    std::fs::create_dir_all(&dbpath).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let output = Command::new(env!("CARGO_BIN_EXE_kauri"))
        .args(["bench", "writelock", "--documents", "200000", "--hot", "500", "--seconds", "1"])
        .args([
            "--rounds",
            "1",
            "--rates",
            "50",
            "--cache-gb",
            "0.002",
            "--port",
            &port.to_string(),
        ])
        .arg("--dbpath")
        .arg(&dbpath)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let figures: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    std::fs::remove_dir_all(&place).unwrap();
    let modes = figures.get("modes").and_then(Value::as_sequence).unwrap();
    let names: Vec<_> = modes.iter().filter_map(|mode| mode.get("mode")?.as_str()).collect();
    assert_eq!(names, ["global/off", "global/on", "document/on"]);
    for mode in modes {
        let points = mode.get("points").and_then(Value::as_sequence).unwrap();
        let asked: Vec<_> = points.iter().map(|p| number(p, "writesAskedPerSecond")).collect();
        assert_eq!(asked, [0.0, 50.0, 0.0, 0.0, 50.0, 0.0]);
        for point in points {
            // Lasts 1.2 seconds.
            let sent = if number(point, "writesAskedPerSecond") > 0.0 { 60.0 } else { 0.0 };
            assert_eq!(number(point, "writesSent"), sent, "{told}");
            assert_eq!(number(point, "documentsWithLostWrites"), 0.0, "{told}");
            assert_eq!(number(point, "readErrors"), 0.0, "{told}");
            assert!(number(point, "readsPerSecond") > 0.0, "{told}");
        }
        // Many of the documents that are not read are not in memory.
        assert!(number(&points[4], "misses") >= 20.0, "{told}");
        assert!(number(&points[4], "cacheReads") >= 20.0, "{told}");
        // Both points without writes are the baseline of the others, and one point in the summary.
        let reads: Vec<_> = points.iter().map(|p| number(p, "readsPerSecond")).collect();
        let base = (reads[3] + reads[5]) / 2.0;
        let kept = number(&points[4], "readsKept");
        assert!((kept - reads[4] / base).abs() < 1e-9, "{told}");
        let summary = mode.get("summary").and_then(Value::as_sequence).unwrap();
        assert_eq!(summary.len(), 4, "{told}");
        assert_eq!(number(&summary[3], "readsKept"), kept, "{told}");
        if mode.get("mode").and_then(Value::as_str) == Some("document/on") {
            assert!(points.iter().all(|p| number(p, "readersWaitedForLock") == 0.0), "{told}");
        }
    }
}
