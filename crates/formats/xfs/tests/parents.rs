//! Parent pointers lead to every path of an inode, for pointers made by the kernel and made here.

use crate::changing::{TargetLayout, XfsTarget, assert_clean};
use crate::support;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use fastrand::Rng;
use support::image::{kernel_image, open};
use testkit::crash::CrashTarget as _;
use testkit::{require, xfs_repair};
use vfs::path::{PathsOf, paths_of};
use vfs::{Error, FileSystem, Ino, NewInode, RenameMode, Timestamp};
use xfs::{OpenOptions, Xfs};

/// Returns every path of every inode, sorted, from a walk of the mounted tree.
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

/// Makes a tree with files of one link, of a few, and of `links` in several directories.
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
    // Some are removed, and some are renamed.
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

fn new_inode() -> NewInode {
    let time = Timestamp { sec: 1_700_000_000, nsec: 0 };
    NewInode { permissions: 0o755, uid: 0, gid: 0, time, parent_time: None }
}

fn open_in_progress(path: &Path) -> Xfs {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    Xfs::open_in_progress(Arc::new(FileDevice::new(file).unwrap()), 64 << 20).unwrap()
}

/// Makes random links, removals and renames of a few files and directories, with attributes.
fn change_links(fs: &Xfs, seed: u64, steps: usize) {
    let mut rng = Rng::with_seed(seed);
    let mut dirs = vec![fs.root()];
    for name in ["d1", "d2", "d3"] {
        dirs.push(fs.mkdir(*dirs.last().unwrap(), name.as_bytes(), &new_inode()).unwrap());
    }
    let mut files = Vec::new();
    for number in 0..3 {
        let name = format!("file-{number}");
        files.push(fs.create(dirs[1], name.as_bytes(), &new_inode()).unwrap());
    }
    fs.symlink(dirs[2], b"link", &[b't'; 180], &new_inode()).unwrap();
    let mut links: Vec<(Ino, Vec<u8>)> = Vec::new();
    for step in 0..steps {
        let dir = dirs[rng.usize(..dirs.len())];
        let name = format!("{step}-{}", "n".repeat(rng.usize(..200)));
        let at = rng.usize(..links.len().max(1));
        match rng.u8(..8) {
            0 if at < links.len() => {
                let (dir, name) = links.swap_remove(at);
                fs.unlink(dir, &name, None).unwrap();
            }
            1..=2 if at < links.len() => {
                let (from, old) = links.swap_remove(at);
                let to = (dir, name.as_bytes());
                fs.rename((from, &old), to, RenameMode::NoReplace, None).unwrap();
                links.push((dir, name.into_bytes()));
            }
            3 => {
                let file = files[rng.usize(..files.len())];
                fs.set_xattr(file, b"user.changing", &vec![1; rng.usize(..300)]).unwrap();
            }
            _ => {
                // Most are of the first file.
                let file = files[rng.usize(..files.len() * 4).saturating_sub(9)];
                fs.link(file, dir, name.as_bytes(), None).unwrap();
                links.push((dir, name.into_bytes()));
            }
        }
    }
    fs.rename((dirs[2], b"d3"), (dirs[0], b"moved"), RenameMode::NoReplace, None).unwrap();
    let exchanged = ((dirs[1], b"file-0".as_slice()), (dirs[0], b"moved".as_slice()));
    fs.rename(exchanged.0, exchanged.1, RenameMode::Exchange, None).unwrap();
}

#[test]
fn links_made_here_are_right() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let runs = [("", 60), ("", 2000), ("-b size=1024", 1500), ("-i size=2048", 300)];
    for (seed, (options, steps)) in runs.into_iter().enumerate() {
        let (image, ()) = kernel_image(&format!("-n parent=1 {options}"), |_, _| (), |_| ());
        let fs = open_in_progress(image.path());
        change_links(&fs, seed as u64, steps);
        fs.finish(None).unwrap();
        drop(fs);
        xfs_repair(image.path());
        let mut expected = BTreeMap::new();
        image.assert_read_by_kernel(|root| expected = all_paths(root));
        let fs = open(image.path());
        for (ino, paths) in expected {
            let found = paths_of(&fs, Ino(ino)).unwrap();
            assert_eq!(found, PathsOf { paths, scanned: false }, "inode {ino} with {options}");
        }
    }
}

