//! Values of the configuration, and the resulting features.

use diskwright::build::FeatureChange;

use super::config::Config;
use crate::failure::{Failure, STATUSES};

/// Values of the configuration for some types.
pub(super) struct Values<'a> {
    config: &'a Config,
    types: &'a [String],
}

impl<'a> Values<'a> {
    /// Creates the values of `config` for `types`.
    pub(super) fn new(config: &'a Config, types: &'a [String]) -> Self {
        Self { config, types }
    }

    /// Returns a raw value.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.config.get(self.types, name)
    }

    /// Returns the feature lists in order.
    pub(super) fn feature_lists(&self) -> Vec<&'a str> {
        self.config.features(self.types)
    }

    /// Returns a value parsed by a function.
    pub(super) fn by<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        self.config.by(self.types, name, parse, STATUSES)
    }

    /// Returns a boolean value.
    pub(super) fn switch(&self, name: &str) -> Result<Option<bool>, Failure> {
        self.config.switch(self.types, name, STATUSES)
    }

    /// Returns a number.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        self.config.number(self.types, name, STATUSES)
    }

    /// Returns a positive number; other values count as none.
    pub(super) fn small(&self, name: &str) -> Result<Option<u32>, Failure> {
        Ok(self.number(name)?.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0))
    }

    /// Rejects settings that the engine does not support, and validates those that every new image satisfies.
    pub(super) fn refuse_what_is_not_made(&self) -> Result<(), Failure> {
        let refused = |name: &str, why: &str| {
            Err(STATUSES.failed(format_args!("mke2fs.conf: {name} is not supported: {why}")))
        };
        if self.switch("make_hugefiles")?.unwrap_or(false) {
            return refused("make_hugefiles", "add such files to the source of -d");
        }
        if self.switch("force_undo")?.unwrap_or(false) {
            return refused("force_undo", "old contents are not saved; copy the file first");
        }
        if self.config.get(&[], "undo_dir").is_some_and(|place| place != "none") {
            return refused("undo_dir", "old contents are not saved; copy the file first");
        }
        let creator = self.config.get(&[], "creator_os").map(str::to_ascii_lowercase);
        if creator.is_some_and(|creator| creator != "linux" && creator != "0") {
            return refused("creator_os", "only file systems for Linux are supported");
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
    use crate::mke2fs::args::features;

    #[test]
    fn the_last_change_of_a_feature_counts() {
        let has = |list: &str, name| super::has(&features(list).unwrap(), name);
        assert!(has("", "flex_bg") && !has("", "bigalloc"));
        assert!(has("bigalloc,^flex_bg", "bigalloc") && !has("bigalloc,^flex_bg", "flex_bg"));
        assert!(!has("bigalloc,none", "bigalloc") && has("none,bigalloc", "bigalloc"));
    }
}
