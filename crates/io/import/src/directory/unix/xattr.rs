//! Extended attributes of host files.

use std::ffi::CStr;
use std::path::PathBuf;

use rustix::fs::{lgetxattr, llistxattr};
use rustix::io::Errno;

use super::os::{NO_XATTR, linux_xattr};
use crate::{SourceError, Xattr};

/// Maximum size of a list of names and of a value in Linux (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const XATTR_BYTES_MAX: usize = 64 << 10;
const READ_XATTRS: &str = "read the extended attributes of";

/// Initial buffer size for names and values. The kernel allocates a buffer of the size of the caller's, so the maximum
/// size would double the cost of the usual empty result.
const XATTR_BYTES_USUAL: usize = 256;

/// Reads extended attributes.
pub(super) struct XattrReader {
    names: Vec<u8>,
    value: Vec<u8>,
}

impl XattrReader {
    pub(super) fn new() -> Self {
        Self { names: vec![0; XATTR_BYTES_USUAL], value: vec![0; XATTR_BYTES_USUAL] }
    }

    /// Returns all extended attributes of the file `path`, without following a link. Empty on file systems without
    /// them. `shown` returns the path for an error.
    pub(super) fn read(
        &mut self,
        path: &CStr,
        shown: impl Fn() -> PathBuf,
    ) -> Result<Vec<Xattr>, SourceError> {
        let io = |e| SourceError::io(READ_XATTRS, &shown(), e);
        let len = match with_room(&mut self.names, |names| llistxattr(path, names)) {
            Ok(len) => len,
            Err(Errno::NOTSUP) => 0,
            Err(e) => return Err(io(e)),
        };
        let mut xattrs = Vec::new();
        for name in self.names[..len].split_inclusive(|&b| b == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            let Some(linux_name) = linux_xattr(name.to_bytes()) else { continue };
            let len = match with_room(&mut self.value, |value| lgetxattr(path, name, value)) {
                Ok(len) => len,
                // The attribute was removed since, or its file system lists it without a value.
                Err(NO_XATTR | Errno::NOTSUP) => continue,
                Err(e) => return Err(io(e)),
            };
            xattrs.push(Xattr { name: linux_name, value: self.value[..len].to_vec() });
        }
        Xattr::normalize(&mut xattrs);
        Ok(xattrs)
    }
}

/// Tries the initial buffer size and, if that is too small, the maximum.
fn with_room(
    buffer: &mut Vec<u8>,
    call: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    match call(&mut buffer[..XATTR_BYTES_USUAL]) {
        Err(Errno::RANGE) => {
            buffer.resize(XATTR_BYTES_MAX, 0);
            call(buffer)
        }
        other => other,
    }
}
