//! Committed clones, as kernels and other programs see them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::{Ignore, KernelMount, MountOptions, Tree, require, scratch};

use super::clones::bases;
use super::{ok, run};

/// Changes the tree of the base. `number` is the step.
fn change(tree: &Path, number: u32) {
    let etc = tree.join("etc");
    fs::write(etc.join("hostname"), format!("step {number}\n")).unwrap();
    fs::remove_file(etc.join(format!("file-{number}"))).unwrap();
    let made = tree.join(format!("made-{number}"));
    fs::create_dir(&made).unwrap();
    fs::write(made.join("large"), vec![number as u8; 3_000_000]).unwrap();
    fs::hard_link(made.join("large"), made.join("linked")).unwrap();
    symlink("large", made.join("link")).unwrap();
    fs::rename(tree.join("usr/lib").join(format!("file-{number}")), made.join("moved")).unwrap();
}

/// Applies the same changes to a clone by commands.
fn change_clone(dir: &Path, clone: &str, number: u32) {
    fs::write(dir.join("hostname"), format!("step {number}\n")).unwrap();
    fs::write(dir.join("large"), vec![number as u8; 3_000_000]).unwrap();
    for line in [
        format!("cp hostname {clone}:/etc/hostname"),
        format!("rm {clone} /etc/file-{number}"),
        format!("mkdir {clone} /made-{number}"),
        format!("cp large {clone}:/made-{number}/large"),
        format!("ln {clone} /made-{number}/large /made-{number}/linked"),
        format!("ln -s {clone} large /made-{number}/link"),
        format!("mv {clone} /usr/lib/file-{number} /made-{number}/moved"),
    ] {
        ok(dir, &line);
    }
}

/// Asserts that the kernel shows the tree of an image, and that a checker finds no error in it.
#[track_caller]
fn assert_shown(dir: &Path, image: &str, expected: &Tree) {
    testkit::judge(dir.join(image));
    let fs_type = if image.starts_with("xfs") { "xfs" } else { "ext4" };
    let mount = KernelMount::new(dir.join(image), &MountOptions::read_only(fs_type));
    let ignore = Ignore { mtime: true, holes: true, ..Ignore::default() };
    testkit::assert_same(expected, &Tree::of(mount.path()), &ignore);
}

#[test]
fn kernels_show_committed_clones_and_snapshots() {
    crate::require_all_formats!(Root);
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let dir = scratch();
    let dir = dir.path();
    let bases = bases(dir);
    // The source gets the changes of the clones, too.
    let mut expected = vec![Tree::of(dir.join("source"))];
    for step in 1..=3 {
        change(&dir.join("source"), step);
        expected.push(Tree::of(dir.join("source")));
    }
    for base in bases {
        let clone = format!("{base}.clone");
        ok(dir, &format!("clone {base} {clone}"));
        for step in 1..=3 {
            change_clone(dir, &clone, step);
            if step < 3 {
                ok(dir, &format!("snapshot {clone} {base}.s{step}"));
            }
        }
        // New images of the clone and of its snapshots.
        ok(dir, &format!("commit {clone} {base}.new"));
        assert_shown(dir, &format!("{base}.new"), &expected[3]);
        for (step, expected) in expected.iter().enumerate().take(3).skip(1) {
            ok(dir, &format!("commit {base}.s{step} {base}.new{step}"));
            assert_shown(dir, &format!("{base}.new{step}"), expected);
        }
        // A layer of the changes, applied to a copy of the base.
        testkit::copy_image(&dir.join(&base), &dir.join(format!("{base}.layered")));
        ok(dir, &format!("diff {base} {clone} -o {base}.layer.tar"));
        assert!(run(dir, &format!("apply {base}.layer.tar {base}.layered")).status.success());
        assert_shown(dir, &format!("{base}.layered"), &expected[3]);
        // The state of a snapshot, and the base itself.
        ok(dir, &format!("reset {clone} --to {base}.s1"));
        ok(dir, &format!("commit --force {clone} {base}.new"));
        assert_shown(dir, &format!("{base}.new"), &expected[1]);
        assert_shown(dir, &base, &expected[0]);
        ok(dir, &format!("commit --force {clone} {base}"));
        assert_shown(dir, &base, &expected[1]);
        assert_eq!(run(dir, &format!("ls {clone}")).status.code(), Some(3));
    }
}
