//! Writing a realtime section with groups.
//!
//! A file system without the section is formatted in memory, and the code for growing adds the section. The result is
//! then copied to the device.

use std::io;
use std::sync::Arc;

use disk::{BlockDevice, DeviceRole, OverlayDevice, is_zero};
use vfs::{Error, Result};

use super::layout::Layout;
use crate::format::superblock::Superblock;
use crate::resize::realtime;

/// Number of files of a group.
const FILES_PER_GROUP: u64 = 4;

impl Layout {
    /// Returns an upper bound of the blocks that the files of realtime groups take.
    pub(super) fn blocks_of_realtime_groups(&self) -> u64 {
        let Some(with) = &self.with_groups else { return 0 };
        let realtime = crate::format::realtime::Realtime::of(with).ok().flatten();
        let Some(space) = realtime.map(|realtime| realtime.space(0)) else { return 0 };
        let groups = u64::from(with.raw.rgcount.get());
        let files = groups * (space.bitmap_blocks() + space.summary_blocks());
        let inodes = groups * FILES_PER_GROUP;
        let of_inodes = (inodes >> self.geometry.inodes_per_block_log())
            + 2 * u64::from(self.geometry.chunk_blocks());
        // The directory, with its index.
        let of_names = ((inodes * 32) >> self.geometry.block_log) + 4;
        files + of_inodes + of_names
    }
}

/// Writes a file system with groups, with `write` for the file system without them. `are_zeros`: the device reads as
/// zeros.
pub(super) fn format(
    device: &dyn BlockDevice,
    layout: &Layout,
    with: &Superblock,
    are_zeros: bool,
    write: impl FnOnce(&dyn BlockDevice) -> Result<()>,
) -> Result<()> {
    let parts = [DeviceRole::Log, DeviceRole::Realtime].map(|part| device.part_len(part));
    let blank = Blank { len: device.len(), parts };
    let scratch = Arc::new(OverlayDevice::new(Arc::new(blank)));
    write(&*scratch)?;
    let shared: Arc<dyn BlockDevice> = scratch.clone();
    realtime::extend(&shared, with.raw.rblocks.get(), layout.root.time)?;
    let mut head = Vec::new();
    let copied = scratch.for_each_written(|offset, bytes| match offset {
        0 => {
            head = bytes.to_vec();
            Ok(())
        }
        _ if are_zeros && is_zero(bytes) => Ok(()),
        _ => device.write_at(offset, bytes),
    });
    copied.and_then(|()| device.write_at(0, &head)).map_err(Error::Device)
}

/// A device of zeros.
struct Blank {
    len: u64,
    /// Lengths of the log and the realtime device.
    parts: [Option<u64>; 2],
}

impl BlockDevice for Blank {
    fn len(&self) -> u64 {
        self.len
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.parts[usize::from(part == DeviceRole::Realtime)]
    }

    fn read_at(&self, _offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn zero_range(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
