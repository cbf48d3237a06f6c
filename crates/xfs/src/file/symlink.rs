//! Targets of symbolic links.

use smallvec::SmallVec;
use vfs::{Error, FileType, Result};

use crate::Xfs;
use crate::bmap::{self, Place};
use crate::format::address::{Block, FileBlock};
use crate::format::inode::{Fork, Format};
use crate::format::symlink::{HEADER_SIZE, TARGET_LEN_MAX, blocks_for, header_size, verify};
use crate::inode::Handle;
use crate::kind::Kind;

/// The target of a symbolic link.
pub(crate) fn readlink(fs: &Xfs, link: &Handle) -> Result<Vec<u8>> {
    if link.file_type()? != FileType::Symlink {
        return Err(Error::Invalid("not a symbolic link"));
    }
    let len = usize::try_from(link.inode.size()).unwrap_or(usize::MAX);
    if len == 0 || len > TARGET_LEN_MAX {
        return Err(link.corrupt("symbolic link", "impossible length"));
    }
    let target = match link.inode.format() {
        Format::Local => link.inode.fork(Fork::Data)[..len].to_vec(),
        _ => read_remote(fs, link, len)?,
    };
    if target.contains(&0) {
        return Err(link.corrupt("symbolic link", "its target holds a zero byte"));
    }
    Ok(target)
}

/// Gathers a target from its blocks. Each run of blocks has one header.
fn read_remote(fs: &Xfs, link: &Handle, len: usize) -> Result<Vec<u8>> {
    let geometry = &fs.volume.geometry;
    let blocks = u64::from(blocks_for(geometry, len));
    let mut target = Vec::with_capacity(len);
    let mut at = FileBlock(0);
    while target.len() < len {
        let run = bmap::run_at(&mut &*fs, link, Fork::Data, at)?;
        let left = blocks.saturating_sub(at.0);
        let Place::Written(start) = run.place else {
            return Err(link.corrupt("symbolic link", format!("no block {at}")));
        };
        if left == 0 {
            return Err(link.corrupt("symbolic link", "its blocks do not have all of its target"));
        }
        let run_blocks = run.len.min(left);
        let block = geometry.device_block(start);
        read_run(fs, link, block, run_blocks as usize, &mut target)?;
        at = at.plus(run_blocks);
    }
    target.truncate(len);
    Ok(target)
}

/// Adds what one run of blocks has of a target.
fn read_run(
    fs: &Xfs,
    link: &Handle,
    block: Block,
    blocks: usize,
    target: &mut Vec<u8>,
) -> Result<()> {
    let geometry = &fs.volume.geometry;
    let kind = if blocks == 1 { Kind::Symlink } else { Kind::Part };
    let mut bytes: SmallVec<[u8; 4096]> = SmallVec::new();
    for index in 0..blocks as u64 {
        let part = fs.block(Block(block.0 + index), kind.of_inode(link.ino(), 0))?;
        bytes.extend_from_slice(&part);
    }
    if header_size(geometry) == 0 {
        target.extend_from_slice(&bytes);
        return Ok(());
    }
    let range = verify(geometry, link.ino(), block, &bytes).map_err(|c| c.at_block(block.0))?;
    if range.start as usize != target.len() || range.is_empty() {
        let damage = vfs::Corruption::new("symlink block", "it has another part of the target");
        let damage = damage.mismatch(target.len(), format_args!("{range:?}"));
        return Err(damage.at_block(block.0).of_inode(link.ino().0).into());
    }
    target.extend_from_slice(&bytes[HEADER_SIZE..HEADER_SIZE + range.len()]);
    Ok(())
}
