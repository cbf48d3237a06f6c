//! Names of the strategies, for users who choose one.

use super::FreeIndexStrategy;

impl FreeIndexStrategy {
    /// All strategies: the default first, the others from the newest to the oldest.
    pub const ALL: [Self; 5] =
        [Self::Tree, Self::BlockSkip, Self::Reverse, Self::Forward, Self::ForwardDecode];

    /// Its name: `tree`, `block-skip`, `reverse`, `forward` or `forward-decode`.
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

    /// The strategy with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }
}
