//! The tree of a directory of the host.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, lgetxattr, llistxattr};
use rustix::io::Errno;
use vfs::{Attributes, DeviceNumber, FileType, Ino, InodeFlags, Protection, Timestamp};

use super::tree::{Data, Node, Steps, Tree, Xattrs};
use crate::extract::contents::Run;
use crate::{Error, Result};

/// What most lists and values of extended attributes need, in bytes.
const XATTR_BYTES_USUAL: usize = 512;

/// Linux has no longer lists and values (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`), in bytes.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// The tree of a directory of the host, as it is at that time. File systems that are mounted below belong to it.
pub(super) struct HostTree {
    root: PathBuf,
}

impl HostTree {
    /// The tree of a directory.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn open(root: &Path) -> Result<Self> {
        let found = fs::metadata(root).map_err(|e| Error::host("open", root, e))?;
        if !found.is_dir() {
            return Err(Error::host("compare", root, io::ErrorKind::NotADirectory));
        }
        Ok(Self { root: root.to_owned() })
    }

    fn path(&self, path: &[u8]) -> PathBuf {
        match path {
            [] => self.root.clone(),
            path => self.root.join(OsStr::from_bytes(path)),
        }
    }

    fn node(&self, path: Vec<u8>) -> Result<Node> {
        let host = self.path(&path);
        // The directory itself may be named by a link.
        let found = if path.is_empty() { fs::metadata(&host) } else { fs::symlink_metadata(&host) };
        let found = found.map_err(|e| Error::host("read the attributes of", &host, e))?;
        Ok(Node { path, attributes: attributes(&found), device: found.dev() })
    }

    /// The names in a directory, the first one last.
    fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let host = self.path(path);
        let list = || -> io::Result<Vec<Vec<u8>>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&host)? {
                names.push(entry?.file_name().into_vec());
            }
            Ok(names)
        };
        let mut names = list().map_err(|e| Error::host("list", &host, e))?;
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(names)
    }
}

fn attributes(found: &Metadata) -> Attributes {
    let kind = found.file_type();
    let file_type = match () {
        () if kind.is_dir() => FileType::Directory,
        () if kind.is_symlink() => FileType::Symlink,
        () if kind.is_char_device() => FileType::CharDevice,
        () if kind.is_block_device() => FileType::BlockDevice,
        () if kind.is_fifo() => FileType::Fifo,
        () if kind.is_socket() => FileType::Socket,
        () => FileType::Regular,
    };
    let time = |sec, nsec: i64| Timestamp { sec, nsec: nsec as u32 };
    let device = found.rdev();
    Attributes {
        ino: Ino(found.ino()),
        generation: 0,
        file_type,
        permissions: (found.mode() & 0o7777) as u16,
        links: u32::try_from(found.nlink()).unwrap_or(u32::MAX),
        uid: found.uid(),
        gid: found.gid(),
        size: found.len(),
        blocks_512: found.blocks(),
        device: DeviceNumber { major: rustix::fs::major(device), minor: rustix::fs::minor(device) },
        atime: time(found.atime(), found.atime_nsec()),
        mtime: time(found.mtime(), found.mtime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        crtime: None,
        protection: Protection::default(),
        is_noatime: false,
    }
}

struct HostSteps<'a> {
    tree: &'a HostTree,
    has_begun: bool,
    /// Of each directory on the way: the length of its path, and the names that are to come, the next one last.
    levels: Vec<(usize, Vec<Vec<u8>>)>,
    path: Vec<u8>,
    /// Whether what came last is a directory that is still to be entered.
    enters: bool,
}

impl Steps for HostSteps<'_> {
    fn advance(&mut self) -> Result<Option<Node>> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.enters = true;
            return self.tree.node(Vec::new()).map(Some);
        }
        if std::mem::take(&mut self.enters) {
            self.levels.push((self.path.len(), self.tree.names(&self.path)?));
        }
        while let Some((len, names)) = self.levels.last_mut() {
            self.path.truncate(*len);
            let Some(name) = names.pop() else {
                self.levels.pop();
                continue;
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name);
            let node = self.tree.node(self.path.clone())?;
            self.enters = node.is_directory();
            return Ok(Some(node));
        }
        Ok(None)
    }

    fn skip_children(&mut self) {
        self.enters = false;
    }
}

struct HostData {
    file: File,
    path: PathBuf,
    size: u64,
}

impl Data for HostData {
    fn runs(&self) -> Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let mut at = 0;
        while at < self.size {
            let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                // Not every file system tells holes.
                Err(_) => at,
            };
            let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).unwrap_or(self.size);
            let end = end.min(self.size);
            if end <= start {
                break;
            }
            runs.push(Run { offset: start, len: end - start });
            at = end;
        }
        Ok(runs)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|error| {
            let error = match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    io::Error::other("it became shorter while it was compared")
                }
                _ => error,
            };
            Error::host("read", &self.path, error)
        })
    }
}

/// Reads a list or value, in a small buffer first, as nearly all are short.
fn sized(
    mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    for bytes in [XATTR_BYTES_USUAL, XATTR_BYTES_MAX] {
        let mut value = vec![0; bytes];
        match call(&mut value) {
            Err(Errno::RANGE) => {}
            read => {
                value.truncate(read?);
                return Ok(value);
            }
        }
    }
    Err(Errno::RANGE)
}

impl Tree for HostTree {
    fn steps(&self) -> Box<dyn Steps + '_> {
        let (levels, path) = (Vec::new(), Vec::new());
        Box::new(HostSteps { tree: self, has_begun: false, levels, path, enters: false })
    }

    fn find(&self, path: &[u8]) -> Result<Node> {
        self.node(path.to_vec())
    }

    fn count(&self, directory: &Node) -> Result<u64> {
        Ok(self.names(&directory.path)?.len() as u64)
    }

    fn xattrs(&self, node: &Node) -> Result<Xattrs> {
        let host = self.path(&node.path);
        let failed = |e: Errno| Error::host("read the extended attributes of", &host, e);
        let names = match sized(|buf| llistxattr(&host, buf)) {
            Err(Errno::NOTSUP) => return Ok(Vec::new()),
            names => names.map_err(failed)?,
        };
        let mut xattrs = Vec::new();
        for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            match sized(|buf| lgetxattr(&host, name, buf)) {
                Ok(value) => xattrs.push((name.to_vec(), value)),
                // Gone meanwhile.
                Err(Errno::NODATA) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        xattrs.sort();
        Ok(xattrs)
    }

    fn target(&self, node: &Node) -> Result<Vec<u8>> {
        let host = self.path(&node.path);
        let target = fs::read_link(&host).map_err(|e| Error::host("read the link", &host, e))?;
        Ok(target.into_os_string().into_vec())
    }

    fn flags(&self, _: &Node) -> Result<Option<InodeFlags>> {
        Ok(None)
    }

    fn open(&self, node: &Node) -> Result<Box<dyn Data + '_>> {
        let path = self.path(&node.path);
        let file = File::open(&path).map_err(|e| Error::host("open", &path, e))?;
        Ok(Box::new(HostData { file, path, size: node.attributes.size }))
    }

    fn has_nanoseconds(&self) -> bool {
        true
    }

    fn format(&self) -> &str {
        "directory"
    }
}
