//! The machine-readable report: every expected figure was computed by hand.

use bench::contestant::Origin;
use bench::jobs::{Case, Published};
use bench::report::Report;
use serde_json::{Value, json};

use crate::reports::common::{Fake, FakeJob, Notes, case, entry, extra, run_with, step};

/// Two contestants, one of which is the base of the other, and two sizes; three rounds of the first size and one of the
/// second.
fn report() -> Report {
    let cases: Vec<Case> = vec![case(1000, 3), case(4000, 1)];
    let mut job = FakeJob::new(cases, |asked| {
        let walls = match (asked.contestant, asked.x) {
            ("memory:xfs", 1000) => [[120, 90, 20], [110, 99, 33], [200, 120, 22]],
            ("memory:xfs", _) => [[600, 400, 100]; 3],
            (_, 1000) => [[100, 90, 20], [100, 90, 20], [80, 90, 0]],
            _ => [[400, 320, 80]; 3],
        };
        let mut step = step("create", asked.x, walls[asked.run as usize - 1]);
        step.extras.push(extra("allocations", "per file", f64::from(asked.run)));
        Ok(vec![step])
    });
    job.published.push(Published {
        source: "somebody, 2015",
        columns: vec!["files", "s"],
        rows: vec![vec![1000.0, 0.5]],
    });
    let mut ours = Fake::new("memory:xfs");
    ours.description.base = Some("memory:xfs,^parent".to_owned());
    ours.description.features = "parent=1".to_owned();
    ours.description.remarks = vec!["no system calls".to_owned()];
    let mut absent = Fake::new("kernel:xfs");
    absent.unsupported = Some((0, "it needs root".to_owned()));
    let contestants = vec![ours, Fake::new("memory:xfs,^parent"), absent];
    run_with(&[entry(job, contestants)], 3, &Notes::default())
}

/// Removes a ratio and its interval from a report, and checks that it is Student's of the ratios of three rounds.
#[track_caller]
fn check_interval(overhead: &mut Value, name: &str, ratio: f64, rounds: [f64; 3]) {
    let logs = rounds.map(f64::ln);
    let mean = logs.iter().sum::<f64>() / 3.0;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / 2.0;
    let reach = 4.303 * (variance / 3.0).sqrt();
    let said = overhead[name]["ratio"].take().as_f64().unwrap();
    assert!((said - ratio).abs() < 1e-9, "{name}: {said}");
    let found = overhead[name]["interval"].take();
    for (place, expected) in [mean - reach, mean + reach].into_iter().enumerate() {
        let found = found[place].as_f64().unwrap().ln();
        assert!((found - expected).abs() < 1e-9, "{name} {place}: {found} and {expected}");
    }
}

#[test]
fn every_figure_is_right() {
    let mut value: Value = serde_json::from_str(&report().json()).unwrap();
    let rows = &mut value["workloads"][0]["rows"];
    let overhead = &mut rows[0]["overhead"];
    check_interval(overhead, "wall", 1.2, [120.0 / 100.0, 110.0 / 100.0, 200.0 / 80.0]);
    check_interval(overhead, "user", 1.1, [90.0 / 90.0, 99.0 / 90.0, 120.0 / 90.0]);
    check_interval(overhead, "processor", 1.1, [110.0 / 110.0, 132.0 / 110.0, 142.0 / 90.0]);
    assert_eq!(rows.as_array().unwrap().len(), 4);
    let expected = json!({
        "step": "create", "x": 1000, "contestant": "memory:xfs", "runs": 3, "operations": 1000,
        // 1000 files in the median of 110, 120 and 200 ms.
        "rate": 1000.0 / 0.12,
        "wall": { "runs": 3, "median_s": 0.12, "min_s": 0.11, "max_s": 0.2, "spread": (0.2 - 0.11) / 0.12 },
        "user": { "runs": 3, "median_s": 0.099, "min_s": 0.09, "max_s": 0.12, "spread": (0.12 - 0.09) / 0.099 },
        "system": { "runs": 3, "median_s": 0.022, "min_s": 0.02, "max_s": 0.033, "spread": (0.033 - 0.02) / 0.022 },
        "extras": [{ "name": "allocations", "unit": "per file", "median": 2.0 }],
        "overhead": {
            "base": "memory:xfs,^parent",
            "wall_percent": (0.12 / 0.1 - 1.0) * 100.0,
            "user_percent": (0.099 / 0.09 - 1.0) * 100.0,
            "system_percent": (0.022 / 0.02 - 1.0) * 100.0,
            "processor_percent": ((0.099 + 0.022) / (0.09 + 0.02) - 1.0) * 100.0,
            "wall": { "ratio": null, "interval": null, "rounds": 3, "is_told_apart": false },
            "user": { "ratio": null, "interval": null, "rounds": 3, "is_told_apart": false },
            // In one round the base took no system time.
            "system": null,
            "processor": {
                "ratio": null, "interval": null, "rounds": 3, "is_told_apart": false,
            },
        },
        // The kernel's contestant did not take part.
        "kernel": null,
        "size_bytes": 8_589_934_592_u64,
        "measured": [
            { "round": 1, "repeats": 1, "operations": 1000, "wall_s": 0.12, "user_s": 0.09, "system_s": 0.02 },
            { "round": 2, "repeats": 1, "operations": 1000, "wall_s": 0.11, "user_s": 0.099, "system_s": 0.033 },
            { "round": 3, "repeats": 1, "operations": 1000, "wall_s": 0.2, "user_s": 0.12, "system_s": 0.022 },
        ],
    });
    assert_eq!(rows[0], expected);
    assert_eq!(
        (&rows[1]["contestant"], &rows[1]["overhead"]),
        (&json!("memory:xfs,^parent"), &Value::Null)
    );
    assert_eq!((&rows[2]["x"], &rows[2]["runs"]), (&json!(4000), &json!(1)));
}

