//! Creation of inodes: ownership, and inheritance from the directory.

use linux::abi::{CreateIn, FOPEN_KEEP_CACHE, InHeader, MkdirIn, MknodIn, OpenOut};
use linux::{Errno, Reply};
use vfs::acl::InheritedAcl;
use vfs::ownership::inherited_group;
use vfs::{Error, FileType, Ino, NewInode, SpecialFile};

use crate::acl::{self, Acl};
use crate::attributes::decode_device;
use crate::{Adapter, clock};

/// Bits of a mode without the type, and those that a umask or list restricts.
const PERMISSIONS: u16 = 0o7777;
const ACCESS_BITS: u16 = 0o777;

/// Initial attributes of an inode.
struct Start {
    new: NewInode,
    /// Access control list, if it is not equivalent to the permissions.
    access: Option<Vec<u8>>,
    /// Default list of a directory.
    default: Option<Vec<u8>>,
}

impl Adapter<'_> {
    /// Answers MKNOD, which creates regular files as well.
    pub(crate) fn mknod(
        &self,
        header: &InHeader,
        dir: Ino,
        name: &[u8],
        args: &MknodIn,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        let device = decode_device(args.rdev);
        let file_type = FileType::from_mode(args.mode as u16).ok_or(Errno::INVAL)?;
        let special = match file_type {
            FileType::Regular => None,
            FileType::CharDevice => Some(SpecialFile::CharDevice(device)),
            FileType::BlockDevice => Some(SpecialFile::BlockDevice(device)),
            FileType::Fifo => Some(SpecialFile::Fifo),
            FileType::Socket => Some(SpecialFile::Socket),
            FileType::Directory | FileType::Symlink => return Err(Errno::INVAL),
        };
        let start = self.start(header, dir, file_type, args.mode as u16, args.umask)?;
        let made = match special {
            None => self.fs.create(dir, name, &start.new),
            Some(special) => self.fs.mknod(dir, name, special, &start.new),
        };
        self.finish_new(self.result(made)?, &start, reply, || self.fs.unlink(dir, name, None))
    }

    /// Answers MKDIR.
    pub(crate) fn mkdir(
        &self,
        header: &InHeader,
        dir: Ino,
        name: &[u8],
        args: &MkdirIn,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        let start = self.start(header, dir, FileType::Directory, args.mode as u16, args.umask)?;
        let made = self.fs.mkdir(dir, name, &start.new);
        self.finish_new(self.result(made)?, &start, reply, || self.fs.rmdir(dir, name, None))
    }

    /// Answers SYMLINK.
    pub(crate) fn symlink(
        &self,
        header: &InHeader,
        dir: Ino,
        name: &[u8],
        target: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        let start = self.start(header, dir, FileType::Symlink, ACCESS_BITS, 0)?;
        let made = self.fs.symlink(dir, name, target, &start.new);
        self.finish_new(self.result(made)?, &start, reply, || self.fs.unlink(dir, name, None))
    }

    /// Answers TMPFILE.
    pub(crate) fn tmpfile(
        &self,
        header: &InHeader,
        dir: Ino,
        args: &CreateIn,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        let start = self.start(header, dir, FileType::Regular, args.mode as u16, args.umask)?;
        let made = self.fs.create_unlinked(dir, &start.new);
        let ino = self.result(made)?;
        let told = self.lookup_counts.tell_opened(self.fs, ino);
        let listed = told.and_then(|()| self.set_lists(ino, &start));
        if listed.is_err() {
            self.untell(ino);
        }
        let entry = listed.and_then(|()| self.told_entry(ino));
        self.put_entry(&self.result(entry)?, reply)?;
        let open = OpenOut { fh: 0, open_flags: FOPEN_KEEP_CACHE, backing_id: 0 };
        reply.put(&open).inspect_err(|_| self.untell(ino))
    }

    /// Sets the lists of an inode, and answers with it. If the answer fails, the inode is removed.
    fn finish_new(
        &self,
        ino: Ino,
        start: &Start,
        reply: &mut Reply<'_>,
        take_back: impl FnOnce() -> vfs::Result<()>,
    ) -> Result<(), Errno> {
        let entry = self.set_lists(ino, start).and_then(|()| self.entry(ino));
        let outcome = self.result(entry).and_then(|entry| self.put_entry(&entry, reply));
        if outcome.is_err()
            && let Err(error) = take_back()
        {
            // The first error is more informative for the caller.
            self.failed(&error);
        }
        outcome
    }

    fn set_lists(&self, ino: Ino, start: &Start) -> vfs::Result<()> {
        for (name, value) in [(acl::ACCESS, &start.access), (acl::DEFAULT, &start.default)] {
            if let Some(value) = value {
                self.fs.set_xattr(ino, name, value)?;
            }
        }
        Ok(())
    }

    /// Returns the initial attributes of a whiteout that a rename leaves in `dir`: it has no permissions, so it needs
    /// no list.
    pub(super) fn whiteout(&self, header: &InHeader, dir: Ino) -> Result<NewInode, Errno> {
        let parent = self.attributes(dir)?;
        let (uid, gid) = self.options.owner.unwrap_or((header.uid, header.gid));
        let (gid, _) = inherited_group(&parent, FileType::CharDevice, gid);
        Ok(NewInode { permissions: 0, uid, gid, time: clock::now(), parent_time: None })
    }

    /// Returns the initial attributes of an inode in `dir`, according to acl(5), open(2) and mkdir(2): a default list
    /// replaces the umask, and a set-group-ID directory supplies the group.
    fn start(
        &self,
        header: &InHeader,
        dir: Ino,
        file_type: FileType,
        mode: u16,
        umask: u32,
    ) -> Result<Start, Errno> {
        let parent = self.attributes(dir)?;
        let now = clock::now();
        let (uid, gid) = self.options.owner.unwrap_or((header.uid, header.gid));
        let (gid, set_group_id) = inherited_group(&parent, file_type, gid);
        let new = NewInode {
            permissions: mode & PERMISSIONS | set_group_id,
            uid,
            gid,
            time: now,
            parent_time: Some(now),
        };
        let mut start = Start { new, access: None, default: None };
        if file_type != FileType::Symlink {
            match self.default_list(dir)? {
                None => start.new.permissions &= !(umask as u16 & ACCESS_BITS),
                Some(list) => start.inherit(list, file_type),
            }
        }
        Ok(start)
    }

    /// Returns the default list of a directory.
    fn default_list(&self, dir: Ino) -> Result<Option<Acl>, Errno> {
        match self.fs.get_xattr(dir, acl::DEFAULT) {
            Ok(value) => acl::parse(&value).map(Some),
            Err(Error::NoAttribute) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }
}

impl Start {
    fn inherit(&mut self, default: Acl, file_type: FileType) {
        let InheritedAcl { permissions, access, default } =
            default.inherit(self.new.permissions, file_type);
        self.new.permissions = permissions;
        (self.access, self.default) = (access, default);
    }
}
