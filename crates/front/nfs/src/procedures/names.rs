//! LOOKUP, REMOVE, RMDIR, RENAME and LINK.

use vfs::{Attributes, Error, Ino, NAME_LEN_MAX, RenameMode};

use super::{EntryName, parse_handle};
use crate::NfsStatus;
use crate::access::{Caller, EXECUTE, WRITE};
use crate::service::{Durability, NfsService};
use crate::xdr::{Garbage, XdrReader, XdrWriter};

impl NfsService<'_> {
    pub(super) fn lookup(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let entry = EntryName::parse(&mut arguments)?;
        self.on_inode(entry.dir, reply, |dir, reply| {
            if !dir.file_type.is_dir() {
                return Err(NfsStatus::NotDir);
            }
            self.check(caller, dir, EXECUTE)?;
            let found = self.attributes(self.find(dir.ino, entry.name)?)?;
            reply.opaque(&self.handles.encode(&found));
            self.put_attributes(reply, Some(&found));
            self.put_current(reply, dir);
            Ok(())
        });
        Ok(())
    }

    /// Returns the inode of a name, which may be `.` or `..`.
    fn find(&self, dir: Ino, name: &[u8]) -> Result<Ino, NfsStatus> {
        match name {
            b"." => Ok(dir),
            _ if name.len() > NAME_LEN_MAX => Err(NfsStatus::NameTooLong),
            b".." => self.result(self.fs.lookup(dir, name)),
            _ => {
                self.result(vfs::names::check_name(name))?;
                self.result(self.fs.lookup(dir, name))
            }
        }
    }

    /// REMOVE and RMDIR.
    pub(super) fn remove(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        is_directory: bool,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let entry = EntryName::parse(&mut arguments)?;
        let changed = self.change([entry.dir; 2], Durability::Optional, |[dir, _], now| {
            self.check_removable(caller, dir, entry.name)?;
            self.result(match is_directory {
                true => self.fs.rmdir(dir.ino, entry.name, Some(now)),
                false => self.fs.unlink(dir.ino, entry.name, Some(now)),
            })
        });
        Self::put_status(reply, &changed.outcome);
        self.put_wcc(reply, &changed.wcc[0]);
        Ok(())
    }

    /// Checks that a caller may remove a name of a directory. Returns the inode of the name, if the check needs it.
    fn check_removable(
        &self,
        caller: &Caller<'_>,
        dir: &Attributes,
        name: &[u8],
    ) -> Result<Option<Attributes>, NfsStatus> {
        if !dir.file_type.is_dir() {
            return Err(NfsStatus::NotDir);
        }
        if matches!(name, b"." | b"..") {
            return Err(NfsStatus::Inval);
        }
        self.result(vfs::names::check_name(name))?;
        self.check(caller, dir, WRITE | EXECUTE)?;
        if caller.is_unrestricted() {
            return Ok(None);
        }
        let found = self.attributes(self.find(dir.ino, name)?)?;
        caller.check_sticky(dir, &found)?;
        Ok(Some(found))
    }

    pub(super) fn rename(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let from = EntryName::parse(&mut arguments)?;
        let to = EntryName::parse(&mut arguments)?;
        let changed =
            self.change([from.dir, to.dir], Durability::Optional, |[from_dir, to_dir], now| {
                let moved = self.check_removable(caller, from_dir, from.name)?;
                match self.check_removable(caller, to_dir, to.name) {
                    Err(NfsStatus::NoEnt) | Ok(_) => {}
                    Err(status) => return Err(status),
                }
                // Its entry `..` changes.
                if let Some(moved) = moved.filter(|moved| moved.file_type.is_dir())
                    && from_dir.ino != to_dir.ino
                {
                    self.check(caller, &moved, WRITE)?;
                }
                let (from, to) = ((from_dir.ino, from.name), (to_dir.ino, to.name));
                self.result(self.fs.rename(from, to, RenameMode::Replace, Some(now)))
            });
        Self::put_status(reply, &changed.outcome);
        self.put_wcc(reply, &changed.wcc[0]);
        self.put_wcc(reply, &changed.wcc[1]);
        Ok(())
    }

    pub(super) fn link(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let file = parse_handle(&mut arguments)?;
        let entry = EntryName::parse(&mut arguments)?;
        let changed = self.change([file, entry.dir], Durability::Optional, |[file, dir], now| {
            if file.file_type.is_dir() {
                return Err(self.failed(&Error::IsADirectory));
            }
            self.check(caller, dir, WRITE | EXECUTE)?;
            self.result(self.fs.link(file.ino, dir.ino, entry.name, Some(now)))
        });
        Self::put_status(reply, &changed.outcome);
        self.put_attributes(reply, changed.wcc[0].after.as_ref());
        self.put_wcc(reply, &changed.wcc[1]);
        Ok(())
    }
}
