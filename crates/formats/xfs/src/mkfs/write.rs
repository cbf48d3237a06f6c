//! Writing a planned file system: only non-zero blocks, the superblock of the first group last.

use disk::{BlockDevice, DeviceRole};
use vfs::{Error, Result};

use super::layout::Layout;
use super::realtime_groups;
use crate::alloc::ags::AgTree;
use crate::format::address::{AgBlock, AgNumber, FsBlock};
use crate::format::log;
use crate::format::realtime::space::SpaceFile;

/// Previous contents of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousContents {
    /// All zeros, like a new sparse file.
    Zeros,
    /// Unknown. Blocks that must read as zeros are cleared.
    Unknown,
}

/// The trees in the order of [`AgTree`].
const TREES: [AgTree; 6] =
    [AgTree::Bno, AgTree::Cnt, AgTree::Rmap, AgTree::Refcount, AgTree::Ino, AgTree::Fino];

/// Writes a planned file system. The caller must flush the device.
///
/// # Errors
/// `Invalid` if the device is shorter than planned for, or the device of an external log or of the realtime
/// section is missing. `Device` if it fails.
pub fn format(device: &dyn BlockDevice, layout: &Layout, before: PreviousContents) -> Result<()> {
    if device.len() < layout.size_bytes() {
        return Err(Error::Invalid("the device is shorter than the planned file system"));
    }
    let writer = Writer { device, layout };
    writer.clear_log_device()?;
    writer.check_realtime_device()?;
    if before == PreviousContents::Unknown {
        writer.clear()?;
    }
    match &layout.with_groups {
        None => writer.write(),
        Some(with) => {
            let are_zeros = before == PreviousContents::Zeros;
            realtime_groups::format(device, layout, with, are_zeros, |scratch| {
                Writer { device: scratch, layout }.write()
            })
        }
    }
}

struct Writer<'a> {
    device: &'a dyn BlockDevice,
    layout: &'a Layout,
}

impl Writer<'_> {
    /// Writes everything except areas that must read as zeros.
    fn write(&self) -> Result<()> {
        for ag in self.layout.geometry.ags().skip(1) {
            self.group(ag)?;
        }
        self.log()?;
        self.realtime()?;
        self.group(AgNumber(0))
    }

    /// Clears what must read as zeros: the log, and blocks of headers that are only partly used.
    fn clear(&self) -> Result<()> {
        let geometry = &self.layout.geometry;
        for ag in geometry.ags() {
            let plan = self.layout.ag(ag);
            self.zero(ag, 0, self.layout.header_blocks())?;
            self.zero(ag, plan.log.start, plan.log.len)?;
        }
        Ok(())
    }

    /// Clears the log on another device, whose contents are unknown.
    fn clear_log_device(&self) -> Result<()> {
        let Some(needed) = self.layout.external_log_bytes() else { return Ok(()) };
        if self.device.part_len(DeviceRole::Log).is_none_or(|len| len < needed) {
            return Err(Error::Invalid("the log device is missing, or shorter than the log"));
        }
        self.device.zero_range(DeviceRole::Log.start(), needed).map_err(Error::Device)
    }

    /// Checks the device of the realtime section. Without groups it is not written: no extent is in use.
    fn check_realtime_device(&self) -> Result<()> {
        let needed = self.layout.realtime_bytes();
        let len = self.device.part_len(DeviceRole::Realtime);
        if needed > 0 && len.is_none_or(|len| len < needed) {
            return Err(Error::Invalid(
                "the realtime device is missing, or shorter than the realtime section",
            ));
        }
        Ok(())
    }

    /// Writes the realtime bitmap and summary.
    fn realtime(&self) -> Result<()> {
        for file in [SpaceFile::Bitmap, SpaceFile::Summary] {
            let Some(run) = self.layout.space_run(file) else { continue };
            for at in 0..run.len {
                let block = AgBlock(run.start + at);
                self.put(AgNumber(0), block, &self.layout.space_block(file, at))?;
            }
        }
        Ok(())
    }

    fn zero(&self, ag: AgNumber, start: u32, len: u32) -> Result<()> {
        let geometry = &self.layout.geometry;
        let offset = geometry.byte_of(geometry.block_of(ag, AgBlock(start)));
        let len = u64::from(len) << geometry.block_log;
        self.device.zero_range(offset, len).map_err(Error::Device)
    }

    fn put(&self, ag: AgNumber, block: AgBlock, bytes: &[u8]) -> Result<()> {
        let geometry = &self.layout.geometry;
        let offset = geometry.byte_of(geometry.block_of(ag, block));
        self.device.write_at(offset, bytes).map_err(Error::Device)
    }

    /// Writes a group: inodes, roots, then the headers.
    fn group(&self, ag: AgNumber) -> Result<()> {
        let layout = self.layout;
        let plan = layout.ag(ag);
        if plan.inodes.len != 0 {
            self.put(ag, AgBlock(plan.inodes.start), &layout.inode_chunk(ag))?;
        }
        for tree in TREES {
            if let Some(root) = layout.roots[tree as usize] {
                self.put(ag, root, &layout.tree_root(ag, tree, root, &plan))?;
            }
        }
        let headers = [
            layout.superblock_sector(ag),
            layout.agf_sector(ag, &plan),
            layout.agi_sector(ag, &plan),
            layout.agfl_sector(ag, &plan),
        ];
        self.put(ag, AgBlock(0), &headers.concat())
    }

    /// Writes the log: one unmount record.
    fn log(&self) -> Result<()> {
        let layout = self.layout;
        let start = FsBlock(layout.superblock.logstart.get());
        let record = log::unmount_record(&log::Unmount {
            lsn: log::Lsn { cycle: 1, block: 0 },
            previous: None,
            uuid: layout.superblock.uuid,
            unit: layout.superblock.logsunit.get(),
        });
        if layout.external_log_bytes().is_some() {
            return self.device.write_at(DeviceRole::Log.start(), &record).map_err(Error::Device);
        }
        let (ag, block) = layout.geometry.split(start);
        self.put(ag, block, &record)
    }
}
