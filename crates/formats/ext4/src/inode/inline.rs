//! Inline data: file contents stored in the inode, first in `i_block`, then in an attribute.

use smallvec::SmallVec;
use vfs::{Corruption, Result};

use crate::Ext4Core;
use crate::format::inode::I_BLOCK_SIZE;
use crate::format::xattr::{AttributeName, Value};
use crate::inode::Handle;
use crate::xattr;

/// Inline data. Contents of an inode of the usual size need no heap allocation.
pub(crate) type InlineData = SmallVec<[u8; 256]>;

/// Returns the contents of an inode with inline data, cut to its size.
pub(crate) fn contents(fs: &Ext4Core, handle: &Handle) -> Result<InlineData> {
    let mut bytes = all(fs, handle)?;
    let (size, room) = (handle.inode.size(), bytes.len());
    if size > room as u64 {
        return Err(Corruption::new("inline data", "the size is larger than the stored data")
            .of_inode(handle.ino().0)
            .mismatch(format_args!("at most {room}"), size)
            .into());
    }
    bytes.truncate(size as usize);
    Ok(bytes)
}

/// Returns all bytes that the inode reserves for inline data.
pub(crate) fn all(fs: &Ext4Core, handle: &Handle) -> Result<InlineData> {
    let mut bytes = InlineData::from_slice(handle.inode.i_block());
    let slot = xattr::slot_tail(fs, handle)?;
    let area = xattr::parse_slot_area(handle, &slot)?;
    let rest = area.and_then(|area| area.find(AttributeName::INLINE_DATA));
    match rest.map(|entry| entry.value) {
        Some(Value::Here(rest)) => bytes.extend_from_slice(rest),
        Some(Value::Inode { .. }) => {
            return Err(handle.corrupt("inline data", "its rest is in another inode"));
        }
        None => {}
    }
    debug_assert!(bytes.len() >= I_BLOCK_SIZE);
    Ok(bytes)
}
