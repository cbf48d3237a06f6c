//! Changes of attributes and their side effects.

use linux::abi::{
    FATTR_ATIME, FATTR_ATIME_NOW, FATTR_CTIME, FATTR_FH, FATTR_GID, FATTR_KILL_SUIDGID, FATTR_MODE,
    FATTR_MTIME, FATTR_MTIME_NOW, FATTR_SIZE, FATTR_UID, InHeader, SetattrIn,
};
use linux::{Errno, Reply};
use vfs::{Attributes, ChangePurpose, Error, FileType, Ino, SetAttributes, Timestamp};

use crate::acl::{self, Acl};
use crate::{Adapter, caller, clock, groups};

/// The attribute in which Linux stores the capabilities of a file.
pub(crate) const CAPABILITIES: &[u8] = b"security.capability";

/// Bits of a mode without the type.
const PERMISSIONS: u32 = 0o7777;

const NSEC_PER_SEC: u32 = 1_000_000_000;

/// Fields that change an inode. A file handle or lock owner alone does not.
const CHANGES: u32 = FATTR_MODE
    | FATTR_UID
    | FATTR_GID
    | FATTR_SIZE
    | FATTR_ATIME
    | FATTR_MTIME
    | FATTR_ATIME_NOW
    | FATTR_MTIME_NOW
    | FATTR_CTIME
    | FATTR_KILL_SUIDGID;

/// Fields that remove set-id bits and capabilities.
const CHANGES_OWNER: u32 = FATTR_UID | FATTR_GID;

impl Adapter<'_> {
    /// Answers SETATTR. Steps that can fail come first, so that the change is usually atomic.
    ///
    /// Linux (6.18) sends a SETATTR without any changes before it changes the contents of a file with set-id bits or
    /// capabilities. It takes the remaining permissions from the answer, and would otherwise keep using the old ones.
    pub(crate) fn setattr(
        &self,
        header: &InHeader,
        ino: Ino,
        args: &SetattrIn,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        if args.valid & CHANGES != 0 {
            self.check_writable()?;
            let before = self.attributes(ino)?;
            if !is_pointless(args, &before) {
                let mut change = change(args, clock::now())?;
                change.permissions = self.permissions(header, args, &before);
                self.result(self.apply(args, &before, &change))?;
            }
        } else if self.check_writable().is_ok() {
            self.will_change(header, ino)?;
        }
        self.getattr(ino, reply)
    }

    fn apply(
        &self,
        args: &SetattrIn,
        before: &Attributes,
        change: &SetAttributes,
    ) -> vfs::Result<()> {
        let truncated_at = change.ctime.filter(|_| is_truncation(args, change));
        if args.valid & FATTR_SIZE != 0 {
            self.fs.truncate(before.ino, args.size, truncated_at)?;
            self.space.forget(before.ino);
        }
        if args.valid & (CHANGES_OWNER | FATTR_SIZE) != 0 && has_privileges(before) {
            self.remove_capabilities(before.ino)?;
        }
        if args.valid & FATTR_MODE != 0 && before.file_type != FileType::Symlink {
            self.follow_mode(before.ino, args.mode)?;
        }
        if truncated_at.is_some() {
            return Ok(());
        }
        self.fs.set_attributes(before.ino, change)
    }

    /// Removes a file's capabilities, as after every change of its contents or owner.
    pub(crate) fn remove_capabilities(&self, ino: Ino) -> vfs::Result<()> {
        // Most files have none, and a look-up does not block other threads.
        match self.fs.get_xattr(ino, CAPABILITIES) {
            Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => self.fs.remove_xattr(ino, CAPABILITIES),
        }
    }

    /// Updates the access control list, if there is one, after a change of the permission bits.
    fn follow_mode(&self, ino: Ino, mode: u32) -> vfs::Result<()> {
        let value = match self.fs.get_xattr(ino, acl::ACCESS) {
            Err(Error::NoAttribute) => return Ok(()),
            value => value?,
        };
        let invalid = |_| Error::Invalid("the access control list of the file is invalid");
        let mut list = Acl::parse(&value).map_err(invalid)?;
        list.set_mode(mode as u16);
        self.fs.set_xattr(ino, acl::ACCESS, &list.to_bytes())
    }
}

