//! Directories as sources.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::common::{ItemKind, TreeItem, collect, make_tree, set_xattr};
use import::{Body, EntryKind, FileId, Options, SourceChange, SourceError};
use rustix::fs::{Mode, OFlags, mkdirat, openat};

fn stream(root: &Path, options: &Options) -> Vec<TreeItem> {
    collect(&mut *import::open(root, options).unwrap()).unwrap()
}

fn threads(threads: usize) -> Options {
    Options { threads, exclude: Vec::new() }
}

#[test]
fn everything_is_there_in_order_whatever_the_threads() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path(), true);
    for i in 0..1000 {
        fs::write(dir.path().join(format!("dir/sub/many-{i}")), format!("{i}")).unwrap();
    }
    let items = stream(dir.path(), &threads(0));
    // The first read changed the directories' access times; later ones change nothing.
    let items_again = stream(dir.path(), &threads(0));
    let without_atime = |items: &[TreeItem]| {
        let mut items = items.to_vec();
        items.iter_mut().for_each(|item| item.metadata.atime = None);
        items
    };
    assert_eq!(without_atime(&items), without_atime(&items_again));
    for count in [1, 2, 5, 99] {
        assert_eq!(without_atime(&items), without_atime(&stream(dir.path(), &threads(count))));
    }
    let paths: Vec<&str> = items.iter().map(|item| &*item.path).collect();
    assert_eq!(paths[0], "");
    let mut sorted: Vec<Vec<&str>> = paths.iter().map(|path| path.split('/').collect()).collect();
    sorted.sort();
    assert_eq!(paths, sorted.iter().map(|parts| parts.join("/")).collect::<Vec<_>>());

    let item = |path: &str| items.iter().find(|item| item.path == path).unwrap();
    let link = |path: &str| ItemKind::Other(format!("{:?}", EntryKind::Hardlink(path.into())));
    let ItemKind::File { data, .. } = &item("dir/a").kind else { panic!() };
    assert_eq!(data, b"hello");
    assert_eq!(item("dir/a").metadata.permissions, 0o6751);
    assert_eq!(item("dir/sub/link-to-a").kind, link("dir/a"));
    assert_eq!(item("zz-link-to-a").kind, link("dir/a"));
    let ItemKind::File { size, runs, data } = &item("sparse").kind else { panic!() };
    assert_eq!((*size, data.len()), (10 << 20, 40 * 4096));
    assert_eq!(runs[1], (200_000 / 4096 * 4096, 4096));
    assert_eq!(item("all hole").kind, ItemKind::File { size: 1 << 20, runs: vec![], data: vec![] });
    assert_eq!(item("empty dir").metadata.permissions, 0o1777);
    assert_eq!(item("dir/empty").metadata.mtime.sec, -10_000);
    if set_xattr(&dir.path().join("dir/sub/big"), "user.plain", b"value") {
        let names: Vec<_> = item("dir/sub/big").xattrs.iter().map(|x| &x.name[..]).collect();
        assert_eq!(names, [&b"user.odd=%3D"[..], b"user.plain"]);
        assert_eq!(item("dir/sub").xattrs[0].value, [7; 1500]);
    }
}

#[test]
fn deep_trees_need_few_descriptors_and_no_short_paths() {
    let dir = tempfile::tempdir().unwrap();
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let mut fd = rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap();
    let name = "d".repeat(10);
    let mode = Mode::from_raw_mode(0o755);
    for _ in 0..1500 {
        mkdirat(&fd, &*name, mode).unwrap();
        // Names after the directory, so that the walk has to return to it.
        let file =
            openat(&fd, "e", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, mode).unwrap();
        File::from(file).write_all_at(b"deep", 0).unwrap();
        fd = openat(&fd, &*name, flags, Mode::empty()).unwrap();
    }
    for count in [0, 2] {
        let items = stream(dir.path(), &threads(count));
        assert_eq!(items.len(), 3001);
        let deepest = items.iter().map(|item| item.path.len()).max().unwrap();
        assert_eq!(deepest, 1500 * 11 - 1);
        let is_file =
            |item: &&TreeItem| matches!(&item.kind, ItemKind::File { data, .. } if data == b"deep");
        assert_eq!(items.iter().filter(is_file).count(), 1500);
    }
}

