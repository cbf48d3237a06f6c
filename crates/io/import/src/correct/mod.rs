//! Corrections of a source: ownership, labels, selection of files, and additional files.
//!
//! A [`Corrected`] source returns the entries of another source, changed in this order:
//! 1. [`Choice`]s exclude files, with everything below them;
//! 2. owners are mapped by the [`OwnerMap`], or replaced by a single owner;
//! 3. [device tables](crate::table) change existing files; files that they add pass through the following steps;
//! 4. [manifests](crate::mtree) replace attributes;
//! 5. a list of Android's build (`fs_config`) sets owners, permissions and capabilities;
//! 6. [file contexts](crate::file_contexts) set labels;
//! 7. [`Rule`]s change files that match patterns, in order.
//!
//! A file is identified by the first name in the source; rules are not applied to its other hard links.

mod choice;
mod fs_config;
mod globs;
mod owner_map;
mod report;
mod rule;
mod stream;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub use crate::rule_file::capability::FileCapabilities;
pub use crate::rule_file::fault::RuleFault;
pub use choice::Choice;
pub use globs::Glob;
pub use owner_map::OwnerMap;
pub use report::CorrectionReport;
pub use rule::{AttributeChange, PermissionChange, Rule};
pub use stream::Corrected;

use crate::file_contexts::FileContexts;
use crate::mtree::ManifestCorrection;
use crate::table::DeviceTable;
use crate::{SourceError, Time};

/// Options of corrections.
#[derive(Clone, Debug, Default)]
pub struct CorrectionOptions {
    /// Inclusions and exclusions, in order.
    pub choices: Vec<Choice>,
    /// A file that maps owners: see `--owner-map` in `diskwright build --help`.
    pub owner_map: Option<PathBuf>,
    /// Device tables: see [`DeviceTable`].
    pub devices: Vec<PathBuf>,
    /// Manifests whose attributes replace those of the source.
    pub manifests: Vec<PathBuf>,
    /// A list of owners, permissions and capabilities in the format of Android's build. It must contain all files.
    pub fs_config: Option<PathBuf>,
    /// SELinux file contexts.
    pub file_contexts: Option<PathBuf>,
    /// Mount point of the image, in the form of `Entry::path`. Paths in `fs_config` and in file contexts begin there.
    pub mount_point: Vec<u8>,
    /// Changes of files that match patterns, in order.
    pub rules: Vec<Rule>,
}

/// Defaults for information that the source lacks.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Owner of everything that no rule concerns.
    pub owner: Option<(u32, u32)>,
    /// A host directory with `etc/passwd` and `etc/group` for the look-up of user and group names. Without it only
    /// `root` is known.
    pub names: Option<PathBuf>,
    /// Times of added files.
    pub time: Time,
}

impl CorrectionOptions {
    /// Returns whether there are no corrections.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
            && self.owner_map.is_none()
            && self.devices.is_empty()
            && self.manifests.is_empty()
            && self.fs_config.is_none()
            && self.file_contexts.is_none()
            && self.rules.is_empty()
    }
}

/// Loaded corrections, for any number of passes over a source.
#[derive(Debug)]
pub struct Corrections {
    choices: Vec<Choice>,
    owner_map: Option<OwnerMap>,
    owner: Option<(u32, u32)>,
    tables: tables::Tables,
    manifests: Vec<ManifestCorrection>,
    fs_config: Option<fs_config::FsConfig>,
    contexts: Option<(PathBuf, FileContexts)>,
    mount_point: Vec<u8>,
    rules: Vec<Rule>,
    time: Time,
    report: Mutex<CorrectionReport>,
}

impl Corrections {
    /// Reads the files in the options.
    ///
    /// # Errors
    /// If one cannot be read, or contains an invalid line.
    pub fn load(
        options: &CorrectionOptions,
        surroundings: &Surroundings,
    ) -> Result<Arc<Self>, SourceError> {
        let names = surroundings.names.as_deref();
        let mut tables = tables::Tables::default();
        for file in &options.devices {
            tables.add(file, DeviceTable::read(file, names)?);
        }
        let manifest = |file: &PathBuf| ManifestCorrection::read(file, names);
        let contexts = |file: &Path| Ok((file.to_owned(), FileContexts::read(file)?));
        Ok(Arc::new(Self {
            choices: options.choices.clone(),
            owner_map: options.owner_map.as_deref().map(OwnerMap::read).transpose()?,
            owner: surroundings.owner,
            tables,
            manifests: options.manifests.iter().map(manifest).collect::<Result<_, _>>()?,
            fs_config: options.fs_config.as_deref().map(fs_config::FsConfig::read).transpose()?,
            contexts: options.file_contexts.as_deref().map(contexts).transpose()?,
            mount_point: options.mount_point.clone(),
            rules: options.rules.clone(),
            time: surroundings.time,
            report: Mutex::default(),
        }))
    }

    /// Returns the path of an entry in the system that mounts the image.
    fn whole(&self, path: &[u8]) -> Vec<u8> {
        let between: &[u8] =
            if self.mount_point.is_empty() || path.is_empty() { b"" } else { b"/" };
        [&self.mount_point, between, path].concat()
    }

    /// Returns the report of the last complete pass over a source.
    pub fn report(&self) -> CorrectionReport {
        self.report.lock().clone()
    }
}
