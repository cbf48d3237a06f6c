//! Reading the maps of the bitmap and the summary.

use std::sync::atomic::{AtomicU8, AtomicU32};

use operations::RunOperations;
use vfs::{Corruption, Error, Ino, Result};

use super::space::{Cursor, FileMap, RealtimeSection, RealtimeSpace, group_of};
use crate::XfsCore;
use crate::format::address::FileBlock;
use crate::format::features::RoCompat;
use crate::format::geometry::Geometry;
use crate::format::inode::Fork;
use crate::format::metafile::{MetafileType, group_path};
use crate::format::realtime::Realtime;
use crate::format::realtime::space::{SpaceFile, SpaceLayout};
use crate::map::{self, Place};

impl XfsCore {
    /// Reads the maps of the bitmaps and the summaries of a realtime section. `is_recovered`: the log had changes, so the
    /// free extents of groups are counted, because kernels do not log their number.
    ///
    /// # Errors
    /// `Corrupt` if a file is missing or lacks blocks, `Unsupported` for more than 2^32 extents without groups.
    pub(crate) fn load_realtime(&self, is_recovered: bool) -> Result<()> {
        let Some(realtime) = self.volume.geometry.realtime else { return Ok(()) };
        let layout = realtime.space(0);
        if u32::try_from(layout.extents()).is_err() {
            let what = format!("changing a realtime section of {} extents", layout.extents());
            return Err(Error::unsupported(what, "the maximum of this program is 2^32 - 1"));
        }
        let spaces = (0..realtime.groups()).map(|group| self.load_group(&realtime, group));
        let spaces = spaces.collect::<Result<Vec<_>>>()?;
        if is_recovered && realtime.has_groups() {
            let counts = spaces.iter().map(|space| self.count_free(space));
            let free = counts.sum::<Result<u64>>()?;
            self.atomically(|op| {
                let first = op.group_guards.hold(group_of(&self.volume.geometry, 0))?;
                op.group_guards[first].frextents = free;
                Ok(())
            })?;
        }
        let last_group = AtomicU32::default();
        // Set once: an image is loaded once.
        self.volume.realtime.get_or_init(|| RealtimeSection { realtime, spaces, last_group });
        Ok(())
    }

    fn load_group(&self, realtime: &Realtime, group: u32) -> Result<RealtimeSpace> {
        let (layout, raw) = (realtime.space(group), &self.volume.sb.raw);
        let has = |feature| self.volume.geometry.features.ro_compat(feature);
        let tree = |feature, of| match realtime.has_groups() && has(feature) {
            true => self.group_file(group, of).map(Some),
            false => Ok(None),
        };
        let inos = match realtime.has_groups() {
            false => [Ino(raw.rbmino.get()), Ino(raw.rsumino.get())],
            true => [
                self.group_file(group, MetafileType::RtBitmap)?,
                self.group_file(group, MetafileType::RtSummary)?,
            ],
        };
        let geometry = &self.volume.geometry;
        let bitmap = self.map_of(geometry, &layout, SpaceFile::Bitmap, inos[0])?;
        let summary = self.map_of(geometry, &layout, SpaceFile::Summary, inos[1])?;
        Ok(RealtimeSpace {
            realtime: *realtime,
            layout,
            cursor: Cursor::default(),
            is_free: (0..bitmap.blocks).map(|_| AtomicU8::default()).collect(),
            rmap: tree(RoCompat::RMAPBT, MetafileType::RtRmap)?,
            refcount: tree(RoCompat::REFLINK, MetafileType::RtRefcount)?,
            bitmap,
            summary,
        })
    }

    /// Returns the number of free extents of a group according to its bitmap.
    fn count_free(&self, space: &RealtimeSpace) -> Result<u64> {
        let layout = space.layout;
        let mut free = 0;
        for at in 0..layout.bitmap_blocks() {
            let (place, tag) = space.place(SpaceFile::Bitmap, at)?;
            let block = self.block(place, tag)?;
            let words = (0..layout.words_per_block() as usize).map(|nth| layout.word(&block, nth));
            free += words.map(|word| u64::from(word.count_ones())).sum::<u64>();
        }
        Ok(free)
    }

    /// Returns the inode of a file of a realtime group.
    pub(super) fn group_file(&self, group: u32, metafile_type: MetafileType) -> Result<Ino> {
        let path = group_path(group, metafile_type);
        let file = self.metafile(&path)?;
        file.map(|file| file.ino()).ok_or_else(|| {
            let problem = format!("/{path} is missing");
            Corruption::new("metadata directory", problem).into()
        })
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
