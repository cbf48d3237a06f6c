//! Making files, directories, links and special files.

use vfs::names::{check_free, check_name, taken_first};
use vfs::{Error, FileType, Ino, NewInode, Result, SpecialFile};

use crate::Ext4;
use crate::dir::Entry;
use crate::format::extent;
use crate::format::inode::{I_BLOCK_SIZE, Inode, Time, flags};
use crate::inode::file_attributes::inherit_flags;
use crate::link::touch;
use crate::op::{Handle, Op};
use crate::rename::Names;

impl Ext4 {
    pub(crate) fn create_file(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        self.create_with(dir, name, FileType::Regular, new, |op, file| {
            op.init_map(file);
            Ok(())
        })
    }

    pub(crate) fn create_dir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        self.create_with(dir, name, FileType::Directory, new, |op, child| {
            op.init_map(child);
            child.inode.set_links_count(2);
            op.init_dir(child, dir)
        })
    }

    pub(crate) fn create_special(
        &self,
        dir: Ino,
        name: &[u8],
        file: SpecialFile,
        new: &NewInode,
    ) -> Result<Ino> {
        let (file_type, device) = match file {
            SpecialFile::CharDevice(device) => (FileType::CharDevice, Some(device)),
            SpecialFile::BlockDevice(device) => (FileType::BlockDevice, Some(device)),
            SpecialFile::Fifo => (FileType::Fifo, None),
            SpecialFile::Socket => (FileType::Socket, None),
        };
        self.create_with(dir, name, file_type, new, |_, child| match device {
            Some(device) if !child.inode.set_device(device) => {
                Err(Error::Invalid("a device number has at most 12 bits of major and 20 of minor"))
            }
            _ => Ok(()),
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
        if target.len() >= self.volume.block_size() {
            return Err(Error::NameTooLong);
        }
        self.create_with(dir, name, FileType::Symlink, new, |op, child| {
            child.inode.set_permissions(0o777);
            child.inode.set_size(target.len() as u64);
            if target.len() < I_BLOCK_SIZE {
                child.inode.i_block_mut()[..target.len()].copy_from_slice(target);
                return Ok(());
            }
            op.init_map(child);
            op.write_new_block(child, target)
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
        let project = self.project_below(&before);
        let made = before
            .protection()
            .check_addition()
            .and_then(|()| self.provide_quota(Some(new.uid), Some(new.gid), Some(project)))
            .and_then(|()| self.atomically(|op| op.make(&before, name, file_type, new, &fill)));
        taken_first::<Names, _>(self, (&before, name), made)
    }
}

pub(crate) fn set_new(inode: &mut Inode, file_type: FileType, new: &NewInode) {
    inode.set_mode(file_type.mode_bits() | new.permissions & 0o7777);
    inode.set_uid(new.uid);
    inode.set_gid(new.gid);
    inode.set_links_count(1);
    for which in [Time::Access, Time::Change, Time::Modify] {
        inode.set_time(which, new.time);
    }
    inode.set_crtime(new.time);
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
        let mut parent = *before;
        if is_dir {
            self.fs.add_subdirectory(&mut parent)?;
        }
        let mut child = self.allocate_inode(&parent, is_dir)?;
        set_new(&mut child.inode, file_type, new);
        inherit_flags(&parent, &mut child.inode);
        self.fs.inherit_project(&parent, &mut child.inode);
        fill(self, &mut child)?;
        self.add_entry(&mut parent, Entry { name, ino: child.ino(), file_type })?;
        if let Some(time) = new.parent_time {
            touch(&mut parent.inode, time);
        }
        self.stage_dir(parent, before)?;
        self.stage_new(child);
        Ok(child.ino())
    }

    /// Gives a new inode an empty block map.
    pub(crate) fn init_map(&self, file: &mut Handle) {
        if self.fs.volume.extents {
            file.inode.set_flag(flags::EXTENTS, true);
            let root = &mut file.inode.i_block_mut()[..extent::ENTRY_SIZE];
            extent::write_header(root, 0, extent::capacity(I_BLOCK_SIZE), 0);
        }
    }
}
