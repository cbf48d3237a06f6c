//! CREATE, MKDIR, SYMLINK and MKNOD.

use vfs::acl::{self, InheritedAcl};
use vfs::ownership::{S_ISGID, S_IXGRP, inherited_group};
use vfs::{
    Attributes, ChangePurpose, DeviceNumber, FileType, Ino, NewInode, SetAttributes, SpecialFile,
    Timestamp,
};

use super::EntryName;
use crate::NfsStatus;
use crate::access::{Caller, EXECUTE, WRITE};
use crate::attributes::{NF3BLK, NF3CHR, NF3FIFO, NF3SOCK, NewAttributes};
use crate::service::{Changed, Durability, NfsService};
use crate::xdr::{Garbage, XdrReader, XdrWriter};

/// Permissions of new files and directories whose client requests none.
const FILE_PERMISSIONS: u16 = 0o644;
const DIRECTORY_PERMISSIONS: u16 = 0o755;
const SYMLINK_PERMISSIONS: u16 = 0o777;
/// Permissions of a file until its creator sets them, after an exclusive creation.
const EXCLUSIVE_PERMISSIONS: u16 = 0o600;

/// Behaviour of CREATE if the name exists (`createhow3`).
#[derive(Clone, Copy, Debug)]
enum CreateMode {
    Unchecked(NewAttributes),
    Guarded(NewAttributes),
    /// Succeeds again with the same verifier, which the file has as its times.
    Exclusive([u8; 8]),
}

impl CreateMode {
    fn parse(
        arguments: &mut XdrReader<'_>,
        shown_owner: Option<(u32, u32)>,
    ) -> Result<Self, Garbage> {
        match arguments.u32()? {
            0 => NewAttributes::parse(arguments, shown_owner).map(Self::Unchecked),
            1 => NewAttributes::parse(arguments, shown_owner).map(Self::Guarded),
            2 => arguments.array().map(Self::Exclusive),
            _ => Err(Garbage),
        }
    }

    fn attributes(&self) -> NewAttributes {
        match *self {
            Self::Unchecked(new) | Self::Guarded(new) => new,
            Self::Exclusive(_) => {
                let mode = Some(EXCLUSIVE_PERMISSIONS.into());
                NewAttributes { mode, ..NewAttributes::default() }
            }
        }
    }
}

/// Access and modification time of a file with this verifier. All formats store seconds up to 2038.
fn times_of([a, b, c, d, e, f, g, h]: [u8; 8]) -> [Timestamp; 2] {
    [[a, b, c, d], [e, f, g, h]]
        .map(|half| Timestamp { sec: i64::from(u32::from_be_bytes(half) & 0x7fff_ffff), nsec: 0 })
}

/// Inode to create.
enum Kind<'a> {
    File,
    Directory,
    Symlink(&'a [u8]),
    Special(SpecialFile),
}

impl Kind<'_> {
    fn file_type(&self) -> FileType {
        match self {
            Self::File => FileType::Regular,
            Self::Directory => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Special(SpecialFile::CharDevice(_)) => FileType::CharDevice,
            Self::Special(SpecialFile::BlockDevice(_)) => FileType::BlockDevice,
            Self::Special(SpecialFile::Fifo) => FileType::Fifo,
            Self::Special(SpecialFile::Socket) => FileType::Socket,
        }
    }

    fn permissions(&self, new: &NewAttributes) -> u16 {
        let default = match self {
            Self::Symlink(_) => return SYMLINK_PERMISSIONS,
            Self::Directory => DIRECTORY_PERMISSIONS,
            Self::File | Self::Special(_) => FILE_PERMISSIONS,
        };
        new.permissions().unwrap_or(default)
    }
}

