//! Used blocks of a zoned section, which has no bitmaps.

use vfs::Result;

use crate::XfsCore;
use crate::format::metafile::MetafileType;
use crate::format::realtime::Realtime;

impl XfsCore {
    /// Returns the number of free blocks of the realtime section; `None` without a section. Kernels mounted for changes
    /// withhold some zones of a zoned section for garbage collection. These count as free here, as in a read-only mount.
    ///
    /// # Errors
    /// `Corrupt` if a zone has no reverse map.
    pub fn free_realtime_blocks(&self) -> Result<Option<u64>> {
        let Some(realtime) = &self.volume.geometry.realtime else { return Ok(None) };
        let of_extent = u64::from(realtime.extent_blocks());
        if !realtime.is_zoned() {
            let free = self.volume.ags.free_realtime(&self.volume.geometry);
            return Ok(Some(free.saturating_mul(of_extent)));
        }
        let used = match self.volume.zone_blocks_used.get() {
            Some(used) => *used,
            None => {
                let used = self.count_zones(realtime)?;
                *self.volume.zone_blocks_used.get_or_init(|| used)
            }
        };
        Ok(Some((realtime.extents() * of_extent).saturating_sub(used)))
    }

    /// Returns the number of used blocks of all zones. An open image with zones does not change.
    fn count_zones(&self, realtime: &Realtime) -> Result<u64> {
        let used = (0..realtime.groups()).map(|zone| {
            let map = self.load(self.group_file(zone, MetafileType::RtRmap)?)?;
            Ok(u64::from(map.inode.zone_used_blocks()))
        });
        used.sum()
    }
}
