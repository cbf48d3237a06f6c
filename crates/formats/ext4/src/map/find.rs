//! Finding a file's blocks in extent trees and in the block maps of ext2 and ext3.

use vfs::Result;

use crate::format::address::FileBlock;
use crate::format::indirect::{self, IndirectPath};
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::map::extent::step::{SearchStep, check_blocks, root, step};
use crate::map::{MappedRun, Mapping};
use crate::op::source::BlockSource;

pub(crate) use crate::map::extent::step::FILE_BLOCKS_MAX;

/// Returns the run that starts at `block`. A neighbouring run may continue it.
///
/// The inode's contents must not be inline.
pub(crate) fn run_at<S: BlockSource>(
    from: &mut S,
    handle: &Handle,
    block: FileBlock,
) -> Result<MappedRun> {
    let run = if handle.has_flag(flags::EXTENTS) {
        run_in_extents(from, handle, block)?
    } else {
        run_in_map(from, handle, block)?
    };
    if let Mapping::Written(start) | Mapping::Unwritten(start) = run.place {
        check_blocks(&from.fs().volume, handle, start, run.len)?;
    }
    Ok(run)
}

fn run_in_extents<S: BlockSource>(
    from: &mut S,
    handle: &Handle,
    block: FileBlock,
) -> Result<MappedRun> {
    let mut next = step(&root(handle)?, block, FILE_BLOCKS_MAX);
    while let SearchStep::Down(child) = next {
        child.check(&from.fs().volume, handle)?;
        next = from.with(child.leaf, BlockKind::ExtentNode.of(handle.owner), |bytes| {
            Ok::<_, vfs::Error>(step(&child.node(handle, bytes)?, block, child.end))
        })??;
    }
    let wanted = u64::from(block.0);
    Ok(match next {
        SearchStep::Extent(extent) => {
            let start = extent.start.plus(wanted - u64::from(extent.block.0));
            let place =
                if extent.unwritten { Mapping::Unwritten(start) } else { Mapping::Written(start) };
            MappedRun { place, len: extent.end() - wanted }
        }
        SearchStep::Hole(end) => {
            MappedRun { place: Mapping::Hole, len: end.saturating_sub(wanted).max(1) }
        }
        // A leaf has no children.
        SearchStep::Down(_) => return Err(handle.corrupt("extent tree node", "too deep")),
    })
}

fn run_in_map<S: BlockSource>(
    from: &mut S,
    handle: &Handle,
    block: FileBlock,
) -> Result<MappedRun> {
    let block_size = from.fs().volume.geometry.block_size();
    let Some(path) = IndirectPath::to(block, block_size) else {
        let len = FILE_BLOCKS_MAX - u64::from(block.0);
        return Ok(MappedRun { place: Mapping::Hole, len });
    };
    let root = &handle.inode.i_block()[..];
    let (&first, below) = path.indexes().split_first().unwrap_or((&0, &[]));
    if below.is_empty() {
        return Ok(run_of_pointers(&root[..indirect::DIRECT_COUNT as usize * 4], first));
    }
    let mut pointer = indirect::pointer(root, first);
    for (step, &index) in below.iter().enumerate() {
        let Some(block) = pointer else {
            let len = path.shared_after(step, block_size);
            return Ok(MappedRun { place: Mapping::Hole, len });
        };
        check_blocks(&from.fs().volume, handle, block, 1)?;
        let is_last = step + 1 == below.len();
        let tag = BlockKind::Indirect.of(handle.owner);
        let (next, run) = from.with(block, tag, |bytes| {
            let run = is_last.then(|| run_of_pointers(bytes, index));
            (indirect::pointer(bytes, index), run)
        })?;
        if let Some(run) = run {
            return Ok(run);
        }
        pointer = next;
    }
    Err(handle.corrupt("block map", "an endless chain"))
}

/// Returns the run that starts at pointer `index`, as far as the following pointers continue it.
fn run_of_pointers(pointers: &[u8], index: u16) -> MappedRun {
    let first = indirect::pointer(pointers, index);
    let count = (pointers.len() / 4) as u16;
    let continued = |&at: &u16| {
        let expected = first.map(|block| block.plus(u64::from(at - index)));
        indirect::pointer(pointers, at) == expected
    };
    let len = 1 + (index + 1..count).take_while(continued).count() as u64;
    MappedRun { place: first.map_or(Mapping::Hole, Mapping::Written), len }
}
