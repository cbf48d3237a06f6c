//! Attributes: random names, and values of zeros. Access control lists keep their values, which contain only numbers.

use vfs::Result;

use super::ObfuscatedCopy;
use crate::format::address::Block;
use crate::format::inode::{GOOD_OLD_INODE_SIZE, flags, stored_extra_isize};
use crate::format::xattr::{
    Area, AttributeName, BLOCK_HEADER_SIZE, INDEX_SYSTEM, NewAttribute, NewValue, Value,
    encode_block, encode_in_inode, entry_hash, is_acl_index, seal_block, value_hash, verify_block,
};
use crate::inode::Handle;

/// `e_name_index` of the context of an encrypted file.
const INDEX_ENCRYPTION: u8 = 9;
/// `h_refcount` of an attribute block.
const REFCOUNT: std::ops::Range<usize> = 4..8;
/// Maximum number of names that stay equal where they occur again.
const NAMES_MAX: usize = 1 << 20;

/// An attribute of the copy.
struct NewXattr {
    index: u8,
    name: Vec<u8>,
    value: OwnedValue,
}

/// Its value.
enum OwnedValue {
    Here(Vec<u8>),
    Inode { ino: u32, size: u32, hash: u32 },
}

impl ObfuscatedCopy<'_> {
    /// Replaces the attributes in the slot of an inode, and writes its attribute block.
    pub(super) fn attributes(&mut self, handle: &Handle, slot: &mut [u8]) -> Result<()> {
        let ino = handle.ino();
        let start = GOOD_OLD_INODE_SIZE + usize::from(stored_extra_isize(slot));
        if let Some(bytes) = slot.get_mut(start..) {
            let found = Area::in_inode(bytes)
                .map(|area| area.map(|area| self.replaced(handle, area)).unwrap_or_default());
            match found {
                Ok(attributes) => {
                    // Names and values keep their lengths, so they fit.
                    let _ = encode_in_inode(bytes, &mut new_attributes(&attributes));
                }
                Err(error) => {
                    bytes.fill(0);
                    self.copy.remark(format_args!("the attributes of inode {ino}"), &error);
                }
            }
        }
        let block = Block(handle.inode.file_acl());
        if block.0 == 0 || !self.attribute_blocks.insert(block.0) {
            return Ok(());
        }
        if let Err(error) = self.attribute_block(handle, block) {
            self.copy.remark(format_args!("the attribute block {block} of inode {ino}"), &error);
        }
        Ok(())
    }

    fn attribute_block(&mut self, handle: &Handle, block: Block) -> Result<()> {
        self.fs.volume.check_blocks(block, 1)?;
        let seed = self.fs.volume.checksums.then_some(self.fs.superblock().checksum_seed);
        let old = self.read_block(block)?;
        verify_block(&old, block, seed)?;
        let attributes = self.replaced(handle, Area::in_block(&old));
        let mut new = old.clone();
        // Names and values keep their lengths, so they fit.
        if !encode_block(&mut new, &mut new_attributes(&attributes)) {
            new[BLOCK_HEADER_SIZE..].fill(0);
        }
        new[REFCOUNT].copy_from_slice(&old[REFCOUNT]);
        if let Some(seed) = seed {
            seal_block(&mut new, block, seed);
        }
        self.copy.write(self.byte_of(block), &new)
    }

    fn replaced(&mut self, handle: &Handle, area: Area<'_>) -> Vec<NewXattr> {
        let mut attributes = Vec::new();
        for entry in area.entries() {
            let index = entry.name_index;
            let is_kept = is_acl_index(index) || index == INDEX_ENCRYPTION;
            let name = match index {
                INDEX_SYSTEM => entry.name.to_vec(),
                _ if is_kept => entry.name.to_vec(),
                _ => self.attribute_name(index, entry.name),
            };
            let value = match entry.value {
                Value::Here(value) if is_kept => OwnedValue::Here(value.to_vec()),
                Value::Here(value) if index == INDEX_SYSTEM => {
                    OwnedValue::Here(self.inline_value(handle, value))
                }
                Value::Here(value) => OwnedValue::Here(vec![0; value.len()]),
                Value::Inode { ino, size } => {
                    let hash = entry_hash(&name, &self.zeros_hash(size).to_le_bytes());
                    OwnedValue::Inode { ino, size, hash }
                }
            };
            attributes.push(NewXattr { index, name, value });
        }
        attributes
    }

    /// Returns the rest of the contents of an inode that do not fit into its block map.
    fn inline_value(&mut self, handle: &Handle, value: &[u8]) -> Vec<u8> {
        let mut new = value.to_vec();
        if handle.has_flag(flags::ENCRYPT) {
            return new;
        }
        match handle.inode.file_type() {
            Some(vfs::FileType::Directory) => self.inline_entries(handle, &mut new),
            Some(vfs::FileType::Symlink) => self.random.fill(&mut new),
            _ => new.fill(0),
        }
        new
    }

    /// Returns the hash of a value of zeros in an inode.
    pub(super) fn zeros_hash(&self, size: u32) -> u32 {
        // Verified areas have no larger values.
        let size = size.min(crate::format::xattr::VALUE_SIZE_MAX);
        value_hash(self.fs.superblock().checksum_seed, &vec![0; size as usize])
    }

    fn attribute_name(&mut self, index: u8, name: &[u8]) -> Vec<u8> {
        let key = (index, name.to_vec());
        if let Some(known) = self.attribute_names.get(&key) {
            return known.clone();
        }
        let mut new = self.random.name(name.len());
        // There are not enough short names for all.
        for _ in 0..1000 {
            if !self.used_names.contains(&(index, new.clone())) {
                break;
            }
            new = self.random.name(name.len());
        }
        if self.attribute_names.len() < NAMES_MAX {
            self.used_names.insert((index, new.clone()));
            self.attribute_names.insert(key, new.clone());
        }
        new
    }
}

fn new_attributes(attributes: &[NewXattr]) -> Vec<NewAttribute<'_>> {
    let new = attributes.iter().map(|attribute| NewAttribute {
        name: AttributeName { index: attribute.index, suffix: &attribute.name },
        value: match &attribute.value {
            OwnedValue::Here(value) => NewValue::Here(value),
            OwnedValue::Inode { ino, size, hash } => {
                NewValue::Inode { ino: *ino, size: *size, hash: *hash }
            }
        },
    });
    new.collect()
}
