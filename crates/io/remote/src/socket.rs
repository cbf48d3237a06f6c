//! Sockets of servers.

use std::io;
#[cfg(unix)]
use std::ops::Deref;
#[cfg(unix)]
use std::os::unix::fs::FileTypeExt;
#[cfg(unix)]
use std::os::unix::net::{UnixListener, UnixStream};
#[cfg(unix)]
use std::path::{Path, PathBuf};

use disk::BlockDevice;

/// Unix socket of a server, which is removed on drop.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
}

#[cfg(unix)]
impl UnixSocket {
    /// Starts to listen without blocking. Replaces the stale socket of a server that ended without removing it.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && UnixStream::connect(path).is_err_and(|error| refused(&error)) {
            std::fs::remove_file(path)?;
        }
        let socket = Self { listener: UnixListener::bind(path)?, path: path.to_owned() };
        // A connection that disappears before it is accepted does not block.
        socket.listener.set_nonblocking(true)?;
        Ok(socket)
    }

    #[cfg(all(feature = "vhost-user", target_os = "linux"))]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(unix)]
impl Deref for UnixSocket {
    type Target = UnixListener;

    fn deref(&self) -> &UnixListener {
        &self.listener
    }
}

#[cfg(unix)]
impl Drop for UnixSocket {
    fn drop(&mut self) {
        // The socket may have been removed already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Ends the service of a device: flushes it if clients may have written. The result is the first error.
pub(crate) fn finish(
    served: io::Result<()>,
    device: &dyn BlockDevice,
    read_only: bool,
) -> io::Result<()> {
    let flushed = if read_only { Ok(()) } else { device.flush() };
    served.and(flushed)
}
