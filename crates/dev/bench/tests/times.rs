//! Times that come with a change of contents, in the model and in both formats alike.

use testkit::model::Model;
use vfs::{FileSystem, Ino, NewInode, Timestamp};

use crate::common::{ext4, xfs};

const MIB: usize = 1 << 20;

fn at(sec: i64) -> Timestamp {
    Timestamp { sec, nsec: 0 }
}

/// Seconds of a file's `mtime` and `ctime`, which must be the same.
#[track_caller]
fn changed_at(fs: &dyn FileSystem, file: Ino) -> i64 {
    let attributes = fs.attributes(file).unwrap();
    assert_eq!(attributes.mtime, attributes.ctime);
    attributes.mtime.sec
}

#[test]
fn contents_change_at_the_time_given() {
    let all: [Box<dyn FileSystem>; 3] = [Box::new(Model::new()), Box::new(ext4()), Box::new(xfs())];
    for fs in &all {
        let fs = &**fs;
        let new = NewInode { permissions: 0o644, time: at(1), ..NewInode::default() };
        let file = fs.create(fs.root(), b"file", &new).unwrap();
        assert_eq!(changed_at(fs, file), 1);
        fs.write(file, 0, &[1; 5000], Some(at(2))).unwrap();
        assert_eq!(changed_at(fs, file), 2, "writing");
        fs.write(file, 0, &[2; 5000], Some(at(3))).unwrap();
        assert_eq!(changed_at(fs, file), 3, "writing over");
        fs.write(file, 0, &[3; 5000], None).unwrap();
        fs.truncate(file, 4000, None).unwrap();
        assert_eq!(changed_at(fs, file), 3, "no time is given");
        // More than one operation writes, of which the last one may change nothing but the inode.
        fs.write(file, 0, &vec![4; 20 * MIB], Some(at(4))).unwrap();
        assert_eq!(changed_at(fs, file), 4, "several pieces");
        fs.write(file, 0, &vec![5; 20 * MIB], Some(at(5))).unwrap();
        assert_eq!(changed_at(fs, file), 5, "several pieces over others");
        fs.truncate(file, 100, Some(at(6))).unwrap();
        assert_eq!(changed_at(fs, file), 6, "cutting");
        fs.truncate(file, 30 << 20, Some(at(7))).unwrap();
        assert_eq!(changed_at(fs, file), 7, "growing");
        fs.truncate(file, 30 << 20, Some(at(8))).unwrap();
        assert_eq!(changed_at(fs, file), 8, "the size that it has");
        let mut start = [0; 100];
        fs.read(file, 0, &mut start).unwrap();
        assert_eq!(start, [5; 100]);
    }
}
