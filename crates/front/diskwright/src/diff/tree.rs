//! Interface of trees for comparison.

use vfs::runs::Run;
use vfs::{Attributes, InodeFlags};

use crate::Result;

/// File visited by a walk.
#[derive(Clone, Debug)]
pub(super) struct VisitedFile {
    /// Path from the root, without leading `/`; empty for the root.
    pub(super) path: Vec<u8>,
    /// Inode attributes.
    pub(super) attributes: Attributes,
    /// Device of the inode, if the tree spans several.
    pub(super) device: u64,
}

/// Identity of an inode in a tree.
pub(super) type Id = (u64, u64);

impl VisitedFile {
    pub(super) fn id(&self) -> Id {
        (self.device, self.attributes.ino.0)
    }

    /// Returns whether the file may have other names.
    pub(super) fn is_linked(&self) -> bool {
        !self.is_directory() && self.attributes.links > 1
    }

    pub(super) fn is_directory(&self) -> bool {
        self.attributes.file_type == vfs::FileType::Directory
    }
}

/// Extended attributes, sorted by name.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Walk of a tree: parents before children, names sorted by bytes.
pub(super) trait Steps {
    /// Returns the next file.
    ///
    /// # Errors
    /// If it cannot be read.
    fn advance(&mut self) -> Result<Option<VisitedFile>>;

    /// Skips the children of the directory returned last.
    fn skip_children(&mut self);
}

/// Contents of a regular file.
pub(super) trait Data {
    /// Returns the data runs in order, within the size.
    ///
    /// # Errors
    /// If they cannot be read.
    fn runs(&self) -> Result<Vec<Run>>;

    /// Fills `buf` with the bytes at `offset`, which must be within the size.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
}

/// Tree that can be compared with another one.
pub(super) trait ComparedTree: Sync {
    fn steps(&self) -> Box<dyn Steps + '_>;

    /// Returns the file at a path. A symbolic link in the last component is not followed.
    fn find(&self, path: &[u8]) -> Result<VisitedFile>;

    /// Returns the number of names in a directory.
    fn count(&self, directory: &VisitedFile) -> Result<u64>;

    fn xattrs(&self, node: &VisitedFile) -> Result<Xattrs>;

    fn target(&self, node: &VisitedFile) -> Result<Vec<u8>>;

    /// Returns the flags, if the tree has flags.
    fn flags(&self, node: &VisitedFile) -> Result<Option<InodeFlags>>;

    fn open(&self, node: &VisitedFile) -> Result<Box<dyn Data + '_>>;

    /// Returns whether times have nanosecond precision instead of seconds.
    fn has_nanoseconds(&self) -> bool;

    /// Returns whether the attributes of a file are known. Those of implied directories of an archive are not, so their
    /// times are ignored.
    fn knows(&self, _: &VisitedFile) -> bool {
        true
    }

    /// Returns the format name, which determines the supported flags.
    fn format(&self) -> &str;
}
