//! Tree of a host directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use disk::FileAt;
use vfs::InodeFlags;
use vfs::runs::Run;

use super::tree::{ComparedTree, Data, Steps, VisitedFile, Xattrs};
use crate::{Error, Result, host};

/// Tree of a host directory in its current state. File systems mounted below are included.
pub(super) struct HostTree {
    root: PathBuf,
}

impl HostTree {
    /// Opens the tree of a directory.
    ///
    /// # Errors
    /// If the path is not a directory.
    pub(super) fn open(root: &Path) -> Result<Self> {
        let found = fs::metadata(root).map_err(|e| Error::host("open", root, e))?;
        if !found.is_dir() {
            return Err(Error::host("compare", root, io::ErrorKind::NotADirectory));
        }
        Ok(Self { root: root.to_owned() })
    }

    fn path(&self, path: &[u8]) -> Result<PathBuf> {
        if path.is_empty() {
            return Ok(self.root.clone());
        }
        let below = host::path(path);
        let below = below.map_err(|e| Error::host("compare", host::path_to_show(path), e))?;
        Ok(self.root.join(below))
    }

    fn node(&self, path: Vec<u8>) -> Result<VisitedFile> {
        let place = self.path(&path)?;
        // The root path may be a link.
        let found =
            if path.is_empty() { fs::metadata(&place) } else { fs::symlink_metadata(&place) };
        let found = found.map_err(|e| Error::host("read the attributes of", &place, e))?;
        Ok(VisitedFile {
            path,
            attributes: host::attributes(&found),
            device: host::device_of(&found),
        })
    }

    /// Returns the names in a directory in reverse order.
    fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let place = self.path(path)?;
        let list = || -> io::Result<Vec<Vec<u8>>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&place)? {
                names.push(entry?.file_name().into_encoded_bytes());
            }
            Ok(names)
        };
        let mut names = list().map_err(|e| Error::host("list", &place, e))?;
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(names)
    }
}

struct HostSteps<'a> {
    tree: &'a HostTree,
    has_begun: bool,
    /// For each directory on the current path: its path length and the remaining names, the next one last.
    levels: Vec<(usize, Vec<Vec<u8>>)>,
    path: Vec<u8>,
    /// True if the last returned file is a directory that is not entered yet.
    enters: bool,
}

impl Steps for HostSteps<'_> {
    fn advance(&mut self) -> Result<Option<VisitedFile>> {
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
            let Some((start, end)) = host::next_data(&self.file, at, self.size) else { break };
            runs.push(Run { offset: start, len: end - start });
            at = end;
        }
        Ok(runs)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|error| {
            let error = match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    io::Error::other("it was truncated during the comparison")
                }
                _ => error,
            };
            Error::host("read", &self.path, error)
        })
    }
}

impl ComparedTree for HostTree {
    fn steps(&self) -> Box<dyn Steps + '_> {
        let (levels, path) = (Vec::new(), Vec::new());
        Box::new(HostSteps { tree: self, has_begun: false, levels, path, enters: false })
    }

    fn find(&self, path: &[u8]) -> Result<VisitedFile> {
        self.node(path.to_vec())
    }

    fn count(&self, directory: &VisitedFile) -> Result<u64> {
        Ok(self.names(&directory.path)?.len() as u64)
    }

    fn xattrs(&self, node: &VisitedFile) -> Result<Xattrs> {
        let place = self.path(&node.path)?;
        let failed = |e| Error::host("read the extended attributes of", &place, e);
        host::xattrs(&place, false).map_err(failed)
    }

    fn target(&self, node: &VisitedFile) -> Result<Vec<u8>> {
        let place = self.path(&node.path)?;
        let target = fs::read_link(&place).map_err(|e| Error::host("read the link", &place, e))?;
        Ok(host::target_bytes(target))
    }

    fn flags(&self, _: &VisitedFile) -> Result<Option<InodeFlags>> {
        Ok(None)
    }

    fn open(&self, node: &VisitedFile) -> Result<Box<dyn Data + '_>> {
        let path = self.path(&node.path)?;
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
