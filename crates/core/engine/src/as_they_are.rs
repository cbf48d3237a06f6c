//! A format that does not interpret blocks.

use crate::{BlockFormat, Changed, Corruption, Result, Tag, Txn};

/// Neither verifies nor seals blocks. For callers that write whole blocks verified elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsTheyAre;

impl BlockFormat for AsTheyAre {
    fn verify(&self, _: Tag, _: u64, _: &[u8]) -> Result<(), Corruption> {
        Ok(())
    }

    fn seal(&self, _: Tag, _: u64, _: Changed, _: &mut [u8]) -> Result<(), Corruption> {
        Ok(())
    }

    fn flush_deferred(&self, _: &mut Txn<'_>) -> Result<()> {
        Ok(())
    }
}
