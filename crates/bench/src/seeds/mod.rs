//! What the two seeds about XFS measured: single directories that grow, single directories that
//! change, and what parent pointers cost.

pub(crate) mod churn;
pub(crate) mod directory;
mod image;
pub(crate) mod parents;

use xfs::FreeIndexStrategy;

/// The strategies whose name contains one of `wanted`, with it; all of them if that is empty.
fn strategies(wanted: &[String]) -> Vec<(FreeIndexStrategy, &'static str)> {
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    let all = FreeIndexStrategy::ALL.map(|strategy| (strategy, strategy.name()));
    all.into_iter().filter(|(_, name)| is_wanted(name)).collect()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
