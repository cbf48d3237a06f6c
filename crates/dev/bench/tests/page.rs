//! `scripts/bench-all`: conversion of results to the tables of a page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::json;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Runs the script and returns its output.
fn bench_all(words: &[&str]) -> Output {
    let script = root().join("scripts/bench-all");
    testkit::command("python3").arg(script).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const PAGE: &str = "# Page\nBefore.\n<!-- table: list -->\nold\n<!-- end -->\nBetween.\n\
                    <!-- table: churn -->\nkept\n<!-- end -->\n<!-- table: goals -->\n<!-- end -->\n\
                    <!-- table: machine -->\n<!-- end -->\nAfter.\n";

/// Returns the part of a section that the script keeps.
fn kept(quick: bool) -> serde_json::Value {
    let rows = json!([
        { "entries": "10000", "way": "diskwright, hash order", "runs": "3", "ns/entry": "89", "spread": "9 %" },
        { "entries": "10000", "way": "kernel ext4", "runs": "3", "ns/entry": "271", "spread": "6 %" },
    ]);
    let machine = json!({
        "processors": 2, "model": "a model", "memory_gib": 23, "kernel": "6.18",
        "peers": { "e2fsck": "1.47.0", "fuse2fs": null },
    });
    json!({
        "commit": "0123456789", "date": "2026-11-22 10:00 UTC", "seconds": 1.0, "quick": quick, "long": false, "load": 0.1,
        "missing": ["fuse2fs (nowhere)"], "machine": machine, "raw": { "rows": rows },
    })
}

#[test]
fn the_page_has_one_place_for_every_table() {
    testkit::require!(Tool("python3"));
    let output = bench_all(&["--check"]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn invalid_locations_are_named() {
    testkit::require!(Tool("python3"));
    let scratch = testkit::scratch();
    let page = scratch.path().join("page.md");
    fs::write(&page, PAGE.replace("table: list", "table: lost")).unwrap();
    let output = bench_all(&["--check", "--page", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    for words in
        ["no table is called lost", "no place for the table list", "no place for the table create"]
    {
        assert!(said(&output).contains(words), "{}", said(&output));
    }
}

#[test]
fn only_tables_with_results_are_written() {
    testkit::require!(Tool("python3"));
    let scratch = testkit::scratch();
    let (page, results) = (scratch.path().join("page.md"), scratch.path().join("results"));
    fs::create_dir(&results).unwrap();
    let readme = scratch.path().join("README.md");
    fs::write(&readme, "<!-- table: readme -->\nnot all of it\n<!-- end -->\n").unwrap();
    let paths = [&page, &readme, &results].map(|path| path.to_str().unwrap());
    let words = ["--render", "--page", paths[0], "--readme", paths[1], "--results", paths[2]];
    for quick in [false, true] {
        fs::write(&page, PAGE).unwrap();
        fs::write(results.join("list.json"), kept(quick).to_string()).unwrap();
        let output = bench_all(&words);
        assert!(output.status.success(), "{}", said(&output));
        let text = fs::read_to_string(&page).unwrap();
        for part in [
            "# Page\nBefore.\n<!-- table: list -->\n| entries | way | runs | ns an entry | spread |\n",
            "| 10,000 | diskwright, hash order | 3 | 89 | 9 % |\n",
            "\n`scripts/bench-all --only list`, commit 0123456789, 2026-11-22 10:00 UTC",
            "\nMissing: fuse2fs (nowhere).\n<!-- end -->\nBetween.\n",
            "<!-- table: churn -->\nkept\n<!-- end -->\n",
            "| readdir of ext4 in hash order, per entry | 40 ns | 89 ns (10,000) |\n",
            "| chmod | 8 | not measured |\n",
            "Machine: 2 processors (a model), 23 GiB, Linux 6.18. Commit 0123456789, ",
            "Not there: fuse2fs.\n<!-- end -->\nAfter.\n",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(!text.contains("old"), "{text}");
        assert_eq!(text.contains("few rounds"), quick, "{text}");
    }
    assert!(fs::read_to_string(&readme).unwrap().contains("not all of it"));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 3, "nothing else is left");
}

#[test]
fn an_unknown_section_is_refused() {
    testkit::require!(Tool("python3"));
    let output = bench_all(&["--only", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("there are create, "), "{}", said(&output));
}
