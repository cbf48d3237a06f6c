//! Visibility of waiting files, and operations on them.

use std::collections::BTreeSet;

use vfs::{Attributes, Error, NewInode, RenameMode, SetAttributes};

use super::{SOON, WaitingTrial, entries, later, name};
use crate::trial::NEW;

/// Waiting files are found, have attributes, can be opened, and are listed.
///
/// # Panics
/// If that is violated.
pub fn seen(trial: &WaitingTrial<'_>) {
    let opened = trial.filled();
    let (fs, dir) = (opened.fs(), opened.dir);
    assert_eq!(opened.waiting(), 100);
    let ino = opened.ino(250);
    let Attributes { permissions, links, size, uid, mtime, .. } = fs.attributes(ino).unwrap();
    assert_eq!((permissions, links, size, uid, mtime), (0o755, 1, 0, 1, NEW.time));
    assert!(matches!(fs.create(dir, &name(250), &NEW), Err(Error::Exists)));
    assert!(matches!(fs.create(dir, &name(50), &NEW), Err(Error::Exists)));
    assert!(matches!(fs.lookup(dir, b"another"), Err(Error::NotFound)));
    fs.open(ino).unwrap();
    fs.close(ino).unwrap();
    assert_eq!(opened.waiting(), 100);
    let all = opened.entries();
    assert_eq!((all.len(), opened.waiting()), (300, 0));
    assert!(all.iter().any(|(found, of)| *found == name(250) && *of == ino));
    trial.close(opened);
}

/// Free inodes and times of directories include waiting files. `free_is_exact`: the number of free inodes is the
/// maximum that can be created.
///
/// # Panics
/// If that is violated.
pub fn counts(trial: &WaitingTrial<'_>, free_is_exact: bool) {
    let opened = trial.filled();
    let (fs, dir) = (opened.fs(), opened.dir);
    let before = fs.statfs().unwrap().inodes_free;
    let new = NewInode { parent_time: later(9), ..NEW };
    fs.create(dir, b"one more", &new).unwrap();
    assert_eq!(opened.waiting(), 101);
    for _ in 0..2 {
        let free = fs.statfs().unwrap().inodes_free;
        assert!(!free_is_exact || free == before - 1, "{free} of {before} are free");
        assert_eq!(Some(fs.attributes(dir).unwrap().mtime), later(9));
        fs.sync().unwrap();
    }
    trial.close(opened);
}

/// An operation on one file applies that file; an operation on the directory applies all.
///
/// # Panics
/// If that is violated.
pub fn one_file(trial: &WaitingTrial<'_>) {
    let opened = trial.filled();
    let (fs, dir) = (opened.fs(), opened.dir);
    let ino = |number| opened.ino(number);
    fs.write(ino(210), 0, b"contents", None).unwrap();
    assert_eq!(opened.waiting(), 99);
    let change = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    fs.set_attributes(ino(211), &change).unwrap();
    assert_eq!(opened.waiting(), 98);
    fs.set_xattr(ino(212), b"user.a", b"b").unwrap();
    assert_eq!(opened.waiting(), 97);
    fs.link(ino(213), fs.root(), b"linked", None).unwrap();
    assert_eq!(opened.waiting(), 96);
    assert_eq!(fs.read(ino(215), 0, &mut [0; 10]).unwrap(), 0);
    assert!(!fs.read_in_place(ino(216), 0, 10, &mut |_| ()).unwrap());
    assert_eq!(opened.waiting(), 94);
    fs.unlink(dir, &name(214), None).unwrap();
    assert_eq!(opened.waiting(), 0);
    assert!(!opened.has(214));
    assert_eq!(opened.entries().len(), 299);
    trial.close(opened);
}

/// The number of waiting files is limited.
///
/// # Panics
/// If it exceeds the limit.
pub fn few_at_a_time(trial: &WaitingTrial<'_>) {
    let opened = trial.filled_with(SOON);
    let mut most = 0;
    for number in 300..1500 {
        opened.create(number);
        most = most.max(opened.waiting());
    }
    assert!((SOON.files_max / 2..=SOON.files_max).contains(&most), "{}: {most} waited", trial.name);
    assert!((0..1500).all(|number| opened.has(number)));
    assert_eq!(opened.entries().len(), 1500);
    trial.close(opened);
}

