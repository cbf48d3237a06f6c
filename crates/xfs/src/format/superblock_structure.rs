//! What a superblock must agree with before it is written: the file system that is open.

use vfs::{Corruption, Error, Result};
use zerocopy::FromBytes;

use super::geometry::Geometry;
use super::superblock::{RawSuperblock, Superblock, check_features, check_groups, check_sizes};

/// Checks a superblock that is about to be sealed and written, which starts `sector`: that its numbers agree
/// as those of one that is read must, and that it still describes the file system that is open. While an image
/// is made it may say so.
///
/// # Errors
/// The first number that cannot be right.
pub(crate) fn verify_structure(geometry: &Geometry, sector: &[u8]) -> Result<(), Corruption> {
    let Ok((raw, _)) = RawSuperblock::ref_from_prefix(sector) else {
        return Err(Corruption::new("superblock", "cut short"));
    };
    let features = raw.features();
    check_sizes(raw, &features)
        .and_then(|()| check_features(&features))
        .and_then(|()| check_groups(raw, u64::MAX))
        .map_err(|error| match error {
            Error::Corrupt(fault) => fault,
            other => Corruption::new("superblock", other.to_string()),
        })?;
    let found = Geometry::new(&Superblock { raw: raw.clone(), features });
    let numbers = |of: &Geometry| {
        let logs = [of.block_log, of.sector_log, of.inode_log, of.dir_block_log];
        (logs, of.ag_blocks, of.ag_count, of.blocks, of.meta_uuid, of.features.version)
    };
    if numbers(&found) != numbers(geometry) {
        return Err(Corruption::new("superblock", "it describes another file system"));
    }
    for (field, most, found) in
        [("ifree", raw.icount, raw.ifree), ("fdblocks", raw.dblocks, raw.fdblocks)]
    {
        if found > most {
            let damage = Corruption::new("superblock", field);
            return Err(damage.mismatch(format_args!("at most {most}"), found));
        }
    }
    Ok(())
}
