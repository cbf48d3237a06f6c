//! Reading extended attributes of an inode from all their locations.

use engine::BufferRef;
use smallvec::SmallVec;
use vfs::{Corruption, Error, Result};

use crate::Ext4Core;
use crate::file;
use crate::format::address::Block;
use crate::format::inode::{GOOD_OLD_INODE_SIZE, Time, flags};
use crate::format::xattr::{self, Area, AttributeName, VALUE_SIZE_MAX, Value, XattrEntry};
use crate::inode::Handle;
use crate::kind::BlockKind;

/// Copy of an inode's slot after `extra_isize`, on the stack for the usual sizes.
pub(crate) type SlotTail = SmallVec<[u8; 128]>;

/// Returns the bytes of an inode's slot after `extra_isize`. Returns none if that field is missing or zero: the kernel
/// would overwrite attributes there with its fields when it writes the inode.
pub(crate) fn slot_tail(fs: &Ext4Core, handle: &Handle) -> Result<SlotTail> {
    let extra = usize::from(handle.inode.extra_isize());
    if extra == 0 {
        return Ok(SlotTail::new());
    }
    let table = fs.block(handle.block, BlockKind::InodeTable.plain())?;
    let start = handle.offset + GOOD_OLD_INODE_SIZE + extra;
    let end = handle.offset + usize::from(fs.volume.geometry.inode_size);
    Ok(SlotTail::from_slice(table.get(start..end).unwrap_or_default()))
}

/// Parses the attributes in the result of [`slot_tail`].
pub(crate) fn parse_slot_area<'a>(handle: &Handle, bytes: &'a [u8]) -> Result<Option<Area<'a>>> {
    Area::in_inode(bytes).map_err(|c| c.of_inode(handle.ino().0).into())
}

/// Reads the attribute block of an inode, if it has one.
pub(crate) fn block(fs: &Ext4Core, handle: &Handle) -> Result<Option<BufferRef>> {
    let block = Block(handle.inode.file_acl());
    if block.0 == 0 {
        return Ok(None);
    }
    if fs.volume.check_blocks(block, 1).is_err() {
        let problem = "its attribute block is outside the file system or part of its metadata";
        return Err(Corruption::new("inode", problem)
            .of_inode(handle.ino().0)
            .mismatch(format_args!("below {}", fs.volume.geometry.blocks_count), block)
            .into());
    }
    fs.block(block, BlockKind::Xattr.plain()).map(Some)
}

/// Reports the names of all attributes that Linux shows.
pub(crate) fn list(fs: &Ext4Core, handle: &Handle, each: &mut dyn FnMut(&[u8])) -> Result<()> {
    let mut report = |area: Area<'_>| {
        let mut name = Vec::new();
        for entry in area.entries() {
            let stored = AttributeName { index: entry.name_index, suffix: entry.name };
            if let Some(prefix) = stored.linux_prefix() {
                name.clear();
                name.extend_from_slice(prefix);
                name.extend_from_slice(entry.name);
                each(&name);
            }
        }
    };
    let slot = slot_tail(fs, handle)?;
    if let Some(area) = parse_slot_area(handle, &slot)? {
        report(area);
    }
    let copy = block(fs, handle)?.map(|block| block.to_vec());
    if let Some(block) = copy {
        report(Area::in_block(&block));
    }
    Ok(())
}

/// Returns the value of an attribute, with names and encoding as on Linux. Returns `NoAttribute` if there is none.
pub(crate) fn get(fs: &Ext4Core, handle: &Handle, name: &[u8]) -> Result<Vec<u8>> {
    let name = AttributeName::from_linux(name).ok_or(Error::NoAttribute)?;
    let value = get_stored(fs, handle, name)?.ok_or(Error::NoAttribute)?;
    if !xattr::is_acl_index(name.index) {
        return Ok(value);
    }
    let damaged = || handle.corrupt("access control list", "its entries are inconsistent");
    xattr::acl_to_linux(&value).ok_or_else(damaged)
}

