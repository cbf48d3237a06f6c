//! The boundary between an inode's two forks.
//!
//! It is counted from the end of the core in units of 8 bytes; 0 says that there is no attribute
//! fork. Kernels choose it between two bounds: the data fork keeps room for the root of a map's tree
//! with three entries, the attribute fork for one with two. Device inodes are different: their data
//! fork has 8 bytes, no more and no less, and checkers insist on that.

use vfs::{Error, FileType, Result};

use crate::Xfs;
use crate::format::attr::shortform;
use crate::format::btree::Shape;
use crate::format::features::Incompat;
use crate::format::inode::{CORE_SIZE_V3, Fork, Format, Inode};
use crate::format::log::buffer::CHUNK;
use crate::inode::Handle;

/// Bytes of a device number's fork.
pub(super) const DEVICE_BYTES: usize = 8;
/// Fewest bytes of a data fork beside an attribute fork.
const DATA_MIN: usize = Shape::BMBT.root_size(3).next_multiple_of(8);
/// Fewest bytes of an attribute fork.
const ATTR_MIN: usize = Shape::BMBT.root_size(2);
/// The usual boundary: twelve extents fit before it, as where kernels have theirs (`m_attroffset`), but it
/// begins a chunk of the log. So a new file's attributes lie in one chunk, and the data fork has none to itself.
pub(super) const DEFAULT: usize =
    (CORE_SIZE_V3 + Shape::BMBT.root_size(12) / 8 * 8).next_multiple_of(CHUNK) - CORE_SIZE_V3;

/// The highest boundary there may be.
pub(super) fn highest(inode: &Inode) -> usize {
    inode.literal_size().saturating_sub(ATTR_MIN) / 8 * 8
}

/// The boundary that a new inode gets when it will have attributes (`default_forkoff`), in bytes.
pub(crate) fn default_forkoff(inode: &Inode, file_type: FileType) -> usize {
    match file_type {
        FileType::Regular | FileType::Directory | FileType::Symlink => DEFAULT.min(highest(inode)),
        _ => DEVICE_BYTES,
    }
}

impl Xfs {
    /// Gives a new inode, whose forks are empty, an attribute fork if it will have parent pointers:
    /// before anything goes into its data fork, which could then be in the way.
    pub(crate) fn reserve_attr_fork(&self, inode: &mut Inode, file_type: FileType) {
        if self.volume.geometry.features.incompat(Incompat::PARENT) {
            inode.set_forkoff_bytes(default_forkoff(inode, file_type));
        }
    }
}

/// Bytes at the front of the data fork that are in use.
pub(super) fn data_bytes(handle: &Handle) -> usize {
    let inode = &handle.inode;
    let used = match inode.format() {
        Format::Device => DEVICE_BYTES as u64,
        Format::Local => inode.size(),
        Format::Extents => inode.extents(Fork::Data).saturating_mul(16),
        // Its pointers are where the size of the fork says: a tree's root uses all of it.
        Format::Btree => inode.fork(Fork::Data).len() as u64,
    };
    usize::try_from(used).unwrap_or(usize::MAX)
}

/// The boundary to be, so that the attribute fork has at least `bytes`; as high as the bounds allow.
/// `None` if the data fork leaves less.
pub(super) fn boundary_for(handle: &Handle, bytes: usize) -> Option<usize> {
    let inode = &handle.inode;
    if inode.format() == Format::Device {
        return (inode.literal_size() - DEVICE_BYTES >= bytes).then_some(DEVICE_BYTES);
    }
    let lowest = data_bytes(handle).max(DATA_MIN).checked_next_multiple_of(8)?;
    let wanted = inode.literal_size().checked_sub(bytes)? / 8 * 8;
    (wanted >= lowest && highest(inode) >= lowest).then(|| wanted.min(highest(inode)))
}

