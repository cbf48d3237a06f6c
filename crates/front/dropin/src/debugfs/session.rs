//! Image of a session: opening, closing and path resolution.

use std::collections::VecDeque;
use std::sync::Arc;

use disk::BlockDevice;
use diskwright::tune::open_ext_device;
use ext4::debug::write_inode_slot;
use ext4::format::inode::ROOT_INO;
use ext4::format::slot;
use ext4::format::superblock::{RawSuperblock, Superblock};
use ext4::tune::change_superblock;
use ext4::{Ext4, OpenOptions};
use vfs::path::SYMLINKS_MAX;
use vfs::{FileSystem, FileType, Ino, NewInode, Timestamp};

use super::phrases::{NOT_FOUND, READ_ONLY, words};
use super::request::{Request, shown};
use crate::dumpe2fs;
use crate::failure::{Failure, STATUSES};
use crate::fields;
use crate::target::ImageTarget;

/// Directory of the image with its path.
#[derive(Clone, Debug)]
pub(super) struct WorkingDirectory {
    pub(super) ino: Ino,
    pub(super) path: Vec<u8>,
}

impl WorkingDirectory {
    fn root() -> Self {
        Self { ino: ROOT_INO, path: b"/".to_vec() }
    }
}

/// Sequence of requests on one image.
///
/// The device stays open and locked. The file system is opened on demand, and closed before a request that changes the
/// superblock or bitmaps on the device.
pub(super) struct DebugSession {
    pub(super) image: Option<ImageTarget>,
    pub(super) is_writable: bool,
    device: Option<Arc<dyn BlockDevice>>,
    fs: Option<Ext4>,
    /// Root directory for path resolution.
    pub(super) root: WorkingDirectory,
    /// Current directory for relative paths.
    pub(super) current: WorkingDirectory,
    /// Time of changes in seconds since 1970, if set by a request.
    now: Option<i64>,
}

impl DebugSession {
    pub(super) fn new() -> Self {
        let (root, current) = (WorkingDirectory::root(), WorkingDirectory::root());
        Self { image: None, is_writable: false, device: None, fs: None, root, current, now: None }
    }

    /// Opens an image.
    pub(super) fn open(&mut self, image: ImageTarget, is_writable: bool) -> Result<(), Failure> {
        let device = open_ext_device(&image.path, &image.open(), is_writable);
        let device = device.map_err(|e| STATUSES.of(&e))?;
        (self.root, self.current) = (WorkingDirectory::root(), WorkingDirectory::root());
        (self.image, self.is_writable, self.device) = (Some(image), is_writable, Some(device));
        if let Err(failure) = self.fs() {
            (self.image, self.device) = (None, None);
            return Err(failure);
        }
        Ok(())
    }

    /// Closes the image. All changes have been written to their final locations then.
    pub(super) fn close(&mut self) -> Result<(), Failure> {
        self.close_fs()?;
        let stamped = self.stamp();
        (self.image, self.device) = (None, None);
        stamped
    }

    fn close_fs(&mut self) -> Result<(), Failure> {
        match self.fs.take() {
            Some(fs) => fs.close().map_err(|e| self.failed(&e)),
            None => Ok(()),
        }
    }

    /// Stores the time set by a request as the last write time, after all other changes.
    fn stamp(&self) -> Result<(), Failure> {
        let (Some(now), Some(device), true) = (self.now, &self.device, self.is_writable) else {
            return Ok(());
        };
        let changed = change_superblock(&**device, &mut |raw| {
            fields::set_time(&mut raw.wtime, &mut raw.wtime_hi, now);
            Ok(())
        });
        changed.map_err(|e| self.failed(&e))
    }

    /// Creates a failure of the image itself.
    fn failed(&self, error: &vfs::Error) -> Failure {
        let image = self.image.as_ref().map_or_else(|| "image".as_ref(), |image| &*image.path);
        STATUSES.failed(format_args!("{}: {}", image.display(), words(error)))
    }

    fn opened_device(&self) -> Result<&Arc<dyn BlockDevice>, Failure> {
        self.device.as_ref().ok_or_else(|| STATUSES.failed("Filesystem not open"))
    }

    /// Returns the file system, opening it if necessary.
    pub(super) fn fs(&mut self) -> Result<&Ext4, Failure> {
        if self.fs.is_none() {
            let time = self.now.map(|sec| Timestamp { sec, nsec: 0 });
            let options = OpenOptions { time, defer_creates: None, ..OpenOptions::default() };
            let device = self.opened_device()?.clone();
            let opened = match self.is_writable {
                true => Ext4::open_writable(device, &options),
                false => Ext4::open(device, &options),
            };
            self.fs = Some(opened.map_err(|e| self.failed(&e))?);
        }
        self.fs.as_ref().ok_or_else(|| STATUSES.failed("Filesystem not open"))
    }

    /// Returns a device with the current bitmaps and superblock. In a writable session this closes the file system.
    pub(super) fn device(&mut self) -> Result<Arc<dyn BlockDevice>, Failure> {
        if self.is_writable {
            self.close_fs()?;
            return self.opened_device().cloned();
        }
        // In a read-only session, the journal is replayed in memory on that device.
        Ok(self.fs()?.device().clone())
    }

    /// Returns the device without the changes in the journal.
    pub(super) fn unrecovered_device(&mut self) -> Result<Arc<dyn BlockDevice>, Failure> {
        if self.is_writable {
            self.close_fs()?;
        }
        self.opened_device().cloned()
    }

