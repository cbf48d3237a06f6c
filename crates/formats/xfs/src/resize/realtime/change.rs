//! The files of the realtime section that a step of growing changes or makes.
//!
//! Their blocks are written to free space, and are durable before the transaction that maps them. So a crash leaves the
//! old files or the new ones.

use operations::Outcome;
use vfs::{Corruption, Error, Result, Timestamp};

use super::contents::{Contents, read_bitmap};
use crate::XfsCore;
use crate::btree::records::{RmapRecord, rmap_owner};
use crate::format::address::{AgBlock, Block, FileBlock};
use crate::format::features::RoCompat;
use crate::format::inode::{Fork, ForkFormat};
use crate::format::metafile::{MetafileType, RTGROUPS_DIRECTORY, group_path};
use crate::format::realtime::Realtime;
use crate::format::realtime::space::SpaceFile;
use crate::format::superblock::Superblock;
use crate::inode::Handle;
use crate::map::Want;
use crate::op::Op;

/// Number of blocks written at once.
const BLOCKS_AT_ONCE: u64 = 64;

/// A group to change, or a section without groups.
struct Changed {
    number: u32,
    contents: Contents,
    /// The bitmap and the summary; `None` for a new group.
    files: Option<[Handle; 2]>,
}

/// The changes of one step.
pub(super) struct Changes {
    groups: Vec<Changed>,
    /// The directory of the files of groups.
    directory: Option<Handle>,
    realtime: Realtime,
    time: Timestamp,
}

impl Changes {
    /// Prepares a step, for a file system that is open with its future superblock.
    pub(super) fn new(fs: &XfsCore, before: &Superblock, time: Timestamp) -> Result<Self> {
        let realtime = Realtime::of(&fs.volume.sb)?;
        let realtime = realtime.ok_or_else(|| Corruption::new("superblock", "rblocks"))?;
        let old = Realtime::of(before)?;
        let first = match old {
            Some(old) => old.groups() - 1,
            None => 0,
        };
        let change = |number| changed(fs, old.as_ref(), &realtime, number);
        let groups = (first..realtime.groups()).filter_map(|n| change(n).transpose());
        let groups = groups.collect::<Result<_>>()?;
        let missing = || Corruption::new("metadata directory", "/rtgroups is missing");
        let directory = match realtime.has_groups() {
            true => Some(fs.metafile(RTGROUPS_DIRECTORY)?.ok_or_else(missing)?),
            false => None,
        };
        Ok(Self { groups, directory, realtime, time })
    }

    /// Makes the changes in an operation.
    pub(super) fn carry_out(&self, op: &mut Op<'_>) -> Outcome<()> {
        let mut directory = self.directory.clone();
        for group in &self.groups {
            match (&group.files, &mut directory) {
                (Some(files), _) => replace(op, group, files)?,
                (None, Some(directory)) => self.make(op, group, directory)?,
                (None, None) => {}
            }
        }
        if let (Some(changed), Some(before)) = (directory, &self.directory) {
            op.stage_if_changed(changed, before);
        }
        Ok(op.fs.engine.device().flush().map_err(Error::Device)?)
    }

    /// Makes the files of a group.
    fn make(&self, op: &mut Op<'_>, group: &Changed, directory: &mut Handle) -> Outcome<()> {
        let maker = GroupMaker { number: group.number, time: self.time };
        for file in [SpaceFile::Bitmap, SpaceFile::Summary] {
            let mut handle = maker.make_file(op, directory, file.metafile_type())?;
            fill(op, &mut handle, &group.contents, file)?;
            op.stage(handle);
        }
        for metafile_type in GroupMaker::trees(op.fs, &self.realtime) {
            let mut handle = maker.make_tree(op, directory, metafile_type)?;
            if metafile_type == MetafileType::RtRmap && group.number == 0 {
                // The superblock of the device.
                let (len, owner) = (self.realtime.extent_blocks(), rmap_owner::FS);
                let record = RmapRecord { start: AgBlock(0), len, owner, offset: 0 };
                op.enter_realtime_in(&mut handle, record, false)?;
            }
            op.stage(handle);
        }
        Ok(())
    }
}

/// Makes the files of a group.
pub(super) struct GroupMaker {
    pub(super) number: u32,
    pub(super) time: Timestamp,
}

impl GroupMaker {
    /// Returns the types of the trees that each group has.
    pub(super) fn trees(fs: &XfsCore, realtime: &Realtime) -> impl Iterator<Item = MetafileType> {
        let (has_groups, features) = (realtime.has_groups(), fs.volume.geometry.features);
        let all = [
            (MetafileType::RtRmap, RoCompat::RMAPBT),
            (MetafileType::RtRefcount, RoCompat::REFLINK),
        ];
        let made = all.into_iter().filter(move |(_, of)| has_groups && features.ro_compat(*of));
        made.map(|(metafile_type, _)| metafile_type)
    }

