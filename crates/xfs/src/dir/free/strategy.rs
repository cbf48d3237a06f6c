//! The ways to find a data block with room.

/// How directories with an index of free space find a data block with room for an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreeIndexStrategy {
    /// From the first data block on, with the header of the index block decoded for each: Linux up to
    /// 4.15.
    ForwardDecode,
    /// From the first data block on, with the header decoded once: Linux 4.16 to 5.3.
    Forward,
    /// From the last data block back: Linux since 5.4.
    Reverse,
    /// As `Reverse`, but without index blocks whose largest value is too small. The largest values are kept
    /// in memory.
    BlockSkip,
    /// The first data block with room, by a tree in memory.
    #[default]
    Tree,
}
