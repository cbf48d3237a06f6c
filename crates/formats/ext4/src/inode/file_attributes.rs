//! Inode flags and the project id: reading, changing and inheriting them. All rules follow the kernel.
//!
//! The bits of `i_flags` are those of FS_IOC_GETFLAGS, which was first an ext2 ioctl.

use operations::RunOperations;
use vfs::{
    Error, FileAttributes, FileAttributesChange, FileType, Ino, InodeFlags, Protection, Result,
};

use crate::Ext4Core;
use crate::format::features::Incompat;
use crate::format::inode::{Inode, Time};
use crate::inode::Handle;

/// Flags that programs may change on directories. Source: "user-modifiable flags" in the kernel's
/// Documentation/filesystems/ext4/inodes.rst, without those that change how contents are mapped.
const OF_DIRECTORIES: InodeFlags = InodeFlags::SECURE_DELETE
    .union(InodeFlags::UNDELETE)
    .union(InodeFlags::COMPRESS)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::DAX)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD);

/// Flags that programs may change on regular files.
const OF_FILES: InodeFlags = OF_DIRECTORIES
    .difference(InodeFlags::DIRSYNC)
    .difference(InodeFlags::TOPDIR)
    .difference(InodeFlags::PROJINHERIT)
    .difference(InodeFlags::CASEFOLD);

/// Flags that programs may change on all other types.
const OF_OTHERS: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);

/// Flags that a new inode inherits from its directory, if its type allows them.
const INHERITED: InodeFlags = OF_DIRECTORIES
    .difference(InodeFlags::IMMUTABLE)
    .difference(InodeFlags::APPEND)
    .difference(InodeFlags::TOPDIR)
    .union(InodeFlags::NOCOMPRESS);

const fn of_type(file_type: Option<FileType>) -> InodeFlags {
    match file_type {
        Some(FileType::Directory) => OF_DIRECTORIES,
        Some(FileType::Regular) => OF_FILES,
        _ => OF_OTHERS,
    }
}

/// Sets the flags that a new inode inherits from `parent`. The type of `child` must be set.
pub(crate) fn inherit_flags(parent: &Handle, child: &mut Inode) {
    let of_type = match child.file_type() {
        Some(FileType::Directory | FileType::Regular) => {
            of_type(child.file_type()).union(InodeFlags::NOCOMPRESS)
        }
        other => of_type(other),
    };
    let inherited = parent.inode.flags() & INHERITED.intersection(of_type).to_getflags();
    if inherited != 0 {
        child.set_flag(inherited, true);
    }
}

/// Returns the flags of an inode, without those about the unit of its block count and about attribute values.
fn flags_of(inode: &Inode) -> InodeFlags {
    InodeFlags::from_bits_truncate(inode.flags().into())
}

impl Ext4Core {
    pub(crate) fn read_file_attributes(&self, ino: Ino) -> Result<FileAttributes> {
        let _lock = self.locks.shared(ino);
        let handle = self.load(ino)?;
        let (flags, project_id) = (flags_of(&handle.inode), handle.inode.projid());
        Ok(FileAttributes { flags, project_id, ..FileAttributes::default() })
    }

    pub(crate) fn change_file_attributes(
        &self,
        ino: Ino,
        change: &FileAttributesChange,
    ) -> Result<()> {
        self.check_writable()?;
        let _lock = self.locks.exclusive(&[ino]);
        let mut handle = self.load(ino)?;
        let old = flags_of(&handle.inode);
        let flags =
            (old - (change.clear - InodeFlags::DESCRIBING)) | (change.set - InodeFlags::DESCRIBING);
        let project = change.project_id.filter(|&project| project != handle.inode.projid());
        self.check_flags(&handle, old, flags)?;
        if change.extent_size_bytes.unwrap_or(0) | change.cow_extent_size_bytes.unwrap_or(0) != 0 {
            let advice = "leave the hint out; the format does not store it";
            return Err(Error::unsupported("extent size hints in ext4", advice));
        }
        check_immutable(handle.protection(), old ^ flags, project)?;
        if let Some(project) = project {
            self.set_project(&mut handle, project)?;
        }
        handle.inode.set_flag((old - flags).to_getflags(), false);
        handle.inode.set_flag((flags - old).to_getflags(), true);
        if let Some(time) = change.ctime {
            handle.inode.set_time(Time::Change, time);
        }
        self.atomically(|op| {
            op.note_values(&handle)?;
            op.stage(handle);
            Ok(())
        })
    }

    /// Checks whether an inode with the flags `old` may get the flags `new`.
    fn check_flags(&self, handle: &Handle, old: InodeFlags, new: InodeFlags) -> Result<()> {
        let changed = old ^ new;
        let others = changed - of_type(handle.inode.file_type());
        if !others.is_empty() {
            let what = format!("changing the flags {} of this file type", names_of(others));
            return Err(Error::unsupported(
                what,
                "leave them out; ext4 supports them only for other file types",
            ));
        }
        if !changed.contains(InodeFlags::CASEFOLD) {
            return Ok(());
        }
        if !self.volume.sb.features.incompat(Incompat::CASEFOLD) {
            let advice = "create the file system with the feature casefold";
            return Err(Error::unsupported("case-insensitive directories", advice));
        }
        operations::names::require_empty(self, handle)
    }

    fn set_project(&self, handle: &mut Handle, project: u32) -> Result<()> {
        if !self.volume.projects {
            let advice = "turn the feature project on with tune2fs -O project";
            return Err(Error::unsupported("project IDs in this file system", advice));
        }
        self.provide_quota(None, None, Some(project))?;
        handle.inode.set_projid(project);
        if handle.inode.projid() != project {
            let advice = "copy the file; a new inode has the field";
            return Err(Error::unsupported("a project ID in an inode without that field", advice));
        }
        Ok(())
    }
}

/// Checks whether attributes of a protected inode may change. An immutable inode allows no other change while it stays
/// immutable.
fn check_immutable(
    protection: Protection,
    changed: InodeFlags,
    project: Option<u32>,
) -> Result<()> {
    if changed.contains(InodeFlags::IMMUTABLE) || changed.is_empty() && project.is_none() {
        return Ok(());
    }
    protection.check_addition()
}

/// Returns the names of flags, for messages.
fn names_of(flags: InodeFlags) -> String {
    let names: Vec<_> = flags.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.join(", ")
}
