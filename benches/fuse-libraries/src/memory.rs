//! The file system that every library serves. It supports only creating, stating, reading, writing and removing
//! files, so that the measurement is dominated by the transport.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use rustix::io::Errno;

/// Inode number of the root directory.
pub const ROOT: u64 = 1;
/// Time for which the kernel may cache names and attributes, in seconds.
pub const VALID_SECONDS: u64 = 1_000_000;
/// Maximum size of a request in bytes.
pub const MAX_WRITE: u32 = 1 << 20;
/// Maximum number of background requests of the kernel, such as read-ahead.
pub const MAX_BACKGROUND: u16 = 64;

/// Attributes of an inode.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    pub inode: u64,
    pub mode: u32,
    pub links: u32,
    /// Bytes.
    pub size: u64,
}

impl Attributes {
    /// Returns the size in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.size.div_ceil(512)
    }
}

/// Files and directories in a flat map of inodes. Open files need no state.
#[derive(Debug)]
pub struct Memory {
    tree: Mutex<Tree>,
}

#[derive(Debug)]
struct Tree {
    inodes: HashMap<u64, Inode>,
    next: u64,
}

#[derive(Debug)]
struct Inode {
    mode: u32,
    links: u32,
    entries: HashMap<Vec<u8>, u64>,
    data: Arc<RwLock<Vec<u8>>>,
}

impl Inode {
    fn new(mode: u32) -> Self {
        let directory = mode & libc::S_IFMT == libc::S_IFDIR;
        let links = if directory { 2 } else { 1 };
        Self { mode, links, entries: HashMap::new(), data: Arc::default() }
    }

    fn attributes(&self, inode: u64) -> Attributes {
        let size = self.data.read().unwrap().len() as u64;
        Attributes { inode, mode: self.mode, links: self.links, size }
    }
}

impl Tree {
    fn get(&self, inode: u64) -> Result<&Inode, Errno> {
        self.inodes.get(&inode).ok_or(Errno::NOENT)
    }

    fn get_mut(&mut self, inode: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&inode).ok_or(Errno::NOENT)
    }
}

impl Default for Memory {
    fn default() -> Self {
        let root = Inode::new(libc::S_IFDIR | 0o755);
        Self { tree: Mutex::new(Tree { inodes: HashMap::from([(ROOT, root)]), next: ROOT + 1 }) }
    }
}

impl Memory {
    pub fn attributes(&self, inode: u64) -> Result<Attributes, Errno> {
        Ok(self.tree.lock().unwrap().get(inode)?.attributes(inode))
    }

    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Attributes, Errno> {
        let tree = self.tree.lock().unwrap();
        let inode = *tree.get(parent)?.entries.get(name).ok_or(Errno::NOENT)?;
        Ok(tree.get(inode)?.attributes(inode))
    }

    /// Creates a file or directory, according to `mode`.
    pub fn make(&self, parent: u64, name: &[u8], mode: u32) -> Result<Attributes, Errno> {
        let mut tree = self.tree.lock().unwrap();
        let inode = tree.next;
        let entries = &mut tree.get_mut(parent)?.entries;
        if entries.contains_key(name) {
            return Err(Errno::EXIST);
        }
        entries.insert(name.to_vec(), inode);
        tree.next += 1;
        let made = Inode::new(mode);
        let attributes = made.attributes(inode);
        tree.inodes.insert(inode, made);
        Ok(attributes)
    }

    /// Removes a name and its inode. An inode has one name.
    pub fn remove(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let mut tree = self.tree.lock().unwrap();
        let inode = tree.get_mut(parent)?.entries.remove(name).ok_or(Errno::NOENT)?;
        tree.inodes.remove(&inode);
        Ok(())
    }

    /// Sets the size, if one is given. Other attributes are ignored.
    pub fn change(&self, inode: u64, size: Option<u64>) -> Result<Attributes, Errno> {
        if let Some(size) = size {
            self.data(inode)?.write().unwrap().resize(size as usize, 0);
        }
        self.attributes(inode)
    }

    /// Calls `take` with the existing part of the `len` bytes from `offset` on.
    pub fn read<T>(
        &self,
        inode: u64,
        offset: u64,
        len: usize,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Errno> {
        let data = self.data(inode)?;
        let data = data.read().unwrap();
        let start = data.len().min(offset as usize);
        let end = data.len().min(start + len);
        Ok(take(&data[start..end]))
    }

    /// Calls `fill` with the `len` bytes from `offset` on.
    pub fn write<T>(
        &self,
        inode: u64,
        offset: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, Errno> {
        let data = self.data(inode)?;
        let mut data = data.write().unwrap();
        let (start, end) = (offset as usize, offset as usize + len);
        if data.len() < end {
            data.resize(end, 0);
        }
        Ok(fill(&mut data[start..end]))
    }

    fn data(&self, inode: u64) -> Result<Arc<RwLock<Vec<u8>>>, Errno> {
        Ok(self.tree.lock().unwrap().get(inode)?.data.clone())
    }
}
