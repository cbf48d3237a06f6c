//! Reports the blocks of inodes in use, in inode table order.

use std::ops::ControlFlow;

use vfs::survey::{BlockUse, FileLayout, Fragments};
use vfs::{FileType, Ino, Result};

use super::Teller;
use super::maps::BlockReporter;
use crate::format::address::{Block, Group};
use crate::format::checksum::inode_seed;
use crate::format::features::{Compat, RoCompat};
use crate::format::group::GroupFlags;
use crate::format::inode::{self, BlockOwner, I_BLOCK_SIZE, Inode, ROOT_INO, flags};
use crate::format::xattr::block_refcount;
use crate::inode::Handle;
use crate::kind;

/// Inode of the bad block list.
const BAD_BLOCKS_INO: Ino = Ino(1);
/// Inode of the blocks reserved for growth of the descriptor table. These blocks follow the table; one further block
/// contains pointers to them.
const RESIZE_INO: Ino = Ino(7);
/// Maximum number of attribute blocks to remember, so that each is reported once. Past that, the block's reference
/// count decides.
const ATTRIBUTES_MAX: usize = 1 << 18;

impl Teller<'_> {
    /// Reports the blocks of all inodes.
    pub(super) fn inodes(&mut self) -> ControlFlow<()> {
        for group in self.fs.geometry().groups() {
            self.group(group);
            self.progress(1, group)?;
        }
        ControlFlow::Continue(())
    }

    fn group(&mut self, group: Group) {
        let fs = self.fs;
        let geometry = fs.geometry();
        let desc = fs.volume.groups.places(group);
        let has_unused = fs.superblock().features.group_csum();
        if has_unused && desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return;
        }
        let unused = if has_unused { desc.itable_unused } else { 0 };
        let count = geometry.inodes_per_group.saturating_sub(unused);
        let tag = kind::BlockKind::InodeBitmap.of_group(group.0);
        let used = match fs.block(desc.inode_bitmap, tag) {
            Ok(bytes) => Some(bytes.to_vec()),
            Err(error) => {
                self.remark(format_args!("the inode bitmap of group {group}"), &error);
                None
            }
        };
        let is_used = |index: u32| {
            let byte = |bits: &Vec<u8>| bits.get(index as usize / 8).copied();
            used.as_ref()
                .is_none_or(|bits| byte(bits).is_some_and(|byte| byte >> (index % 8) & 1 == 1))
        };
        let per_block = geometry.inodes_per_block();
        for at in 0..count.div_ceil(per_block) {
            let indexes = at * per_block..count.min((at + 1) * per_block);
            if indexes.clone().any(is_used) {
                let wanted: Vec<u32> = indexes.filter(|index| is_used(*index)).collect();
                self.table_block(group, desc.inode_table.plus(at.into()), &wanted);
            }
        }
    }

    /// Reports some inodes of a group, all in one block of its table.
    fn table_block(&mut self, group: Group, block: Block, indexes: &[u32]) {
        let fs = self.fs;
        let geometry = fs.geometry();
        let size = usize::from(geometry.inode_size);
        let table = match fs.block(block, kind::BlockKind::InodeTable.plain()) {
            Ok(table) => table,
            Err(error) => {
                self.remark(format_args!("block {block} of an inode table"), &error);
                return;
            }
        };
        for index in indexes {
            let offset = (index % geometry.inodes_per_block()) as usize * size;
            let Some(slot) = table.get(offset..offset + size) else { continue };
            let ino = geometry.ino_of(group, *index);
            match self.handle(ino, slot, (block, offset)) {
                Ok(Some(handle)) => self.inode(&handle),
                Ok(None) => {}
                Err(error) => self.remark(format_args!("inode {ino}"), &error),
            }
        }
    }

    /// Returns the handle of an inode that may have blocks.
    fn handle(&self, ino: Ino, slot: &[u8], place: (Block, usize)) -> Result<Option<Handle>> {
        let inode = Inode::from_slot(slot);
        if inode.mode() == 0 && ino != BAD_BLOCKS_INO {
            return Ok(None);
        }
        let sb = self.fs.superblock();
        let seed = inode_seed(sb.checksum_seed, ino, inode.generation());
        let is_empty = || slot.iter().all(|&byte| byte == 0);
        if sb.features.metadata_csum() && !(ino == BAD_BLOCKS_INO && is_empty()) {
            let (computed, stored) = inode::slot_checksums(seed, slot);
            if computed != stored {
                return Err(vfs::Corruption::checksum("inode", computed, stored).into());
            }
        }
        let (block, offset) = place;
        Ok(Some(Handle { owner: BlockOwner { ino, seed }, inode, block, offset }))
    }

    fn inode(&mut self, handle: &Handle) {
        let fs = self.fs;
        let ino = handle.ino();
        let attributes = Block(handle.inode.file_acl());
        if attributes.0 != 0 && fs.superblock().features.compat(Compat::EXT_ATTR) {
            self.attributes(handle, attributes);
        }
        if ino == RESIZE_INO && fs.superblock().features.compat(Compat::RESIZE_INODE) {
            return self.resize_inode(handle);
        }
        if !has_map(handle) {
            return;
        }
        let kind = self.kind_of(handle);
        let mut blocks = BlockReporter { kind, last: None, fragments: Fragments::default() };
        if let Err(error) = self.map(handle, &mut blocks) {
            self.remark(format_args!("inode {ino}"), &error);
        }
        let Fragments { count: fragments, blocks, .. } = blocks.fragments;
        if matches!(kind, BlockUse::Data | BlockUse::Directories) && blocks > 0 {
            let is_dir = kind == BlockUse::Directories;
            if is_dir || handle.inode.file_type() == Some(FileType::Regular) {
                self.sink.file(FileLayout { ino, is_dir, fragments, blocks });
            }
        }
    }

    /// Returns the kind of an inode's contents.
    fn kind_of(&self, handle: &Handle) -> BlockUse {
        let (ino, sb) = (handle.ino(), self.fs.superblock());
        let raw = &sb.raw;
        let is = |number: u32| number != 0 && ino == Ino(number.into());
        let quotas = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        let has_orphans = sb.features.compat(Compat::ORPHAN_FILE);
        let has_quota = sb.features.ro_compat(RoCompat::QUOTA);
        match () {
            () if ino == BAD_BLOCKS_INO => BlockUse::Bad,
            () if is(raw.journal_inum.get()) => BlockUse::Log,
            () if has_quota && quotas.iter().any(|quota| is(quota.get())) => BlockUse::System,
            () if has_orphans && is(raw.orphan_file_inum.get()) => BlockUse::System,
            () if ino != ROOT_INO && ino < Ino(sb.first_ino.into()) => BlockUse::System,
            () if handle.has_flag(flags::EA_INODE) => BlockUse::Attributes,
            () if handle.inode.is_dir() => BlockUse::Directories,
            () => BlockUse::Data,
        }
    }

    /// Reports the attribute block of an inode, unless it was reported for another inode.
    fn attributes(&mut self, handle: &Handle, block: Block) {
        let ino = handle.ino();
        if let Err(damage) = self.fs.volume.check_blocks(block, 1) {
            return self.remark(format_args!("the attributes of inode {ino}"), &damage);
        }
        if self.attributes.contains(&block.0) {
            return;
        }
        if self.attributes.len() < ATTRIBUTES_MAX || self.is_shared(block) {
            self.attributes.insert(block.0);
        }
        let (start, end) = self.clusters(block, 1);
        self.tell(start, end - start, BlockUse::Attributes);
    }

    /// Returns whether several inodes share an attribute block.
    fn is_shared(&self, block: Block) -> bool {
        let bytes = self.fs.block(block, kind::BlockKind::Xattr.plain());
        bytes.is_ok_and(|bytes| block_refcount(&bytes) != 1)
    }

    /// Reports the pointer block only: the reserved blocks were already reported with the descriptors.
    fn resize_inode(&mut self, handle: &Handle) {
        const DOUBLY: u16 = 13;
        let pointer = crate::format::indirect::pointer(handle.inode.i_block(), DOUBLY);
        let Some(block) = pointer else { return };
        match self.fs.volume.check_blocks(block, 1) {
            Ok(()) => {
                let (start, end) = self.clusters(block, 1);
                self.tell(start, end - start, BlockUse::Maps);
            }
            Err(damage) => self.remark(format_args!("inode {RESIZE_INO}"), &damage),
        }
    }
}

/// Returns whether an inode has a block map that describes its own blocks.
fn has_map(handle: &Handle) -> bool {
    let is_of_type = match handle.inode.file_type() {
        Some(FileType::Regular | FileType::Directory) => true,
        Some(FileType::Symlink) => handle.inode.size() >= I_BLOCK_SIZE as u64,
        _ => handle.ino() == BAD_BLOCKS_INO,
    };
    is_of_type && !handle.has_flag(flags::INLINE_DATA)
}
