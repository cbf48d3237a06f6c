//! Finishing intents without a done item in the log of a crashed image.
//!
//! Kernels split a large change into transactions, and log in each the intents for the next ones. Here each intent is
//! finished in one operation, together with its done item. If the image crashes in the meantime, the log contains
//! exactly the unfinished ones.
//!
//! Intents are validated before anything is changed, as far as possible without reading the image ([`Intent::check`]).
//! An intent that contradicts the image is detected by its operation, which then changes nothing.

mod attribute;
pub(crate) mod exchange;
mod extents;
#[cfg(test)]
mod tests;

use operations::Outcome;
use operations::RunOperations;
use operations::reserve::Claim;
use vfs::{Corruption, Error, Ino, Result};

use crate::XfsCore;
use crate::format::log::intent::{Intent, Work};
use crate::format::log::item::ItemType;
use crate::inode::Handle;
use crate::op::Op;

/// Sorts intents from the order of the log into the order in which they are finished.
///
/// Reverse-map intents belong to map changes that are done. Kernels log them after the intents of remaining map
/// changes, but finish them before. An exchange and a change of attributes continue when all intents of their last step
/// are done. Any other order would make the reverse map contradict the maps.
fn in_order(mut intents: Vec<Intent>) -> Vec<Intent> {
    intents.sort_by_key(|intent| match intent.item {
        ItemType::Rui | ItemType::RtRui => 0,
        ItemType::Xmi | ItemType::Attri => 2,
        _ => 1,
    });
    intents
}

impl XfsCore {
    /// Finishes intents, given in the order of the log. Each operation includes the done item of its intent. The file
    /// system must not be used by others yet.
    ///
    /// # Errors
    /// `Corrupt` for invalid intents; if the device fails. Nothing is changed if any intent is invalid by itself. One
    /// that contradicts the image changes nothing, but earlier ones have been finished.
    pub(crate) fn finish_intents(&self, intents: Vec<Intent>) -> Result<()> {
        let geometry = &self.volume.geometry;
        intents.iter().try_for_each(|intent| intent.check(geometry))?;
        let keep = |are_left| self.log.iter().for_each(|log| log.keep_intents(are_left));
        keep(true);
        in_order(intents).iter().try_for_each(|intent| self.finish_intent(intent))?;
        keep(false);
        Ok(())
    }

    fn finish_intent(&self, intent: &Intent) -> Result<()> {
        let work = intent.work(&self.volume.geometry)?;
        match &work {
            Work::Free(runs) => self.finish_with(intent, |op| op.finish_frees_of(runs)),
            Work::Rmap(changes) => self.finish_with(intent, |op| {
                changes.iter().try_for_each(|change| op.finish_rmap_change(change))
            }),
            Work::Refcount(changes) => self.finish_with(intent, |op| {
                changes.iter().try_for_each(|change| op.finish_refcount_change(change))
            }),
            Work::Bmap(change) => {
                let before = self.inode_of_intent(change.ino)?;
                self.finish_with(intent, |op| op.finish_bmap_change(&before, change))
            }
            Work::Attribute(change) => {
                let before = self.inode_of_intent(change.ino)?;
                self.finish_with(intent, |op| op.finish_attribute_change(&before, change))
            }
            Work::Exchange(exchange) => self.finish_exchange(intent, exchange),
        }
    }

    /// Runs an operation that includes the done item of an intent.
    fn finish_with(
        &self,
        intent: &Intent,
        body: impl FnMut(&mut Op<'_>) -> Outcome<()>,
    ) -> Result<()> {
        self.atomically_with(Claim::Freeing, body, |()| {
            self.log_item(intent.done());
            Ok(())
        })
    }

    /// Adds an item to the checkpoint of the operation that is about to commit.
    fn log_item(&self, item: Vec<u8>) {
        if let Some(log) = &self.log {
            log.add_done(item);
        }
    }

    /// Returns the inode of an intent.
    fn inode_of_intent(&self, ino: Ino) -> Result<Handle> {
        self.load(ino).map_err(|error| match error {
            Error::NotFound => {
                let damage = Corruption::new("intent", "an inode that is not in use");
                damage.of_inode(ino.0).into()
            }
            other => other,
        })
    }
}
