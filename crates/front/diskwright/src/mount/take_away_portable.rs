//! Unmounting by umount(8).

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::mounts::{MountEntry, MountWay};
use crate::{Error, Result};

/// State of the server of a mount, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerState {
    Answers,
    Dead,
}

/// Does nothing, because the kernel writes back when it unmounts.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail")]
pub(super) fn sync(_: &Path, _: bool) -> io::Result<ServerState> {
    Ok(ServerState::Answers)
}

/// Unmounts. `lazy` also unmounts a mount in use; its programs then get errors.
pub(super) fn take_away(mount: &MountEntry, lazy: bool) -> Result<()> {
    let point = &mount.point;
    let is_dead = matches!(mount.way, Some(MountWay::Nfs { is_served: false, .. }));
    let mut command = Command::new("umount");
    if lazy || is_dead {
        command.arg("-f");
    }
    let output = command.arg(point).stdin(Stdio::null()).output();
    let output = output.map_err(|e| Error::host("unmount", point, e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::host("unmount", point, io::Error::other(said)))
}
