//! Deleted files that can still be read (`diskwright deleted`), and timelines (`diskwright timeline`).
//!
//! The formats report candidates: images of inodes, and names. This module joins them by inode number, resolves paths,
//! and compares the blocks of each candidate with the free space and with the other candidates.
//!
//! ```no_run
//! use diskwright::ImageOptions;
//! use diskwright::deleted::{self, Options};
//!
//! # fn main() -> diskwright::Result<()> {
//! let found = deleted::find("root.img".as_ref(), &ImageOptions::new(), Options::default(), &mut |_, _| {
//!     std::ops::ControlFlow::Continue(())
//! })?;
//! for file in &found.files {
//!     println!("{:?} {}", file.certainty, file.reason);
//! }
//! # Ok(()) }
//! ```

mod blocks;
mod collect;
mod extract;
mod join;
mod json;
mod paths;
mod table;
mod timeline;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;
use vfs::deleted::{DeletedInode, DeletedName, DeletedScope};

pub use extract::{ExtractedFiles, extract};
pub use json::write_json;
pub use table::write_table;
pub use timeline::{timeline, write_deleted_lines};

use crate::image::{open_device, probe};
use crate::{Error, ImageOptions, Result, dispatch};
use collect::Collector;

/// Options of a search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Search all free blocks for directory blocks and inode chunks. Reads the whole free space.
    pub free_blocks: bool,
}

/// Recoverable part of a deleted file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// Size and all blocks are known, and nothing in use has any of them.
    Intact,
    /// All known blocks are free, but the size is unknown.
    Probable,
    /// A part of the block map is lost.
    Incomplete,
    /// Other files have some of the blocks.
    PartlyOverwritten,
    /// Other files have all of the blocks.
    Overwritten,
    /// The inode is known, but nothing describes its contents.
    MetadataOnly,
    /// Only a name is known.
    NameOnly,
}

impl Certainty {
    /// Returns the word in tables and JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Intact => "intact",
            Self::Probable => "probable",
            Self::Incomplete => "incomplete",
            Self::PartlyOverwritten => "partly overwritten",
            Self::Overwritten => "overwritten",
            Self::MetadataOnly => "metadata only",
            Self::NameOnly => "name only",
        }
    }

    /// Returns whether there are contents to extract.
    #[must_use]
    pub const fn has_contents(self) -> bool {
        !matches!(self, Self::MetadataOnly | Self::NameOnly)
    }
}

/// A name of a deleted file.
#[derive(Clone, Debug)]
pub struct NameOfDeleted {
    /// The entry.
    pub entry: DeletedName,
    /// Absolute path, if the path of the directory is known.
    pub path: Option<Vec<u8>>,
}

/// Number of blocks of a deleted file by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStates {
    /// Free, and not part of a file that was deleted later.
    pub free: u64,
    /// In use by another file or by metadata.
    pub in_use: u64,
    /// Free, but part of a file that was deleted later.
    pub reused: u64,
    /// Number of map blocks that cannot be read.
    pub lost_maps: u64,
    /// True if the limit of work was reached, so that blocks were not counted.
    pub is_uncounted: bool,
}

/// A deleted file or a name of one.
#[derive(Clone, Debug)]
pub struct DeletedFile {
    /// The inode. `None` if only names are known.
    pub inode: Option<DeletedInode>,
    /// Names, the most certain one first.
    pub names: Vec<NameOfDeleted>,
    /// States of its blocks.
    pub blocks: BlockStates,
    /// Recoverable part.
    pub certainty: Certainty,
    /// Reason for the certainty, as a sentence without a period.
    pub reason: String,
}

impl DeletedFile {
    /// Returns the inode number, if it is known.
    #[must_use]
    pub fn ino(&self) -> Option<vfs::Ino> {
        let in_name = || self.names.iter().find_map(|name| name.entry.ino);
        self.inode.as_ref().map(|inode| inode.ino).or_else(in_name)
    }

    /// Returns the type from the inode, or else from a name.
    #[must_use]
    pub fn file_type(&self) -> Option<vfs::FileType> {
        let in_name = || self.names.iter().find_map(|name| name.entry.file_type);
        self.inode.as_ref().and_then(|inode| inode.file_type).or_else(in_name)
    }
}

/// Deleted files of an image.
pub struct Found {
    /// Format of the image: `ext2`, `ext3`, `ext4` or `xfs`.
    pub format: &'static str,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// All candidates: inodes by number, then names without an inode.
    pub files: Vec<DeletedFile>,
    /// Messages about what could not be searched.
    pub remarks: Vec<String>,
    /// Damage that did not prevent opening.
    pub damage: Vec<String>,
    /// True if the search was not cancelled.
    pub is_complete: bool,
    device: Arc<dyn BlockDevice>,
}

/// Searches an image for deleted files. Nothing is written to the image. `progress` receives the completed and total
/// units of work, and returns whether to continue.
///
/// Memory is proportional to the number of candidates, plus one bit for each block of the image.
///
/// # Errors
/// If the image cannot be opened. Other damage is in the remarks.
pub fn find(
    path: &Path,
    options: &ImageOptions,
    search: Options,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Found> {
    let device = open_device(path, options)?;
    let format = probe(path, &device, options)?;
    let at = |source| Error::image(path, source);
    let fs = dispatch::open(format, Arc::clone(&device), options).map_err(at)?;
    let info = fs.info(Some(&*device)).map_err(at)?;
    let shape = fs.layout().shape().map_err(at)?;
    let free = blocks::free_blocks(fs.layout(), shape.blocks);
    let mut collector = Collector::new(fs.file_system(), free, progress);
    let scope = DeletedScope { free_blocks: search.free_blocks };
    fs.find_deleted(&*device, scope, &mut collector);
    let collected = collector.finish();
    let is_complete = collected.is_complete;
    let mut remarks = collected.remarks.clone();
    let files = join::join(fs.file_system(), collected, shape.blocks, &mut remarks);
    Ok(Found {
        format: info.format_name(),
        block_bytes: shape.block_size,
        files,
        remarks,
        damage: fs.remarks().to_vec(),
        is_complete,
        device,
    })
}
