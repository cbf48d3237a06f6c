//! Addresses. Each kind has its own type, so that they cannot be confused.

use std::fmt;

/// A physical block of the file system. Block 0 starts at byte 0 of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

/// A logical block within a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileBlock(pub u32);

/// A block group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub u32);

impl Block {
    /// Returns the block `count` blocks after this one. Saturates, so that hostile values stay out of range.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl FileBlock {
    /// Returns the block `count` blocks after this one, or `None` past the last possible block of a file.
    #[must_use]
    pub(crate) const fn checked_plus(self, count: u32) -> Option<Self> {
        match self.0.checked_add(count) {
            Some(block) => Some(Self(block)),
            None => None,
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for FileBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
