//! How much work tests do: one setting for seeds, rounds, states of a crash and how often a judge is asked.

use std::sync::OnceLock;

/// Names the step: `quick`, `full` or `long`.
const VARIABLE: &str = "DISKWRIGHT_EFFORT";

/// How much work the tests of this process do, as `DISKWRIGHT_EFFORT` says.
///
/// A step changes only how often something is done, never what is asserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// What finds bugs soon, judges included: `cargo test --workspace` where nothing is set.
    Quick,
    /// What CI does for every change.
    Full,
    /// Hours, before a release and after changes that go deep.
    Long,
}

impl Effort {
    /// The step that the environment asks for.
    ///
    /// # Panics
    /// If it names none.
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

/// The number of seeds, rounds, steps or states for the step that is asked for: of *quick*, *full* and *long*.
///
/// ```
/// for seed in 0..diskwright_oracle::effort(1, 4, 100) {
///     // A run whose operations follow from the seed.
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
    fn nothing_asked_for_is_quick() {
        assert_eq!(Effort::named(None), Effort::Quick);
        assert_eq!(Effort::named(Some("full")), Effort::Full);
        assert_eq!(Effort::named(Some("long")), Effort::Long);
    }

    #[test]
    #[should_panic(expected = "DISKWRIGHT_EFFORT is fast, which is none of quick, full, long")]
    fn what_is_no_step_is_refused() {
        Effort::named(Some("fast"));
    }
}