#[test]
fn ours_stand_beside_the_kernels_with_the_same_settings() {
    let job = FakeJob::new(vec![case(1000, 2)], |asked| {
        let wall = match asked.contestant {
            "kernel:xfs" => 900,
            "kernel:xfs,+parent" => 800,
            "kernel:ext4" => 700,
            _ => 100,
        };
        Ok(vec![step("create", asked.x, [wall, wall, 0])])
    });
    let fake = |name: &str| {
        let mut fake = Fake::new(name);
        fake.description.format = name[7..].split(',').next().unwrap().to_owned();
        fake.description.deviations = name.matches(',').count() as u32;
        fake
    };
    let names = ["memory:xfs,free-index=tree", "memory:xfs,+parent", "memory:ext4"];
    let kernels = ["kernel:xfs,+parent", "kernel:xfs", "kernel:ext4"];
    let all = names.iter().chain(&kernels).map(|name| fake(name)).collect();
    let report = run_with(&[entry(job, all)], 2, &Notes::default());
    let rows = &report.workloads[0].rows;
    let found: Vec<_> = rows.iter().map(|row| row.kernel.as_ref()).collect();
    for (row, (name, ratio)) in
        found.iter().zip([("kernel:xfs", 9.0), ("kernel:xfs,+parent", 8.0), ("kernel:ext4", 7.0)])
    {
        let against = row.unwrap();
        assert_eq!((against.contestant.as_str(), against.rate.rounds), (name, 2));
        assert!((against.rate.ratio - ratio).abs() < 1e-9, "{against:?}");
    }
    assert!(found[3..].iter().all(Option::is_none), "the kernel's have no kernel beside them");
}

#[test]
fn everything_that_a_report_must_say_is_said() {
    let mut value: Value = serde_json::from_str(&report().json()).unwrap();
    value["workloads"][0]["rows"] = json!([]);
    // Depends on the optimisation of the test build.
    assert_eq!(value["optimised"], json!(!cfg!(debug_assertions)));
    value["optimised"] = json!(true);
    // 8,333 and 6,667 files a second: 600 ms for 4000 files; the base stays at 10,000.
    let ratio = (4000.0 / 0.6) / (1000.0 / 0.12);
    let contestant = |name: &str, side: Origin| {
        json!({ "name": name, "side": side, "format": "", "deviations": 0, "what": format!("What {name} is."), "features": "",
                "base": null, "remarks": [] })
    };
    let mut ours = contestant("memory:xfs", Origin::Ours);
    ours["base"] = json!("memory:xfs,^parent");
    ours["features"] = json!("parent=1");
    ours["remarks"] = json!(["no system calls"]);
    let expected = json!({
        "format": 1,
        "date": "2026-11-21 14:00 UTC",
        "command": "diskwright-bench compare",
        "seed": 7,
        "rounds": 3,
        "rounds_most": 3,
        "optimised": true,
        "cut_short": false,
        "durability": "Nothing is synced, unless the name of a step or the words about a workload say so.",
        "machine": {
            "cpu": "Example CPU", "cores": 2, "memory_bytes": 25_769_803_776_u64, "kernel": "6.18.5",
            "scratch": "/dev/shm (tmpfs)", "load": 0.25, "governor": null,
            "virtual_machine": "Example", "versions": ["diskwright 0.1.0"],
        },
        "workloads": [{
            "name": "create", "what": "Makes files.", "axis": "files", "unit": "files/s",
            "contestants": [ours, contestant("memory:xfs,^parent", Origin::Ours), contestant("kernel:xfs", Origin::Kernel)],
            "headlines": [],
            "rows": [],
            "flatness": [
                { "contestant": "memory:xfs", "step": "create", "from": 1000, "to": 4000, "ratio": ratio,
                  "sure": { "ratio": ratio, "interval": null, "rounds": 1, "is_told_apart": false } },
                { "contestant": "memory:xfs,^parent", "step": "create", "from": 1000, "to": 4000, "ratio": 1.0,
                  "sure": { "ratio": 1.0, "interval": null, "rounds": 1, "is_told_apart": false } },
            ],
            "skipped": [{ "contestant": "kernel:xfs", "from": 1000, "why": "it needs root" }],
            "failed": [],
            "published": [{ "source": "somebody, 2015", "columns": ["files", "s"], "rows": [[1000.0, 0.5]] }],
        }],
    });
    assert_eq!(value, expected);
}
