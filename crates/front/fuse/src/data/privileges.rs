//! Set-id bits and capabilities, which are removed when a file changes.

use linux::Errno;
use linux::abi::InHeader;
use vfs::{ChangePurpose, FileType, Ino, SetAttributes};

use crate::{Adapter, caller, clock};

impl Adapter<'_> {
    /// Prepares a change of a file's contents. WRITE contains a flag for set-id bits. Other requests do not contain
    /// `CAP_FSETID`, so only the superuser keeps the bits.
    ///
    /// # Errors
    /// `EROFS` if changes are not permitted; those of the file system.
    pub(crate) fn will_change(&self, header: &InHeader, ino: Ino) -> Result<(), Errno> {
        self.check_writable()?;
        self.check_changeable(ino)?;
        if !caller::is_superuser(header) {
            self.kill_set_id(header, ino)?;
        }
        self.kill_capabilities(ino)
    }

    /// Removes set-user-ID and set-group-ID from a file, unless the caller may keep them.
    pub(super) fn kill_set_id(&self, header: &InHeader, ino: Ino) -> Result<(), Errno> {
        let before = self.attributes(ino)?;
        let reduced = self.without_set_id(header, &before);
        // The set-group-ID bit of a directory concerns new files.
        if before.file_type != FileType::Regular || reduced == before.permissions {
            return Ok(());
        }
        let change = SetAttributes {
            permissions: Some(reduced),
            ctime: Some(clock::now()),
            purpose: ChangePurpose::Consequence,
            ..SetAttributes::default()
        };
        self.result(self.fs.set_attributes(ino, &change))
    }

    /// Removes a file's capabilities.
    pub(super) fn kill_capabilities(&self, ino: Ino) -> Result<(), Errno> {
        self.result(self.remove_capabilities(ino))
    }
}
