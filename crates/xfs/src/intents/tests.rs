//! Changes that a crash left half done, announced in the log: finished here and by the kernel, which must
//! come out the same.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockdev::FileDevice;
use oracle::{
    Ignore, KernelMount, MkfsXfs, MountOptions, Tree, assert_same, populate_with_kernel, require,
    xfs_repair,
};
use rustix::fs::{FallocateFlags, fallocate, ioctl_ficlone};
use vfs::{Error, FileSystem, Ino, Result};

use crate::Xfs;
use crate::alloc::{Owner, Request};
use crate::bmap::{self, Extent, Place};
use crate::format::address::{AgBlock, AgNumber, FileBlock, FsBlock};
use crate::format::inode::{Fork, flags2};
use crate::format::log::intent::{
    BmapChange, BmapKind, ExtentRun, Intent, RefcountChange, RefcountKind, RmapChange, RmapKind,
};
use crate::fs::OpenOptions;
use crate::inode::Handle;
use crate::op::Op;

const BLOCK: u64 = 4096;
const COW_OWNER: u64 = -9_i64 as u64;

/// An image that the kernel filled, open to be changed.
pub(super) struct Crash {
    pub(super) fs: Xfs,
    path: PathBuf,
    home: tempfile::TempDir,
}

fn open(path: &Path) -> Result<Xfs> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Xfs::open_writable(Arc::new(FileDevice::new(file).unwrap()), &OpenOptions::default())
}

/// What the kernel makes of an image, which must be sound then.
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
    pub(super) fn new(options: &str, fill: impl FnOnce(&Path)) -> Self {
        let home = oracle::scratch();
        let path = home.path().join("image");
        MkfsXfs::default().options(options).create(&path, 320 << 20);
        populate_with_kernel(&path, "xfs", fill);
        Self { fs: open(&path).unwrap(), path, home }
    }

    pub(super) fn ino(&self, name: &str) -> Ino {
        self.fs.lookup(self.fs.root_ino(), name.as_bytes()).unwrap()
    }

    pub(super) fn handle(&self, name: &str) -> Handle {
        self.fs.load(self.ino(name)).unwrap()
    }

    /// The extent of a file from a logical block on.
    fn extent(&self, name: &str, at: u64, len: u64) -> Extent {
        let handle = self.handle(name);
        let run = bmap::run_at(&mut &self.fs, &handle, Fork::Data, FileBlock(at)).unwrap();
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
        std::fs::copy(&self.path, &path).unwrap();
        path
    }

    /// Does half of a change and announces the rest, as `half` says, and crashes: the kernel and we
    /// finish it.
    pub(super) fn judge(self, half: impl Fn(&mut Op<'_>) -> Result<Vec<Intent>>) {
        let announce = |intents: &Vec<Intent>| {
            let log = self.fs.log.as_ref().unwrap();
            intents.iter().flat_map(|i| &i.regions).for_each(|r| log.add_done(r.clone()));
            Ok(())
        };
        let intents = self.fs.atomically_then(half, announce).unwrap();
        self.fs.engine.checkpoint().unwrap();
        let announced = self.copy("announced");
        self.fs.finish_intents(intents).unwrap();
        self.fs.free_staged().unwrap();
        self.fs.engine.checkpoint().unwrap();
        let finished = self.copy("finished");
        self.fs.close().unwrap();
        xfs_repair(&self.path);
        let ours = tree(&self.path);
        assert_same(&by_kernel(&announced), &ours, &Ignore::default());
        assert_same(&by_kernel(&finished), &ours, &Ignore::default());
    }
}

/// Files whose blocks one, two and three of them have, and one whose map is a tree.
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

const fn run_of(extent: &Extent) -> ExtentRun {
    ExtentRun { start: extent.start, len: extent.len as u32 }
}

fn rmap_of(kind: RmapKind, ino: Ino, extent: &Extent) -> Intent {
    let change = RmapChange {
        kind,
        run: run_of(extent),
        owner: ino.0,
        offset: extent.offset,
        fork: Fork::Data,
        is_bmbt: false,
        unwritten: extent.unwritten,
    };
    Intent::rmap(0x1000, &[change])
}

