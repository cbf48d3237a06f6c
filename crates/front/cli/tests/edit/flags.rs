//! chattr, lsattr and trim.

use std::fs;
use std::os::unix::fs::MetadataExt;

use testkit::{Mke2fs, judge};

use crate::edit::common::{mount, on_each_image};

use crate::program::{fails, ok};

#[test]
fn flags_are_shown_as_they_were_set() {
    require_images!();
    on_each_image(|dir| {
        ok(dir, "mkdir -p a.img /d/e");
        ok(dir, "truncate -s 10 a.img /d/f /d/.hidden");
        ok(dir, "ln -s a.img f /d/link");
        ok(dir, "chattr a.img +ia -a +A /d/f");
        ok(dir, "chattr -R a.img +d /d/e");
        let lines = ok(dir, "lsattr a.img /d");
        let mut shown: Vec<_> = lines.lines().map(|line| line.replace(['-', 'e'], "")).collect();
        shown.sort();
        assert_eq!(shown, ["d /d/", "iA /d/f"], "{lines}");
        assert!(ok(dir, "lsattr -a -R a.img /").contains("/d/.hidden"));
        assert!(ok(dir, "lsattr -l -d a.img /d/f").contains("\timmutable, noatime"));
        let json = ok(dir, "lsattr --json a.img /d/f");
        let line: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(line["path"], "/d/f");
        assert_eq!(line["flags"][0], "immutable");
        ok(dir, "chattr a.img =d /d/f");
        assert!(ok(dir, "lsattr -l a.img /d/f").contains("\tnodump"));
        assert!(fails(dir, "chattr a.img +q /d/f", 2).contains("not a flag"));
        assert!(fails(dir, "chattr a.img /d/f", 2).contains("nothing to change"));
        fails(dir, "chattr a.img +casefold /d/f", 3);
    });
}

#[test]
fn commands_respect_inode_flags() {
    require_images!();
    on_each_image(|dir| {
        fs::write(dir.join("host"), "new").unwrap();
        ok(dir, "mkdir -p a.img /d/sub");
        ok(dir, "cp host a.img:/f");
        ok(dir, "cp host a.img:/d/f");
        ok(dir, "chattr a.img +i /f /d");
        for line in [
            "rm a.img /f",
            "mv a.img /f /g",
            "ln a.img /f /g",
            "chmod a.img 600 /f",
            "chown a.img 7 /f",
            "setfattr -n user.a -v 1 a.img /f",
            "truncate -s 1 a.img /f",
            "rm a.img /d/f",
            "rm -r a.img /d",
            "rmdir a.img /d/sub",
            "mkdir a.img /d/new",
            "mv a.img /d/f /g",
            "ln -s a.img x /d/new",
        ] {
            assert!(fails(dir, line, 1).contains("immutable"), "{line}");
        }
        fails(dir, "cp host a.img:/d/new", 1);
        fails(dir, "cp host a.img:/f", 1);
        ok(dir, "chattr a.img -i /f /d");
        ok(dir, "chattr a.img +a /f /d");
        ok(dir, "mkdir a.img /d/new");
        assert!(fails(dir, "rm a.img /d/f", 1).contains("append-only"));
        assert!(fails(dir, "truncate -s 1 a.img /f", 1).contains("append-only"));
        ok(dir, "chattr a.img -a /f /d");
        ok(dir, "rm -r a.img /f /d");
    });
}

#[test]
fn projects_bind_what_is_below_them() {
    require_images!();
    for name in ["ext4", "xfs"] {
        let scratch = testkit::scratch();
        let (dir, image) = (scratch.path(), scratch.path().join("a.img"));
        match name {
            "ext4" => {
                let mke2fs = Mke2fs::new("ext4").features("quota,project");
                mke2fs.arguments(["-E", "quotatype=prjquota"]).create(&image, 64 << 20);
            }
            _ => drop(crate::edit::common::own_image(dir, "a.img", crate::edit::common::OWN_XFS)),
        }
        ok(dir, "mkdir a.img /p");
        ok(dir, "chattr -p 42 a.img +P /p");
        ok(dir, "truncate -s 10 a.img /p/f /other");
        ok(dir, "mkdir -p a.img /p/d/e");
        let shown = ok(dir, "lsattr -p -R a.img /p");
        assert!(shown.lines().all(|line| line.starts_with("   42 ")), "{shown}");
        for line in ["mv a.img /other /p/", "ln a.img /other /p/x", "mv a.img /other /p/d/e/x"] {
            assert!(fails(dir, line, 1).contains("another project"), "{line}");
        }
        ok(dir, "chattr -R -p 42 a.img /other");
        ok(dir, "mv a.img /other /p/");
        ok(dir, "chattr -R -p 0 a.img /p/d");
        judge(&image);
    }
}

#[test]
fn trim_makes_holes_where_the_image_is_free() {
    require_images!();
    on_each_image(|dir| {
        let image = dir.join("a.img");
        let noise: Vec<u8> =
            (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(dir.join("big"), &noise).unwrap();
        for n in 0..8 {
            ok(dir, &format!("cp big a.img:/f{n}"));
        }
        ok(dir, "rm a.img /f0 /f2 /f3 /f5");
        let before = fs::metadata(&image).unwrap().blocks() * 512;
        let json = ok(dir, "trim --json a.img");
        let bytes = serde_json::from_str::<serde_json::Value>(&json).unwrap();
        assert!(bytes["bytes_trimmed"].as_u64().unwrap() >= 12_000_000, "{json}");
        let after = fs::metadata(&image).unwrap().blocks() * 512;
        assert!(after + 11_000_000 < before, "{before} bytes before, {after} after");
        let mounted = mount(&image);
        for n in [1, 4, 6, 7] {
            assert!(fs::read(mounted.path().join(format!("f{n}"))).unwrap() == noise);
        }
    });
}
