//! Extended attributes of an inode, wherever they are kept.

use vfs::{Corruption, Error, Result};

use super::inode::{self, Handle};
use super::{Blocks, Kind, file};
use crate::format::address::Block;
use crate::format::inode::{GOOD_OLD_INODE_SIZE, Time, flags};
use crate::format::xattr::{self, Area, AttributeName, Entry, VALUE_SIZE_MAX, Value};

/// The bytes of an inode's slot behind `extra_isize`.
pub(crate) fn slot_area<R: Blocks>(reader: &R, handle: &Handle) -> Result<Vec<u8>> {
    let start = GOOD_OLD_INODE_SIZE + usize::from(handle.inode.extra_isize());
    let table = reader.block(handle.block, Kind::InodeTable, handle.owner)?;
    let slot = inode::slot(reader, &table, handle.offset).unwrap_or_default();
    Ok(slot.get(start..).unwrap_or_default().to_vec())
}

/// The attributes in what [`slot_area`] gave.
pub(crate) fn parse_slot_area<'a>(handle: &Handle, bytes: &'a [u8]) -> Result<Option<Area<'a>>> {
    Area::in_inode(bytes).map_err(|c| c.of_inode(handle.ino().0).into())
}

/// The block of attributes outside the inode, if it has one.
fn block<'r, R: Blocks>(reader: &'r R, handle: &Handle) -> Result<Option<R::Ref<'r>>> {
    let block = Block(handle.inode.file_acl());
    if block.0 == 0 {
        return Ok(None);
    }
    if !reader.geometry().contains(block, 1) {
        return Err(Corruption::new("inode", "its attribute block is outside the file system")
            .of_inode(handle.ino().0)
            .mismatch(format_args!("below {}", reader.geometry().blocks_count), block)
            .into());
    }
    reader.block(block, Kind::Xattr, handle.owner).map(Some)
}

/// Reports the names of all attributes that Linux shows.
pub(crate) fn list<R: Blocks>(
    reader: &R,
    handle: &Handle,
    each: &mut dyn FnMut(&[u8]),
) -> Result<()> {
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
    let slot = slot_area(reader, handle)?;
    if let Some(area) = parse_slot_area(handle, &slot)? {
        report(area);
    }
    let copy = block(reader, handle)?.map(|block| block.to_vec());
    if let Some(block) = copy {
        report(Area::in_block(&block));
    }
    Ok(())
}

/// The value of an attribute, named and encoded as Linux does. `NoAttribute` if there is none.
pub(crate) fn get<R: Blocks>(reader: &R, handle: &Handle, name: &[u8]) -> Result<Vec<u8>> {
    let name = AttributeName::from_linux(name).ok_or(Error::NoAttribute)?;
    let value = get_stored(reader, handle, name)?.ok_or(Error::NoAttribute)?;
    if !xattr::is_acl_index(name.index) {
        return Ok(value);
    }
    let damaged = || handle.corrupt("access control list", "its entries do not add up");
    xattr::acl_to_linux(&value).ok_or_else(damaged)
}

/// A found value, or where it is.
enum Found {
    Value(Vec<u8>),
    Elsewhere { ino: u32, size: u32, entry_hash: u32 },
}

impl Found {
    fn from(entry: Entry<'_>) -> Self {
        match entry.value {
            Value::Here(value) => Self::Value(value.to_vec()),
            Value::Inode { ino, size } => Self::Elsewhere { ino, size, entry_hash: entry.hash },
        }
    }
}

/// The value of an attribute as stored.
pub(crate) fn get_stored<R: Blocks>(
    reader: &R,
    handle: &Handle,
    name: AttributeName<'_>,
) -> Result<Option<Vec<u8>>> {
    let slot = slot_area(reader, handle)?;
    let mut found =
        parse_slot_area(handle, &slot)?.and_then(|area| area.find(name)).map(Found::from);
    if found.is_none() {
        // The block is let go before another inode is read.
        let block = block(reader, handle)?;
        found = block.and_then(|block| Area::in_block(&block).find(name).map(Found::from));
    }
    match found {
        None => Ok(None),
        Some(Found::Value(value)) => Ok(Some(value)),
        Some(Found::Elsewhere { ino, size, entry_hash }) => {
            read_value_inode(reader, handle, name, ino, size, entry_hash).map(Some)
        }
    }
}

/// Reads a large value from its inode and checks it against the hashes.
fn read_value_inode<R: Blocks>(
    reader: &R,
    handle: &Handle,
    name: AttributeName<'_>,
    ino: u32,
    size: u32,
    entry_hash: u32,
) -> Result<Vec<u8>> {
    let bad = |problem| Corruption::new("extended attribute inode", problem).of_inode(ino.into());
    let holder = match inode::load(reader, vfs::Ino(ino.into())) {
        Err(Error::NotFound) => return Err(bad("an attribute refers to it, but it is free").into()),
        other => other?,
    };
    if !holder.has_flag(flags::EA_INODE) || holder.has_flag(flags::INLINE_DATA) {
        return Err(bad("an attribute refers to it, but it holds none").into());
    }
    let stored_size = holder.inode.size();
    if stored_size != u64::from(size) || size > VALUE_SIZE_MAX {
        return Err(bad("wrong size").mismatch(size, stored_size).into());
    }
    let mut value = vec![0; size as usize];
    file::read_contents(reader, &holder, 0, &mut value)?;
    // Lustre's first form has no hashes, but names the inode that refers to it.
    let refers_back = holder.inode.time(Time::Modify).sec as u64 & 0xffff_ffff == handle.ino().0
        && holder.inode.generation() == handle.inode.generation();
    let stored = holder.inode.time(Time::Access).sec as u32;
    let computed = xattr::value_hash(reader.superblock().checksum_seed, &value);
    if stored != computed {
        let damage = || Corruption::checksum("extended attribute inode", computed, stored);
        return if refers_back { Ok(value) } else { Err(damage().of_inode(ino.into()).into()) };
    }
    let hash = stored.to_le_bytes();
    let expected = xattr::entry_hash(name.suffix, &hash);
    if entry_hash != expected && entry_hash != xattr::entry_hash_signed(name.suffix, &hash) {
        let damage = Corruption::checksum("extended attribute entry", expected, entry_hash);
        return Err(damage.of_inode(handle.ino().0).into());
    }
    Ok(value)
}
