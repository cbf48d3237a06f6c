//! What a format supplies to the data path.

use std::ops::Range;

use vfs::{AllocateMode, Ino, Result};

use super::{LogicalBlock, Piece, Run, Want};
use crate::Outcome;
use crate::inode::{InodeHandle, Inodes};

/// An inode whose contents are read and changed.
pub trait FileHandle: InodeHandle {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Sets its size in bytes.
    fn set_size(&mut self, size: u64);
}

/// A file system that finds where the contents of files are.
pub trait ReadFiles: Inodes<Inode: FileHandle> {
    /// A block as its maps of files name it.
    type Block: Copy;

    /// The binary logarithm of the block size in bytes.
    fn block_size_log(&self) -> u32;

    /// Where a block begins on the device, in bytes.
    fn byte_of(&self, block: Self::Block) -> u64;

    /// The run of a file that starts at `at`, as readers see it. Neighbouring runs may continue it.
    /// The contents must not be inline.
    ///
    /// # Errors
    /// `Corrupt` if the map is damaged, `Device`.
    fn find_run(&self, file: &Self::Inode, at: LogicalBlock) -> Result<Run<Self::Block>>;

    /// Whether a file may have `mapped` bytes of the device: without a bound, a damaged map could
    /// make files without end.
    ///
    /// # Errors
    /// `Corrupt` if it may not.
    fn check_mapped(&self, _file: &Self::Inode, _mapped: u64) -> Result<()> {
        Ok(())
    }
}

/// A file system whose operations change which blocks files have.
///
/// Files are handed on by reference and changed in memory; the operation stages them in the end.
pub trait MapFiles: ReadFiles {
    /// The run of a file that starts at `at`, as the operation sees it.
    ///
    /// # Errors
    /// As [`ReadFiles::find_run`].
    fn run_at(
        &self,
        op: &mut Self::Op<'_>,
        file: &Self::Inode,
        at: LogicalBlock,
    ) -> Outcome<Run<Self::Block>>;

    /// Sees to it that a file has block `at`, and more up to `limit` as far as they lie together, in
    /// the state that is wanted. Only the map is changed: [`Piece::is_exposed`] and
    /// [`Piece::copied_from`] say what must be written to the device.
    ///
    /// # Errors
    /// `NoSpace`, `FileTooLarge`, `Corrupt`, `Device`.
    fn provide(
        &self,
        op: &mut Self::Op<'_>,
        file: &mut Self::Inode,
        at: LogicalBlock,
        limit: LogicalBlock,
        want: Want,
    ) -> Outcome<Piece<Self::Block>>;

    /// Unmaps blocks of a file, from the end of the range backwards, and frees them when the
    /// operation commits. `budget` is what one operation may change, and is lowered by what was
    /// done. Whether that was all: if not, the file is sound, and the rest is for another operation.
    ///
    /// # Errors
    /// `NoSpace` where a cut out of the middle needs more room in the map, `Corrupt`, `Device`.
    fn remove(
        &self,
        op: &mut Self::Op<'_>,
        file: &mut Self::Inode,
        blocks: Range<LogicalBlock>,
        budget: &mut u32,
    ) -> Outcome<bool>;

    /// Zeroes bytes of the device that are a file's at the end of the operation
    /// ([`super::ZeroedRuns`]).
    fn zero_at_end(&self, op: &mut Self::Op<'_>, bytes: Range<u64>);

    /// Whether a file may have blocks that other files have, too.
    fn may_share(&self, _file: &Self::Inode) -> bool {
        false
    }

    /// Whether the map of a file can say that blocks are allocated but not written.
    fn maps_unwritten(&self, _file: &Self::Inode) -> bool {
        true
    }

    /// Whether blocks that are new to a file may be such as it had before at the same place.
    fn may_get_back_own(&self) -> bool {
        false
    }
}

/// A file system whose files' contents are changed.
pub trait ChangeFiles: MapFiles {
    /// What of a file's contents is kept apart from its blocks, read before the operation that
    /// moves it into them.
    type Apart;

    /// Runs that one operation maps or frees at most.
    fn changes_per_op(&self) -> u32;

    /// No file has bytes from here on.
    fn size_max(&self) -> u64;

    /// Loads a regular file whose contents may be changed.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `Invalid` for other types, and what else forbids a change.
    fn load_file(&self, ino: Ino) -> Result<Self::Inode>;

    /// Whether some file may have the bytes `offset..offset + len`; asked before one is loaded, and
    /// for formats that have the same bound for all.
    ///
    /// # Errors
    /// `FileTooLarge` if not.
    fn check_end(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// The blocks of a file that hold the bytes `offset..offset + len`.
    ///
    /// # Errors
    /// `FileTooLarge` past the largest size of this file.
    fn blocks_of(&self, file: &Self::Inode, offset: u64, len: u64) -> Result<Range<LogicalBlock>>;

    /// Whether a file can have space up to byte `end` as `mode` says.
    ///
    /// # Errors
    /// `Unsupported` if not.
    fn check_space(&self, _file: &Self::Inode, _end: u64, _mode: AllocateMode) -> Result<()> {
        Ok(())
    }

    /// Whether bytes of a file, which lie below its size, can be written over with no operation
    /// wherever data was written before.
    ///
    /// # Errors
    /// `Corrupt`, `Device`.
    fn can_overwrite(&self, file: &Self::Inode, bytes: Range<u64>) -> Result<bool>;

    /// Reads what of a file's contents is kept apart from its blocks.
    ///
    /// # Errors
    /// `Corrupt`, `Device`.
    fn read_apart(&self, file: &Self::Inode) -> Result<Self::Apart>;

    /// Moves what was apart into blocks, at the start of an operation.
    ///
    /// # Errors
    /// As [`MapFiles::provide`].
    fn use_apart(
        &self,
        _op: &mut Self::Op<'_>,
        _file: &mut Self::Inode,
        _apart: &Self::Apart,
    ) -> Outcome<()> {
        Ok(())
    }

    /// Notes that a file has space past its end that is to stay.
    fn note_preallocated(&self, _file: &mut Self::Inode) {}

    /// Notes that an operation has freed what it could past the size of a file, and whether that was
    /// all.
    fn note_cut(&self, op: &mut Self::Op<'_>, file: &mut Self::Inode, is_done: bool);

    /// Goes on with a truncation to `size` bytes that was too much for one operation. The inode's
    /// lock is held.
    ///
    /// # Errors
    /// What the format lets the caller see.
    fn finish_truncation(&self, ino: Ino, size: u64) -> Result<()>;

    /// Stages a file if it is not what it was `before`, without what it had apart.
    fn stage_contents(
        &self,
        op: &mut Self::Op<'_>,
        file: Self::Inode,
        before: &Self::Inode,
        apart: &Self::Apart,
    );
}
