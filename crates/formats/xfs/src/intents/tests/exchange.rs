//! Intents to exchange ranges of files.

use operations::RunOperations;
use testkit::require;
use vfs::{Error, Ino};

use super::{Crash, fill, fill_shared, next_id};
use crate::format::address::FileBlock;
use crate::format::inode::{Fork, flags2};
use crate::format::log::intent::{Exchange, ExchangeFile, Intent};
use crate::inode::Handle;
use crate::intents::exchange::Handles;

fn file(handle: &Handle, offset: u64, size: u64) -> ExchangeFile {
    ExchangeFile {
        ino: handle.ino(),
        generation: handle.inode.generation(),
        offset: FileBlock(offset),
        size,
        clear_reflink: false,
    }
}

fn exchange(files: [ExchangeFile; 2], blocks: u64) -> Exchange {
    Exchange { files, blocks, fork: Fork::Data, set_sizes: false, written_only: false }
}

/// Checks an exchange interrupted after a number of steps.
fn judge(crash: Crash, whole: Exchange, steps: usize) {
    let files = whole.files.map(|file| crash.fs.load(file.ino).unwrap());
    crash.judge(|op| {
        let mut left = whole;
        let is_one = files[0].ino() == files[1].ino();
        let mut handles: Handles = files[..if is_one { 1 } else { 2 }].iter().cloned().collect();
        for _ in 0..steps {
            op.exchange_step(&mut handles, &mut left)?;
        }
        for mut handle in handles {
            handle.inode.set_permissions(0o604);
            op.stage(handle);
        }
        Ok(vec![Intent::exchange(next_id(), &left)])
    });
}

#[test]
fn files_exchange_all_they_have() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for options in ["", "-m rmapbt=0,reflink=0"] {
        for steps in [0, 3] {
            let crash = Crash::new(options, fill);
            let (own, tree) = (crash.handle("own"), crash.handle("tree"));
            let sizes = (tree.inode.size(), own.inode.size());
            let files = [file(&own, 0, sizes.0), file(&tree, 0, sizes.1)];
            let whole = Exchange { set_sizes: true, ..exchange(files, 400) };
            judge(crash, whole, steps);
        }
    }
}

#[test]
fn an_exchange_of_many_extents_takes_several_operations() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", |root| {
        fill(root);
        std::fs::rename(root.join("tree"), root.join("one")).unwrap();
        fill(root);
    });
    let (one, tree) = (crash.handle("one"), crash.handle("tree"));
    // Every block is exchanged with a hole.
    let files = [file(&one, 2, 0), file(&tree, 1, 0)];
    judge(crash, exchange(files, 398), 5);
}

#[test]
fn ranges_are_exchanged_where_the_first_file_is_written() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", fill);
    let (own, tree) = (crash.handle("own"), crash.handle("tree"));
    let files = [file(&tree, 20, 0), file(&own, 290, 0)];
    let whole = Exchange { written_only: true, ..exchange(files, 100) };
    judge(crash, whole, 2);
}

#[test]
fn a_file_exchanges_two_of_its_ranges() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", fill);
    let tree = crash.handle("tree");
    judge(crash, exchange([file(&tree, 20, 0), file(&tree, 211, 0)], 61), 1);
}

#[test]
fn files_that_share_blocks_exchange_them() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", fill_shared);
    let (c, mut tree) = (crash.handle("c"), crash.handle("tree"));
    tree.inode.set_flags2(tree.inode.flags2() | flags2::REFLINK);
    crash
        .fs
        .atomically(|op| {
            op.stage(tree.clone());
            Ok(())
        })
        .unwrap();
    // Sizes do not change: kernels that recover an exchange which enlarges a file free the blocks that they have just
    // mapped past its old end.
    let mut files = [file(&c, 0, 0), file(&tree, 0, 0)];
    files[0].clear_reflink = true;
    judge(crash, exchange(files, 300), 7);
}

#[test]
fn work_after_an_exchange_is_a_separate_step() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", fill);
    let (mut own, tree) = (crash.handle("own"), crash.handle("tree"));
    own.inode.set_flags2(own.inode.flags2() | flags2::REFLINK);
    let mut files = [file(&own, 400, 0), file(&tree, 400, 0)];
    files[0].clear_reflink = true;
    crash
        .fs
        .atomically(|op| {
            op.stage(own.clone());
            Ok(())
        })
        .unwrap();
    // Kernels write such intents, but refuse to recover them.
    let intent = Intent::exchange(1, &exchange(files, 0));
    crash.fs.finish_intents(vec![intent]).unwrap();
    assert_eq!(crash.handle("own").inode.flags2() & flags2::REFLINK, 0);
    crash.fs.close().unwrap();
    testkit::xfs_repair(&crash.path);
}

#[test]
fn exchanges_of_other_inodes_are_damage() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", fill);
    let (own, tree) = (crash.handle("own"), crash.handle("tree"));
    let mut absent = file(&own, 0, 0);
    absent.ino = Ino(absent.ino.0 + 40);
    let mut stale = file(&own, 0, 0);
    stale.generation ^= 1;
    for wrong in [absent, stale] {
        for files in [[wrong, file(&tree, 0, 0)], [file(&tree, 0, 0), wrong]] {
            let intent = Intent::exchange(1, &exchange(files, 10));
            let outcome = crash.fs.finish_intents(vec![intent]);
            assert!(matches!(outcome, Err(Error::Corrupt(_))), "{outcome:?}");
        }
    }
    crash.fs.close().unwrap();
    testkit::xfs_repair(&crash.path);
}
