//! The reference model's own behaviour, where it is not obvious.

use std::ops::ControlFlow;

use vfs::{AllocateMode, Cookie, Error, ExtentPlace, FileSystem, NewInode};
use workload::model::Model;

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
    fs.write(ino, 8190, b"abcd").unwrap();
    fs.allocate(ino, 16384, 100, AllocateMode::Unwritten).unwrap();
    fs.truncate(ino, 30000).unwrap();
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
    fs.write(ino, 0, b"secret").unwrap();
    fs.truncate(ino, 2).unwrap();
    fs.truncate(ino, 6).unwrap();
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
