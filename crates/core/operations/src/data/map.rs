//! Results of look-ups in file maps. `B` is a block address of the format's maps.

/// A block within a file, counted from its start, in the format's width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogicalBlock(pub u64);

impl LogicalBlock {
    /// An upper bound of all file blocks.
    pub(crate) const END: Self = Self(u64::MAX);

    /// Returns the block `count` blocks later. Saturates, so that a hostile sum stays outside of every range.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

/// Location of a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping<B> {
    /// Written, from this block on.
    Written(B),
    /// Allocated from this block on, but unwritten.
    Unwritten(B),
    /// Not allocated.
    Hole,
}

/// A run of contiguous blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRun<B> {
    /// Location of the first block.
    pub place: Mapping<B>,
    /// Number of blocks, at least 1.
    pub len: u64,
}

/// Required state of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Allocated for data that this operation writes.
    Written,
    /// Allocated: holes become unwritten blocks if the map can record them.
    Allocated,
    /// Allocated, and not shared with other files if they hold data, because the data is about to change. The same as
    /// [`Want::Allocated`] in a format without shared blocks.
    Own,
    /// Allocated and reading as zeros: unwritten, if the map can record it.
    Zeroed,
}

/// Former state of a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Was {
    /// Not allocated.
    Hole,
    /// Allocated, but not written.
    Unwritten,
    /// Allocated and written.
    Written,
}

/// A run of contiguous blocks of a file, as [`super::MapFiles::provide`] leaves them.
#[derive(Clone, Copy, Debug)]
pub struct Piece<B> {
    /// First block.
    pub start: B,
    /// Number of blocks, at least 1.
    pub len: u64,
    /// Former state.
    pub was: Was,
    /// True if the contents of the device are now the contents of the file.
    pub written: bool,
    /// Blocks to copy the contents from, except for bytes that are overwritten. Set if the old blocks are shared with
    /// other files.
    pub copied_from: Option<B>,
}

impl<B> Piece<B> {
    /// Returns whether the device contains old data that becomes readable unless the operation overwrites it.
    pub(crate) fn is_exposed(&self) -> bool {
        self.written && self.was != Was::Written
    }

    /// Returns whether the map was changed.
    pub(crate) fn is_change(&self) -> bool {
        let is_converted = self.written != (self.was == Was::Written);
        self.was == Was::Hole || is_converted || self.copied_from.is_some()
    }
}
