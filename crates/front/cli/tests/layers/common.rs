//! Trees on the host, images of them, and their comparison.

use std::fs;
use std::path::Path;

use testkit::{Format, Ignore, KernelMount, MountOptions, Tree, assert_same};

use crate::edit::common::run;

use crate::program::ok;

/// Options of builds, one for each format.
pub(crate) const FORMATS: [&str; 2] = ["--fs ext4", "--fs xfs --small"];

/// Builds an image of a tree, with room for another tree.
pub(crate) fn build(dir: &Path, tree: &str, image: &str, options: &str) {
    ok(dir, &format!("build {tree} {image} --size 64M {options}"));
}

/// Checks an image and returns the tree that the kernel shows.
#[track_caller]
pub(crate) fn shown(image: &Path) -> Tree {
    testkit::judge(image);
    let mount = KernelMount::new(image, &MountOptions::read_only(Format::of(image).kernel_name()));
    Tree::of(mount.path())
}

/// Properties in which two trees may differ.
pub(crate) fn ignored() -> Ignore {
    // The kernel lists the ACLs of XFS a second time, in their stored form.
    Ignore { xattr_prefixes: vec![b"trusted.SGI_ACL_"], holes: true, ..Ignore::default() }
}

/// Asserts that the kernel shows in an image the tree of a directory.
#[track_caller]
pub(crate) fn assert_holds(image: &Path, tree: &Path) {
    assert_same(&Tree::of(tree), &shown(image), &ignored());
}

/// Creates files in a directory. Names that end in `/` are directories; the others contain their
/// own names.
pub(crate) fn make(root: &Path, names: &[&str]) {
    for name in names {
        let path = root.join(name);
        if name.ends_with('/') {
            fs::create_dir_all(path).unwrap();
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
}

/// Asserts that `diff` finds no difference between two sides.
#[track_caller]
pub(crate) fn assert_equal(dir: &Path, a: &str, b: &str) {
    let output = run(dir, &["diff", a, b]);
    let told = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty() && said.is_empty(), "{said}{told}");
}
