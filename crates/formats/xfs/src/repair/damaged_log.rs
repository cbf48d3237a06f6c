//! Handles a damaged log: replays the part before the damage, if that does not make the image worse.
//!
//! A replay up to any record gives an earlier state of the file system, except for blocks that were written back after
//! that record: these are newer, and stay. The repair fixes the inconsistencies.
//!
//! INVARIANT: file data is never replaced. Blocks that were metadata when a record was written may have been freed by a
//! lost record, and reused for a file. The log never contains file data, so blocks of files are restored.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use disk::{BlockDevice, end_at};
use operations::repair::{PAGE_BYTES, Staging};
use vfs::check::{FindingCounter, Options};
use vfs::{Error, FileType, Ino, Result};

use super::restart::restart;
use crate::btree::records::rmap_offset;
use crate::check::codes;
use crate::check::view::{self, Mapping};
use crate::format::address::Block;
use crate::format::geometry::Geometry;
use crate::format::superblock::Superblock;
use crate::log;

/// Replays the part before the damage, without ending the step. Returns the number of transactions; `None` without a
/// change if there are none, or the image would be worse.
///
/// # Errors
/// If the device fails.
pub(super) fn replay(staging: &Arc<Staging>, sb: &Superblock) -> Result<Option<u64>> {
    let device = || Arc::new(Staging::new(Arc::clone(staging) as _));
    let tried = device();
    let report = match log::recover_before_damage(&*tried, sb) {
        Ok(Some(report)) => report,
        Err(Error::Device(error)) => return Err(Error::Device(error)),
        Ok(None) | Err(_) => return Ok(None),
    };
    put_data_back(staging, &tried, sb)?;
    if faults(&tried) > faults(&device()) {
        return Ok(None);
    }
    for (number, page) in tried.steps().iter().flat_map(|step| &step.pages) {
        let start = number * PAGE_BYTES;
        let len = PAGE_BYTES.min(end_at(&**staging, start) - start) as usize;
        staging.write_at(start, &page[..len]).map_err(Error::Device)?;
    }
    Ok(Some(report.transactions))
}

/// Restores file data that the replay overwrote. The remaining changes form one step.
fn put_data_back(before: &Arc<Staging>, after: &Arc<Staging>, sb: &Superblock) -> Result<()> {
    after.end_step(Vec::new()).map_err(Error::Device)?;
    let geometry = Geometry::new(sb);
    let mut changed = BTreeSet::new();
    for number in after.steps().iter().flat_map(|step| step.pages.keys()) {
        let start = number * PAGE_BYTES;
        let end = (start + PAGE_BYTES).min(end_at(&**after, start));
        changed.extend(start >> geometry.block_log..end.div_ceil(1 << geometry.block_log));
    }
    let changed: Vec<u64> = changed.into_iter().filter(|block| *block < geometry.blocks).collect();
    let Ok(claims) = view::claims(Arc::clone(after) as _, HashSet::new(), changed.clone()) else {
        return Ok(());
    };
    let is_of_data = |claim: &&Mapping| {
        claim.is_of_inode()
            && claim.offset & (rmap_offset::ATTR_FORK | rmap_offset::BMBT_BLOCK) == 0
    };
    let files = view::view(Arc::clone(after) as _, |view| {
        let is_file = |claim: &&Mapping| {
            let inode = view.inode(Ino(claim.owner));
            inode.and_then(|inode| inode.file_type()) == Some(FileType::Regular)
        };
        claims.claims.iter().filter(is_of_data).filter(is_file).copied().collect::<Vec<_>>()
    })?;
    let mut bytes = vec![0; geometry.block_size()];
    for claim in files {
        let first = changed.partition_point(|block| *block < claim.block.0);
        for block in changed[first..].iter().take_while(|block| claim.has(**block)) {
            let byte = geometry.byte_of(Block(*block));
            before.read_at(byte, &mut bytes).map_err(Error::Device)?;
            after.write_at(byte, &bytes).map_err(Error::Device)?;
        }
    }
    after.end_step(Vec::new()).map(drop).map_err(Error::Device)
}

/// Returns the number of findings of an image after emptying its log.
fn faults(staging: &Arc<Staging>) -> u64 {
    let emptied = Arc::new(Staging::new(Arc::clone(staging) as _));
    if restart(&emptied).is_err() {
        return u64::MAX;
    }
    // Totals and LSNs follow from an incomplete replay.
    let counter = FindingCounter::except(&[codes::SUPERBLOCK_COUNTS, codes::LSN]);
    let checked = crate::check::check(emptied, &Options::default(), &counter);
    checked.map_or(u64::MAX, |_| counter.count())
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use vfs::{ExtentPlace, FileSystem, NewInode};

    use super::*;
    use crate::Xfs;
    use crate::fs::OpenOptions;
    use crate::mkfs::Options;
    use crate::stub::make;
    use crate::volume::read_superblock;

    const FILE_BYTES: usize = 10 << 12;

    /// Restores overwritten blocks of a file, and nothing else.
    #[test]
    fn data_of_files_are_put_back() {
        let device = Arc::new(make(&Options::new(320 << 20)));
        let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
        let file = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
        fs.write(file, 0, &[0xda; FILE_BYTES], None).unwrap();
        fs.sync().unwrap();
        let mut place = 0;
        fs.extent_map(file, 0, FILE_BYTES as u64, &mut |run| {
            if let ExtentPlace::Device(byte) = run.place {
                place = byte;
            }
            ControlFlow::Break(())
        })
        .unwrap();
        fs.close().unwrap();
        let sb = read_superblock(&*device).unwrap();
        let before = Arc::new(Staging::new(device as _));
        let after = Arc::new(Staging::new(Arc::clone(&before) as _));
        // The third block of the file, a part of the fifth, and a free block.
        let free = before.len() - (1 << 12);
        for (byte, len) in
            [(place + (2 << 12), 1 << 12), (place + (4 << 12) + 512, 128), (free, 512)]
        {
            after.write_at(byte, &vec![0x5a; len]).unwrap();
        }
        put_data_back(&before, &after, &sb).unwrap();
        let mut found = vec![0; FILE_BYTES];
        after.read_at(place, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0xda));
        after.read_at(free, &mut found[..512]).unwrap();
        assert!(found[..512].iter().all(|byte| *byte == 0x5a));
    }
}
