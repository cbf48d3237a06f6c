//! Combinations of features that the original refuses, or resolves without a message.

use diskwright::build::FeatureChange;

use super::values::has;
use crate::failure::{Failure, STATUSES};

/// Refuses combinations that the original refuses.
pub(super) fn refuse(features: &[FeatureChange]) -> Result<(), Failure> {
    let has = |name| has(features, name);
    let message = if has("64bit") && !has("extent") {
        "the feature 64bit needs extent: add -O extent, or remove 64bit by -O ^64bit"
    } else if has("resize_inode") && has("meta_bg") {
        "the features resize_inode and meta_bg exclude each other: remove one by -O ^resize_inode or -O ^meta_bg"
    } else if has("resize_inode") && !has("sparse_super") {
        "the feature resize_inode needs sparse_super: add -O sparse_super, or remove it by -O ^resize_inode"
    } else {
        return Ok(());
    };
    Err(STATUSES.failed(message))
}

/// Removes features without effect: `metadata_csum` replaces `uninit_bg`, and `fast_commit` is a property of a journal.
pub(super) fn without_effect(mut features: Vec<FeatureChange>) -> Vec<FeatureChange> {
    if has(&features, "metadata_csum") {
        features.retain(|change| change.name != "uninit_bg" || !change.is_on);
    }
    if !has(&features, "has_journal") {
        features.retain(|change| change.name != "fast_commit" || !change.is_on);
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mke2fs::args::features;

    #[test]
    fn combinations_are_those_of_the_original() {
        for (list, is_made) in [
            ("^extent", false),
            ("^extent,^64bit", true),
            ("none,64bit", false),
            ("meta_bg", false),
            ("meta_bg,^resize_inode", true),
            ("^sparse_super", false),
            ("^sparse_super,^resize_inode", true),
            ("sparse_super2", true),
        ] {
            assert_eq!(refuse(&features(list).unwrap()).is_ok(), is_made, "{list}");
        }
        assert_eq!(without_effect(features("^has_journal,fast_commit").unwrap()).len(), 1);
        assert!(without_effect(features("uninit_bg").unwrap()).is_empty());
        assert_eq!(without_effect(features("uninit_bg,^metadata_csum").unwrap()).len(), 2);
    }
}
