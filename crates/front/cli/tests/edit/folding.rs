//! Names that differ only in case, in directories with case folding: XFS with ascii-ci, ext4
//! directories with `+F`.

use std::fs;
use std::path::Path;

use diskwright::Image;
use testkit::{Mke2fs, judge, require};
use vfs::RenameMode;

use crate::edit::common::{OWN_XFS, own_image};

use crate::mount::Mounted;
use crate::program::{fails, ok};

/// Runs a test on an image of each format whose directory `/d` folds names. Checks the image
/// afterwards.
fn on_both(test: impl Fn(&Path)) {
    for format in ["ext4", "xfs"] {
        let scratch = testkit::scratch();
        let (dir, image) = (scratch.path(), scratch.path().join("c.img"));
        if format == "ext4" {
            let mke2fs = Mke2fs::new("ext4").features("casefold");
            mke2fs.arguments(["-E", "encoding=utf8"]).create(&image, 64 << 20);
            ok(dir, "mkdir c.img /d");
            ok(dir, "chattr c.img +F /d");
        } else {
            own_image(dir, "c.img", &format!("{OWN_XFS} --features ascii-ci"));
            ok(dir, "mkdir c.img /d");
        }
        println!("{format}");
        for name in ["one", "two"] {
            fs::write(dir.join(name), name).unwrap();
        }
        test(dir);
        judge(&image);
        ok(dir, "check c.img");
    }
}

fn names(dir: &Path, path: &str) -> Vec<String> {
    ok(dir, &format!("ls c.img {path}")).lines().map(str::to_owned).collect()
}

#[test]
fn a_name_is_moved_to_another_spelling_of_itself() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("xfs_repair"));
    on_both(|dir| {
        ok(dir, "cp one c.img:/d/Foo");
        ok(dir, "mkdir -p c.img /d/Sub/below");
        ok(dir, "mv c.img /d/Foo /d/FOO");
        ok(dir, "mv c.img /d/Sub /d/SUB/");
        assert!(fails(dir, "mv c.img /d/FOO /d/foo/", 1).contains("not a directory"));
        assert_eq!(names(dir, "/d"), ["FOO", "SUB"]);
        assert_eq!(ok(dir, "cat c.img /d/foo"), "one");
        // With a spelling that differs from the stored one, and with a path in another spelling.
        ok(dir, "mv c.img /d/fOO /d/foo");
        ok(dir, "mv c.img /d/sub/BELOW /d/sUB/Below");
        assert_eq!(names(dir, "/d"), ["SUB", "foo"]);
        assert_eq!(names(dir, "/d/sub"), ["Below"]);
        assert!(fails(dir, "mv c.img /d/foo /d/foo", 1).contains("both names are the same"));
        assert!(fails(dir, "mv -n c.img /d/foo /d/FOO", 1).contains("exists"));
        ok(dir, "mv --exchange c.img /d/foo /d/FOO");
        assert!(fails(dir, "mv c.img /d/SUB /d/sub/below", 1).contains("into itself"));
        // Two files remain two files.
        ok(dir, "cp two c.img:/d/bar");
        ok(dir, "mv c.img /d/BAR /d/FOO");
        assert_eq!(names(dir, "/d"), ["SUB", "foo"]);
        assert_eq!(ok(dir, "cat c.img /d/Foo"), "two");
        ok(dir, "ln c.img /d/foo /d/second");
        ok(dir, "mv c.img /d/SECOND /d/foo");
        assert_eq!(names(dir, "/d"), ["SUB", "foo"]);
    });
}

#[test]
fn a_replacement_keeps_the_spelling_of_the_name() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("xfs_repair"));
    on_both(|dir| {
        ok(dir, "cp one c.img:/d/b");
        ok(dir, "cp two c.img:/d/B");
        assert_eq!(ok(dir, "cat c.img /d/b"), "two");
        ok(dir, "cp one c.img:/d/other");
        ok(dir, "ln -f c.img /d/OTHER /d/B");
        ok(dir, "ln -s -f c.img target /d/Other");
        assert_eq!(names(dir, "/d"), ["b", "other"]);
        ok(dir, "mkdir c.img /d/dir");
        assert!(fails(dir, "mkdir c.img /d/DIR", 1).contains("exists"));
        ok(dir, "rm c.img /d/OTHER");
        ok(dir, "rmdir c.img /d/DIR");
        ok(dir, "mv c.img /d/B /zz");
        assert!(names(dir, "/d").is_empty());
    });
}

