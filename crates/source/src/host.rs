//! What differs between hosts, beside their directories: names, temporary files, kinds of files, threads.

use std::borrow::Cow;
use std::fs::{File, FileType};
use std::io;
use std::path::Path;

/// Whether the host has threads.
pub(crate) const HAS_THREADS: bool = !cfg!(target_family = "wasm");

/// Bytes of an image as a path of the host. Where its paths are text, what is none is replaced: this is for messages,
/// and for what the host named itself.
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

/// Whether a file is a pipe or a device that gives bytes only once.
#[cfg(unix)]
pub(crate) fn is_stream(file_type: FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    file_type.is_fifo() || file_type.is_char_device()
}

/// Whether a file is a pipe or a device that gives bytes only once: such have no paths here.
#[cfg(not(unix))]
pub(crate) fn is_stream(_: FileType) -> bool {
    false
}

/// A file without a name, in the directory `beside`.
#[cfg(any(unix, windows))]
pub(crate) fn temporary_file_in(beside: &Path) -> io::Result<File> {
    tempfile::tempfile_in(beside)
}

/// A file without a name: there are no files here.
#[cfg(not(any(unix, windows)))]
pub(crate) fn temporary_file_in(_: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}
