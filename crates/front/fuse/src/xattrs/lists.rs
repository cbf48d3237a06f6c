//! Access control lists, and their effect on permission bits.

use linux::Errno;
use linux::abi::{SETXATTR_ACL_KILL_SGID, SetxattrIn};
use vfs::{Error, FileType, Ino, SetAttributes};

use crate::acl;
use crate::{Adapter, clock};

const S_ISGID: u16 = 0o2000;

/// The permission bits that an access list determines.
const ACCESS_BITS: u16 = 0o777;

impl Adapter<'_> {
    /// Sets the access control list of a file. A list that is equivalent to permission bits sets those and is not
    /// stored; an empty value removes the list.
    pub(super) fn set_access_list(
        &self,
        ino: Ino,
        value: &[u8],
        args: &SetxattrIn,
    ) -> Result<(), Errno> {
        let before = self.attributes(ino)?;
        if before.file_type == FileType::Symlink {
            return Err(Errno::OPNOTSUPP);
        }
        self.check_presence(ino, acl::ACCESS, args)?;
        if value.is_empty() {
            self.drop_list(ino, acl::ACCESS)?;
            return self.inode_changed(ino);
        }
        let list = acl::parse(value)?;
        let mut permissions = before.permissions & !ACCESS_BITS | list.mode();
        if args.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 {
            permissions &= !S_ISGID;
        }
        if list.is_minimal() {
            self.drop_list(ino, acl::ACCESS)?;
        } else {
            self.result(self.fs.set_xattr(ino, acl::ACCESS, value))?;
        }
        let change = SetAttributes {
            permissions: Some(permissions),
            ctime: Some(clock::now()),
            ..SetAttributes::default()
        };
        self.result(self.fs.set_attributes(ino, &change))
    }

    /// Sets the default list of a directory. An empty value removes it.
    pub(super) fn set_default_list(
        &self,
        ino: Ino,
        value: &[u8],
        args: &SetxattrIn,
    ) -> Result<(), Errno> {
        match self.attributes(ino)?.file_type {
            FileType::Directory => {}
            FileType::Symlink => return Err(Errno::OPNOTSUPP),
            _ => return Err(Errno::ACCESS),
        }
        self.check_presence(ino, acl::DEFAULT, args)?;
        if value.is_empty() {
            self.drop_list(ino, acl::DEFAULT)?;
        } else {
            acl::parse(value)?;
            self.result(self.fs.set_xattr(ino, acl::DEFAULT, value))?;
        }
        self.inode_changed(ino)
    }

    /// Removes a list, if it exists.
    fn drop_list(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        match self.fs.remove_xattr(ino, name) {
            Err(Error::NoAttribute) => Ok(()),
            other => self.result(other),
        }
    }
}
