//! The program `diskwright` as `cargo build --release` builds it: without crates of `crates/dev`, and without code that
//! only measures.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::tidy::workspace;

/// Features that only `diskwright-bench` has: other searches for room in XFS directories, clocks in listings, and locks
/// that record their use.
const MEASURING: [&str; 4] =
    ["count-locks", "free-index-strategies", "listing-times", "lock-counts"];

/// Returns the packages of this project in `cargo tree` with these arguments, each with its features.
fn tree(arguments: &[&str]) -> BTreeSet<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--offline", "--locked", "-e", "no-dev", "--prefix", "none"]);
    command.args(["--format", "{p} {f}"]).args(arguments);
    let output = command.current_dir(workspace()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree {arguments:?}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| line.starts_with("diskwright")).map(str::to_owned).collect()
}

/// Returns whether a package of a tree has a feature.
fn has(tree: &BTreeSet<String>, feature: &str) -> bool {
    let features = |line: &str| line.trim_end_matches(" (*)").rsplit(' ').next().map(str::to_owned);
    tree.iter().filter_map(|line| features(line)).any(|all| all.split(',').any(|f| f == feature))
}

#[test]
fn the_program_contains_no_crate_of_dev() {
    let packages = tree(&["-p", "diskwright-cli", "--features", "anywhere,pull"]);
    assert!(packages.iter().any(|line| line.contains("/crates/formats/xfs")), "{packages:?}");
    assert!(has(&packages, "anywhere"), "{packages:?}");
    let found: Vec<_> = packages.iter().filter(|line| line.contains("/crates/dev/")).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_build_of_the_default_members_contains_no_code_that_only_measures() {
    // Without a package, it reads the default members, and `cargo build` builds these.
    let program = tree(&[]);
    assert!(program.iter().any(|line| line.starts_with("diskwright-cli ")), "{program:?}");
    assert!(!program.iter().any(|line| line.starts_with("diskwright-bench ")), "{program:?}");
    let bench = tree(&["-p", "diskwright-bench", "--features", "count-locks"]);
    for feature in MEASURING {
        assert!(!has(&program, feature), "{feature}: {program:?}");
        assert!(has(&bench, feature), "{feature}: {bench:?}");
    }
}

#[test]
fn builds_of_releases_name_one_package() {
    // Several packages in one build have the features of all.
    let script = fs::read_to_string(workspace().join("scripts/build-release")).unwrap();
    let builds: Vec<_> = script.lines().filter(|line| line.starts_with("cargo build")).collect();
    assert!(matches!(builds[..], [build] if build.matches(" -p ").count() == 1), "{builds:?}");
}
