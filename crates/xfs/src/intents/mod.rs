//! Finishing what the log of a crashed image announced: intents without a done item.
//!
//! Kernels split a large change into transactions, and announce in each what the next ones will do. Here
//! each intent is finished in one operation, with the item that says so: an image that crashes meanwhile has
//! exactly the rest to do.
//!
//! What an intent announces is checked before anything is changed, as far as it can be without looking at
//! the image ([`Intent::check`]); what it contradicts in the image is found by the operation, which then
//! changes nothing.

mod attribute;
mod exchange;
mod extents;
#[cfg(test)]
mod tests;

use operation::Outcome;
use operation::RunOperations;
use operation::reserve::Claim;
use vfs::{Corruption, Error, Ino, Result};

use crate::Xfs;
use crate::format::log::intent::{Intent, Work};
use crate::format::log::item::ItemType;
use crate::inode::Handle;
use crate::op::Op;

/// Brings intents, given in the order of the log, into the order in which they are finished.
///
/// What is announced of the reverse map belongs to changes of maps that are done; kernels announce it after what
/// is still to be done to maps, and do it before. An exchange and a change of attributes go on when all that
/// their last step announced is done. The reverse map would contradict the maps in any other order.
fn in_order(mut intents: Vec<Intent>) -> Vec<Intent> {
    intents.sort_by_key(|intent| match intent.item {
        ItemType::Rui => 0,
        ItemType::Xmi | ItemType::Attri => 2,
        _ => 1,
    });
    intents
}

impl Xfs {
    /// Finishes intents, given in the order of the log, each with its done item in the operation that does
    /// it. Nobody else may use the file system yet.
    ///
    /// # Errors
    /// `Corrupt` for intents that cannot be; if the device fails. Nothing is changed if an intent is not
    /// sound in itself; one that contradicts the image changes nothing, and what came before it is done.
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

    /// Runs an operation, and says in it that an intent is done.
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

    /// Puts an item into the checkpoint of the operation that is about to commit.
    fn log_item(&self, item: Vec<u8>) {
        if let Some(log) = &self.log {
            log.add_done(item);
        }
    }

    /// The inode that an intent is about.
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
