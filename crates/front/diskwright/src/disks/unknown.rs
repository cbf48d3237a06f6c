//! Disks of other systems.

use super::host_disk::HostDisk;
use crate::{Error, Result};

/// Fails, because this system has no known list of disks.
pub(crate) fn disks() -> Result<Vec<HostDisk>> {
    Err(Error::Usage(
        "disks are listed on Linux, macOS and Windows only; name the path of a device".into(),
    ))
}
