//! What lets others run a file with rights that are not theirs, and is lost when the file changes.

use fuse_device::Errno;
use fuse_device::abi::InHeader;
use vfs::{ChangePurpose, FileType, Ino, SetAttributes};

use crate::{Adapter, caller, clock};

impl Adapter<'_> {
    /// The contents of a file are about to change. WRITE says what to do; where nothing is said, the
    /// superuser alone (`CAP_FSETID`, of which requests say nothing) keeps the set-id bits.
    ///
    /// # Errors
    /// `EROFS` if nothing may be changed; those of the file system.
    pub(crate) fn will_change(&self, header: &InHeader, ino: Ino) -> Result<(), Errno> {
        self.check_writable()?;
        self.check_changeable(ino)?;
        if !caller::is_superuser(header) {
            self.kill_set_id(header, ino)?;
        }
        self.kill_capabilities(ino)
    }

    /// Takes set-user-id and set-group-id from a file that somebody changes who may not keep them.
    pub(super) fn kill_set_id(&self, header: &InHeader, ino: Ino) -> Result<(), Errno> {
        let before = self.attributes(ino)?;
        let reduced = self.without_set_id(header, &before);
        // A directory's set-group-id bit is about new files.
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

    /// Takes its capabilities from a file.
    pub(super) fn kill_capabilities(&self, ino: Ino) -> Result<(), Errno> {
        self.result(self.remove_capabilities(ino))
    }
}
