//! Callers and their permissions.

use vfs::acl::{self, Acl, Tag};
use vfs::{Attributes, Error, FileSystem};

use crate::NfsStatus;
use crate::rpc::Credentials;

/// User and group of callers without credentials.
const ANONYMOUS: u32 = 65_534;
const SUPERUSER: u32 = 0;

/// Permission to read, to write, and to execute or search.
pub(crate) const READ: u16 = 4;
pub(crate) const WRITE: u16 = 2;
pub(crate) const EXECUTE: u16 = 1;

/// Treatment of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsCallers {
    /// Permissions are not checked. New files belong to this user and group.
    Unchecked {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// The user and the groups that clients send (`AUTH_SYS`) are checked against permissions and access control lists.
    /// Clients can send any. User 0 has all rights.
    Checked,
}

/// Caller of a procedure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    credentials: Option<Credentials<'a>>,
    is_checked: bool,
    /// True if the caller has no access at all.
    is_excluded: bool,
}

impl<'a> Caller<'a> {
    /// Creates a caller. `only_user` is the user with access besides the superuser, unless all have it.
    pub(crate) fn new(
        callers: NfsCallers,
        only_user: Option<u32>,
        credentials: Option<Credentials<'a>>,
    ) -> Self {
        let claimed = credentials.map_or(ANONYMOUS, |known| known.uid);
        let is_other = |user| claimed != user && claimed != SUPERUSER;
        let is_excluded = only_user.is_some_and(is_other);
        let ((uid, gid), is_checked) = match (callers, credentials) {
            (NfsCallers::Unchecked { uid, gid }, _) => ((uid, gid), false),
            (NfsCallers::Checked, Some(known)) => ((known.uid, known.gid), true),
            (NfsCallers::Checked, None) => ((ANONYMOUS, ANONYMOUS), true),
        };
        Self { uid, gid, credentials, is_checked, is_excluded }
    }

    /// Returns whether all changes are permitted.
    pub(crate) fn is_unrestricted(&self) -> bool {
        !self.is_excluded && (!self.is_checked || self.uid == SUPERUSER)
    }

    /// Returns whether changes of a file keep its set-id bits.
    pub(crate) fn keeps_set_id(&self) -> bool {
        self.is_checked && self.uid == SUPERUSER
    }

    /// Returns whether the caller is a member of a group, or need not be.
    pub(crate) fn is_in(&self, gid: u32) -> bool {
        let is_named = self.credentials.is_some_and(|credentials| credentials.is_in(gid));
        self.is_unrestricted() || self.gid == gid || is_named
    }

    pub(crate) fn is_owner(&self, attributes: &Attributes) -> bool {
        self.is_unrestricted() || (!self.is_excluded && self.uid == attributes.uid)
    }

    /// Checks that the caller owns an inode.
    ///
    /// # Errors
    /// `Perm` if not.
    pub(crate) fn check_owner(&self, attributes: &Attributes) -> Result<(), NfsStatus> {
        if self.is_owner(attributes) { Ok(()) } else { Err(NfsStatus::Perm) }
    }

    /// Checks that an entry of a sticky directory may be removed.
    ///
    /// # Errors
    /// `Perm` if neither the directory nor the inode belongs to the caller.
    pub(crate) fn check_sticky(
        &self,
        dir: &Attributes,
        entry: &Attributes,
    ) -> Result<(), NfsStatus> {
        let is_sticky = dir.permissions & vfs::ownership::S_ISVTX != 0;
        if !is_sticky || self.is_owner(dir) { Ok(()) } else { self.check_owner(entry) }
    }

    /// Returns whether the caller has all permissions of `wanted`.
    ///
    /// # Errors
    /// If the access control list is unreadable or invalid.
    pub(crate) fn may(
        &self,
        fs: &dyn FileSystem,
        attributes: &Attributes,
        wanted: u16,
    ) -> vfs::Result<bool> {
        if self.is_excluded {
            return Ok(false);
        }
        if self.is_unrestricted() {
            let is_executable =
                attributes.file_type.is_dir() || attributes.permissions & 0o111 != 0;
            return Ok(wanted & EXECUTE == 0 || is_executable);
        }
        let grants = |bits: u16| bits & wanted == wanted;
        if self.uid == attributes.uid {
            return Ok(grants(attributes.permissions >> 6));
        }
        if let Some(list) = access_list(fs, attributes)? {
            return Ok(self.may_by_list(&list, attributes, wanted));
        }
        let shift = if self.is_in(attributes.gid) { 3 } else { 0 };
        Ok(grants(attributes.permissions >> shift))
    }

    /// Applies a list to a caller other than the owner, according to acl(5).
    fn may_by_list(&self, list: &Acl, attributes: &Attributes, wanted: u16) -> bool {
        let of = |tag| list.entries().iter().find(|entry| entry.tag == tag);
        let mask = of(Tag::Mask).map_or(acl::PERMISSIONS, |entry| entry.permissions);
        let grants = |permissions: u16| permissions & wanted == wanted;
        let mut is_member = false;
        for entry in list.entries() {
            let matches = match entry.tag {
                Tag::User if entry.id == self.uid => return grants(entry.permissions & mask),
                Tag::GroupObj => self.is_in(attributes.gid),
                Tag::Group => self.is_in(entry.id),
                _ => false,
            };
            if matches && grants(entry.permissions & mask) {
                return true;
            }
            is_member |= matches;
        }
        !is_member && of(Tag::Other).is_some_and(|entry| grants(entry.permissions))
    }
}

fn access_list(fs: &dyn FileSystem, attributes: &Attributes) -> vfs::Result<Option<Acl>> {
    match fs.get_xattr(attributes.ino, acl::ACCESS) {
        Ok(value) => Acl::parse(&value)
            .map(Some)
            .map_err(|_| Error::Invalid("the access control list of the file is invalid")),
        Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
