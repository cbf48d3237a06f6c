//! Data of the model, and look-ups in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfs::{
    Attributes, DeviceNumber, Error, FileType, Ino, NAME_LEN_MAX, NewInode, Protection, Result,
    Timestamp,
};

use super::{BLOCK_BYTES, PathEntry};

/// The root directory.
pub(super) const ROOT: Ino = Ino(2);
/// Cookies 1 and 2 follow `.` and `..`.
pub(super) const COOKIE_FIRST: u64 = 3;

pub(super) struct ModelState {
    pub(super) inodes: BTreeMap<Ino, ModelInode>,
    ino_next: u64,
    /// Cached list of all entries, until one changes: random steps request it often.
    entries: Option<Arc<[PathEntry]>>,
    /// Allocation unit in bytes.
    pub(super) block_bytes: u64,
    /// Comparison of names in directories.
    pub(super) comparison: Comparison,
}

/// Comparison of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Comparison {
    #[default]
    Exact,
    /// Ignores the case of ASCII letters.
    FoldsCase,
}

impl Comparison {
    /// Returns the key shared by all spellings of a name.
    pub(super) fn key(self, name: &[u8]) -> Vec<u8> {
        match self {
            Self::Exact => name.to_vec(),
            Self::FoldsCase => name.to_ascii_lowercase(),
        }
    }
}

pub(super) struct ModelInode {
    pub(super) attributes: Attributes,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) body: Body,
    /// References counted by `open`.
    pub(super) open_count: u64,
}

pub(super) enum Body {
    Regular(FileBlocks),
    Directory(ModelDirectory),
    Symlink(Vec<u8>),
    Special,
}

/// Blocks by number; `None` is an unwritten one.
pub(super) type FileBlocks = BTreeMap<u64, Option<Box<[u8]>>>;

pub(super) struct ModelDirectory {
    pub(super) parent: Ino,
    comparison: Comparison,
    /// Cookies and inodes, by the keys of names.
    by_key: BTreeMap<Vec<u8>, (u64, Ino)>,
    /// Names as they are stored.
    pub(super) by_cookie: BTreeMap<u64, Vec<u8>>,
    cookie_next: u64,
}

impl ModelDirectory {
    pub(super) fn new(parent: Ino, comparison: Comparison) -> Self {
        let (by_key, by_cookie) = (BTreeMap::new(), BTreeMap::new());
        Self { parent, comparison, by_key, by_cookie, cookie_next: COOKIE_FIRST }
    }

    pub(super) fn insert(&mut self, name: &[u8], ino: Ino) {
        self.by_key.insert(self.comparison.key(name), (self.cookie_next, ino));
        self.by_cookie.insert(self.cookie_next, name.to_vec());
        self.cookie_next += 1;
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some((cookie, _)) = self.by_key.remove(&self.comparison.key(name)) {
            self.by_cookie.remove(&cookie);
        }
    }

    /// Returns the inode of a name.
    pub(super) fn get(&self, name: &[u8]) -> Option<Ino> {
        self.by_key.get(&self.comparison.key(name)).map(|&(_, ino)| ino)
    }

    /// Changes the inode of an existing name.
    pub(super) fn set(&mut self, name: &[u8], ino: Ino) {
        if let Some((_, place)) = self.by_key.get_mut(&self.comparison.key(name)) {
            *place = ino;
        }
    }

    /// Returns the stored spelling of a name, if it exists.
    pub(super) fn stored(&self, name: &[u8]) -> Option<&[u8]> {
        let (cookie, _) = self.by_key.get(&self.comparison.key(name))?;
        Some(&self.by_cookie[cookie])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Returns the stored names and their inodes, in the order of the keys.
    pub(super) fn names(&self) -> impl Iterator<Item = (&[u8], Ino)> {
        self.by_key.values().map(|(cookie, ino)| (&self.by_cookie[cookie][..], *ino))
    }
}

impl Default for ModelState {
    fn default() -> Self {
        let new = NewInode { permissions: 0o755, ..NewInode::default() };
        let mut root = ModelInode::new(ROOT, FileType::Directory, &new);
        root.body = Body::Directory(ModelDirectory::new(ROOT, Comparison::Exact));
        root.attributes.links = 2;
        Self {
            inodes: BTreeMap::from([(ROOT, root)]),
            ino_next: ROOT.0 + 1,
            entries: None,
            block_bytes: BLOCK_BYTES,
            comparison: Comparison::Exact,
        }
    }
}

impl ModelInode {
    pub(super) fn new(ino: Ino, file_type: FileType, new: &NewInode) -> Self {
        let is_directory = file_type == FileType::Directory;
        let attributes = Attributes {
            ino,
            generation: 0,
            file_type,
            permissions: new.permissions & 0o7777,
            links: 1,
            uid: new.uid,
            gid: new.gid,
            size: if is_directory { BLOCK_BYTES } else { 0 },
            blocks_512: 0,
            device: DeviceNumber::default(),
            atime: new.time,
            mtime: new.time,
            ctime: new.time,
            crtime: Some(new.time),
            protection: Protection::default(),
            is_noatime: false,
        };
        Self { attributes, xattrs: BTreeMap::new(), body: Body::Special, open_count: 0 }
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }
}

impl ModelState {
    pub(super) fn fold_case(&mut self) {
        self.comparison = Comparison::FoldsCase;
        if let Ok(root) = self.directory_mut(ROOT) {
            root.comparison = Comparison::FoldsCase;
        }
    }

