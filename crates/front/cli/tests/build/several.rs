//! Several sources merged into one image, and images as sources.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Ignore, Tree, require, scratch};

use crate::build::common::{
    EPOCH, FORMATS, as_in_gnu_tar, build, common_sample, fail, judge_but, names_in, sample_in,
    succeed, tar,
};

use crate::program::diskwright;

/// Returns `diskwright build` with sources and target directories as command-line words.
fn build_of(words: &[&str], image: &Path, options: &str) -> Command {
    let mut command = diskwright();
    command.arg("build").args(options.split_whitespace()).args(words).arg(image);
    command
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Creates a few files to merge over others.
fn overlay(home: &Path, name: &str) -> PathBuf {
    let overlay = home.join(name);
    fs::create_dir_all(overlay.join("new/deep")).unwrap();
    fs::write(overlay.join("new/deep/file"), name).unwrap();
    fs::write(overlay.join("replaced"), name.repeat(1000)).unwrap();
    fs::hard_link(overlay.join("replaced"), overlay.join("new/other-name")).unwrap();
    overlay
}

/// Returns the tree that GNU tar produces from archives unpacked over each other, each into a
/// directory below `root`.
fn unpack(archives: &[(&Path, &str)], root: &Path) -> Tree {
    for (archive, at) in archives {
        let directory = root.join(at);
        fs::create_dir_all(&directory).unwrap();
        let options = ["--extract", "--acls", "--xattrs", "--xattrs-include=*", "--same-owner"];
        let mut command = testkit::command("tar");
        command.args(options).arg("--numeric-owner").arg("--preserve-permissions");
        succeed(command.arg("--file").arg(archive).arg("--directory").arg(&directory));
    }
    Tree::of(root)
}

#[test]
fn sources_are_put_over_each_other_as_tar_unpacks_them() {
    crate::require_all_formats!(Root, Tool("tar"), Tool("gzip"));
    let directory = scratch();
    let home = directory.path();
    let (source, _) = sample_in(home, &common_sample());
    fs::write(source.join("replaced"), "before").unwrap();
    fs::hard_link(source.join("replaced"), source.join("stays")).unwrap();
    let (first, second) = (overlay(home, "first"), overlay(home, "second"));
    let archive = |name: &str, from: &Path, more: &[&str]| {
        let archive = home.join(name);
        tar(from, &archive, more);
        archive
    };
    let base = archive("base.tar.gz", &source, &["--gzip"]);
    let first_tar = archive("first.tar", &first, &[]);
    let second_tar = archive("second.tar", &second, &[]);
    let order = [(&*base, ""), (&*first_tar, ""), (&*second_tar, "new/place")];
    let mut expected = as_in_gnu_tar(&unpack(&order, &home.join("unpacked")));
    // Here, the target directory was created in it later.
    let listed = Tree::of(&first);
    expected.nodes.get_mut(&b"new"[..]).unwrap().mtime = listed.node("new").mtime;
    let ignore = Ignore { lost_found: true, ..Ignore::default() };
    for format in FORMATS {
        let image = home.join("image");
        let words = [text(&base), text(&first_tar), "--at", "/new/place/", text(&second_tar)];
        succeed(&mut build_of(&words, &image, &format!("{format} --force")));
        judge_but(&image, &expected, &ignore);
        // Directories give the same result, also if an archive comes from standard input.
        let words = ["-", text(&first), "--at", "new/place", text(&second)];
        let other = home.join("other");
        let mut command = build_of(&words, &other, &format!("{format} --force --threads 1"));
        succeed(command.stdin(File::open(&base).unwrap()));
        judge_but(&other, &expected, &ignore);
        let build_again = |threads: u32| {
            let again = home.join("again");
            let options = format!("{format} --force --threads {threads}");
            let mut command = build_of(&words, &again, &options);
            command.env("SOURCE_DATE_EPOCH", EPOCH.to_string());
            succeed(command.stdin(File::open(&base).unwrap()));
            fs::read(&again).unwrap()
        };
        assert!(build_again(1) == build_again(4), "{format}");
    }
}

#[test]
fn an_image_is_a_source_among_others() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let home = directory.path();
    let (source, tree) = sample_in(home, &common_sample());
    let over = overlay(home, "over");
    let merged = home.join("merged");
    succeed(testkit::command("cp").arg("-a").arg(&source).arg(&merged));
    succeed(testkit::command("cp").arg("-a").arg(over.join(".")).arg(&merged));
    let expected = Tree::of(&merged);
    let ignore = Ignore { lost_found: true, ..Ignore::default() };
    for (from, to) in [("--fs ext4", "--fs xfs"), ("--fs xfs", "--fs ext4")] {
        let (old, new) = (home.join("old.img"), home.join("new.img"));
        build(&source, &old, &format!("{from} --force"));
        let before = fs::read(&old).unwrap();
        let named = format!("image:{}", text(&old));
        succeed(&mut build_of(&[&named], &new, &format!("{to} --force")));
        judge_but(&new, &tree, &ignore);
        succeed(&mut build_of(&[&named, text(&over)], &new, &format!("{to} --force")));
        judge_but(&new, &expected, &ignore);
        assert!(before == fs::read(&old).unwrap(), "the source was written");
    }
}

