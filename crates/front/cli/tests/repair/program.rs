//! The program: plans, repairs and undo files.

use std::fs;
use std::path::Path;

use diskwright::ImageOptions;
use diskwright::check::{Collector, ImageCheck, Limits, Options};
use diskwright::repair::{Repair, Standing};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{KernelMount, MountOptions, judge, require};

use crate::check::common::{
    FORMATS, Said, build, count, ends, image, inode_offset, list, object, run, sound_and_damaged,
    write,
};

fn bytes(home: &TempDir, name: &str) -> Vec<u8> {
    fs::read(home.path().join(name)).unwrap()
}

/// Runs a command line that must end with this status.
#[track_caller]
fn says(dir: &Path, line: &str, status: i32) -> Said {
    let said = run(dir, line);
    assert_eq!(said.status, status, "{line}: {}{}", said.out, said.messages);
    said
}

/// Asserts that all checkers find an image sound, and that its file still exists.
fn assert_sound(home: &TempDir, name: &str) {
    ends(home.path(), &format!("check {name}"), 0);
    judge(home.path().join(name));
    assert_eq!(ends(home.path(), &format!("cat {name} /dir/file"), 0), "contents");
}

#[test]
fn a_valid_image_is_not_changed() {
    for options in FORMATS {
        let home = image(options);
        let before = bytes(&home, "a.img");
        let said = says(home.path(), "repair a.img", 0);
        assert!(said.out.starts_with("a.img: clean: "), "{}", said.out);
        assert_eq!(object(home.path(), "repair --json a.img", 0)["verdict"], "clean");
        assert!(bytes(&home, "a.img") == before, "it was changed");
    }
}

/// Number of files of an image whose check reads much more than a repair writes.
const FILES: usize = 2000;

#[test]
fn a_written_repair_is_not_checked_again() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for options in FORMATS {
        let home = image(options);
        for number in 0..FILES {
            let dir = home.path().join(format!("source/{}", number % 40));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("file with a long name {number}")), "").unwrap();
        }
        build(home.path(), "bad.img", options);
        let path = home.path().join("bad.img");
        let is_xfs = options.contains("xfs");
        let links =
            inode_offset(home.path(), "bad.img", "/dir/file") + if is_xfs { 16 } else { 26 };
        write(&path, links, &[3]);
        let (open, options) = (ImageOptions::default(), Options::default());
        let subject = ImageCheck::open(&path, &open).unwrap();
        subject.check(&options, &Collector::new(Limits::default())).unwrap();
        let of_check = subject.bytes_read();
        drop(subject);
        let repair = Repair::open(&path, &open).unwrap();
        let before = repair.bytes_read();
        let plan = repair.plan(&options, &Collector::new(Limits::default())).unwrap();
        assert!(!plan.steps.is_empty() && plan.is_result_checked);
        let of_plan = repair.bytes_read() - before;
        repair.prepare(&plan, None).unwrap().carry_out(&mut |_, _| true).unwrap();
        assert_eq!(repair.standing_after(&plan, &options).unwrap(), Standing::Repaired);
        let of_rest = repair.bytes_read() - before - of_plan;
        println!("a check reads {of_check} bytes, a plan {of_plan}, the rest {of_rest}");
        // For XFS, most bytes are those of the log, which is read whole to plan and to write.
        if !is_xfs {
            // Two checks, and the names of the file.
            assert!(of_plan <= 4 * of_check, "{of_plan}, a check {of_check}");
            assert!(of_rest <= of_check / 4, "{of_rest}, a check {of_check}");
        }
        drop(repair);
        judge(&path);
    }
}

#[test]
fn a_repair_that_was_not_written_is_not_reported_as_done() {
    for options in FORMATS {
        let home = sound_and_damaged(options);
        let path = home.path().join("bad.img");
        let damaged = bytes(&home, "bad.img");
        let options = Options::default();
        let repair = Repair::open(&path, &ImageOptions::default()).unwrap();
        let plan = repair.plan(&options, &Collector::new(Limits::default())).unwrap();
        assert_eq!(repair.standing_after(&plan, &options).unwrap(), Standing::Damaged);
        repair.prepare(&plan, None).unwrap().carry_out(&mut |_, _| true).unwrap();
        assert_eq!(repair.standing_after(&plan, &options).unwrap(), Standing::Repaired);
        // The device lost the writes.
        fs::write(&path, &damaged).unwrap();
        assert_eq!(repair.standing_after(&plan, &options).unwrap(), Standing::Damaged);
    }
}

