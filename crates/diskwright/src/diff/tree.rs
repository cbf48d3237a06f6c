//! A tree that can be compared: of an image, or of the host.

use vfs::{Attributes, InodeFlags};

use crate::Result;
use crate::extract::contents::Run;

/// A file that a walk came to.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Path from the root, without leading `/`; empty for the root.
    pub(super) path: Vec<u8>,
    /// Attributes of the inode.
    pub(super) attributes: Attributes,
    /// The device that the inode is on, where there may be several.
    pub(super) device: u64,
}

/// What identifies an inode of a tree.
pub(super) type Id = (u64, u64);

impl Node {
    pub(super) fn id(&self) -> Id {
        (self.device, self.attributes.ino.0)
    }

    /// Whether other names may lead to it, too.
    pub(super) fn is_linked(&self) -> bool {
        !self.is_directory() && self.attributes.links > 1
    }

    pub(super) fn is_directory(&self) -> bool {
        self.attributes.file_type == vfs::FileType::Directory
    }
}

/// Extended attributes, sorted by name.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Goes through a tree: parents before their children, each directory's names in the order of their bytes.
pub(super) trait Steps {
    /// The next file.
    ///
    /// # Errors
    /// If it cannot be read.
    fn advance(&mut self) -> Result<Option<Node>>;

    /// Leaves out what is below the directory that came last.
    fn skip_children(&mut self);
}

/// The contents of a regular file.
pub(super) trait Data {
    /// Where there is data, in order, within the size.
    ///
    /// # Errors
    /// If that cannot be read.
    fn runs(&self) -> Result<Vec<Run>>;

    /// Fills `buf` from `offset` on, which must lie within the size.
    ///
    /// # Errors
    /// If that cannot be read.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
}

/// A tree that can be compared with another one.
pub(super) trait Tree: Sync {
    fn steps(&self) -> Box<dyn Steps + '_>;

    /// The file at a path, whose last component is not followed if it is a link.
    fn find(&self, path: &[u8]) -> Result<Node>;

    /// How many names a directory has.
    fn count(&self, directory: &Node) -> Result<u64>;

    fn xattrs(&self, node: &Node) -> Result<Xattrs>;

    fn target(&self, node: &Node) -> Result<Vec<u8>>;

    /// The flags, where the tree has any.
    fn flags(&self, node: &Node) -> Result<Option<InodeFlags>>;

    fn open(&self, node: &Node) -> Result<Box<dyn Data + '_>>;

    /// Whether times are kept to the nanosecond, and not to the second.
    fn has_nanoseconds(&self) -> bool;

    /// Whether something says what the attributes of a file are. Of a directory that is only a part of paths in an
    /// archive, nothing does, and its time is no difference.
    fn knows(&self, _: &Node) -> bool {
        true
    }

    /// What tells apart which flags a tree can have.
    fn format(&self) -> &str;
}
