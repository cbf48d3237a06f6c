//! What every part of an open file system knows: its superblock, geometry and groups.

use blockdev::BlockDevice;
use transaction::{Corruption, Format, Tag, Txn};

use crate::alloc::ags::{AgState, Ags};
use crate::format::address::Block;
use crate::format::geometry::Geometry;
use crate::format::superblock::Superblock;
use crate::kind;

/// An open file system's fixed facts and its groups.
pub(crate) struct Volume {
    pub(crate) sb: Superblock,
    pub(crate) geometry: Geometry,
    pub(crate) ags: Ags,
}

/// Largest sector, and so the most that is read to see the superblock.
const SECTOR_SIZE_MAX: u64 = 32 << 10;

impl Volume {
    /// Reads and checks superblock and group headers.
    pub(crate) fn read(device: &dyn BlockDevice) -> vfs::Result<Self> {
        let sb = read_superblock(device)?;
        let geometry = Geometry::new(&sb);
        let states = geometry.ags().map(|_| AgState::default()).collect();
        Ok(Self { geometry, ags: Ags::new(states), sb })
    }

    /// Block size in bytes.
    pub(crate) fn block_size(&self) -> usize {
        self.geometry.block_size()
    }
}

/// Reads and checks the superblock.
pub(crate) fn read_superblock(device: &dyn BlockDevice) -> vfs::Result<Superblock> {
    let mut sector = vec![0; SECTOR_SIZE_MAX.min(device.len()) as usize];
    device.read_at(0, &mut sector).map_err(vfs::Error::Device)?;
    Superblock::parse(&sector, device.len())
}

impl Format for Volume {
    fn verify(&self, tag: Tag, block: u64, data: &[u8]) -> Result<(), Corruption> {
        kind::verify(&self.geometry, tag, Block(block), data).map_err(|c| c.at_block(block))
    }

    fn seal(&self, tag: Tag, block: u64, data: &mut [u8]) -> Result<(), Corruption> {
        kind::seal(&self.geometry, tag, Block(block), data);
        Ok(())
    }

    fn settle(&self, _txn: &mut Txn<'_>) -> transaction::Result<()> {
        Ok(())
    }
}
