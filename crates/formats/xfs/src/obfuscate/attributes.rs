//! Attributes: names with the same hashes, and values of zeros. Access control lists keep their names and values, which
//! contain only numbers, and parent pointers keep their parents.

use std::collections::{HashMap, HashSet};

use vfs::{Ino, Result};

use super::ObfuscatedCopy;
use crate::format::address::Block;
use crate::format::attr::leaf::{self, Value};
use crate::format::attr::{AttrLayout, BlockType, flags, remote, shortform};
use crate::format::bytes::{be16, be32, be64};
use crate::format::checksum;
use crate::format::inode::{Fork, ForkFormat, Inode};

/// Byte offset of the checksum in leaves, nodes and remote values.
const CRC_OFFSET: usize = 12;
/// Size of an entry in the table of a leaf, in bytes.
const ENTRY_SIZE: usize = 8;
/// Start of the name of a [`shortform`] entry.
const SHORT_NAME_AT: usize = 3;
/// Magic number and header size of remote values of version 5.
const REMOTE_MAGIC: u32 = 0x5841_524d;
const REMOTE_HEADER: usize = 56;
/// Prefix of the names of access control lists.
const ACL_PREFIX: &[u8] = b"SGI_ACL_";

/// New names of the attributes of an inode, by namespace.
type Taken = HashMap<u8, HashSet<Vec<u8>>>;

impl ObfuscatedCopy<'_> {
    /// Replaces the attributes of an inode.
    pub(super) fn attributes(&mut self, ino: Ino, inode: &mut Inode) -> Result<()> {
        if !inode.has_attr_fork() {
            return Ok(());
        }
        match inode.fork_format(Fork::Attr) {
            ForkFormat::Local => {
                if let Err(error) = self.short_attributes(inode) {
                    inode.fork_mut(Fork::Attr).fill(0);
                    shortform::init(inode.fork_mut(Fork::Attr));
                    self.copy.remark(format_args!("the attributes of inode {ino}"), &error);
                }
            }
            ForkFormat::Extents | ForkFormat::Btree => {
                let mut taken = Taken::new();
                for (_, block) in self.blocks(ino, Fork::Attr) {
                    self.attribute_block(block, &mut taken)?;
                }
            }
            ForkFormat::Device | ForkFormat::MetaBtree => {}
        }
        Ok(())
    }

    fn short_attributes(&mut self, inode: &mut Inode) -> Result<()> {
        let old = inode.fork(Fork::Attr).to_vec();
        let mut taken = Taken::new();
        let total = shortform::total(&old)?;
        let fork = inode.fork_mut(Fork::Attr);
        for entry in shortform::entries(&old)? {
            let entry = entry?;
            let name = self.attribute_name(entry.flags, entry.name, entry.value, &mut taken);
            fork[entry.at + SHORT_NAME_AT..][..name.len()].copy_from_slice(&name);
            if !keeps_value(entry.flags, entry.name) {
                fork[entry.value_at()..][..entry.value.len()].fill(0);
            }
        }
        fork[total..].fill(0);
        Ok(())
    }

    fn attribute_block(&mut self, block: Block, taken: &mut Taken) -> Result<()> {
        let layout = AttrLayout::new(self.fs.geometry());
        let mut bytes = self.copy.read(self.byte_of(block), layout.block_size)?;
        match layout.block_type(&bytes) {
            Some(BlockType::Leaf) if leaf::verify(layout, &bytes).is_ok() => {
                self.leaf(layout, &mut bytes, taken);
            }
            Some(BlockType::Node) => return self.copy.write(self.byte_of(block), &bytes),
            None if layout.crc && be32(&bytes, 0) == REMOTE_MAGIC => {
                bytes[REMOTE_HEADER..].fill(0);
            }
            // A value of version 4, or a damaged leaf.
            _ => return Ok(()),
        }
        if layout.crc {
            checksum::seal(&mut bytes, CRC_OFFSET);
        }
        self.copy.write(self.byte_of(block), &bytes)
    }

    /// Replaces names and values of a verified leaf, and clears its unused bytes.
    fn leaf(&mut self, layout: AttrLayout, bytes: &mut [u8], taken: &mut Taken) {
        let old = bytes.to_vec();
        let header = layout.leaf_header_size();
        let table_end = (header + leaf::count(layout, &old) * ENTRY_SIZE).min(bytes.len());
        bytes[table_end..].fill(0);
        for (nth, entry) in leaf::entries(layout, &old).enumerate() {
            let start = usize::from(be16(&old, header + nth * ENTRY_SIZE + 4));
            let value = match entry.value {
                Value::Local(value) => value,
                Value::Remote(remote::ValueLocation { .. }) => &[],
            };
            let name = self.attribute_name(entry.flags, entry.name, value, taken);
            // Lengths, or the location of a value.
            let name_at = start + if entry.flags & flags::LOCAL != 0 { 3 } else { 9 };
            bytes[start..name_at].copy_from_slice(&old[start..name_at]);
            bytes[name_at..][..name.len()].copy_from_slice(&name);
            if keeps_value(entry.flags, entry.name) {
                bytes[name_at + name.len()..][..value.len()].copy_from_slice(value);
            }
        }
    }

    fn attribute_name(
        &mut self,
        flags: u8,
        name: &[u8],
        value: &[u8],
        taken: &mut Taken,
    ) -> Vec<u8> {
        if flags & flags::PARENT != 0 {
            // The value begins with the number of the parent.
            let dir = if value.len() >= 8 { be64(value, 0) } else { 0 };
            return self.names.known(dir, name);
        }
        if keeps_value(flags, name) {
            return name.to_vec();
        }
        // Attributes of different namespaces may have one name.
        self.names.of(None, name, taken.entry(flags & flags::NAMESPACE).or_default())
    }
}

/// Returns whether an attribute keeps its value: access control lists, and parent pointers.
fn keeps_value(flags: u8, name: &[u8]) -> bool {
    flags & flags::PARENT != 0 || flags & flags::ROOT != 0 && name.starts_with(ACL_PREFIX)
}