/// Whether [`grow_short`] can make room for `bytes`.
pub(super) fn can_grow(handle: &Handle, bytes: usize) -> bool {
    boundary_for(handle, bytes).is_some()
}

/// Makes sure that the attribute fork, which is there and holds attributes, has `bytes`, moving them
/// if the boundary has to move. False, and nothing done, if the data fork is in the way.
#[must_use]
pub(super) fn grow_short(handle: &mut Handle, bytes: usize) -> bool {
    if bytes <= handle.inode.fork(Fork::Attr).len() {
        return true;
    }
    let Some(boundary) = boundary_for(handle, bytes) else { return false };
    let old_len = handle.inode.fork(Fork::Attr).len();
    handle.inode.set_forkoff_bytes(boundary);
    let fork = handle.inode.fork_mut(Fork::Attr);
    let old_at = fork.len() - old_len;
    fork.copy_within(old_at.., 0);
    fork[old_len..].fill(0);
    true
}

/// The error for a data fork that leaves no room for the smallest attribute fork.
fn no_room() -> Error {
    Error::unsupported(
        "attributes of an inode that is full of data",
        "make the image with parent pointers, which reserve room for them, or with larger inodes",
    )
}

/// Makes the bytes from `boundary` on an attribute fork without attributes.
pub(super) fn start(handle: &mut Handle, boundary: usize) {
    handle.inode.set_forkoff_bytes(boundary);
    init_short(handle);
}

/// Makes an existing attribute fork one without attributes.
pub(super) fn init_short(handle: &mut Handle) {
    handle.inode.set_format(Fork::Attr, Format::Local);
    let fork = handle.inode.fork_mut(Fork::Attr);
    fork.fill(0);
    shortform::init(fork);
}

/// [`AttrChange::create_fork`] where the data fork is the root of a tree, whose pointers move with the
/// boundary.
pub(super) fn create_beside_tree(handle: &mut Handle, bytes: usize) -> Result<()> {
    let inode = &mut handle.inode;
    let old = inode.fork(Fork::Data).to_vec();
    let count = Shape::BMBT.root_area(old.len()).count(&old);
    let lowest = Shape::BMBT.root_size(count).max(DATA_MIN).next_multiple_of(8);
    if lowest > highest(inode) {
        return Err(no_room());
    }
    let wanted = inode.literal_size().saturating_sub(bytes) / 8 * 8;
    let boundary = wanted.clamp(lowest, highest(inode));
    if !Shape::BMBT.move_root(&old, &mut inode.fork_mut(Fork::Data)[..boundary]) {
        return Err(handle.corrupt("inode", "its fork has no room for the root of its tree"));
    }
    start(handle, boundary);
    Ok(())
}

/// Releases an attribute fork that has no attributes left. It stays, empty, if `keep`, or if a tree in the
/// data fork relies on the size of its root.
pub(super) fn release_empty(handle: &mut Handle, keep: bool) {
    if keep || handle.inode.format() == Format::Btree {
        init_short(handle);
        return;
    }
    remove(handle);
}

/// Takes the attribute fork away. It has no blocks.
pub(super) fn remove(handle: &mut Handle) {
    if !handle.inode.has_attr_fork() {
        return;
    }
    handle.inode.fork_mut(Fork::Attr).fill(0);
    handle.inode.set_format(Fork::Attr, Format::Extents);
    handle.inode.set_forkoff_bytes(0);
}

/// Empties an attribute fork whose attributes go to blocks, and gives the data fork back the room that they
/// had taken from it.
pub(super) fn empty_for_blocks(handle: &mut Handle) {
    let inode = &mut handle.inode;
    inode.fork_mut(Fork::Attr).fill(0);
    inode.set_format(Fork::Attr, Format::Extents);
    let default = DEFAULT.min(highest(inode));
    let may_move = matches!(inode.format(), Format::Local | Format::Extents);
    if may_move && inode.forkoff_bytes() < default {
        inode.set_forkoff_bytes(default);
    }
}
