//! Checks of a superblock before it is written, against the open file system.

use vfs::{Corruption, Error, Result};
use zerocopy::FromBytes;

use super::geometry::Geometry;
use super::superblock::{RawSuperblock, Superblock, check_features, check_groups, check_sizes};

/// Checks a superblock at the start of `sector` that is about to be sealed and written. Its fields must be consistent,
/// as when it is read, and describe the open file system. It may be marked as in progress.
///
/// # Errors
/// The first invalid field.
pub(crate) fn verify_structure(geometry: &Geometry, sector: &[u8]) -> Result<(), Corruption> {
    let Ok((raw, _)) = RawSuperblock::ref_from_prefix(sector) else {
        return Err(Corruption::new("superblock", "truncated"));
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
