//! Clones whose programs are killed, whose disk is full, whose power fails, or whose base changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use testkit::{KernelMount, Mke2fs, MountOptions, require, scratch};

use super::clones::{bases, hostname, judge, set_hostname};
use super::{fails, ok, run};
use crate::program::diskwright;

/// System calls that change files or make them durable. A program is killed before each of them.
const CALLS: [&str; 7] =
    ["ftruncate", "pwrite64", "fsync", "fdatasync", "fchmod", "linkat", "renameat"];

/// Runs a command line, and kills it instead of its call `number` of a system call. Returns whether it was killed.
fn is_killed(dir: &Path, line: &str, call: &str, number: u32) -> bool {
    let mut strace = testkit::command("strace");
    let inject = format!("inject={call}:error=EIO:signal=KILL:when={number}");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
    strace.arg(diskwright().get_program()).args(line.split(' '));
    let output = strace.current_dir(dir).output().unwrap();
    let is_killed = output.status.signal() == Some(9);
    assert!(is_killed || output.status.success(), "{line}: {output:?}");
    is_killed
}

/// A command for a clone with the name `changed`, above a snapshot with the name `one` of a base with the name `image`.
/// All files are in the directory `at`.
struct Case {
    line: &'static str,
    /// Names that the clone may have after an interruption, and that it has at the end.
    names: [&'static str; 2],
    /// File that may be new, and the name in it.
    new: Option<(&'static str, &'static str)>,
}

const CASES: [Case; 5] = [
    Case {
        line: "snapshot at/c at/s2",
        names: ["changed\n"; 2],
        new: Some(("at/s2", "changed\n")),
    },
    Case { line: "reset at/c", names: ["changed\n", "one\n"], new: None },
    Case { line: "reset at/c --to-base", names: ["changed\n", "image\n"], new: None },
    Case { line: "clone base.img at/c2", names: ["changed\n"; 2], new: Some(("at/c2", "image\n")) },
    Case {
        line: "commit at/c at/new.img",
        names: ["changed\n"; 2],
        new: Some(("at/new.img", "changed\n")),
    },
];

fn prepare(home: &Path) {
    ok(home, "clone base.img at/c");
    set_hostname(home, "at/c", "one\n");
    ok(home, "snapshot at/c at/s1");
    set_hostname(home, "at/c", "changed\n");
}

/// Checks the state after an interrupted command, then repeats it.
fn assert_old_or_new(home: &Path, case: &Case, at: &str) {
    let at = format!("{} {at}", case.line);
    let found = hostname(home, "at/c");
    assert!(case.names.contains(&&*found), "{at}: {found}");
    assert_eq!(hostname(home, "at/s1"), "one\n", "{at}");
    if let Some((new, name)) = case.new.filter(|(new, _)| home.join(new).exists()) {
        assert_eq!(hostname(home, new), name, "{at}");
        let is_twice = run(home, "mkdir at/c /probe").status.code() == Some(2);
        assert!(!is_twice || fails(home, "mkdir at/c /probe", 2).contains("2 names"), "{at}");
        fs::remove_file(home.join(new)).unwrap();
        // The snapshot was complete, and its clone needs it.
        if new == "at/s2" && !is_twice {
            return;
        }
    }
    ok(home, case.line);
    assert_eq!(hostname(home, "at/c"), case.names[1], "{at}");
    assert!(case.new.is_none_or(|(new, name)| hostname(home, new) == name), "{at}");
    let names = fs::read_dir(home.join("at")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".part")).collect();
    assert!(left.is_empty(), "{at}: {left:?}");
    set_hostname(home, "at/c", "later\n");
}

/// Calls `check` for a command that is killed at each of its system calls. It prepares the files, kills the program,
/// and returns whether it was killed. Returns the number of kills.
fn kill_everywhere(case: &Case, mut check: impl FnMut(&str, u32) -> bool) -> u32 {
    let mut kills = 0;
    for call in CALLS {
        let mut number = 1;
        while check(call, number) {
            kills += 1;
            // A commit writes many pieces in the same way.
            let is_copy = case.line.starts_with("commit") && call == "pwrite64";
            number += if is_copy { 5 } else { 1 };
        }
    }
    kills
}

