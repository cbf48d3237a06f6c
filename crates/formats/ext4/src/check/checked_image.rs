//! Results of a check for repair. Findings are not reported.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::BlockDevice;
use vfs::check::{BitSet, Options, Silent};
use vfs::{Ino, Result};

use super::context::Context;
use super::directories::Directories;
use super::inodes::{HIDDEN, InodeState, VALUE};
use super::{superblock, survey};
use crate::format::address::{Block, Group};
use crate::format::dirent::DirRecord;
use crate::format::geometry::Geometry;
use crate::format::group::GroupDescriptor;
use crate::params::Params;

/// Properties of an inode in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeFacts {
    /// Type code of directory entries; 0 for an invalid mode.
    pub(crate) type_code: u8,
    /// True if it is a directory.
    pub(crate) is_dir: bool,
    /// True if it must not have a name: the file system's own inodes, attribute values, removed directories.
    pub(crate) is_nameless: bool,
}

/// Parents of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    /// Target of `..`; 0 if it is missing.
    pub(crate) dot_dot: u32,
    /// Directory that contains its name; 0 if none was found.
    pub(crate) parent: u32,
}

/// An image as seen by the check, read on demand.
pub(crate) struct CheckedImage {
    context: Context<'static>,
    directories: Directories,
}

impl CheckedImage {
    /// Reads superblock and descriptors. Returns `None` if there is no superblock.
    ///
    /// # Errors
    /// Like [`super::check`].
    pub(crate) fn open(device: Arc<dyn BlockDevice>, options: &Options) -> Result<Option<Self>> {
        let options = options.with_norecovery(true);
        let Some(start) = superblock::begin(device, &options, &Silent)? else { return Ok(None) };
        let mut context =
            Context::new(start.device, &Silent, options.threads, Params::of(start.sb));
        context.check_groups();
        context.find_orphans();
        Ok(Some(Self { context, directories: Directories::default() }))
    }

    /// Reads all inodes and their claims.
    pub(crate) fn survey(&mut self) {
        self.directories = survey::survey(&self.context);
    }

    /// Reads all directories. Requires [`Self::survey`].
    pub(crate) fn read_names(&self) {
        self.context.check_directories(&self.directories);
    }

    pub(crate) fn params(&self) -> &Params {
        &self.context.params
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.context.geometry()
    }

    /// Returns whether some blocks are in the file system but not in its own structures.
    pub(crate) fn can_be_of_file(&self, start: Block, len: u64) -> bool {
        self.geometry().contains(start, len) && !self.context.system.overlaps(start, len)
    }

    /// Returns whether some blocks belong to the file system's own structures.
    pub(crate) fn is_system(&self, start: Block, len: u64) -> bool {
        self.context.system.overlaps(start, len)
    }

    /// Reads one block. Returns `None` if the device fails.
    pub(crate) fn block(&self, block: Block) -> Option<Vec<u8>> {
        self.context.block(block)
    }

    /// Reads the slot of an inode. Returns `None` if there is none, or if the device fails.
    pub(crate) fn slot(&self, ino: u32) -> Option<Vec<u8>> {
        self.context.slot(ino)
    }

    /// Returns the byte offset of an inode's slot.
    pub(crate) fn slot_place(&self, ino: u32) -> Option<u64> {
        let geometry = self.geometry();
        let (group, index) = geometry.place_of(Ino(ino.into()))?;
        let facts = self.context.group(group).filter(|facts| facts.is_usable)?;
        let (block, offset) = geometry.inode_position(facts.desc.inode_table, index);
        Some(geometry.byte_of(block) + offset as u64)
    }

    /// Returns the descriptor of a group, if its positions can be used.
    pub(crate) fn descriptor(&self, group: Group) -> Option<GroupDescriptor> {
        self.context.group(group).filter(|facts| facts.is_usable).map(|facts| facts.desc)
    }

    /// Returns the number of inodes at the start of a group's table that are read.
    pub(crate) fn inodes_read(&self, group: Group) -> u32 {
        self.context.group(group).map_or(0, |facts| facts.inodes_to_read(&self.context))
    }

