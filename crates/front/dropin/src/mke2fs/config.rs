//! `mke2fs.conf`: properties of file systems by type and use.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::keys::{self, DEFAULTS, DEVICES, OPTIONS, SECTIONS};
use crate::failure::{Failure, Statuses};

/// Default path.
const PATH: &str = "/etc/mke2fs.conf";
/// Environment variable with the path, or several separated by colons.
const VARIABLE: &str = "MKE2FS_CONFIG";

/// Defaults without a configuration file, from the manual page of mke2fs.conf and e2fsprogs 1.47.
const BUILT_IN: &str = "
[defaults]
  base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
  default_mntopts = acl,user_xattr
  enable_periodic_fsck = 0
  blocksize = 4096
  inode_size = 256
  inode_ratio = 16384
[fs_types]
  ext3 = {
    features = has_journal
  }
  ext4 = {
    features = has_journal,extent,huge_file,flex_bg,metadata_csum,metadata_csum_seed,64bit,dir_nlink,extra_isize,orphan_file
  }
  small = {
    blocksize = 1024
    inode_ratio = 4096
  }
  floppy = {
    blocksize = 1024
    inode_ratio = 8192
  }
  big = {
    inode_ratio = 32768
  }
  huge = {
    inode_ratio = 65536
  }
  news = {
    inode_ratio = 4096
  }
  largefile = {
    inode_ratio = 1048576
    blocksize = -1
  }
  largefile4 = {
    inode_ratio = 4194304
    blocksize = -1
  }
  hurd = {
    blocksize = 4096
    inode_size = 128
    warn_y2038_dates = 0
  }
";

/// Named values.
type Relations = HashMap<String, String>;

/// Parsed configuration.
#[derive(Debug, Default)]
pub(super) struct Config {
    /// Relations of `[options]`.
    options: Relations,
    /// Relations of `[defaults]`.
    defaults: Relations,
    /// Relations of the types in `[fs_types]`.
    types: HashMap<String, Relations>,
    /// Relations of the devices in `[devices]`.
    devices: HashMap<String, Relations>,
    /// Remarks on ignored names.
    remarks: Vec<String>,
}

impl Config {
    /// Reads the file named by the environment, or the default one.
    pub(super) fn load(statuses: Statuses) -> Result<Self, Failure> {
        let named = env::var(VARIABLE).ok();
        let mut config = Self::default();
        let mut is_there = false;
        for path in named.as_deref().unwrap_or(PATH).split(':') {
            match fs::read_to_string(path) {
                Ok(text) => config.add(&text, Path::new(path), statuses)?,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(statuses.failed(format_args!("cannot read {path}: {e}"))),
            }
            is_there = true;
        }
        if !is_there {
            config.add(BUILT_IN, Path::new("the built-in defaults"), statuses)?;
        }
        Ok(config)
    }

