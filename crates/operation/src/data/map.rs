//! What a map of a file answers. `B` is a block as the format's maps name it.

/// A block within a file, counted from its start, in whatever width the format has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogicalBlock(pub u64);

impl LogicalBlock {
    /// Past every block that a file can have.
    pub const END: Self = Self(u64::MAX);

    /// The block `count` blocks on. Saturates, so that a hostile sum stays out of every range.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

/// Where a run of blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<B> {
    /// From this block on.
    Written(B),
    /// From this block on, but never written.
    Unwritten(B),
    /// Not allocated.
    Hole,
}

/// Some blocks of a file that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<B> {
    /// Where the first of them is.
    pub place: Place<B>,
    /// Number of blocks, at least 1.
    pub len: u64,
}

/// What some blocks of a file are needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// To hold data that this operation writes.
    Written,
    /// To be there: holes become unwritten where the map can say so.
    Allocated,
    /// To be there, and if they hold data, to be no other file's: what they hold is about to change.
    /// The same as [`Want::Allocated`] in a format whose files share no blocks.
    Own,
    /// To be there and read as zeros: unwritten, where the map can say so.
    Zeroed,
}

/// What a block of a file was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Was {
    /// Not allocated.
    Hole,
    /// Allocated, but not written.
    Unwritten,
    /// Allocated and written.
    Written,
}

/// Some blocks of a file that lie together, as [`super::MapFiles::provide`] left them.
#[derive(Clone, Copy, Debug)]
pub struct Piece<B> {
    /// The first of them.
    pub start: B,
    /// Number of blocks, at least 1.
    pub len: u64,
    /// What they were before.
    pub was: Was,
    /// Whether what the device holds there is now what the file holds.
    pub written: bool,
    /// Where the contents are that the blocks must get, as far as they are not written over: other
    /// files have those blocks, too.
    pub copied_from: Option<B>,
}

impl<B> Piece<B> {
    /// Whether the device holds what must not be seen, unless the operation writes over it.
    pub fn is_exposed(&self) -> bool {
        self.written && self.was != Was::Written
    }

    /// Whether the map was changed for it.
    pub fn is_change(&self) -> bool {
        let is_converted = self.written != (self.was == Was::Written);
        self.was == Was::Hole || is_converted || self.copied_from.is_some()
    }
}
