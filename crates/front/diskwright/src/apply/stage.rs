//! Contents of a layer's files, written to files without names.

use std::collections::HashMap;

use import::oci::{LayerFile, Meaning};
use import::{Content, Entry, EntryKind, Time};
use vfs::{FileSystem, Ino, NewInode, SetAttributes, Timestamp};

use super::place::{find, split, walk};
use super::{Fault, Observer};
use crate::copy::contents::Contents;
use crate::edit::Editor;
use crate::list::join;
use crate::{Error, Result};

/// Data prepared before names change. All of its files are held, whether they have names or not.
pub(super) struct Staged {
    /// Files without names by entry number.
    files: HashMap<usize, Ino>,
    /// Targets of hard links in the original image, by entry number of the link.
    lower: HashMap<usize, Ino>,
    pub(super) bytes: u64,
}

impl Staged {
    /// Creates the files and makes them durable.
    ///
    /// # Errors
    /// If this fails. No files remain then.
    pub(super) fn fill(
        editor: Editor<'_>,
        layer: &LayerFile,
        observer: &mut dyn Observer,
    ) -> Result<Self> {
        let mut staged = Self { files: HashMap::new(), lower: HashMap::new(), bytes: 0 };
        match staged.fill_all(editor, layer, observer) {
            Ok(()) => Ok(staged),
            Err(error) => {
                staged.close(editor.fs());
                Err(error)
            }
        }
    }

    /// Returns the file created for an entry.
    pub(super) fn file(&self, entry: usize) -> Option<Ino> {
        self.files.get(&entry).copied()
    }

    /// Returns the original target of a hard link.
    pub(super) fn lower(&self, entry: usize) -> Option<Ino> {
        self.lower.get(&entry).copied()
    }

    /// Releases the files. Those without names are freed.
    pub(super) fn close(&self, fs: &dyn FileSystem) {
        for &ino in self.files.values().chain(self.lower.values()) {
            // This fails only if the image cannot be changed any more. Recovery then removes the file.
            let _ = fs.close(ino);
        }
    }

    fn fill_all(
        &mut self,
        editor: Editor<'_>,
        layer: &LayerFile,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let fs = editor.fs();
        // Directory for placement, which is usually that of the previous file.
        let mut near = (Vec::new(), fs.root());
        for (number, item) in layer.entries().iter().enumerate() {
            let entry = &item.entry;
            let at = |fault: Fault| fault.of_entry(layer, &entry.path);
            match (&item.meaning, &entry.kind) {
                (Meaning::File | Meaning::Unnamed, EntryKind::File(content)) => {
                    observer.file(&entry.path);
                    let (parent, _) = split(&entry.path);
                    if near.0 != parent {
                        let place = walk(fs, parent, None, &mut |_| true).map_err(at)?;
                        near = (parent.to_vec(), place.map_or(fs.root(), |place| place.dir));
                    }
                    self.stage(editor, (number, near.1), entry, content, observer)?;
                }
                (Meaning::File, EntryKind::Hardlink(target)) => {
                    let Some(ino) = find(fs, target).map_err(at)? else { continue };
                    // A file hidden by a whiteout may continue to exist under another name.
                    fs.open(ino).map_err(|e| at(e.into()))?;
                    self.lower.insert(number, ino);
                }
                _ => {}
            }
        }
        fs.sync().map_err(|e| Error::file(b"/", e))
    }

    fn stage(
        &mut self,
        editor: Editor<'_>,
        (number, dir): (usize, Ino),
        entry: &Entry,
        content: &Content,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let fs = editor.fs();
        let path = join(b"/", &entry.path);
        let at = |error| Error::file(&path, error);
        let ino = fs.create_unlinked(dir, &new_inode(&editor, entry)).map_err(at)?;
        self.files.insert(number, ino);
        let mut end = 0;
        let size = content.copy(&mut |offset, bytes| {
            fs.write(ino, offset, bytes, None).map_err(at)?;
            end = offset + bytes.len() as u64;
            self.bytes += bytes.len() as u64;
            observer.copied(bytes.len() as u64);
            Ok(())
        })?;
        if size > end {
            fs.truncate(ino, size, None).map_err(at)?;
        }
        finish(&editor, ino, entry).map_err(at)
    }
}

/// Returns the initial attributes of an entry's inode. The times of its directory do not change.
pub(super) fn new_inode(editor: &Editor<'_>, entry: &Entry) -> NewInode {
    let (metadata, time) = (&entry.metadata, editor.policy().time);
    let (uid, gid) = (metadata.uid, metadata.gid);
    NewInode { permissions: metadata.permissions, uid, gid, time, parent_time: None }
}

/// Sets the attributes of a new file from its entry, times last.
pub(super) fn finish(editor: &Editor<'_>, ino: Ino, entry: &Entry) -> vfs::Result<()> {
    for xattr in &entry.xattrs {
        editor.fs().set_xattr(ino, &xattr.name, &xattr.value)?;
    }
    editor.fs().set_attributes(ino, &times(editor, entry))
}

/// Returns the times of an entry. The ctime is the time of application.
pub(super) fn times(editor: &Editor<'_>, entry: &Entry) -> SetAttributes {
    let time = |time: Time| Timestamp { sec: time.sec, nsec: time.nsec };
    let metadata = &entry.metadata;
    let (mtime, atime) = (time(metadata.mtime), metadata.atime.unwrap_or(metadata.mtime));
    SetAttributes {
        atime: Some(time(atime)),
        mtime: Some(mtime),
        ctime: editor.time(),
        ..SetAttributes::default()
    }
}
