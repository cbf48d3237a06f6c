//! What the two seeds about XFS measured: single directories that grow, single directories that
//! change, and what parent pointers cost.

pub(crate) mod churn;
pub(crate) mod directory;
mod image;
pub(crate) mod parents;

use xfs::FreeIndexStrategy;

/// Every strategy, the default first, and its name in the tables.
const STRATEGIES: [(FreeIndexStrategy, &str); 5] = [
    (FreeIndexStrategy::Tree, "tree"),
    (FreeIndexStrategy::BlockSkip, "per-block skip"),
    (FreeIndexStrategy::Reverse, "reverse scan"),
    (FreeIndexStrategy::Forward, "forward scan, hoisted"),
    (FreeIndexStrategy::ForwardDecode, "forward scan"),
];

/// The strategies whose name contains one of `wanted`; all of them if that is empty.
fn strategies(wanted: &[String]) -> Vec<(FreeIndexStrategy, &'static str)> {
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    STRATEGIES.into_iter().filter(|(_, name)| is_wanted(name)).collect()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
