//! Intents about extents.

use operations::Outcome;
use std::os::unix::fs::MetadataExt;

use testkit::{require, xfs_repair};
use vfs::{Error, Ino};

use super::{BLOCK, Crash, fill, fill_shared, next_id, open};
use crate::alloc::{ExtentRequest, RmapOwner};
use crate::format::address::{AgBlock, AgNumber, FileBlock, FsBlock};
use crate::format::inode::{Fork, flags2};
use crate::format::log::intent::{
    BmapChange, BmapKind, ExtentRun, Intent, RefcountChange, RefcountKind, RmapChange, RmapKind,
};
use crate::inode::Handle;
use crate::map::Extent;
use crate::op::Op;

const COW_OWNER: u64 = -9_i64 as u64;

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
    Intent::rmap(next_id(), &[change])
}

fn bmap_of(kind: BmapKind, ino: Ino, extent: &Extent) -> Intent {
    let change = BmapChange {
        kind,
        ino,
        fork: Fork::Data,
        offset: extent.offset,
        run: run_of(extent),
        unwritten: extent.unwritten,
        is_realtime: false,
    };
    Intent::bmap(next_id(), &change)
}

fn refcount_of(kind: RefcountKind, run: ExtentRun) -> Intent {
    Intent::refcount(next_id(), &[RefcountChange { kind, run }])
}

const fn owner_of(ino: Ino, extent: &Extent) -> RmapOwner {
    let (offset, unwritten) = (extent.offset.0, extent.unwritten);
    RmapOwner::Fork { ino, fork: Fork::Data, offset, unwritten }
}

/// Adds an extent to the reverse map, or removes it.
fn rmap(op: &mut Op<'_>, is_added: bool, extent: &Extent, owner: RmapOwner) -> Outcome<()> {
    let (ag, start) = op.fs.volume.geometry.split(extent.start);
    let mut ag = op.ag(ag)?;
    ag.adjust_agfl()?;
    match is_added {
        true => ag.rmap_add(start, extent.len as u32, owner),
        false => ag.rmap_remove(start, extent.len as u32, owner),
    }
}

/// Unmaps an extent of a file.
fn take(op: &mut Op<'_>, file: &Handle, extent: Extent) -> Outcome<Handle> {
    let mut file = file.clone();
    op.take_extent(&mut file, Fork::Data, extent)?;
    op.stage(file.clone());
    Ok(file)
}

#[test]
fn blocks_released_by_a_file_are_freed() {
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
                    // Freeing left the reverse map to the EFI, as for metadata.
                    rmap(op, true, &last, owner_of(file.ino(), &last))?;
                }
                let runs = [run_of(&some), run_of(&last), run_of(&hole)];
                Ok(vec![Intent::free(next_id(), &runs[..2]), Intent::free(next_id(), &runs[2..])])
            });
        }
    }
}

#[test]
fn unmapped_blocks_leave_the_reverse_map_before_they_are_freed() {
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
            intents.push(Intent::free(next_id(), &[run_of(&extent)]));
        }
        Ok(intents)
    });
}

#[test]
fn mapped_blocks_enter_the_reverse_map() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", fill);
    let ino = crash.ino("own");
    let (some, last) = (crash.extent("own", 10, 20), crash.extent("own", 320, 80));
    let part = Extent { offset: last.offset.plus(10), start: last.start.plus(10), len: 5, ..last };
    crash.judge(|op| {
        rmap(op, false, &some, owner_of(ino, &some))?;
        // In the extent map these blocks are still unwritten.
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
        // Three files have the first and the last of these parts, two files the middle.
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
            // Blocks may have several owners only if one of them is marked as sharing.
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

/// The state that kernels leave in the middle of an exchange: the log has the next map change before the reverse-map
/// change of the last one.
#[test]
fn the_reverse_map_follows_before_blocks_change_hands() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("", fill);
    let (own, empty) = (crash.handle("own"), crash.handle("empty"));
    let some = crash.extent("own", 10, 20);
    crash.judge(|op| {
        take(op, &own, some)?;
        rmap(op, true, &some, owner_of(own.ino(), &some))?;
        let mut larger = empty.clone();
        larger.inode.set_size(100 * BLOCK);
        op.stage(larger);
        let moved = Extent { offset: FileBlock(50), ..some };
        Ok(vec![
            bmap_of(BmapKind::Map, empty.ino(), &moved),
            rmap_of(RmapKind::Unmap, own.ino(), &some),
        ])
    });
}

/// Allocates blocks without mapping them.
fn take_blocks(op: &mut Op<'_>, near: FsBlock, len: u32, owner: RmapOwner) -> Outcome<ExtentRun> {
    let request =
        ExtentRequest { near, lead: 0, min_len: len, max_len: len, owner, for_data: false };
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
                let run = take_blocks(op, old.start, len, RmapOwner::RefcountTree)?;
                let extent = Extent {
                    offset: FileBlock(offset),
                    start: run.start,
                    len: len.into(),
                    unwritten: true,
                };
                rmap(op, false, &extent, RmapOwner::RefcountTree)?;
                intents.push(bmap_of(BmapKind::Map, handle.ino(), &extent));
            }
            // An unrelated change before the crash.
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
                Intent::rmap(next_id(), &[change])
            };
            let stage = |op: &mut Op<'_>, run: ExtentRun| {
                let (ag, start) = op.fs.volume.geometry.split(run.start);
                op.ag(ag)?.stage_blocks(start, run.len)
            };
            // Properly staged blocks, in two adjacent runs.
            let kept = take_blocks(op, near, 64, RmapOwner::Staged)?;
            stage(op, ExtentRun { len: 30, ..kept })?;
            stage(op, ExtentRun { start: kept.start.plus(30), len: 34 })?;
            // One run to be staged, and one to be released.
            let come = take_blocks(op, near, 16, RmapOwner::Staged)?;
            let gone = take_blocks(op, near, 8, RmapOwner::Staged)?;
            stage(op, gone)?;
            let mut intents = vec![refcount_of(RefcountKind::AllocateCow, come)];
            if has_rmap {
                rmap(op, false, &whole(come), RmapOwner::Staged)?;
                intents.push(change(RmapKind::Allocate, come));
                intents.push(change(RmapKind::Free, gone));
            }
            intents.push(refcount_of(RefcountKind::FreeCow, gone));
            intents.push(Intent::free(next_id(), &[gone]));
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
    let free = fs.volume.geometry.fs_block(AgNumber(3), AgBlock(9000));
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
        refcount_of(RefcountKind::Decrease, ExtentRun { start: log, len: 9 }),
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

#[test]
fn an_image_whose_log_contradicts_it_stays_as_it_is() {
    require!(Tool("mkfs.xfs"), Mount("xfs"));
    let crash = Crash::new("", fill);
    let (own, some) = (crash.handle("own"), crash.extent("own", 10, 20));
    let absent = Ino(own.ino().0 + 40);
    crash.crash(|op| {
        take(op, &own, some)?;
        let sound = Intent::free(next_id(), &[run_of(&some)]);
        Ok(vec![sound, bmap_of(BmapKind::Map, absent, &some)])
    });
    let before = crc32c::crc32c(&std::fs::read(&crash.path).unwrap());
    let outcome = open(&crash.path).map(drop);
    assert!(matches!(outcome, Err(Error::Corrupt(_))), "{outcome:?}");
    assert_eq!(crc32c::crc32c(&std::fs::read(&crash.path).unwrap()), before);
}