/// Returns whether this is the SETATTR that Linux writes back for each removed file: the ctime, which the removal has
/// already set, and an unchanged mtime.
fn is_pointless(args: &SetattrIn, before: &Attributes) -> bool {
    let mtime = Timestamp { sec: args.mtime as i64, nsec: args.mtimensec };
    before.links == 0 && args.valid & CHANGES == FATTR_MTIME | FATTR_CTIME && mtime == before.mtime
}

impl Adapter<'_> {
    /// Returns the permissions without the bits that must be cleared when the caller changes the contents or owner.
    pub(crate) fn without_set_id(&self, header: &InHeader, before: &Attributes) -> u16 {
        vfs::ownership::without_set_id(before.permissions, || {
            caller::is_superuser(header)
                || groups::is_in(header, self.options.gid.unwrap_or(before.gid))
        })
    }

    /// Returns the permissions after a request, if it changes them.
    fn permissions(&self, header: &InHeader, args: &SetattrIn, before: &Attributes) -> Option<u16> {
        if args.valid & FATTR_MODE != 0 {
            return Some((args.mode & PERMISSIONS) as u16);
        }
        // A new size alone does not clear them: the kernel knows whether the caller may keep the bits.
        let loses = args.valid & (CHANGES_OWNER | FATTR_KILL_SUIDGID) != 0;
        if !loses || !has_privileges(before) {
            return None;
        }
        let reduced = self.without_set_id(header, before);
        (reduced != before.permissions).then_some(reduced)
    }
}

/// Returns whether set-id bits and capabilities of an inode apply to execution.
fn has_privileges(attributes: &Attributes) -> bool {
    attributes.file_type != FileType::Directory
}

/// Returns whether only the size is to be set, with a single time, which the truncation itself sets.
fn is_truncation(args: &SetattrIn, change: &SetAttributes) -> bool {
    let SetAttributes { mtime, ctime, purpose, .. } = *change;
    let times = SetAttributes { mtime, ctime, purpose, ..SetAttributes::default() };
    args.valid & FATTR_SIZE != 0 && mtime == ctime && *change == times
}

/// Returns the changes other than permissions, at the time `now`.
fn change(args: &SetattrIn, now: Timestamp) -> Result<SetAttributes, Errno> {
    let asked = |bits: u32| args.valid & bits != 0;
    let time = |set: u32, set_now: u32, sec: u64, nsec: u32| match () {
        () if asked(set_now) => Ok(Some(now)),
        () if asked(set) => timestamp(sec, nsec).map(Some),
        () => Ok(None),
    };
    let mtime = time(FATTR_MTIME, FATTR_MTIME_NOW, args.mtime, args.mtimensec)?;
    Ok(SetAttributes {
        permissions: None,
        uid: asked(FATTR_UID).then_some(args.uid),
        gid: asked(FATTR_GID).then_some(args.gid),
        atime: time(FATTR_ATIME, FATTR_ATIME_NOW, args.atime, args.atimensec)?,
        mtime: mtime.or(asked(FATTR_SIZE).then_some(now)),
        ctime: time(FATTR_CTIME, 0, args.ctime, args.ctimensec)?.or(Some(now)),
        crtime: None,
        purpose: purpose(args),
    })
}

/// Returns the purpose of the change. The kernel sends its cached times with a file handle and without other changes.
fn purpose(args: &SetattrIn) -> ChangePurpose {
    let only = |bits: u32| args.valid & CHANGES & !bits == 0;
    match () {
        () if args.valid & FATTR_FH != 0 && only(FATTR_MTIME | FATTR_CTIME) => {
            ChangePurpose::Consequence
        }
        // The contents were changed before, with permission.
        () if args.valid & FATTR_SIZE != 0 && only(FATTR_SIZE | FATTR_MTIME | FATTR_CTIME) => {
            ChangePurpose::Consequence
        }
        // The kernel sets the mtime to the current time by itself.
        () if args.valid & FATTR_ATIME_NOW != 0
            && only(
                FATTR_ATIME | FATTR_ATIME_NOW | FATTR_MTIME | FATTR_MTIME_NOW | FATTR_CTIME,
            ) =>
        {
            ChangePurpose::Touch
        }
        () => ChangePurpose::Request,
    }
}

fn timestamp(sec: u64, nsec: u32) -> Result<Timestamp, Errno> {
    if nsec >= NSEC_PER_SEC {
        return Err(Errno::INVAL);
    }
    Ok(Timestamp { sec: sec as i64, nsec })
}
