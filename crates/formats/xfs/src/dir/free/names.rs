//! Names of the strategies in the user interface.

use super::FreeIndexStrategy;

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
