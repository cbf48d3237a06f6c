//! `apply(diff(A, B), A)` is B: for random trees and changes, checked by the checkers and the
//! kernel.

use std::path::Path;

use testkit::require;

use crate::edit::common::run;

use crate::layers::common::{FORMATS, assert_equal, assert_holds, build};
use crate::layers::random::Gardener;
use crate::program::ok;

/// Creates the trees `a` and `b` below a directory: `b` is `a` with changes.
fn trees(dir: &Path, seed: u64) {
    std::fs::create_dir(dir.join("a")).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    Gardener::new(&dir.join("a"), seed).work(random.usize(10..150));
    let copied = testkit::command("cp").arg("-a").args(["a", "b"]).current_dir(dir).status();
    assert!(copied.unwrap().success());
    Gardener::new(&dir.join("b"), seed + 1_000_000).work(random.usize(..60));
}

/// Compares, applies and compares again.
fn goes_over(dir: &Path, seed: u64) {
    let (from, to) = (FORMATS[(seed % 2) as usize], FORMATS[(seed / 2 % 2) as usize]);
    build(dir, "a", "a.img", from);
    build(dir, "b", "b.img", to);
    let layer = ["layer.tar", "layer.tar.gz", "layer.tar.zst"][(seed % 3) as usize];
    // The second side is an image or the directory from which it was made.
    let target = if seed.is_multiple_of(5) { "b" } else { "b.img" };
    let options = if target == "b" { "--ignore flags" } else { "" };
    ok(dir, &format!("diff a.img {target} -o {layer} {options}"));
    let said = ok(dir, &format!("apply {layer} a.img --json"));
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["one_change"], true, "{report}");
    assert_equal(dir, "a.img", "b.img");
    assert_equal(dir, "b", "a.img");
    assert_holds(&dir.join("a.img"), &dir.join("b"));
}

#[test]
fn a_difference_applied_to_one_tree_gives_the_other() {
    require!(Tool("e2fsck"), Tool("xfs_repair"), Mount("ext4"), Mount("xfs"), Root);
    let first = testkit::effort(0, 0, 1000);
    for seed in first..first + testkit::effort(8, 20, 400) {
        println!("seed {seed}");
        let dir = testkit::scratch();
        trees(dir.path(), seed);
        goes_over(dir.path(), seed);
    }
}

/// The layer does not depend on the kind of the sides, and is reproducible.
#[test]
fn a_layer_does_not_depend_on_what_holds_the_trees() {
    let dir = testkit::scratch();
    let dir = dir.path();
    trees(dir, 12);
    build(dir, "a", "a.img", FORMATS[0]);
    build(dir, "b", "b.img", FORMATS[1]);
    let layer = |sides: &str| {
        let line = format!("diff {sides} -o -");
        let output = run(dir, &line.split_whitespace().collect::<Vec<_>>());
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let expected = layer("a.img b.img");
    assert!(expected.len() > 4096);
    for sides in ["a b", "a b.img", "a.img b", "a.img b.img --threads 1"] {
        assert!(layer(sides) == expected, "{sides}");
    }
}

/// Two trees without a difference: no output, and an empty layer.
#[test]
fn nothing_is_different_about_a_copy() {
    let dir = testkit::scratch();
    let dir = dir.path();
    trees(dir, 3);
    for format in FORMATS {
        build(dir, "a", "a.img", format);
        assert_equal(dir, "a", "a.img");
        ok(dir, "diff a a.img -o layer.tar --force");
        assert_eq!(std::fs::metadata(dir.join("layer.tar")).unwrap().len(), 1024);
        let said = ok(dir, "apply layer.tar a.img --json");
        assert!(said.contains("\"entries\":0"), "{said}");
        assert_equal(dir, "a", "a.img");
        std::fs::remove_file(dir.join("a.img")).unwrap();
    }
}

/// Other programs can unpack a layer over the first tree to get the second one.
#[test]
fn tar_unpacks_the_entries_of_a_layer() {
    require!(Tool("tar"), Root);
    let dir = testkit::scratch();
    let dir = dir.path();
    trees(dir, 21);
    std::fs::create_dir(dir.join("empty")).unwrap();
    // Start from an empty tree. Such a layer contains no whiteouts, which tar does not support.
    ok(dir, "diff empty b -o layer.tar");
    std::fs::create_dir(dir.join("out")).unwrap();
    let status = testkit::command("tar")
        .args(["--xattrs", "--xattrs-include=*", "--acls", "-xpf", "layer.tar", "-C", "out"])
        .current_dir(dir)
        .status();
    assert!(status.unwrap().success());
    // GNU tar finishes "./" as soon as a name without "./" follows.
    let touch = testkit::command("touch").args(["-r", "b", "out"]).current_dir(dir).status();
    assert!(touch.unwrap().success());
    assert_equal(dir, "b", "out");
}
