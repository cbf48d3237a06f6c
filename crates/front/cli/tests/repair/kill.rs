//! The program killed at any moment of a repair: the image can be recovered, repaired or restored.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::{effort, judge, require};

use crate::check::common::{FORMATS, command, ends, image, run, write};

/// Number of files with damaged inodes.
const FILES: usize = 4000;

/// Creates an image with damage in many places, so that writing the repair takes a while.
fn damaged(options: &str) -> TempDir {
    let home = image(options);
    for number in 0..FILES {
        let dir = home.path().join(format!("source/{}", number % 40));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("file-{number}")), vec![number as u8; 100]).unwrap();
    }
    crate::check::common::build(home.path(), "bad.img", options);
    let is_xfs = options.contains("xfs");
    // Change the link count in every third inode slot that contains a regular file.
    let first = crate::check::common::inode_offset(home.path(), "bad.img", "/0/file-0");
    let file = File::options().read(true).write(true).open(home.path().join("bad.img")).unwrap();
    let (size, links) = if is_xfs { (512, 16) } else { (256, 26) };
    for slot in 0..FILES as u64 / 2 {
        let at = first + slot * size;
        let mut mode = [0; 4];
        file.read_exact_at(&mut mode, at).unwrap();
        let is_file = if is_xfs { mode[..3] == [b'I', b'N', 0x81] } else { mode[1] == 0x81 };
        if is_file && slot % 3 == 0 {
            file.write_all_at(&[0x55], at + links).unwrap();
        }
    }
    home
}

/// Makes the log unusable, so that the repair cannot be written through it.
fn without_log(home: &TempDir, is_xfs: bool) {
    let what = if is_xfs { "superblock" } else { "inode 8" };
    let dump = ends(home.path(), &format!("dump bad.img {what} --json"), 0);
    let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
    let start = if is_xfs { &dump["logstart"] } else { &dump["runs"][0]["block"] };
    let at = start.as_u64().unwrap() * 4096;
    write(&home.path().join("bad.img"), at, &[0xa5; 1 << 14]);
}

fn start(home: &Path) -> Child {
    testkit::copy_image(&home.join("bad.img"), &home.join("a.img"));
    let _ = fs::remove_file(home.join("kept"));
    let mut command = command(home, "repair --yes --json --undo kept a.img");
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Counts of kills by their moment.
#[derive(Debug, Default)]
struct Tally {
    kills: u32,
    /// Before the undo file existed.
    early: u32,
    /// After a part of the image was written.
    midst: u32,
    /// After completion.
    late: u32,
}

/// Moment at which a repair is killed.
#[derive(Clone, Copy)]
enum Moment {
    AfterStart(Duration),
    /// After the undo file was created: from then on the image is written.
    AfterUndo(Duration),
}

impl Moment {
    fn wait(self, home: &Path, child: &mut Child) {
        let after = match self {
            Self::AfterStart(after) => after,
            Self::AfterUndo(after) => {
                let is_there = || home.join("kept").exists();
                while !is_there() && child.try_wait().unwrap().is_none() {
                    std::thread::sleep(Duration::from_micros(200));
                }
                after
            }
        };
        std::thread::sleep(after);
    }
}

/// Kills a repair at a given moment, and checks the state that it leaves.
fn kill_at(home: &Path, moment: Moment, signal: i32, before: (u64, u32), tally: &mut Tally) {
    let digest = || testkit::digest(&home.join("a.img"));
    let mut child = start(home);
    moment.wait(home, &mut child);
    let pid = rustix::process::Pid::from_child(&child);
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
    let status = child.wait().unwrap();
    assert!(matches!(status.code(), None | Some(0 | 130)) || status.signal().is_some(), "{status}");
    testkit::copy_image(&home.join("a.img"), &home.join("left.img"));
    let left = digest();
    let has_undo = home.join("kept").exists();
    tally.kills += 1;
    tally.early += u32::from(!has_undo);
    tally.late += u32::from(status.success());
    tally.midst += u32::from(!status.success() && left != before);
    assert!(has_undo || left == before, "it was changed without an undo file");
    // A check works in any state.
    let check = run(home, "check a.img");
    assert!(matches!(check.status, 0 | 1), "{}{}", check.out, check.messages);
    // Continue the repair.
    let again = run(home, "repair --yes --undo again a.img");
    assert_eq!(again.status, 0, "{}{}", again.out, again.messages);
    judge(home.join("a.img"));
    // Restore from the second undo file, and from the first.
    if home.join("again").exists() {
        let restored = run(home, "repair --restore again a.img");
        assert_eq!(restored.status, 0, "{}", restored.messages);
        assert_eq!(digest(), left, "not as the kill left it");
        fs::remove_file(home.join("again")).unwrap();
    }
    if has_undo {
        testkit::copy_image(&home.join("left.img"), &home.join("a.img"));
        let restored = run(home, "repair --restore kept a.img");
        // If the repair was killed when the undo file was created, even its header is missing.
        let is_begun = fs::metadata(home.join("kept")).unwrap().len() >= 32;
        assert_eq!(restored.status == 0, is_begun, "{}", restored.messages);
        assert_eq!(digest(), before, "not as it was");
    }
}

fn kill_often(options: &str, has_log: bool) {
    let home = damaged(options);
    let is_xfs = options.contains("xfs");
    if !has_log {
        without_log(&home, is_xfs);
    }
    let home = home.path();
    let before = testkit::digest(&home.join("bad.img"));
    assert!(start(home).wait().unwrap().success());
    judge(home.join("a.img"));
    let mut again = start(home);
    let clock = Instant::now();
    assert!(again.wait().unwrap().success());
    let whole = clock.elapsed();
    let mut random = fastrand::Rng::with_seed(31);
    let mut tally = Tally::default();
    let kills = effort(6, 6, 75);
    for round in 0..kills {
        let share = (f64::from(round) + random.f64()) / f64::from(kills);
        // Planning takes most of the time.
        let moment = match round % 3 {
            0 => Moment::AfterStart(whole.mul_f64(share)),
            _ => Moment::AfterUndo(whole.mul_f64(share * share / 4.0)),
        };
        // Mostly SIGKILL; the program handles the others.
        let signal = *random.choice(&[9, 9, 9, 15, 2]).unwrap();
        kill_at(home, moment, signal, before, &mut tally);
    }
    println!("{options}, log: {has_log}, {whole:?}: {tally:?}");
}

#[test]
fn a_killed_repair_can_be_continued_or_undone() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for options in FORMATS {
        for has_log in [true, false] {
            kill_often(options, has_log);
        }
    }
}
