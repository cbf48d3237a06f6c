//! GETATTR and SETATTR.

use vfs::acl::{self, Acl};
use vfs::ownership::{S_ISGID, without_set_id};
use vfs::{Attributes, ChangePurpose, Error, FileType, Ino, SetAttributes, Timestamp};

use super::parse_handle;
use crate::NfsStatus;
use crate::access::{Caller, WRITE};
use crate::attributes::{NewAttributes, NewTime, parse_time, put_attributes, time_words};
use crate::service::{Durability, NfsService};
use crate::xdr::{Garbage, XdrReader, XdrWriter};

/// The attribute in which Linux stores the capabilities of a file.
const CAPABILITIES: &[u8] = b"security.capability";

impl NfsService<'_> {
    pub(super) fn getattr(
        &self,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let held = self.hold(parse_handle(&mut arguments)?);
        Self::put_status(reply, &held);
        if let Ok(held) = held {
            put_attributes(reply, &held, self.shared_attributes());
        }
        Ok(())
    }

    pub(super) fn setattr(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let handle = parse_handle(&mut arguments)?;
        let new = NewAttributes::parse(&mut arguments, self.options.shown_owner)?;
        let guard = arguments.option(parse_time)?;
        let changed = self.change([handle; 2], Durability::Optional, |[inode, _], now| {
            if guard.is_some_and(|guard| time_words(guard) != time_words(inode.ctime)) {
                return Err(NfsStatus::NotSync);
            }
            self.check_setattr(caller, inode, &new)?;
            self.apply(caller, inode, &new, now)
        });
        Self::put_status(reply, &changed.outcome);
        self.put_wcc(reply, &changed.wcc[0]);
        Ok(())
    }

    /// Checks that a caller may set these attributes.
    fn check_setattr(
        &self,
        caller: &Caller<'_>,
        inode: &Attributes,
        new: &NewAttributes,
    ) -> Result<(), NfsStatus> {
        self.check_owner_kept(new)?;
        if caller.is_unrestricted() {
            return Ok(());
        }
        let changes_owner = new.uid.is_some_and(|uid| uid != inode.uid);
        let changes_group = new.gid.is_some_and(|gid| gid != inode.gid && !caller.is_in(gid));
        if changes_owner || changes_group {
            return Err(NfsStatus::Perm);
        }
        let is_time = |time| matches!(time, NewTime::At(_));
        let is_now = |time| time == NewTime::Now;
        if new.mode.is_some() || new.gid.is_some() || is_time(new.atime) || is_time(new.mtime) {
            caller.check_owner(inode)?;
        }
        let writes = new.size.is_some() || is_now(new.atime) || is_now(new.mtime);
        if writes && !caller.is_owner(inode) {
            self.check(caller, inode, WRITE)?;
        }
        Ok(())
    }

    /// Checks that a request does not change owners that clients do not see.
    ///
    /// # Errors
    /// `Perm` if all inodes are shown with one owner, and the request has another one.
    pub(super) fn check_owner_kept(&self, new: &NewAttributes) -> Result<(), NfsStatus> {
        let is_other = new.uid.is_some() || new.gid.is_some();
        if is_other && self.options.shown_owner.is_some() { Err(NfsStatus::Perm) } else { Ok(()) }
    }

    /// Sets attributes. Steps that can fail come first, so that the change is usually atomic.
    pub(super) fn apply(
        &self,
        caller: &Caller<'_>,
        inode: &Attributes,
        new: &NewAttributes,
        now: Timestamp,
    ) -> Result<(), NfsStatus> {
        if *new == NewAttributes::default() {
            return Ok(());
        }
        let mut change = SetAttributes {
            permissions: self.new_permissions(caller, inode, new),
            uid: new.uid,
            gid: new.gid,
            atime: new.atime.value(now)?,
            mtime: new.mtime.value(now)?,
            ctime: Some(now),
            crtime: None,
            purpose: purpose(new),
        };
        if let Some(size) = new.size {
            if inode.file_type != FileType::Regular {
                return Err(if inode.file_type.is_dir() {
                    NfsStatus::IsDir
                } else {
                    NfsStatus::Inval
                });
            }
            self.result(self.fs.truncate(inode.ino, size, Some(now)))?;
            change.mtime = change.mtime.or(Some(now));
        }
        let changes_owner = new.uid.is_some() || new.gid.is_some();
        if (changes_owner || new.size.is_some()) && !inode.file_type.is_dir() {
            self.remove_capabilities(inode.ino)?;
        }
        if let Some(permissions) = new.permissions()
            && inode.file_type != FileType::Symlink
        {
            self.result(self.follow_mode(inode.ino, permissions))?;
        }
        self.result(self.fs.set_attributes(inode.ino, &change))
    }

    /// Returns the permissions after a request, if it changes them.
    fn new_permissions(
        &self,
        caller: &Caller<'_>,
        inode: &Attributes,
        new: &NewAttributes,
    ) -> Option<u16> {
        if let Some(permissions) = new.permissions() {
            // A caller cannot give rights of a group without being its member.
            let gid = new.gid.unwrap_or(inode.gid);
            let keeps_group = inode.file_type.is_dir() || caller.is_in(gid);
            return Some(if keeps_group { permissions } else { permissions & !S_ISGID });
        }
        let changes_owner = new.uid.is_some() || new.gid.is_some();
        let is_affected = match inode.file_type {
            FileType::Directory => false,
            FileType::Regular if new.size.is_some() => !caller.keeps_set_id() || changes_owner,
            _ => changes_owner,
        };
        if !is_affected {
            return None;
        }
        let reduced = without_set_id(inode.permissions, || caller.is_in(inode.gid));
        (reduced != inode.permissions).then_some(reduced)
    }

    /// Returns the permissions of a file whose contents change, if they change, too.
    pub(super) fn reduced_permissions(
        &self,
        caller: &Caller<'_>,
        file: &Attributes,
    ) -> Option<u16> {
        if caller.keeps_set_id() {
            return None;
        }
        let reduced = without_set_id(file.permissions, || caller.is_in(file.gid));
        (reduced != file.permissions).then_some(reduced)
    }

    /// Removes a file's capabilities, as after every change of its contents or owner.
    pub(super) fn remove_capabilities(&self, ino: Ino) -> Result<(), NfsStatus> {
        // Few files have any.
        match self.fs.get_xattr(ino, CAPABILITIES) {
            Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(()),
            Err(error) => Err(self.failed(&error)),
            Ok(_) => self.result(self.fs.remove_xattr(ino, CAPABILITIES)),
        }
    }

    /// Updates the access control list, if there is one, after a change of the permission bits.
    fn follow_mode(&self, ino: Ino, permissions: u16) -> vfs::Result<()> {
        let value = match self.fs.get_xattr(ino, acl::ACCESS) {
            Err(Error::NoAttribute | Error::Unsupported(_)) => return Ok(()),
            value => value?,
        };
        let invalid = |_| Error::Invalid("the access control list of the file is invalid");
        let mut list = Acl::parse(&value).map_err(invalid)?;
        list.set_mode(permissions);
        self.fs.set_xattr(ino, acl::ACCESS, &list.to_bytes())
    }
}

/// Returns the purpose of a change: a new size was permitted by `truncate`, and times of now are a lesser change.
fn purpose(new: &NewAttributes) -> ChangePurpose {
    let is_of_owner = new.mode.is_some() || new.uid.is_some() || new.gid.is_some();
    let has_time = [new.atime, new.mtime].iter().any(|time| matches!(time, NewTime::At(_)));
    match () {
        () if is_of_owner || has_time => ChangePurpose::Request,
        () if new.size.is_some() => ChangePurpose::Consequence,
        () => ChangePurpose::Touch,
    }
}