    /// Adds the contents of a file.
    fn add(&mut self, text: &str, path: &Path, statuses: Statuses) -> Result<(), Failure> {
        let mut section = String::new();
        let mut group: Option<String> = None;
        for (number, line) in text.lines().enumerate() {
            let place = format!("{}, line {}", path.display(), number + 1);
            let wrong = |why: &str| statuses.failed(format_args!("{place}: {why}"));
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                let name = name.strip_suffix(']').ok_or_else(|| wrong("a section ends with ]"))?;
                section = name.trim().to_owned();
                if !SECTIONS.contains(&&*section) {
                    self.remarks.push(format!("{place}: section [{section}] has no effect"));
                }
                continue;
            }
            if line == "}" || line == "}*" {
                group.take().ok_or_else(|| wrong("unexpected }"))?;
                continue;
            }
            let (name, value) =
                line.split_once('=').ok_or_else(|| wrong("write NAME = VALUE, or NAME = {"))?;
            let (name, value) = (name.trim().trim_end_matches('*'), unquoted(value.trim()));
            if value == "{" {
                if group.replace(name.to_owned()).is_some() {
                    return Err(wrong("a type cannot contain types"));
                }
            } else if !self.relate(&section, group.as_deref(), name, value)
                && SECTIONS.contains(&&*section)
            {
                self.remarks.push(format!("{place}: {name} has no effect in [{section}]"));
            }
        }
        match group {
            Some(name) => {
                Err(statuses.failed(format_args!("{}: {name} is not closed by }}", path.display())))
            }
            None => Ok(()),
        }
    }

    /// Stores a value unless the name already has one, as in the original. Returns false for names unknown in this
    /// section.
    fn relate(&mut self, section: &str, group: Option<&str>, name: &str, value: &str) -> bool {
        let (relations, known) = match (section, group) {
            ("options", None) => (&mut self.options, OPTIONS.contains(&name)),
            ("defaults", None) => {
                let is_known = keys::is_of_type(name) || DEFAULTS.contains(&name);
                // The original reads features from types only.
                (&mut self.defaults, is_known && name != "features")
            }
            ("fs_types", Some(group)) => {
                (self.types.entry(group.to_owned()).or_default(), keys::is_of_type(name))
            }
            ("devices", Some(group)) => {
                (self.devices.entry(group.to_owned()).or_default(), DEVICES.contains(&name))
            }
            _ => return false,
        };
        if known {
            relations.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        known
    }

    /// Returns remarks on ignored names.
    pub(super) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Returns a value of `[options]`.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// Returns a value for a device.
    pub(super) fn of_device(&self, device: &Path, name: &str) -> Option<&str> {
        self.devices.get(device.to_str()?)?.get(name).map(String::as_str)
    }

    /// Returns whether the type exists.
    pub(super) fn has_type(&self, kind: &str) -> bool {
        self.types.contains_key(kind)
    }

    /// Returns the value for these types: that of the last type that has it, otherwise the default.
    pub(super) fn get(&self, types: &[String], name: &str) -> Option<&str> {
        let mut of_types = types.iter().rev().filter_map(|kind| self.types.get(kind)?.get(name));
        of_types.next().or_else(|| self.defaults.get(name)).map(String::as_str)
    }

    /// Same as [`Self::get`], parsed by a function.
    pub(super) fn by<T>(
        &self,
        types: &[String],
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
        statuses: Statuses,
    ) -> Result<Option<T>, Failure> {
        let Some(text) = self.get(types, name) else { return Ok(None) };
        let wrong =
            |why| statuses.failed(format_args!("mke2fs.conf: {name} cannot be {text:?}: {why}"));
        parse(text).map(Some).map_err(wrong)
    }

    /// Same as [`Self::get`], as a number.
    pub(super) fn number(
        &self,
        types: &[String],
        name: &str,
        statuses: Statuses,
    ) -> Result<Option<i64>, Failure> {
        let number = |text: &str| text.parse().map_err(|_| "write a number".to_owned());
        self.by(types, name, number, statuses)
    }

    /// Same as [`Self::get`], as a boolean.
    pub(super) fn switch(
        &self,
        types: &[String],
        name: &str,
        statuses: Statuses,
    ) -> Result<Option<bool>, Failure> {
        self.by(types, name, keys::switch, statuses)
    }

    /// Returns the feature lists of these types. Later lists override earlier ones.
    pub(super) fn features(&self, types: &[String]) -> Vec<&str> {
        let base = self.get(types, "base_features");
        let of_types = types.iter().filter_map(|kind| self.types.get(kind)?.get("features"));
        base.into_iter().chain(of_types.map(String::as_str)).collect()
    }
}

/// Returns a value without quotation marks and comments.
fn unquoted(value: &str) -> &str {
    match value.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
        Some((inside, _)) => inside,
        None => value.split(['#', ';']).next().unwrap_or_default().trim_end(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::STATUSES;

    fn read(text: &str) -> Result<Config, Failure> {
        let mut config = Config::default();
        config.add(text, Path::new("x.conf"), STATUSES)?;
        Ok(config)
    }

    fn types(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_built_in_configuration_is_valid() {
        let config = read(BUILT_IN).unwrap();
        let small = types(&["ext4", "small"]);
        assert_eq!(config.get(&small, "blocksize"), Some("1024"));
        assert_eq!(config.get(&types(&["ext4"]), "blocksize"), Some("4096"));
        assert_eq!(config.get(&small, "inode_size"), Some("256"));
        assert_eq!(config.features(&small).len(), 2);
    }

    #[test]
    fn names_without_effect_are_reported() {
        let config = read(
            "[defaults]\nfeatures = 64bit\nblocksize = 1024\nblocksize = 2048\nsparkles = 1\n[x]\ny = 1\n[options]\nz = 1\n[fs_types]\na = {\n w = 1\n}\nb = 1",
        );
        let config = config.unwrap();
        let remarks = config.remarks().join("\n");
        for name in ["features", "sparkles", "[x]", "z has", "w has", "b has"] {
            assert!(remarks.contains(name), "{name}: {remarks}");
        }
        assert_eq!(config.remarks().len(), 6, "{remarks}");
        assert_eq!(config.get(&[], "blocksize"), Some("1024"));
    }

    #[test]
    fn later_types_say_more() {
        let config = read(
            "[defaults]\nblocksize = 4096 # bytes\n[fs_types]\na = {\n blocksize = \"1024\"\n}\nb = {\n}",
        );
        let config = config.unwrap();
        assert_eq!(config.get(&types(&["a", "b"]), "blocksize"), Some("1024"));
        assert_eq!(config.get(&types(&["b"]), "blocksize"), Some("4096"));
        assert_eq!(config.number(&types(&["a"]), "blocksize", STATUSES).unwrap(), Some(1024));
    }

    #[test]
    fn syntax_errors_report_their_line() {
        for (text, part) in [
            ("[defaults", "line 1"),
            ("[x]\nword", "line 2"),
            ("}", "line 1"),
            ("[fs_types]\na = {\nb = {", "line 3"),
            ("[fs_types]\na = {", "a is not closed"),
        ] {
            let message = read(text).unwrap_err().message;
            assert!(message.contains(part), "{message}");
        }
        let config = read("[defaults]\nblocksize = large").unwrap();
        assert!(config.number(&[], "blocksize", STATUSES).is_err());
    }
}
