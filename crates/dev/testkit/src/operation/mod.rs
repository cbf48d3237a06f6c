//! Operations on a file system as data, so that a run can be repeated, recorded and shown.
//!
//! A [`NumberedOperation`] identifies files by path or by the slot in which they are open, never by inode number, so the same steps
//! have the same effect on every file system. Everything that a step writes (owners, times, contents) is derived from
//! the step alone.

mod apply;
mod generate;

use std::fmt;

use vfs::{AllocateMode, RenameMode, SpecialFile};

pub use apply::{Session, same_outcome};
pub use generate::{Generator, Mix};

/// Maximum number of open files of a session.
pub const SLOTS: usize = 4;

/// Maximum number of bytes of a name that are shown.
const NAME_SHOWN_MAX: usize = 20;

/// A path from the root, without a leading `/`. The root is the empty path.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Path(pub Vec<u8>);

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Long names are truncated in the output.
        let mut separator = "\"";
        for name in self.0.split(|&byte| byte == b'/') {
            let shown = &name[..name.len().min(NAME_SHOWN_MAX)];
            write!(f, "{separator}{}", shown.escape_ascii())?;
            if shown.len() < name.len() {
                write!(f, "…{}", name.len())?;
            }
            separator = "/";
        }
        write!(f, "\"")
    }
}

/// The file of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileTarget {
    /// The file at a path. Symbolic links are not followed.
    Path(Path),
    /// The open file in this slot.
    Slot(usize),
}

/// A change of a file system, or a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the operations of `FileSystem`, with their arguments")]
pub enum Operation {
    Create { path: Path },
    Mkdir { path: Path },
    Mknod { path: Path, file: SpecialFile },
    Symlink { path: Path, target_len: usize },
    CreateUnlinked { dir: Path, slot: usize },
    Link { target: FileTarget, path: Path },
    LinkOver { target: FileTarget, path: Path },
    Unlink { path: Path },
    Rmdir { path: Path },
    Rename { from: Path, to: Path, mode: RenameMode },
    RenameWithWhiteout { from: Path, to: Path, mode: RenameMode },
    Open { path: Path, slot: usize },
    Close { slot: usize },
    Write { target: FileTarget, offset: u64, len: usize },
    Allocate { target: FileTarget, offset: u64, len: u64, mode: AllocateMode },
    Truncate { target: FileTarget, size: u64 },
    Clone { from: FileTarget, from_offset: u64, to: FileTarget, to_offset: u64, len: u64 },
    Exchange { one: FileTarget, one_offset: u64, two: FileTarget, two_offset: u64, len: u64 },
    SetAttributes { target: FileTarget, owner: bool, times: bool },
    SetXattr { target: FileTarget, name: usize, len: usize },
    RemoveXattr { target: FileTarget, name: usize },
    Fsync { target: FileTarget },
    Sync,
    Trim,
}

/// An operation with its number in a run, which determines its times, owners and contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedOperation {
    /// Unique within a run.
    pub number: u64,
    /// What to do.
    pub operation: Operation,
}

impl NumberedOperation {
    /// Returns the bytes that a step writes.
    pub fn bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        fastrand::Rng::with_seed(self.number ^ 0x5eed_0000).fill(&mut bytes);
        bytes
    }
}