/// A value, or a reference to it.
enum FoundValue {
    Value(Vec<u8>),
    Elsewhere { ino: u32, size: u32, entry_hash: u32 },
}

impl FoundValue {
    fn from(entry: XattrEntry<'_>) -> Self {
        match entry.value {
            Value::Here(value) => Self::Value(value.to_vec()),
            Value::Inode { ino, size } => Self::Elsewhere { ino, size, entry_hash: entry.hash },
        }
    }
}

/// Returns the value of an attribute in on-disk form.
pub(crate) fn get_stored(
    fs: &Ext4Core,
    handle: &Handle,
    name: AttributeName<'_>,
) -> Result<Option<Vec<u8>>> {
    let slot = slot_tail(fs, handle)?;
    let mut found =
        parse_slot_area(handle, &slot)?.and_then(|area| area.find(name)).map(FoundValue::from);
    if found.is_none() {
        // The block is released before another inode is read.
        let block = block(fs, handle)?;
        found = block.and_then(|block| Area::in_block(&block).find(name).map(FoundValue::from));
    }
    match found {
        None => Ok(None),
        Some(FoundValue::Value(value)) => Ok(Some(value)),
        Some(FoundValue::Elsewhere { ino, size, entry_hash }) => {
            read_value_inode(fs, handle, name, ino, size, entry_hash).map(Some)
        }
    }
}

/// Reads the inode that stores a value of `size` bytes.
pub(crate) fn load_value_inode(fs: &Ext4Core, ino: u32, size: u32) -> Result<Handle> {
    let bad = |problem| Corruption::new("extended attribute inode", problem).of_inode(ino.into());
    if ino < fs.volume.sb.first_ino {
        return Err(bad("an attribute refers to it, but it is reserved").into());
    }
    let holder = match fs.load(vfs::Ino(ino.into())) {
        Err(Error::NotFound) => return Err(bad("an attribute refers to it, but it is free").into()),
        other => other?,
    };
    if !holder.has_flag(flags::EA_INODE) || holder.has_flag(flags::INLINE_DATA) {
        return Err(bad("an attribute refers to it, but it does not store a value").into());
    }
    let stored_size = holder.inode.size();
    if stored_size != u64::from(size) || size > VALUE_SIZE_MAX {
        return Err(bad("wrong size").mismatch(size, stored_size).into());
    }
    Ok(holder)
}

/// Returns whether a value inode has Lustre's old form: no hash and no reference count, but the only inode that refers
/// to it.
pub(crate) fn refers_back(holder: &Handle, referrer: &Handle) -> bool {
    holder.inode.time(Time::Modify).sec as u64 & 0xffff_ffff == referrer.ino().0
        && holder.inode.generation() == referrer.inode.generation()
}

/// Reads a large value from its inode and verifies it with the hashes.
fn read_value_inode(
    fs: &Ext4Core,
    handle: &Handle,
    name: AttributeName<'_>,
    ino: u32,
    size: u32,
    entry_hash: u32,
) -> Result<Vec<u8>> {
    let holder = load_value_inode(fs, ino, size)?;
    let mut value = vec![0; size as usize];
    file::read_contents(fs, &holder, 0, &mut value)?;
    let stored = holder.inode.value_hash();
    let computed = xattr::value_hash(fs.volume.sb.checksum_seed, &value);
    if stored != computed {
        let damage = || Corruption::checksum("extended attribute inode", computed, stored);
        return if refers_back(&holder, handle) {
            Ok(value)
        } else {
            Err(damage().of_inode(ino.into()).into())
        };
    }
    let hash = stored.to_le_bytes();
    let expected = xattr::entry_hash(name.suffix, &hash);
    if entry_hash != expected && entry_hash != xattr::entry_hash_signed(name.suffix, &hash) {
        let damage = Corruption::checksum("extended attribute entry", expected, entry_hash);
        return Err(damage.of_inode(handle.ino().0).into());
    }
    Ok(value)
}