#[test]
fn a_command_killed_at_any_system_call_leaves_the_old_or_the_new_state() {
    require!(Tool("strace"), Tool("e2fsck"), Tool("xfs_repair"));
    let home = scratch();
    let home = home.path();
    for base in &bases(home)[..testkit::effort(1, 1, 2)] {
        let _ = fs::remove_file(home.join("base.img"));
        fs::hard_link(home.join(base), home.join("base.img")).unwrap();
        let before = testkit::digest(&home.join(base));
        let _ = fs::remove_dir_all(home.join("at"));
        fs::create_dir(home.join("at")).unwrap();
        prepare(home);
        let _ = fs::remove_dir_all(home.join("prepared"));
        fs::rename(home.join("at"), home.join("prepared")).unwrap();
        for case in &CASES {
            let kills = kill_everywhere(case, |call, number| {
                let _ = fs::remove_dir_all(home.join("at"));
                // With times, which identify snapshots.
                let copied = testkit::command("cp")
                    .args(["-a", "prepared", "at"])
                    .current_dir(home)
                    .status();
                assert!(copied.unwrap().success());
                let is_killed = is_killed(home, case.line, call, number);
                if is_killed {
                    assert_old_or_new(home, case, &format!("killed at {call} {number}"));
                }
                is_killed
            });
            assert!(kills >= 3, "{}: {kills} kills", case.line);
            if home.join("at/c").exists() {
                judge(home, "at/c");
            }
        }
        assert_eq!(testkit::digest(&home.join(base)), before, "the base is changed");
    }
}

/// The clone is on an ext4 of the kernel, whose device is copied when the program is killed: all that was not synced is
/// lost.
#[test]
fn a_power_failure_during_a_command_leaves_the_old_or_the_new_state() {
    require!(Tool("strace"), Mount("ext4"), Tool("mke2fs"), Tool("e2fsck"));
    let home = scratch();
    let home = home.path();
    fs::rename(home.join(&bases(home)[0]), home.join("base.img")).unwrap();
    let [empty, disk, copy] = ["empty", "disk", "copy"].map(|name| home.join(name));
    Mke2fs::new("ext4").create(&empty, 64 << 20);
    let options = MountOptions { extra: "commit=3000", ..MountOptions::read_write("ext4") };
    // Headers of overlays contain the name of the link.
    let mount = |image: &Path| {
        let mount = KernelMount::new(image, &options);
        let _ = fs::remove_file(home.join("at"));
        symlink(mount.path(), home.join("at")).unwrap();
        mount
    };
    for case in &CASES {
        let kills = kill_everywhere(case, |call, number| {
            testkit::copy_image(&empty, &disk);
            let mounted = mount(&disk);
            prepare(home);
            let mut sync = testkit::command("sync");
            assert!(sync.arg("-f").arg(mounted.path()).status().unwrap().success());
            let is_killed = is_killed(home, case.line, call, number);
            testkit::copy_image(&disk, &copy);
            drop(mounted);
            let _mounted = mount(&copy);
            if is_killed {
                assert_old_or_new(home, case, &format!("without power at {call} {number}"));
            } else {
                // The completed command is durable.
                assert_eq!(hostname(home, "at/c"), case.names[1], "{}", case.line);
                assert!(case.new.is_none_or(|(new, name)| hostname(home, new) == name));
            }
            is_killed
        });
        assert!(kills >= 3, "{}: {kills} kills", case.line);
    }
}

