//! A model initialised from another file system's tree.

use vfs::{AllocateMode, FileSystem, FileType, Ino, NewInode, Result, SetAttributes, SpecialFile};

use super::Model;
use crate::fs_tree::{FsTree, GRANULE_BYTES, Inode};

impl Model {
    /// Creates a model with the contents of a tree. Properties that the tree lacks, such as space past the end of
    /// files, are missing.
    ///
    /// # Errors
    /// If the tree is invalid.
    pub fn of(tree: &FsTree) -> Result<Self> {
        let model = Self::with_block_bytes(GRANULE_BYTES);
        let mut made: Vec<Option<Ino>> = vec![None; tree.inodes.len()];
        // Parents come before their children.
        for (path, &place) in &tree.paths {
            let (dir, name) = split(&model, path)?;
            if let Some(ino) = made[place] {
                model.link(ino, dir, name, None)?;
            } else if path.is_empty() {
                made[place] = Some(model.root());
            } else {
                made[place] = Some(model.make_like(dir, name, &tree.inodes[place])?);
            }
        }
        // Creating names changes times, so attributes are set last.
        for (ino, inode) in made.into_iter().zip(&tree.inodes) {
            ino.map_or(Ok(()), |ino| model.dress(ino, inode))?;
        }
        Ok(model)
    }

    fn make_like(&self, dir: Ino, name: &[u8], like: &Inode) -> Result<Ino> {
        let new = NewInode::default();
        let device = like.attributes.device;
        match like.attributes.file_type {
            FileType::Directory => self.mkdir(dir, name, &new),
            FileType::Symlink => self.symlink(dir, name, &like.target, &new),
            FileType::CharDevice => self.mknod(dir, name, SpecialFile::CharDevice(device), &new),
            FileType::BlockDevice => self.mknod(dir, name, SpecialFile::BlockDevice(device), &new),
            FileType::Fifo => self.mknod(dir, name, SpecialFile::Fifo, &new),
            FileType::Socket => self.mknod(dir, name, SpecialFile::Socket, &new),
            FileType::Regular => {
                let ino = self.create(dir, name, &new)?;
                self.fill_like(ino, like)?;
                Ok(ino)
            }
        }
    }

    fn fill_like(&self, ino: Ino, like: &Inode) -> Result<()> {
        let contents = &like.contents;
        for granule in contents.written.iter().cloned().flatten() {
            let zeros = || vec![0; GRANULE_BYTES as usize].into();
            let bytes = contents.granules.get(&granule).cloned().unwrap_or_else(zeros);
            self.write(ino, granule * GRANULE_BYTES, &bytes, None)?;
        }
        for range in &contents.unwritten {
            let (offset, len) =
                (range.start * GRANULE_BYTES, (range.end - range.start) * GRANULE_BYTES);
            self.allocate(ino, offset, len, AllocateMode::UnwrittenKeepSize)?;
        }
        self.truncate(ino, like.attributes.size, None)
    }

    /// Sets attributes and extended attributes of an inode.
    fn dress(&self, ino: Ino, like: &Inode) -> Result<()> {
        for (name, value) in &like.xattrs {
            self.set_xattr(ino, name, value)?;
        }
        let attributes = &like.attributes;
        let change = SetAttributes {
            permissions: Some(attributes.permissions),
            uid: Some(attributes.uid),
            gid: Some(attributes.gid),
            atime: Some(attributes.atime),
            mtime: Some(attributes.mtime),
            ctime: Some(attributes.ctime),
            crtime: attributes.crtime,
            ..SetAttributes::default()
        };
        self.set_attributes(ino, &change)
    }
}

/// Returns the directory of a path, and its last name.
fn split<'p>(model: &Model, path: &'p [u8]) -> Result<(Ino, &'p [u8])> {
    let mut dir = model.root();
    let mut names = path.split(|&byte| byte == b'/').peekable();
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            return Ok((dir, name));
        }
        dir = model.lookup(dir, name)?;
    }
    Ok((dir, b""))
}
