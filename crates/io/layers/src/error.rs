//! Errors of layers.

use std::io;

use vfs::hint::Setting;

/// The option that selects a logical volume.
pub(crate) const VOLUME: &str = "volume";
/// The option that names a further member.
pub(crate) const MEMBER: &str = "member";
/// The option that names a key file.
pub(crate) const KEY_FILE: &str = "key-file";

/// Returns a setting of this crate.
pub(crate) const fn setting(name: &'static str) -> Setting {
    Setting::new(name)
}

/// The reason why a layer cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// A member failed.
    #[error("cannot read {what} at byte {at}: {source}")]
    Device {
        /// The structure.
        what: &'static str,
        /// Its offset.
        at: u64,
        /// The reason.
        source: io::Error,
    },
    /// A structure is damaged.
    #[error("damaged {what} at byte {at}: {problem}")]
    Damaged {
        /// The structure.
        what: &'static str,
        /// Its offset on its device, in bytes.
        at: u64,
        /// Expected and found values.
        problem: String,
    },
    /// A feature is unknown or unsupported.
    #[error("{what} is not supported; {advice}")]
    Unsupported {
        /// The feature.
        what: String,
        /// Next step for the user.
        advice: &'static str,
    },
    /// A layer needs members that were not given.
    #[error("{what} needs {missing}; name its other images with {}", setting(MEMBER))]
    Missing {
        /// The volume or array.
        what: String,
        /// The members that are missing.
        missing: String,
    },
    /// There are several candidates, or the requested one does not exist.
    #[error("{problem}; {list}; choose one with {} VG/LV", setting(VOLUME))]
    Choose {
        /// Description of the problem.
        problem: String,
        /// The contents that were found.
        list: String,
    },
    /// Several partitions, or none, may be meant.
    #[error("{problem}; {list}; choose one with {:#}", Setting::PARTITION)]
    ChoosePartition {
        /// Description of the problem.
        problem: String,
        /// The contents that were found.
        list: String,
    },
    /// An encrypted volume needs a key.
    #[error(
        "{what} is encrypted; name the file with its key or passphrase with {} FILE",
        setting(KEY_FILE)
    )]
    NoKey {
        /// The volume.
        what: String,
    },
    /// No keyslot accepts the passphrase.
    #[error("{what}: no key slot accepts this passphrase or key file")]
    WrongKey {
        /// The volume.
        what: String,
    },
    /// A passphrase could not be read.
    #[error("cannot read the passphrase: {0}")]
    Passphrase(io::Error),
    /// The layer can only be read.
    #[error("{what} can only be read: {why}")]
    ReadOnly {
        /// The layer.
        what: String,
        /// The reason.
        why: &'static str,
    },
    /// A request that fits no layer.
    #[error("{0}")]
    Usage(String),
}

impl LayerError {
    /// Creates an error for a damaged structure.
    pub(crate) fn damaged(what: &'static str, at: u64, problem: impl Into<String>) -> Self {
        Self::Damaged { what, at, problem: problem.into() }
    }

    /// Creates an error for an unsupported feature.
    pub(crate) fn unsupported(what: impl Into<String>, advice: &'static str) -> Self {
        Self::Unsupported { what: what.into(), advice }
    }

    /// Returns a function that creates an error for a failed member.
    pub(crate) fn reading(what: &'static str, at: u64) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Device { what, at, source }
    }
}
