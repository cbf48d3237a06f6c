//! Changing attributes, with all that changes along.

use fuse_device::abi::{
    FATTR_ATIME, FATTR_ATIME_NOW, FATTR_CTIME, FATTR_FH, FATTR_GID, FATTR_KILL_SUIDGID, FATTR_MODE,
    FATTR_MTIME, FATTR_MTIME_NOW, FATTR_SIZE, FATTR_UID, InHeader, SetattrIn,
};
use fuse_device::{Errno, Reply};
use vfs::{Attributes, ChangePurpose, Error, FileType, Ino, SetAttributes, Timestamp};

use crate::acl::{self, Acl};
use crate::{Adapter, caller, clock, groups};

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;

/// Where Linux keeps the capabilities of a file.
pub(crate) const CAPABILITIES: &[u8] = b"security.capability";

/// The bits of a mode that are not its type.
const PERMISSIONS: u32 = 0o7777;

const NSEC_PER_SEC: u32 = 1_000_000_000;

/// Everything that changes something. A file handle or lock owner alone does not.
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

/// What makes a program that runs with its owner's rights, or with capabilities, an ordinary one.
const CHANGES_OWNER: u32 = FATTR_UID | FATTR_GID;

impl Adapter<'_> {
    /// Answers SETATTR. What can fail comes first, so that it mostly happens as a whole or not at all.
    ///
    /// One that sets nothing is what Linux (6.18) sends before contents change of a file that could be run
    /// with others' rights: from the answer it takes the permissions that are left. It would not ask for
    /// them again, and go by the old ones.
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

    /// Makes a file's capabilities go, as after every change of its contents or owner.
    pub(crate) fn remove_capabilities(&self, ino: Ino) -> vfs::Result<()> {
        // Looked for first: most files have none, and looking disturbs nobody.
        match self.fs.get_xattr(ino, CAPABILITIES) {
            Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => self.fs.remove_xattr(ino, CAPABILITIES),
        }
    }

    /// Keeps the access control list, if there is one, in step with new permission bits.
    fn follow_mode(&self, ino: Ino, mode: u32) -> vfs::Result<()> {
        let value = match self.fs.get_xattr(ino, acl::ACCESS) {
            Err(Error::NoAttribute) => return Ok(()),
            value => value?,
        };
        let invalid = |_| Error::Invalid("the file has an access control list that is not valid");
        let mut list = Acl::parse(&value).map_err(invalid)?;
        list.set_mode(mode as u16);
        self.fs.set_xattr(ino, acl::ACCESS, &list.to_bytes())
    }
}

/// Whether this is what Linux writes back of each file that it removes: the time of change, which removing
/// has set already, and a time of its contents that is no other.
fn is_pointless(args: &SetattrIn, before: &Attributes) -> bool {
    let mtime = Timestamp { sec: args.mtime as i64, nsec: args.mtimensec };
    before.links == 0 && args.valid & CHANGES == FATTR_MTIME | FATTR_CTIME && mtime == before.mtime
}

impl Adapter<'_> {
    /// Permissions without what must not outlast a change of the contents or owner by whom a request comes
    /// from: set-user-id, and set-group-id where the group may execute. Where it may not, the bit is no
    /// danger, and a member of the group keeps it, as on the kernel's own file systems.
    pub(crate) fn without_set_id(&self, header: &InHeader, before: &Attributes) -> u16 {
        let keeps_group = before.permissions & (S_ISGID | S_IXGRP) != S_ISGID
            || caller::is_superuser(header)
            || groups::is_in(header, self.options.gid.unwrap_or(before.gid));
        let is_program = before.permissions & S_IXGRP != 0;
        let set_group_id = if is_program || !keeps_group { S_ISGID } else { 0 };
        before.permissions & !(S_ISUID | set_group_id)
    }

    /// The permissions that a request leaves, if it changes them.
    fn permissions(&self, header: &InHeader, args: &SetattrIn, before: &Attributes) -> Option<u16> {
        if args.valid & FATTR_MODE != 0 {
            return Some((args.mode & PERMISSIONS) as u16);
        }
        // A new size alone does not: the kernel knows whether the caller may keep the bits.
        let loses = args.valid & (CHANGES_OWNER | FATTR_KILL_SUIDGID) != 0;
        if !loses || !has_privileges(before) {
            return None;
        }
        let reduced = self.without_set_id(header, before);
        (reduced != before.permissions).then_some(reduced)
    }
}

/// Whether set-id bits and capabilities of an inode are about programs.
fn has_privileges(attributes: &Attributes) -> bool {
    attributes.file_type != FileType::Directory
}

/// Whether a new size is all that is to be set, and one time of the change, which the truncation then sets
/// by itself.
fn is_truncation(args: &SetattrIn, change: &SetAttributes) -> bool {
    let SetAttributes { mtime, ctime, purpose, .. } = *change;
    let times = SetAttributes { mtime, ctime, purpose, ..SetAttributes::default() };
    args.valid & FATTR_SIZE != 0 && mtime == ctime && *change == times
}

/// What is to be set beside the permissions, at the time `now`.
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

/// Whether somebody asks for what is to be set. What the kernel keeps of times it sends with a file handle,
/// and nothing else.
fn purpose(args: &SetattrIn) -> ChangePurpose {
    let only = |bits: u32| args.valid & CHANGES & !bits == 0;
    match () {
        () if args.valid & FATTR_FH != 0 && only(FATTR_MTIME | FATTR_CTIME) => {
            ChangePurpose::Consequence
        }
        // The contents changed before, which was not forbidden.
        () if args.valid & FATTR_SIZE != 0 && only(FATTR_SIZE | FATTR_MTIME | FATTR_CTIME) => {
            ChangePurpose::Consequence
        }
        // The time of its contents the kernel sets to now by itself.
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
