//! Files that wait, and what makes only contents durable.

use oracle::require;
use vfs::{FileSystem, SetAttributes, Timestamp};

use super::{ALL, after_crash, close, filled, name};
use crate::names::common::entries;

#[test]
fn a_datasync_of_a_file_that_waits_makes_its_name_durable() {
    require!(Tool("e2fsck"));
    for is_of_the_directory in [false, true] {
        let (device, fs, dir) = filled(ALL);
        assert_eq!(fs.files_waiting(), 100);
        let ino = fs.lookup(dir, &name(222)).unwrap();
        fs.open(ino).unwrap();
        fs.fdatasync(if is_of_the_directory { dir } else { ino }).unwrap();
        assert_eq!(fs.files_waiting(), 0);
        let (crashed, recovered, found) = after_crash(&device);
        assert_eq!(entries(&recovered, found).len(), 300);
        close(&crashed, recovered);
        FileSystem::close(&fs, ino).unwrap();
        close(&device, fs);
    }
}

#[test]
fn times_stay_behind_after_a_datasync_and_not_after_a_sync() {
    require!(Tool("e2fsck"));
    let (device, fs, dir) = filled(ALL);
    fs.sync().unwrap();
    let ino = fs.lookup(dir, &name(222)).unwrap();
    let before = fs.attributes(ino).unwrap().mtime;
    let later = Timestamp { sec: before.sec + 100, nsec: 0 };
    fs.set_attributes(ino, &SetAttributes { mtime: Some(later), ..Default::default() }).unwrap();
    for (is_full, expected) in [(false, before), (true, later)] {
        if is_full {
            fs.fsync(ino).unwrap();
        } else {
            fs.fdatasync(ino).unwrap();
        }
        let (crashed, recovered, _) = after_crash(&device);
        assert_eq!(recovered.attributes(ino).unwrap().mtime, expected);
        close(&crashed, recovered);
    }
    close(&device, fs);
}
