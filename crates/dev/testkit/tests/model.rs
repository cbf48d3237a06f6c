//! Behaviour of the reference model that is not obvious.

use std::ops::ControlFlow;

use testkit::model::Model;
use vfs::{AllocateMode, Cookie, Error, ExtentPlace, FileSystem, NewInode, RenameMode, Timestamp};

const NEW: NewInode = NewInode {
    permissions: 0o644,
    uid: 0,
    gid: 0,
    time: vfs::Timestamp { sec: 1, nsec: 0 },
    parent_time: Some(vfs::Timestamp { sec: 1, nsec: 0 }),
};

fn extents(fs: &Model, ino: vfs::Ino) -> Vec<(u64, u64, char)> {
    let mut found = Vec::new();
    fs.extent_map(ino, 0, u64::MAX, &mut |extent| {
        let place = match extent.place {
            ExtentPlace::Device(_) => 'd',
            ExtentPlace::Unwritten(_) => 'u',
            ExtentPlace::Hole => 'h',
            ExtentPlace::Inline => 'i',
        };
        found.push((extent.offset, extent.len, place));
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

#[test]
fn holes_and_unwritten_space_are_told_apart_and_read_as_zeros() {
    let fs = Model::new();
    let ino = fs.create(fs.root(), b"f", &NEW).unwrap();
    fs.write(ino, 8190, b"abcd", None).unwrap();
    fs.allocate(ino, 16384, 100, AllocateMode::Unwritten).unwrap();
    fs.truncate(ino, 30000, None).unwrap();
    let expected = [
        (0, 4096, 'h'),
        (4096, 4096, 'd'),
        (8192, 4096, 'd'),
        (12288, 4096, 'h'),
        (16384, 4096, 'u'),
        (20480, 9520, 'h'),
    ];
    assert_eq!(extents(&fs, ino), expected);
    let mut buf = [9; 8];
    assert_eq!(fs.read(ino, 8188, &mut buf).unwrap(), 8);
    assert_eq!(&buf, b"\0\0abcd\0\0");
    assert_eq!(fs.read(ino, 29999, &mut buf).unwrap(), 1);
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let fs = Model::new();
    let ino = fs.create(fs.root(), b"f", &NEW).unwrap();
    fs.write(ino, 0, b"secret", None).unwrap();
    fs.truncate(ino, 2, None).unwrap();
    fs.truncate(ino, 6, None).unwrap();
    let mut buf = [9; 6];
    fs.read(ino, 0, &mut buf).unwrap();
    assert_eq!(&buf, b"se\0\0\0\0");
}

#[test]
fn listings_go_on_where_they_stopped_and_links_count() {
    let fs = Model::new();
    let root = fs.root();
    let dir = fs.mkdir(root, b"d", &NEW).unwrap();
    let file = fs.create(root, b"f", &NEW).unwrap();
    fs.link(file, dir, b"g", None).unwrap();
    assert_eq!(fs.attributes(file).unwrap().links, 2);
    assert_eq!(fs.attributes(root).unwrap().links, 3);
    assert!(matches!(fs.link(dir, root, b"x", None), Err(Error::IsADirectory)));
    assert!(matches!(fs.create(root, b"d", &NEW), Err(Error::Exists)));
    let (mut names, mut from) = (Vec::new(), Some(Cookie(0)));
    while let Some(cookie) = from.take() {
        fs.readdir(root, cookie, &mut |entry| {
            names.push(entry.name.to_vec());
            from = Some(entry.next);
            ControlFlow::Break(())
        })
        .unwrap();
    }
    assert_eq!(names, [&b"."[..], b"..", b"d", b"f"]);
}

fn at(sec: i64) -> Option<Timestamp> {
    Some(Timestamp { sec, nsec: 5 })
}

#[test]
fn an_open_file_outlives_its_last_name() {
    let fs = Model::new();
    let root = fs.root();
    let file = fs.create(root, b"f", &NEW).unwrap();
    fs.open(file).unwrap();
    fs.open(file).unwrap();
    fs.unlink(root, b"f", at(7)).unwrap();
    let attributes = fs.attributes(file).unwrap();
    assert_eq!((attributes.links, attributes.ctime), (0, at(7).unwrap()));
    assert_eq!(fs.attributes(root).unwrap().mtime, at(7).unwrap());
    fs.write(file, 0, b"still here", None).unwrap();
    fs.close(file).unwrap();
    fs.fsync(file).unwrap();
    fs.close(file).unwrap();
    assert!(matches!(fs.attributes(file), Err(Error::NotFound)));
    assert!(matches!(fs.open(file), Err(Error::NotFound)));
    assert!(matches!(fs.fsync(file), Err(Error::NotFound)));
}

#[test]
fn a_file_without_a_name_can_get_one() {
    let fs = Model::new();
    let root = fs.root();
    let kept = fs.create_unlinked(root, &NEW).unwrap();
    let lost = fs.create_unlinked(root, &NEW).unwrap();
    assert_eq!(fs.attributes(kept).unwrap().links, 0);
    fs.link(kept, root, b"kept", at(3)).unwrap();
    fs.close(kept).unwrap();
    fs.close(lost).unwrap();
    assert_eq!(fs.lookup(root, b"kept").unwrap(), kept);
    assert_eq!(fs.attributes(kept).unwrap().links, 1);
    assert_eq!(fs.inode_count(), 2);
    assert!(matches!(fs.close(kept), Err(Error::Invalid(_))));
}

#[test]
fn directories_go_when_they_are_empty() {
    let fs = Model::new();
    let root = fs.root();
    let dir = fs.mkdir(root, b"d", &NEW).unwrap();
    let file = fs.create(dir, b"f", &NEW).unwrap();
    assert!(matches!(fs.rmdir(root, b"d", None), Err(Error::NotEmpty)));
    assert!(matches!(fs.unlink(root, b"d", None), Err(Error::IsADirectory)));
    assert!(matches!(fs.rmdir(dir, b"f", None), Err(Error::NotADirectory)));
    assert!(matches!(fs.rmdir(dir, b"..", None), Err(Error::Invalid(_))));
    assert!(matches!(fs.unlink(dir, b"g", None), Err(Error::NotFound)));
    fs.unlink(dir, b"f", None).unwrap();
    assert!(matches!(fs.attributes(file), Err(Error::NotFound)));
    fs.open(dir).unwrap();
    fs.rmdir(root, b"d", None).unwrap();
    assert_eq!(fs.attributes(root).unwrap().links, 2);
    assert!(matches!(fs.create(dir, b"x", &NEW), Err(Error::NotFound)));
    fs.close(dir).unwrap();
    assert_eq!(fs.inode_count(), 1);
}

#[test]
fn rename_replaces_what_is_of_the_same_kind() {
    let fs = Model::new();
    let root = fs.root();
    let a = fs.mkdir(root, b"a", &NEW).unwrap();
    let b = fs.mkdir(root, b"b", &NEW).unwrap();
    let below = fs.mkdir(a, b"below", &NEW).unwrap();
    let file = fs.create(root, b"file", &NEW).unwrap();
    let rename = |from, to, mode| fs.rename(from, to, mode, at(9));
    let replace = RenameMode::Replace;
    assert!(matches!(rename((root, b"a"), (below, b"x"), replace), Err(Error::Invalid(_))));
    assert!(matches!(rename((root, b"a"), (a, b"x"), replace), Err(Error::Invalid(_))));
    assert!(matches!(rename((root, b"b"), (root, b"a"), replace), Err(Error::NotEmpty)));
    assert!(matches!(rename((root, b"b"), (root, b"file"), replace), Err(Error::NotADirectory)));
    assert!(matches!(rename((root, b"file"), (root, b"b"), replace), Err(Error::IsADirectory)));
    assert!(matches!(rename((root, b"none"), (root, b"b"), replace), Err(Error::NotFound)));
    let taken = rename((root, b"a"), (root, b"b"), RenameMode::NoReplace);
    assert!(matches!(taken, Err(Error::Exists)));
    rename((root, b"a"), (root, b"b"), replace).unwrap();
    assert!(matches!(fs.attributes(b), Err(Error::NotFound)));
    assert_eq!(fs.lookup(root, b"b").unwrap(), a);
    assert_eq!(fs.attributes(root).unwrap().links, 3);
    rename((root, b"file"), (below, b"file"), RenameMode::NoReplace).unwrap();
    assert_eq!(fs.lookup(below, b"file").unwrap(), file);
    assert_eq!(fs.attributes(file).unwrap().ctime, at(9).unwrap());
    rename((a, b"below"), (root, b"top"), replace).unwrap();
    assert_eq!(fs.lookup(below, b"..").unwrap(), root);
    assert_eq!((fs.attributes(a).unwrap().links, fs.attributes(root).unwrap().links), (2, 4));
}

#[test]
fn rename_exchanges_two_names_and_leaves_two_names_of_one_file() {
    let fs = Model::new();
    let root = fs.root();
    let dir = fs.mkdir(root, b"dir", &NEW).unwrap();
    let inner = fs.mkdir(dir, b"inner", &NEW).unwrap();
    let file = fs.create(root, b"file", &NEW).unwrap();
    let exchange = |from, to| fs.rename(from, to, RenameMode::Exchange, at(4));
    assert!(matches!(exchange((root, b"file"), (root, b"none")), Err(Error::NotFound)));
    assert!(matches!(exchange((root, b"dir"), (dir, b"inner")), Err(Error::Invalid(_))));
    assert!(matches!(exchange((dir, b"inner"), (root, b"dir")), Err(Error::Invalid(_))));
    exchange((root, b"file"), (dir, b"inner")).unwrap();
    assert_eq!(fs.lookup(root, b"file").unwrap(), inner);
    assert_eq!(fs.lookup(dir, b"inner").unwrap(), file);
    assert_eq!(fs.lookup(inner, b"..").unwrap(), root);
    assert_eq!((fs.attributes(dir).unwrap().links, fs.attributes(root).unwrap().links), (2, 4));
    fs.link(file, root, b"other", None).unwrap();
    fs.rename((root, b"other"), (dir, b"inner"), RenameMode::Replace, at(8)).unwrap();
    assert_eq!(fs.lookup(root, b"other").unwrap(), file);
    assert_eq!(fs.attributes(file).unwrap().ctime, at(4).unwrap());
}

#[test]
fn allocation_keeps_grows_punches_and_zeroes() {
    let fs = Model::new();
    let ino = fs.create(fs.root(), b"f", &NEW).unwrap();
    let size = || fs.attributes(ino).unwrap().size;
    let allocate = |offset, len, mode| fs.allocate(ino, offset, len, mode).unwrap();
    fs.write(ino, 0, &[7; 16384], None).unwrap();
    allocate(20480, 4096, AllocateMode::UnwrittenKeepSize);
    assert_eq!(size(), 16384);
    fs.truncate(ino, 24576, None).unwrap();
    assert_eq!(extents(&fs, ino)[4..], [(16384, 4096, 'h'), (20480, 4096, 'u')]);
    allocate(4000, 8192, AllocateMode::PunchHole);
    assert_eq!(extents(&fs, ino)[1..3], [(4096, 4096, 'h'), (8192, 4096, 'd')]);
    let mut all = [9; 16384];
    fs.read(ino, 0, &mut all).unwrap();
    assert!(all[4000..12192].iter().all(|&byte| byte == 0));
    assert!(all[..4000].iter().chain(&all[12192..]).all(|&byte| byte == 7));
    allocate(12288, 4097, AllocateMode::ZeroKeepSize);
    assert_eq!(extents(&fs, ino)[3..5], [(12288, 4096, 'u'), (16384, 4096, 'u')]);
    assert_eq!(size(), 24576);
    allocate(24000, 10000, AllocateMode::Zero);
    assert_eq!(size(), 34000);
    allocate(0, u64::MAX, AllocateMode::PunchHole);
    assert_eq!(extents(&fs, ino), [(0, 34000, 'h')]);
    assert!(matches!(fs.allocate(ino, 0, 0, AllocateMode::Zero), Err(Error::Invalid(_))));
    fs.set_xattr(ino, b"user.a", b"1").unwrap();
    fs.remove_xattr(ino, b"user.a").unwrap();
    assert!(matches!(fs.remove_xattr(ino, b"user.a"), Err(Error::NoAttribute)));
}
