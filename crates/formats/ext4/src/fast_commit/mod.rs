//! Applies the changes of fast commits, all of them in one operation.
//!
//! A tag describes a state, not a change: an entry leads to an inode, a range of a file has these blocks, an inode has
//! these fields. So an existing entry is kept, and a missing entry need not be removed. Rules of the kernel that the
//! tags do not contain:
//!
//! - The blocks of all ranges are reserved first, so that blocks which the changes themselves need (of directories and
//!   extent trees) come from elsewhere.
//! - Directories have no tags for their own inodes. Their times and link counts follow from their entries.
//! - An inode that lost its last name without a further tag was freed.

mod inodes;
mod ranges;
#[cfg(test)]
mod tests;

use operations::inode::InodeHandle;
use operations::names::{Entry, LinkEffects, drop_subdirectory};
use operations::orphans::inactivate;
use operations::{Outcome, RunOperations};
use std::collections::BTreeMap;

use vfs::names::check_name;
use vfs::{Corruption, Error, FileType, Ino, Result, Timestamp};

use self::inodes::InodeUpdate;
use self::ranges::Ranges;
use crate::Ext4Core;
use crate::dir;
use crate::format::jbd2::{FastCommitEntry, FastCommitTag};
use crate::op::Op;
use crate::orphan::Inactivation;
use crate::quota::Quota;

/// Returns an error about damage in a fast commit.
fn damage(problem: &'static str, ino: Ino) -> Error {
    Corruption::new("fast commit", problem).of_inode(ino.0).into()
}

impl Ext4Core {
    /// Applies fast commits and makes the result durable. The log must have been opened with the `resume` that recovery
    /// returned. Fast commits contain no usage, so it is recounted with `quota`.
    ///
    /// # Errors
    /// `Corrupt` if changes contradict the file system. Nothing was written in that case.
    pub(crate) fn apply_fast_commits(
        &self,
        tags: &[FastCommitTag],
        quota: Option<Quota>,
    ) -> Result<()> {
        let now = self.clock.now();
        let now = Timestamp { sec: now.as_secs() as i64, nsec: now.subsec_nanos() };
        let doomed = self.atomically_freeing(|op| {
            let mut replay =
                Replay { op, inodes: BTreeMap::new(), reserved: Ranges::default(), now };
            replay.reserve_ranges(tags)?;
            for tag in tags {
                replay.apply(tag)?;
            }
            replay.finish()
        })?;
        if let Some(quota) = quota {
            self.recount_usage(self.count_usage(quota))?;
        }
        self.engine.checkpoint()?;
        for ino in doomed {
            let _lock = self.locks.exclusive(&[ino]);
            inactivate(self, Inactivation::Orphan(ino));
        }
        Ok(())
    }
}

/// The operation and its changes that are not written yet.
struct Replay<'r, 'op> {
    op: &'r mut Op<'op>,
    inodes: BTreeMap<Ino, InodeUpdate>,
    /// Blocks marked in use for ranges that no file has yet.
    reserved: Ranges,
    now: Timestamp,
}

impl Replay<'_, '_> {
    fn apply(&mut self, tag: &FastCommitTag) -> Outcome<()> {
        match tag {
            FastCommitTag::AddRange { ino, extent } => self.add_range(*ino, *extent),
            FastCommitTag::DelRange { ino, block, len } => {
                let end = block.0.saturating_add(*len);
                self.delete_range(*ino, block.0..end)
            }
            FastCommitTag::Create(entry) => self.create(entry),
            FastCommitTag::Link(entry) => self.link(entry, 1),
            FastCommitTag::Unlink(entry) => self.unlink(entry),
            FastCommitTag::Inode { ino, raw } => self.set_inode(*ino, raw),
        }
    }

    /// Gives a new inode its first name, and a directory its first block.
    fn create(&mut self, entry: &FastCommitEntry) -> Outcome<()> {
        let mut child = self.take(entry.ino)?;
        if child.handle.inode.is_dir() && child.is_new() {
            child.handle.inode.set_size(0);
            self.op.init_dir(&mut child.handle, entry.parent)?;
            child.handle.inode.set_links_count(2);
            let mut parent = self.take_dir(entry.parent)?;
            self.op.fs.add_subdirectory(&mut parent.handle)?;
            self.put(parent);
        }
        self.put(child);
        self.link(entry, 0)
    }

    /// Makes the name lead to the inode, whose link count grows by `links`.
    fn link(&mut self, entry: &FastCommitEntry, links: u16) -> Outcome<()> {
        check_name(&entry.name).map_err(|_| damage("an invalid name", entry.parent))?;
        let mut child = self.take(entry.ino)?;
        let file_type = child.handle.file_type()?;
        let mut parent = self.take_dir(entry.parent)?;
        let found = dir::find(self.op, &parent.handle, &entry.name)?;
        let new = Entry { name: &entry.name, ino: entry.ino, file_type };
        match found {
            Some(found) if found.ino == entry.ino => {}
            Some(found) => self.op.replace_entry(&mut parent.handle, &found, new)?,
            None => self.op.add_entry(&mut parent.handle, new)?,
        }
        if found.is_none_or(|found| found.ino != entry.ino) {
            let count = child.handle.inode.links_count().saturating_add(links);
            child.handle.inode.set_links_count(count);
            parent.handle.touch(Some(self.now));
        }
        self.put(parent);
        self.put(child);
        Ok(())
    }

    /// Removes the name if it leads to the inode.
    fn unlink(&mut self, entry: &FastCommitEntry) -> Outcome<()> {
        let mut parent = self.take_dir(entry.parent)?;
        let found = dir::find(self.op, &parent.handle, &entry.name)?;
        if let Some(found) = found.filter(|found| found.ino == entry.ino) {
            let mut child = self.take(entry.ino)?;
            self.op.remove_entry(&mut parent.handle, &entry.name, &found)?;
            parent.handle.touch(Some(self.now));
            let links = child.handle.inode.links_count();
            if child.handle.file_type()? == FileType::Directory {
                if !dir::is_empty(self.op, &child.handle)? {
                    return Err(
                        damage("it removes a directory that is not empty", entry.ino).into()
                    );
                }
                drop_subdirectory(&mut parent.handle);
                child.handle.inode.set_links_count(0);
            } else {
                child.handle.inode.set_links_count(links.saturating_sub(1));
            }
            self.put(child);
        }
        self.put(parent);
        Ok(())
    }

    /// Writes all inodes. Returns those to free after the commit.
    fn finish(mut self) -> Outcome<Vec<Ino>> {
        self.release_reserved()?;
        let mut doomed = Vec::new();
        for (_, work) in std::mem::take(&mut self.inodes) {
            if work.handle.inode.links_count() > 0 {
                self.stage(work)?;
                continue;
            }
            let ino = work.handle.ino();
            if self.op.fs.orphans.is_recorded(ino) {
                // It is freed with the other orphans.
                self.op.stage(work.handle);
            } else if let Inactivation::Orphan(ino) = self.abandon(work)? {
                doomed.push(ino);
            }
        }
        Ok(doomed)
    }
}
