//! The path API, on the reference model.

use testkit::model::Model;
use vfs::path::{DirectoryGuard, LastLink, Order, split_last};
use vfs::{Error, FileSystem, FileType, Ino, NewInode, Paths};

const NEW: NewInode = NewInode {
    permissions: 0o755,
    uid: 1,
    gid: 2,
    time: vfs::Timestamp { sec: 7, nsec: 8 },
    parent_time: Some(vfs::Timestamp { sec: 7, nsec: 8 }),
};

/// Creates `/a/b/file`, and various links to it.
fn sample() -> Model {
    let fs = Model::new();
    let paths = Paths::new(&fs);
    let b = paths.create_dir_all(b"/a/b", &NEW).unwrap();
    paths.write(b"a/b/file", b"contents", &NEW).unwrap();
    let root = fs.root();
    for (dir, name, target) in [
        (root, "absolute", "/a/b/file"),
        (root, "to-dir", "a/b/"),
        (b, "up", "../../a//./b/file"),
        (b, "above-root", "/../../../a"),
        (root, "self", "self"),
        (root, "chain", "to-dir/up"),
        (root, "dangling", "a/nothing"),
    ] {
        fs.symlink(dir, name.as_bytes(), target.as_bytes(), &NEW).unwrap();
    }
    fs
}

#[test]
fn links_are_followed_inside_the_image() {
    let fs = sample();
    let paths = Paths::new(&fs);
    let file = paths.resolve(b"/a/b/file", LastLink::Follow).unwrap();
    for path in ["absolute", "to-dir/file", "/to-dir/../b/file", "a/b/up", "chain", "../a/b/file"] {
        assert_eq!(paths.resolve(path.as_bytes(), LastLink::Follow).unwrap(), file, "{path}");
    }
    assert_eq!(paths.read(b"chain", 8).unwrap(), b"contents");
    assert!(matches!(paths.read(b"chain", 7), Err(Error::FileTooLarge)));
    assert_eq!(paths.read_link(b"to-dir/up").unwrap(), b"../../a//./b/file");
    let a = paths.resolve(b"a", LastLink::Keep).unwrap();
    assert_eq!(paths.resolve(b"a/b/above-root", LastLink::Follow).unwrap(), a);
    assert_eq!(paths.resolve(b"", LastLink::Keep).unwrap(), fs.root());
    assert_eq!(paths.symlink_metadata(b"to-dir").unwrap().file_type, FileType::Symlink);
    assert_eq!(paths.symlink_metadata(b"to-dir/").unwrap().file_type, FileType::Directory);
    assert_eq!(paths.metadata(b"to-dir").unwrap().file_type, FileType::Directory);
}

#[test]
fn paths_that_lead_nowhere_say_why() {
    let fs = sample();
    let paths = Paths::new(&fs);
    let error = |path: &str| paths.resolve(path.as_bytes(), LastLink::Follow).unwrap_err();
    assert!(matches!(error("nothing"), Error::NotFound));
    assert!(matches!(error("dangling"), Error::NotFound));
    assert!(matches!(error("self"), Error::SymlinkLoop));
    assert!(matches!(error("a/b/file/x"), Error::NotADirectory));
    assert!(matches!(error("a/b/file/"), Error::NotADirectory));
    assert!(matches!(error("absolute/."), Error::NotADirectory));
    assert!(matches!(paths.create_dir_all(b"a/b/file", &NEW), Err(Error::NotADirectory)));
    assert!(matches!(paths.write(b"a/b", b"", &NEW), Err(Error::IsADirectory)));
    assert!(matches!(paths.read(b"a", 9), Err(Error::IsADirectory)));
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let fs = Model::new();
    fs.create(fs.root(), b"0", &NEW).unwrap();
    for number in 1..=41 {
        let (name, target) = (format!("{number}"), format!("{}", number - 1));
        fs.symlink(fs.root(), name.as_bytes(), target.as_bytes(), &NEW).unwrap();
    }
    let paths = Paths::new(&fs);
    assert!(paths.resolve(b"40", LastLink::Follow).is_ok());
    assert!(matches!(paths.resolve(b"41", LastLink::Follow), Err(Error::SymlinkLoop)));
}

#[test]
fn writing_replaces_contents_and_keeps_the_inode() {
    let fs = sample();
    let paths = Paths::new(&fs);
    let before = paths.metadata(b"absolute").unwrap();
    paths.write(b"absolute", b"new", &NewInode::default()).unwrap();
    let after = paths.metadata(b"a/b/file").unwrap();
    assert_eq!((after.ino, after.uid, after.size), (before.ino, 1, 3));
}

