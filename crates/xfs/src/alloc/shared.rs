//! Blocks that several files have: the tree of references counts those that more than one has. Who
//! gives such blocks back takes one reference away; they become free with the last one.

use std::ops::Range;

use transaction::Corruption;
use vfs::Result;

use crate::alloc::ags::AgTree;
use crate::btree::records::{RefcountRecord, RefcountTree};
use crate::btree::{Cursor, Seek};
use crate::format::address::AgBlock;
use crate::op::Op;

/// A count that is never changed any more, because it may have been higher (`XFS_REFC_REFCOUNT_MAX`).
const COUNT_PINNED: u32 = u32::MAX;

impl RefcountRecord {
    /// One past its last block.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.start.0) + u64::from(self.len)
    }

    /// The part of it from `start` to `end`.
    pub(super) fn part(&self, start: u64, end: u64) -> Self {
        Self { start: AgBlock(start as u32), len: (end - start) as u32, ..*self }
    }
}

impl Op<'_> {
    /// Takes one reference to blocks of a group away, and makes those free that have none left.
    pub(crate) fn drop_references(&mut self, lease: usize, start: AgBlock, len: u32) -> Result<()> {
        let mut at = u64::from(start.0);
        let end = at + u64::from(len);
        while at < end {
            let shared = self.shared_from(lease, at, end)?;
            let shared_from = shared.map_or(end, |run| u64::from(run.start.0).max(at));
            if at < shared_from {
                self.adjust_agfl(lease)?;
                self.give_space(lease, AgBlock(at as u32), (shared_from - at) as u32)?;
            }
            at = shared_from;
            if let Some(run) = shared {
                let until = run.end().min(end);
                if run.count != COUNT_PINNED {
                    self.recount(lease, run, at..until, run.count - 1)?;
                }
                at = until;
            }
        }
        Ok(())
    }

    /// Adds one reference to blocks of a group that are in use.
    pub(crate) fn add_references(&mut self, lease: usize, start: AgBlock, len: u32) -> Result<()> {
        let mut at = u64::from(start.0);
        let end = at + u64::from(len);
        while at < end {
            let shared = self.shared_from(lease, at, end)?;
            let shared_from = shared.map_or(end, |run| u64::from(run.start.0).max(at));
            if at < shared_from {
                self.begin_sharing(lease, at..shared_from)?;
            }
            at = shared_from;
            if let Some(run) = shared {
                let until = run.end().min(end);
                if run.count != COUNT_PINNED {
                    self.recount(lease, run, at..until, run.count + 1)?;
                }
                at = until;
            }
        }
        Ok(())
    }

    /// Lists blocks that one file had as blocks that two have.
    fn begin_sharing(&mut self, lease: usize, blocks: Range<u64>) -> Result<()> {
        self.adjust_agfl(lease)?;
        let whole = RefcountRecord { start: AgBlock(0), cow: false, len: 0, count: 2 };
        let new = whole.part(blocks.start, blocks.end);
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        cursor.seek((false, new.start), Seek::Exactly)?;
        cursor.insert(new)?;
        self.join_references(lease, false, blocks.end)?;
        self.join_references(lease, false, blocks.start)
    }

    /// The first run of shared blocks that reaches into `at..end`.
    fn shared_from(&mut self, lease: usize, at: u64, end: u64) -> Result<Option<RefcountRecord>> {
        if self.leases[lease].root(AgTree::Refcount).levels == 0 {
            return Ok(None);
        }
        let limit = u64::from(self.leases[lease].length);
        let ag = self.leases[lease].number();
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        let mut found = cursor.seek((false, AgBlock(at as u32)), Seek::AtMost)?;
        if found.is_none_or(|run| run.end() <= at) {
            found = cursor.seek((false, AgBlock(at as u32)), Seek::AtLeast)?;
        }
        // Runs that are kept for copying on write come after all shared ones.
        let Some(run) = found.filter(|run| !run.cow && u64::from(run.start.0) < end) else {
            return Ok(None);
        };
        if run.len == 0 || run.end() > limit || run.count < 2 {
            let what =
                format!("{} references to {} blocks from {} on", run.count, run.len, run.start);
            return Err(Corruption::new("tree of references", what).in_group(ag.0.into()).into());
        }
        Ok(Some(run))
    }

    /// Gives `blocks`, which lie in `run`, another count.
    fn recount(
        &mut self,
        lease: usize,
        run: RefcountRecord,
        blocks: Range<u64>,
        count: u32,
    ) -> Result<()> {
        self.adjust_agfl(lease)?;
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        cursor.seek((false, run.start), Seek::Exactly)?;
        cursor.remove()?;
        let before = run.part(run.start.0.into(), blocks.start);
        let changed = RefcountRecord { count, ..run.part(blocks.start, blocks.end) };
        let after = run.part(blocks.end, run.end());
        // Blocks that one file has are not listed.
        for part in [before, changed, after] {
            if part.len > 0 && part.count > 1 {
                cursor.insert(part)?;
            }
        }
        self.join_references(lease, false, blocks.end)?;
        self.join_references(lease, false, blocks.start)
    }

    /// Makes one record of two that meet at a block and count alike.
    pub(super) fn join_references(&mut self, lease: usize, cow: bool, at: u64) -> Result<()> {
        let Some(last_before) = at.checked_sub(1) else { return Ok(()) };
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        let right = cursor.seek((cow, AgBlock(at as u32)), Seek::Exactly)?;
        let Some(right) = right else { return Ok(()) };
        let left = cursor.seek((cow, AgBlock(last_before as u32)), Seek::AtMost)?;
        let Some(left) =
            left.filter(|left| left.cow == cow && left.end() == at && left.count == right.count)
        else {
            return Ok(());
        };
        cursor.update(left.part(left.start.0.into(), right.end()))?;
        cursor.seek((cow, right.start), Seek::Exactly)?;
        cursor.remove()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use rustix::fs::{FallocateFlags, fallocate, ioctl_ficlone};
    use vfs::{AllocateMode, Error, FileSystem};

    use crate::alloc::tests::Fresh;

    const BLOCK: u64 = 4096;
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    /// Four files, parts of whose blocks one, two, three or four of them have.
    fn share(root: &Path) {
        let a = File::create(root.join("a")).unwrap();
        a.write_all_at(&vec![7; 200 * BLOCK as usize], 0).unwrap();
        a.sync_all().unwrap();
        let clone = |name, of: &str| {
            let file = File::create(root.join(name)).unwrap();
            ioctl_ficlone(&file, File::open(root.join(of)).unwrap()).unwrap();
            file
        };
        let b = clone("b", "a");
        b.write_all_at(&[8; 10 * BLOCK as usize], 10 * BLOCK).unwrap();
        let c = clone("c", "a");
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&c, flags, 30 * BLOCK, 15 * BLOCK).unwrap();
        fallocate(&c, flags, 190 * BLOCK, 10 * BLOCK).unwrap();
        let d = clone("d", "b");
        d.write_all_at(&[9; 3 * BLOCK as usize], 38 * BLOCK).unwrap();
    }

    #[test]
    fn shared_blocks_are_freed_with_the_last_file_that_has_them() {
        oracle::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
        for (options, order) in
            [("", [0, 1, 2, 3]), ("", [3, 1, 0, 2]), ("-m rmapbt=0", [2, 0, 3, 1])]
        {
            let image = Fresh::filled(options, 320 << 20, share);
            let (fs, root) = (&image.fs, image.fs.root_ino());
            for (step, name) in order.map(|which| NAMES[which].as_bytes()).into_iter().enumerate() {
                let ino = fs.lookup(root, name).unwrap();
                let refused =
                    |result: vfs::Result<()>| assert!(matches!(result, Err(Error::Unsupported(_))));
                refused(fs.write(ino, 150 * BLOCK, b"x"));
                refused(fs.truncate(ino, 150 * BLOCK + 1));
                refused(fs.allocate(ino, 1, 20 * BLOCK, AllocateMode::PunchHole));
                if step % 2 == 0 {
                    fs.unlink(root, name, None).unwrap();
                } else {
                    fs.allocate(ino, 5 * BLOCK, 50 * BLOCK, AllocateMode::PunchHole).unwrap();
                    image.judge();
                    fs.truncate(ino, 100 * BLOCK).unwrap();
                    image.judge();
                    fs.truncate(ino, 0).unwrap();
                    assert_eq!(fs.attributes(ino).unwrap().blocks_512, 0);
                    fs.write(ino, 0, b"new").unwrap();
                }
                image.judge();
            }
        }
    }
}
