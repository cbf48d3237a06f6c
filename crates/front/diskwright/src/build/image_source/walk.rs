//! Files of an image as a stream of entries, in the order of a directory source.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use import::{
    Entry, EntryKind, InodeDetails, Metadata, Progress, Source, SourceError, Time, Xattr,
};
use vfs::{Attributes, Corruption, FileAttributes, FileType, Ino, InodeFlags, Timestamp};

use super::ImageTree;
use super::contents::contents;

/// Directory for files recovered by e2fsck.
const LOST_FOUND: &[u8] = b"lost+found";

/// Open directory and its remaining names.
struct Level {
    /// Length of the directory's path.
    path_len: usize,
    /// Remaining names; the next one is last.
    names: Vec<(Box<[u8]>, Ino)>,
}

pub(super) struct TreeCursor {
    tree: ImageTree,
    levels: Vec<Level>,
    path: Vec<u8>,
    /// Listed directories. Each must have one name only.
    directories: HashSet<Ino>,
    /// First names of files with several names.
    first_names: HashMap<Ino, Vec<u8>>,
    done: u64,
    is_over: bool,
}

impl TreeCursor {
    pub(super) fn new(tree: ImageTree) -> Self {
        Self {
            tree,
            levels: Vec::new(),
            path: Vec::new(),
            directories: HashSet::new(),
            first_names: HashMap::new(),
            done: 0,
            is_over: false,
        }
    }

    /// Advances to the next file.
    fn advance(&mut self) -> Option<Ino> {
        if self.done == 0 {
            return Some(self.tree.fs().root());
        }
        while let Some(level) = self.levels.last_mut() {
            self.path.truncate(level.path_len);
            let Some((name, ino)) = level.names.pop() else {
                self.levels.pop();
                continue;
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name);
            return Some(ino);
        }
        None
    }

    fn entry(&mut self, ino: Ino) -> vfs::Result<Option<Entry>> {
        let tree = self.tree.clone();
        let fs = tree.fs();
        let found = fs.attributes(ino)?;
        let path = self.path.clone();
        let metadata = metadata(&found);
        let is_directory = found.file_type == FileType::Directory;
        if found.links > 1 && !is_directory {
            if let Some(first) = self.first_names.get(&ino) {
                let (kind, xattrs) = (EntryKind::Hardlink(first.clone()), Vec::new());
                return Ok(Some(Entry { path, kind, metadata, xattrs, inode: None }));
            }
            self.first_names.insert(ino, path.clone());
        }
        let attributes = fs.file_attributes(ino)?;
        check(attributes)?;
        if is_directory {
            self.enter(ino)?;
        }
        let kind = match found.file_type {
            FileType::Directory => EntryKind::Directory,
            FileType::Regular => EntryKind::File(contents(&tree, ino, found.size, &path)?),
            FileType::Symlink => EntryKind::Symlink(target(&tree, ino)?),
            FileType::CharDevice => {
                EntryKind::CharDevice { major: found.device.major, minor: found.device.minor }
            }
            FileType::BlockDevice => {
                EntryKind::BlockDevice { major: found.device.major, minor: found.device.minor }
            }
            FileType::Fifo => EntryKind::Fifo,
            FileType::Socket => EntryKind::Socket,
        };
        let xattrs = xattrs(&tree, ino)?;
        if self.is_idle_lost_found(&found, &xattrs) {
            return Ok(None);
        }
        let inode = Some(Box::new(InodeDetails { crtime: found.crtime.map(time), attributes }));
        Ok(Some(Entry { path, kind, metadata, xattrs, inode }))
    }

    /// Lists a directory.
    fn enter(&mut self, dir: Ino) -> vfs::Result<()> {
        if !self.directories.insert(dir) {
            let problem = "a directory has more than one entry";
            return Err(Corruption::new("directory", problem).of_inode(dir.0).into());
        }
        let mut names = Vec::new();
        self.tree.fs().for_each_entry(dir, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                names.push((Box::from(entry.name), entry.ino));
            }
            ControlFlow::Continue(())
        })?;
        names.sort_unstable_by(|a: &(Box<[u8]>, Ino), b| b.0.cmp(&a.0));
        let is_name = |name: &[u8]| !name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
        let is_twice = names.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if is_twice || !names.iter().all(|(name, _)| is_name(name)) {
            let problem = "a name occurs twice, is empty, or contains a slash or NUL";
            return Err(Corruption::new("directory", problem).of_inode(dir.0).into());
        }
        self.levels.push(Level { path_len: self.path.len(), names });
        Ok(())
    }

    /// Returns whether this is an unmodified `lost+found` that the new format does not need.
    fn is_idle_lost_found(&self, found: &Attributes, xattrs: &[Xattr]) -> bool {
        self.tree.0.skips_lost_found
            && self.path == LOST_FOUND
            && found.file_type == FileType::Directory
            && self.levels.last().is_some_and(|level| level.names.is_empty())
            && (found.permissions, found.uid, found.gid) == (0o700, 0, 0)
            && xattrs.is_empty()
    }
}

impl Source for TreeCursor {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        while !self.is_over {
            let Some(ino) = self.advance() else {
                self.is_over = true;
                break;
            };
            self.done += 1;
            match self.entry(ino) {
                Ok(Some(entry)) => return Ok(Some(entry)),
                Ok(None) => {}
                Err(error) => {
                    self.is_over = true;
                    return Err(self.tree.error(&self.path, error));
                }
            }
        }
        Ok(None)
    }

    fn read(&mut self, _: &mut [u8]) -> Result<usize, SourceError> {
        Ok(0)
    }

    fn entries_min(&mut self) -> u64 {
        self.tree.files()
    }

    fn progress(&self) -> Progress {
        Progress { done: self.done, total: Some(self.tree.files()) }
    }
}

/// Rejects files that cannot be represented outside their file system.
fn check(attributes: FileAttributes) -> vfs::Result<()> {
    if attributes.flags.contains(InodeFlags::ENCRYPTED) {
        let advice = "copy it from a mount with the key, or remove it from the image";
        return Err(vfs::Error::unsupported("encrypted files and directories", advice));
    }
    Ok(())
}

fn target(tree: &ImageTree, ino: Ino) -> vfs::Result<Vec<u8>> {
    let target = tree.fs().readlink(ino)?;
    if target.is_empty() || target.contains(&0) {
        let problem = "target is empty or contains a NUL byte";
        return Err(Corruption::new("symbolic link", problem).of_inode(ino.0).into());
    }
    Ok(target)
}

/// Returns the extended attributes of a file, sorted by name.
fn xattrs(tree: &ImageTree, ino: Ino) -> vfs::Result<Vec<Xattr>> {
    let mut names = Vec::new();
    tree.fs().list_xattrs(ino, &mut |name| names.push(name.to_vec()))?;
    names.sort_unstable();
    names.dedup();
    if names.iter().any(|name| name.is_empty() || name.contains(&0)) {
        let problem = "attribute name is empty or contains a NUL byte";
        return Err(Corruption::new("extended attribute", problem).of_inode(ino.0).into());
    }
    let value = |name: Vec<u8>| {
        let value = tree.fs().get_xattr(ino, &name)?;
        Ok(Xattr { name, value })
    };
    names.into_iter().map(value).collect()
}

fn time(time: Timestamp) -> Time {
    Time { sec: time.sec, nsec: time.nsec }
}

fn metadata(found: &Attributes) -> Metadata {
    Metadata {
        permissions: found.permissions,
        uid: found.uid,
        gid: found.gid,
        mtime: time(found.mtime),
        atime: Some(time(found.atime)),
        ctime: Some(time(found.ctime)),
    }
}
