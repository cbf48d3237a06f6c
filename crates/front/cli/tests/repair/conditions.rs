//! Repairs under difficult conditions: no space for the undo file or for writes, images in use,
//! behind links, on block devices, or write-protected.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use testkit::{LoopDevice, judge, require};

use crate::check::common::{FORMATS, Said, command, ends, run, said, sound_and_damaged, write};

fn bytes(home: &TempDir, name: &str) -> Vec<u8> {
    fs::read(home.path().join(name)).unwrap()
}

/// Returns the names in the directory of an image.
fn names(home: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(home.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs a command that cannot write beyond the first `blocks` blocks of 512 bytes of a file, as on
/// a full disk.
fn limited(dir: &Path, line: &str, blocks: u64) -> Said {
    let mut shell = Command::new("sh");
    // With the signal ignored, such a write fails.
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    shell.current_dir(dir).args(["-c", &script, "sh", env!("CARGO_BIN_EXE_diskwright")]);
    shell.args(line.split_whitespace()).stdin(std::process::Stdio::null());
    said(shell.output().unwrap())
}

/// Creates images that are repaired in place: with damage in many places, and without a valid log.
fn repaired_in_place(options: &str) -> TempDir {
    let home = sound_and_damaged(options);
    let image = home.path().join("bad.img");
    let number = |what: &str, key: &str| {
        let dump = ends(home.path(), &format!("dump bad.img {what} --json"), 0);
        let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
        dump.pointer(key).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{dump}"))
    };
    if options.contains("xfs") {
        let log = number("superblock", "/logstart");
        write(&image, log * 4096, &[0xa5; 1 << 16]);
        // The headers of groups have checksums, so any damaged byte is detected.
        for group in 0..4_u64 {
            write(&image, group * (16 << 20) + 1024 + 300, &[0xaa; 8]);
        }
    } else {
        let journal = number("inode 8", "/runs/0/block");
        write(&image, journal * 4096, &[0; 1024]);
        // The descriptor of the first group.
        write(&image, 4096 + 14, &[0xaa; 2]);
    }
    home
}

#[test]
fn without_room_for_the_undo_file_nothing_is_changed() {
    for options in FORMATS {
        let home = sound_and_damaged(options);
        let (before, there) = (bytes(&home, "bad.img"), names(&home));
        for blocks in [0, 1, 6, 8] {
            let said = limited(home.path(), "repair --yes --undo kept bad.img", blocks);
            assert_eq!(said.status, 4, "{blocks}: {}{}", said.out, said.messages);
            assert!(said.messages.contains("undo file"), "{}", said.messages);
            assert!(bytes(&home, "bad.img") == before, "{blocks}: it was changed");
            assert_eq!(names(&home), there, "what is of no use stays");
        }
    }
}

#[test]
fn a_full_disk_rolls_the_repair_back() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for options in FORMATS {
        let home = repaired_in_place(options);
        let before = bytes(&home, "bad.img");
        let mut failed = 0;
        for blocks in [100, 1 << 15, 3 << 15] {
            fs::write(home.path().join("bad.img"), &before).unwrap();
            let said = limited(home.path(), "repair --yes --undo kept bad.img", blocks);
            assert!(matches!(said.status, 0 | 4), "{}{}", said.out, said.messages);
            let left = bytes(&home, "bad.img");
            if !home.path().join("kept").exists() {
                assert!(left == before, "there was no room for the undo file");
                continue;
            }
            failed += u32::from(said.status == 4);
            let said = run(home.path(), "repair --restore kept bad.img");
            assert_eq!(said.status, 0, "{}", said.messages);
            assert!(bytes(&home, "bad.img") == before, "{blocks}: not as it was");
            // A partly written repair can be continued.
            fs::write(home.path().join("bad.img"), &left).unwrap();
            fs::remove_file(home.path().join("kept")).unwrap();
            let said = run(home.path(), "repair --yes --undo kept bad.img");
            assert_eq!(said.status, 0, "{}{}", said.out, said.messages);
            judge(home.path().join("bad.img"));
            fs::remove_file(home.path().join("kept")).ok();
        }
        assert!(failed > 0, "{options}: the disk was never full");
    }
}

#[test]
fn an_image_in_use_is_refused() {
    for options in FORMATS {
        let home = sound_and_damaged(options);
        let before = bytes(&home, "bad.img");
        let there = names(&home);
        let user = File::open(home.path().join("bad.img")).unwrap();
        user.lock_shared().unwrap();
        for line in ["repair --yes bad.img", "repair --yes --undo kept bad.img"] {
            let said = run(home.path(), line);
            assert_eq!(said.status, 4, "{}{}", said.out, said.messages);
            assert!(said.messages.contains("in use"), "{}", said.messages);
        }
        // Planning is allowed while others read.
        assert_eq!(run(home.path(), "repair --plan bad.img").status, 1);
        user.unlock().unwrap();
        user.lock().unwrap();
        assert_eq!(run(home.path(), "repair --plan bad.img").status, 4);
        assert!(bytes(&home, "bad.img") == before, "it was changed");
        assert_eq!(names(&home), there);
        drop(user);
        assert_eq!(run(home.path(), "repair --yes bad.img").status, 0);
    }
}

#[test]
fn an_image_behind_a_link_is_repaired_and_its_undo_file_lies_beside_the_link() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for options in FORMATS {
        let home = repaired_in_place(options);
        let before = bytes(&home, "bad.img");
        fs::create_dir(home.path().join("links")).unwrap();
        std::os::unix::fs::symlink("../bad.img", home.path().join("links/it.img")).unwrap();
        let said = run(home.path(), "repair --yes links/it.img");
        assert_eq!(said.status, 0, "{}{}", said.out, said.messages);
        assert!(fs::symlink_metadata(home.path().join("links/it.img")).unwrap().is_symlink());
        judge(home.path().join("bad.img"));
        let said = run(home.path(), "repair --restore links/it.img.undo bad.img");
        assert_eq!(said.status, 0, "{}", said.messages);
        assert!(bytes(&home, "bad.img") == before, "not as it was");
    }
}