    /// Makes a file with an empty tree.
    pub(super) fn make_tree(
        &self,
        op: &mut Op<'_>,
        directory: &mut Handle,
        metafile_type: MetafileType,
    ) -> Outcome<Handle> {
        let mut handle = self.make_file(op, directory, metafile_type)?;
        handle.inode.set_format(Fork::Data, ForkFormat::MetaBtree);
        handle.inode.fork_mut(Fork::Data).fill(0);
        Ok(handle)
    }

    /// Makes an empty file of a group, with its name.
    pub(super) fn make_file(
        &self,
        op: &mut Op<'_>,
        directory: &mut Handle,
        metafile_type: MetafileType,
    ) -> Outcome<Handle> {
        let path = group_path(self.number, metafile_type);
        let name = path.rsplit('/').next().unwrap_or(&path).as_bytes();
        let mut handle = op.make_metafile(directory, name, metafile_type, self.time)?;
        handle.inode.set_projid(self.number);
        Ok(handle)
    }
}

/// Returns a group to change; `None` if it has its size already.
fn changed(
    fs: &XfsCore,
    old: Option<&Realtime>,
    realtime: &Realtime,
    number: u32,
) -> Result<Option<Changed>> {
    let layout = realtime.space(number);
    let before = old.filter(|old| number < old.groups()).map(|old| old.space(number));
    if before.is_some_and(|before| before == layout) {
        return Ok(None);
    }
    // Without groups, the files exist even without a section.
    let exist = before.is_some() || !realtime.has_groups();
    let files = if exist { Some(files_of(fs, realtime, number)?) } else { None };
    let known = match (&before, &files) {
        (Some(before), Some([bitmap, _])) => read_bitmap(fs, before, bitmap)?,
        _ => (Vec::new(), 0),
    };
    let used = u64::from(number == 0 && realtime.has_superblock() && before.is_none());
    let contents = Contents::new(layout, known, used);
    Ok(Some(Changed { number, contents, files }))
}

/// Returns the bitmap and the summary of a group.
fn files_of(fs: &XfsCore, realtime: &Realtime, number: u32) -> Result<[Handle; 2]> {
    if !realtime.has_groups() {
        let raw = &fs.volume.sb.raw;
        return Ok([fs.load(SpaceFile::Bitmap.ino(raw))?, fs.load(SpaceFile::Summary.ino(raw))?]);
    }
    let file = |metafile_type| {
        let path = group_path(number, metafile_type);
        let missing = || Corruption::new("metadata directory", format!("/{path} is missing"));
        Ok::<_, Error>(fs.metafile(&path)?.ok_or_else(missing)?)
    };
    Ok([file(MetafileType::RtBitmap)?, file(MetafileType::RtSummary)?])
}

/// Replaces the contents of both files.
fn replace(op: &mut Op<'_>, group: &Changed, files: &[Handle; 2]) -> Outcome<()> {
    for (before, file) in files.iter().zip([SpaceFile::Bitmap, SpaceFile::Summary]) {
        let mut handle = before.clone();
        op.unmap(&mut handle, Fork::Data, FileBlock(0)..FileBlock::END)?;
        fill(op, &mut handle, &group.contents, file)?;
        op.stage_if_changed(handle, before);
    }
    Ok(())
}

/// Allocates and writes the blocks of an empty file.
pub(super) fn fill(
    op: &mut Op<'_>,
    handle: &mut Handle,
    contents: &Contents,
    file: SpaceFile,
) -> Outcome<()> {
    let (geometry, device) = (op.fs.volume.geometry, op.fs.engine.device().clone());
    let (end, owner) = (contents.layout.blocks_of(file), handle.ino());
    let mut at = 0;
    while at < end {
        let piece = op.provide(handle, FileBlock(at), FileBlock(end), Want::Written)?;
        let first = geometry.device_block(piece.start);
        for start in (0..piece.len).step_by(BLOCKS_AT_ONCE as usize) {
            let these = start..piece.len.min(start + BLOCKS_AT_ONCE);
            let block =
                |nth| contents.block(&geometry, (file, owner), (at + nth, Block(first.0 + nth)));
            let bytes = these.flat_map(block).collect::<Vec<_>>();
            let byte = geometry.byte_of(Block(first.0 + start));
            device.write_at(byte, &bytes).map_err(Error::Device)?;
        }
        at += piece.len;
    }
    handle.inode.set_size(end << geometry.block_log);
    Ok(())
}
