//! Inline directories (`inline_data`) when inodes get new numbers. They have neither blocks nor an entry `.`, and the
//! parent's number is stored instead of `..`.

use vfs::Result;

use super::mover::Mover;
use crate::format::dirent::{self, INLINE_PARENT_SIZE};
use crate::format::inode::{GOOD_OLD_INODE_SIZE, I_BLOCK_SIZE, Inode};
use crate::format::xattr::{self, Area, AttributeName, Value};

/// Returns the parent of an inline directory.
pub(super) fn parent(inode: &Inode) -> u32 {
    let bytes = inode.i_block();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Returns the inodes of all entries of an inline directory, with duplicates. `slot` is that of the directory.
pub(super) fn names(slot: &[u8]) -> Vec<u32> {
    let inode = Inode::from_slot(slot);
    let mut found = inodes(&inode.i_block()[INLINE_PARENT_SIZE..]);
    let tail = tail_start(&inode).and_then(|start| slot.get(start..));
    let area = tail.and_then(|tail| Area::in_inode(tail).ok().flatten());
    let rest = area.and_then(|area| area.find(AttributeName::INLINE_DATA));
    if let Some(Value::Here(rest)) = rest.map(|entry| entry.value) {
        found.extend(inodes(rest));
    }
    found
}

fn inodes(bytes: &[u8]) -> Vec<u32> {
    dirent::entries(bytes).map(|record| record.inode).collect()
}

/// Returns the offset of attributes in a slot, if it may have any.
fn tail_start(inode: &Inode) -> Option<usize> {
    let extra = usize::from(inode.extra_isize());
    (extra > 0).then_some(GOOD_OLD_INODE_SIZE + extra)
}

/// Changes records of inode `old` to `new`.
fn rename(bytes: &mut [u8], old: u32, new: u32) {
    let records = dirent::entries(bytes).filter(|record| record.inode == old);
    for at in records.map(|record| record.offset).collect::<Vec<_>>() {
        bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
    }
}

impl Mover {
    /// Changes the inode of entries in an inline directory.
    pub(super) fn rename_inline(&mut self, dir: u32, old: u32, new: u32) -> Result<()> {
        let mut slot = self.slot(dir)?;
        let mut inode = Inode::from_slot(&slot);
        rename(&mut inode.i_block_mut()[INLINE_PARENT_SIZE..I_BLOCK_SIZE], old, new);
        put_fields(&inode, &mut slot);
        if let Some(tail) = tail_start(&inode).and_then(|start| slot.get_mut(start..)) {
            xattr::edit_in_inode(tail, AttributeName::INLINE_DATA, |rest| rename(rest, old, new));
        }
        self.put_slot(dir, slot)
    }

    /// Changes the parent of an inline directory.
    pub(super) fn set_inline_parent(&mut self, dir: u32, parent: u32) -> Result<()> {
        let mut slot = self.slot(dir)?;
        let mut inode = Inode::from_slot(&slot);
        inode.i_block_mut()[..INLINE_PARENT_SIZE].copy_from_slice(&parent.to_le_bytes());
        put_fields(&inode, &mut slot);
        self.put_slot(dir, slot)
    }
}

fn put_fields(inode: &Inode, slot: &mut [u8]) {
    let count = inode.as_bytes().len().min(slot.len());
    slot[..count].copy_from_slice(&inode.as_bytes()[..count]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_both_places_lead_elsewhere() {
        let mut first = [0; I_BLOCK_SIZE];
        first[..4].copy_from_slice(&2_u32.to_le_bytes());
        dirent::write_record(&mut first[4..], I_BLOCK_SIZE - 4, 77, 2, b"one");
        let mut rest = [0; 32];
        dirent::write_record(&mut rest, 32, 78, 1, b"two");
        let mut slot = vec![0; 256];
        let mut inode = Inode::from_slot(&slot);
        inode.i_block_mut().copy_from_slice(&first);
        put_fields(&inode, &mut slot);
        slot[128..130].copy_from_slice(&32_u16.to_le_bytes());
        let value = xattr::NewValue::Here(&rest);
        let attribute = xattr::NewAttribute { name: AttributeName::INLINE_DATA, value };
        assert!(xattr::encode_in_inode(&mut slot[160..], &mut [attribute]));
        assert_eq!(names(&slot), [77, 78]);
        assert_eq!(parent(&Inode::from_slot(&slot)), 2);
        let rewrote = xattr::edit_in_inode(&mut slot[160..], AttributeName::INLINE_DATA, |rest| {
            rename(rest, 78, 12);
        });
        assert!(rewrote);
        assert_eq!(names(&slot), [77, 12]);
        assert!(!xattr::edit_in_inode(&mut slot[200..], AttributeName::INLINE_DATA, |_| ()));
    }
}
