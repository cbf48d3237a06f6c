//! A snapshot of a directory tree: everything that `lstat` and similar calls return.
//!
//! Invariants: paths are relative to the root, which is the empty path. The leader of a group of hard links is its
//! first path in byte order. Data ranges are disjoint, ascending and aligned to [`HOLE_GRANULE`]; the last one is
//! truncated at the file's size.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, lgetxattr, llistxattr, seek};
use rustix::io::Errno;

/// Granularity of holes in bytes: file systems round holes to their own blocks, and 4096 is a multiple of every block
/// size up to it.
pub const HOLE_GRANULE: u64 = 4096;

/// Maximum size of a value and of a list of names in system calls, in bytes (`XATTR_SIZE_MAX` and `XATTR_LIST_MAX` of
/// `linux/limits.h`).
const XATTR_BYTES_MAX: usize = 65536;

/// Sufficient for most lists and values: the kernel allocates and clears a buffer of the offered size.
const XATTR_BYTES_USUAL: usize = 512;

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the POSIX file types")]
pub enum NodeKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// One entry of a tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its type.
    pub kind: NodeKind,
    /// Mode bits 0o7777.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes; 0 for anything except regular files and symbolic links.
    pub size: u64,
    /// Last access: seconds and nanoseconds.
    pub atime: (i64, i64),
    /// Last change of the inode: seconds and nanoseconds.
    pub ctime: (i64, i64),
    /// Last change of the contents: seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Link count.
    pub nlink: u64,
    /// First path of the same inode, for entries with other names in this tree.
    pub link_leader: Option<Vec<u8>>,
    /// Device number of a device, otherwise 0.
    pub rdev: u64,
    /// Target of a symbolic link, otherwise empty.
    pub target: Vec<u8>,
    /// Extended attributes of all namespaces by full name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// CRC-32C over the non-zero granules of a regular file and their offsets, independent of holes.
    pub content: u32,
    /// Data ranges of a regular file in bytes.
    pub data: Vec<Range<u64>>,
}

/// A whole tree by path.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Every entry by its path from the root; the root's own path is empty.
    pub nodes: BTreeMap<Vec<u8>, Node>,
}

impl Tree {
    /// Takes a snapshot of the directory `root` and everything below it.
    ///
    /// # Panics
    /// If a path cannot be read.
    #[track_caller]
    pub fn of(root: impl AsRef<Path>) -> Self {
        let root = root.as_ref();
        let mut reader = TreeReader::default();
        let mut pending = vec![PathBuf::new()];
        while let Some(relative) = pending.pop() {
            let path = if relative.as_os_str().is_empty() {
                root.to_path_buf()
            } else {
                root.join(&relative)
            };
            let result = reader.read(&path, &relative, &mut pending);
            result.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        reader.finish()
    }

    /// Returns the entry at a path.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn node(&self, path: impl AsRef<[u8]>) -> &Node {
        let path = path.as_ref();
        self.nodes.get(path).unwrap_or_else(|| panic!("no entry {}", path.escape_ascii()))
    }
}

#[derive(Default)]
struct TreeReader {
    nodes: BTreeMap<Vec<u8>, Node>,
    paths_by_inode: HashMap<(u64, u64), Vec<Vec<u8>>>,
    buffer: Vec<u8>,
}

impl TreeReader {
    /// Reads one entry and queues its children.
    fn read(&mut self, path: &Path, relative: &Path, pending: &mut Vec<PathBuf>) -> io::Result<()> {
        let metadata = fs::symlink_metadata(path)?;
        let relative_bytes = relative.as_os_str().as_bytes().to_vec();
        if metadata.is_dir() {
            for entry in fs::read_dir(path)? {
                pending.push(relative.join(entry?.file_name()));
            }
        } else if metadata.nlink() > 1 {
            let paths = self.paths_by_inode.entry((metadata.dev(), metadata.ino())).or_default();
            paths.push(relative_bytes.clone());
            // Each inode is read once, because a second read would see a changed atime.
            if let Some(node) = self.nodes.get(&paths[0]).cloned() {
                self.nodes.insert(relative_bytes, node);
                return Ok(());
            }
        }
        let node = self.node(path, &metadata)?;
        self.nodes.insert(relative_bytes, node);
        Ok(())
    }

