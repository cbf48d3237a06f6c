//! mkdir, rmdir, rm, mv and ln.

use std::fs;
use std::os::unix::fs::MetadataExt;

use testkit::require;

use crate::edit::common::{mount, on_each_image, paths};

use crate::program::{fails, ok};

#[test]
fn directories_are_made_and_removed() {
    require_images!();
    on_each_image(|dir| {
        ok(dir, "mkdir -p a.img /a/b/c d");
        ok(dir, "mkdir -p a.img /a/b/c");
        ok(dir, "mkdir -m u=rwx,g=rx,o= --owner 7:8 a.img /e");
        ok(dir, "chmod a.img 2775 /e");
        ok(dir, "mkdir a.img /e/inherits");
        assert!(fails(dir, "mkdir a.img /a", 1).contains("exists"));
        assert!(fails(dir, "mkdir a.img /x/y", 1).contains("/x/y: no such"));
        {
            let mounted = mount(&dir.join("a.img"));
            let e = fs::metadata(mounted.path().join("e")).unwrap();
            assert_eq!((e.mode(), e.uid(), e.gid()), (0o42775, 7, 8));
            let inherits = fs::metadata(mounted.path().join("e/inherits")).unwrap();
            assert_eq!((inherits.mode(), inherits.uid(), inherits.gid()), (0o42755, 0, 8));
            let c = fs::metadata(mounted.path().join("a/b/c")).unwrap();
            assert_eq!((c.mode(), c.nlink()), (0o40755, 2));
        }
        assert!(
            fails(dir, "rmdir a.img /a", 1)
                .contains("not empty; remove a directory with its contents with diskwright rm -r")
        );
        ok(dir, "rmdir a.img /a/b/c");
        assert!(fails(dir, "rm a.img /a", 1).contains("is a directory"));
        assert!(fails(dir, "rm -r a.img /nothing", 1).contains("/nothing: no such file"));
        ok(dir, "rm -rf a.img /a /nothing /d /e");
        ok(dir, "rm -r a.img /lost+found");
        assert_eq!(paths(dir, "a.img"), ["/"]);
        assert!(fails(dir, "rm -r a.img /", 1).contains("has no last component"));
        ok(dir, "mkdir a.img /lost+found");
    });
}

#[test]
fn a_failure_in_the_middle_keeps_the_rest() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    on_each_image(|dir| {
        fails(dir, "mkdir a.img /a /a /b", 1);
        assert!(paths(dir, "a.img").contains(&"/b".into()));
        fails(dir, "rm -r a.img /nothing /a /b", 1);
        assert_eq!(paths(dir, "a.img"), ["/", "/lost+found"]);
    });
}

#[test]
fn large_trees_go() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    on_each_image(|dir| {
        for part in 0..3 {
            let part = dir.join(format!("tree/{part}/deep/er"));
            fs::create_dir_all(&part).unwrap();
            for file in 0..700 {
                fs::write(part.join(format!("a file with a longer name {file}")), "x").unwrap();
            }
        }
        ok(dir, "cp -r tree a.img:/");
        assert_eq!(paths(dir, "a.img").len(), 2 + 1 + 3 * 703);
        ok(dir, "rm -r a.img /tree");
        assert_eq!(paths(dir, "a.img"), ["/", "/lost+found"]);
    });
}

#[test]
fn names_move() {
    require_images!();
    on_each_image(|dir| {
        fs::write(dir.join("one"), "1").unwrap();
        fs::write(dir.join("two"), "2").unwrap();
        ok(dir, "cp one two a.img:/");
        ok(dir, "mkdir -p a.img /d/sub /full/x");
        assert!(fails(dir, "mv -n a.img /one /two", 1).contains("exists"));
        ok(dir, "mv --exchange a.img /one /two");
        assert_eq!(ok(dir, "cat a.img /one"), "2");
        ok(dir, "mv --exchange a.img /one /d");
        assert_eq!(ok(dir, "cat a.img /d"), "2");
        ok(dir, "mv --exchange a.img /one /d");
        ok(dir, "mv a.img /two /one");
        assert_eq!(ok(dir, "cat a.img /one"), "1");
        ok(dir, "mv a.img /one /d/sub /full/");
        ok(dir, "mv a.img /full/sub /full/one /d");
        assert!(fails(dir, "mv a.img /d /d/sub", 1).contains("invalid request"));
        assert!(fails(dir, "mv a.img /d/one /missing/", 1).contains("not a directory"));
        assert!(fails(dir, "mv a.img /d/one /d/one", 1).contains("the same"));
        ok(dir, "ln a.img /d/one /again");
        ok(dir, "mv a.img /again /d/one");
        let left = ["/", "/d", "/d/one", "/d/sub", "/full", "/full/x", "/lost+found"];
        assert_eq!(paths(dir, "a.img"), left);
        let mounted = mount(&dir.join("a.img"));
        assert_eq!(fs::metadata(mounted.path().join("d/one")).unwrap().nlink(), 1);
    });
}

#[test]
fn links_are_made() {
    require_images!();
    on_each_image(|dir| {
        fs::write(dir.join("one"), "1").unwrap();
        fs::write(dir.join("two"), "2").unwrap();
        ok(dir, "cp one two a.img:/");
        ok(dir, "mkdir a.img /d");
        ok(dir, "ln a.img /one /d");
        ok(dir, "ln -s a.img ../one /d/soft");
        assert!(fails(dir, "ln a.img /two /d/one", 1).contains("exists"));
        assert!(fails(dir, "ln -s a.img x /d/soft", 1).contains("exists"));
        assert!(fails(dir, "ln a.img /d /e", 1).contains("is a directory"));
        ok(dir, "ln -f a.img /two /d/one");
        ok(dir, "ln -f a.img /two /d/one");
        ok(dir, &format!("ln -sf a.img {} /d/soft", "long/".repeat(40)));
        ok(dir, "ln -sf a.img /one /d/soft");
        let mounted = mount(&dir.join("a.img"));
        let at = |path: &str| mounted.path().join(path);
        assert_eq!(fs::metadata(at("one")).unwrap().nlink(), 1);
        assert_eq!(fs::metadata(at("two")).unwrap().nlink(), 2);
        assert_eq!(fs::read_link(at("d/soft")).unwrap().to_str(), Some("/one"));
        assert_eq!(fs::read(at("d/one")).unwrap(), b"2");
    });
}
