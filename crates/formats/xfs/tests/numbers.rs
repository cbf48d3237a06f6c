//! Unused inode numbers.

use crate::changing;

use std::sync::Arc;

use changing::{SMALL_CACHE_BYTES, TargetLayout};
use vfs::{Error, FileSystem, Ino, NewInode};
use xfs::Xfs;

/// Every possible number is that of an inode in use or not found, whatever its slot contains.
#[test]
fn numbers_of_no_inode_are_not_found() {
    for layout in [TargetLayout::DEFAULT, TargetLayout::PLAIN, TargetLayout::SMALL_BLOCKS] {
        let fs = Xfs::open_in_progress(Arc::new(layout.make()), SMALL_CACHE_BYTES).unwrap();
        let mut made = vec![fs.root()];
        for number in 0..200 {
            let name = format!("file {number}").into_bytes();
            let ino = fs.create(fs.root(), &name, &NewInode::default()).unwrap();
            fs.write(ino, 0, &[b'I'; 9_000], None).unwrap();
            made.push(ino);
        }
        // Free whole chunks.
        for (number, ino) in made.drain(60..).enumerate() {
            fs.unlink(fs.root(), format!("file {}", number + 59).as_bytes(), None).unwrap();
            assert!(matches!(fs.attributes(ino), Err(Error::NotFound)));
        }
        let mut found = Vec::new();
        for ino in (0..1 << 17).map(Ino) {
            match fs.attributes(ino) {
                Ok(_) => found.push(ino),
                Err(Error::NotFound) => {}
                Err(error) => panic!("{ino}: {error}"),
            }
        }
        // In addition to the root, mkfs makes the inodes of the realtime device.
        made.extend([Ino(fs.root().0 + 1), Ino(fs.root().0 + 2)]);
        made.sort_unstable();
        assert_eq!(found, made);
        fs.finish(None).unwrap();
    }
}
