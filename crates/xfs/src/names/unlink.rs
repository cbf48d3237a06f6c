//! Removing names.

use vfs::{Error, FileType, Ino, Result, Timestamp};

use super::entry::Located;
use super::link::touch;
use crate::Xfs;
use crate::attr::parent::Link;
use crate::inode::Handle;

impl Xfs {
    pub(crate) fn remove_file(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.check_writable()?;
        if matches!(name, b"." | b"..") {
            return Err(Error::IsADirectory);
        }
        let (_locked, parent, found) = self.lock_entry(dir, name, None)?;
        let child = self.load_named(&parent, &found)?;
        parent.protection().check_removal(child.protection())?;
        if child.file_type()? == FileType::Directory {
            return Err(Error::IsADirectory);
        }
        self.remove_found(&parent, (name, &found), &child, time)
    }

    pub(crate) fn remove_dir(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.check_writable()?;
        match name {
            b"." => return Err(Error::Invalid("a directory cannot be removed as '.'")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        let (_locked, parent, found) = self.lock_entry(dir, name, None)?;
        let child = self.load_named(&parent, &found)?;
        parent.protection().check_removal(child.protection())?;
        child.require_directory()?;
        self.require_empty(&child)?;
        self.remove_found(&parent, (name, &found), &child, time)
    }

    /// Removes a name from a directory and what it stands for, both locked.
    fn remove_found(
        &self,
        before: &Handle,
        (name, found): (&[u8], &Located),
        child: &Handle,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let fate = self.atomically_freeing(|op| {
            let mut parent = before.clone();
            op.remove_entry(&mut parent, name, found.spot.as_ref())?;
            if child.inode.is_dir() {
                parent.drop_subdirectory();
            }
            if let Some(time) = time {
                touch(&mut parent.inode, time);
            }
            op.stage(parent);
            op.take_name(child, Link::new(before, name), time)
        })?;
        self.reap(fate);
        Ok(())
    }
}