    pub(super) fn inode(&self, ino: Ino) -> Result<&ModelInode> {
        self.inodes.get(&ino).ok_or(Error::NotFound)
    }

    pub(super) fn inode_mut(&mut self, ino: Ino) -> Result<&mut ModelInode> {
        self.inodes.get_mut(&ino).ok_or(Error::NotFound)
    }

    pub(super) fn directory(&self, ino: Ino) -> Result<&ModelDirectory> {
        match &self.inode(ino)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotADirectory),
        }
    }

    pub(super) fn directory_mut(&mut self, ino: Ino) -> Result<&mut ModelDirectory> {
        self.entries = None;
        match &mut self.inode_mut(ino)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotADirectory),
        }
    }

    pub(super) fn regular(&self, ino: Ino) -> Result<(&Attributes, &FileBlocks)> {
        let inode = self.inode(ino)?;
        match &inode.body {
            Body::Regular(blocks) => Ok((&inode.attributes, blocks)),
            Body::Directory(_) => Err(Error::IsADirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    pub(super) fn regular_mut(&mut self, ino: Ino) -> Result<(&mut Attributes, &mut FileBlocks)> {
        let inode = self.inode_mut(ino)?;
        match &mut inode.body {
            Body::Regular(blocks) => Ok((&mut inode.attributes, blocks)),
            Body::Directory(_) => Err(Error::IsADirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// Returns the inode of an entry other than `.` and `..`.
    pub(super) fn entry(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let directory = self.directory(dir)?;
        if name == b"." || name == b".." {
            return Err(Error::Invalid("\".\" and \"..\" cannot be removed or moved"));
        }
        directory.get(name).ok_or(Error::NotFound)
    }

    /// Checks that a directory may get a new entry with this name. A removed directory that is still open may not.
    pub(super) fn check_new(&self, dir: Ino, name: &[u8]) -> Result<()> {
        let directory = self.directory(dir)?;
        if name.len() > NAME_LEN_MAX {
            return Err(Error::NameTooLong);
        }
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(Error::Invalid("a name is 1 to 255 bytes without \"/\" and NUL"));
        }
        if name == b"." || name == b".." || directory.get(name).is_some() {
            return Err(Error::Exists);
        }
        if self.inode(dir)?.attributes.links == 0 {
            return Err(Error::NotFound);
        }
        Ok(())
    }

    /// Adds a new inode without a name to the map.
    pub(super) fn add_inode(&mut self, file_type: FileType, body: Body, new: &NewInode) -> Ino {
        let ino = Ino(self.ino_next);
        self.ino_next += 1;
        let mut inode = ModelInode::new(ino, file_type, new);
        inode.body = body;
        self.inodes.insert(ino, inode);
        ino
    }

    /// Removes an inode that has neither a name nor a reference.
    pub(super) fn drop_if_unused(&mut self, ino: Ino) {
        let is_unused = |inode: &ModelInode| inode.attributes.links == 0 && inode.open_count == 0;
        if self.inodes.get(&ino).is_some_and(is_unused) {
            self.inodes.remove(&ino);
        }
    }

    /// Sets `mtime` and `ctime` of a directory, if `time` is given.
    pub(super) fn touch(&mut self, dir: Ino, time: Option<Timestamp>) -> Result<()> {
        let attributes = &mut self.inode_mut(dir)?.attributes;
        attributes.mtime = time.unwrap_or(attributes.mtime);
        attributes.ctime = time.unwrap_or(attributes.ctime);
        Ok(())
    }

    pub(super) fn entries(&mut self) -> Arc<[PathEntry]> {
        if let Some(entries) = &self.entries {
            return entries.clone();
        }
        self.entries.insert(self.collect_entries().into()).clone()
    }

    fn collect_entries(&self) -> Vec<PathEntry> {
        let mut found = Vec::new();
        let mut pending = vec![(Vec::new(), ROOT)];
        while let Some((path, dir)) = pending.pop() {
            let Ok(directory) = self.directory(dir) else { continue };
            for (name, ino) in directory.names() {
                let Ok(inode) = self.inode(ino) else { continue };
                let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                let path = [&path, slash, name].concat();
                if inode.is_directory() {
                    pending.push((path.clone(), ino));
                }
                found.push((path, ino, inode.attributes.file_type));
            }
        }
        found
    }
}
