//! What every format must do with names, in one thread and in many.

use crate::changing;

use std::sync::Arc;

use changing::{Layout, SMALL_CACHE_BYTES, XfsTarget};
use oracle::require;
use vfs::{Error, FileSystem, Ino, NewInode};
use workload::trial::{many_threads, no_circle, refusals, taken, unnamed};
use xfs::Xfs;

#[test]
fn what_fails_leaves_no_trace() {
    require!(Tool("xfs_repair"));
    for layout in [Layout::DEFAULT, Layout::PLAIN] {
        refusals(&XfsTarget::new(layout).trial());
    }
}

#[test]
fn a_taken_name_comes_before_a_full_file_system() {
    require!(Tool("xfs_repair"));
    for layout in [Layout::DEFAULT, Layout::PLAIN, Layout::SMALL_BLOCKS, Layout::BUFFERED] {
        taken(&XfsTarget::new(layout).trial());
    }
}

#[test]
fn a_file_without_a_name_gets_one() {
    require!(Tool("xfs_repair"));
    for layout in [Layout::DEFAULT, Layout::PLAIN] {
        unnamed(&XfsTarget::new(layout).trial());
    }
}

#[test]
fn threads_on_the_same_directories() {
    require!(Tool("xfs_repair"));
    for layout in [Layout::SMALL_BLOCKS, Layout::MANY_GROUPS] {
        many_threads(&XfsTarget::new(layout).trial(), true);
    }
}

#[test]
fn threads_on_directories_of_their_own() {
    require!(Tool("xfs_repair"));
    many_threads(&XfsTarget::new(Layout::MANY_GROUPS).trial(), false);
}

#[test]
fn no_circle_is_made() {
    require!(Tool("xfs_repair"));
    no_circle(&XfsTarget::new(Layout::DEFAULT).trial());
}

/// Every number that there could be is that of an inode in use, or of none, whatever lies there.
#[test]
fn numbers_of_no_inode_are_not_found() {
    for layout in [Layout::DEFAULT, Layout::PLAIN, Layout::SMALL_BLOCKS] {
        let fs = Xfs::open_fresh(Arc::new(layout.make()), SMALL_CACHE_BYTES).unwrap();
        let mut made = vec![fs.root()];
        for number in 0..200 {
            let name = format!("file {number}").into_bytes();
            let ino = fs.create(fs.root(), &name, &NewInode::default()).unwrap();
            fs.write(ino, 0, &[b'I'; 9_000]).unwrap();
            made.push(ino);
        }
        // Whole chunks go.
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
        // Beside the root, mkfs makes the inodes of the realtime device.
        made.extend([Ino(fs.root().0 + 1), Ino(fs.root().0 + 2)]);
        made.sort_unstable();
        assert_eq!(found, made);
        fs.finish(None).unwrap();
    }
}
