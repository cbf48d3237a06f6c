//! Makes files of the realtime section again, for repairs. Their contents are those of an empty section.

use operations::{Outcome, RunOperations};
use vfs::{Corruption, Result, Timestamp};

use super::change::{GroupMaker, fill};
use super::contents::Contents;
use crate::XfsCore;
use crate::format::address::FileBlock;
use crate::format::inode::Fork;
use crate::format::metafile::{MetafileType, RTGROUPS_DIRECTORY, group_path};
use crate::format::realtime::Realtime;
use crate::format::realtime::space::SpaceFile;
use crate::inode::Handle;
use crate::map::{self, Place};
use crate::op::Op;

/// Makes the missing files of all groups, and gives bitmaps and summaries with holes their blocks. All extents are free
/// in these, and new trees have no records.
pub(crate) fn remake(fs: &XfsCore, time: Timestamp) -> Result<()> {
    let realtime = Realtime::of(&fs.volume.sb)?;
    let realtime = realtime.ok_or_else(|| Corruption::new("superblock", "rblocks"))?;
    if realtime.has_groups() && fs.metafile(RTGROUPS_DIRECTORY)?.is_none() {
        make_directory(fs, time)?;
    }
    for number in 0..realtime.groups() {
        let contents = Contents::new(realtime.space(number), (Vec::new(), 0), 0);
        for file in [SpaceFile::Bitmap, SpaceFile::Summary] {
            remake_space(fs, (&realtime, number), &contents, (file, time))?;
        }
        for metafile_type in GroupMaker::trees(fs, &realtime) {
            if fs.metafile(&group_path(number, metafile_type))?.is_none() {
                make_in(fs, (number, time), |op, maker, dir| {
                    maker.make_tree(op, dir, metafile_type)
                })?;
            }
        }
    }
    Ok(())
}

/// Makes the directory of the files of groups.
fn make_directory(fs: &XfsCore, time: Timestamp) -> Result<()> {
    let missing = || Corruption::new("metadata directory", "its root is missing");
    let before = fs.metafile("")?.ok_or_else(missing)?;
    fs.atomically(|op| {
        let mut root = before.clone();
        let name = RTGROUPS_DIRECTORY.as_bytes();
        let made = op.make_metafile(&mut root, name, MetafileType::Directory, time)?;
        op.stage(made);
        root.inode.set_nlink(root.inode.nlink() + 1);
        op.stage_if_changed(root, &before);
        Ok(())
    })
}

/// Makes a bitmap or a summary, or fills its holes.
fn remake_space(
    fs: &XfsCore,
    (realtime, number): (&Realtime, u32),
    contents: &Contents,
    (file, time): (SpaceFile, Timestamp),
) -> Result<()> {
    let found = match realtime.has_groups() {
        true => fs.metafile(&group_path(number, file.metafile_type()))?,
        false => Some(fs.load(file.ino(&fs.volume.sb.raw))?),
    };
    let Some(before) = found else {
        return make_in(fs, (number, time), |op, maker, dir| {
            let mut handle = maker.make_file(op, dir, file.metafile_type())?;
            fill(op, &mut handle, contents, file)?;
            Ok(handle)
        });
    };
    if is_whole(fs, &before, contents.layout.blocks_of(file))? {
        return Ok(());
    }
    fs.atomically(|op| {
        let mut handle = before.clone();
        op.unmap(&mut handle, Fork::Data, FileBlock(0)..FileBlock::END)?;
        fill(op, &mut handle, contents, file)?;
        op.stage_if_changed(handle, &before);
        Ok(())
    })
}

/// Makes a file in the directory of the files of groups.
fn make_in(
    fs: &XfsCore,
    (number, time): (u32, Timestamp),
    make: impl Fn(&mut Op<'_>, &GroupMaker, &mut Handle) -> Outcome<Handle>,
) -> Result<()> {
    let missing = || Corruption::new("metadata directory", "/rtgroups is missing");
    let before = fs.metafile(RTGROUPS_DIRECTORY)?.ok_or_else(missing)?;
    let maker = GroupMaker { number, time };
    fs.atomically(|op| {
        let mut directory = before.clone();
        let made = make(op, &maker, &mut directory)?;
        op.stage(made);
        op.stage_if_changed(directory, &before);
        Ok(())
    })
}

/// Returns whether the first `blocks` blocks of a file are mapped and written.
fn is_whole(fs: &XfsCore, handle: &Handle, blocks: u64) -> Result<bool> {
    let mut at = 0;
    while at < blocks {
        let run = map::run_at(&mut &*fs, handle, Fork::Data, FileBlock(at))?;
        if !matches!(run.place, Place::Written(_)) {
            return Ok(false);
        }
        at += run.len;
    }
    Ok(true)
}
