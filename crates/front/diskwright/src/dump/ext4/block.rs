//! Block: its type, allocation state and bytes.

use ext4::format::address::{Block, Group};
use ext4::format::group::{GroupDescriptor, GroupFlags};

use super::{Dump, Source};
use crate::dump::bytes::hex_lines;

impl Source {
    pub(super) fn block_contents(&self, block: Block) -> vfs::Result<Dump> {
        let bytes = self.bytes(block)?;
        let mut dump = Dump::default();
        dump.fields.add("block", block.0);
        dump.fields.add("byte", self.geometry().byte_of(block));
        if block.0 >= u64::from(self.geometry().first_data_block) {
            let group = self.geometry().group_of(block);
            dump.fields.add("group", group.0);
            match self.in_use(block, group)? {
                Some(in_use) => dump.fields.add("in_use", in_use),
                None => dump.problem("the group's descriptor or bitmap is damaged"),
            }
        }
        dump.fields.add("role", self.role(block)?);
        dump.fields.add("bytes", hex_lines(&bytes));
        Ok(dump)
    }

    /// Returns whether a block is allocated, or `None` if unknown.
    fn in_use(&self, block: Block, group: Group) -> vfs::Result<Option<bool>> {
        let Some(descriptor) = self.descriptor(group)?.0 else { return Ok(None) };
        if descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return Ok(Some(self.role(block)? != "data, or metadata of a file"));
        }
        let bitmap = self.bytes(descriptor.block_bitmap)?;
        if descriptor.check_block_bitmap(&bitmap, self.sb(), group).is_err() {
            return Ok(None);
        }
        let bit = self.geometry().bit_of(block) as usize;
        Ok(bitmap.get(bit / 8).map(|byte| byte >> (bit % 8) & 1 == 1))
    }

    /// Returns the type of a block according to the layout.
    fn role(&self, block: Block) -> vfs::Result<&'static str> {
        let geometry = self.geometry();
        if geometry.superblock_of(Group(0)) == Some(block) {
            return Ok("superblock");
        }
        for group in geometry.groups() {
            if geometry.base_metadata(group).contains(&block) {
                return Ok("superblock copy, group descriptors, or blocks reserved for them");
            }
            let Some(descriptor) = self.descriptor(group)?.0 else { continue };
            if let Some(role) = role_in(&descriptor, block, geometry.itable_blocks()) {
                return Ok(role);
            }
        }
        Ok("data, or metadata of a file")
    }
}

fn role_in(d: &GroupDescriptor, block: Block, itable_blocks: u32) -> Option<&'static str> {
    let table = d.inode_table.0..d.inode_table.0 + u64::from(itable_blocks);
    match () {
        () if block == d.block_bitmap => Some("block bitmap"),
        () if block == d.inode_bitmap => Some("inode bitmap"),
        () if table.contains(&block.0) => Some("inode table"),
        () => None,
    }
}