/// A mounted tmpfs, unmounted on drop.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn new(directory: &'a Path) -> Self {
        fs::create_dir(directory).unwrap();
        let mut mount = testkit::command("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1M", "small"]).arg(directory);
        assert!(mount.status().unwrap().success());
        Self(directory)
    }

    /// Fills it. `left` bytes remain.
    fn fill(&self, left: usize) {
        let filler = self.0.join("filler");
        let mut free = 1 << 20;
        while fs::write(&filler, vec![1; free]).is_err() {
            free -= 4096;
        }
        fs::write(&filler, vec![1; free.saturating_sub(left)]).unwrap();
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = testkit::command("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_keeps_the_clone() {
    require!(Root, Tool("mount"), Tool("umount"), Tool("e2fsck"), Tool("xfs_repair"));
    let home = scratch();
    let home = home.path();
    for base in bases(home) {
        let _ = fs::remove_file(home.join("base.img"));
        fs::hard_link(home.join(&base), home.join("base.img")).unwrap();
        let place = home.join("at");
        let small = SmallDisk::new(&place);
        prepare(home);
        let names = |home: &Path| {
            let entries = fs::read_dir(home.join("at")).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        small.fill(0);
        let before = names(home);
        for case in &CASES {
            let told = fails(home, case.line, 4);
            assert!(told.contains("No space left"), "{}: {told}", case.line);
            assert_eq!(names(home), before, "{}", case.line);
            assert_eq!(hostname(home, "at/c"), "changed\n", "{}", case.line);
        }
        // Changes of the clone fail, too, and it keeps its state.
        fs::write(home.join("large"), vec![5; 3 << 20]).unwrap();
        let told = fails(home, "cp large at/c:/large", 4);
        assert!(told.contains("No space left"), "{told}");
        assert_eq!(hostname(home, "at/c"), "changed\n");
        fs::remove_file(place.join("filler")).unwrap();
        assert!(run(home, "recover at/c").status.success());
        judge(home, "at/c");
        ok(home, "snapshot at/c at/s2");
        ok(home, "reset at/c --to at/s1");
        assert_eq!(hostname(home, "at/c"), "one\n");
        drop(small);
        fs::remove_dir(&place).unwrap();
    }
}

/// Each change by programs that want one clone is made completely or refused.
#[test]
fn programs_that_want_one_clone_exclude_each_other() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let home = scratch();
    let home = home.path();
    for base in bases(home) {
        let _ = fs::remove_dir_all(home.join("at"));
        fs::create_dir(home.join("at")).unwrap();
        ok(home, &format!("clone {base} at/c"));
        let rounds = testkit::effort(5, 20, 200);
        let children = |round: usize| {
            let lines = [
                format!("mkdir at/c /one-{round}"),
                format!("mkdir at/c /other-{round}"),
                format!("snapshot at/c at/s{round}"),
            ];
            lines.map(|line| {
                let mut command = diskwright();
                command.current_dir(home).args(line.split(' '));
                command.stderr(std::process::Stdio::piped()).spawn().unwrap()
            })
        };
        let (mut made, mut snapshots) = (Vec::new(), 0);
        for round in 0..rounds {
            let ended = children(round).map(|child| child.wait_with_output().unwrap());
            for (output, name) in ended.iter().zip(["one", "other", ""]) {
                let said = String::from_utf8_lossy(&output.stderr);
                let is_refused = output.status.code() == Some(4) && said.contains("in use");
                assert!(output.status.success() || is_refused, "{output:?}");
                if output.status.success() {
                    match name {
                        "" => snapshots += 1,
                        name => made.push(format!("{name}-{round}")),
                    }
                }
            }
            if snapshots == 20 {
                ok(home, &format!("commit --force at/c {base}.flat"));
                ok(home, &format!("clone {base}.flat at/flat"));
                fs::rename(home.join("at/flat"), home.join("at/c")).unwrap();
                snapshots = 0;
            }
        }
        assert!(!made.is_empty());
        let listing = String::from_utf8(ok(home, "ls at/c /")).unwrap();
        for name in made {
            assert!(listing.lines().any(|line| line == name), "{name} is lost: {listing}");
        }
        judge(home, "at/c");
    }
}

/// A base that changes under its clones is reported by each of them. With its old state, they have all changes.
#[test]
fn a_base_that_changes_under_clones_is_detected_and_nothing_is_lost() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let home = scratch();
    let home = home.path();
    for base in bases(home) {
        let [one, other] = ["one", "other"].map(|name| format!("{base}.{name}"));
        ok(home, &format!("clone {base} {one} {other}"));
        set_hostname(home, &one, "one\n");
        ok(home, &format!("snapshot {one} {base}.snapshot"));
        let old = home.join("old.img");
        fs::rename(home.join(&base), &old).unwrap();
        testkit::copy_image(&old, &home.join(&base));
        ok(home, &format!("mkdir {base} /changed"));
        for line in [
            format!("ls {one}"),
            format!("mkdir {other} /new"),
            format!("ls {base}.snapshot"),
            format!("snapshot {one} new"),
            format!("commit {one} new"),
            format!("clone {one} new"),
        ] {
            let told = fails(home, &line, 3);
            assert!(told.contains("belongs to file of") && told.contains("bytes"), "{told}");
            assert!(!home.join("new").exists(), "{line}");
        }
        fs::rename(&old, home.join(&base)).unwrap();
        assert_eq!(hostname(home, &one), "one\n");
        judge(home, &one);
        judge(home, &other);
    }
}
