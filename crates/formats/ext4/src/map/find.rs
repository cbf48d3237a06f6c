//! Finding a file's blocks in extent trees and in the block maps of ext2 and ext3.

use vfs::Result;

use crate::format::address::FileBlock;
use crate::format::indirect::{self, Path};
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::kind::Kind;
use crate::map::extent::step::{Step, check_blocks, root, step};
use crate::map::{Place, Run};
use crate::op::source::Source;

pub(crate) use crate::map::extent::step::FILE_BLOCKS_MAX;

/// Returns the run that starts at `block`. A neighbouring run may continue it.
///
/// The inode's contents must not be inline.
pub(crate) fn run_at<S: Source>(from: &mut S, handle: &Handle, block: FileBlock) -> Result<Run> {
    let run = if handle.has_flag(flags::EXTENTS) {
        run_in_extents(from, handle, block)?
    } else {
        run_in_map(from, handle, block)?
    };
    if let Place::Written(start) | Place::Unwritten(start) = run.place {
        check_blocks(&from.fs().volume, handle, start, run.len)?;
    }
    Ok(run)
}

fn run_in_extents<S: Source>(from: &mut S, handle: &Handle, block: FileBlock) -> Result<Run> {
    let mut next = step(&root(handle)?, block, FILE_BLOCKS_MAX);
    while let Step::Down(child) = next {
        child.check(&from.fs().volume, handle)?;
        next = from.with(child.leaf, Kind::ExtentNode.of(handle.owner), |bytes| {
            Ok::<_, vfs::Error>(step(&child.node(handle, bytes)?, block, child.end))
        })??;
    }
    let wanted = u64::from(block.0);
    Ok(match next {
        Step::Extent(extent) => {
            let start = extent.start.plus(wanted - u64::from(extent.block.0));
            let place =
                if extent.unwritten { Place::Unwritten(start) } else { Place::Written(start) };
            Run { place, len: extent.end() - wanted }
        }
        Step::Hole(end) => Run { place: Place::Hole, len: end.saturating_sub(wanted).max(1) },
        // A leaf has no children.
        Step::Down(_) => return Err(handle.corrupt("extent tree node", "too deep")),
    })
}

fn run_in_map<S: Source>(from: &mut S, handle: &Handle, block: FileBlock) -> Result<Run> {
    let block_size = from.fs().volume.geometry.block_size();
    let Some(path) = Path::to(block, block_size) else {
        let len = FILE_BLOCKS_MAX - u64::from(block.0);
        return Ok(Run { place: Place::Hole, len });
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
            return Ok(Run { place: Place::Hole, len });
        };
        check_blocks(&from.fs().volume, handle, block, 1)?;
        let is_last = step + 1 == below.len();
        let tag = Kind::Indirect.of(handle.owner);
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
fn run_of_pointers(pointers: &[u8], index: u16) -> Run {
    let first = indirect::pointer(pointers, index);
    let count = (pointers.len() / 4) as u16;
    let continued = |&at: &u16| {
        let expected = first.map(|block| block.plus(u64::from(at - index)));
        indirect::pointer(pointers, at) == expected
    };
    let len = 1 + (index + 1..count).take_while(continued).count() as u64;
    Run { place: first.map_or(Place::Hole, Place::Written), len }
}
