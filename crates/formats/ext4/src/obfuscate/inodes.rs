//! Inodes in use: random targets of links, no inline contents. Free inodes become zeros.

use vfs::{FileType, Ino, Result};

use super::ObfuscatedCopy;
use crate::format::address::Group;
use crate::format::group::GroupFlags;
use crate::format::inode::{self, I_BLOCK_SIZE, Inode, flags};
use crate::inode::Handle;
use crate::kind::BlockKind;

/// Bytes of an inode's slot with its block map or inline contents.
const I_BLOCK: std::ops::Range<usize> = 40..40 + I_BLOCK_SIZE;
/// `i_flags` in a slot.
const FLAGS: std::ops::Range<usize> = 32..36;

impl ObfuscatedCopy<'_> {
    /// Copies all inodes in use, and the names and targets that belong to them.
    pub(super) fn inodes(&mut self) -> Result<()> {
        for group in self.fs.geometry().groups() {
            for index in self.used(group) {
                let ino = self.fs.geometry().ino_of(group, index);
                self.inode(ino)?;
            }
        }
        Ok(())
    }

    /// Returns the indexes of a group's inodes in use.
    fn used(&mut self, group: Group) -> Vec<u32> {
        let fs = self.fs;
        let desc = fs.volume.groups.places(group);
        let has_unused = fs.superblock().features.group_csum();
        if has_unused && desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Vec::new();
        }
        let unused = if has_unused { desc.itable_unused } else { 0 };
        let count = fs.geometry().inodes_per_group.saturating_sub(unused);
        match fs.block(desc.inode_bitmap, BlockKind::InodeBitmap.of_group(group.0)) {
            Ok(bits) => {
                let is_used = |index: &u32| {
                    bits.get(*index as usize / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
                };
                (0..count).filter(is_used).collect()
            }
            Err(error) => {
                self.copy.remark(format_args!("the inode bitmap of group {group}"), &error);
                (0..count).collect()
            }
        }
    }

    fn inode(&mut self, ino: Ino) -> Result<()> {
        let read = self.fs.inode_slot(ino).and_then(|slot| Ok((slot, self.fs.any_inode(ino)?)));
        let (mut slot, handle) = match read {
            Ok(read) => read,
            Err(error) => {
                self.copy.remark(format_args!("inode {ino}"), &error);
                return Ok(());
            }
        };
        let seed = handle.owner.seed;
        let (computed, stored) = inode::slot_checksums(seed, &slot);
        let is_sealed = self.fs.volume.checksums && computed == stored;
        if handle.inode.mode() != 0 {
            self.contents(&handle, &mut slot)?;
            self.attributes(&handle, &mut slot)?;
        }
        if is_sealed {
            // A wrong checksum may be the error that is reported.
            inode::seal_slot(seed, &mut slot);
        }
        let (_, block, offset) = self.fs.inode_place(ino)?;
        self.copy.write(self.byte_of(block) + offset as u64, &slot)
    }

    fn contents(&mut self, handle: &Handle, slot: &mut [u8]) -> Result<()> {
        let is_inline = handle.has_flag(flags::INLINE_DATA);
        match handle.inode.file_type() {
            _ if handle.has_flag(flags::EA_INODE) => {
                let mut inode = Inode::from_slot(slot);
                inode.set_value_hash(self.zeros_hash(inode.size().try_into().unwrap_or(u32::MAX)));
                let fields = inode.as_bytes();
                slot[..fields.len()].copy_from_slice(fields);
                Ok(())
            }
            Some(FileType::Directory) if is_inline => {
                if !handle.has_flag(flags::ENCRYPT) {
                    // The number of the parent comes first.
                    let mut entries = slot[I_BLOCK][4..].to_vec();
                    self.inline_entries(handle, &mut entries);
                    slot[I_BLOCK][4..].copy_from_slice(&entries);
                }
                Ok(())
            }
            Some(FileType::Directory) => {
                if !self.directory(handle)? {
                    let flags = handle.inode.flags() & !flags::INDEX;
                    slot[FLAGS].copy_from_slice(&flags.to_le_bytes());
                }
                Ok(())
            }
            Some(FileType::Symlink) => self.link(handle, slot),
            Some(FileType::Regular) if is_inline => {
                slot[I_BLOCK].fill(0);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes a random target. Targets of encrypted links stay as they are.
    fn link(&mut self, handle: &Handle, slot: &mut [u8]) -> Result<()> {
        let size = handle.inode.size();
        let is_encrypted = handle.has_flag(flags::ENCRYPT);
        if size < I_BLOCK_SIZE as u64 || handle.has_flag(flags::INLINE_DATA) {
            if !is_encrypted {
                let len = size.min(I_BLOCK_SIZE as u64) as usize;
                let (target, rest) = slot[I_BLOCK].split_at_mut(len);
                self.random.fill(target);
                rest.fill(0);
            }
            return Ok(());
        }
        let Some(block) = self.first_block(handle.ino())? else { return Ok(()) };
        let bytes = match is_encrypted {
            true => self.read_block(block)?,
            false => self.random.name(size.min(self.fs.geometry().block_size().into()) as usize),
        };
        self.copy.write(self.byte_of(block), &bytes)
    }
}
