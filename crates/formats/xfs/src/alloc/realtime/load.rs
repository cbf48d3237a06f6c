//! Reading the maps of the bitmap and the summary.

use std::sync::atomic::AtomicU8;

use vfs::{Corruption, Error, Ino, Result};

use super::space::{Cursor, FileMap, RealtimeSpace};
use crate::XfsCore;
use crate::format::address::FileBlock;
use crate::format::geometry::Geometry;
use crate::format::inode::Fork;
use crate::format::realtime::space::{SpaceFile, SpaceLayout};
use crate::map::{self, Place};

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
