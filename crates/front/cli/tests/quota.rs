//! `quota`: limits and grace times of images, checked by debugfs, e2fsck, xfs_repair and the guest's kernel.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use testkit::guest::{self, GuestJob};
use testkit::{debugfs, e2fsck, require, scratch, wait_until, xfs_repair};

use crate::mount::{Point, unmount_when_free};
use crate::program::{fails, ok};

/// A time at which grace times begin, and the arguments of a new image.
const NOW: u64 = 1_790_000_000;
const EXT4: &str = "as mke2fs -q -t ext4 -b 4096 a.img 64M";
const XFS: &str = "as mkfs.xfs -q -d file,size=320m a.img";

/// Makes `a.img` with a file of 40,000 bytes of user 1000, group 50, and a directory of project 42.
fn made(dir: &Path, mkfs: &str) {
    fs::write(dir.join("file"), vec![7; 40_000]).unwrap();
    ok(dir, mkfs);
    ok(dir, "cp file a.img:/file");
    ok(dir, "chown a.img 1000:50 /file");
    ok(dir, "mkdir a.img /project");
}

/// Returns the owners of a kind in a report.
fn owners(dir: &Path, of: &str) -> Vec<Value> {
    let text = ok(dir, "quota --json a.img");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["kind"] == of && line.get("id").is_some()).collect()
}

fn owner(dir: &Path, of: &str, id: u32) -> Value {
    owners(dir, of).into_iter().find(|owner| owner["id"] == id).unwrap_or_default()
}

fn state(dir: &Path, of: &str) -> Value {
    let text = ok(dir, "quota --json a.img");
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.find(|line| line["kind"] == of && line.get("counted").is_some()).unwrap()
}

fn resource(used: u64, soft: u64, hard: u64, grace_end: Option<u64>) -> Value {
    json!({ "used": used, "soft": soft, "hard": hard, "grace_end": grace_end })
}

