//! Output of on-disk structures (`diskwright dump`).
//!
//! Field names are those of the format's documentation. Damaged structures are shown as far as possible, together with
//! a description of the damage. The journal is not replayed, and nothing is written.
//!
//! ```no_run
//! use diskwright::ImageOptions;
//! use diskwright::dump::{DumpSelection, InodeSelector, dump};
//!
//! # fn main() -> diskwright::Result<()> {
//! let what = DumpSelection::Inode(InodeSelector::Path(b"/etc/motd".to_vec()));
//! let inode = dump("root.img".as_ref(), &ImageOptions::default(), &what)?;
//! for problem in &inode.problems {
//!     println!("{problem}");
//! }
//! # Ok(()) }
//! ```

mod bytes;
mod ext4;
mod node;
mod xattrs;
mod xfs;

use std::path::Path;
use std::sync::Arc;

use ::ext4::Ext4;
use ::xfs::Xfs;
use disk::BlockDevice;
use serde::Serialize;
use vfs::path::LastLink;
use vfs::{FileSystem, Ino, Paths};

use crate::image::{format_of, open_device, probe};
use crate::{Error, Format, ImageOptions, Outcome, Result};

pub use node::{DumpValue, Fields};

/// Inode, by number or by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InodeSelector {
    /// By inode number.
    Number(u64),
    /// By path. A symbolic link at its end is not followed.
    Path(Vec<u8>),
}

impl InodeSelector {
    /// Parses a number or a path.
    pub fn parse(text: &[u8]) -> Self {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        number.map_or_else(|| Self::Path(text.to_vec()), Self::Number)
    }
}

/// Structure to dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpSelection {
    /// The superblock.
    Superblock,
    /// Group descriptor; for XFS, the headers of an allocation group.
    Group(u32),
    /// An inode.
    Inode(InodeSelector),
    /// The blocks of a directory.
    Directory(InodeSelector),
    /// Block with its type and bytes.
    Block(u64),
    /// Journal superblock and the blocks of its log.
    Journal,
}

/// Contents of a structure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Dump {
    /// Fields.
    #[serde(flatten)]
    pub fields: Fields,
    /// Damage.
    pub problems: Vec<String>,
    /// Other remarks on the image.
    #[serde(skip)]
    pub remarks: Vec<String>,
}

impl Dump {
    /// Returns the exit status.
    pub fn outcome(&self) -> Outcome {
        if self.problems.is_empty() { Outcome::Done } else { Outcome::Image }
    }

    fn problem(&mut self, problem: impl ToString) {
        self.problems.push(problem.to_string());
    }
}

/// Reads a structure of an image without replaying its journal.
///
/// # Errors
/// If the image cannot be read or has no such structure. Damage of the structure itself is in [`Dump::problems`].
pub fn dump(path: &Path, options: &ImageOptions, what: &DumpSelection) -> Result<Dump> {
    let device = open_device(path, options)?;
    let at = |source| Error::image(path, source);
    if *what == DumpSelection::Superblock {
        return superblock(path, &*device);
    }
    let options = options.clone().norecovery(true);
    match probe(path, &device, &options)? {
        Format::Ext4 => {
            let fs = Ext4::open(Arc::clone(&device), &options.ext4()).map_err(at)?;
            let remarks = fs.remarks().to_vec();
            Ok(Dump { remarks, ..Source { device, fs }.dump(path, what)? })
        }
        Format::Xfs => {
            let fs = Xfs::open(Arc::clone(&device), &options.xfs()).map_err(at)?;
            let remarks = fs.remarks().to_vec();
            Ok(Dump { remarks, ..Source { device, fs }.dump(path, what)? })
        }
    }
}

/// Dumps the superblock of an image even if its format is not recognised.
fn superblock(path: &Path, device: &dyn BlockDevice) -> Result<Dump> {
    let dump = match format_of(path, device)? {
        Some(Format::Xfs) => xfs::superblock::dump(device),
        _ => ext4::superblock::dump(device),
    };
    dump.map_err(|source| Error::image(path, source))
}

/// Image to dump: its file system, opened without recovery, and its device.
struct Source<F> {
    device: Arc<dyn BlockDevice>,
    fs: F,
}

impl<F: FileSystem> Source<F>
where
    Self: Structures,
{
    fn dump(&self, path: &Path, what: &DumpSelection) -> Result<Dump> {
        let at = |source| Error::image(path, source);
        match what {
            DumpSelection::Superblock => superblock(path, &*self.device),
            DumpSelection::Group(group) => self.group(*group).map_err(at),
            DumpSelection::Inode(target) => self.inode(self.find(target)?).map_err(at),
            DumpSelection::Directory(target) => self.directory(self.find(target)?).map_err(at),
            DumpSelection::Block(block) => self.block(*block).map_err(at),
            DumpSelection::Journal => self.journal().map_err(at),
        }
    }

    fn find(&self, target: &InodeSelector) -> Result<Ino> {
        match target {
            InodeSelector::Number(number) => Ok(Ino(*number)),
            InodeSelector::Path(path) => {
                let found = Paths::new(&self.fs).resolve(path, LastLink::Keep);
                found.map_err(|e| Error::file(path, e))
            }
        }
    }
}

/// Dump functions of a format.
trait Structures {
    fn group(&self, number: u32) -> vfs::Result<Dump>;
    fn inode(&self, ino: Ino) -> vfs::Result<Dump>;
    fn directory(&self, ino: Ino) -> vfs::Result<Dump>;
    fn block(&self, number: u64) -> vfs::Result<Dump>;
    fn journal(&self) -> vfs::Result<Dump>;
}
