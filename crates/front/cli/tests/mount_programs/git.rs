//! A repository cloned into the mount and used there, and a build of one of its crates.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::{Need, satisfied};

use crate::place::{Place, prove_on_both, run, tool};

/// Returns git with only these settings.
fn git(place: &Place, directory: &Path) -> Command {
    let settings = place.home().join("gitconfig");
    let text = "[user]\nname = Proof\nemail = proof@example.org\n[safe]\ndirectory = *\n\
                [gc]\nauto = 0\n[init]\ndefaultBranch = main\n[core]\nfsync = all\n";
    fs::write(&settings, text).unwrap();
    let mut command = tool("git");
    command.current_dir(directory).env("GIT_CONFIG_GLOBAL", settings);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
    // If a git hook runs these tests, its variables would select another repository.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    command
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split_whitespace()
}

/// Returns the sources of this project as a repository: its own, or a new one if the sources have
/// none.
fn repository(place: &Place) -> std::path::PathBuf {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap();
    let known = git(place, &project).args(["rev-parse", "--verify", "HEAD"]).output().unwrap();
    if known.status.success() {
        return project;
    }
    let new = place.home().join("repository");
    fs::create_dir(&new).unwrap();
    for part in ["Cargo.toml", "Cargo.lock", "crates", "docs"] {
        run(tool("cp").arg("-a").args([project.join(part), new.join(part)]));
    }
    for line in ["init -q", "add .", "commit -q -m all"] {
        run(git(place, &new).args(words(line)));
    }
    new
}

fn git_works(place: &mut Place) {
    if !satisfied("git_works", &[Need::Tool("git")]) {
        return;
    }
    let source = repository(place);
    let url = format!("file://{}", source.display());
    // The whole history takes time of git itself.
    let depth = format!("--depth={}", testkit::effort(20, 20, 1_000_000));
    run(git(place, place.path()).args(["clone", "-q", &depth, &url, "clone"]));
    let here = |place: &Place, line: &str| run(git(place, &place.join("clone")).args(words(line)));
    let clean = |place: &Place| assert_eq!(here(place, "status --porcelain"), "");
    here(place, "fsck --strict --no-dangling");
    clean(place);
    for branch in 0..5 {
        here(place, &format!("checkout -q -b branch-{branch}"));
        for round in 0..4 {
            let file = place.join(format!("clone/file {branch} {round}"));
            fs::write(file, format!("{round}").repeat(1000 * (branch + 1))).unwrap();
            here(place, "add .");
            here(place, &format!("commit -q -m round-{round}"));
        }
        here(place, "mv Cargo.toml Renamed.toml");
        here(place, "commit -q -m renamed");
        here(place, "revert --no-edit HEAD");
    }
    here(place, "checkout -q branch-1");
    here(place, "merge -q --no-edit branch-3");
    here(place, "stash list");
    here(place, "gc -q --prune=now");
    here(place, "fsck --strict --no-dangling");
    clean(place);
    let head = here(place, "rev-parse HEAD");
    place.remount();
    assert_eq!(here(place, "rev-parse HEAD"), head);
    here(place, "fsck --full --strict --no-dangling");
    clean(place);
    // Restores all files from git's objects.
    here(place, "rm -r -q --cached .");
    here(place, "reset -q --hard");
    clean(place);
}

/// A crate with few dependencies, and its folder.
const SMALL: (&str, &str) = ("dev", "testkit-macros");

fn cargo_builds(place: &mut Place) {
    // Cargo passes its path to the tests that it starts.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let needs = [Need::Tool("git"), Need::Tool("cargo")];
    let is_told = Path::new(&cargo).is_file();
    if !satisfied("cargo_builds", &needs[..if is_told { 1 } else { 2 }]) {
        return;
    }
    let source = repository(place);
    let url = format!("file://{}", source.display());
    run(git(place, place.path()).args(["clone", "-q", "--depth", "1", &url, "clone"]));
    let clone = place.join("clone");
    // A crate with more or fewer dependencies.
    let (folder, package) = testkit::effort(SMALL, SMALL, ("core", "disk"));
    let compiled = format!("Compiling diskwright-{package}");
    let build = || {
        let mut command = Command::new(&cargo);
        command.args(words("build --offline --locked -p")).arg(format!("diskwright-{package}"));
        command.current_dir(&clone);
        // Remove the user's settings, and those that cargo sets for tests.
        for (name, _) in std::env::vars_os() {
            let known = ["CARGO_HOME"];
            let text = name.to_string_lossy();
            if text.starts_with("CARGO") && !known.contains(&&*text) {
                command.env_remove(name);
            }
        }
        let output = command.env("CARGO_INCREMENTAL", "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    assert!(build().contains(&compiled));
    // Timestamps and contents are unchanged: there is nothing to build.
    assert!(!build().contains("Compiling"), "it builds again what has not changed");
    // A change is detected.
    let library = clone.join(format!("crates/{folder}/{package}/src/lib.rs"));
    let text = fs::read_to_string(&library).unwrap();
    fs::write(&library, format!("{text}\n")).unwrap();
    assert!(build().contains(&compiled));
    let status = run(git(place, &clone).args(["status", "--porcelain"]));
    assert_eq!(status, format!(" M crates/{folder}/{package}/src/lib.rs\n"));
}

prove_on_both!(git_works, cargo_builds);
