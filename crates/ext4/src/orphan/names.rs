//! What the policies are called where one can be chosen.

use super::OrphanPolicy;

impl OrphanPolicy {
    /// All of them, the default first.
    pub const ALL: [Self; 4] = [Self::WhenNeeded, Self::Always, Self::ListOnly, Self::Off];

    /// Its name: `when-needed`, `always`, `list` or `off`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WhenNeeded => "when-needed",
            Self::Always => "always",
            Self::ListOnly => "list",
            Self::Off => "off",
        }
    }

    /// The one that is called so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}
