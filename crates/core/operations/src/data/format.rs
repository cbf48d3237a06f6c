//! Interface of a format to the data path.

use std::ops::Range;

use vfs::{AllocateMode, Ino, Result};

use super::{LogicalBlock, MappedRun, Piece, Want};
use crate::Outcome;
use crate::inode::{InodeHandle, Inodes};

/// An inode whose contents can be read and changed.
pub trait FileHandle: InodeHandle {
    /// Returns the size in bytes.
    fn size(&self) -> u64;

    /// Sets the size in bytes.
    fn set_size(&mut self, size: u64);
}

/// A file system that can locate file contents.
pub trait ReadFiles: Inodes<Inode: FileHandle> {
    /// A block address in the file maps of the format.
    type Block: Copy;

    /// Returns the binary logarithm of the block size in bytes.
    fn block_size_log(&self) -> u32;

    /// Returns the device address of a block in bytes.
    fn byte_of(&self, block: Self::Block) -> u64;

    /// Returns the run of a file that starts at `at`, as readers see it. It may be followed by a contiguous run. The
    /// contents must not be inline.
    ///
    /// # Errors
    /// `Corrupt` if the map is damaged, `Device`.
    fn find_run(&self, file: &Self::Inode, at: LogicalBlock) -> Result<MappedRun<Self::Block>>;

    /// Checks whether a file may map `mapped` bytes of the device. Without a bound, a damaged map could describe
    /// endless files.
    ///
    /// # Errors
    /// `Corrupt` if it may not.
    fn check_mapped(&self, _file: &Self::Inode, _mapped: u64) -> Result<()> {
        Ok(())
    }
}

/// A file system whose operations change the block maps of files.
///
/// Files are passed by reference and changed in memory. The operation stages them at the end.
pub trait MapFiles: ReadFiles {
    /// Returns the run of a file that starts at `at`, as the operation sees it.
    ///
    /// # Errors
    /// Returns the errors of [`ReadFiles::find_run`].
    fn run_at(
        &self,
        op: &mut Self::Op<'_>,
        file: &Self::Inode,
        at: LogicalBlock,
    ) -> Outcome<MappedRun<Self::Block>>;

    /// Provides block `at` of a file in the wanted state, and further contiguous blocks up to `limit`. Changes only the
    /// map: `Piece::is_exposed` and [`Piece::copied_from`] specify the necessary writes to the device.
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

    /// Unmaps blocks of a file, from the end of the range backwards, and frees them when the operation commits.
    /// `budget` limits the changes of one operation and is reduced by those made. Returns whether the range is done. If
    /// not, the file is consistent, and another operation must continue.
    ///
    /// # Errors
    /// `NoSpace` if a hole in the middle needs more space for the map, `Corrupt`, `Device`.
    fn remove(
        &self,
        op: &mut Self::Op<'_>,
        file: &mut Self::Inode,
        blocks: Range<LogicalBlock>,
        budget: &mut u32,
    ) -> Outcome<bool>;

    /// Zeroes a byte range of the device, which belongs to a file, at the end of the operation ([`super::ZeroedRuns`]).
    fn zero_at_end(&self, op: &mut Self::Op<'_>, bytes: Range<u64>);

    /// Returns whether a file may share blocks with other files.
    fn may_share(&self, _file: &Self::Inode) -> bool {
        false
    }

    /// Returns whether the map of a file can record unwritten blocks.
    fn maps_unwritten(&self, _file: &Self::Inode) -> bool {
        true
    }

    /// Returns whether newly allocated blocks of a file may be blocks that it had before at the same offset.
    fn may_get_back_own(&self) -> bool {
        false
    }
}

/// A file system whose file contents can be changed.
pub trait ChangeFiles: MapFiles {
    /// Contents of a file that are stored outside of its blocks (inline data). They are read before the operation that
    /// moves them into blocks.
    type Apart;

    /// Returns the maximum number of runs that one operation maps or frees.
    fn changes_per_op(&self) -> u32;

    /// Returns the exclusive upper bound of file sizes in bytes.
    fn size_max(&self) -> u64;

    /// Loads a regular file whose contents may be changed.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `Invalid` for other types, and the reason why a change is forbidden.
    fn load_file(&self, ino: Ino) -> Result<Self::Inode>;

    /// Checks whether any file can have the bytes `offset..offset + len`. Called before a file is loaded, for formats
    /// with the same limit for all files.
    ///
    /// # Errors
    /// `FileTooLarge` if not.
    fn check_end(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Returns the blocks of a file with the bytes `offset..offset + len`.
    ///
    /// # Errors
    /// `FileTooLarge` if they exceed the maximum size of this file.
    fn blocks_of(&self, file: &Self::Inode, offset: u64, len: u64) -> Result<Range<LogicalBlock>>;

    /// Checks whether a file can have space up to byte `end` with this mode.
    ///
    /// # Errors
    /// `Unsupported` if not.
    fn check_space(&self, _file: &Self::Inode, _end: u64, _mode: AllocateMode) -> Result<()> {
        Ok(())
    }

    /// Returns whether written data within the bytes of a file, all below its size, may be overwritten without an
    /// operation.
    ///
    /// # Errors
    /// `Corrupt`, `Device`.
    fn can_overwrite(&self, file: &Self::Inode, bytes: Range<u64>) -> Result<bool>;

    /// Reads the contents that are stored outside of blocks.
    ///
    /// # Errors
    /// `Corrupt`, `Device`.
    fn read_apart(&self, file: &Self::Inode) -> Result<Self::Apart>;

    /// Moves contents that are stored outside of blocks into blocks, at the start of an operation.
    ///
    /// # Errors
    /// Returns the errors of [`MapFiles::provide`].
    fn use_apart(
        &self,
        _op: &mut Self::Op<'_>,
        _file: &mut Self::Inode,
        _apart: &Self::Apart,
    ) -> Outcome<()> {
        Ok(())
    }

    /// Records that a file has preallocated space past its end.
    fn note_preallocated(&self, _file: &mut Self::Inode) {}

    /// Records that an operation has freed space past the size of a file, and whether that was all.
    fn note_cut(&self, op: &mut Self::Op<'_>, file: &mut Self::Inode, is_done: bool);

    /// Continues a truncation to `size` bytes that exceeds one operation. The caller holds the inode's lock.
    ///
    /// # Errors
    /// Those that the format reports to the caller.
    fn finish_truncation(&self, ino: Ino, size: u64) -> Result<()>;

    /// Stages a file if it differs from `before`, without the contents it had outside of blocks.
    fn stage_contents(
        &self,
        op: &mut Self::Op<'_>,
        file: Self::Inode,
        before: &Self::Inode,
        apart: &Self::Apart,
    );
}
