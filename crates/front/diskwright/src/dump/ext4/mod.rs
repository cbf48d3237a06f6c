//! Structures of ext2, ext3 and ext4.

mod block;
mod directory;
mod inode;
mod journal;
pub(super) mod superblock;

use ext4::Ext4;
use ext4::format::address::{Block, Group};
use ext4::format::features::{Incompat, RoCompat};
use ext4::format::geometry::Geometry;
use ext4::format::group::{GroupDescriptor, GroupFlags};
use ext4::format::superblock::Superblock;
use vfs::{Error as FsError, Ino};

use super::{Dump, DumpValue, Fields, Structures};

/// Image to dump.
pub(super) type Source = super::Source<Ext4>;

impl Source {
    fn sb(&self) -> &Superblock {
        self.fs.superblock()
    }

    fn geometry(&self) -> &Geometry {
        self.fs.geometry()
    }

    /// Returns the raw bytes of a block.
    fn bytes(&self, block: Block) -> vfs::Result<Vec<u8>> {
        if block.0 >= self.geometry().blocks_count {
            return Err(FsError::Invalid("no such block; the superblock has the number of blocks"));
        }
        let mut bytes = vec![0; self.geometry().block_size() as usize];
        self.device.read_at(self.geometry().byte_of(block), &mut bytes).map_err(FsError::Device)?;
        Ok(bytes)
    }

    /// Reads a group descriptor. Returns it, if it can be parsed, and its damage.
    fn descriptor(&self, group: Group) -> vfs::Result<(Option<GroupDescriptor>, Option<String>)> {
        let (block, offset) = self.geometry().descriptor_position(group);
        let bytes = self.bytes(block)?;
        let size = usize::from(self.sb().desc_size);
        let bytes = bytes.get(offset..offset + size).unwrap_or_default();
        let damage = match GroupDescriptor::parse(bytes, self.sb(), group) {
            Ok(descriptor) => return Ok((Some(descriptor), None)),
            Err(damage) => damage.to_string(),
        };
        let mut lenient = self.sb().clone();
        lenient.features.ro_compat.remove(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM);
        Ok((GroupDescriptor::parse(bytes, &lenient, group).ok(), Some(damage)))
    }

    fn group_fields(&self, number: u32) -> vfs::Result<Dump> {
        let geometry = self.geometry();
        if number >= geometry.groups_count {
            return Err(FsError::Invalid("no such group; the superblock has the number of groups"));
        }
        let group = Group(number);
        let mut dump = Dump::default();
        let (block, offset) = geometry.descriptor_position(group);
        let fields = &mut dump.fields;
        fields.add("group", number);
        fields.add("descriptor_block", block.0);
        fields.add("descriptor_offset", offset as u64);
        fields.add("first_block", geometry.first_block(group).0);
        fields.add("blocks", geometry.blocks_in(group));
        fields.add("has_superblock", geometry.has_superblock(group));
        let (descriptor, damage) = self.descriptor(group)?;
        if let Some(d) = &descriptor {
            fields.add("block_bitmap", d.block_bitmap.0);
            fields.add("inode_bitmap", d.inode_bitmap.0);
            fields.add("inode_table", d.inode_table.0);
            fields.add("free_blocks_count", d.free_blocks);
            fields.add("free_inodes_count", d.free_inodes);
            fields.add("used_dirs_count", d.used_dirs);
            fields.add("itable_unused", d.itable_unused);
            fields.add("flags", flag_names(d.flags));
            fields.hex("block_bitmap_csum", d.block_bitmap_csum);
            fields.hex("inode_bitmap_csum", d.inode_bitmap_csum);
        }
        match damage {
            Some(damage) => dump.problem(damage),
            None if self.sb().features.group_csum() => dump.fields.add("checksum", "right"),
            None => dump.fields.add("checksum", "none"),
        }
        if let Some(d) = descriptor {
            self.bitmaps(group, &d, &mut dump)?;
        }
        Ok(dump)
    }

    /// Checks the initialised bitmaps of a group.
    fn bitmaps(&self, group: Group, d: &GroupDescriptor, dump: &mut Dump) -> vfs::Result<()> {
        if !d.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let bitmap = self.bytes(d.block_bitmap)?;
            if let Err(damage) = d.check_block_bitmap(&bitmap, self.sb(), group) {
                dump.problem(damage.at_block(d.block_bitmap.0));
            }
        }
        if !d.flags.contains(GroupFlags::INODE_UNINIT) {
            let bitmap = self.bytes(d.inode_bitmap)?;
            if let Err(damage) = d.check_inode_bitmap(&bitmap, self.sb(), group) {
                dump.problem(damage.at_block(d.inode_bitmap.0));
            }
        }
        Ok(())
    }

    /// Returns the checksum seed of an inode's metadata, or `None` without checksums.
    fn seed_of(&self, ino: Ino, generation: u32) -> Option<u32> {
        let sb = self.sb();
        let seed = ext4::format::checksum::inode_seed(sb.checksum_seed, ino, generation);
        sb.features.metadata_csum().then_some(seed)
    }

    fn has_filetype(&self) -> bool {
        self.sb().features.incompat(Incompat::FILETYPE)
    }
}

fn flag_names(flags: GroupFlags) -> Vec<String> {
    flags.iter_names().map(|(name, _)| name.to_owned()).collect()
}

impl Structures for Source {
    fn group(&self, number: u32) -> vfs::Result<Dump> {
        self.group_fields(number)
    }

    fn inode(&self, ino: Ino) -> vfs::Result<Dump> {
        self.inode_fields(ino)
    }

    fn directory(&self, ino: Ino) -> vfs::Result<Dump> {
        self.directory_blocks(ino)
    }

    fn block(&self, number: u64) -> vfs::Result<Dump> {
        self.block_contents(Block(number))
    }

    fn journal(&self) -> vfs::Result<Dump> {
        self.journal_blocks()
    }
}
