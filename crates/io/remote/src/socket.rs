//! Unix sockets of servers.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Starts to listen. Replaces the stale socket of a server that ended without removing it.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(|error| refused(&error)) {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}
