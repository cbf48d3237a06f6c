//! Making files, directories, links and special files.

use vfs::names::{check_free, check_name, taken_first};
use vfs::{DeviceNumber, Error, FileType, Ino, NewInode, Result, SpecialFile};

use super::entry::Names;
use super::link::touch;
use crate::Xfs;
use crate::attr::parent::Link;
use crate::dir::Entry;
use crate::format::inode::{Inode, Time, flags};
use crate::inherit::inherit_flags;
use crate::inode::Handle;
use crate::op::Op;

/// Longest target of a symbolic link in bytes: the format's `XFS_SYMLINK_MAXLEN` counts a NUL.
const TARGET_LEN_MAX: usize = 1023;

impl Xfs {
    pub(crate) fn create_file(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        self.create_with(dir, name, FileType::Regular, new, |_, _| Ok(()))
    }

    pub(crate) fn create_dir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        self.create_with(dir, name, FileType::Directory, new, |op, child| op.init_dir(child, dir))
    }

    pub(crate) fn create_special(
        &self,
        dir: Ino,
        name: &[u8],
        file: SpecialFile,
        new: &NewInode,
    ) -> Result<Ino> {
        let (file_type, device) = match file {
            SpecialFile::CharDevice(device) => (FileType::CharDevice, device),
            SpecialFile::BlockDevice(device) => (FileType::BlockDevice, device),
            SpecialFile::Fifo => (FileType::Fifo, DeviceNumber::default()),
            SpecialFile::Socket => (FileType::Socket, DeviceNumber::default()),
        };
        self.create_with(dir, name, file_type, new, |_, child| {
            if child.inode.set_device(device) {
                return Ok(());
            }
            Err(Error::Invalid("a device number has at most 14 bits of major and 18 of minor"))
        })
    }

    pub(crate) fn create_symlink(
        &self,
        dir: Ino,
        name: &[u8],
        target: &[u8],
        new: &NewInode,
    ) -> Result<Ino> {
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Invalid("a link's target must not be empty or contain NUL"));
        }
        if target.len() > TARGET_LEN_MAX {
            return Err(Error::NameTooLong);
        }
        self.create_with(dir, name, FileType::Symlink, new, |op, child| {
            child.inode.set_permissions(0o777);
            op.init_symlink(child, target)
        })
    }

    /// Makes an inode, lets `fill` give it its contents, and enters it into `dir`.
    fn create_with(
        &self,
        dir: Ino,
        name: &[u8],
        file_type: FileType,
        new: &NewInode,
        fill: impl Fn(&mut Op<'_>, &mut Handle) -> Result<()>,
    ) -> Result<Ino> {
        self.check_writable()?;
        check_name(name)?;
        let _lock = self.locks.exclusive(&[dir]);
        let before = self.load_dir(dir)?;
        if file_type == FileType::Directory {
            check_free::<Names>(self, &before, name)?;
        }
        let made = check_new(&before, file_type)
            .and_then(|()| self.atomically(|op| op.make(&before, name, file_type, new, &fill)));
        taken_first::<Names, _>(self, (&before, name), made)
    }
}

/// Whether the flags of a directory allow a new inode in it.
fn check_new(dir: &Handle, file_type: FileType) -> Result<()> {
    dir.protection().check_addition()?;
    if file_type == FileType::Symlink && dir.inode.flags() & flags::NOSYMLINKS != 0 {
        return Err(Error::NotPermitted("the directory takes no symbolic links (nosymlinks)"));
    }
    Ok(())
}

impl Op<'_> {
    /// Makes an inode with a name in `before`, a directory.
    fn make(
        &mut self,
        before: &Handle,
        name: &[u8],
        file_type: FileType,
        new: &NewInode,
        fill: &impl Fn(&mut Op<'_>, &mut Handle) -> Result<()>,
    ) -> Result<Ino> {
        let is_dir = file_type == FileType::Directory;
        let mut parent = before.clone();
        if is_dir {
            parent.add_subdirectory()?;
        }
        let mut child = self.allocate_inode(&parent, is_dir)?;
        self.set_new(&mut child.inode, file_type, new);
        self.fs.inherit_project(&parent, &mut child.inode);
        inherit_flags(&parent, &mut child.inode);
        fill(self, &mut child)?;
        self.add_entry(&mut parent, Entry { name, ino: child.ino(), file_type })?;
        self.add_parent(&mut child, Link::new(&parent, name))?;
        if let Some(time) = new.parent_time {
            touch(&mut parent.inode, time);
        }
        self.stage(parent);
        let ino = child.ino();
        self.stage(child);
        Ok(ino)
    }

    /// Sets what the maker of a new inode asks for, and makes room for its links.
    pub(crate) fn set_new(&self, inode: &mut Inode, file_type: FileType, new: &NewInode) {
        inode.set_mode(file_type, new.permissions);
        inode.set_uid(new.uid);
        inode.set_gid(new.gid);
        inode.set_nlink(if file_type == FileType::Directory { 2 } else { 1 });
        for which in [Time::Access, Time::Change, Time::Modify, Time::Create] {
            inode.set_time(which, new.time);
        }
        self.fs.reserve_attr_fork(inode, file_type);
    }
}
