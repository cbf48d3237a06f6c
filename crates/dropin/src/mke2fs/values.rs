//! Values of the configuration, and the features that they lead to.

use diskwright::build::FeatureChange;

use super::config::Config;
use crate::failure::{Failure, STATUSES};

/// Values of the configuration for some types.
pub(super) struct Values<'a> {
    config: &'a Config,
    types: &'a [String],
}

impl<'a> Values<'a> {
    /// The values that `config` has for `types`.
    pub(super) fn new(config: &'a Config, types: &'a [String]) -> Self {
        Self { config, types }
    }

    /// A value as it is written.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.config.get(self.types, name)
    }

    /// The lists of features, in order.
    pub(super) fn feature_lists(&self) -> Vec<&'a str> {
        self.config.features(self.types)
    }

    /// A value that a function parses.
    pub(super) fn by<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        self.config.by(self.types, name, parse, STATUSES)
    }

    /// A value that is true or false.
    pub(super) fn switch(&self, name: &str) -> Result<Option<bool>, Failure> {
        self.config.switch(self.types, name, STATUSES)
    }

    /// A number.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        self.config.number(self.types, name, STATUSES)
    }

    /// A positive number; any other counts as none.
    pub(super) fn small(&self, name: &str) -> Result<Option<u32>, Failure> {
        Ok(self.number(name)?.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0))
    }

    /// Refuses relations that the engine cannot follow. Checks the values of those that are true of every new image.
    pub(super) fn refuse_what_is_not_made(&self) -> Result<(), Failure> {
        let refused = |name: &str, why: &str| {
            Err(STATUSES.failed(format_args!("mke2fs.conf: {name} is not supported: {why}")))
        };
        if self.switch("make_hugefiles")?.unwrap_or(false) {
            return refused("make_hugefiles", "put such files into the source of -d");
        }
        if self.switch("force_undo")?.unwrap_or(false) {
            return refused("force_undo", "old contents are not kept: copy the file first");
        }
        if self.config.get(&[], "undo_dir").is_some_and(|place| place != "none") {
            return refused("undo_dir", "old contents are not kept: copy the file first");
        }
        let creator = self.config.get(&[], "creator_os").map(str::to_ascii_lowercase);
        if creator.is_some_and(|creator| creator != "linux" && creator != "0") {
            return refused("creator_os", "file systems are made for Linux");
        }
        for name in ["discard", "lazy_itable_init", "lazy_journal_init", "zero_hugefiles"] {
            self.switch(name)?;
        }
        Ok(())
    }
}

/// Returns whether a feature is on after these changes.
pub(super) fn has(features: &[FeatureChange], name: &str) -> bool {
    let last = features.iter().rfind(|change| change.name == name || change.name == "none");
    match last {
        Some(change) => change.name == name && change.is_on,
        None => ext4::mkfs::default_feature_names().iter().any(|usual| usual == name),
    }
}

#[cfg(test)]
mod tests {
    use crate::mke2fs::wish::features;

    #[test]
    fn the_last_change_of_a_feature_counts() {
        let has = |list: &str, name| super::has(&features(list).unwrap(), name);
        assert!(has("", "flex_bg") && !has("", "bigalloc"));
        assert!(has("bigalloc,^flex_bg", "bigalloc") && !has("bigalloc,^flex_bg", "flex_bg"));
        assert!(!has("bigalloc,none", "bigalloc") && has("none,bigalloc", "bigalloc"));
    }
}
