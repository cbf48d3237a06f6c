//! Trees of realtime groups that an operation holds.

use crate::inode::Handle;

/// An inode with a tree of a group that the operation holds.
pub(crate) struct HeldTree {
    pub(super) before: Handle,
    /// `None` while a cursor uses it.
    pub(super) handle: Option<Handle>,
}
