//! Creation of the files of a copy in an image.
//!
//! Regular files are written without a name. They get their names in batches after the batch is durable, so that one
//! flush covers many files.

use std::collections::HashMap;

use vfs::runs::data_runs;
use vfs::{Error as FsError, FileType, Ino, NewInode, SetAttributes, SpecialFile, Timestamp};

use super::contents::Contents;
use super::{CopyOptions, CopyReport, Observer, Reflink};
use crate::edit::Editor;
use crate::inode::CAPABILITY;
use crate::made_names::MadeNames;
use crate::{Error, Result};

/// Maximum number of files without names.
const WAITING_FILES_MAX: usize = 1024;

/// Maximum content bytes of files without names.
const WAITING_BYTES_MAX: u64 = 256 << 20;

/// File to create.
pub(super) struct NewFile<'a> {
    pub(super) kind: NewFileKind<'a>,
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// File type and its data.
pub(super) enum NewFileKind<'a> {
    Directory,
    File(&'a dyn Contents),
    Symlink(Vec<u8>),
    Special(SpecialFile),
}

impl NewFileKind<'_> {
    fn file_type(&self) -> FileType {
        match self {
            Self::Directory => FileType::Directory,
            Self::File(_) => FileType::Regular,
            Self::Symlink(_) => FileType::Symlink,
            Self::Special(SpecialFile::CharDevice(_)) => FileType::CharDevice,
            Self::Special(SpecialFile::BlockDevice(_)) => FileType::BlockDevice,
            Self::Special(SpecialFile::Fifo) => FileType::Fifo,
            Self::Special(SpecialFile::Socket) => FileType::Socket,
        }
    }
}

/// Target location in the image, and its path for messages.
#[derive(Clone, Copy)]
pub(super) struct ImportTarget<'a> {
    pub(super) dir: Ino,
    pub(super) name: &'a [u8],
    pub(super) path: &'a [u8],
}

impl ImportTarget<'_> {
    fn at(&self, source: FsError) -> Error {
        Error::file(self.path, source)
    }
}

struct Waiting {
    ino: Ino,
    dir: Ino,
    name: Vec<u8>,
    path: Vec<u8>,
    /// True if this entry owns the reference that keeps the file alive.
    holds: bool,
}

pub(super) struct Importer<'a> {
    pub(super) editor: Editor<'a>,
    options: CopyOptions,
    pub(super) observer: &'a mut dyn Observer,
    report: CopyReport,
    names: &'a mut MadeNames,
    waiting: Vec<Waiting>,
    /// Files without names by target location, for hard links to them.
    by_place: HashMap<(Ino, Vec<u8>), Ino>,
    waiting_bytes: u64,
    /// Times of directories, which are set at the end because creating files changes them.
    directories: Vec<(Ino, SetAttributes)>,
}

impl<'a> Importer<'a> {
    pub(super) fn new(
        editor: Editor<'a>,
        options: CopyOptions,
        names: &'a mut MadeNames,
        observer: &'a mut dyn Observer,
    ) -> Self {
        Self {
            editor,
            options,
            names,
            observer,
            report: CopyReport::default(),
            waiting: Vec::new(),
            by_place: HashMap::new(),
            waiting_bytes: 0,
            directories: Vec::new(),
        }
    }

    /// Creates or replaces a file. An existing directory is kept.
    pub(super) fn add(&mut self, place: ImportTarget<'_>, item: &NewFile<'_>) -> Result<Ino> {
        if !self.observer.goes_on() {
            return Err(Error::Stopped);
        }
        self.note_name(place)?;
        self.observer.file(place.path);
        self.report.files += 1;
        match item.kind {
            NewFileKind::Directory => self.directory(place, item),
            NewFileKind::File(contents) => self.file(place, item, contents),
            NewFileKind::Symlink(_) | NewFileKind::Special(_) => {
                self.small(place, item).map_err(|e| place.at(e))
            }
        }
    }

    /// Rejects a name that equals the name of another copied file in a case-insensitive directory.
    fn note_name(&mut self, place: ImportTarget<'_>) -> Result<()> {
        let other = self.names.note(self.editor.fs(), place.dir, place.name);
        match other.map_err(|e| place.at(e))? {
            Some(other) => Err(Error::SameName { path: place.path.to_vec(), other }),
            None => Ok(()),
        }
    }

    /// Returns the file that has, or will get, this name.
    pub(super) fn lookup(&self, dir: Ino, name: &[u8]) -> vfs::Result<Ino> {
        match self.by_place.get(&(dir, name.to_vec())) {
            Some(&ino) => Ok(ino),
            None => self.editor.fs().lookup(dir, name),
        }
    }

    /// Adds a hard link to a file that was copied before.
    pub(super) fn link(&mut self, place: ImportTarget<'_>, ino: Ino) -> Result<()> {
        self.note_name(place)?;
        self.report.files += 1;
        if self.waiting.iter().any(|waiting| waiting.ino == ino) {
            self.wait(place, ino, false);
            return Ok(());
        }
        self.editor.put(ino, place.dir, place.name).map_err(|e| place.at(e))
    }

