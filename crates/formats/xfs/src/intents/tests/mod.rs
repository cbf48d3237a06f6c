//! Changes that a crash interrupted, with intents in the log. Recovery here and by the kernel must give the same
//! result.

mod attributes;
mod exchange;
mod extents;

use operations::Outcome;
use operations::RunOperations;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::FileDevice;
use rustix::fs::{FallocateFlags, fallocate, ioctl_ficlone};
use testkit::{
    Ignore, KernelMount, MkfsXfs, MountOptions, Tree, assert_same, copy_image,
    populate_with_kernel, xfs_db_write, xfs_repair,
};
use vfs::{FileSystem, Ino, Result};

use crate::Xfs;
use crate::format::address::FileBlock;
use crate::format::inode::Fork;
use crate::format::log::intent::Intent;
use crate::fs::OpenOptions;
use crate::inode::Handle;
use crate::map::{self, Extent, Place};
use crate::op::Op;

const BLOCK: u64 = 4096;

/// Returns a unique intent id, like an address in a kernel.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0xffff_8880_0000_1000);
    NEXT.fetch_add(192, Ordering::Relaxed)
}

/// An image filled by the kernel, opened writable.
struct Crash {
    fs: Xfs,
    path: PathBuf,
    home: tempfile::TempDir,
}

fn open(path: &Path) -> Result<Xfs> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Xfs::open_writable(Arc::new(FileDevice::new(file).unwrap()), &OpenOptions::default())
}

/// Returns the tree of an image after the kernel recovered it, which must be sound.
fn by_kernel(path: &Path) -> Tree {
    let mount = KernelMount::new(path, &MountOptions::read_write("xfs"));
    mount.unmount();
    xfs_repair(path);
    tree(path)
}

fn tree(path: &Path) -> Tree {
    let mount = KernelMount::new(path, &MountOptions::read_only("xfs"));
    let tree = Tree::of(mount.path());
    mount.unmount();
    tree
}

impl Crash {
    fn new(options: &str, fill: impl FnOnce(&Path)) -> Self {
        let home = testkit::scratch();
        let path = home.path().join("image");
        MkfsXfs::default().options(options).create(&path, 320 << 20);
        populate_with_kernel(&path, "xfs", fill);
        Self::open(path, home)
    }

    /// Like [`Crash::new`], with the superblock flag for logged attribute changes.
    fn with_logged_attributes(options: &str, fill: impl FnOnce(&Path)) -> Self {
        let home = testkit::scratch();
        let path = home.path().join("image");
        MkfsXfs::default().options(options).create(&path, 320 << 20);
        populate_with_kernel(&path, "xfs", fill);
        xfs_db_write(&path, &["sb 0", "write features_log_incompat 1"]);
        Self::open(path, home)
    }

    fn open(path: PathBuf, home: tempfile::TempDir) -> Self {
        Self { fs: open(&path).unwrap(), path, home }
    }

    fn ino(&self, name: &str) -> Ino {
        self.fs.lookup(self.fs.root_ino(), name.as_bytes()).unwrap()
    }

    fn handle(&self, name: &str) -> Handle {
        self.fs.load(self.ino(name)).unwrap()
    }

    /// Returns the extent of a file from a logical block on.
    fn extent(&self, name: &str, at: u64, len: u64) -> Extent {
        let handle = self.handle(name);
        let run = map::run_at(&mut &*self.fs, &handle, Fork::Data, FileBlock(at)).unwrap();
        assert!(run.len >= len, "{run:?}");
        let (start, unwritten) = match run.place {
            Place::Written(start) => (start, false),
            Place::Unwritten(start) => (start, true),
            Place::Hole => panic!("a hole in {name} at {at}"),
        };
        Extent { offset: FileBlock(at), start, len, unwritten }
    }

    fn copy(&self, name: &str) -> PathBuf {
        let path = self.home.path().join(name);
        copy_image(&self.path, &path);
        path
    }

    /// Does half of a change and logs intents for the rest, both by `half`. The image then has the state after a crash.
    fn crash(&self, half: impl Fn(&mut Op<'_>) -> Outcome<Vec<Intent>>) -> Vec<Intent> {
        let announce = |intents: &Vec<Intent>| {
            let log = self.fs.log.as_ref().unwrap();
            intents.iter().flat_map(|i| &i.regions).for_each(|r| log.add_done(r.clone()));
            Ok(())
        };
        let intents = self.fs.atomically_then(half, announce).unwrap();
        self.fs.engine.checkpoint().unwrap();
        intents
    }

    /// Like [`Crash::crash`], and crashes again when the first intent is finished, and when all are. Compares recovery
    /// by the kernel and by this implementation.
    fn judge(self, half: impl Fn(&mut Op<'_>) -> Outcome<Vec<Intent>>) {
        let mut intents = super::in_order(self.crash(half));
        let count = intents.len() as u64;
        let mut crashes = vec![(self.copy("announced"), count)];
        let rest = intents.split_off(1);
        self.fs.finish_intents(intents).unwrap();
        self.fs.engine.checkpoint().unwrap();
        crashes.push((self.copy("begun"), count - 1));
        self.fs.finish_intents(rest).unwrap();
        self.fs.free_staged().unwrap();
        self.fs.engine.checkpoint().unwrap();
        crashes.push((self.copy("finished"), 0));
        self.fs.close().unwrap();
        xfs_repair(&self.path);
        let ours = tree(&self.path);
        for (path, left) in crashes {
            let copy = path.with_extension("kernel");
            copy_image(&path, &copy);
            assert_same(&by_kernel(&copy), &ours, &Ignore::default());
            let fs = open(&path).unwrap();
            assert_eq!(fs.recovered().intents, left);
            // One more crash, when the log has its previous contents and the done items of all of them.
            fs.engine.checkpoint().unwrap();
            let copy = path.with_extension("recovered");
            copy_image(&path, &copy);
            fs.close().unwrap();
            xfs_repair(&path);
            assert_same(&tree(&path), &ours, &Ignore::default());
            assert_same(&by_kernel(&copy), &ours, &Ignore::default());
        }
    }
}

/// Makes files that share blocks, with one, two or three owners, and one whose map is a tree.
fn fill(root: &Path) {
    let a = File::create(root.join("a")).unwrap();
    a.write_all_at(&vec![7; 300 * BLOCK as usize], 0).unwrap();
    a.sync_all().unwrap();
    let own = File::create(root.join("own")).unwrap();
    own.write_all_at(&vec![5; 300 * BLOCK as usize], 0).unwrap();
    let later = FallocateFlags::KEEP_SIZE;
    fallocate(&own, later, 300 * BLOCK, 100 * BLOCK).unwrap();
    own.sync_all().unwrap();
    File::create(root.join("empty")).unwrap();
    let tree = File::create(root.join("tree")).unwrap();
    tree.write_all_at(&vec![3; 400 * BLOCK as usize], 0).unwrap();
    tree.sync_all().unwrap();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    (1..200).for_each(|at| fallocate(&tree, hole, 2 * at * BLOCK, BLOCK).unwrap());
}

fn fill_shared(root: &Path) {
    fill(root);
    let clone = |name: &str| {
        let file = File::create(root.join(name)).unwrap();
        ioctl_ficlone(&file, File::open(root.join("a")).unwrap()).unwrap();
        file
    };
    clone("b");
    let c = clone("c");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&c, hole, 100 * BLOCK, 50 * BLOCK).unwrap();
}
