//! Naming of the files of a layer.

use std::collections::{HashMap, HashSet};

use import::oci::{ContainerFault, LayerFile, Meaning};
use import::{Entry, EntryKind};
use vfs::{
    DeviceNumber, Error as FsError, FileSystem, FileType, Ino, NewInode, SetAttributes,
    SpecialFile, Timestamp,
};

use super::hide::{hide, remove};
use super::place::{find, lookup, split, walk};
use super::stage::{Staged, finish, new_inode, times};
use super::{ApplyReport, Fault, Observer};
use crate::edit::Editor;
use crate::list::join;
use crate::made_names::MadeNames;
use crate::{Error, Result};

/// Attributes of directories that no layer lists: owned by root, with times in 1970, so that the image does not depend
/// on the current time.
const IMPLIED: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    time: Timestamp { sec: 0, nsec: 0 },
    parent_time: None,
};

/// Applies the names of a layer.
pub(super) struct Putter<'a> {
    editor: Editor<'a>,
    layer: &'a LayerFile,
    staged: &'a Staged,
    /// Files that aufs stored for its hard links.
    unnamed: HashMap<&'a [u8], Ino>,
    /// Directory of the previous entry: its requested path, inode and path without links.
    parent: Option<(Vec<u8>, Ino, Vec<u8>)>,
    /// Directories whose names have changed.
    changed: HashSet<Ino>,
    names: MadeNames,
    report: ApplyReport,
    applied: u64,
}

impl<'a> Putter<'a> {
    pub(super) fn new(editor: Editor<'a>, layer: &'a LayerFile, staged: &'a Staged) -> Self {
        Self {
            editor,
            layer,
            staged,
            unnamed: HashMap::new(),
            parent: None,
            changed: HashSet::new(),
            names: MadeNames::default(),
            report: ApplyReport::default(),
            applied: 0,
        }
    }

    /// Applies whiteouts, then all entries.
    pub(super) fn run(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let (editor, layer) = (self.editor, self.layer);
        let changed = &mut self.changed;
        self.report.removed = hide(editor, layer, &mut |dir| {
            changed.insert(dir);
        })?;
        for (number, item) in layer.entries().iter().enumerate() {
            match item.meaning {
                Meaning::File => {
                    // Regular files were reported when their contents were written.
                    if !matches!(item.entry.kind, EntryKind::File(_)) {
                        observer.file(&item.entry.path);
                    }
                    self.put(number, &item.entry)
                        .map_err(|fault| fault.of_entry(layer, &item.entry.path))?;
                }
                Meaning::Unnamed => {
                    let file = self.staged.file(number);
                    self.unnamed.extend(file.map(|ino| (&item.entry.path[..], ino)));
                }
                Meaning::Whiteout(_) | Meaning::Opaque(_) | Meaning::Nothing => {}
            }
            self.applied += 1;
        }
        self.touch_changed()
    }

    /// Returns the report and the number of applied entries.
    pub(super) fn end(self) -> (ApplyReport, u64) {
        let (entries, bytes) = (self.layer.entries().len() as u64, self.staged.bytes);
        (ApplyReport { entries, bytes, ..self.report }, self.applied)
    }

