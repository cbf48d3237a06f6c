//! Letting files wait.

use operation::inode::load_dir;
use operation::reserve::Claim;
use operation::{Mode, Outcome, RunOperations};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::names::check_name;
use vfs::{Error, Ino, NewInode, Result};

use super::filter::Filter;
use super::table::{self, Directory};
use super::{Shared, Waiting, WaitingPolicy};
use crate::Ext4;
use crate::alloc::guard::Bitmaps as _;
use crate::dir::{self, for_each_leaf, index};
use crate::format::address::{FileBlock, Group};
use crate::format::dirent;
use crate::format::features::RoCompat;
use crate::format::hash::HashVersion;
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::op::Op;
use crate::op::source::Source as _;

/// Bytes of a leaf for each name, about, where names are not long.
const ENTRY_BYTES: u64 = 64;

/// Clusters that are promised at a time, at least.
const PROMISE_LEAST: usize = 256;

/// Flags of a directory whose files are as plain as can be.
const PLAIN: u32 = flags::INDEX | flags::EXTENTS;

/// Twice the names that a directory has if its leaves are as full as they mostly are.
fn names_max(blocks: u64, block_size: u64) -> u64 {
    blocks * (block_size / ENTRY_BYTES) * 2
}

/// Whether files may ever wait in a file system.
pub(crate) fn is_possible(volume: &crate::volume::Volume, mode: Mode, has_log: bool) -> bool {
    let features = &volume.sb.features;
    mode == Mode::Writable
        && has_log
        && volume.dir_index
        && volume.geometry.inodes_per_group.is_multiple_of(16)
        && volume.geometry.cluster_blocks_log == 0
        && !features.ro_compat(RoCompat::QUOTA)
}

impl Ext4 {
    /// Makes a regular file that waits. `None` if it must be made at once.
    ///
    /// # Errors
    /// As [`vfs::FileSystem::create`]: nothing was done then.
    pub(crate) fn create_waiting(
        &self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
    ) -> Result<Option<Ino>> {
        let Some(policy) = self.waiting.policy else { return Ok(None) };
        if !self.waiting.dirs.has(dir) || check_name(name).is_err() {
            return Ok(None);
        }
        // What cannot become durable any more must not be promised.
        self.engine.check_alive()?;
        if self.waiting.is_full.load(Ordering::Relaxed) {
            if self.waiting.files() >= policy.files_max {
                self.apply_some()?;
            }
            self.waiting.note_full(policy);
        }
        self.let_wait(policy, dir, name, new)
    }

    /// Applies the part that has most, of the directory that has most.
    fn apply_some(&self) -> Result<()> {
        let mut most: Option<(usize, Ino, Shared)> = None;
        self.waiting.dirs.for_each(|dir, directory| {
            let waiting = directory.lock().waiting;
            if most.as_ref().is_none_or(|(others, ..)| waiting > *others) {
                most = Some((waiting, dir, Arc::clone(directory)));
            }
        });
        let Some((_, dir, directory)) = most else { return Ok(()) };
        let _lock = self.locks.exclusive(&[dir]);
        let part = directory.lock().largest();
        self.apply_part(dir, &directory, part)
    }

    fn let_wait(
        &self,
        policy: WaitingPolicy,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
    ) -> Result<Option<Ino>> {
        let entering = self.waiting.gates.enter(dir);
        let _lock = self.locks.exclusive(&[dir]);
        let Some(shared) = self.waiting.dirs.get(dir).filter(|_| entering.is_allowed()) else {
            return Ok(None);
        };
        let parent = load_dir(self, dir)?;
        let blocks = parent.inode.size() >> self.volume.sb.block_size_log;
        let mut directory = shared.lock();
        let key = table::key(directory.hasher.hash(name));
        let is_new = directory.is_new(key);
        match if is_new { None } else { directory.find(key, name) } {
            Some((_, true)) => return Err(Error::Exists),
            Some((_, false)) => return Ok(None),
            None if !self.is_suited(policy, &parent, blocks, &directory) => return Ok(None),
            None => {}
        }
        if !is_new || !directory.is_provided(key, blocks, self.volume.block_size() as u64) {
            // Nobody else changes the directory meanwhile, and blocks are not waited for with it locked.
            drop(directory);
            if !self.prepare(&parent, &shared, blocks, (key, name))? {
                return Ok(None);
            }
            directory = shared.lock();
            if directory.filter.is_none() {
                return Ok(None);
            }
        }
        let generation = |ino| self.next_generation(ino);
        let made = directory.add(key, name, *new, generation);
        if made.is_some() {
            entering.keep();
            if directory.waiting == 1 {
                self.waiting.dirs_waiting.fetch_add(1, Ordering::Relaxed);
            }
            self.waiting.count(policy, directory.waiting);
        }
        Ok(made)
    }

