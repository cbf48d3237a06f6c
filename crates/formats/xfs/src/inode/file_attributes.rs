//! Inode flags, allocation hints and the project: shows and changes them as kernels do.

use operations::reserve::Claim;
use vfs::{Error, FileAttributes, FileAttributesChange, FileType, Ino, InodeFlags, Result};

use super::Handle;
use crate::XfsCore;
use crate::format::features::{Features2, RoCompat};
use crate::format::inode::{Fork, Inode, Time, flags, flags2};
use crate::format::realtime::Realtime;
use crate::map;

/// Bits of `di_flags` and the flags of the `vfs` crate.
const FLAGS: [(u16, InodeFlags); 14] = [
    (flags::REALTIME, InodeFlags::REALTIME),
    (flags::PREALLOC, InodeFlags::PREALLOCATED),
    (flags::IMMUTABLE, InodeFlags::IMMUTABLE),
    (flags::APPEND, InodeFlags::APPEND),
    (flags::SYNC, InodeFlags::SYNC),
    (flags::NOATIME, InodeFlags::NOATIME),
    (flags::NODUMP, InodeFlags::NODUMP),
    (flags::RTINHERIT, InodeFlags::RTINHERIT),
    (flags::PROJINHERIT, InodeFlags::PROJINHERIT),
    (flags::NOSYMLINKS, InodeFlags::NOSYMLINKS),
    (flags::EXTSIZE, InodeFlags::EXTSIZE),
    (flags::EXTSZINHERIT, InodeFlags::EXTSZINHERIT),
    (flags::NODEFRAG, InodeFlags::NODEFRAG),
    (flags::FILESTREAM, InodeFlags::FILESTREAM),
];

/// Bits of `di_flags2` and the flags of the `vfs` crate.
const FLAGS2: [(u64, InodeFlags); 2] =
    [(flags2::DAX, InodeFlags::DAX), (flags2::COWEXTSIZE, InodeFlags::COWEXTSIZE)];

/// Flags that programs may set and clear on regular files and directories.
const OF_ALL: InodeFlags = InodeFlags::IMMUTABLE
    .union(InodeFlags::APPEND)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NODEFRAG)
    .union(InodeFlags::FILESTREAM)
    .union(InodeFlags::DAX);

/// Flags of directories alone. Kernels ignore them for other files.
const OF_DIRECTORIES: InodeFlags =
    InodeFlags::PROJINHERIT.union(InodeFlags::RTINHERIT).union(InodeFlags::NOSYMLINKS);

/// Flags that are set while the inode has an allocation hint.
const OF_HINTS: InodeFlags =
    InodeFlags::EXTSIZE.union(InodeFlags::EXTSZINHERIT).union(InodeFlags::COWEXTSIZE);

/// Maximum length of an extent, in blocks: 21 bits.
const EXTENT_BLOCKS_MAX: u32 = (1 << 21) - 1;

/// Largest project ID without the feature projid32.
const PROJECT_16_MAX: u32 = u16::MAX as u32;

fn flags_of(inode: &Inode) -> InodeFlags {
    let (own, own2) = (inode.flags(), inode.flags2());
    let first = FLAGS.iter().filter(|(bit, _)| own & bit != 0).map(|&(_, flag)| flag);
    let second = FLAGS2.iter().filter(|(bit, _)| own2 & bit != 0).map(|&(_, flag)| flag);
    let has_attributes = inode.has_attr_fork().then_some(InodeFlags::HASATTR);
    first.chain(second).chain(has_attributes).collect()
}

/// Sets the changeable flags of an inode, and keeps the others.
fn set_flags(inode: &mut Inode, new: InodeFlags) {
    let (mut own, mut own2) = (inode.flags(), inode.flags2());
    for (bit, flag) in FLAGS {
        own = if new.contains(flag) { own | bit } else { own & !bit };
    }
    for (bit, flag) in FLAGS2 {
        own2 = if new.contains(flag) { own2 | bit } else { own2 & !bit };
    }
    inode.set_flags(own);
    if own2 != inode.flags2() {
        inode.set_flags2(own2);
    }
}

impl XfsCore {
    pub(crate) fn read_file_attributes(&self, ino: Ino) -> Result<FileAttributes> {
        let _lock = self.locks.shared(ino);
        let inode = self.load_ordinary(ino)?.inode;
        let log = self.volume.geometry.block_log;
        let bytes = |blocks: u32| u32::try_from(u64::from(blocks) << log).unwrap_or(u32::MAX);
        let flags = flags_of(&inode);
        let hint = |flag, blocks| if flags.intersects(flag) { bytes(blocks) } else { 0 };
        let extents = InodeFlags::EXTSIZE | InodeFlags::EXTSZINHERIT;
        Ok(FileAttributes {
            flags,
            project_id: inode.projid(),
            extent_size_bytes: hint(extents, inode.extent_size_hint()),
            cow_extent_size_bytes: hint(InodeFlags::COWEXTSIZE, inode.cow_extent_size_hint()),
            extents: u32::try_from(inode.extents(Fork::Data)).unwrap_or(u32::MAX),
        })
    }

    pub(crate) fn change_file_attributes(
        &self,
        ino: Ino,
        change: &FileAttributesChange,
    ) -> Result<()> {
        self.provide_quota(None, None, change.project_id)?;
        self.change_inode(ino, Claim::Ordinary, |_, handle| {
            self.change_flags(handle, change)?;
            if let Some(bytes) = change.extent_size_bytes {
                self.set_extent_size(handle, bytes)?;
            }
            if let Some(bytes) = change.cow_extent_size_bytes {
                self.set_cow_extent_size(handle, bytes)?;
            }
            if let Some(project) = change.project_id {
                self.set_project(handle, project)?;
            }
            if let Some(time) = change.ctime {
                handle.inode.set_time(Time::Change, time);
            }
            Ok(())
        })
    }

