//! The label in the superblock and in its backups.

use operations::label;
use vfs::{Error, Result};
use zerocopy::{FromZeros, IntoBytes};

use crate::Ext4Core;
use crate::format::superblock::{self, RawSuperblock};

/// Maximum length of a label in bytes (`EXT4_LABEL_MAX`).
const LABEL_LEN_MAX: usize = 16;

impl Ext4Core {
    /// Returns the current label.
    pub(crate) fn current_label(&self) -> Result<Vec<u8>> {
        let name = self.current_superblock()?.volume_name;
        Ok(label::parse(&name))
    }

    /// Changes the label in the superblock and, once that is durable, in the backups; after a crash in between, the
    /// backups matter only if the superblock is lost. Programs such as blkid read the device but not the journal, so
    /// the journal is emptied to write the superblock in place.
    pub(crate) fn change_label(&self, label: &[u8]) -> Result<()> {
        let name = label::field::<LABEL_LEN_MAX>(self.mode, label)?;
        let mut txn = self.engine.begin()?;
        self.volume.edit_superblock(&mut txn, |raw| raw.volume_name = name)?;
        txn.commit();
        self.engine.empty_log()?;
        self.change_backups(|backup| backup.volume_name = name)
    }

    /// Changes the backups that are valid. No other code writes them while the file system is open.
    fn change_backups(&self, change: impl Fn(&mut RawSuperblock)) -> Result<()> {
        let (geometry, device) = (&self.volume.geometry, self.engine.device());
        for group in geometry.groups().skip(1) {
            let Some(block) = geometry.superblock_of(group) else { continue };
            let offset = geometry.byte_of(block);
            let mut backup = RawSuperblock::new_zeroed();
            device.read_at(offset, backup.as_mut_bytes()).map_err(Error::Device)?;
            if superblock::verify(backup.as_bytes()).is_err() {
                continue;
            }
            change(&mut backup);
            backup.seal();
            device.write_at(offset, backup.as_bytes()).map_err(Error::Device)?;
        }
        device.flush().map_err(Error::Device)
    }
}
