//! Names of the policies, for options.

use super::OrphanPolicy;

impl OrphanPolicy {
    /// All policies, the default first.
    pub const ALL: [Self; 4] = [Self::WhenNeeded, Self::Always, Self::ListOnly, Self::Off];

    /// Returns its name: `when-needed`, `always`, `list` or `off`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WhenNeeded => "when-needed",
            Self::Always => "always",
            Self::ListOnly => "list",
            Self::Off => "off",
        }
    }

    /// Returns the policy with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}
