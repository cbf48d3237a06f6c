//! Tree of an image.

use vfs::path::{LastLink, Order, Walk};
use vfs::runs::{Run, data_runs, read_exactly};
use vfs::{Corruption, FileSystem, FileType, Ino, InodeFlags};

use super::tree::{ComparedTree, Data, Steps, VisitedFile, Xattrs};
use crate::list::join;
use crate::{Error, FileSystemRef, Format, Image, ImageInfo, Result};

/// Minimum inode size of ext4 with nanosecond timestamps, in bytes.
const EXT4_NANOSECONDS_BYTES: u32 = 256;

/// Tree of an image.
pub(super) struct ImageTree<'a> {
    fs: FileSystemRef<'a>,
    info: ImageInfo,
}

impl<'a> ImageTree<'a> {
    /// Wraps an open image.
    ///
    /// # Errors
    /// If the image is closed, or its properties cannot be determined.
    pub(super) fn new(image: &'a Image) -> Result<Self> {
        Ok(Self { fs: image.file_system()?, info: image.info()? })
    }

    fn fs(&self) -> &dyn FileSystem {
        &*self.fs
    }
}

fn at(path: &[u8]) -> impl Fn(vfs::Error) -> Error + '_ {
    move |source| Error::file(&join(b"/", path), source)
}

struct ImageSteps<'a>(Walk<'a>);

impl Steps for ImageSteps<'_> {
    fn advance(&mut self) -> Result<Option<VisitedFile>> {
        let Some(visit) = self.0.advance() else { return Ok(None) };
        let visit = visit.map_err(at(self.0.path()))?;
        let path = self.0.path().to_vec();
        Ok(Some(VisitedFile { path, attributes: visit.attributes, device: 0 }))
    }

    fn skip_children(&mut self) {
        self.0.skip_children();
    }
}

struct ImageData<'a> {
    fs: &'a dyn FileSystem,
    ino: Ino,
    size: u64,
    path: Vec<u8>,
}

impl Data for ImageData<'_> {
    fn runs(&self) -> Result<Vec<Run>> {
        data_runs(self.fs, self.ino, self.size).map_err(at(&self.path))
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        read_exactly(self.fs, self.ino, offset, buf).map_err(at(&self.path))
    }
}

impl ComparedTree for ImageTree<'_> {
    fn steps(&self) -> Box<dyn Steps + '_> {
        Box::new(ImageSteps(self.fs.paths().walk(self.fs().root(), Order::Sorted)))
    }

    fn find(&self, path: &[u8]) -> Result<VisitedFile> {
        let ino = self.fs.paths().resolve(path, LastLink::Keep).map_err(at(path))?;
        let attributes = self.fs().attributes(ino).map_err(at(path))?;
        Ok(VisitedFile { path: path.to_vec(), attributes, device: 0 })
    }

    fn count(&self, directory: &VisitedFile) -> Result<u64> {
        let entries = self.fs.paths().read_dir_inode(directory.attributes.ino);
        Ok(entries.map_err(at(&directory.path))?.len() as u64)
    }

    fn xattrs(&self, node: &VisitedFile) -> Result<Xattrs> {
        let (fs, ino) = (self.fs(), node.attributes.ino);
        let mut xattrs = Vec::new();
        let mut list = || {
            let mut names = Vec::new();
            fs.list_xattrs(ino, &mut |name| names.push(name.to_vec()))?;
            names.sort();
            names.dedup();
            for name in names {
                if name.is_empty() || name.contains(&0) {
                    let problem = "attribute name is empty or contains a NUL byte";
                    return Err(Corruption::new("extended attribute", problem)
                        .of_inode(ino.0)
                        .into());
                }
                let value = fs.get_xattr(ino, &name)?;
                xattrs.push((name, value));
            }
            Ok(())
        };
        list().map_err(at(&node.path))?;
        Ok(xattrs)
    }

    fn target(&self, node: &VisitedFile) -> Result<Vec<u8>> {
        let ino = node.attributes.ino;
        let target = self.fs().readlink(ino).and_then(|target| {
            if target.is_empty() || target.contains(&0) {
                let problem = "target is empty or contains a NUL byte";
                return Err(Corruption::new("symbolic link", problem).of_inode(ino.0).into());
            }
            Ok(target)
        });
        target.map_err(at(&node.path))
    }

    fn flags(&self, node: &VisitedFile) -> Result<Option<InodeFlags>> {
        if !matches!(node.attributes.file_type, FileType::Regular | FileType::Directory) {
            return Ok(None);
        }
        let found = self.fs().file_attributes(node.attributes.ino).map_err(at(&node.path))?;
        Ok(Some(found.flags))
    }

    fn open(&self, node: &VisitedFile) -> Result<Box<dyn Data + '_>> {
        let (ino, size, path) = (node.attributes.ino, node.attributes.size, node.path.clone());
        Ok(Box::new(ImageData { fs: self.fs(), ino, size, path }))
    }

    fn has_nanoseconds(&self) -> bool {
        self.info.format() == Format::Xfs || self.info.inode_size >= EXT4_NANOSECONDS_BYTES
    }

    fn format(&self) -> &str {
        self.info.format_name()
    }
}
