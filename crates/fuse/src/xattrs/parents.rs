//! `system.diskwright.parents`: where an inode has its names, as the file system itself keeps it.
//!
//! It is what the ioctl `XFS_IOC_GETPARENTS` tells on a kernel mount. That takes a pointer to a buffer,
//! which FUSE does not follow; an attribute has no such limit.
//!
//! - The value has a record for each link, in no certain order: the number of the directory's inode in
//!   decimal, `/`, the name, NUL. The root, and a file that has no name any more, have an empty value.
//! - `ENODATA` if the format does not keep this, or the image was made without it; `E2BIG` if it is more
//!   than 64 KiB.
//! - `EPERM` for who neither is the superuser, as for the ioctl, nor runs this program, who has the image
//!   anyway: the value has names out of directories that one may not be allowed to read.
//! - It is not listed, and can be neither set nor removed (`EOPNOTSUPP`).

use std::io::Write;

use fuse_device::Errno;
use fuse_device::abi::InHeader;
use rustix::process::geteuid;
use vfs::Ino;

use super::SIZE_MAX;
use crate::{Adapter, caller};

/// Its name.
pub(super) const NAME: &[u8] = b"system.diskwright.parents";

impl Adapter<'_> {
    /// Its value, cut short somewhere past the largest size.
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
