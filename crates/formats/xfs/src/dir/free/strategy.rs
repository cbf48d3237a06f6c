//! Strategies to find a data block with room.

/// Method by which directories with a free-space index find a data block with room for an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreeIndexStrategy {
    /// From the first data block on, decoding the header of the index block for each slot: Linux up to 4.15.
    ForwardDecode,
    /// From the first data block on, decoding the header once: Linux 4.16 to 5.3.
    Forward,
    /// From the last data block back: Linux since 5.4.
    Reverse,
    /// Like `Reverse`, but skips index blocks whose largest value, kept in memory, is too small.
    BlockSkip,
    /// The first data block with room, found by a tree in memory.
    #[default]
    Tree,
}
