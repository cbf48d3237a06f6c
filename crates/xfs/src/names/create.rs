//! Making files, directories, links and special files.

use vfs::{FileType, Ino, NewInode, Result, Timestamp};

use crate::Xfs;
use crate::attr::parent::Link;
use crate::dir::{Entry, check_name};
use crate::format::inode::{Inode, Time};
use crate::inode::Handle;
use crate::op::Op;

impl Xfs {
    pub(crate) fn create_file(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        self.create_with(dir, name, FileType::Regular, new, |_, _| Ok(()))
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
        self.atomically(|op| {
            let mut parent = before.clone();
            let mut child = op.allocate_inode(&parent, file_type == FileType::Directory)?;
            set_new(&mut child.inode, file_type, new);
            fill(op, &mut child)?;
            op.add_entry(&mut parent, Entry { name, ino: child.ino(), file_type })?;
            let generation = parent.inode.generation();
            op.add_parent(&mut child, Link { dir, generation, name })?;
            if let Some(time) = new.parent_time {
                touch(&mut parent.inode, time);
            }
            op.stage(parent);
            let ino = child.ino();
            op.stage(child);
            Ok(ino)
        })
    }
}

/// Sets what the maker of a new inode asks for.
fn set_new(inode: &mut Inode, file_type: FileType, new: &NewInode) {
    inode.set_mode(file_type, new.permissions);
    inode.set_uid(new.uid);
    inode.set_gid(new.gid);
    inode.set_nlink(if file_type == FileType::Directory { 2 } else { 1 });
    for which in [Time::Access, Time::Change, Time::Modify, Time::Create] {
        inode.set_time(which, new.time);
    }
}

/// Notes the time of a change of a directory.
fn touch(inode: &mut Inode, time: Timestamp) {
    inode.set_time(Time::Modify, time);
    inode.set_time(Time::Change, time);
}
