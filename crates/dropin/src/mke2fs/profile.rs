//! What a file system is like by its type and use, before the arguments say more.

use diskwright::build::FeatureChange;

use super::config::Config;
use super::wish::{Wish, features};
use crate::failure::{Failure, STATUSES};

/// Uses by size: each is for less than so many bytes.
const USES: [(&str, u64); 4] =
    [("floppy", 3 << 20), ("small", 512 << 20), ("default", 4 << 40), ("big", 16 << 40)];
/// The use of what is larger.
const LARGEST: &str = "huge";

/// What follows from type and use.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) block_size: Option<u32>,
    pub(super) inode_size: Option<u32>,
    pub(super) bytes_per_inode: Option<u64>,
    pub(super) reserved_percent: Option<f64>,
    /// Features of the type, then those that were asked for.
    pub(super) features: Vec<FeatureChange>,
}

impl Profile {
    /// For a file system of so many bytes, made by the program `name`.
    pub(super) fn of(
        wish: &Wish,
        name: &str,
        bytes: u64,
        config: &Config,
    ) -> Result<Self, Failure> {
        let types = types(wish, name, bytes, config);
        let number = |name| config.number(&types, name, STATUSES);
        let positive =
            |name| Ok(number(name)?.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0));
        let small = |name| Ok(positive(name)?.and_then(|n| u32::try_from(n).ok()));
        let mut lists = config.features(&types);
        if wish.has_journal {
            lists.push("has_journal");
        }
        Ok(Self {
            block_size: small("blocksize")?,
            inode_size: small("inode_size")?,
            bytes_per_inode: positive("inode_ratio")?,
            reserved_percent: reserved(config, &types)?,
            features: all_features(&lists, &wish.features)?,
        })
    }
}

fn reserved(config: &Config, types: &[String]) -> Result<Option<f64>, Failure> {
    let Some(text) = config.get(types, "reserved_ratio") else { return Ok(None) };
    let ratio = text.parse().ok().filter(|ratio| (0.0..=50.0).contains(ratio));
    let wrong = || STATUSES.failed(format_args!("mke2fs.conf: reserved_ratio cannot be {text:?}"));
    ratio.map(Some).ok_or_else(wrong)
}

/// The type, and the uses.
fn types(wish: &Wish, name: &str, bytes: u64, config: &Config) -> Vec<String> {
    let of_name = name.strip_prefix("mkfs.").map(str::to_owned);
    let usual = || config.get(&[], "fs_type").unwrap_or("ext2").to_owned();
    let kind = wish.kind.clone().or(of_name).unwrap_or_else(usual);
    let mut types = vec![kind];
    if wish.uses.is_empty() {
        let by_size = USES.iter().find(|(_, below)| bytes < *below);
        types.push(by_size.map_or(LARGEST, |(name, _)| name).to_owned());
    } else {
        types.extend(wish.uses.iter().cloned());
    }
    types
}

/// The changes to the default features of the engine that make those of `lists`, and after them what was asked for.
/// What only the lists have may give way to what was asked for.
fn all_features(lists: &[&str], asked: &[FeatureChange]) -> Result<Vec<FeatureChange>, Failure> {
    if asked.iter().any(|change| change.name == "none") {
        return Ok(asked.to_vec());
    }
    let mut wanted = Vec::new();
    for list in lists {
        let changes = features(list)
            .map_err(|why| STATUSES.failed(format_args!("mke2fs.conf: {list}: {why}")))?;
        for FeatureChange { name, is_on } in changes {
            wanted.retain(|known| *known != name && name != "none");
            if is_on && name != "none" {
                wanted.push(name);
            }
        }
    }
    let usual = ext4::mkfs::default_feature_names();
    let off = usual.iter().filter(|name| !wanted.contains(name));
    let off = off.map(|name| FeatureChange { name: name.clone(), is_on: false });
    let on = wanted.iter().filter(|name| !usual.contains(name));
    let on = on.map(|name| FeatureChange { name: name.clone(), is_on: true });
    Ok(off.chain(on).chain(asked.iter().cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(lists: &[&str], asked: &str) -> Vec<String> {
        let changes = all_features(lists, &features(asked).unwrap()).unwrap();
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_differences_from_the_defaults_are_asked_for() {
        let usual = ext4::mkfs::default_feature_names().join(",");
        assert!(names(&[&usual], "").is_empty());
        assert_eq!(
            names(&[&usual, "^64bit,large_dir"], "^extents"),
            ["^64bit", "+large_dir", "^extent"]
        );
        assert_eq!(names(&[&usual], "none,has_journal"), ["+none", "+has_journal"]);
        assert!(names(&["filetype"], "").contains(&"^has_journal".to_owned()));
    }

    #[test]
    fn uses_follow_from_the_size() {
        let config = Config::default();
        let wish = Wish::default();
        assert_eq!(types(&wish, "mkfs.ext4", 1 << 20, &config), ["ext4", "floppy"]);
        assert_eq!(types(&wish, "mke2fs", 1 << 30, &config), ["ext2", "default"]);
        assert_eq!(types(&wish, "mkfs.ext3", 16 << 40, &config), ["ext3", "huge"]);
        let wish = Wish { uses: vec!["news".into()], kind: Some("ext4".into()), ..Wish::default() };
        assert_eq!(types(&wish, "mke2fs", 1 << 20, &config), ["ext4", "news"]);
    }
}