    /// Names all files and sets the times of directories.
    pub(super) fn finish(mut self) -> Result<CopyReport> {
        self.name_waiting()?;
        for (ino, change) in std::mem::take(&mut self.directories) {
            let set = self.editor.fs().set_attributes(ino, &change);
            set.map_err(|e| Error::file(b"a copied directory", e))?;
        }
        Ok(self.report)
    }

    /// Ends after an error. Complete files get their names.
    pub(super) fn give_up(mut self) {
        // Report the earlier error instead.
        let _ = self.name_waiting();
        for waiting in self.waiting.drain(..).filter(|waiting| waiting.holds) {
            let _ = self.editor.fs().close(waiting.ino);
        }
    }

    fn new_inode(&self, dir: Ino, item: &NewFile<'_>) -> vfs::Result<NewInode> {
        let permissions = match item.kind {
            NewFileKind::Symlink(_) => 0o777,
            _ if self.options.preserve => item.permissions,
            _ => item.permissions & 0o777,
        };
        let mut new = self.editor.new_inode(dir, permissions, item.kind.file_type())?;
        if self.options.preserve {
            (new.uid, new.gid, new.permissions) = (item.uid, item.gid, permissions);
        }
        Ok(new)
    }

    fn directory(&mut self, place: ImportTarget<'_>, item: &NewFile<'_>) -> Result<Ino> {
        let fs = self.editor.fs();
        let made = self.new_inode(place.dir, item).and_then(|new| {
            match fs.mkdir(place.dir, place.name, &new) {
                Err(FsError::Exists) => {}
                made => return made.map(|ino| (ino, None)),
            }
            let ino = fs.lookup(place.dir, place.name)?;
            match fs.attributes(ino)?.file_type {
                FileType::Directory => Ok((ino, Some(new))),
                _ => Err(FsError::NotADirectory),
            }
        });
        let (ino, taken_over) = made.map_err(|e| place.at(e))?;
        if self.options.preserve {
            if let Some(new) = taken_over {
                let (permissions, uid, gid) = (Some(new.permissions), Some(new.uid), Some(new.gid));
                let change = SetAttributes { permissions, uid, gid, ..SetAttributes::default() };
                fs.set_attributes(ino, &change).map_err(|e| place.at(e))?;
            }
            self.set_xattrs(place, ino, &item.xattrs)?;
            self.directories.push((ino, self.times(item)));
        }
        Ok(ino)
    }

    fn times(&self, item: &NewFile<'_>) -> SetAttributes {
        let (atime, mtime, ctime) = (Some(item.atime), Some(item.mtime), self.editor.time());
        SetAttributes { atime, mtime, ctime, ..SetAttributes::default() }
    }

