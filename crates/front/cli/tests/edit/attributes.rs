//! chmod, chown, setfattr and truncate.

use std::fs;
use std::os::unix::fs::MetadataExt;

use testkit::require;

use crate::edit::common::{mount, on_each_image, run};

use crate::program::{fails, ok};

#[test]
fn permissions_and_owners_change() {
    require_images!();
    on_each_image(|dir| {
        fs::write(dir.join("f"), "x").unwrap();
        ok(dir, "mkdir -p a.img /d/e");
        ok(dir, "cp f a.img:/d/e/f");
        ok(dir, "ln -s a.img e/f /d/link");
        ok(dir, "chmod a.img 4755 /d/e/f");
        ok(
            dir,
            "setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 a.img /d/e/f",
        );
        ok(dir, "chown -R a.img 1000:100000 /d");
        ok(dir, "chown -h a.img 7 /d/link");
        ok(dir, "chown a.img :9 /d/link");
        ok(dir, "chmod -R a.img go-rwx /d");
        ok(dir, "chmod a.img -w /d/e/f");
        assert!(fails(dir, "chown a.img root /d", 2).contains("write numbers"));
        assert!(fails(dir, "chmod a.img 0x1 /d", 2).contains("is not a mode"));
        assert!(fails(dir, "chmod a.img 755 /x /d/e", 1).contains("/x: no such file"));
        let mounted = mount(&dir.join("a.img"));
        let about = |path: &str| {
            let found = fs::symlink_metadata(mounted.path().join(path)).unwrap();
            (found.mode() & 0o7777, found.uid(), found.gid())
        };
        assert_eq!(about("d"), (0o700, 1000, 100_000));
        assert_eq!(about("d/e"), (0o755, 1000, 100_000));
        assert_eq!(about("d/link"), (0o777, 7, 100_000));
        assert_eq!(about("d/e/f"), (0o500, 1000, 9), "a new owner takes set-user-id");
        let attributes = ok(dir, "dump a.img inode /d/e/f");
        assert!(!attributes.contains("security.capability"), "and capabilities: {attributes}");
    });
}

#[test]
fn attributes_are_set_and_removed() {
    require!(
        Tool("mke2fs"),
        Tool("e2fsck"),
        Tool("mkfs.xfs"),
        Tool("xfs_repair"),
        Mount("ext4"),
        Mount("xfs"),
        Tool("getfattr")
    );
    on_each_image(|dir| {
        ok(dir, "truncate -s 10 a.img /f /g");
        ok(dir, "setfattr -n user.hex -v 0x00ff41 a.img /f /g");
        ok(dir, "setfattr -n user.base -v 0saGVsbG8= a.img /f");
        ok(dir, "setfattr -n user.text -v -hello a.img /f");
        ok(dir, "setfattr -n user.empty a.img /f");
        ok(dir, &format!("setfattr -n user.long -v {} a.img /f", "long".repeat(200)));
        ok(dir, "setfattr -x user.hex a.img /g");
        assert!(fails(dir, "setfattr -x user.hex a.img /g", 1).contains("dump IMAGE inode"));
        assert!(fails(dir, "setfattr -n user.x -v 0xq a.img /g", 2).contains("hexadecimal"));
        assert!(fails(dir, "setfattr -n nonsense -v 1 a.img /g", 3).contains("use user."));
        let mounted = mount(&dir.join("a.img"));
        let shown = testkit::command("getfattr")
            .args(["-d", "-e", "hex", "--absolute-names"])
            .arg(mounted.path().join("f"))
            .arg(mounted.path().join("g"))
            .output()
            .unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        for line in [
            "user.hex=0x00ff41",
            "user.base=0x68656c6c6f",
            "user.text=0x2d68656c6c6f",
            "user.empty",
        ] {
            assert_eq!(shown.matches(line).count(), 1, "{line}: {shown}");
        }
        assert!(shown.contains(&format!("user.long=0x{}", "6c6f6e67".repeat(200))));
    });
}

#[test]
fn sizes_change() {
    require_images!();
    on_each_image(|dir| {
        fs::write(dir.join("f"), vec![7; 100_000]).unwrap();
        ok(dir, "cp f a.img:/f");
        ok(dir, "truncate -s -1 a.img /f");
        ok(dir, "truncate -s %64K a.img /f");
        ok(dir, "truncate -s 1G a.img /new");
        ok(dir, "truncate -c -s 1G a.img /none");
        assert!(fails(dir, "truncate -s 1 a.img /", 1).contains("is a directory"));
        assert!(fails(dir, "truncate -s 1X a.img /f", 2).contains("unit of size"));
        let mounted = mount(&dir.join("a.img"));
        let f = fs::read(mounted.path().join("f")).unwrap();
        assert_eq!(f.len(), 128 << 10);
        assert!(f[..99_999].iter().all(|&b| b == 7) && f[99_999..].iter().all(|&b| b == 0));
        let new = fs::metadata(mounted.path().join("new")).unwrap();
        assert_eq!((new.len(), new.blocks(), new.mode()), (1 << 30, 0, 0o100_644));
        assert!(!mounted.path().join("none").exists());
    });
}

#[test]
fn changes_have_the_given_time() {
    require!(Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("mke2fs"));
    on_each_image(|dir| {
        let mut command = crate::program::diskwright();
        command.current_dir(dir).env("SOURCE_DATE_EPOCH", "1000000000");
        assert!(command.args(["mkdir", "a.img", "/d"]).status().unwrap().success());
        let listed = run(dir, &["find", "a.img", "/", "--name", "d", "--json"]);
        let record: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        for time in ["mtime", "ctime", "atime"] {
            assert_eq!(record[time], "2001-09-09T01:46:40.000000000Z", "{time}");
        }
    });
}