#[test]
fn names_of_a_source_that_differ_only_in_case_are_reported() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("xfs_repair"));
    on_both(|dir| {
        let tree = dir.join("tree");
        fs::create_dir_all(tree.join("deep")).unwrap();
        for name in ["deep/Name", "deep/nAME", "deep/other"] {
            fs::write(tree.join(name), name).unwrap();
        }
        let told = fails(dir, "cp -r tree c.img:/d", 1);
        assert!(told.contains("/tree/deep/") && told.contains("Name") && told.contains("nAME"));
        // The first file is complete and was not replaced.
        let first = ok(dir, "cat c.img /d/tree/deep/name");
        assert!(names(dir, "/d/tree/deep").iter().any(|name| first == format!("deep/{name}")));
        ok(dir, "rm -r c.img /d/tree");
        // Two directories are not merged either.
        fs::create_dir_all(dir.join("dirs/A")).unwrap();
        fs::create_dir_all(dir.join("dirs/a")).unwrap();
        fails(dir, "cp -r dirs c.img:/d", 1);
        ok(dir, "rm -r c.img /d/dirs");
        // Two arguments of one command.
        fs::create_dir_all(dir.join("x")).unwrap();
        fs::write(dir.join("x/ONE"), "another").unwrap();
        let told = fails(dir, "cp one x/ONE c.img:/d", 1);
        assert!(told.contains("/d/ONE") && told.contains("also has one"), "{told}");
        assert_eq!(ok(dir, "cat c.img /d/one"), "one");
        // Two commands: the second one replaces the existing file.
        ok(dir, "cp x/ONE c.img:/d");
        assert_eq!(
            (names(dir, "/d"), ok(dir, "cat c.img /d/one")),
            (vec!["one".into()], "another".into())
        );
    });
}

#[test]
fn names_of_a_layer_that_differ_only_in_case_are_reported() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("xfs_repair"));
    on_both(|dir| {
        let layer = |name: &str, members: &[&str]| {
            let mut builder = testkit::command("tar");
            builder.current_dir(dir.join("layer")).args(["--owner=0", "--group=0", "-cf"]);
            assert!(builder.arg(dir.join(name)).args(members).status().unwrap().success());
        };
        fs::create_dir_all(dir.join("layer/d")).unwrap();
        for name in ["d/file", "d/FILE", "d/.wh.OLD"] {
            fs::write(dir.join("layer").join(name), name).unwrap();
        }
        layer("both.tar", &["d/file", "d/FILE"]);
        layer("one.tar", &["d/FILE", "d/.wh.OLD"]);
        let told = fails(dir, "apply both.tar c.img", 1);
        assert!(told.contains("/d/FILE") && told.contains("also has file"), "{told}");
        assert!(names(dir, "/d").is_empty(), "nothing of it was applied");
        ok(dir, "cp one c.img:/d/file");
        ok(dir, "cp one c.img:/d/old");
        ok(dir, "apply one.tar c.img");
        assert_eq!(names(dir, "/d"), ["file"]);
        assert_eq!(ok(dir, "cat c.img /d/file"), "d/FILE");
    });
}

#[test]
fn a_build_reports_names_that_differ_only_in_case() {
    require!(Tool("xfs_repair"));
    let scratch = testkit::scratch();
    let dir = scratch.path();
    for (first, second) in [("tree/Name", "tree/nAME"), ("dirs/Name/x", "dirs/nAME/y")] {
        for name in [first, second] {
            fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            fs::write(dir.join(name), name).unwrap();
        }
        let source = first.split('/').next().unwrap();
        let line = format!("build {source} b.img --size 64M {OWN_XFS} --features ascii-ci");
        let told = fails(dir, &line, 2);
        assert!(told.contains("Name") && told.contains("nAME"), "{told}");
    }
}

