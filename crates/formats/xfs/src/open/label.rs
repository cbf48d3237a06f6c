//! The label, in the superblock and its copies.

use operations::label;
use vfs::Result;
use zerocopy::FromBytes;

use crate::XfsCore;
use crate::format::address::{AgBlock, AgNumber};
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_SIZE};
use crate::kind::BlockKind;
use crate::open::realtime::write_superblock;
use crate::volume::read_superblock;

/// Maximum length of a label in bytes (`XFSLABEL_MAX`).
const LABEL_LEN_MAX: usize = 12;

impl XfsCore {
    /// Returns the current label.
    pub(crate) fn current_label(&self) -> Result<Vec<u8>> {
        let first = AgNumber(0);
        let block = self.volume.geometry.block_of(first, AgBlock(0));
        let bytes = self.block(block, BlockKind::AgHeader.of_group(first))?;
        let damage = |_| vfs::Corruption::new("superblock", "truncated").at_block(block.0);
        let raw = RawSuperblock::read_from_bytes(&bytes[..SUPERBLOCK_SIZE]).map_err(damage)?;
        Ok(label::parse(&raw.fname))
    }

    /// Changes the label in the superblock and its copies. Kernels never log copies, so everything is written back to
    /// remove them from the log.
    pub(crate) fn change_label(&self, label: &[u8]) -> Result<()> {
        let name = label::field::<LABEL_LEN_MAX>(self.mode, label)?;
        for ag in self.volume.geometry.ags() {
            self.edit_superblock(ag, |raw| raw.fname = name)?;
        }
        self.engine.empty_log()?;
        let device = self.device();
        write_superblock(&**device, &read_superblock(&**device)?)
    }
}