#[test]
fn sources_that_do_not_go_together_are_refused() {
    require!(Tool("tar"));
    let directory = scratch();
    let home = directory.path();
    let over = overlay(home, "over");
    let other = home.join("other");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("new"), "no directory").unwrap();
    let image = home.join("image");
    let (over, other) = (text(&over), text(&other));
    let itself = format!("image:{}", text(&image));
    let cases: [(&[&str], i32, &str); 9] = [
        (&[over, over], 2, "given twice"),
        (&["-", "-"], 2, "standard input"),
        (&["--at", "../x", over], 2, ".."),
        (&["--at", "x", "--at", "y", over], 2, "before its source"),
        (&[over, other], 2, "not empty"),
        (&[over, "--at", "replaced", other], 2, "not a directory"),
        (&[over, "--at", "replaced/x", other], 2, "not a directory"),
        (&[other, "--at", "new/x", over], 2, "not a directory"),
        (&[&itself, over], 4, "No such file"),
    ];
    for (words, status, expected) in cases {
        let mut command = build_of(words, &image, "");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
        assert!(said.contains(expected) && !said.contains("panicked"), "{words:?}: {said}");
        assert_eq!(names_in(home), ["other", "over"], "{words:?}");
    }
    // Listed twice, with different target directories.
    succeed(&mut build_of(&["--at", "a", over, "--at", "b", over], &image, ""));
    testkit::judge(&image);
}

#[test]
fn links_in_paths_are_not_followed() {
    require!(Tool("tar"), Tool("e2fsck"));
    let directory = scratch();
    let home = directory.path();
    let (base, over) = (home.join("base"), home.join("over"));
    fs::create_dir_all(base.join("usr/lib")).unwrap();
    std::os::unix::fs::symlink("usr/lib", base.join("lib")).unwrap();
    fs::create_dir_all(over.join("lib")).unwrap();
    fs::write(over.join("lib/x"), "x").unwrap();
    let image = home.join("image");
    succeed(&mut build_of(&[text(&base), text(&over)], &image, ""));
    let listed = succeed(diskwright().args(["ls", text(&image), "/lib"]));
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "x\n");
    // An archive without an entry for the directory itself.
    let archive = home.join("over.tar");
    let mut command = testkit::command("tar");
    succeed(command.arg("-cf").arg(&archive).arg("-C").arg(&over).arg("lib/x"));
    let mut command = build_of(&[text(&base), text(&archive)], &image, "--force");
    assert!(fail(&mut command, 2).contains("links are not followed"));
}