#[test]
fn excluded_files_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("image"), b"").unwrap();
    fs::write(dir.path().join("file"), b"").unwrap();
    fs::create_dir_all(dir.path().join("gone/with all")).unwrap();
    let id = |name: &str| {
        let metadata = fs::metadata(dir.path().join(name)).unwrap();
        FileId { dev: metadata.dev(), ino: metadata.ino() }
    };
    let options = Options { threads: 1, exclude: vec![id("image"), id("gone")] };
    let items = stream(dir.path(), &options);
    let paths: Vec<_> = items.iter().map(|item| &*item.path).collect();
    assert_eq!(paths, ["", "file"]);
}

#[test]
fn files_that_change_are_errors_that_name_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let detached = || {
        fs::write(&path, [1; 10_000]).unwrap();
        let mut source = import::open(dir.path(), &Options::default()).unwrap();
        source.next_entry().unwrap();
        match source.next_entry().unwrap().unwrap().kind {
            EntryKind::File(content) => match content.into_body() {
                Body::Detached(detached) => detached,
                body => panic!("{body:?}"),
            },
            kind => panic!("{kind:?}"),
        }
    };
    let changed = |error: SourceError| match error {
        SourceError::Changed { path: found, change } if found.ends_with("file") => change,
        error => panic!("{error}"),
    };
    let resize = |len| File::options().write(true).open(&path).unwrap().set_len(len).unwrap();

    let file = detached();
    resize(10);
    let shrunk = SourceChange::Size { expected: 10_000, found: 10 };
    assert_eq!(changed(file.open().unwrap_err()), shrunk);

    let file = detached().open().unwrap();
    resize(10);
    assert_eq!(changed(file.read_at(5000, &mut [0; 10]).unwrap_err()), shrunk);

    let file = detached().open().unwrap();
    resize(10_001);
    file.read_at(0, &mut [0; 10_000]).unwrap();
    let grown = SourceChange::Size { expected: 10_000, found: 10_001 };
    assert_eq!(changed(file.finish().unwrap_err()), grown);

    let file = detached();
    fs::remove_file(&path).unwrap();
    let message = file.open().unwrap_err().to_string();
    assert!(message.contains("cannot open") && message.contains("file\""), "{message}");
}

#[test]
fn errors_come_in_order_and_end_the_stream() {
    let missing = import::open(Path::new("/nonexistent"), &Options::default()).err().unwrap();
    assert!(matches!(missing, SourceError::Io { operation: "open", .. }));
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: root may read every file");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for i in 0..1000 {
        fs::write(dir.path().join(format!("{i:04}")), b"x").unwrap();
    }
    let locked = fs::Permissions::from_mode(0o000);
    fs::set_permissions(dir.path().join("0500"), locked).unwrap();
    for count in [0, 2] {
        let mut source = import::open(dir.path(), &threads(count)).unwrap();
        for _ in 0..501 {
            source.next_entry().unwrap().unwrap();
        }
        let message = source.next_entry().unwrap_err().to_string();
        assert!(message.contains("0500"), "{message}");
        assert!(source.next_entry().unwrap().is_none());
    }
}

#[test]
fn a_source_may_be_dropped_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..5000 {
        fs::write(dir.path().join(format!("{i}")), b"").unwrap();
    }
    for wanted in [0, 1, 300] {
        let mut source = import::open(dir.path(), &threads(3)).unwrap();
        for _ in 0..wanted {
            source.next_entry().unwrap().unwrap();
        }
    }
}

/// `/proc` reports its files as empty. Only those that really are must be empty.
#[test]
fn files_of_unknown_size_are_read_to_their_end() {
    let random = Path::new("/proc/sys/kernel/random");
    let Ok(boot_id) = fs::read(random.join("boot_id")) else {
        eprintln!("SKIPPED: no {}", random.display());
        return;
    };
    assert_eq!(fs::metadata(random.join("boot_id")).unwrap().len(), 0);
    for count in [0, 3] {
        let items = stream(random, &threads(count));
        let item = |path: &str| items.iter().find(|item| item.path == path).unwrap();
        let whole =
            |data: &[u8]| ItemKind::File { size: 37, runs: vec![(0, 37)], data: data.to_vec() };
        assert_eq!(item("boot_id").kind, whole(&boot_id));
        assert_ne!(item("uuid").kind, whole(&boot_id));
    }
}
