//! `pjdfstest`: our mount may fail only tests that the kernel's own mount fails too.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::thread;

use testkit::require;

use crate::place::{Driver, Format, Place, Wanted, tool};

/// All features that it can test on Linux. The users exist on every Debian. The pause between
/// timestamps is longer than a tick of the kernel's file clock.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = REMOUNT

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Minimum number of tests, to detect a run that stops early.
const TESTS_MIN: usize = 380;

/// Known differences of our mounts: name of the test, and reason.
const KNOWN: [(&str, &str); 1] = [(
    "link::link_count_max",
    "it asks pathconf for the limit, which knows no file system behind FUSE; see mount_edges",
)];

/// Replacement of mount(8) for tests that remount. It does not call a FUSE helper, which can only
/// create new mounts.
const MOUNT: &str =
    "#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\nexec mount --internal-only \"$@\"\n";

/// Result and output of each test, by name.
type Results = BTreeMap<String, (String, String)>;

/// Runs the tests whose names match one of these patterns.
fn results(place: &Place, remount: bool, patterns: &[&str]) -> Results {
    let configuration = place.home().join("pjdfstest.toml");
    let text = CONFIGURATION.replace("REMOUNT", if remount { "true" } else { "false" });
    fs::write(&configuration, text).unwrap();
    let mut command = tool("pjdfstest");
    // The image's home directory is on a separate file system: renames to it must fail.
    command.arg("-c").arg(configuration).arg("-p").arg(place.path()).arg("-s").arg(place.home());
    let directories = place.home().join("bin");
    fs::create_dir_all(&directories).unwrap();
    fs::write(directories.join("mount"), MOUNT).unwrap();
    fs::set_permissions(directories.join("mount"), Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", directories.display()));
    let output = command.env("RUST_BACKTRACE", "0").args(patterns).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("Summary: "), "pjdfstest ended with {}: {text}{errors}", output.status);
    parse(&text)
}

/// Parses lines with a name and a result, each possibly followed by indented output.
fn parse(text: &str) -> Results {
    let mut results = Results::new();
    let mut last = None;
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [name, result @ ("ok" | "FAILED" | "skipped")] if !line.starts_with('\t') => {
                results.insert(name.to_owned(), (result.to_owned(), String::new()));
                last = Some(name.to_owned());
            }
            _ => {
                let said = last.as_ref().and_then(|name| results.get_mut(name));
                if let Some((_, said)) = said {
                    said.push_str(line);
                    said.push('\n');
                }
            }
        }
    }
    results
}

/// Runs all tests, then those that remount, which require an unused mount.
fn both_runs(wanted: Wanted) -> Results {
    let run = |remount, patterns: &[_]| {
        let place = Place::new(wanted);
        let results = results(&place, remount, patterns);
        place.finish();
        results
    };
    let mut all = run(false, &[]);
    all.retain(|name, _| !name.contains("erofs"));
    all.extend(run(true, &["erofs"]));
    all
}

fn as_good_as_the_kernel(format: Format) {
    require!(Root, Fuse, Mount("ext4"), Mount("xfs"), Tool("pjdfstest"), Tool("mkfs.xfs"));
    let run = |driver| both_runs(Wanted { driver, ..Wanted::new(format) });
    let asked = Wanted::new(format).driver;
    let (ours, kernel) = thread::scope(|scope| {
        let kernel = scope.spawn(|| run(Driver::Kernel));
        // With the kernel for both, this shows that the results of the suite are reproducible.
        let ours = run(asked);
        (ours, kernel.join().unwrap())
    });
    let passed = |results: &Results| results.values().filter(|(result, _)| result == "ok").count();
    println!(
        "{format:?}: {} of {} pass, {} on the kernel's mount",
        passed(&ours),
        ours.len(),
        passed(&kernel)
    );
    assert!(kernel.len() >= TESTS_MIN, "only {} tests", kernel.len());
    let mut worse = Vec::new();
    for (name, (expected, _)) in &kernel {
        let none = (String::from("missing"), String::new());
        let (found, said) = ours.get(name).unwrap_or(&none);
        let known = KNOWN.iter().find(|(known, _)| name == known).filter(|_| asked == Driver::Own);
        match known {
            Some((_, reason)) if found == "ok" => {
                worse.push(format!("{name} passes now, but: {reason}"));
            }
            Some((_, reason)) => println!("{name}: {found}, because {reason}"),
            None if found == expected || found == "ok" => {}
            None => {
                worse
                    .push(format!("{name}: {found}, but {expected} on the kernel's mount\n{said}"));
            }
        }
    }
    assert!(worse.is_empty(), "{} tests:\n{}", worse.len(), worse.join("\n"));
}

#[test]
fn ext4_is_as_good_as_the_kernels() {
    as_good_as_the_kernel(Format::Ext);
}

#[test]
fn xfs_is_as_good_as_the_kernels() {
    as_good_as_the_kernel(Format::Xfs);
}
