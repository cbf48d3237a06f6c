//! Parent pointers that the kernel made lead to every path of an inode.

mod support;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use oracle::require;
use support::image::{kernel_image, open};
use vfs::path::{PathsOf, paths_of};
use vfs::{FileSystem, Ino};

/// Every path of every inode, sorted, by a walk of the mounted tree.
fn all_paths(root: &Path) -> BTreeMap<u64, Vec<Vec<u8>>> {
    let mut all: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let inside = path.strip_prefix(root).unwrap().as_os_str().as_bytes();
            all.entry(metadata.ino()).or_default().push([b"/", inside].concat());
            if metadata.is_dir() {
                pending.push(path);
            }
        }
    }
    all.values_mut().for_each(|paths| paths.sort_unstable());
    all
}

/// A tree with files of one link, of a few, and of `links` in several directories.
fn make_links(root: &Path, links: usize) {
    let deep = root.join("a/b/c/d");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::create_dir(root.join("a/second")).unwrap();
    std::fs::write(root.join("one"), b"").unwrap();
    std::fs::write(deep.join("few"), b"").unwrap();
    std::fs::write(root.join("n".repeat(255)), b"").unwrap();
    std::os::unix::fs::symlink("target", deep.join("link")).unwrap();
    // The same name in several directories: only the values differ.
    for dir in ["", "a", "a/b", "a/b/c", "a/second"] {
        std::fs::hard_link(deep.join("few"), root.join(dir).join("few")).unwrap();
    }
    std::fs::write(root.join("many"), b"").unwrap();
    for number in 0..links {
        let dir = root.join(["a/b/c/d", "a", "a/second"][number % 3]);
        let name = format!("{number}-{}", "long".repeat(number % 40));
        std::fs::hard_link(root.join("many"), dir.join(name)).unwrap();
    }
    // Some go again, and some move.
    for number in (0..links).filter(|number| number % 5 == 0) {
        let dir = root.join(["a/b/c/d", "a", "a/second"][number % 3]);
        let name = format!("{number}-{}", "long".repeat(number % 40));
        if number % 2 == 0 {
            std::fs::remove_file(dir.join(name)).unwrap();
        } else {
            std::fs::rename(dir.join(name), root.join(format!("moved-{number}"))).unwrap();
        }
    }
}

fn check(options: &str, links: usize) {
    let (image, expected) = kernel_image(options, |root, _| make_links(root, links), all_paths);
    let fs = open(image.path());
    assert!(expected.values().any(|paths| paths.len() > links / 2));
    for (ino, paths) in expected {
        let found = paths_of(&fs, Ino(ino)).unwrap();
        assert_eq!(found, PathsOf { paths, scanned: false }, "inode {ino} with {options}");
    }
    let root = PathsOf { paths: vec![b"/".to_vec()], scanned: false };
    assert_eq!(paths_of(&fs, fs.root()).unwrap(), root);
}

#[test]
fn every_path_is_found() {
    require!(Tool("mkfs.xfs"), Mount("xfs"));
    check("-n parent=1", 5000);
    check("-n parent=1 -b size=1024", 3000);
    check("-n parent=1 -b size=65536 -i size=1024", 3000);
}

#[test]
fn a_format_without_parents_says_so() {
    require!(Tool("mkfs.xfs"), Mount("xfs"));
    let note = |root: &Path| std::fs::metadata(root.join("one")).unwrap().ino();
    let (image, ino) = kernel_image("-n parent=0", |root, _| make_links(root, 0), note);
    let fs = open(image.path());
    let known = fs.parents(Ino(ino), &mut |_, _| panic!("no parent is known")).unwrap();
    assert!(!known);
}
