//! The bitmap and the summary as files: their places on the data device.

use std::sync::atomic::AtomicU8;

use engine::Tag;
use vfs::{Corruption, Error, Ino, Result};

use super::Cursor;
use crate::XfsCore;
use crate::format::address::{Block, FileBlock};
use crate::format::geometry::Geometry;
use crate::format::inode::Fork;
use crate::format::realtime::Realtime;
use crate::format::realtime::space::{SpaceFile, SpaceLayout};
use crate::kind::Kind;
use crate::map::{self, Place};

/// Free space of the realtime section of an image that is open for changes.
pub(crate) struct RealtimeSpace {
    pub(super) realtime: Realtime,
    pub(super) layout: SpaceLayout,
    pub(super) cursor: Cursor,
    /// By block of the bitmap: 1 if all of its extents are free, otherwise unknown. Long runs are passed quickly.
    pub(super) is_free: Box<[AtomicU8]>,
    bitmap: FileMap,
    summary: FileMap,
}

/// The blocks of a file.
struct FileMap {
    ino: Ino,
    /// Runs without gaps: first logical block, first block of the device.
    runs: Vec<(u64, Block)>,
    blocks: u64,
}

impl FileMap {
    fn block(&self, at: u64) -> Option<Block> {
        if at >= self.blocks {
            return None;
        }
        let index = self.runs.partition_point(|(first, _)| *first <= at).checked_sub(1)?;
        let (first, start) = *self.runs.get(index)?;
        Some(Block(start.0 + (at - first)))
    }
}

impl RealtimeSpace {
    /// Returns the place of a block of a file, and its tag.
    pub(super) fn place(&self, file: SpaceFile, at: u64) -> Result<(Block, Tag)> {
        let (map, kind) = match file {
            SpaceFile::Bitmap => (&self.bitmap, Kind::RealtimeBitmap),
            SpaceFile::Summary => (&self.summary, Kind::RealtimeSummary),
        };
        let block = map.block(at).ok_or_else(|| {
            let damage = Corruption::new(file.name(), "number of blocks");
            damage.of_inode(map.ino.0).mismatch(map.blocks, at)
        })?;
        Ok((block, kind.of_inode(map.ino, at as u32)))
    }
}

impl XfsCore {
    /// Reads the maps of the bitmap and the summary of a realtime section without groups.
    ///
    /// # Errors
    /// `Corrupt` if a file lacks blocks, `Unsupported` for more than 2^32 extents.
    pub(crate) fn load_realtime(&self) -> Result<()> {
        let geometry = &self.volume.geometry;
        let Some(realtime) = geometry.realtime.filter(|realtime| !realtime.has_groups()) else {
            return Ok(());
        };
        let (layout, raw) = (realtime.space(), &self.volume.sb.raw);
        if u32::try_from(layout.extents()).is_err() {
            let what = format!("changing a realtime section of {} extents", layout.extents());
            return Err(Error::unsupported(what, "the maximum of this program is 2^32 - 1"));
        }
        let bitmap = self.map_of(geometry, &layout, SpaceFile::Bitmap, Ino(raw.rbmino.get()))?;
        let summary = self.map_of(geometry, &layout, SpaceFile::Summary, Ino(raw.rsumino.get()))?;
        let is_free = (0..bitmap.blocks).map(|_| AtomicU8::default()).collect();
        let cursor = Cursor::default();
        let space = RealtimeSpace { realtime, layout, cursor, is_free, bitmap, summary };
        // Set once: an image is loaded once.
        self.volume.realtime.get_or_init(|| space);
        Ok(())
    }

    fn map_of(
        &self,
        geometry: &Geometry,
        layout: &SpaceLayout,
        file: SpaceFile,
        ino: Ino,
    ) -> Result<FileMap> {
        let handle = self.load(ino)?;
        let blocks = layout.blocks_of(file);
        let (mut runs, mut at) = (Vec::new(), 0);
        while at < blocks {
            let run = map::run_at(&mut &*self, &handle, Fork::Data, FileBlock(at))?;
            let Place::Written(start) = run.place else {
                let damage = Corruption::new(file.name(), "number of blocks").of_inode(ino.0);
                return Err(damage.mismatch(blocks, at).into());
            };
            runs.push((at, geometry.device_block(start)));
            at += run.len;
        }
        Ok(FileMap { ino, runs, blocks })
    }
}