fn bmap_of(kind: BmapKind, ino: Ino, extent: &Extent) -> Intent {
    let change = BmapChange {
        kind,
        ino,
        fork: Fork::Data,
        offset: extent.offset,
        run: run_of(extent),
        unwritten: extent.unwritten,
    };
    Intent::bmap(0x2000, &change)
}

fn refcount_of(kind: RefcountKind, run: ExtentRun) -> Intent {
    Intent::refcount(0x3000, &[RefcountChange { kind, run }])
}

const fn owner_of(ino: Ino, extent: &Extent) -> Owner {
    let (offset, unwritten) = (extent.offset.0, extent.unwritten);
    Owner::Fork { ino, fork: Fork::Data, offset, unwritten }
}

/// Enters an extent into the reverse map, or takes it out.
fn rmap(op: &mut Op<'_>, is_added: bool, extent: &Extent, owner: Owner) -> Result<()> {
    let (ag, start) = op.fs.volume.geometry.split(extent.start);
    let lease = op.lease(ag)?;
    op.adjust_agfl(lease)?;
    match is_added {
        true => op.rmap_add(lease, start, extent.len as u32, owner),
        false => op.rmap_remove(lease, start, extent.len as u32, owner),
    }
}

/// Takes an extent out of a file's map.
fn take(op: &mut Op<'_>, file: &Handle, extent: Extent) -> Result<Handle> {
    let mut file = file.clone();
    op.take_extent(&mut file, Fork::Data, extent)?;
    op.stage(file.clone());
    Ok(file)
}

#[test]
fn blocks_that_a_file_let_go_of_are_freed() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for options in ["", "-m rmapbt=0", "-m rmapbt=0,reflink=0,finobt=0 -b size=1024"] {
        for is_mapped in [false, true] {
            let crash = Crash::new(options, fill);
            let (file, tree) = (crash.handle("own"), crash.handle("tree"));
            let some = crash.extent("own", 10, 20);
            let last = crash.extent("own", 320, 80);
            let hole = crash.extent("tree", 101, 1);
            crash.judge(|op| {
                let rest = take(op, &file, some)?;
                take(op, &rest, last)?;
                take(op, &tree, hole)?;
                if is_mapped {
                    // Who freed them leaves the reverse map to the EFI, as for metadata.
                    rmap(op, true, &last, owner_of(file.ino(), &last))?;
                }
                let runs = [run_of(&some), run_of(&last), run_of(&hole)];
                Ok(vec![Intent::free(77, &runs[..2]), Intent::free(78, &runs[2..])])
            });
        }
    }
}

#[test]
fn what_leaves_a_map_leaves_the_reverse_map_before_it_is_freed() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", fill);
    let file = crash.handle("own");
    let (some, last) = (crash.extent("own", 10, 20), crash.extent("own", 320, 80));
    assert!(last.unwritten);
    crash.judge(|op| {
        let rest = take(op, &file, some)?;
        take(op, &rest, last)?;
        let mut intents = Vec::new();
        for extent in [some, last] {
            rmap(op, true, &extent, owner_of(file.ino(), &extent))?;
            intents.push(rmap_of(RmapKind::Unmap, file.ino(), &extent));
            intents.push(Intent::free(extent.start.0, &[run_of(&extent)]));
        }
        Ok(intents)
    });
}

#[test]
fn what_a_map_has_gets_into_the_reverse_map() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", fill);
    let ino = crash.ino("own");
    let (some, last) = (crash.extent("own", 10, 20), crash.extent("own", 320, 80));
    let part = Extent { offset: last.offset.plus(10), start: last.start.plus(10), len: 5, ..last };
    crash.judge(|op| {
        rmap(op, false, &some, owner_of(ino, &some))?;
        // In the map these blocks are unwritten still.
        let wrong = Extent { unwritten: false, ..part };
        rmap(op, false, &part, owner_of(ino, &part))?;
        rmap(op, true, &part, owner_of(ino, &wrong))?;
        Ok(vec![rmap_of(RmapKind::Map, ino, &some), rmap_of(RmapKind::Convert, ino, &part)])
    });
}

