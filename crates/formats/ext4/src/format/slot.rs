//! Rules for every inode table slot in use, independent of the kind of inode. They apply before writing. Loading is
//! less strict, because a damaged inode may still be partly usable; but it is never written in that state.

use engine::Corruption;
use vfs::FileType;

use super::extent::ExtentNode;
use super::geometry::Geometry;
use super::indirect;
use super::inode::{GOOD_OLD_INODE_SIZE, I_BLOCK_SIZE, Inode, flags};
use super::xattr::Area;

/// Base-2 logarithm of the maximum number of blocks of a file: extents use 32 bits.
const FILE_BLOCKS_LOG: u32 = 32;

/// Verifies a slot before it is written, except for its checksum. A slot without a mode and without links is free, and
/// its other contents do not matter.
///
/// # Errors
/// The first fault; the caller adds the inode number.
pub fn verify_structure(geometry: &Geometry, slot: &[u8]) -> Result<(), Corruption> {
    let inode = Inode::from_slot(slot);
    if inode.mode() == 0 && inode.links_count() == 0 {
        return Ok(());
    }
    let bad = |problem| Corruption::new("inode", problem);
    let Some(file_type) = inode.file_type() else {
        let found = format!("{:#o}", inode.mode());
        return Err(bad("its mode has no valid file type").mismatch("a type", found));
    };
    let attributes = verify_extra_isize(&inode, slot)?;
    if inode.file_acl() >= geometry.blocks_count {
        let expected = format_args!("below {}", geometry.blocks_count).to_string();
        return Err(bad("block of its attributes").mismatch(expected, inode.file_acl()));
    }
    Area::in_inode(attributes)?;
    match file_type {
        FileType::Regular | FileType::Directory | FileType::Symlink => {
            verify_contents(geometry, &inode, file_type, slot.len())
        }
        _ => Ok(()),
    }
}

/// Checks the size of the fixed fields. Returns the bytes after them, which may contain attributes.
fn verify_extra_isize<'s>(inode: &Inode, slot: &'s [u8]) -> Result<&'s [u8], Corruption> {
    let extra = usize::from(inode.extra_isize());
    match slot.get(GOOD_OLD_INODE_SIZE + extra..) {
        Some(rest) if extra.is_multiple_of(4) => Ok(rest),
        _ => {
            let range = format!("a multiple of 4 up to {}", slot.len() - GOOD_OLD_INODE_SIZE);
            Err(Corruption::new("inode", "extra_isize").mismatch(range, extra))
        }
    }
}

/// Checks `i_block` and the size according to flags and type.
fn verify_contents(
    geometry: &Geometry,
    inode: &Inode,
    file_type: FileType,
    slot_size: usize,
) -> Result<(), Corruption> {
    let size = inode.size();
    let too_large = |max: u64| {
        let damage = Corruption::new("inode", "size");
        Err(damage.mismatch(format_args!("at most {max}"), size))
    };
    if inode.has_flag(flags::INLINE_DATA) {
        let most = slot_size as u64;
        return if size > most { too_large(most) } else { Ok(()) };
    }
    if file_type == FileType::Symlink && size < I_BLOCK_SIZE as u64 {
        return Ok(());
    }
    if !inode.has_flag(flags::EXTENTS) {
        return indirect::verify(inode.i_block(), geometry.blocks_count);
    }
    let most = 1 << (FILE_BLOCKS_LOG + geometry.block_size_log);
    if file_type == FileType::Regular && size > most {
        return too_large(most);
    }
    let root = ExtentNode::parse(inode.i_block(), None)?;
    root.check_places(0..root.len(), geometry.blocks_count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mkfs::{self, Options};

    fn geometry() -> Geometry {
        Geometry::new(mkfs::plan(&Options::new(8 << 20)).unwrap().superblock())
    }

    proptest! {
        #[test]
        fn any_slot_is_checked_without_harm(
            slot in prop_oneof![
                proptest::collection::vec(any::<u8>(), 128),
                proptest::collection::vec(prop_oneof![Just(0), any::<u8>()], 256),
            ]
        ) {
            let _ = verify_structure(&geometry(), &slot);
        }
    }
}
