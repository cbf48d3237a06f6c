//! The reference model: a file system so simple that it is obviously right.
//!
//! Everything is in sorted maps behind one lock, and no operation is clever. Sizes of directories,
//! `blocks_512` and totals are the model's own and mean nothing for other file systems.
//! Invariants: inode numbers and directory cookies are never used twice; a file's block is in
//! `blocks` only if it was allocated, and what is past the size reads as zeros when it grows.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use parking_lot::Mutex;
use vfs::{
    AllocateMode, Attributes, Cookie, DeviceNumber, DirEntry, Error, ExtentPlace, FileSystem,
    FileType, Ino, MappedExtent, NAME_LEN_MAX, NewInode, RenameMode, Result, SetAttributes,
    SpecialFile, StatFs, Timestamp,
};

/// Unit of allocation, in bytes.
pub const BLOCK_BYTES: u64 = 4096;
/// Most blocks and inodes, for [`StatFs`]; they are not enforced.
const TOTAL: u64 = 1 << 40;
const ROOT: Ino = Ino(2);
/// Cookies 1 and 2 follow `.` and `..`.
const COOKIE_FIRST: u64 = 3;

/// A file system in memory.
pub struct Model {
    state: Mutex<State>,
}

struct State {
    inodes: BTreeMap<Ino, Inode>,
    ino_next: u64,
}

struct Inode {
    attributes: Attributes,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    body: Body,
}

enum Body {
    Regular(Blocks),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special,
}

/// Blocks by number; `None` is one that was allocated but never written.
type Blocks = BTreeMap<u64, Option<Box<[u8]>>>;

struct Directory {
    parent: Ino,
    by_name: BTreeMap<Vec<u8>, (u64, Ino)>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    cookie_next: u64,
}

impl Directory {
    fn new(parent: Ino) -> Self {
        let (by_name, by_cookie) = (BTreeMap::new(), BTreeMap::new());
        Self { parent, by_name, by_cookie, cookie_next: COOKIE_FIRST }
    }

    fn insert(&mut self, name: &[u8], ino: Ino) {
        self.by_name.insert(name.to_vec(), (self.cookie_next, ino));
        self.by_cookie.insert(self.cookie_next, name.to_vec());
        self.cookie_next += 1;
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// An empty file system.
    pub fn new() -> Self {
        let new = NewInode { permissions: 0o755, ..NewInode::default() };
        let mut root = Inode::new(ROOT, FileType::Directory, &new);
        root.body = Body::Directory(Directory::new(ROOT));
        root.attributes.links = 2;
        let inodes = BTreeMap::from([(ROOT, root)]);
        Self { state: Mutex::new(State { inodes, ino_next: ROOT.0 + 1 }) }
    }

    /// Puts an entry into a directory without any check, as a damaged image may have it.
    ///
    /// # Panics
    /// If `dir` is not a directory.
    pub fn insert_unchecked(&self, dir: Ino, name: &[u8], ino: Ino) {
        let mut state = self.state.lock();
        state.directory_mut(dir).expect("a directory").insert(name, ino);
    }
}

impl Inode {
    fn new(ino: Ino, file_type: FileType, new: &NewInode) -> Self {
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
        };
        Self { attributes, xattrs: BTreeMap::new(), body: Body::Special }
    }
}

impl State {
    fn inode(&self, ino: Ino) -> Result<&Inode> {
        self.inodes.get(&ino).ok_or(Error::NotFound)
    }

    fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Error::NotFound)
    }

    fn directory(&self, ino: Ino) -> Result<&Directory> {
        match &self.inode(ino)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotADirectory),
        }
    }

    fn directory_mut(&mut self, ino: Ino) -> Result<&mut Directory> {
        match &mut self.inode_mut(ino)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotADirectory),
        }
    }

    fn regular(&self, ino: Ino) -> Result<(&Attributes, &Blocks)> {
        let inode = self.inode(ino)?;
        match &inode.body {
            Body::Regular(blocks) => Ok((&inode.attributes, blocks)),
            Body::Directory(_) => Err(Error::IsADirectory),
            _ => Err(Error::Invalid("this is not a regular file")),
        }
    }

    fn regular_mut(&mut self, ino: Ino) -> Result<(&mut Attributes, &mut Blocks)> {
        let inode = self.inode_mut(ino)?;
        match &mut inode.body {
            Body::Regular(blocks) => Ok((&mut inode.attributes, blocks)),
            Body::Directory(_) => Err(Error::IsADirectory),
            _ => Err(Error::Invalid("this is not a regular file")),
        }
    }

    /// Checks that a new entry may be made.
    fn check_new(&self, dir: Ino, name: &[u8]) -> Result<()> {
        let directory = self.directory(dir)?;
        if name.len() > NAME_LEN_MAX {
            return Err(Error::NameTooLong);
        }
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(Error::Invalid("a name is 1 to 255 bytes without \"/\" and NUL"));
        }
        if name == b"." || name == b".." || directory.by_name.contains_key(name) {
            return Err(Error::Exists);
        }
        Ok(())
    }

    fn make(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
        file_type: FileType,
        body: Body,
    ) -> Result<Ino> {
        self.check_new(dir, name)?;
        let ino = Ino(self.ino_next);
        self.ino_next += 1;
        let mut inode = Inode::new(ino, file_type, new);
        inode.body = body;
        if file_type == FileType::Directory {
            inode.attributes.links = 2;
            self.inode_mut(dir)?.attributes.links += 1;
        }
        self.inodes.insert(ino, inode);
        self.directory_mut(dir)?.insert(name, ino);
        let parent = self.inode_mut(dir)?;
        if let Some(time) = new.parent_time {
            parent.attributes.mtime = time;
            parent.attributes.ctime = time;
        }
        Ok(ino)
    }
}

fn set<T: Copy>(value: &mut T, change: Option<T>) {
    *value = change.unwrap_or(*value);
}

/// Splits a byte range at block boundaries: block, offset in it, length.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let within = (offset + done) % BLOCK_BYTES;
        let count = (BLOCK_BYTES - within).min(len - done);
        let piece = ((offset + done) / BLOCK_BYTES, within as usize, count as usize);
        done += count;
        (count > 0).then_some(piece)
    })
}

fn end_of(offset: u64, len: u64) -> Result<u64> {
    offset.checked_add(len).ok_or(Error::FileTooLarge)
}

fn count_blocks(attributes: &mut Attributes, blocks: &Blocks) {
    attributes.blocks_512 = blocks.len() as u64 * (BLOCK_BYTES / 512);
}

impl FileSystem for Model {
    fn root(&self) -> Ino {
        ROOT
    }

    fn statfs(&self) -> Result<StatFs> {
        let inodes = self.state.lock().inodes.len() as u64;
        Ok(StatFs {
            block_size: BLOCK_BYTES as u32,
            blocks: TOTAL,
            blocks_free: TOTAL,
            blocks_available: TOTAL,
            inodes: TOTAL,
            inodes_free: TOTAL - inodes,
            name_len_max: NAME_LEN_MAX as u32,
        })
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let state = self.state.lock();
        let directory = state.directory(dir)?;
        match name {
            b"." => Ok(dir),
            b".." => Ok(directory.parent),
            _ => directory.by_name.get(name).map(|&(_, ino)| ino).ok_or(Error::NotFound),
        }
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        Ok(self.state.lock().inode(ino)?.attributes)
    }