#[test]
fn shared_blocks_are_entered_into_the_reverse_map_and_taken_out() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", fill_shared);
    let (b, c) = (crash.ino("b"), crash.handle("c"));
    let (some, gone) = (crash.extent("b", 110, 20), crash.extent("c", 20, 30));
    crash.judge(|op| {
        rmap(op, false, &some, owner_of(b, &some))?;
        take(op, &c, gone)?;
        rmap(op, true, &gone, owner_of(c.ino(), &gone))?;
        Ok(vec![
            rmap_of(RmapKind::MapShared, b, &some),
            rmap_of(RmapKind::UnmapShared, c.ino(), &gone),
            refcount_of(RefcountKind::Decrease, run_of(&gone)),
        ])
    });
}

#[test]
fn references_are_counted_up_and_down() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for options in ["", "-m rmapbt=0"] {
        let crash = Crash::new(options, fill_shared);
        let files = ["a", "b", "c", "empty", "own"].map(|name| crash.handle(name));
        let [a, b, _, empty, own] = &files;
        let from = |extent: Extent, by: u64| Extent {
            offset: extent.offset.plus(by),
            start: extent.start.plus(by),
            len: extent.len - by,
            ..extent
        };
        // Of these, three files have the first and the last part, two the middle.
        let all = crash.extent("a", 0, 300);
        let (first, rest) = (crash.extent("own", 0, 30), crash.extent("a", 80, 100));
        crash.judge(|op| {
            let mut a = a.clone();
            op.take_extent(&mut a, Fork::Data, from(all, 200))?;
            let mut b = b.clone();
            op.take_extent(&mut b, Fork::Data, from(all, 100))?;
            let mut empty = empty.clone();
            empty.inode.set_flags2(empty.inode.flags2() | flags2::REFLINK);
            let shift =
                |extent: Extent| Extent { offset: FileBlock(extent.offset.0 + 500), ..extent };
            let mut own = own.clone();
            own.inode.set_flags2(own.inode.flags2() | flags2::REFLINK);
            // Shared blocks may have several owners only when one of them is known to be shared.
            op.enter_extent(&mut empty, Fork::Data, shift(rest))?;
            op.enter_extent(&mut empty, Fork::Data, first)?;
            empty.inode.set_size(700 * BLOCK);
            [a, b, empty, own].into_iter().for_each(|handle| op.stage(handle));
            Ok(vec![
                refcount_of(RefcountKind::Increase, run_of(&first)),
                refcount_of(RefcountKind::Increase, run_of(&rest)),
                refcount_of(RefcountKind::Decrease, run_of(&from(all, 200))),
                refcount_of(RefcountKind::Decrease, run_of(&from(all, 100))),
            ])
        });
    }
}

/// Takes blocks for nobody.
fn take_blocks(op: &mut Op<'_>, near: FsBlock, len: u32, owner: Owner) -> Result<ExtentRun> {
    let request = Request { near, min_len: len, max_len: len, owner };
    let (start, len) = op.allocate_extent(&request)?;
    Ok(ExtentRun { start, len })
}

#[test]
fn a_map_gets_blocks_and_loses_them() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for options in ["", "-m rmapbt=0", "-m reflink=0"] {
        let crash = Crash::new(options, fill);
        let has_counts = !options.contains("reflink");
        let (empty, own, tree) = (crash.handle("empty"), crash.handle("own"), crash.handle("tree"));
        let old = crash.extent("own", 100, 50);
        crash.judge(|op| {
            let mut intents = vec![bmap_of(BmapKind::Unmap, own.ino(), &old)];
            intents.push(if has_counts {
                refcount_of(RefcountKind::Decrease, run_of(&old))
            } else {
                let moved = Extent { offset: FileBlock(77), ..old };
                bmap_of(BmapKind::Map, empty.ino(), &moved)
            });
            for (handle, offset, len) in [(&empty, 5, 40), (&tree, 600, 3), (&tree, 2, 1)] {
                let run = take_blocks(op, old.start, len, Owner::RefcountTree)?;
                let extent = Extent {
                    offset: FileBlock(offset),
                    start: run.start,
                    len: len.into(),
                    unwritten: true,
                };
                rmap(op, false, &extent, Owner::RefcountTree)?;
                intents.push(bmap_of(BmapKind::Map, handle.ino(), &extent));
            }
            // Something else that happened before the crash.
            let mut touched = empty.clone();
            touched.inode.set_size(100 * BLOCK);
            op.stage(touched);
            Ok(intents)
        });
    }
}

