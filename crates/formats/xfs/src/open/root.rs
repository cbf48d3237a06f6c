//! Finding the root directory of a file system whose superblocks do not contain its number.
//!
//! mkfs allocates the first inode chunk in the first group: its first inode is the root directory, and the next two are
//! the files of a realtime device. With a metadata directory, the next one is the root of that.

use disk::BlockDevice;
use vfs::{FileType, Ino};

use crate::format::address::{AgBlock, AgNumber};
use crate::format::features::Incompat;
use crate::format::geometry::Geometry;
use crate::format::inode::{self, Inode};
use crate::format::superblock::{RawSuperblock, Superblock};

/// Number of blocks of the first group that are searched: mkfs places the chunk after the headers and tree roots, at
/// the next stripe unit.
const BLOCKS_MAX: u32 = 1 << 16;

/// Returns the first directory inode of the first group that is followed by two regular files.
pub(crate) fn find(device: &dyn BlockDevice, sb: &Superblock) -> Option<Ino> {
    let geometry = Geometry::new(sb);
    let first = AgNumber(0);
    let mut block = vec![0; geometry.block_size()];
    let chunk_align = geometry.inode_align.max(1);
    for at in (0..geometry.ag_len(first).min(BLOCKS_MAX)).step_by(chunk_align as usize) {
        if at <= geometry.headers_end().0 {
            continue;
        }
        let place = geometry.byte_of(geometry.block_of(first, AgBlock(at)));
        let is_inode = device.read_at(place, &mut block).is_ok() && block.starts_with(b"IN");
        let root = geometry.ino(first, geometry.first_ino(AgBlock(at)));
        if is_inode && is_root(device, &geometry, root) {
            return Some(root);
        }
    }
    None
}

/// Sets the numbers of the root directory and of the two files of a realtime device, or of the metadata directory.
pub(crate) fn set(raw: &mut RawSuperblock, root: Ino) {
    raw.rootino = root.0.into();
    if raw.features().incompat(Incompat::METADIR) {
        raw.metadirino = root.0.saturating_add(1).into();
        return;
    }
    raw.rbmino = root.0.saturating_add(1).into();
    raw.rsumino = root.0.saturating_add(2).into();
}

/// Returns whether an inode is a directory that is followed by two regular files, or by a metadata directory.
fn is_root(device: &dyn BlockDevice, geometry: &Geometry, root: Ino) -> bool {
    let read = |nth| read_inode(device, geometry, Ino(root.0.checked_add(nth)?));
    let kind = |nth| read(nth)?.file_type();
    if geometry.features.incompat(Incompat::METADIR) {
        let is_metadir = read(1).is_some_and(|inode| inode.is_dir() && inode.is_metadata());
        return kind(0) == Some(FileType::Directory) && is_metadir;
    }
    kind(0) == Some(FileType::Directory)
        && [1, 2].into_iter().all(|nth| kind(nth) == Some(FileType::Regular))
}

/// Reads an inode; `None` if its slot is damaged.
pub(crate) fn read_inode(device: &dyn BlockDevice, geometry: &Geometry, ino: Ino) -> Option<Inode> {
    let (ag, ag_ino) = geometry.split_ino(ino)?;
    let (block, at) = geometry.inode_place(ag_ino);
    let byte = geometry.byte_of(geometry.block_of(ag, block)) + at as u64;
    let mut slot = vec![0; geometry.inode_size()];
    device.read_at(byte, &mut slot).ok()?;
    inode::verify_structure(geometry, ino, &slot).ok()?;
    Some(Inode::from_slot(&slot))
}
