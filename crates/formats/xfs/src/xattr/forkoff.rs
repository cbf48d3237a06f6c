//! The boundary between an inode's two forks (`di_forkoff`).
//!
//! It is counted from the end of the core in units of 8 bytes; 0 means that there is no attribute fork. Kernels choose
//! it between two bounds: the data fork keeps room for a tree root with three entries, the attribute fork for one with
//! two. The data fork of device inodes must have exactly 8 bytes: checkers insist on that.

use vfs::{Error, FileType, Result};

use crate::XfsCore;
use crate::format::attr::shortform;
use crate::format::btree::TreeShape;
use crate::format::features::Incompat;
use crate::format::inode::{CORE_SIZE_V3, Fork, ForkFormat, Inode};
use crate::format::log::buffer::CHUNK;
use crate::inode::Handle;

/// Size of the data fork of a device inode, in bytes.
pub(super) const DEVICE_BYTES: usize = 8;
/// Minimum size of a data fork next to an attribute fork, in bytes.
const DATA_MIN: usize = TreeShape::BMBT.root_size(3).next_multiple_of(8);
/// Minimum size of an attribute fork, in bytes.
const ATTR_MIN: usize = TreeShape::BMBT.root_size(2);
/// The default boundary of kernels: twelve extents fit before it.
pub(crate) const OF_KERNELS: usize = TreeShape::BMBT.root_size(12) / 8 * 8;
/// The default boundary. Twelve extents fit before it, like the kernel's default (`m_attroffset`), but it is aligned to
/// a log chunk. So a new file's attributes are in one chunk, and the data fork has no chunk for itself.
pub(super) const DEFAULT: usize =
    (CORE_SIZE_V3 + OF_KERNELS).next_multiple_of(CHUNK) - CORE_SIZE_V3;

/// Returns the highest possible boundary.
pub(crate) fn highest(inode: &Inode) -> usize {
    inode.literal_size().saturating_sub(ATTR_MIN) / 8 * 8
}

/// Returns the boundary of a new inode that will have attributes (`default_forkoff`), in bytes.
pub(crate) fn default_forkoff(inode: &Inode, file_type: FileType) -> usize {
    match file_type {
        FileType::Regular | FileType::Directory | FileType::Symlink => DEFAULT.min(highest(inode)),
        _ => DEVICE_BYTES,
    }
}

impl XfsCore {
    /// Adds an attribute fork to a new inode with empty forks if it will have parent pointers. This must happen before
    /// its data fork is filled, which could then be in the way.
    pub(crate) fn reserve_attr_fork(&self, inode: &mut Inode, file_type: FileType) {
        if self.volume.geometry.features.incompat(Incompat::PARENT) {
            inode.set_forkoff_bytes(default_forkoff(inode, file_type));
        }
    }
}

/// Returns the number of bytes in use at the start of the data fork.
pub(super) fn data_bytes(handle: &Handle) -> usize {
    let inode = &handle.inode;
    let used = match inode.format() {
        ForkFormat::Device => DEVICE_BYTES as u64,
        ForkFormat::Local => inode.size(),
        ForkFormat::Extents => inode.extents(Fork::Data).saturating_mul(16),
        // The position of its pointers depends on the size of the fork: a tree's root uses all of it.
        ForkFormat::Btree | ForkFormat::MetaBtree => inode.fork(Fork::Data).len() as u64,
    };
    usize::try_from(used).unwrap_or(usize::MAX)
}

/// Returns the highest boundary that leaves the attribute fork at least `bytes`. `None` if the data fork is in the way.
pub(super) fn boundary_for(handle: &Handle, bytes: usize) -> Option<usize> {
    let inode = &handle.inode;
    if inode.format() == ForkFormat::Device {
        return (inode.literal_size() - DEVICE_BYTES >= bytes).then_some(DEVICE_BYTES);
    }
    let lowest = data_bytes(handle).max(DATA_MIN).checked_next_multiple_of(8)?;
    let wanted = inode.literal_size().checked_sub(bytes)? / 8 * 8;
    (wanted >= lowest && highest(inode) >= lowest).then(|| wanted.min(highest(inode)))
}

/// Returns whether [`grow_short`] can make room for `bytes`.
pub(super) fn can_grow(handle: &Handle, bytes: usize) -> bool {
    boundary_for(handle, bytes).is_some()
}

/// Grows an attribute fork with shortform attributes to at least `bytes`, and moves the attributes if the boundary
/// moves. Returns false without a change if the data fork is in the way.
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

/// Returns the error for a data fork that leaves no room for the smallest attribute fork.
fn no_room() -> Error {
    Error::unsupported(
        "attributes of an inode without free space for them",
        "create the image with parent pointers, which reserve space for them, or with larger inodes",
    )
}

/// Makes the bytes from `boundary` on an empty attribute fork.
pub(super) fn start(handle: &mut Handle, boundary: usize) {
    handle.inode.set_forkoff_bytes(boundary);
    init_short(handle);
}

/// Clears an existing attribute fork.
pub(super) fn init_short(handle: &mut Handle) {
    handle.inode.set_format(Fork::Attr, ForkFormat::Local);
    let fork = handle.inode.fork_mut(Fork::Attr);
    fork.fill(0);
    shortform::init(fork);
}

/// Implements [`AttrChange::create_fork`] for a data fork with the root of a tree, whose pointers move with the
/// boundary.
pub(super) fn create_beside_tree(handle: &mut Handle, bytes: usize) -> Result<()> {
    let inode = &mut handle.inode;
    let old = inode.fork(Fork::Data).to_vec();
    let count = TreeShape::BMBT.root_area(old.len()).count(&old);
    let lowest = TreeShape::BMBT.root_size(count).max(DATA_MIN).next_multiple_of(8);
    if lowest > highest(inode) {
        return Err(no_room());
    }
    let wanted = inode.literal_size().saturating_sub(bytes) / 8 * 8;
    let boundary = wanted.clamp(lowest, highest(inode));
    if !TreeShape::BMBT.move_root(&old, &mut inode.fork_mut(Fork::Data)[..boundary]) {
        return Err(handle.corrupt("inode", "its fork has no space for the root of its tree"));
    }
    start(handle, boundary);
    Ok(())
}

/// Removes the attribute fork if it has no attributes. The fork is kept empty if `keep` is set, or if the root of a
/// tree in the data fork depends on its size.
pub(super) fn release_empty(handle: &mut Handle, keep: bool) {
    if keep || matches!(handle.inode.format(), ForkFormat::Btree | ForkFormat::MetaBtree) {
        init_short(handle);
        return;
    }
    remove(handle);
}

/// Removes the attribute fork, which must not have blocks.
pub(super) fn remove(handle: &mut Handle) {
    if !handle.inode.has_attr_fork() {
        return;
    }
    handle.inode.fork_mut(Fork::Attr).fill(0);
    handle.inode.set_format(Fork::Attr, ForkFormat::Extents);
    handle.inode.set_forkoff_bytes(0);
}

/// Empties an attribute fork whose attributes move to blocks, and gives the data fork back the room that the attributes
/// had taken from it.
pub(super) fn empty_for_blocks(handle: &mut Handle) {
    let inode = &mut handle.inode;
    inode.fork_mut(Fork::Attr).fill(0);
    inode.set_format(Fork::Attr, ForkFormat::Extents);
    let default = DEFAULT.min(highest(inode));
    let may_move = matches!(inode.format(), ForkFormat::Local | ForkFormat::Extents);
    if may_move && inode.forkoff_bytes() < default {
        inode.set_forkoff_bytes(default);
    }
}
