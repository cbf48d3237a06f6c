//! A format that looks into no block.

use crate::{Changed, Corruption, Format, Result, Tag, Txn};

/// Blocks are neither verified nor sealed: they are written as they are. For whoever writes whole blocks that were
/// verified elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsTheyAre;

impl Format for AsTheyAre {
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
