//! Differences between hosts, except directories: names, temporary files, types of files, threads.

use std::borrow::Cow;
use std::fs::{File, FileType};
use std::io;
use std::path::Path;

/// True if the host has threads.
pub(crate) const HAS_THREADS: bool = !cfg!(target_family = "wasm");

/// Converts bytes of an image to a host path, for messages and for names from the host itself. On hosts with Unicode
/// paths, invalid bytes are replaced.
pub(crate) fn as_path(bytes: &[u8]) -> Cow<'_, Path> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        Cow::Borrowed(Path::new(std::ffi::OsStr::from_bytes(bytes)))
    }
    #[cfg(not(unix))]
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => Cow::Borrowed(Path::new(text)),
        Cow::Owned(text) => Cow::Owned(text.into()),
    }
}

/// Returns whether a file is a pipe or a device that can be read only once.
#[cfg(unix)]
pub(crate) fn is_stream(file_type: FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    file_type.is_fifo() || file_type.is_char_device()
}

/// Returns false: on this host, pipes have no paths.
#[cfg(not(unix))]
pub(crate) fn is_stream(_: FileType) -> bool {
    false
}

/// Creates an unnamed file in the directory `beside`.
#[cfg(any(unix, windows))]
pub(crate) fn temporary_file_in(beside: &Path) -> io::Result<File> {
    tempfile::tempfile_in(beside)
}

/// Fails, because this host has no files.
#[cfg(not(any(unix, windows)))]
pub(crate) fn temporary_file_in(_: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}