    fn node(&mut self, path: &Path, metadata: &Metadata) -> io::Result<Node> {
        let mut node = node_of(metadata);
        self.buffer.resize(XATTR_BYTES_MAX, 0);
        node.xattrs = read_xattrs(path, &mut self.buffer)?;
        if node.kind == NodeKind::File {
            node.size = metadata.len();
            read_content(&File::open(path)?, &mut node, &mut self.buffer)?;
        } else if node.kind == NodeKind::Symlink {
            node.size = metadata.len();
            node.target = fs::read_link(path)?.into_os_string().into_vec();
        }
        Ok(node)
    }

    /// Sets the leader of each group of hard links.
    fn finish(mut self) -> Tree {
        for paths in self.paths_by_inode.into_values().filter(|paths| paths.len() > 1) {
            let leader = paths.iter().min().cloned();
            for path in paths {
                if let Some(node) = self.nodes.get_mut(&path) {
                    node.link_leader.clone_from(&leader);
                }
            }
        }
        Tree { nodes: self.nodes }
    }
}

fn kind_of(metadata: &Metadata) -> NodeKind {
    let file_type = metadata.file_type();
    match () {
        () if file_type.is_dir() => NodeKind::Directory,
        () if file_type.is_symlink() => NodeKind::Symlink,
        () if file_type.is_fifo() => NodeKind::Fifo,
        () if file_type.is_socket() => NodeKind::Socket,
        () if file_type.is_char_device() => NodeKind::CharDevice,
        () if file_type.is_block_device() => NodeKind::BlockDevice,
        () => NodeKind::File,
    }
}

fn node_of(metadata: &Metadata) -> Node {
    let kind = kind_of(metadata);
    let is_device = matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice);
    Node {
        kind,
        permissions: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: 0,
        atime: (metadata.atime(), metadata.atime_nsec()),
        ctime: (metadata.ctime(), metadata.ctime_nsec()),
        mtime: (metadata.mtime(), metadata.mtime_nsec()),
        nlink: metadata.nlink(),
        link_leader: None,
        rdev: if is_device { metadata.rdev() } else { 0 },
        target: Vec::new(),
        xattrs: BTreeMap::new(),
        content: 0,
        data: Vec::new(),
    }
}

/// Calls with the start of a buffer, and with all of it if that is too small.
fn with_room(
    buffer: &mut [u8],
    call: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    match call(&mut buffer[..XATTR_BYTES_USUAL]) {
        Err(Errno::RANGE) => call(buffer),
        result => result,
    }
}

fn read_xattrs(path: &Path, buffer: &mut [u8]) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let length = match with_room(buffer, |room| llistxattr(path, room)) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = buffer[..length].to_vec();
    let mut xattrs = BTreeMap::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let length = with_room(buffer, |room| lgetxattr(path, name, room))?;
        xattrs.insert(name.to_vec(), buffer[..length].to_vec());
    }
    Ok(xattrs)
}

/// Fills in the data ranges and the checksum of a regular file.
fn read_content(file: &File, node: &mut Node, buffer: &mut [u8]) -> io::Result<()> {
    let mut position = 0;
    while position < node.size {
        let start = match seek(file, SeekFrom::Data(position)) {
            Ok(start) => start,
            // No data from here to the end.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?;
        let start = start - start % HOLE_GRANULE;
        position = end.next_multiple_of(HOLE_GRANULE);
        let end = position.min(node.size);
        match node.data.last_mut() {
            Some(last) if last.end >= start => last.end = end,
            _ => node.data.push(start..end),
        }
    }
    for range in node.data.clone() {
        node.content = checksum(file, range, node.content, buffer)?;
    }
    Ok(())
}

/// Continues a checksum with the non-zero granules of a range.
fn checksum(
    file: &File,
    mut range: Range<u64>,
    mut sum: u32,
    buffer: &mut [u8],
) -> io::Result<u32> {
    const ZEROS: [u8; HOLE_GRANULE as usize] = [0; HOLE_GRANULE as usize];
    while !range.is_empty() {
        let length = (buffer.len() as u64).min(range.end - range.start) as usize;
        file.read_exact_at(&mut buffer[..length], range.start)?;
        for granule in buffer[..length].chunks(ZEROS.len()) {
            if *granule != ZEROS[..granule.len()] {
                sum = crc32c::crc32c_append(sum, &range.start.to_le_bytes());
                sum = crc32c::crc32c_append(sum, granule);
            }
            range.start += granule.len() as u64;
        }
    }
    Ok(sum)
}