    /// Looks whether a name is taken, and provides what it needs to wait. False if there is too little.
    fn prepare(
        &self,
        parent: &Handle,
        shared: &Shared,
        blocks: u64,
        (key, name): (u64, &[u8]),
    ) -> Result<bool> {
        if self.has_name(parent, shared, key, name)? {
            return Err(Error::Exists);
        }
        let inode = self.provide_inode(parent, shared, key);
        let provided =
            inode.and_then(|is_there| Ok(is_there && self.provide_space(parent, shared, blocks)?));
        if !matches!(provided, Ok(true)) {
            let part = shared.lock().part_of(key);
            self.tidy(parent.ino(), shared, part);
            // It will not be different soon.
            shared.lock().streak = 0;
        }
        provided
    }

    /// Whether files of a directory may wait, as it is now.
    fn is_suited(
        &self,
        policy: WaitingPolicy,
        parent: &Handle,
        blocks: u64,
        directory: &Directory,
    ) -> bool {
        let streak = policy.streak_per_block as u64 * blocks;
        // Far from what an index can lead to: a name that is too many must be refused at once.
        let block_size = self.volume.block_size() as u64;
        let levels = if self.volume.large_dir { 3 } else { 2 };
        let leaves_max = (block_size / 16).saturating_pow(levels) / 2;
        parent.inode.flags() & !PLAIN == 0
            && index::is_indexed(self, parent)
            && parent.inode.generation() == directory.generation
            && blocks >= policy.blocks_min
            && blocks + directory.space_needed(blocks, block_size) < leaves_max
            && directory.streak as u64 >= streak
            && directory.filter_bytes() <= self.waiting.filter_bytes_max
            && Filter::bytes_for(names_max(blocks, block_size)) <= self.waiting.filter_bytes_max
    }

    /// Whether a name is in the leaves of a directory.
    fn has_name(&self, parent: &Handle, shared: &Shared, key: u64, name: &[u8]) -> Result<bool> {
        let is_known = shared.lock().filter.as_ref().map(|filter| filter.may_have(key));
        let may_have = match is_known {
            Some(may_have) => may_have,
            None => {
                let filter = self.filter_of(parent, shared)?;
                let may_have = filter.may_have(key);
                shared.lock().filter = Some(filter);
                may_have
            }
        };
        Ok(may_have && dir::find(&mut &*self, parent, name)?.is_some())
    }

    /// Reads all names of a directory. Nothing waits in it yet.
    fn filter_of(&self, parent: &Handle, shared: &Shared) -> Result<Filter> {
        let hasher = shared.lock().hasher;
        self.waiting.forget_filters();
        let blocks = parent.inode.size() >> self.volume.sb.block_size_log;
        let mut filter = Filter::new(names_max(blocks, self.volume.block_size() as u64));
        for_each_leaf(&mut &*self, parent, FileBlock(0), &mut |source, _, place, kind| {
            source.with(place, kind.of(parent.owner), |block| {
                dirent::entries(block)
                    .for_each(|entry| filter.add(table::key(hasher.hash(entry.name))));
            })?;
            Ok::<_, Error>(ControlFlow::Continue(()))
        })?;
        Ok(filter)
    }

