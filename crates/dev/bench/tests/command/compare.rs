//! The smallest comparison of all workloads, with a plausible report.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bench::jobs::FILES_PER_STEP;
use serde_json::Value;
use testkit::{Need, satisfied, scratch};

use crate::command::common::{all, contestants, list, number, ok, text};

/// Number of rounds of the set.
const ROUNDS: u64 = 1;

const SEED: u64 = 42;

/// Steps of each workload of the set, with `x` and operations, if these are determined by the
/// options.
const STEPS: &[(&str, &str, u64, u64)] = &[
    ("create", "create", 20_000, FILES_PER_STEP),
    ("remove", "remove", 20_000, FILES_PER_STEP),
    ("remove", "remove, cold cache", 20_000, FILES_PER_STEP),
    ("change", "chmod", 20_000, 20_000),
    ("change", "link", 20_000, 20_000),
    ("change", "rename", 20_000, 20_000),
    ("change", "move", 20_000, 20_000),
    ("fs-mark", "create", 8000, 8000),
    ("fs-mark", "remove", 8000, 8000),
    ("fs-mark", "remove, cold cache", 8000, 8000),
    ("find", "walk, first", 2000, 2133),
    ("find", "walk, cached", 2000, 4 * 2133),
    ("stress-orphan", "truncate", 1, 1024),
    ("stress-orphan", "truncate", 4, 4 * 1024),
    ("stress-unlink", "unlink", 1, 10),
    ("stress-unlink", "unlink", 4, 40),
    ("fserver", "jobs", 1, 24),
    ("fserver", "jobs", 5, 5 * 24),
];

/// Workloads that only *long* compares: the longest, whose steps the module `single` also tests.
const LONG: [&str; 2] = ["create", "remove"];

/// Returns the workloads to compare.
fn asked() -> Vec<&'static str> {
    let leaves = testkit::effort(true, true, false);
    let mut all: Vec<_> = STEPS.iter().map(|(workload, ..)| *workload).collect();
    all.dedup();
    all.retain(|name| !(leaves && LONG.contains(name)));
    all
}

/// Returns whether kernel file systems are available.
fn has_kernel() -> bool {
    let needs = [Need::Root, Need::Loop, Need::Mount("ext4"), Need::Mount("xfs")];
    satisfied("kernel targets of a_quick_comparison_makes_sense", &needs)
}

#[test]
fn a_quick_comparison_makes_sense() {
    let has_kernel = has_kernel();
    let dir = scratch();
    let asked = asked();
    let some = format!("--only {} ", asked.join(","));
    let only = testkit::effort(&*some, &*some, "");
    let line = format!("compare --set quick {only}--seed {SEED} --scratch . --json");
    let (out, said) = ok(dir.path(), &line);
    let json = fs::read_to_string(dir.path().join("workload-report/report.json")).unwrap();
    assert_eq!(out, json);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["seed"], SEED);
    assert_eq!(report["rounds"], ROUNDS);
    assert_eq!(report["cut_short"], false);
    assert_eq!(report["command"], format!("diskwright-bench {line}"));
    assert!(
        number(&report["machine"], "cores") > 0 && !text(&report["machine"], "kernel").is_empty()
    );
    let workloads = list(&report, "workloads");
    let names: Vec<_> = workloads.iter().map(|workload| text(workload, "name")).collect();
    assert_eq!(names, asked);
    for workload in workloads {
        check_workload(workload, has_kernel, &said);
    }
    check_page(dir.path(), workloads.len());
    let left: BTreeSet<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, BTreeSet::from(["workload-report".into()]));
}

fn check_workload(workload: &Value, has_kernel: bool, said: &str) {
    let name = text(workload, "name");
    assert!(list(workload, "failed").is_empty(), "{name}: {}", workload["failed"]);
    let (rows, skipped) = (list(workload, "rows"), list(workload, "skipped"));
    let there = contestants(workload);
    for target in ["memory:ext4", "memory:xfs", "kernel:ext4", "kernel:xfs"] {
        assert!(there.iter().any(|one| one.starts_with(target)), "{name}: no {target}");
    }
    for skipped in skipped {
        assert!(!text(skipped, "why").is_empty());
        let line = format!("{}: skipped: ", text(skipped, "contestant"));
        assert!(said.contains(&line), "{name}: no message {line:?} in {said}");
    }
    let out = all(skipped, "contestant");
    let ran = all(rows, "contestant");
    for &contestant in &there {
        assert_ne!(ran.contains(contestant), out.contains(contestant), "{name}: {contestant}");
        assert!(ran.contains(contestant) || contestant.starts_with("kernel:"), "{contestant}");
    }
    // A kernel may be too old for parent pointers; everything else is required.
    let kernels = ran.iter().filter(|one| one.starts_with("kernel:")).count();
    assert_eq!(kernels >= 2, has_kernel, "{name}: {skipped:?}");
    for contestant in list(workload, "contestants") {
        assert!(!text(contestant, "features").is_empty(), "{contestant}");
        assert!(!list(contestant, "remarks").is_empty(), "{contestant}");
    }
    check_rows(name, rows, &ran);
}

/// Asserts that every step of every case has a row for all contestants, with valid figures.
fn check_rows(name: &str, rows: &[Value], ran: &BTreeSet<&str>) {
    let mut by_case: BTreeMap<(&str, u64), BTreeSet<&str>> = BTreeMap::new();
    for row in rows {
        let case = (text(row, "step"), number(row, "x"));
        let expected =
            STEPS.iter().find(|(of, step, x, _)| (*of, *step, *x) == (name, case.0, case.1));
        match expected {
            Some(&(.., operations)) => assert_eq!(number(row, "operations"), operations, "{row}"),
            // Only this program's own file systems can be profiled.
            None => assert_eq!((name, case.0), ("find", "walk, profiled"), "{row}"),
        }
        assert_eq!(number(row, "runs"), ROUNDS, "{row}");
        let rate = row["rate"].as_f64().unwrap_or_default();
        assert!(rate.is_finite() && rate > 0.0, "{row}");
        let wall = &row["wall"];
        let times = ["min_s", "median_s", "max_s"].map(|key| wall[key].as_f64().unwrap());
        assert!(times[0] > 0.0 && times.is_sorted(), "{row}");
        assert!(number(row, "size_bytes") > 1 << 20, "{row}");
        by_case.entry(case).or_default().insert(text(row, "contestant"));
    }
    for (_, step, x, _) in STEPS.iter().filter(|(of, ..)| *of == name) {
        assert_eq!(by_case.get(&(*step, *x)), Some(ran), "{name}, {step}, {x}");
    }
}

/// Asserts that the page has no external dependencies.
fn check_page(dir: &Path, workloads: usize) {
    let page = fs::read_to_string(dir.join("workload-report/report.html")).unwrap();
    assert!(page.matches("<svg").count() >= workloads, "too few plots");
    let lower = page.to_lowercase();
    for outside in
        ["<script", "<iframe", "<link", "@import", "url(http", "=\"http", "='http", "=\"//"]
    {
        assert!(!lower.contains(outside), "the page has {outside}");
    }
    for name in asked() {
        assert!(page.contains(name), "{name}");
    }
}
