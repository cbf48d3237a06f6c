//! Amount of work of tests: one setting for the numbers of seeds, rounds, crash states and checks.

use std::sync::OnceLock;

/// Contains the level: `quick`, `full` or `long`.
const VARIABLE: &str = "DISKWRIGHT_EFFORT";

/// Amount of work of the tests in this process, according to `DISKWRIGHT_EFFORT`.
///
/// The level changes only how often something is done, never the assertions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Finds most bugs quickly, including external checkers: the default of `cargo test --workspace`.
    Quick,
    /// The level of CI for every change.
    Full,
    /// Hours, before a release and after fundamental changes.
    Long,
}

impl Effort {
    /// Returns the level requested by the environment.
    ///
    /// # Panics
    /// If it is unknown.
    pub fn asked() -> Self {
        static ASKED: OnceLock<Effort> = OnceLock::new();
        *ASKED.get_or_init(|| Self::named(std::env::var(VARIABLE).ok().as_deref()))
    }

    fn named(name: Option<&str>) -> Self {
        match name {
            None | Some("" | "quick") => Self::Quick,
            Some("full") => Self::Full,
            Some("long") => Self::Long,
            Some(other) => panic!("{VARIABLE} is {other}, which is none of quick, full, long"),
        }
    }
}

/// Returns the number of seeds, rounds, steps or states for the requested level.
///
/// ```
/// for seed in 0..diskwright_testkit::effort(1, 4, 100) {
///   // A run whose operations follow from the seed.
/// #   let _: u64 = seed;
/// }
/// ```
pub fn effort<N>(quick: N, full: N, long: N) -> N {
    match Effort::asked() {
        Effort::Quick => quick,
        Effort::Full => full,
        Effort::Long => long,
    }
}

#[cfg(test)]
mod tests {
    use super::Effort;

    #[test]
    fn without_a_request_the_level_is_quick() {
        assert_eq!(Effort::named(None), Effort::Quick);
        assert_eq!(Effort::named(Some("full")), Effort::Full);
        assert_eq!(Effort::named(Some("long")), Effort::Long);
    }

    #[test]
    #[should_panic(expected = "DISKWRIGHT_EFFORT is fast, which is none of quick, full, long")]
    fn unknown_levels_are_refused() {
        Effort::named(Some("fast"));
    }
}