#[test]
fn the_library_renames_to_another_spelling() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("xfs_repair"));
    on_both(|dir| {
        ok(dir, "cp one c.img:/d/Foo");
        {
            let image = Image::open_writable(dir.join("c.img")).unwrap();
            image.rename("/d/FOO", "/d/foo").unwrap();
            image.rename_with("/d/foo", "/d/FOO", RenameMode::NoReplace).unwrap_err();
            image.close().unwrap();
        }
        assert_eq!(names(dir, "/d"), ["foo"]);
        let image = Image::open(dir.join("c.img")).unwrap();
        let fs = image.file_system().unwrap();
        let d = fs.lookup(fs.root(), b"d").unwrap();
        assert!(fs.is_same_name(d, b"FoO", b"foo").unwrap());
    });
}

#[test]
fn a_mount_finds_names_in_any_spelling() {
    require!(Fuse, Tool("mke2fs"), Tool("e2fsck"), Tool("xfs_repair"));
    on_both(|dir| {
        ok(dir, "cp one c.img:/d/NEW");
        let mounted = Mounted::new(&dir.join("c.img"));
        let at = |name: &str| mounted.join("d").join(name);
        let listed = || {
            let mut names: Vec<_> = fs::read_dir(mounted.join("d"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        fs::remove_file(at("new")).unwrap();
        assert!(!at("NEW").exists() && listed().is_empty());
        fs::write(at("Foo"), "foo").unwrap();
        assert_eq!(fs::read(at("fOO")).unwrap(), b"foo");
        let exists = std::io::ErrorKind::AlreadyExists;
        assert_eq!(fs::File::create_new(at("FOO")).unwrap_err().kind(), exists);
        assert_eq!(fs::create_dir(at("foo")).unwrap_err().kind(), exists);
        assert_eq!(fs::hard_link(at("foo"), at("FOO")).unwrap_err().kind(), exists);
        // The kernel resolves both names to one inode and sends no request, as on its own file
        // systems.
        fs::rename(at("Foo"), at("FOO")).unwrap();
        assert_eq!(listed(), ["Foo"]);
        fs::rename(at("FOO"), at("bar")).unwrap();
        fs::write(at("Baz"), "baz").unwrap();
        fs::rename(at("BAR"), at("BAZ")).unwrap();
        assert_eq!((listed(), fs::read(at("baz")).unwrap()), (vec!["Baz".into()], b"foo".to_vec()));
        fs::create_dir(at("Sub")).unwrap();
        fs::write(at("sub/x"), "").unwrap();
        fs::rename(at("SUB"), at("Other")).unwrap();
        fs::remove_file(at("other/X")).unwrap();
        fs::remove_dir(at("OTHER")).unwrap();
        fs::remove_file(at("BAZ")).unwrap();
        assert!(listed().is_empty());
        assert_eq!(mounted.unmount(), "");
    });
}

/// The target directory is on one of our own mounts, because this kernel may have no file system
/// that folds names.
#[test]
fn extraction_does_not_replace_names_that_differ_in_case() {
    require!(Fuse, Tool("mke2fs"), Tool("e2fsck"), Tool("xfs_repair"));
    on_both(|dir| {
        fs::create_dir(dir.join("tree")).unwrap();
        for name in ["Foo", "foo", "only"] {
            fs::write(dir.join("tree").join(name), name).unwrap();
        }
        ok(dir, "build tree plain.img --size 64M");
        let mounted = Mounted::new(&dir.join("c.img"));
        let target = mounted.join("d");
        let line = format!("cp -r plain.img:/ {}", target.join("out").display());
        let told = fails(dir, &line, 4);
        assert!(told.contains("ignores case") && told.contains("Foo"), "{told}");
        assert_eq!(fs::read(target.join("out/FOO")).unwrap(), b"Foo");
        // A file with the same spelling is replaced as usual.
        ok(dir, &format!("cp plain.img:/only {}", target.display()));
        ok(dir, &format!("cp plain.img:/only {}", target.display()));
        fs::create_dir(target.join("empty")).unwrap();
        let line = format!("extract plain.img {}", target.join("empty").display());
        assert!(fails(dir, &line, 4).contains("ignores case"));
        assert_eq!(mounted.unmount(), "");
    });
}