    fn set_attributes(&self, ino: Ino, change: &SetAttributes) -> Result<()> {
        let mut state = self.state.lock();
        let attributes = &mut state.inode_mut(ino)?.attributes;
        set(&mut attributes.permissions, change.permissions);
        set(&mut attributes.uid, change.uid);
        set(&mut attributes.gid, change.gid);
        set(&mut attributes.atime, change.atime);
        set(&mut attributes.mtime, change.mtime);
        set(&mut attributes.ctime, change.ctime);
        attributes.crtime = change.crtime.or(attributes.crtime);
        Ok(())
    }

    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        let body = Body::Regular(Blocks::new());
        self.state.lock().make(dir, name, new, FileType::Regular, body)
    }

    fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        let body = Body::Directory(Directory::new(dir));
        self.state.lock().make(dir, name, new, FileType::Directory, body)
    }

    fn mknod(&self, dir: Ino, name: &[u8], file: SpecialFile, new: &NewInode) -> Result<Ino> {
        let (file_type, device) = match file {
            SpecialFile::CharDevice(device) => (FileType::CharDevice, device),
            SpecialFile::BlockDevice(device) => (FileType::BlockDevice, device),
            SpecialFile::Fifo => (FileType::Fifo, DeviceNumber::default()),
            SpecialFile::Socket => (FileType::Socket, DeviceNumber::default()),
        };
        let mut state = self.state.lock();
        let ino = state.make(dir, name, new, file_type, Body::Special)?;
        state.inode_mut(ino)?.attributes.device = device;
        Ok(ino)
    }

    fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Result<Ino> {
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Invalid("a symbolic link's target is not empty and has no NUL"));
        }
        if target.len() as u64 >= BLOCK_BYTES {
            return Err(Error::NameTooLong);
        }
        let mut state = self.state.lock();
        let body = Body::Symlink(target.to_vec());
        let ino = state.make(dir, name, new, FileType::Symlink, body)?;
        state.inode_mut(ino)?.attributes.size = target.len() as u64;
        Ok(ino)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match &self.state.lock().inode(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Error::Invalid("this is not a symbolic link")),
        }
    }

    fn create_unlinked(&self, _dir: Ino, _new: &NewInode) -> Result<Ino> {
        Err(Error::unsupported("this operation", "wait for it"))
    }

    fn unlink(&self, _dir: Ino, _name: &[u8], _time: Option<Timestamp>) -> Result<()> {
        Err(Error::unsupported("this operation", "wait for it"))
    }

    fn rmdir(&self, _dir: Ino, _name: &[u8], _time: Option<Timestamp>) -> Result<()> {
        Err(Error::unsupported("this operation", "wait for it"))
    }

    fn rename(
        &self,
        _from: (Ino, &[u8]),
        _to: (Ino, &[u8]),
        _mode: RenameMode,
        _time: Option<Timestamp>,
    ) -> Result<()> {
        Err(Error::unsupported("this operation", "wait for it"))
    }

    fn open(&self, _ino: Ino) -> Result<()> {
        Err(Error::unsupported("this operation", "wait for it"))
    }

    fn close(&self, _ino: Ino) -> Result<()> {
        Err(Error::unsupported("this operation", "wait for it"))
    }

    fn remove_xattr(&self, _ino: Ino, _name: &[u8]) -> Result<()> {
        Err(Error::unsupported("this operation", "wait for it"))
    }

    fn fsync(&self, _ino: Ino) -> Result<()> {
        Ok(())
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        let mut state = self.state.lock();
        if state.inode(ino)?.attributes.file_type == FileType::Directory {
            return Err(Error::IsADirectory);
        }
        state.check_new(dir, name)?;
        state.directory_mut(dir)?.insert(name, ino);
        let attributes = &mut state.inode_mut(ino)?.attributes;
        attributes.links += 1;
        attributes.ctime = time.unwrap_or(attributes.ctime);
        if let Some(time) = time {
            let parent = state.inode_mut(dir)?;
            parent.attributes.mtime = time;
            parent.attributes.ctime = time;
        }
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let state = self.state.lock();
        let (attributes, blocks) = state.regular(ino)?;
        let len = attributes.size.saturating_sub(offset).min(buf.len() as u64);
        let mut done = 0;
        for (block, within, count) in pieces(offset, len) {
            let part = &mut buf[done..done + count];
            match blocks.get(&block) {
                Some(Some(bytes)) => part.copy_from_slice(&bytes[within..within + count]),
                _ => part.fill(0),
            }
            done += count;
        }
        Ok(done)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        let (attributes, blocks) = state.regular_mut(ino)?;
        let end = end_of(offset, data.len() as u64)?;
        let mut done = 0;
        for (block, within, count) in pieces(offset, data.len() as u64) {
            let place = blocks.entry(block).or_default();
            let bytes = place.get_or_insert_with(|| vec![0; BLOCK_BYTES as usize].into());
            bytes[within..within + count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
        if !data.is_empty() {
            attributes.size = attributes.size.max(end);
        }
        count_blocks(attributes, blocks);
        Ok(())
    }

    fn allocate(&self, ino: Ino, offset: u64, len: u64, _: AllocateMode) -> Result<()> {
        let mut state = self.state.lock();
        let (attributes, blocks) = state.regular_mut(ino)?;
        let end = end_of(offset, len)?;
        for (block, ..) in pieces(offset, len) {
            blocks.entry(block).or_default();
        }
        attributes.size = attributes.size.max(end);
        count_blocks(attributes, blocks);
        Ok(())
    }

    fn truncate(&self, ino: Ino, size: u64) -> Result<()> {
        let mut state = self.state.lock();
        let (attributes, blocks) = state.regular_mut(ino)?;
        blocks.retain(|block, _| *block < size.div_ceil(BLOCK_BYTES));
        if let Some(Some(bytes)) = blocks.get_mut(&(size / BLOCK_BYTES)) {
            bytes[(size % BLOCK_BYTES) as usize..].fill(0);
        }
        attributes.size = size;
        count_blocks(attributes, blocks);
        Ok(())
    }

    fn extent_map(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()> {
        let state = self.state.lock();
        let (attributes, blocks) = state.regular(ino)?;
        let end = attributes.size.min(offset.saturating_add(len));
        // The model has no device: each block stands for itself.
        let place = |block: u64| match blocks.get(&block) {
            Some(Some(_)) => ExtentPlace::Device(block * BLOCK_BYTES),
            Some(None) => ExtentPlace::Unwritten(block * BLOCK_BYTES),
            None => ExtentPlace::Hole,
        };
        let mut at = offset;
        while at < end {
            let block = at / BLOCK_BYTES;
            let next_block = if blocks.contains_key(&block) {
                block + 1
            } else {
                blocks.range(block..).next().map_or(u64::MAX, |(&next, _)| next)
            };
            let next = next_block.saturating_mul(BLOCK_BYTES).min(end);
            if each(MappedExtent { offset: at, len: next - at, place: place(block) }).is_break() {
                break;
            }
            at = next;
        }
        Ok(())
    }

    fn readdir(
        &self,
        dir: Ino,
        from: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        // Copied out, so that the callback may use the file system.
        let (parent, entries) = {
            let state = self.state.lock();
            let directory = state.directory(dir)?;
            let rest = directory.by_cookie.range(from.0..);
            let rest = rest.map(|(&cookie, name)| {
                let ino = directory.by_name[name].1;
                let file_type = state.inode(ino).ok().map(|inode| inode.attributes.file_type);
                (cookie, name.clone(), ino, file_type)
            });
            (directory.parent, rest.collect::<Vec<_>>())
        };
        let file_type = Some(FileType::Directory);
        let dots = [(1, b".".to_vec(), dir, file_type), (2, b"..".to_vec(), parent, file_type)];
        let dots = dots.into_iter().filter(|(cookie, ..)| *cookie > from.0);
        for (cookie, name, ino, file_type) in dots.chain(entries) {
            let next = Cookie(if cookie < COOKIE_FIRST { cookie } else { cookie + 1 });
            if each(DirEntry { name: &name, ino, file_type, next }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.state.lock().inode(ino)?.xattrs.get(name).cloned().ok_or(Error::NoAttribute)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.state.lock().inode_mut(ino)?.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn list_xattrs(&self, ino: Ino, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.state.lock().inode(ino)?.xattrs.keys().for_each(|name| each(name));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
