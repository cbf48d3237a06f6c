//! Records of NFS mounts, written by their servers.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::nfs::file_name;
use super::state;

/// Record of a mount, which exists as long as this value.
#[derive(Debug)]
pub(crate) struct NfsRecord {
    _locked: File,
    path: PathBuf,
}

impl NfsRecord {
    /// Creates the record of a mount of an image. Returns `None` if it is not possible.
    pub(crate) fn create(source: &str, image: &OsStr) -> Option<Self> {
        let user = rustix::process::geteuid().as_raw();
        state::create_directory(user);
        let mut file = state::open(user, &file_name(source), true)?;
        file.try_lock().ok()?;
        let path = state::path(user, &file_name(source))?;
        file.write_all(image.as_bytes()).ok()?;
        Some(Self { _locked: file, path })
    }
}

impl Drop for NfsRecord {
    fn drop(&mut self) {
        // A record that remains has no lock.
        let _ = std::fs::remove_file(&self.path);
    }
}