#[test]
fn a_plan_lists_the_repairs_and_changes_nothing() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for options in FORMATS {
        let home = sound_and_damaged(options);
        let before = bytes(&home, "bad.img");
        let planned = says(home.path(), "repair --plan bad.img", 1);
        assert!(
            planned.out.contains("plan:\n") && planned.out.contains("/dir/file"),
            "{}",
            planned.out
        );
        let planned_json = object(home.path(), "repair --plan --json bad.img", 1);
        assert_eq!(planned_json["verdict"], "planned");
        assert_eq!(list(&planned_json, "left"), &[] as &[Value]);
        assert_eq!(list(&planned_json, "paths"), [json!({"path": "/dir/file"})]);
        assert!(bytes(&home, "bad.img") == before, "it was changed");

        let said = says(home.path(), "repair bad.img", 2);
        assert!(said.messages.contains("--yes"), "{}", said.messages);
        assert_eq!(said.out, planned.out);
        assert!(bytes(&home, "bad.img") == before, "it was changed though nobody said yes");

        let done = object_of(&says(home.path(), "repair --yes --json bad.img", 0));
        assert_eq!(
            (&done["verdict"], &done["steps"]),
            (&json!("repaired"), &planned_json["steps"])
        );
        assert_sound(&home, "bad.img");
        ends(home.path(), "repair bad.img", 0);
    }
}

/// Returns the JSON object in a run's output.
fn object_of(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap()
}

#[test]
fn restore_returns_the_exact_old_bytes() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for options in FORMATS {
        let home = sound_and_damaged(options);
        let before = bytes(&home, "bad.img");
        let said = says(home.path(), "repair --yes --undo kept bad.img", 0);
        assert!(said.messages.contains("--restore kept bad.img"), "{}", said.messages);
        assert_sound(&home, "bad.img");
        // An undo file belongs to one repair.
        let damaged = bytes(&home, "bad.img");
        fs::write(home.path().join("again.img"), &before).unwrap();
        says(home.path(), "repair --yes --undo kept again.img", 4);
        assert!(bytes(&home, "again.img") == before, "it was changed without an undo file");

        let said = says(home.path(), "repair --restore kept bad.img", 0);
        assert!(said.messages.contains("restored"), "{}", said.messages);
        assert!(bytes(&home, "bad.img") == before, "not as it was");
        let said = says(home.path(), "repair --restore kept bad.img", 0);
        assert!(said.messages.contains("nothing to restore"), "{}", said.messages);

        // Restoring fails if the image was changed since.
        fs::write(home.path().join("bad.img"), &damaged).unwrap();
        ends(home.path(), "mkdir bad.img /new", 0);
        let changed = bytes(&home, "bad.img");
        let said = run(home.path(), "repair --restore kept bad.img");
        if said.status == 1 {
            assert!(said.messages.contains("was changed after the repair"), "{}", said.messages);
            assert!(bytes(&home, "bad.img") == changed, "it was changed");
        } else {
            panic!("restored over a change: {} {}", said.status, said.messages);
        }
        // Restoring fails into another image, and from other files.
        fs::write(home.path().join("short.img"), &before[..before.len() - 512]).unwrap();
        says(home.path(), "repair --restore kept short.img", 1);
        says(home.path(), "repair --restore a.img bad.img", 1);
    }
}

#[test]
fn kernels_mount_what_was_repaired() {
    require!(Mount("ext4"), Mount("xfs"));
    for (options, kernel) in [(FORMATS[0], "ext4"), (FORMATS[1], "xfs")] {
        let home = sound_and_damaged(options);
        says(home.path(), "repair --yes bad.img", 0);
        let mounted =
            KernelMount::new(home.path().join("bad.img"), &MountOptions::read_only(kernel));
        assert_eq!(fs::read_to_string(mounted.path().join("dir/file")).unwrap(), "contents");
        mounted.unmount();
    }
}

#[test]
fn an_image_inside_of_a_disk_is_repaired_there() {
    for options in FORMATS {
        let home = sound_and_damaged(options);
        let mut disk = vec![0x5a; 1 << 20];
        disk.extend(bytes(&home, "bad.img"));
        fs::write(home.path().join("disk.img"), &disk).unwrap();
        says(home.path(), "repair --yes --offset 1M --undo kept disk.img", 0);
        ends(home.path(), "check --offset 1M disk.img", 0);
        assert!(
            bytes(&home, "disk.img")[..1 << 20] == disk[..1 << 20],
            "what lies before was changed"
        );
        says(home.path(), "repair --restore kept --offset 1M disk.img", 0);
        assert!(bytes(&home, "disk.img") == disk, "not as it was");
    }
}

#[test]
fn unrepairable_images_are_refused_with_a_reason() {
    let home = image(FORMATS[0]);
    fs::write(home.path().join("text"), "hello").unwrap();
    says(home.path(), "repair text", 3);
    says(home.path(), "repair nothing", 4);
    says(home.path(), "repair --plan --yes a.img", 2);
    says(home.path(), "repair --restore kept --undo kept a.img", 2);
    let report = object(home.path(), "check --json a.img", 0);
    assert_eq!(count(&report), 0);
}
