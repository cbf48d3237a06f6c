//! What the ways of finding room are called where one can be chosen.

use super::FreeIndexStrategy;

impl FreeIndexStrategy {
    /// All of them, the default first, then from the newest to the oldest.
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

    /// The one that is called so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }
}