    /// Returns the current superblock.
    pub(super) fn superblock(&mut self) -> Result<Superblock, Failure> {
        let device = self.device()?;
        dumpe2fs::read_superblock(&*device).map_err(|e| self.failed(&e))
    }

    /// Changes the superblock on the device, and its copies.
    pub(super) fn change_superblock(
        &mut self,
        change: &mut dyn FnMut(&mut RawSuperblock) -> vfs::Result<()>,
    ) -> Result<(), Failure> {
        let device = self.device()?;
        change_superblock(&*device, change).map_err(|e| self.failed(&e))
    }

    /// Replaces an inode's raw bytes. An inode with a damaged structure, which the file system rejects, is written in
    /// place.
    pub(super) fn replace_slot(&mut self, ino: Ino, new: &[u8]) -> Result<(), Failure> {
        let fs = self.fs()?;
        let replaced = match slot::verify_structure(fs.geometry(), new) {
            Ok(()) => fs.replace_inode_slot(ino, new),
            Err(_) => {
                let device = self.device()?;
                write_inode_slot(&*device, ino, new)
            }
        };
        replaced.map_err(|e| self.failed(&e))
    }

    /// Fails if the session is read-only.
    pub(super) fn check_writable(&self, request: &Request) -> Result<(), Failure> {
        self.opened_device().map_err(|failure| request.failed(failure.message))?;
        match self.is_writable {
            true => Ok(()),
            false => {
                Err(request.failed(format_args!("{READ_ONLY} (use -w to open it for writing)")))
            }
        }
    }

    /// Sets the time of all later changes.
    pub(super) fn set_now(&mut self, seconds: i64) -> Result<(), Failure> {
        self.now = Some(seconds);
        // The open file system still uses the old time.
        self.close_fs()
    }

    /// Returns the time for a change.
    pub(super) fn now(&self) -> Timestamp {
        let sec = self.now.or_else(|| fields::parse_time("now").ok()).unwrap_or_default();
        Timestamp { sec, nsec: 0 }
    }

    /// Returns the initial attributes of a new inode, owned by root.
    pub(super) fn new_inode(&self, permissions: u16) -> NewInode {
        NewInode { permissions, time: self.now(), ..NewInode::default() }
    }

    /// Returns the inode of an argument: `<INODE>` or a path. A symbolic link at its end is not followed.
    pub(super) fn ino(&mut self, word: &[u8]) -> Result<Ino, Failure> {
        if let Some(ino) = self.number(word)? {
            return Ok(ino);
        }
        let (root, current) = (self.root.ino, self.current.ino);
        let found = resolve(self.fs()?, root, current, word);
        found.map_err(|e| STATUSES.failed(format_args!("{}: {}", shown(word), words(&e))))
    }

    /// Returns the inode of `<INODE>`, or `None` for other arguments.
    pub(super) fn number(&mut self, word: &[u8]) -> Result<Option<Ino>, Failure> {
        let inside = word.strip_prefix(b"<").and_then(|word| word.strip_suffix(b">"));
        let Some(inside) = inside else { return Ok(None) };
        let number = std::str::from_utf8(inside).ok().and_then(fields::number);
        let count = u64::from(self.fs()?.superblock().inodes_count);
        match number {
            Some(number) if number > 0 && number <= count => Ok(Some(Ino(number))),
            _ => Err(STATUSES.failed(format_args!("{}: {NOT_FOUND}", shown(word)))),
        }
    }

    /// Returns the parent directory and the last component of a new path.
    pub(super) fn parent<'w>(&mut self, word: &'w [u8]) -> Result<(Ino, &'w [u8]), Failure> {
        let slash = word.iter().rposition(|&byte| byte == b'/');
        let Some(slash) = slash else { return Ok((self.current.ino, word)) };
        let dir = if slash == 0 { &b"/"[..] } else { &word[..slash] };
        Ok((self.ino(dir)?, &word[slash + 1..]))
    }

    /// Returns the directory at `word` with its displayed path.
    pub(super) fn directory(&mut self, word: &[u8]) -> Result<WorkingDirectory, Failure> {
        let ino = self.ino(word)?;
        let is_dir = self.fs()?.attributes(ino).is_ok_and(|a| a.file_type == FileType::Directory);
        if !is_dir {
            let why = words(&vfs::Error::NotADirectory);
            return Err(STATUSES.failed(format_args!("{}: {why}", shown(word))));
        }
        let fs = self.fs()?;
        let path = vfs::path::first_paths(fs, &[ino]).0.pop().flatten();
        Ok(WorkingDirectory { ino, path: path.unwrap_or_else(|| word.to_vec()) })
    }
}

/// Follows a path. A symbolic link at its end is not followed.
fn resolve(fs: &Ext4, root: Ino, current: Ino, path: &[u8]) -> vfs::Result<Ino> {
    let components = |path: &[u8]| {
        let parts =
            path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        parts.map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let mut at = if path.starts_with(b"/") { root } else { current };
    let mut rest: VecDeque<Vec<u8>> = components(path).into();
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == b".." && at == root {
            continue;
        }
        let next = fs.lookup(at, &name)?;
        let is_link =
            || fs.attributes(next).is_ok_and(|found| found.file_type == FileType::Symlink);
        if rest.is_empty() || !is_link() {
            at = next;
            continue;
        }
        links += 1;
        if links > SYMLINKS_MAX {
            return Err(vfs::Error::SymlinkLoop);
        }
        let target = fs.readlink(next)?;
        if target.starts_with(b"/") {
            at = root;
        }
        for part in components(&target).into_iter().rev() {
            rest.push_front(part);
        }
    }
    Ok(at)
}
