//! Corrections of a source: who owns files, how they are labelled, which of them are taken, and what is added.
//!
//! A [`Corrected`] source is another one, entry by entry, changed in this order:
//! 1. what [`Choice`]s leave out is left out, with everything below;
//! 2. owners go through the [`OwnerMap`], or become one;
//! 3. [device tables](crate::table) change what is there; what they add goes through all that follows;
//! 4. [manifests](crate::mtree) replace attributes;
//! 5. a list of Android's build (`fs_config`) gives owners, permissions and capabilities;
//! 6. [file contexts](crate::file_contexts) give labels;
//! 7. [`Rule`]s change what patterns name, each in its turn.
//!
//! A file goes by the first name that the source gives it: its hard links say nothing.

pub(crate) mod capability;
mod choice;
pub(crate) mod fault;
mod fs_config;
mod globs;
pub(crate) mod lines;
pub(crate) mod names;
mod owner_map;
mod report;
mod rule;
mod stream;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub use capability::FileCapabilities;
pub use choice::Choice;
pub use fault::RuleFault;
pub use globs::Glob;
pub use owner_map::OwnerMap;
pub use report::CorrectionReport;
pub use rule::{Change, PermissionChange, Rule};
pub use stream::Corrected;

use crate::file_contexts::FileContexts;
use crate::mtree::ManifestCorrection;
use crate::table::DeviceTable;
use crate::{SourceError, Time};

/// What is to be corrected.
#[derive(Clone, Debug, Default)]
pub struct CorrectionOptions {
    /// Which files are taken, in order.
    pub choices: Vec<Choice>,
    /// A file that says what owners become: see [`OwnerMap::read`].
    pub owner_map: Option<PathBuf>,
    /// Device tables: see [`DeviceTable`].
    pub devices: Vec<PathBuf>,
    /// Manifests whose attributes replace those of the source.
    pub manifests: Vec<PathBuf>,
    /// A list of owners, permissions and capabilities as Android's build writes it. All files must be in it.
    pub fs_config: Option<PathBuf>,
    /// File contexts of SELinux.
    pub file_contexts: Option<PathBuf>,
    /// Where the image will be mounted, in the form of `Entry::path`: the paths of `fs_config` and of file contexts
    /// begin there.
    pub mount_point: Vec<u8>,
    /// Changes by pattern, in order.
    pub rules: Vec<Rule>,
}

/// What a source does not say.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The owner of everything, where no rule says otherwise.
    pub owner: Option<(u32, u32)>,
    /// A directory on the host with the `etc/passwd` and `etc/group` that names of users and groups are looked
    /// up in. Without it only `root` is known.
    pub names: Option<PathBuf>,
    /// Time of what is added.
    pub time: Time,
}

impl CorrectionOptions {
    /// Whether nothing is to be corrected.
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

/// Corrections that have been read, for any number of readings of a source.
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
    /// Reads the files that the options name.
    ///
    /// # Errors
    /// If one cannot be read, or a line of it cannot be followed.
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

    /// The path of an entry where the image will be mounted.
    fn whole(&self, path: &[u8]) -> Vec<u8> {
        let between: &[u8] =
            if self.mount_point.is_empty() || path.is_empty() { b"" } else { b"/" };
        [&self.mount_point, between, path].concat()
    }

    /// What was corrected when a source was last read to its end.
    pub fn report(&self) -> CorrectionReport {
        self.report.lock().clone()
    }
}
