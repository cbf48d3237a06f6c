//! Each workload alone.

use std::fs;

use bench::jobs::FILES_PER_STEP;
use serde_json::Value;
use testkit::{Mke2fs, e2fsck, require, scratch};

use crate::command::common::{all, contestants, list, number, ok, only, report, text};

/// Returns the steps with their operation counts, which are equal for all contestants.
#[track_caller]
fn steps(workload: &Value) -> Vec<(&str, u64, u64)> {
    let mut steps: Vec<_> = list(workload, "rows")
        .iter()
        .map(|row| (text(row, "step"), number(row, "x"), number(row, "operations")))
        .collect();
    steps.dedup();
    steps
}

#[test]
fn create_runs_every_way_of_finding_room() {
    let dir = scratch();
    let report = report(dir.path(), "create --files 1k,200 --free-index all --seed 5");
    assert_eq!(report["seed"], 5);
    let create = only(&report);
    assert_eq!(
        contestants(create),
        ["forward-decode", "forward", "reverse", "block-skip", "tree"]
            .map(|way| format!("memory:xfs,free-index={way}"))
    );
    assert_eq!(steps(create), [("create", 1000, FILES_PER_STEP), ("create", 200, FILES_PER_STEP)]);
    for contestant in &list(create, "contestants")[1..] {
        assert_eq!(contestant["base"], "memory:xfs,free-index=forward-decode");
    }
}

#[test]
fn remove_also_runs_from_a_cold_cache() {
    let dir = scratch();
    let line = "remove --files 10k --threads 2 --cold --target memory:ext4";
    let report = report(dir.path(), line);
    let steps = steps(only(&report));
    assert_eq!(steps, ["remove", "remove, cold cache"].map(|name| (name, 10_000, FILES_PER_STEP)));
}

#[test]
fn fs_mark_says_what_parent_pointers_cost() {
    let dir = scratch();
    let report = report(dir.path(), "fs-mark -D 10 -S 0 -n 500 -s 0 -L 2 -t 3 --rounds 2");
    assert_eq!(report["rounds"], 2);
    let fs_mark = only(&report);
    assert_eq!(contestants(fs_mark), ["memory:xfs,^parent", "memory:xfs,+parent"]);
    assert_eq!(steps(fs_mark), [("create", 3000, 3000), ("remove", 3000, 3000)]);
    for row in list(fs_mark, "rows") {
        assert_eq!(row["runs"], 2);
        let overhead = &row["overhead"];
        if row["contestant"] == "memory:xfs,+parent" {
            assert_eq!(overhead["base"], "memory:xfs,^parent");
            assert!(overhead["wall_percent"].is_f64(), "{row}");
        } else {
            assert!(overhead.is_null(), "{row}");
        }
    }
    for contestant in list(fs_mark, "contestants") {
        let has = text(contestant, "features").contains("parent");
        assert_eq!(has, text(contestant, "name").contains("+parent"), "{contestant}");
    }
}

#[test]
fn find_makes_a_tree_or_walks_what_is_there() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/c"), "").unwrap();
    let made = report(dir.path(), "find --tree generated:300 --walks 3");
    let made = only(&made);
    assert_eq!(contestants(made), ["memory:ext4"]);
    let entries = |step: &str| {
        let steps = steps(made);
        steps.iter().find(|(name, ..)| *name == step).map(|&(_, _, operations)| operations)
    };
    let first = entries("walk, first").unwrap();
    assert!((300..400).contains(&first), "{first}");
    assert_eq!(entries("walk, cached"), Some(2 * first));

    let both = report(dir.path(), "find --walks 2 --target memory:xfs --target tree");
    let [made, there] = list(&both, "workloads") else { panic!("{both}") };
    assert_eq!(contestants(made), ["memory:xfs"]);
    assert_eq!(contestants(there), ["tree"]);
    assert!(steps(made)[0].2 > 87_000, "{made}");
    assert_eq!(steps(there)[0].2, 3, "{there}");

    let like = report(dir.path(), "find --tree tree --walks 1 --target memory:xfs");
    assert_eq!(steps(only(&like))[0].2, 3);
    assert!(tree.join("a/b/c").exists());
}

#[test]
fn stress_orphan_compares_with_the_limit() {
    let dir = scratch();
    let line = "stress-orphan --threads 1,3 --file-size 100 --files 2";
    let report = report(dir.path(), line);
    let stress = only(&report);
    assert_eq!(
        contestants(stress),
        ["off", "list", "always", "when-needed"].map(|when| format!("memory:ext4,orphans={when}"))
    );
    assert_eq!(steps(stress), [("truncate", 1, 200), ("truncate", 3, 600)]);
    for contestant in &list(stress, "contestants")[1..] {
        assert_eq!(contestant["base"], "memory:ext4,orphans=off");
    }
}

#[test]
fn stress_unlink_and_fserver_run_on_directories_and_images() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let dir = scratch();
    fs::create_dir(dir.path().join("place")).unwrap();
    let image = dir.path().join("a.img");
    Mke2fs::new("ext4").create(&image, 256 << 20);
    let targets = "--target memory:ext4,orphans=list --target place --target a.img";
    let lines = [
        ("stress-unlink --threads 2 --files 5", "unlink", 10),
        ("fserver --tasks 2 --jobs 24 --file-size 64K --pool-size 0", "jobs", 48),
    ];
    for (line, step, operations) in lines {
        let report = report(dir.path(), &format!("{line} {targets}"));
        let workload = only(&report);
        assert_eq!(all(list(workload, "rows"), "contestant").len(), 3, "{workload}");
        assert_eq!(steps(workload), [(step, 2, operations)], "{line}");
    }
    assert_eq!(fs::read_dir(dir.path().join("place")).unwrap().count(), 0);
    e2fsck(&image);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn the_report_is_text_or_markdown_or_files() {
    let dir = scratch();
    let line = "create --files 500 --target memory:ext4";
    let (table, said) = ok(dir.path(), line);
    assert!(table.contains("memory:ext4") && table.contains("files/s"), "{table}");
    let is_debug = cfg!(debug_assertions);
    assert_eq!(said.matches("debug build").count(), usize::from(is_debug), "{said}");
    let (markdown, _) = ok(dir.path(), &format!("{line} --markdown"));
    assert!(markdown.contains("\n| ") && markdown.contains("\n## create"), "{markdown}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is written unasked");
    let (_, said) = ok(dir.path(), &format!("{line} --report new/report"));
    assert!(said.contains("wrote report.html and report.json to new/report"), "{said}");
    let written = dir.path().join("new/report");
    let json = fs::read_to_string(written.join("report.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let expected = format!("diskwright-bench {line} --report new/report");
    assert_eq!(text(&json, "command"), expected);
    assert!(fs::read_to_string(written.join("report.html")).unwrap().contains("<svg"));
}
