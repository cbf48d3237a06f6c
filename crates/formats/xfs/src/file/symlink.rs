//! Targets of symbolic links.

use operations::Outcome;
use smallvec::SmallVec;
use vfs::{Error, FileType, Result};
use zerocopy::IntoBytes;

use crate::XfsCore;
use crate::format::address::{Block, FileBlock};
use crate::format::checksum;
use crate::format::features::Incompat;
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, ForkFormat};
use crate::format::symlink::{
    CRC_OFFSET, HEADER_SIZE, TARGET_LEN_MAX, blocks_for, header, header_size, verify,
    verify_structure,
};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::map::{self, Place};
use crate::op::Op;
use crate::xattr::forkoff::default_forkoff;

/// Returns the target of a symbolic link.
pub(crate) fn readlink(fs: &XfsCore, link: &Handle) -> Result<Vec<u8>> {
    if link.file_type()? != FileType::Symlink {
        return Err(Error::Invalid("not a symbolic link"));
    }
    let len = usize::try_from(link.inode.size()).unwrap_or(usize::MAX);
    if len == 0 || len > TARGET_LEN_MAX {
        return Err(link.corrupt("symbolic link", "invalid length"));
    }
    let target = match link.inode.format() {
        ForkFormat::Local => link.inode.fork(Fork::Data)[..len].to_vec(),
        _ => read_remote(fs, link, len)?,
    };
    if target.contains(&0) {
        return Err(link.corrupt("symbolic link", "its target contains a NUL byte"));
    }
    Ok(target)
}

/// Reads a target from its blocks. Each run of blocks has one header.
fn read_remote(fs: &XfsCore, link: &Handle, len: usize) -> Result<Vec<u8>> {
    let geometry = &fs.volume.geometry;
    let blocks = u64::from(blocks_for(geometry, len));
    let mut target = Vec::with_capacity(len);
    let mut at = FileBlock(0);
    while target.len() < len {
        let run = map::run_at(&mut &*fs, link, Fork::Data, at)?;
        let left = blocks.saturating_sub(at.0);
        let Place::Written(start) = run.place else {
            return Err(link.corrupt("symbolic link", format!("block {at} is missing")));
        };
        if left == 0 {
            return Err(link.corrupt("symbolic link", "its blocks do not contain the whole target"));
        }
        let run_blocks = run.len.min(left);
        let block = geometry.device_block(start);
        read_run(fs, link, block, run_blocks as usize, &mut target)?;
        at = at.plus(run_blocks);
    }
    target.truncate(len);
    Ok(target)
}

/// Appends the part of a target in one run of blocks.
fn read_run(
    fs: &XfsCore,
    link: &Handle,
    block: Block,
    blocks: usize,
    target: &mut Vec<u8>,
) -> Result<()> {
    let geometry = &fs.volume.geometry;
    let kind = if blocks == 1 { BlockKind::Symlink } else { BlockKind::Part };
    let mut bytes: SmallVec<[u8; 4096]> = SmallVec::new();
    for index in 0..blocks as u64 {
        let part = fs.block(Block(block.0 + index), kind.of_inode(link.ino(), index as u32))?;
        bytes.extend_from_slice(&part);
    }
    if header_size(geometry) == 0 {
        target.extend_from_slice(&bytes);
        return Ok(());
    }
    let range = verify(geometry, link.ino(), block, &bytes).map_err(|c| c.at_block(block.0))?;
    if range.start as usize != target.len() || range.is_empty() {
        let damage =
            vfs::Corruption::new("symlink block", "it contains another part of the target");
        let damage = damage.mismatch(target.len(), format_args!("{range:?}"));
        return Err(damage.at_block(block.0).of_inode(link.ino().0).into());
    }
    target.extend_from_slice(&bytes[HEADER_SIZE..HEADER_SIZE + range.len()]);
    Ok(())
}

/// Returns the size of the data fork of a new link, in bytes. It takes into account the attribute fork that the link
/// has, or gets for its parent pointers.
fn inline_max(geometry: &Geometry, link: &Handle) -> usize {
    let is_alone = !link.inode.has_attr_fork();
    if is_alone && geometry.features.incompat(Incompat::PARENT) {
        return default_forkoff(&link.inode, FileType::Symlink);
    }
    link.inode.fork(Fork::Data).len()
}

impl Op<'_> {
    /// Writes the target of a new symbolic link, 1 to 1024 bytes, into the inode or into blocks.
    pub(crate) fn init_symlink(&mut self, link: &mut Handle, target: &[u8]) -> Outcome<()> {
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Invalid("the target of the link is invalid").into());
        }
        if target.len() > TARGET_LEN_MAX {
            return Err(Error::NameTooLong.into());
        }
        link.inode.set_size(target.len() as u64);
        if target.len() > inline_max(&self.fs.volume.geometry, link) {
            return self.write_remote(link, target);
        }
        link.inode.set_format(Fork::Data, ForkFormat::Local);
        let fork = link.inode.fork_mut(Fork::Data);
        fork.fill(0);
        fork[..target.len()].copy_from_slice(target);
        Ok(())
    }

    /// Moves a target from the inode to blocks, to make room for attributes.
    pub(crate) fn move_target_out(&mut self, link: &mut Handle) -> Outcome<()> {
        let len = usize::try_from(link.inode.size()).unwrap_or(usize::MAX);
        let target: Option<SmallVec<[u8; 512]>> =
            link.inode.fork(Fork::Data).get(..len).map(SmallVec::from_slice);
        match target {
            Some(target) if !target.is_empty() => self.write_remote(link, &target),
            _ => Err(link.corrupt("symbolic link", "invalid length").into()),
        }
    }

    /// Writes a target to new blocks.
    fn write_remote(&mut self, link: &mut Handle, target: &[u8]) -> Outcome<()> {
        let geometry = self.fs.volume.geometry;
        link.inode.set_format(Fork::Data, ForkFormat::Extents);
        link.inode.fork_mut(Fork::Data).fill(0);
        let blocks = blocks_for(&geometry, target.len());
        let start = self.map_new(link, Fork::Data, FileBlock(0), blocks)?;
        let block = geometry.device_block(start);
        let mut run: SmallVec<[u8; 4096]> = SmallVec::new();
        let has_header = header_size(&geometry) > 0;
        if has_header {
            let header = header(&geometry, link.ino(), block, 0, target.len() as u32);
            run.extend_from_slice(header.as_bytes());
        }
        run.extend_from_slice(target);
        run.resize(blocks as usize * geometry.block_size(), 0);
        if has_header {
            // A run of several blocks has one checksum, and is never changed.
            verify_structure(&geometry, link.ino(), block, &run)
                .map_err(|fault| self.fs.refuse(fault.at_block(block.0)))?;
            checksum::seal(&mut run, CRC_OFFSET);
        }
        let kind = if blocks == 1 { BlockKind::Symlink } else { BlockKind::Part };
        let parts = run.chunks_exact(geometry.block_size());
        for (index, (block, part)) in (block.0..).zip(parts).enumerate() {
            let id = self.txn.create(block, kind.of_inode(link.ino(), index as u32))?;
            self.txn.edit(id, 0..part.len()).copy_from_slice(part);
        }
        Ok(())
    }
}
