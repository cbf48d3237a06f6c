//! Strategies to find a data block with room, and their names in the user interface.

/// Search of a directory's free-space index for a data block with room for an entry. Only measurements use another than
/// the default, with the feature `free-index-strategies`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "free-index-strategies"), expect(unreachable_pub))]
pub enum FreeIndexStrategy {
    /// From the first data block on, decoding the header of the index block for each slot: Linux up to 4.15.
    #[cfg(feature = "free-index-strategies")]
    ForwardDecode,
    /// From the first data block on, decoding the header once: Linux 4.16 to 5.3.
    #[cfg(feature = "free-index-strategies")]
    Forward,
    /// From the last data block back: Linux since 5.4.
    #[cfg(feature = "free-index-strategies")]
    Reverse,
    /// Like `Reverse`, but skips index blocks whose largest value, kept in memory, is too small.
    #[cfg(feature = "free-index-strategies")]
    BlockSkip,
    /// The first data block with room, found by a tree in memory.
    #[default]
    Tree,
}

#[cfg(feature = "free-index-strategies")]
impl FreeIndexStrategy {
    /// All strategies: the default first, the others from newest to oldest.
    pub const ALL: [Self; 5] =
        [Self::Tree, Self::BlockSkip, Self::Reverse, Self::Forward, Self::ForwardDecode];

    /// Returns its name: `tree`, `block-skip`, `reverse`, `forward` or `forward-decode`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::BlockSkip => "block-skip",
            Self::Reverse => "reverse",
            Self::Forward => "forward",
            Self::ForwardDecode => "forward-decode",
        }
    }

    /// Returns the strategy with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }
}