#[test]
fn block_devices_are_repaired_and_what_is_write_protected_is_planned_only() {
    require!(Root, Loop, Tool("losetup"), Tool("e2fsck"), Tool("xfs_repair"));
    for options in FORMATS {
        let home = repaired_in_place(options);
        let path = home.path().join("bad.img");
        let before = bytes(&home, "bad.img");
        let there = names(&home);

        let device = LoopDevice::with_options(&path, &["--read-only"]);
        assert_eq!(run(home.path(), &format!("repair --plan {}", device.name())).status, 1);
        let said = run(home.path(), &format!("repair --yes {}", device.name()));
        assert_eq!(said.status, 4, "{}{}", said.out, said.messages);
        assert!(said.messages.contains("requires write permission"), "{}", said.messages);
        assert_eq!(names(&home), there, "there is no undo file of what was not begun");
        drop(device);
        assert!(bytes(&home, "bad.img") == before, "it was changed");

        let device = LoopDevice::new(&path);
        // The image file is in use now.
        assert_eq!(run(home.path(), "repair --yes bad.img").status, 4);
        let said = run(home.path(), &format!("repair --yes {}", device.name()));
        assert_eq!(said.status, 0, "{}{}", said.out, said.messages);
        let undo = format!("{}.undo", device.path().file_name().unwrap().to_str().unwrap());
        assert!(names(&home).contains(&undo), "{:?}", names(&home));
        ends(home.path(), &format!("check {}", device.name()), 0);
        let said = run(home.path(), &format!("repair --restore {undo} {}", device.name()));
        assert_eq!(said.status, 0, "{}", said.messages);
        drop(device);
        assert!(bytes(&home, "bad.img") == before, "not as it was");
    }
}

#[test]
fn an_image_in_a_partition_is_repaired_there() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for options in FORMATS {
        let home = repaired_in_place(options);
        let before = bytes(&home, "bad.img");
        drop(crate::disk::with_partition(&home.path().join("disk.img"), &before));
        let disk = bytes(&home, "disk.img");
        let said = run(home.path(), "repair --yes --partition 1 disk.img");
        assert_eq!(said.status, 0, "{}{}", said.out, said.messages);
        ends(home.path(), "check --partition 1 disk.img", 0);
        let start = crate::disk::START as usize;
        let now = bytes(&home, "disk.img");
        let end = start + before.len();
        assert!(now[..start] == disk[..start] && now[end..] == disk[end..], "around it");
        fs::write(home.path().join("part.img"), &now[start..end]).unwrap();
        judge(home.path().join("part.img"));
        // The undo file belongs to the partition, not to the disk.
        let said = run(home.path(), "repair --restore disk.img.undo disk.img");
        assert_eq!(said.status, 1, "{}", said.messages);
        let said = run(home.path(), "repair --restore disk.img.undo --partition 1 disk.img");
        assert_eq!(said.status, 0, "{}", said.messages);
        assert!(bytes(&home, "disk.img") == disk, "not as it was");
    }
}

#[test]
fn a_signal_before_anything_is_written_leaves_nothing_behind() {
    for options in FORMATS {
        let home = sound_and_damaged(options);
        let (before, there) = (bytes(&home, "bad.img"), names(&home));
        for signal in ["INT", "TERM", "HUP"] {
            let child = command(home.path(), "repair --yes --undo kept bad.img");
            let mut shell = Command::new("sh");
            // The signal is handled by the program or ends it at once.
            let script = format!("\"$@\" & kill -{signal} $!; wait $!");
            shell.current_dir(home.path()).args(["-c", &script, "sh"]);
            shell.arg(child.get_program()).args(child.get_args());
            shell.stdin(std::process::Stdio::null());
            let _ = shell.output().unwrap();
            if bytes(&home, "bad.img") == before {
                assert_eq!(names(&home), there, "{signal}");
            } else {
                assert!(names(&home).contains(&"kept".to_owned()));
                fs::write(home.path().join("bad.img"), &before).unwrap();
                fs::remove_file(home.path().join("kept")).unwrap();
            }
        }
    }
}