    /// Returns whether inode bitmap and table of a group are uninitialised.
    pub(crate) fn is_inode_uninit(&self, group: Group) -> bool {
        self.context.group(group).is_none_or(|facts| facts.is_inode_uninit(&self.context))
    }

    /// Returns whether the block bitmap of a group is uninitialised.
    pub(crate) fn is_block_uninit(&self, group: Group) -> bool {
        self.context.group(group).is_none_or(|facts| facts.is_block_uninit(&self.context))
    }

    /// Returns the clusters in use. Requires [`Self::survey`].
    pub(crate) fn used(&self) -> &BitSet {
        self.context.claims.used()
    }

    /// Returns the clusters that were claimed several times, if any.
    pub(crate) fn shared(&self) -> Option<&BitSet> {
        self.context.claims.shared()
    }

    /// Returns the clusters of a run of blocks.
    pub(crate) fn clusters(&self, start: Block, len: u64) -> Range<u64> {
        self.context.claims.clusters(start, len)
    }

    /// Returns the first block of a cluster.
    pub(crate) fn block_of(&self, cluster: u64) -> Block {
        self.context.claims.block_of(cluster)
    }

    /// Returns the block of an inode's passive translator in a file system of the Hurd, if there is one.
    pub(crate) fn translator(&self, ino: u32, slot: &[u8]) -> Option<Block> {
        self.context.subject(ino, slot).translator(&self.context)
    }

    pub(crate) fn is_orphan(&self, ino: u32) -> bool {
        self.context.orphans.contains(ino.into())
    }

    /// Returns whether an inode belongs to the file system itself and must not have a name.
    pub(crate) fn is_hidden(&self, ino: u32) -> bool {
        self.context.is_hidden(ino)
    }

    /// Returns whether an inode is reserved for a feature that this file system does not have.
    pub(crate) fn is_reserved_for_nothing(&self, ino: u32) -> bool {
        self.context.is_reserved_for_nothing(ino)
    }

    /// Returns the properties of an inode in use. Requires [`Self::survey`].
    pub(crate) fn known(&self, ino: u32) -> Option<InodeFacts> {
        let state: &InodeState = self.context.inodes.get(ino)?;
        Some(InodeFacts {
            type_code: state.type_code(),
            is_dir: state.is_dir(),
            is_nameless: state.has(VALUE | HIDDEN) || state.is_removed() && state.is_dir(),
        })
    }

    /// Returns the parents of a directory.
    pub(crate) fn directory(&self, ino: u32) -> Option<Ways> {
        self.directories.find(ino).map(ways)
    }

    /// Calls `each` with directory, name and inode of all readable entries except `.` and `..`.
    pub(crate) fn for_each_name(&self, each: &mut dyn FnMut(u32, &[u8], u32)) {
        self.for_each_entry(&mut |directory, entry| each(directory, entry.name, entry.inode));
    }

    /// Calls `each` with the directory and all readable entries except `.` and `..`.
    pub(crate) fn for_each_entry(&self, each: &mut dyn FnMut(u32, &DirRecord<'_>)) {
        let mut buffer = Vec::new();
        for directory in &self.directories.all {
            self.directories.for_each_entry(&self.context, directory, &mut buffer, &mut |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    each(directory.ino, entry);
                }
                ControlFlow::Continue(())
            });
        }
    }

    /// Calls `each` with the number and the slot of every inode that may be in use.
    pub(crate) fn for_each_slot(&self, each: &mut dyn FnMut(u32, &[u8])) {
        let geometry = self.geometry();
        let per_block = geometry.inodes_per_block();
        for group in geometry.groups() {
            let Some(desc) = self.descriptor(group) else { continue };
            let count = self.inodes_read(group);
            for at in 0..count.div_ceil(per_block) {
                let Some(bytes) = self.block(desc.inode_table.plus(at.into())) else { continue };
                let slots = bytes.chunks_exact(usize::from(geometry.inode_size));
                for (index, slot) in (at * per_block..count).zip(slots) {
                    each(geometry.ino_of(group, index).0 as u32, slot);
                }
            }
        }
    }
}

fn ways(directory: &super::directories::CheckedDirectory) -> Ways {
    Ways { dot_dot: directory.dotdot.load(Ordering::Relaxed), parent: directory.parent() }
}
