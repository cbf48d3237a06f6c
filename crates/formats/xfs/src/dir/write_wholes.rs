//! Writing the copies of directory blocks of several file-system blocks into their pieces.

use operations::Outcome;

use super::whole::Whole;
use crate::format::dir as format;
use crate::kind::BlockKind;
use crate::op::Op;

impl Op<'_> {
    /// Writes the copies of directory blocks into their pieces.
    pub(crate) fn write_wholes(&mut self) -> Outcome<()> {
        let geometry = self.fs.volume.geometry;
        let changed = |whole: &Whole| whole.is_changed && !whole.is_gone;
        for mut whole in self.wholes.take_all().into_iter().filter(changed) {
            whole.verify(&geometry).map_err(|fault| self.fs.refuse(fault))?;
            format::seal(&geometry, whole.part, &mut whole.data);
            let pieces = whole.data.chunks_exact(geometry.block_size());
            for (i, (place, new)) in whole.places.iter().zip(pieces).enumerate() {
                let tag = BlockKind::Part.of_inode(whole.ino, whole.at.0 as u32 + i as u32);
                let id = self.buffer(*place, tag)?;
                if self.fs.engine.has_log() {
                    // Recovery replays the directory block as a whole, so all of it is logged.
                    self.txn.edit(id, 0..new.len()).copy_from_slice(new);
                    continue;
                }
                let old = self.txn.data(id);
                let Some(first) = old.iter().zip(new).position(|(old, new)| old != new) else {
                    continue;
                };
                let last = old.iter().zip(new).rposition(|(old, new)| old != new);
                let range = first..last.unwrap_or(first) + 1;
                self.txn.edit(id, range.clone()).copy_from_slice(&new[range]);
            }
        }
        Ok(())
    }
}
