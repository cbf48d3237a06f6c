//! `system.diskwright.parents`: the parent pointers of an inode, as the file system stores them.
//!
//! On a kernel mount, the ioctl `XFS_IOC_GETPARENTS` returns them. Its argument contains a pointer to a buffer, which
//! FUSE does not support; an attribute has no such limitation.
//!
//! - The value has a record for each link, in no particular order: the directory's inode number in decimal, `/`, the
//!   name, NUL. It is empty for the root, and for a file without names.
//! - `ENODATA` if the format or the image has no parent pointers; `E2BIG` if the value exceeds 64 KiB.
//! - `EPERM` for callers other than the superuser, as for the ioctl, and the user of this process, who has access to
//!   the image anyway: the value contains names from directories that the caller may not be allowed to read.
//! - It is not listed, and can neither be set nor removed (`EOPNOTSUPP`).

use std::io::Write;

use linux::Errno;
use linux::abi::InHeader;
use rustix::process::geteuid;
use vfs::Ino;

use super::SIZE_MAX;
use crate::{Adapter, caller};

/// Its name.
pub(super) const NAME: &[u8] = b"system.diskwright.parents";

impl Adapter<'_> {
    /// Returns the value, truncated somewhere past the maximum size.
    pub(super) fn parents(&self, header: &InHeader, ino: Ino) -> Result<Vec<u8>, Errno> {
        match caller::uid(header) {
            Some(uid) if uid == 0 || uid == geteuid().as_raw() => {}
            _ => return Err(Errno::PERM),
        }
        let mut value = Vec::new();
        let is_kept = self.result(self.fs.parents(ino, &mut |dir, name| {
            if value.len() <= SIZE_MAX {
                // Writing to memory does not fail.
                let _ = write!(value, "{dir}/");
                value.extend_from_slice(name);
                value.push(0);
            }
        }))?;
        if is_kept { Ok(value) } else { Err(Errno::NODATA) }
    }
}