    fn change_flags(&self, handle: &mut Handle, change: &FileAttributesChange) -> Result<()> {
        let old = flags_of(&handle.inode);
        let kept = InodeFlags::DESCRIBING | OF_HINTS;
        let new = (old - (change.clear - kept)) | (change.set - kept);
        let others = (old ^ new) - OF_ALL - OF_DIRECTORIES - InodeFlags::REALTIME;
        if !others.is_empty() {
            let names: Vec<_> = others.iter_names().map(|(name, _)| name).collect();
            let what = format!("the flags {} in XFS", names.join(", ").to_ascii_lowercase());
            return Err(Error::unsupported(what, "leave them out"));
        }
        let file_type = handle.inode.file_type();
        let may_have = match file_type {
            Some(FileType::Directory) => OF_ALL | OF_DIRECTORIES,
            Some(FileType::Regular) => OF_ALL | InodeFlags::REALTIME,
            _ if old == new => InodeFlags::empty(),
            _ => {
                return Err(Error::unsupported("flags of this file", "only files and directories"));
            }
        };
        if (new - old).contains(InodeFlags::DAX) && handle.inode.flags2() & flags2::REFLINK != 0 {
            return Err(Error::Invalid("shared files do not support dax"));
        }
        if file_type == Some(FileType::Regular) && (old ^ new).contains(InodeFlags::REALTIME) {
            self.check_realtime_change(handle)?;
        }
        let added = (new - old) & may_have;
        set_flags(&mut handle.inode, old & new | added);
        Ok(())
    }

    /// Checks that the data of a file may move to the realtime device or back: it must have no blocks.
    fn check_realtime_change(&self, handle: &Handle) -> Result<()> {
        let Some(realtime) = self.volume.geometry.realtime else {
            return Err(Error::Invalid("the image has no realtime section"));
        };
        if handle.inode.extents(Fork::Data) > 0 {
            return Err(Error::Invalid(
                "the file already has extents; set the flag before writing",
            ));
        }
        if !handle.inode.extent_size_hint().is_multiple_of(realtime.extent_blocks()) {
            return Err(Error::Invalid(
                "the extent size hint must be a multiple of the realtime extent",
            ));
        }
        Ok(())
    }

    /// Converts a hint from bytes to blocks. A group must have room for two such extents.
    fn hint_blocks(&self, bytes: u32, realtime: Option<&Realtime>) -> Result<u32> {
        let geometry = &self.volume.geometry;
        if !bytes.is_multiple_of(1 << geometry.block_log) {
            return Err(Error::Invalid("an extent size hint must be a multiple of the block size"));
        }
        let blocks = bytes >> geometry.block_log;
        if let Some(realtime) = realtime {
            if !blocks.is_multiple_of(realtime.extent_blocks()) || blocks > EXTENT_BLOCKS_MAX {
                return Err(Error::Invalid(
                    "an extent size hint must be a multiple of the realtime extent",
                ));
            }
            return Ok(blocks);
        }
        if blocks > EXTENT_BLOCKS_MAX || blocks > geometry.ag_blocks / 2 {
            return Err(Error::Invalid(
                "an extent size hint must not exceed half an allocation group",
            ));
        }
        Ok(blocks)
    }

    fn set_extent_size(&self, handle: &mut Handle, bytes: u32) -> Result<()> {
        let is_on_realtime = map::is_realtime(handle, Fork::Data);
        let realtime = self.volume.geometry.realtime.filter(|_| is_on_realtime);
        let blocks = self.hint_blocks(bytes, realtime.as_ref())?;
        let inode = &mut handle.inode;
        let flag = match inode.file_type() {
            Some(FileType::Directory) => flags::EXTSZINHERIT,
            Some(FileType::Regular) => flags::EXTSIZE,
            _ => {
                return Err(Error::Invalid("only files and directories support extent size hints"));
            }
        };
        let both = flags::EXTSIZE | flags::EXTSZINHERIT;
        let own = if blocks == 0 { inode.flags() & !both } else { inode.flags() & !both | flag };
        if (own, blocks) == (inode.flags(), inode.extent_size_hint()) {
            return Ok(());
        }
        if flag == flags::EXTSIZE && inode.extents(Fork::Data) > 0 {
            return Err(Error::Invalid(
                "the file already has extents; set the hint before writing",
            ));
        }
        inode.set_flags(own);
        inode.set_extent_size_hint(blocks);
        Ok(())
    }

    fn set_cow_extent_size(&self, handle: &mut Handle, bytes: u32) -> Result<()> {
        let blocks = self.hint_blocks(bytes, None)?;
        let inode = &mut handle.inode;
        if blocks == 0 && inode.cow_extent_size_hint() == 0 {
            return Ok(());
        }
        let holds_data = matches!(inode.file_type(), Some(FileType::Directory | FileType::Regular));
        if !holds_data || !self.volume.geometry.features.ro_compat(RoCompat::REFLINK) {
            return Err(Error::Invalid(
                "only files and directories support it, and it needs the feature reflink",
            ));
        }
        let own = inode.flags2();
        let flag = flags2::COWEXTSIZE;
        inode.set_flags2(if blocks == 0 { own & !flag } else { own | flag });
        inode.set_cow_extent_size_hint(blocks);
        Ok(())
    }

    fn set_project(&self, handle: &mut Handle, project: u32) -> Result<()> {
        let features = &self.volume.geometry.features;
        if project > PROJECT_16_MAX
            && !features.crc()
            && !features.features2.contains(Features2::PROJID32)
        {
            return Err(Error::Invalid("project IDs have 16 bits without the feature projid32"));
        }
        handle.inode.set_projid(project);
        Ok(())
    }
}