/// The time of a waiting file does not overwrite that of a later change without directory times.
///
/// # Panics
/// If the times of a directory are not those of its last change.
pub fn times(trial: &WaitingTrial<'_>) {
    let opened = trial.filled();
    let (fs, dir) = (opened.fs(), opened.dir);
    let times = || fs.attributes(dir).map(|a| (Some(a.mtime), Some(a.ctime))).unwrap();
    let create = |name: &[u8], parent_time| {
        let before = opened.waiting();
        fs.create(dir, name, &NewInode { parent_time, ..NEW }).unwrap();
        assert_eq!(opened.waiting(), before + 1);
    };
    create(b"first", later(9));
    create(b"second", None);
    assert_eq!(times(), (later(9), later(9)));
    fs.unlink(dir, b"first", later(10)).unwrap();
    create(b"third", None);
    assert_eq!(times(), (later(10), later(10)));
    fs.sync().unwrap();
    assert_eq!(times(), (later(10), later(10)));
    // One is applied before earlier ones.
    create(b"fourth", later(11));
    create(b"fifth", later(12));
    create(b"sixth", None);
    fs.write(fs.lookup(dir, b"sixth").unwrap(), 0, b"x", later(20)).unwrap();
    assert_eq!(times(), (later(12), later(12)));
    let change = SetAttributes { mtime: later(2), ..SetAttributes::default() };
    fs.set_attributes(dir, &change).unwrap();
    create(b"seventh", None);
    assert_eq!(times().0, later(2));
    fs.sync().unwrap();
    assert_eq!(times().0, later(2));
    trial.close(opened);
}

/// A directory without entries on disk is not empty if a file waits in it.
///
/// # Panics
/// If it can be removed.
pub fn not_empty(trial: &WaitingTrial<'_>) {
    let opened = trial.filled();
    let (fs, dir, root) = (opened.fs(), opened.dir, opened.fs().root());
    // The last freed entry leaves its block to the following names.
    (1..300).chain([0]).for_each(|number| fs.unlink(dir, &name(number), None).unwrap());
    fs.create(dir, b"one", &NEW).unwrap();
    assert!(matches!(fs.rmdir(root, b"d", None), Err(Error::NotEmpty)));
    fs.mkdir(root, b"e", &NEW).unwrap();
    let over = fs.rename((root, b"e"), (root, b"d"), RenameMode::Replace, None);
    assert!(matches!(over, Err(Error::NotEmpty)));
    fs.unlink(dir, b"one", None).unwrap();
    fs.rmdir(root, b"d", None).unwrap();
    trial.close(opened);
}

/// Names added to a directory while it was too small for waiting files are known when it is large again.
///
/// # Panics
/// If a name can be created twice.
pub fn shrunk(trial: &WaitingTrial<'_>) {
    let opened = trial.filled();
    let (fs, dir) = (opened.fs(), opened.dir);
    for shift in [1_000, 2_000] {
        (0..300).for_each(|number| fs.unlink(dir, &name(number), None).unwrap());
        (shift..shift + 4).for_each(|number| opened.create(number));
        (0..300).for_each(|number| opened.create(number));
        for number in shift..shift + 4 {
            let again = fs.create(dir, &name(number), &NEW);
            assert!(matches!(again, Err(Error::Exists)), "{}: {number}: {again:?}", trial.name);
        }
    }
    assert_eq!(opened.entries().len(), 308);
    trial.close(opened);
}

/// A reserved inode is never allocated twice, and all inodes can be used.
///
/// # Panics
/// If one is allocated twice.
pub fn inodes_once(trial: &WaitingTrial<'_>) {
    let opened = trial.filled();
    let (fs, dir) = (opened.fs(), opened.dir);
    let mut inodes: BTreeSet<_> = opened.entries().into_iter().map(|(_, ino)| ino).collect();
    for number in 300.. {
        let made = match number % 3 {
            0 => fs.symlink(fs.root(), &name(number), b"x", &NEW),
            _ => fs.create(dir, &name(number), &NEW),
        };
        match made {
            Ok(ino) => assert!(inodes.insert(ino), "{ino} twice"),
            Err(Error::NoInodes | Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(inodes.len() > 1000, "{} files", inodes.len());
    let mut listed = entries(fs, fs.root());
    listed.extend(opened.entries());
    listed.retain(|(_, ino)| inodes.contains(ino));
    assert_eq!(listed.len(), inodes.len());
    trial.close(opened);
}

/// Files that waited in a directory do not overwrite the time of its move.
///
/// # Panics
/// If they do.
pub fn moves(trial: &WaitingTrial<'_>) {
    let opened = trial.filled();
    let (fs, dir, root) = (opened.fs(), opened.dir, opened.fs().root());
    fs.rename((root, b"d"), (root, b"e"), RenameMode::NoReplace, later(9)).unwrap();
    let times = || fs.attributes(dir).map(|a| (a.mtime, Some(a.ctime))).unwrap();
    assert_eq!(times(), (NEW.time, later(9)));
    opened.create(300);
    fs.mkdir(root, b"d", &NEW).unwrap();
    fs.rename((root, b"d"), (root, b"e"), RenameMode::Exchange, later(10)).unwrap();
    assert_eq!(times(), (NEW.time, later(10)));
    fs.sync().unwrap();
    assert_eq!(times(), (NEW.time, later(10)));
    trial.close(opened);
}