    /// Keeps inodes for the part of a name, if it has none. False if there are none.
    fn provide_inode(&self, parent: &Handle, shared: &Shared, key: u64) -> Result<bool> {
        let part = shared.lock().part_of(key);
        if shared.lock().has_inode(part) {
            return Ok(true);
        }
        let run = match self.observe(|op| op.reserve_inodes(parent)) {
            Ok(run) => run,
            Err(Error::NoInodes | Error::NoSpace) => return Ok(false),
            Err(error) => return Err(error),
        };
        let owner = shared.lock().give(parent.ino(), part, run);
        self.waiting.runs.lock().entry(run.id()).or_default().push(owner);
        Ok(true)
    }

    /// Promises the clusters that one more name may need, if they are not. False if there are too few.
    fn provide_space(&self, parent: &Handle, shared: &Shared, blocks: u64) -> Result<bool> {
        let block_size = self.volume.block_size() as u64;
        let directory = shared.lock();
        let (needed, promised) = (directory.space_needed(blocks, block_size), directory.promised());
        drop(directory);
        if needed <= promised {
            return Ok(true);
        }
        let mut wanted = (needed - promised).max(PROMISE_LEAST as u64) + needed / 4;
        let home = self.volume.geometry.place_of(parent.ino()).map_or(Group(0), |(group, _)| group);
        let groups = &self.volume.groups;
        for group in groups.from(groups.block_spill(home)) {
            if wanted == 0 {
                break;
            }
            if groups.usable_blocks(group, Claim::Ordinary) < 2 {
                continue;
            }
            let taken = self.observe(|op| op.promise(group, wanted))?;
            wanted -= u64::from(taken);
            shared.lock().add_promise(group, taken);
        }
        let promised = shared.lock().promised();
        Ok(promised >= needed)
    }

    /// Notes a name that is entered into a directory, which is locked: it may be, or become, one in which files wait.
    pub(crate) fn note_name(op: &mut Op<'_>, dir: &Handle, name: &[u8]) -> Result<()> {
        let fs = op.fs;
        let Some(policy) = fs.waiting.policy else { return Ok(()) };
        let blocks = dir.inode.size() >> fs.volume.sb.block_size_log;
        if blocks < policy.blocks_min || dir.inode.flags() & !PLAIN != 0 {
            return Ok(());
        }
        let ino = dir.ino();
        let known = fs.waiting.dirs.get(ino);
        let known = known.filter(|shared| shared.lock().generation == dir.inode.generation());
        let shared = match known {
            Some(shared) => shared,
            None if !index::is_indexed(fs, dir) => return Ok(()),
            None => {
                let (info, _) = index::root(op, dir)?;
                let hasher = fs.volume.hasher(info.hash_version);
                let mixes = |version| matches!(version, HashVersion::HalfMd4 | HashVersion::Tea);
                let Some(hasher) = hasher.filter(|hasher| mixes(hasher.version)) else {
                    return Ok(());
                };
                let directory = Directory::new(dir.inode.generation(), hasher, policy.parts);
                fs.waiting.dirs.remember(ino, directory)
            }
        };
        let mut directory = shared.lock();
        directory.streak += 1;
        let key = table::key(directory.hasher.hash(name));
        if let Some(filter) = &mut directory.filter {
            filter.add(key);
        }
        Ok(())
    }
}

impl Op<'_> {
    /// Promises up to `wanted` clusters of a group: at most half of what is free. How many.
    fn promise(&mut self, group: Group, wanted: u64) -> Outcome<u32> {
        let at = self.hold(group)?;
        let guard = &self.group_guards[at];
        let count = u64::from(guard.usable_blocks(Claim::Ordinary) / 2).min(wanted) as u32;
        guard.group().promise(count);
        Ok(count)
    }
}

impl Waiting {
    /// Forgets that runs are a part's.
    pub(super) fn forget_runs(&self, dir: Ino, part: usize, ids: impl Iterator<Item = u32>) {
        let mut runs = self.runs.lock();
        let mut last = None;
        for id in ids {
            if last.replace(id) == Some(id) {
                continue;
            }
            if let Some(owners) = runs.get_mut(&id) {
                owners.retain(|owner| owner.dir != dir || owner.part != part as u32);
                if owners.is_empty() {
                    runs.remove(&id);
                }
            }
        }
    }
}