    fn set_xattrs(
        &mut self,
        place: ImportTarget<'_>,
        ino: Ino,
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<()> {
        for (name, value) in xattrs {
            match self.editor.fs().set_xattr(ino, name, value) {
                Ok(()) => {}
                Err(
                    error @ (FsError::Unsupported(_)
                    | FsError::Invalid(_)
                    | FsError::AttributeTooLarge(_)),
                ) => {
                    self.report.left_out += 1;
                    let [path, name] = [place.path, name].map(crate::text::escaped);
                    self.observer
                        .warning(&format!("{path}: attribute {name} is left out: {error}"));
                }
                Err(error) => return Err(place.at(error)),
            }
        }
        Ok(())
    }

    /// Creates a link or special file immediately, because it has no contents.
    fn small(&mut self, place: ImportTarget<'_>, item: &NewFile<'_>) -> vfs::Result<Ino> {
        let fs = self.editor.fs();
        let ImportTarget { dir, name, .. } = place;
        let new = self.new_inode(dir, item)?;
        let make = |name: &[u8]| match &item.kind {
            NewFileKind::Symlink(target) => fs.symlink(dir, name, target, &new).map(|_| ()),
            NewFileKind::Special(special) => fs.mknod(dir, name, *special, &new).map(|_| ()),
            NewFileKind::Directory | NewFileKind::File(_) => {
                Err(FsError::Invalid("the file has contents"))
            }
        };
        self.editor.replace(dir, name, &make)?;
        let ino = fs.lookup(dir, name)?;
        if self.options.preserve {
            for (name, value) in &item.xattrs {
                fs.set_xattr(ino, name, value)?;
            }
            fs.set_attributes(ino, &self.times(item))?;
        }
        Ok(ino)
    }

    fn file(
        &mut self,
        place: ImportTarget<'_>,
        item: &NewFile<'_>,
        contents: &dyn Contents,
    ) -> Result<Ino> {
        let fs = self.editor.fs();
        let old = match fs.lookup(place.dir, place.name) {
            Ok(old) => Some(fs.attributes(old).map_err(|e| place.at(e))?),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(place.at(error)),
        };
        if old.is_some_and(|old| old.file_type == FileType::Directory) {
            return Err(place.at(FsError::IsADirectory));
        }
        let mut new = self.new_inode(place.dir, item).map_err(|e| place.at(e))?;
        let old = old.filter(|old| old.file_type == FileType::Regular && !self.options.preserve);
        if let Some(old) = old {
            (new.permissions, new.uid, new.gid) = (old.permissions, old.uid, old.gid);
        }
        let ino = fs.create_unlinked(place.dir, &new).map_err(|e| place.at(e))?;
        let filled = self.fill(place, ino, contents).and_then(|()| {
            match old {
                Some(old) => self.take_xattrs(ino, old.ino).map_err(|e| place.at(e))?,
                None if self.options.preserve => self.set_xattrs(place, ino, &item.xattrs)?,
                None => {}
            }
            if !self.options.preserve {
                return Ok(());
            }
            fs.set_attributes(ino, &self.times(item)).map_err(|e| place.at(e))
        });
        if let Err(error) = filled {
            // Report the first error.
            let _ = fs.close(ino);
            return Err(error);
        }
        self.wait(place, ino, true);
        if self.waiting.len() >= WAITING_FILES_MAX || self.waiting_bytes >= WAITING_BYTES_MAX {
            self.name_waiting()?;
        }
        Ok(ino)
    }

    /// Shares the blocks of the source with a new file. Returns false if the bytes must be copied.
    fn share(&mut self, ino: Ino, contents: &dyn Contents) -> vfs::Result<bool> {
        let (fs, how) = (self.editor.fs(), self.options.reflink);
        let source = contents.file_in(fs).filter(|_| how != Reflink::Never);
        let Some(from) = source else {
            if how == Reflink::Always {
                let problem = "only files of the same image can share blocks";
                return Err(FsError::Invalid(problem));
            }
            return Ok(false);
        };
        match fs.clone_range((from, 0), (ino, 0), 0, None) {
            Ok(()) => {}
            Err(FsError::Unsupported(_) | FsError::Invalid(_)) if how == Reflink::Auto => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        let size = fs.attributes(ino)?.size;
        let shared = data_runs(fs, ino, size)?.iter().map(|run| run.len).sum::<u64>();
        self.report.bytes += shared;
        self.report.shared += shared;
        self.observer.copied(shared);
        Ok(true)
    }

    fn fill(&mut self, place: ImportTarget<'_>, ino: Ino, contents: &dyn Contents) -> Result<()> {
        if self.share(ino, contents).map_err(|e| place.at(e))? {
            return Ok(());
        }
        let fs = self.editor.fs();
        let mut end = 0;
        let (observer, report) = (&mut *self.observer, &mut self.report);
        let waiting_bytes = &mut self.waiting_bytes;
        let size = contents.copy(&mut |offset, bytes| {
            fs.write(ino, offset, bytes, None).map_err(|e| place.at(e))?;
            let len = bytes.len() as u64;
            end = offset + len;
            report.bytes += len;
            *waiting_bytes += len;
            observer.copied(len);
            Ok(())
        })?;
        if size > end {
            fs.truncate(ino, size, None).map_err(|e| place.at(e))?;
        }
        Ok(())
    }

    /// Copies the extended attributes of the replaced file, except capabilities, which a write would clear too.
    fn take_xattrs(&self, ino: Ino, old: Ino) -> vfs::Result<()> {
        let fs = self.editor.fs();
        let mut names = Vec::new();
        fs.list_xattrs(old, &mut |name| names.push(name.to_vec()))?;
        for name in names.iter().filter(|name| *name != CAPABILITY) {
            fs.set_xattr(ino, name, &fs.get_xattr(old, name)?)?;
        }
        Ok(())
    }

    fn wait(&mut self, place: ImportTarget<'_>, ino: Ino, holds: bool) {
        let ImportTarget { dir, name, path } = place;
        self.by_place.insert((dir, name.to_vec()), ino);
        self.waiting.push(Waiting { ino, dir, name: name.to_vec(), path: path.to_vec(), holds });
    }

    fn name_waiting(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let fs = self.editor.fs();
        fs.sync().map_err(|e| Error::file(&self.waiting[0].path, e))?;
        let mut outcome = Ok(());
        for waiting in &self.waiting {
            let named = self.editor.put(waiting.ino, waiting.dir, &waiting.name);
            outcome = outcome.and(named.map_err(|e| Error::file(&waiting.path, e)));
        }
        for waiting in self.waiting.drain(..).filter(|waiting| waiting.holds) {
            let closed = fs.close(waiting.ino);
            outcome = outcome.and(closed.map_err(|e| Error::file(&waiting.path, e)));
        }
        self.by_place.clear();
        self.waiting_bytes = 0;
        outcome
    }
}