fn walk(fs: &Model, order: Order) -> Vec<String> {
    let walk = Paths::new(fs).walk(fs.root(), order);
    let shown = walk.map(|walked| match walked {
        Ok(walked) => String::from_utf8(walked.path).unwrap(),
        Err(error) => error.to_string(),
    });
    shown.collect()
}

#[test]
fn walks_are_depth_first_in_either_order() {
    let fs = Model::new();
    let paths = Paths::new(&fs);
    for path in ["/z/2", "/z/1", "/a/x/y", "/a.b"] {
        paths.create_dir_all(path.as_bytes(), &NEW).unwrap();
    }
    assert_eq!(walk(&fs, Order::Sorted), ["", "a", "a/x", "a/x/y", "a.b", "z", "z/1", "z/2"]);
    assert_eq!(walk(&fs, Order::Physical), ["", "z", "z/2", "z/1", "a", "a/x", "a/x/y", "a.b"]);
    let mut walk = paths.walk(fs.root(), Order::Sorted);
    let mut kept = Vec::new();
    while let Some(walked) = walk.next() {
        let walked = walked.unwrap();
        if walked.name() == b"a" {
            walk.skip_children();
        }
        kept.push(walked.depth);
    }
    assert_eq!(kept, [0, 1, 1, 1, 2, 2]);
}

#[test]
fn a_large_directory_is_walked_in_batches() {
    let fs = Model::new();
    for number in 0..10_000 {
        fs.create(fs.root(), format!("{number}").as_bytes(), &NEW).unwrap();
    }
    let walked = walk(&fs, Order::Physical);
    assert_eq!(walked.len(), 10_001);
    assert_eq!(walked[4097..4100], ["4096", "4097", "4098"]);
}

#[test]
fn directories_in_a_circle_or_with_two_names_are_damage() {
    let fs = Model::new();
    let top = Paths::new(&fs).create_dir_all(b"a/b", &NEW).unwrap();
    fs.insert_unchecked(top, b"again", fs.root());
    fs.insert_unchecked(top, b"self", top);
    fs.insert_unchecked(fs.root(), b"twin", top);
    let walked = walk(&fs, Order::Sorted);
    assert_eq!(walked.len(), 6);
    for (path, number) in [("a/b/again", 3), ("a/b/self", 4), ("twin", 5)] {
        let shown = &walked[number];
        assert!(shown.starts_with(&format!("{path}: damaged directory tree, inode ")), "{shown}");
    }
}

#[test]
fn names_that_would_lead_astray_are_damage() {
    for name in [&b"a/b"[..], b"/etc/passwd", b"", b"a\0b", &[b'x'; 256]] {
        let fs = Model::new();
        let ino = fs.create(fs.root(), b"fine", &NEW).unwrap();
        fs.insert_unchecked(fs.root(), name, ino);
        let error = Paths::new(&fs).read_dir(b"/").unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        assert_eq!(walk(&fs, Order::Physical).len(), 3, "the others go on");
    }
    let fs = Model::new();
    fs.insert_unchecked(fs.root(), b"gone", Ino(99));
    assert_eq!(walk(&fs, Order::Sorted), ["", "gone: no such file or directory"]);
}

#[test]
fn depth_has_no_limit() {
    const DEPTH: usize = 20_000;
    let fs = Model::new();
    let mut dir = fs.root();
    for _ in 0..DEPTH {
        dir = fs.mkdir(dir, b"d", &NEW).unwrap();
    }
    for order in [Order::Sorted, Order::Physical] {
        let (mut walk, mut depth) = (Paths::new(&fs).walk(fs.root(), order), 0);
        while let Some(visit) = walk.advance() {
            assert_eq!(visit.unwrap().depth, depth);
            depth += 1;
        }
        assert_eq!(depth, DEPTH + 1);
    }
    Paths::new(&fs).remove_all(b"d", None, &mut || ()).unwrap();
    assert!(Paths::new(&fs).read_dir(b"/").unwrap().is_empty());
    let mut guard = DirectoryGuard::default();
    guard.enter(Ino(1)).unwrap();
    assert!(guard.enter(Ino(1)).is_err());
}

#[test]
fn paths_split_before_the_last_name() {
    assert_eq!(split_last(b"/a/b//"), Some((&b"/a/"[..], &b"b"[..])));
    assert_eq!(split_last(b"a"), Some((&b""[..], &b"a"[..])));
    for path in ["", "/", "//", "a/..", "."] {
        assert_eq!(split_last(path.as_bytes()), None, "{path}");
    }
}