/// Runs a command at a known time.
#[track_caller]
fn ok_at_now(dir: &Path, line: &str) {
    let mut command = crate::program::diskwright();
    command.current_dir(dir).env("SOURCE_DATE_EPOCH", NOW.to_string());
    let output = command.args(line.split_whitespace()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
}

/// Sets limits in both formats, and reads them again.
fn set_limits(dir: &Path) {
    ok_at_now(dir, "quota a.img --on users,groups,projects");
    ok_at_now(dir, "quota a.img --grace users=3d:12h --grace projects=1h");
    ok_at_now(dir, "quota a.img --user 1000 --space 20000:1M --inodes :10");
    ok_at_now(dir, "quota a.img --group 50 --group 4000000000 --inodes 5:6");
    ok_at_now(dir, "quota a.img --project 42 --space :8M");
    let user = owner(dir, "user", 1000);
    let end = NOW + 3 * 86_400;
    let soft = user["space"]["soft"].as_u64().unwrap();
    assert!((20_000..20_000 + 4096).contains(&soft), "{user}");
    assert_eq!(user["space"], resource(40_960, soft, 1 << 20, Some(end.next_multiple_of(4))));
    assert_eq!(user["inodes"], resource(1, 0, 10, None));
    assert_eq!(owner(dir, "group", 4_000_000_000)["inodes"], resource(0, 5, 6, None));
    assert_eq!(owner(dir, "project", 42)["space"], resource(0, 0, 8 << 20, None));
    let found = state(dir, "user");
    assert_eq!((&found["counted"], &found["grace"]["space"]), (&json!(true), &json!(259_200)));
    assert_eq!(found["grace"]["inodes"], 43_200);
    assert_eq!(state(dir, "project")["grace"]["inodes"], 604_800);
    let shown = ok(dir, "quota a.img --user 1000");
    assert!(shown.contains("3d for space") && shown.contains("over its limit"), "{shown}");
    assert!(!shown.contains("groups") && shown.lines().count() == 3, "{shown}");
}

/// Limits that are removed, refused, and kept.
fn change_limits(dir: &Path) {
    ok_at_now(dir, "quota a.img --user 1000 --space 1M:");
    assert_eq!(owner(dir, "user", 1000)["space"], resource(40_960, 1 << 20, 1 << 20, None));
    ok_at_now(dir, "quota a.img --user 1000 --space 0:0 --inodes 0:0");
    assert_eq!(owner(dir, "user", 1000)["space"], resource(40_960, 0, 0, None));
    let said = fails(dir, "quota a.img --group 50 --inodes 7:6", 2);
    assert!(said.contains("soft limit"), "{said}");
    assert_eq!(owner(dir, "group", 50)["inodes"], resource(1, 5, 6, None));
    let grace = state(dir, "group")["grace"].clone();
    fails(dir, "quota a.img --grace groups=9d:9d --group 50 --inodes 7:6", 2);
    assert_eq!(state(dir, "group")["grace"], grace);
    fails(dir, "quota a.img --space 1M:2M", 2);
    fails(dir, "quota a.img --on users --off users", 2);
    fails(dir, "quota a.img --json --off users", 2);
}

#[test]
fn limits_of_ext4_are_stored_as_by_setquota() {
    require!(Tool("e2fsck"), Tool("debugfs"));
    let dir = scratch();
    let dir = dir.path();
    made(dir, EXT4);
    let image = dir.join("a.img");
    let said = fails(dir, "quota a.img --user 1000 --space 1M:2M", 3);
    assert!(said.contains("not counted"), "{said}");
    set_limits(dir);
    e2fsck(&image);
    let listed = |kind: &str, id: &str| {
        let text = debugfs(&image, &format!("list_quota {kind}"));
        let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let line = text.lines().map(fields).find(|line| line.first().is_some_and(|of| of == id));
        line.unwrap_or_else(|| panic!("{kind} {id}: {text}"))[1..].join(" ")
    };
    assert_eq!(listed("user", "1000"), "40960 20 1024 1 0 10");
    assert_eq!(listed("group", "4000000000"), "0 0 0 0 5 6");
    assert_eq!(listed("project", "42"), "0 0 8192 0 0 0");
    change_limits(dir);
    let said = fails(dir, "quota a.img --enforce users", 3);
    assert!(said.contains("usrquota"), "{said}");
    let said = fails(dir, "quota a.img --user 1000 --realtime 1M:", 2);
    assert!(said.contains("realtime"), "{said}");
    ok(dir, "quota a.img --off groups,projects");
    assert!(owners(dir, "group").is_empty() && !owners(dir, "user").is_empty());
    e2fsck(&image);
    ok(dir, "quota a.img --off users");
    assert_eq!(ok(dir, "quota a.img").matches("not counted").count(), 3);
    e2fsck(&image);
    assert!(!ok(dir, "info a.img").contains("quota"));
}

#[test]
fn limits_of_xfs_are_stored_and_enforced() {
    require!(Tool("xfs_repair"));
    for mkfs in [XFS, "as mkfs.xfs -q -m metadir=1 -d file,size=320m a.img"] {
        let dir = scratch();
        let dir = dir.path();
        made(dir, mkfs);
        let image = dir.join("a.img");
        fails(dir, "quota a.img --user 1000 --space 1M:2M", 3);
        set_limits(dir);
        xfs_repair(&image);
        change_limits(dir);
        // A hard limit is enforced by the next command.
        ok(dir, "quota a.img --group 0 --inodes :3 --space :1M");
        ok(dir, "quota a.img --user 1000 --inodes :1");
        let said = fails(dir, "mkdir --owner 1000:0 a.img /own", 1);
        assert!(said.contains("quota"), "{said}");
        ok(dir, "quota a.img --no-enforce users,groups");
        assert_eq!(state(dir, "user")["enforced"], false);
        assert_eq!(state(dir, "project")["enforced"], true);
        ok(dir, "mkdir --owner 1000:0 a.img /own");
        ok(dir, "quota a.img --enforce users");
        assert_eq!(state(dir, "user")["enforced"], true);
        ok(dir, "quota a.img --off users,projects");
        assert_eq!(state(dir, "user")["counted"], false);
        assert_eq!(state(dir, "group")["counted"], true);
        fails(dir, "quota a.img --enforce users", 2);
        // Limits are still there afterwards.
        ok(dir, "quota a.img --on users");
        assert_eq!(owner(dir, "user", 1000)["inodes"]["hard"], 1);
        xfs_repair(&image);
        ok(dir, "check a.img");
    }
}

/// Writes a file durably. Returns the error number, or 0.
fn written(path: &Path, bytes: usize) -> i32 {
    let mut file = File::options().append(true).create(true).open(path).unwrap();
    let done = file.write_all(&vec![1; bytes]).and_then(|()| file.sync_all());
    done.map_or_else(|error| error.raw_os_error().unwrap(), |()| 0)
}

#[test]
fn mounts_keep_the_limits_of_projects_and_users() {
    const ENOSPC: i32 = 28;
    const EDQUOT: i32 = 122;
    require!(Fuse, Tool("xfs_repair"));
    let dir = scratch();
    let dir = dir.path();
    made(dir, XFS);
    ok(dir, "quota a.img --on users,projects");
    ok(dir, "chattr -p 42 a.img +P /project");
    ok(dir, "quota a.img --project 42 --space :1M --inodes :4");
    ok(dir, "quota a.img --user 1000 --space :64K");
    let point = Point::new();
    let place = point.path().to_str().unwrap();
    ok(dir, &format!("mount a.img {place}"));
    let project = point.path().join("project");
    // The project contains its directory.
    let totals = rustix::fs::statvfs(&project).unwrap();
    assert_eq!((totals.f_blocks * totals.f_frsize, totals.f_files), (1 << 20, 4));
    assert_eq!(totals.f_ffree, 3);
    let whole = rustix::fs::statvfs(point.path()).unwrap();
    assert!(whole.f_blocks * whole.f_frsize > 200 << 20);
    assert_eq!(written(&project.join("small"), 600 << 10), 0);
    let totals = rustix::fs::statvfs(&project).unwrap();
    assert_eq!(totals.f_bfree * totals.f_frsize, 424 << 10);
    assert_eq!(written(&project.join("large"), 2 << 20), ENOSPC);
    fs::remove_file(project.join("large")).unwrap();
    // The kernel reports the end of a removed file only when its last write-back has ended.
    wait_until("the kernel to release the removed file", || {
        rustix::fs::statvfs(&project).unwrap().f_ffree == 2
    });
    for (name, expected) in [("one", 0), ("two", 0), ("three", ENOSPC)] {
        let made = File::create(project.join(name));
        let found = made.map_or_else(|error| error.raw_os_error().unwrap(), |_| 0);
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(written(&point.path().join("file"), 16 << 10), 0);
    assert_eq!(written(&point.path().join("file"), 64 << 10), EDQUOT);
    assert_eq!(written(&point.path().join("other"), 4 << 20), 0);
    // The kernel reports the lost writes once more.
    let end = unmount_when_free(point.path());
    let said = String::from_utf8_lossy(&end.stderr);
    assert!(said.contains("cannot write back") && said.contains("Disk quota exceeded"), "{said}");
    xfs_repair(dir.join("a.img"));
    ok(dir, "check a.img");
}

/// The guest's kernel need not count, and reports the same limits and grace times.
#[test]
fn kernels_report_the_limits_of_xfs() {
    require!(Guest("XFS_QUOTA"), Tool("xfs_repair"));
    let dir = scratch();
    let dir = dir.path();
    made(dir, XFS);
    set_limits(dir);
    let script = "set -e\nmount -t xfs -o nouuid,uquota,gquota,pquota $1 /mnt\n\
        for kind in u g p; do xfs_quota -x -c \"report -$kind -b -i -n -N\" /mnt; \
        xfs_quota -x -c \"state -$kind\" /mnt; done\numount /mnt";
    let answer = guest::run(&GuestJob::new(script).disk(dir.join("a.img"), false));
    assert!(answer.status == 0, "{}\n{}", answer.output, answer.log);
    assert!(!answer.log.to_lowercase().contains("quotacheck"), "{}", answer.log);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = answer.output.lines().map(words).collect();
    let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
    assert!(has("#1000 40 20 1024 "), "{}", answer.output);
    assert!(has("#4000000000 0 0 0 00 [--------] 0 5 6 "), "{}", answer.output);
    assert!(has("#42 0 0 8192 "), "{}", answer.output);
    assert!(has("Blocks grace time: [3 days]"), "{}", answer.output);
    xfs_repair(dir.join("a.img"));
}

/// The guest's kernel enforces the limits of ext4.
#[test]
fn kernels_enforce_the_limits_of_ext4() {
    require!(Guest("QUOTA"), Tool("e2fsck"));
    let dir = scratch();
    let dir = dir.path();
    made(dir, EXT4);
    set_limits(dir);
    let script = "set -e\nmount -t ext4 -o usrquota,grpquota,prjquota $1 /mnt\n\
        repquota -u -n -O csv /mnt || repquota -u -n /mnt\nrepquota -P -n -v /mnt\numount /mnt";
    let answer = guest::run(&GuestJob::new(script).disk(dir.join("a.img"), false));
    assert!(answer.status == 0, "{}\n{}", answer.output, answer.log);
    assert!(answer.output.contains("#1000"), "{}", answer.output);
    assert!(answer.output.contains("8192"), "{}", answer.output);
    e2fsck(dir.join("a.img"));
}