#[test]
fn without_parent_pointers_the_tree_is_scanned() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let (image, expected) = kernel_image("-n parent=0", |root, _| make_links(root, 200), all_paths);
    let fs = open(image.path());
    for (ino, paths) in expected {
        assert_eq!(paths_of(&fs, Ino(ino)).unwrap(), PathsOf { paths, scanned: true });
    }
}

/// Directories, links and files whose data fork leaves no room for an attribute fork.
#[test]
fn a_full_data_fork_is_moved_out() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let (image, ()) = kernel_image("-n parent=0", |_, _| (), |_| ());
    let fs = open_in_progress(image.path());
    let dir = fs.mkdir(fs.root(), b"dir", &new_inode()).unwrap();
    for number in 0..10 {
        let name = format!("{number:022}");
        fs.create(dir, name.as_bytes(), &new_inode()).unwrap();
    }
    let link = fs.symlink(fs.root(), b"link", &[b't'; 330], &new_inode()).unwrap();
    let file = fs.create(fs.root(), b"file", &new_inode()).unwrap();
    for piece in 0..20 {
        fs.write(file, piece * 8192, &[1; 4096], None).unwrap();
    }
    for ino in [dir, link, file] {
        let before = fs.attributes(ino).unwrap().blocks_512;
        assert_eq!(before, if ino == file { 160 } else { 0 });
        fs.set_xattr(ino, b"trusted.a", b"value").unwrap();
        // The contents of the inode are in one block now.
        assert_eq!(fs.attributes(ino).unwrap().blocks_512, before + 8);
    }
    fs.finish(None).unwrap();
    drop(fs);
    xfs_repair(image.path());
    image.assert_read_by_kernel(|root| {
        assert_eq!(std::fs::read_dir(root.join("dir")).unwrap().count(), 10);
        assert_eq!(std::fs::read_link(root.join("link")).unwrap().as_os_str().len(), 330);
        for name in ["dir", "link", "file"] {
            let mut value = [0; 10];
            let len = rustix::fs::lgetxattr(root.join(name), "trusted.a", &mut value[..]).unwrap();
            assert_eq!(&value[..len], b"value");
        }
    });
}

/// With ascii-ci, a parent pointer contains the name as stored in the entry: xfs_repair compares their bytes.
#[test]
fn parent_pointers_have_the_stored_spelling() {
    require!(Tool("xfs_repair"));
    for others in [0, 40, 3000] {
        let target =
            XfsTarget::in_place(TargetLayout { features: "+ascii-ci", ..TargetLayout::DEFAULT });
        let device = Arc::new(target.make(0).unwrap());
        let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
        let (root, new, replace) = (fs.root(), new_inode(), RenameMode::Replace);
        for number in 0..others {
            fs.create(root, format!("other-{number}").as_bytes(), &new).unwrap();
        }
        let dir = fs.mkdir(root, b"Dir", &new).unwrap();
        for name in [&b"a"[..], b"b", b"c", b"d", b"e", b"f"] {
            fs.create(root, name, &new).unwrap();
        }
        // A replaced name keeps its spelling, and a renamed or removed one is found by another spelling.
        let file = fs.create_unlinked(root, &new).unwrap();
        fs.link_over(file, root, b"A", None).unwrap();
        FileSystem::close(&fs, file).unwrap();
        fs.rename((root, b"B"), (root, b"C"), replace, None).unwrap();
        fs.rename((root, b"C"), (dir, b"moved"), replace, None).unwrap();
        fs.rename((root, b"D"), (root, b"E"), RenameMode::Exchange, None).unwrap();
        fs.rename((root, b"F"), (root, b"\xc9 long new name"), replace, None).unwrap();
        fs.rename((root, b"\xe9 LONG new NAME"), (root, b"\xe9 Long New Name"), replace, None)
            .unwrap();
        fs.rename((root, b"DIR"), (root, b"dIr"), replace, None).unwrap();
        fs.unlink(root, b"D", None).unwrap();
        let paths = |ino| paths_of(&fs, ino).unwrap().paths;
        assert_eq!(paths(file), [b"/a".to_vec()]);
        assert_eq!(paths(fs.lookup(dir, b"MOVED").unwrap()), [b"/dIr/moved".to_vec()]);
        let long = fs.lookup(root, b"\xc9 long new name").unwrap();
        assert_eq!(paths(long), [b"/\xe9 Long New Name".to_vec()]);
        assert!(matches!(fs.mkdir(root, b"DIR", &new), Err(Error::Exists)));
        fs.close().unwrap();
        assert_clean(&device);
    }
}
