//! Names that Windows does not allow, mapped on this host: out of an image, and back into one.

use std::fs;
use std::path::Path;

use diskwright::extract::ExtractOptions;
use testkit::model::Model;
use testkit::scratch;
use vfs::Paths;

use super::{NEW, to_directory};
use crate::edit::common::{OWN_XFS, own_image};
use crate::program::{fails, ok};

/// Paths of a tree, and their mapped names on the host.
const NAMES: [(&str, &str); 8] = [
    ("plain", "plain"),
    ("a:b", "a\u{f03a}b"),
    ("dir?", "dir\u{f03f}"),
    ("dir?/nul.txt", "dir\u{f03f}/\u{f06e}ul.txt"),
    ("dir?/end.", "dir\u{f03f}/end\u{f02e}"),
    ("Makefile", "\u{f04d}akefile"),
    ("makefile", "makefile"),
    ("\u{f03a}", "\u{f0ef}\u{f080}\u{f0ba}"),
];

fn tree() -> Model {
    let model = Model::new();
    let paths = Paths::new(&model);
    for (path, _) in NAMES {
        if path == "dir?" {
            paths.create_dir_all(path.as_bytes(), &NEW).unwrap();
        } else {
            paths.write(path.as_bytes(), path.as_bytes(), &NEW).unwrap();
        }
    }
    model
}

#[test]
fn mapped_names_have_the_files_of_those_they_stand_for() {
    let scratch = scratch();
    let to = scratch.path().join("to");
    let options = ExtractOptions::default().map_names(true);
    let (report, _) = to_directory(&tree(), &to, &options);
    assert_eq!((report.files, report.left_out), (NAMES.len() as u64 + 1, 0));
    for (path, stands) in NAMES.into_iter().filter(|(path, _)| *path != "dir?") {
        assert_eq!(fs::read(to.join(stands)).unwrap(), path.as_bytes(), "{path}");
    }
    let plain = scratch.path().join("plain");
    to_directory(&tree(), &plain, &ExtractOptions::default());
    assert!(plain.join("dir?/nul.txt").exists(), "this host has any name");
}

#[test]
fn mapped_names_are_restored() {
    testkit::require!(Tool("e2fsck"), Tool("xfs_repair"));
    for options in ["", OWN_XFS] {
        let scratch = scratch();
        let dir = scratch.path();
        own_image(dir, "a.img", options);
        let tree_dir = dir.join("tree");
        to_directory(&tree(), &tree_dir, &ExtractOptions::default());
        std::os::unix::fs::symlink("dir?/end.", tree_dir.join("link")).unwrap();
        ok(dir, "cp -r tree a.img:/");
        ok(dir, "cp -r --map-names a.img:/tree out");
        assert_eq!(fs::read(dir.join("out/a\u{f03a}b")).unwrap(), b"a:b");
        let target = fs::read_link(dir.join("out/link")).unwrap();
        assert_eq!(target, Path::new("dir\u{f03f}/end\u{f02e}"));
        ok(dir, "cp --map-names a.img:/tree/a:b .");
        ok(dir, "cp -r --map-names out a.img:/");
        ok(dir, "cp --map-names a\u{f03a}b a.img:/one");
        let listed = ok(dir, "find a.img /tree");
        assert_eq!(listed.replace("/tree", "/out"), ok(dir, "find a.img /out"));
        assert!(listed.contains("/tree/dir?/end.\n"), "{listed}");
        assert_eq!(ok(dir, "cat a.img /out/link"), "dir?/end.");
        assert_eq!(ok(dir, "cat a.img /one"), "a:b");
        // A mapped name whose original contains a slash.
        fs::create_dir(dir.join("bad")).unwrap();
        fs::write(dir.join("bad/a\u{f02f}b"), b"").unwrap();
        let said = fails(dir, "cp -r --map-names bad a.img:/", 4);
        assert!(said.contains("an invalid file name"), "{said}");
        testkit::judge(dir.join("a.img"));
    }
}

#[test]
fn a_build_restores_mapped_names() {
    testkit::require!(Tool("e2fsck"), Tool("xfs_repair"));
    let scratch = scratch();
    let dir = scratch.path();
    let out = dir.join("out");
    to_directory(&tree(), &out, &ExtractOptions::default().map_names(true));
    std::os::unix::fs::symlink("dir\u{f03f}/end\u{f02e}", out.join("link")).unwrap();
    fs::hard_link(out.join("a\u{f03a}b"), out.join("z:second\u{f03f}")).unwrap();
    fs::create_dir(dir.join("plain")).unwrap();
    fs::create_dir(dir.join("bad")).unwrap();
    fs::write(dir.join("bad/a\u{f02f}b"), b"").unwrap();
    for format in ["ext4", "xfs --small"] {
        ok(dir, &format!("build --map-names --force out b.img --fs {format}"));
        testkit::judge(dir.join("b.img"));
        let listed = ok(dir, "find b.img / --type f --type l");
        let mut expected: Vec<_> =
            NAMES.iter().filter(|(path, _)| *path != "dir?").map(|(path, _)| *path).collect();
        expected.extend(["link", "z:second?"]);
        let mut found: Vec<_> = listed.lines().map(|line| &line[1..]).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{format}");
        assert_eq!(ok(dir, "cat b.img /dir?/nul.txt"), "dir?/nul.txt");
        assert_eq!(ok(dir, "cat b.img /link"), "dir?/end.");
        assert_eq!(ok(dir, "cat b.img /z:second?"), "a:b");
        // With other sources, below a target directory.
        ok(dir, &format!("build --map-names --force plain --at x/y out c.img --fs {format}"));
        assert_eq!(ok(dir, "cat c.img /x/y/dir?/end."), "dir?/end.");
        let said = fails(dir, &format!("build --map-names bad d.img --fs {format}"), 4);
        assert!(said.contains("an invalid file name"), "{said}");
        assert!(!dir.join("d.img").exists());
    }
}

#[test]
fn an_archive_needs_no_mapped_names() {
    let scratch = scratch();
    own_image(scratch.path(), "a.img", "");
    fails(scratch.path(), "build image:a.img b.img --map-names", 2);
    fails(scratch.path(), "extract a.img to.tar --map-names", 2);
    assert!(!scratch.path().join("to.tar").exists());
}
