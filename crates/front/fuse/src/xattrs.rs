//! Extended attributes. The kernel checks permissions by namespace, except for one check that it leaves to file
//! systems: `trusted.` names are listed for the superuser only.
//!
//! The `system.` namespace contains the access control lists ([`lists`]), and one read-only name ([`parents`]).

mod lists;
mod parents;

use linux::abi::{GetxattrOut, InHeader, SetxattrIn};
use linux::{Errno, Reply};
use vfs::{ChangePurpose, Error, Ino, SetAttributes};

use crate::attributes::CAPABILITIES;
use crate::{Adapter, acl, caller, clock};

/// Maximum size of a value and of a list of names in Linux, in bytes (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const SIZE_MAX: usize = 1 << 16;

// Flags of setxattr(2).
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

const SYSTEM: &[u8] = b"system.";
const TRUSTED: &[u8] = b"trusted.";

impl Adapter<'_> {
    /// Answers GETXATTR.
    pub(crate) fn getxattr(
        &self,
        header: &InHeader,
        ino: Ino,
        name: &[u8],
        size: u32,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        if name == CAPABILITIES
            && size == 0
            && let Some(size) = self.pretended_capabilities(ino)
        {
            return reply.put(&GetxattrOut { size, padding: 0 });
        }
        let value = match name {
            parents::NAME => self.parents(header, ino)?,
            _ if is_foreign(name) => return Err(Errno::OPNOTSUPP),
            _ => self.result(self.fs.get_xattr(ino, name))?,
        };
        answer(&value, size, reply)
    }

    /// Answers LISTXATTR: the names, each followed by NUL.
    pub(crate) fn listxattr(
        &self,
        header: &InHeader,
        ino: Ino,
        size: u32,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        let mut names = Vec::new();
        self.result(self.fs.list_xattrs(ino, &mut |name| {
            let is_shown = !name.starts_with(TRUSTED) || caller::is_superuser(header);
            // One excess byte is sufficient to detect an overflow.
            if is_shown && names.len() <= SIZE_MAX {
                names.extend_from_slice(name);
                names.push(0);
            }
        }))?;
        answer(&names, size, reply)
    }

    /// Handles SETXATTR.
    pub(crate) fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        args: &SetxattrIn,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        match name {
            acl::ACCESS => self.set_access_list(ino, value, args),
            acl::DEFAULT => self.set_default_list(ino, value, args),
            _ if is_foreign(name) => Err(Errno::OPNOTSUPP),
            _ => {
                self.check_presence(ino, name, args)?;
                self.result(self.fs.set_xattr(ino, name, value))?;
                self.inode_changed(ino)
            }
        }
    }

    /// Handles REMOVEXATTR. A file without its access control list keeps its permissions.
    pub(crate) fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        self.check_writable()?;
        if is_foreign(name) {
            return Err(Errno::OPNOTSUPP);
        }
        self.result(self.fs.remove_xattr(ino, name))?;
        self.inode_changed(ino)
    }

    /// Checks that an attribute exists or is missing, as requested by setxattr(2).
    fn check_presence(&self, ino: Ino, name: &[u8], args: &SetxattrIn) -> Result<(), Errno> {
        if args.flags & (XATTR_CREATE | XATTR_REPLACE) == 0 {
            return Ok(());
        }
        match self.fs.get_xattr(ino, name) {
            Ok(_) if args.flags & XATTR_CREATE != 0 => Err(Errno::EXIST),
            Err(Error::NoAttribute) if args.flags & XATTR_REPLACE == 0 => Ok(()),
            other => self.result(other).map(drop),
        }
    }

    /// Sets the ctime of an inode.
    fn inode_changed(&self, ino: Ino) -> Result<(), Errno> {
        let ctime = Some(clock::now());
        let purpose = ChangePurpose::Consequence;
        let time = SetAttributes { ctime, purpose, ..SetAttributes::default() };
        self.result(self.fs.set_attributes(ino, &time))
    }
}

/// Returns whether a `system.` name cannot be stored.
fn is_foreign(name: &[u8]) -> bool {
    name.starts_with(SYSTEM) && name != acl::ACCESS && name != acl::DEFAULT
}

/// Answers with bytes, or with their number if the caller's buffer is empty.
fn answer(bytes: &[u8], size: u32, reply: &mut Reply<'_>) -> Result<(), Errno> {
    if bytes.len() > SIZE_MAX {
        return Err(Errno::TOOBIG);
    }
    if size == 0 {
        return reply.put(&GetxattrOut { size: bytes.len() as u32, padding: 0 });
    }
    if bytes.len() > size as usize {
        return Err(Errno::RANGE);
    }
    reply.put_bytes(bytes)
}
