//! What lets others run a file with rights that are not theirs, and is lost when the file changes.

use fuse_device::Errno;
use fuse_device::abi::InHeader;
use vfs::{Error, Ino, SetAttributes};

use crate::attributes::without_set_id;
use crate::{Adapter, clock};

/// Where Linux keeps the capabilities of a file.
const CAPABILITIES: &[u8] = b"security.capability";

impl Adapter<'_> {
    /// The contents of a file are about to change by something else than WRITE, which says what to do.
    /// The superuser alone (`CAP_FSETID`, of which requests say nothing) keeps the set-id bits.
    pub(super) fn will_change(&self, header: &InHeader, ino: Ino) -> Result<(), Errno> {
        if header.uid != 0 {
            self.kill_set_id(ino)?;
        }
        self.kill_capabilities(ino)
    }

    /// Takes set-user-id and set-group-id from a file.
    pub(super) fn kill_set_id(&self, ino: Ino) -> Result<(), Errno> {
        let permissions = self.attributes(ino)?.permissions;
        let reduced = without_set_id(permissions);
        if reduced == permissions {
            return Ok(());
        }
        let change = SetAttributes {
            permissions: Some(reduced),
            ctime: Some(clock::now()),
            ..SetAttributes::default()
        };
        self.result(self.fs.set_attributes(ino, &change))
    }

    /// Takes its capabilities from a file.
    pub(super) fn kill_capabilities(&self, ino: Ino) -> Result<(), Errno> {
        // Looked for first: most files have none, and looking disturbs nobody.
        match self.fs.get_xattr(ino, CAPABILITIES) {
            Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(()),
            Err(error) => Err(self.failed(&error)),
            Ok(_) => self.result(self.remove_capabilities(ino)),
        }
    }
}