    fn fs(&self) -> &'a dyn FileSystem {
        self.editor.fs()
    }

    fn put(&mut self, number: usize, entry: &Entry) -> Result<(), Fault> {
        if entry.path.is_empty() {
            return self.set_directory(self.fs().root(), entry);
        }
        let (parent, name) = split(&entry.path);
        let (dir, dir_path) = self.parent_of(parent)?;
        if let Some(other) = self.names.note(self.fs(), dir, name)? {
            return Err(Error::SameName { path: join(b"/", &entry.path), other }.into());
        }
        match &entry.kind {
            EntryKind::Directory => self.directory((dir, &dir_path), name, entry),
            EntryKind::File(_) => {
                let staged = self.staged.file(number).ok_or(FsError::NotFound)?;
                self.make_way((dir, &dir_path), name)?;
                self.report.files += 1;
                self.name(staged, dir, name)
            }
            EntryKind::Hardlink(target) => {
                let now = find(self.fs(), target)?;
                let lower = || self.staged.lower(number);
                let unnamed = || self.unnamed.get(&target[..]).copied();
                let Some(ino) = now.or_else(lower).or_else(unnamed) else {
                    return Err(ContainerFault::LinkTarget(target.clone()).into());
                };
                if self.fs().attributes(ino)?.file_type == FileType::Directory {
                    return Err(ContainerFault::LinkToDirectory(target.clone()).into());
                }
                if lookup(self.fs(), dir, name)? == Some(ino) {
                    return Ok(());
                }
                // Hold the target, because a directory to be removed may contain its last name.
                self.fs().open(ino)?;
                let linked =
                    self.make_way((dir, &dir_path), name).and_then(|()| self.name(ino, dir, name));
                self.fs().close(ino)?;
                self.report.links += 1;
                linked
            }
            _ => {
                self.make_way((dir, &dir_path), name)?;
                self.report.files += 1;
                Ok(self.small(dir, name, entry)?)
            }
        }
    }

    /// Returns the directory at a path and its path without links. Missing directories are created.
    fn parent_of(&mut self, path: &[u8]) -> Result<(Ino, Vec<u8>), Fault> {
        if let Some((known, dir, real)) = &self.parent
            && known == path
        {
            return Ok((*dir, real.clone()));
        }
        let place = walk(self.fs(), path, Some(&IMPLIED), &mut |_| true)?;
        let place = place.ok_or(FsError::NotFound)?;
        self.report.directories += place.made;
        self.parent = Some((path.to_vec(), place.dir, place.path.clone()));
        Ok((place.dir, place.path))
    }

    /// Removes a directory whose name is needed for another file. Other files remain until they are replaced.
    fn make_way(&mut self, (dir, path): (Ino, &[u8]), name: &[u8]) -> Result<(), Fault> {
        self.changed.insert(dir);
        let Some(taken) = lookup(self.fs(), dir, name)? else { return Ok(()) };
        match self.fs().attributes(taken)?.file_type {
            FileType::Directory => {
                self.parent = None;
                self.report.removed += remove(self.editor, path, name)?;
            }
            FileType::Symlink => self.parent = None,
            _ => {}
        }
        Ok(())
    }

    /// Names a file atomically, replacing an existing file.
    fn name(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), Fault> {
        match self.fs().link_over(ino, dir, name, None) {
            Err(FsError::NotFound) => Ok(self.fs().link(ino, dir, name, None)?),
            other => Ok(other?),
        }
    }

    fn directory(
        &mut self,
        (dir, path): (Ino, &[u8]),
        name: &[u8],
        entry: &Entry,
    ) -> Result<(), Fault> {
        let fs = self.fs();
        if let Some(taken) = lookup(fs, dir, name)? {
            if fs.attributes(taken)?.file_type == FileType::Directory {
                return self.set_directory(taken, entry);
            }
            self.parent = None;
            self.report.removed += remove(self.editor, path, name)?;
        }
        self.changed.insert(dir);
        self.report.directories += 1;
        let ino = fs.mkdir(dir, name, &new_inode(&self.editor, entry))?;
        Ok(finish(&self.editor, ino, entry)?)
    }

    /// Sets the attributes of an existing directory from an entry. Its contents remain.
    fn set_directory(&mut self, ino: Ino, entry: &Entry) -> Result<(), Fault> {
        let fs = self.fs();
        self.report.directories += 1;
        let metadata = &entry.metadata;
        let change = SetAttributes {
            permissions: Some(metadata.permissions),
            uid: Some(metadata.uid),
            gid: Some(metadata.gid),
            ..SetAttributes::default()
        };
        fs.set_attributes(ino, &change)?;
        let mut names = Vec::new();
        fs.list_xattrs(ino, &mut |name| names.push(name.to_vec()))?;
        for name in names {
            if !entry.xattrs.iter().any(|xattr| xattr.name == name) {
                fs.remove_xattr(ino, &name)?;
            }
        }
        for xattr in &entry.xattrs {
            match fs.get_xattr(ino, &xattr.name) {
                Ok(value) if value == xattr.value => {}
                _ => fs.set_xattr(ino, &xattr.name, &xattr.value)?,
            }
        }
        Ok(fs.set_attributes(ino, &times(&self.editor, entry))?)
    }

    /// Creates a link or special file, complete before it replaces another file.
    fn small(&self, dir: Ino, name: &[u8], entry: &Entry) -> vfs::Result<()> {
        let (fs, new) = (self.fs(), new_inode(&self.editor, entry));
        let special = |name: &[u8], file| fs.mknod(dir, name, file, &new);
        let make = |name: &[u8]| {
            let ino = match entry.kind {
                EntryKind::Symlink(ref target) => fs.symlink(dir, name, target, &new)?,
                EntryKind::CharDevice { major, minor } => {
                    special(name, SpecialFile::CharDevice(DeviceNumber { major, minor }))?
                }
                EntryKind::BlockDevice { major, minor } => {
                    special(name, SpecialFile::BlockDevice(DeviceNumber { major, minor }))?
                }
                EntryKind::Fifo => special(name, SpecialFile::Fifo)?,
                EntryKind::Socket => special(name, SpecialFile::Socket)?,
                EntryKind::Directory | EntryKind::File(_) | EntryKind::Hardlink(_) => {
                    return Err(FsError::Invalid("the file has contents"));
                }
            };
            finish(&self.editor, ino, entry)
        };
        self.editor.replace_at(dir, name, &make, None)
    }

    /// Updates the ctime of changed directories. Their modification times come from the layer or remain.
    fn touch_changed(&self) -> Result<()> {
        let change = SetAttributes {
            ctime: self.editor.time(),
            purpose: vfs::ChangePurpose::Consequence,
            ..SetAttributes::default()
        };
        for &dir in &self.changed {
            match self.fs().set_attributes(dir, &change) {
                // It was removed later.
                Ok(()) | Err(FsError::NotFound) => {}
                Err(error) => return Err(Error::file(b"a directory of the layer", error)),
            }
        }
        Ok(())
    }
}