impl NfsService<'_> {
    pub(super) fn create(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let entry = EntryName::parse(&mut arguments)?;
        let mode = CreateMode::parse(&mut arguments, self.options.shown_owner)?;
        let changed = self.change([entry.dir; 2], Durability::Optional, |[dir, _], now| match self
            .make(caller, dir, entry.name, &Kind::File, (&mode.attributes(), now))
        {
            Ok(ino) => {
                if let CreateMode::Exclusive(verifier) = mode {
                    self.set_verifier(ino, verifier)?;
                }
                self.attributes(ino)
            }
            Err(NfsStatus::Exist) if !entry.is_dots() => {
                self.existing(caller, (dir.ino, entry.name), &mode, now)
            }
            Err(status) => Err(status),
        });
        self.put_new(reply, &changed);
        Ok(())
    }

    /// Answers CREATE for a name that exists.
    fn existing(
        &self,
        caller: &Caller<'_>,
        (dir, name): (Ino, &[u8]),
        mode: &CreateMode,
        now: Timestamp,
    ) -> Result<Attributes, NfsStatus> {
        let ino = self.result(self.fs.lookup(dir, name))?;
        let found = self.attributes(ino)?;
        match mode {
            CreateMode::Unchecked(new) if found.file_type == FileType::Regular => {
                // Only the size applies to a file that exists.
                let new = NewAttributes { size: new.size, ..NewAttributes::default() };
                if new.size.is_some() && !caller.is_owner(&found) {
                    self.check(caller, &found, WRITE)?;
                }
                self.apply(caller, &found, &new, now)?;
                self.attributes(ino)
            }
            CreateMode::Exclusive(verifier)
                if found.size == 0 && [found.atime, found.mtime] == times_of(*verifier) =>
            {
                Ok(found)
            }
            _ => Err(NfsStatus::Exist),
        }
    }

    /// Stores the verifier of an exclusive creation.
    fn set_verifier(&self, ino: Ino, verifier: [u8; 8]) -> Result<(), NfsStatus> {
        let [atime, mtime] = times_of(verifier).map(Some);
        let purpose = ChangePurpose::Consequence;
        let change = SetAttributes { atime, mtime, purpose, ..SetAttributes::default() };
        self.result(self.fs.set_attributes(ino, &change))
    }

    pub(super) fn mkdir(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let entry = EntryName::parse(&mut arguments)?;
        let new = NewAttributes::parse(&mut arguments, self.options.shown_owner)?;
        self.answer_new(caller, &entry, &Kind::Directory, &new, reply);
        Ok(())
    }

    pub(super) fn symlink(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let entry = EntryName::parse(&mut arguments)?;
        let new = NewAttributes::parse(&mut arguments, self.options.shown_owner)?;
        let target = arguments.opaque(usize::MAX)?;
        self.answer_new(caller, &entry, &Kind::Symlink(target), &new, reply);
        Ok(())
    }

    pub(super) fn mknod(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let entry = EntryName::parse(&mut arguments)?;
        let number = arguments.u32()?;
        let new = match number {
            NF3CHR | NF3BLK | NF3SOCK | NF3FIFO => {
                NewAttributes::parse(&mut arguments, self.options.shown_owner)?
            }
            _ => NewAttributes::default(),
        };
        let device = |arguments: &mut XdrReader<'_>| {
            Ok(DeviceNumber { major: arguments.u32()?, minor: arguments.u32()? })
        };
        let special = match number {
            NF3CHR => SpecialFile::CharDevice(device(&mut arguments)?),
            NF3BLK => SpecialFile::BlockDevice(device(&mut arguments)?),
            NF3SOCK => SpecialFile::Socket,
            NF3FIFO => SpecialFile::Fifo,
            _ => {
                let changed =
                    self.change([entry.dir; 2], Durability::None, |_, _| Err(NfsStatus::BadType));
                self.put_new(reply, &changed);
                return Ok(());
            }
        };
        self.answer_new(caller, &entry, &Kind::Special(special), &new, reply);
        Ok(())
    }

    fn answer_new(
        &self,
        caller: &Caller<'_>,
        entry: &EntryName<'_>,
        kind: &Kind<'_>,
        new: &NewAttributes,
        reply: &mut XdrWriter,
    ) {
        let changed = self.change([entry.dir; 2], Durability::Optional, |[dir, _], now| {
            let ino = self.make(caller, dir, entry.name, kind, (new, now))?;
            self.attributes(ino)
        });
        self.put_new(reply, &changed);
    }

    /// Appends handle and attributes of a new inode, and those of its directory.
    fn put_new(&self, reply: &mut XdrWriter, changed: &Changed<Attributes>) {
        Self::put_status(reply, &changed.outcome);
        if let Ok(made) = &changed.outcome {
            reply.bool(true);
            reply.opaque(&self.handles.encode(made));
            self.put_attributes(reply, Some(made));
        }
        self.put_wcc(reply, &changed.wcc[0]);
    }

    /// Creates an inode with the requested attributes, or those inherited from its directory. After an error nothing is
    /// left.
    fn make(
        &self,
        caller: &Caller<'_>,
        dir: &Attributes,
        name: &[u8],
        kind: &Kind<'_>,
        (new, now): (&NewAttributes, Timestamp),
    ) -> Result<Ino, NfsStatus> {
        self.check(caller, dir, WRITE | EXECUTE)?;
        self.check_owner_kept(new)?;
        let is_device = matches!(kind.file_type(), FileType::CharDevice | FileType::BlockDevice);
        let is_for_others = new.uid.is_some_and(|uid| uid != caller.uid)
            || new.gid.is_some_and(|gid| !caller.is_in(gid));
        if (is_device || is_for_others) && !caller.is_unrestricted() {
            return Err(NfsStatus::Perm);
        }
        let (inode, lists) = self.initial(caller, dir, kind, (new, now))?;
        let made = match kind {
            Kind::File => self.fs.create(dir.ino, name, &inode),
            Kind::Directory => self.fs.mkdir(dir.ino, name, &inode),
            Kind::Symlink(target) => self.fs.symlink(dir.ino, name, target, &inode),
            Kind::Special(special) => self.fs.mknod(dir.ino, name, *special, &inode),
        };
        let ino = self.result(made)?;
        let completed = self.complete((ino, matches!(kind, Kind::File)), &lists, (new, now));
        if completed.is_err() {
            let removed = match kind {
                Kind::Directory => self.fs.rmdir(dir.ino, name, None),
                _ => self.fs.unlink(dir.ino, name, None),
            };
            // The first error is more informative for the client.
            let _ = self.result(removed);
        }
        completed.map(|()| ino)
    }

    /// Returns the initial attributes and lists of an inode, according to acl(5), open(2) and mkdir(2).
    fn initial(
        &self,
        caller: &Caller<'_>,
        dir: &Attributes,
        kind: &Kind<'_>,
        (new, now): (&NewAttributes, Timestamp),
    ) -> Result<(NewInode, InheritedAcl), NfsStatus> {
        let file_type = kind.file_type();
        let (gid, set_group_id) = inherited_group(dir, file_type, caller.gid);
        let gid = new.gid.unwrap_or(gid);
        let mut permissions = kind.permissions(new) | set_group_id;
        let is_of_group = permissions & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP;
        if is_of_group && !file_type.is_dir() && !caller.is_in(gid) {
            permissions &= !S_ISGID;
        }
        let lists = match self.result(acl::default_of(self.fs, dir.ino))? {
            Some(list) if file_type != FileType::Symlink => list.inherit(permissions, file_type),
            _ => InheritedAcl { permissions, access: None, default: None },
        };
        let inode = NewInode {
            permissions: lists.permissions,
            uid: new.uid.unwrap_or(caller.uid),
            gid,
            time: now,
            parent_time: Some(now),
        };
        Ok((inode, lists))
    }

    /// Sets lists, size and times of a new inode.
    fn complete(
        &self,
        (ino, is_file): (Ino, bool),
        lists: &InheritedAcl,
        (new, now): (&NewAttributes, Timestamp),
    ) -> Result<(), NfsStatus> {
        for (name, value) in [(acl::ACCESS, &lists.access), (acl::DEFAULT, &lists.default)] {
            if let Some(value) = value {
                self.result(self.fs.set_xattr(ino, name, value))?;
            }
        }
        if let Some(size) = new.size.filter(|size| *size > 0 && is_file) {
            self.result(self.fs.truncate(ino, size, Some(now)))?;
        }
        let (atime, mtime) = (new.atime.value(now)?, new.mtime.value(now)?);
        if atime.is_none() && mtime.is_none() {
            return Ok(());
        }
        let purpose = ChangePurpose::Consequence;
        let times = SetAttributes { atime, mtime, ctime: Some(now), purpose, ..Default::default() };
        self.result(self.fs.set_attributes(ino, &times))
    }
}