#[test]
fn blocks_kept_for_copying_on_write_are_freed() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for options in ["", "-m rmapbt=0"] {
        let crash = Crash::new(options, fill_shared);
        let (near, has_rmap) = (crash.extent("a", 0, 1).start, options.is_empty());
        crash.judge(|op| {
            let whole = |run: ExtentRun| Extent {
                offset: FileBlock(0),
                start: run.start,
                len: run.len.into(),
                unwritten: false,
            };
            let change = |kind, run| {
                let change = RmapChange {
                    kind,
                    run,
                    owner: COW_OWNER,
                    offset: FileBlock(0),
                    fork: Fork::Data,
                    is_bmbt: false,
                    unwritten: false,
                };
                Intent::rmap(0x5000, &[change])
            };
            let stage = |op: &mut Op<'_>, run: ExtentRun| {
                let (ag, start) = op.fs.volume.geometry.split(run.start);
                let lease = op.lease(ag)?;
                op.stage_blocks(lease, start, run.len)
            };
            // Kept as they should be, in two runs that continue each other.
            let kept = take_blocks(op, near, 64, Owner::Staged)?;
            stage(op, ExtentRun { len: 30, ..kept })?;
            stage(op, ExtentRun { start: kept.start.plus(30), len: 34 })?;
            // To be kept, and to be let go.
            let come = take_blocks(op, near, 16, Owner::Staged)?;
            let gone = take_blocks(op, near, 8, Owner::Staged)?;
            stage(op, gone)?;
            let mut intents = vec![refcount_of(RefcountKind::AllocateCow, come)];
            if has_rmap {
                rmap(op, false, &whole(come), Owner::Staged)?;
                intents.push(change(RmapKind::Allocate, come));
                intents.push(change(RmapKind::Free, gone));
            }
            intents.push(refcount_of(RefcountKind::FreeCow, gone));
            intents.push(Intent::free(4, &[gone]));
            Ok(intents)
        });
    }
}

#[test]
fn intents_that_contradict_the_image_change_nothing() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", fill_shared);
    let fs = &crash.fs;
    let (own, shared) = (crash.extent("own", 10, 20), crash.extent("a", 10, 20));
    let ino = crash.ino("own");
    let absent = Ino(ino.0 + 40);
    let free = fs.volume.geometry.fs_block(AgNumber(2), AgBlock(9000));
    let free = ExtentRun { start: free, len: 8 };
    let nowhere = Extent { start: free.start, len: 8, ..own };
    let log = FsBlock(fs.volume.sb.raw.logstart.get());
    let wrong = [
        Intent::free(1, &[free]),
        Intent::free(1, &[run_of(&own), free]),
        Intent::free(1, &[ExtentRun { start: log, len: 1 }]),
        Intent::free(1, &[run_of(&shared)]),
        rmap_of(RmapKind::Map, ino, &own),
        rmap_of(RmapKind::Unmap, absent, &own),
        rmap_of(RmapKind::Convert, ino, &own),
        refcount_of(RefcountKind::Decrease, free),
        refcount_of(RefcountKind::AllocateCow, ExtentRun { start: log, len: u32::MAX }),
        refcount_of(RefcountKind::FreeCow, free),
        bmap_of(BmapKind::Map, ino, &own),
        bmap_of(BmapKind::Unmap, ino, &nowhere),
        bmap_of(BmapKind::Map, absent, &nowhere),
    ];
    for intent in wrong {
        let outcome = fs.finish_intents(vec![intent.clone()]);
        assert!(matches!(outcome, Err(Error::Corrupt(_))), "{intent:?}: {outcome:?}");
    }
    let before = crash.path.metadata().unwrap().mtime();
    crash.fs.close().unwrap();
    assert_eq!(crash.path.metadata().unwrap().mtime(), before);
    xfs_repair(&crash.path);
}
