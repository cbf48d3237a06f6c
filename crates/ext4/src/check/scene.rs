//! What a check learned of an image, for those who repair it: nobody is told of findings.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::check::{BitSet, Finding, Observer, Options};
use blockdev::BlockDevice;
use vfs::{Ino, Result};

use super::context::Context;
use super::directories::Directories;
use super::inodes::{HIDDEN, State, VALUE};
use super::{superblock, survey};
use crate::format::address::{Block, Group};
use crate::format::geometry::Geometry;
use crate::format::group::GroupDescriptor;
use crate::params::Params;

struct Nobody;

impl Observer for Nobody {
    fn found(&self, _: Finding) {}
}

/// What is known of an inode in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The type as entries of directories have it; 0 for a mode that names none.
    pub(crate) type_code: u8,
    /// Whether it is a directory.
    pub(crate) is_dir: bool,
    /// True if no name may lead to it: the file system's own inodes, values of attributes, removed directories.
    pub(crate) is_nameless: bool,
}

/// Where a directory's way up leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    /// Where `..` leads; 0 if it is not there.
    pub(crate) dot_dot: u32,
    /// The directory with its name; 0 if none was met.
    pub(crate) parent: u32,
}

/// An image as a check sees it, read as far as it is needed.
pub(crate) struct Scene {
    context: Context<'static>,
    directories: Directories,
}

impl Scene {
    /// Reads superblock and descriptors. `None` if there is no superblock.
    ///
    /// # Errors
    /// As [`super::check`].
    pub(crate) fn open(device: Arc<dyn BlockDevice>, options: &Options) -> Result<Option<Self>> {
        let options = options.with_norecovery(true);
        let Some(start) = superblock::begin(device, &options, &Nobody)? else { return Ok(None) };
        let mut context =
            Context::new(start.device, &Nobody, options.threads, Params::of(start.sb));
        context.check_groups();
        context.find_orphans();
        Ok(Some(Self { context, directories: Directories::default() }))
    }

    /// Reads all inodes and what they claim.
    pub(crate) fn survey(&mut self) {
        self.directories = survey::survey(&self.context);
    }

    /// Reads all directories, after [`Self::survey`].
    pub(crate) fn read_names(&self) {
        self.context.check_directories(&self.directories);
    }

    pub(crate) fn params(&self) -> &Params {
        &self.context.params
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.context.geometry()
    }

    /// Whether some blocks lie in the file system, and not in its own structures.
    pub(crate) fn can_be_of_file(&self, start: Block, len: u64) -> bool {
        self.geometry().contains(start, len) && !self.context.system.overlaps(start, len)
    }

    /// Whether some blocks are of the file system's own structures.
    pub(crate) fn is_system(&self, start: Block, len: u64) -> bool {
        self.context.system.overlaps(start, len)
    }

    /// One block; `None` if the device fails.
    pub(crate) fn block(&self, block: Block) -> Option<Vec<u8>> {
        self.context.block(block)
    }

    /// The slot of an inode; `None` if there is none, or the device fails.
    pub(crate) fn slot(&self, ino: u32) -> Option<Vec<u8>> {
        self.context.slot(ino)
    }

    /// The byte at which the slot of an inode starts.
    pub(crate) fn slot_place(&self, ino: u32) -> Option<u64> {
        let geometry = self.geometry();
        let (group, index) = geometry.place_of(Ino(ino.into()))?;
        let facts = self.context.group(group).filter(|facts| facts.is_usable)?;
        let (block, offset) = geometry.inode_position(facts.desc.inode_table, index);
        Some(geometry.byte_of(block) + offset as u64)
    }

    /// The descriptor of a group, if its places can be used.
    pub(crate) fn descriptor(&self, group: Group) -> Option<GroupDescriptor> {
        self.context.group(group).filter(|facts| facts.is_usable).map(|facts| facts.desc)
    }

    /// The inodes of a group that are read, all at the start of its table.
    pub(crate) fn inodes_read(&self, group: Group) -> u32 {
        self.context.group(group).map_or(0, |facts| facts.inodes_to_read(&self.context))
    }

    /// Whether inode bitmap and table of a group are not initialised.
    pub(crate) fn is_inode_uninit(&self, group: Group) -> bool {
        self.context.group(group).is_none_or(|facts| facts.is_inode_uninit(&self.context))
    }

    /// Whether the block bitmap of a group is not initialised.
    pub(crate) fn is_block_uninit(&self, group: Group) -> bool {
        self.context.group(group).is_none_or(|facts| facts.is_block_uninit(&self.context))
    }

    /// Clusters in use, after [`Self::survey`].
    pub(crate) fn used(&self) -> &BitSet {
        self.context.claims.used()
    }

    /// Clusters that were claimed several times, if there are any.
    pub(crate) fn shared(&self) -> Option<&BitSet> {
        self.context.claims.shared()
    }

    /// The clusters that some blocks lie in.
    pub(crate) fn clusters(&self, start: Block, len: u64) -> Range<u64> {
        self.context.claims.clusters(start, len)
    }

    /// The first block of a cluster.
    pub(crate) fn block_of(&self, cluster: u64) -> Block {
        self.context.claims.block_of(cluster)
    }

    pub(crate) fn is_orphan(&self, ino: u32) -> bool {
        self.context.orphans.contains(ino.into())
    }

    /// Whether an inode is the file system's own, so that no name leads to it.
    pub(crate) fn is_hidden(&self, ino: u32) -> bool {
        self.context.is_hidden(ino)
    }

    /// Whether an inode is reserved for something that this file system does not have.
    pub(crate) fn is_reserved_for_nothing(&self, ino: u32) -> bool {
        self.context.is_reserved_for_nothing(ino)
    }

    /// An inode in use, after [`Self::survey`].
    pub(crate) fn known(&self, ino: u32) -> Option<Known> {
        let state: &State = self.context.inodes.get(ino)?;
        Some(Known {
            type_code: state.type_code(),
            is_dir: state.is_dir(),
            is_nameless: state.has(VALUE | HIDDEN) || state.is_removed() && state.is_dir(),
        })
    }

    /// A directory.
    pub(crate) fn directory(&self, ino: u32) -> Option<Ways> {
        self.directories.find(ino).map(ways)
    }

    /// Calls `each` with directory, name and inode of all entries that can be read, `.` and `..` left out.
    pub(crate) fn for_each_name(&self, each: &mut dyn FnMut(u32, &[u8], u32)) {
        let mut buffer = Vec::new();
        for directory in &self.directories.all {
            self.directories.for_each_entry(
                &self.context,
                directory,
                &mut buffer,
                &mut |name, ino| {
                    if !matches!(name, b"." | b"..") {
                        each(directory.ino, name, ino);
                    }
                    ControlFlow::Continue(())
                },
            );
        }
    }

    /// Calls `each` with number and slot of every inode that may be in use.
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

fn ways(directory: &super::directories::Directory) -> Ways {
    Ways { dot_dot: directory.dotdot.load(Ordering::Relaxed), parent: directory.parent() }
}
