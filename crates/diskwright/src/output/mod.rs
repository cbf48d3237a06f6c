//! What becomes of a finished image before it gets its name: a tree of hashes behind it, and another format.
//!
//! ```
//! use std::path::Path;
//! use diskwright::build::{BuildOptions, Format};
//! use diskwright::output::{OutputFormat, OutputOptions};
//!
//! let output = OutputOptions::default().format(OutputFormat::Qcow2);
//! let options = BuildOptions::new(Path::new("rootfs"), "root.qcow2", Format::Xfs).output(output);
//! ```

mod free;

use std::path::PathBuf;

use serde::Serialize;

pub use crate::verity::{Verity, VerityReport};
pub use ::output::{Error as OutputError, Format as OutputFormat};

pub(crate) use free::free_ranges;

/// What is made of the finished file system.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OutputOptions {
    /// The format of the file.
    pub format: OutputFormat,
    /// A hash tree for dm-verity.
    pub verity: Option<Verity>,
    /// A file for the root hash of that tree, in hexadecimal.
    pub root_hash_file: Option<PathBuf>,
    /// Regular files, by patterns of their paths, that fs-verity protects (ext4).
    pub fs_verity: Vec<String>,
}

setters!(OutputOptions {
    format: OutputFormat,
    verity: Verity = Some(verity),
    root_hash_file: impl Into<PathBuf> = Some(root_hash_file.into()),
    fs_verity: Vec<String>,
});

impl OutputOptions {
    /// Whether the finished image is written to another file than the one that it was made in.
    pub(crate) fn is_apart(&self) -> bool {
        self.format != OutputFormat::Raw
    }
}

/// What was made besides the file system.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OutputReport {
    /// Name of the format, if it is not raw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<&'static str>,
    /// Bytes of the file in that format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// The hash tree for dm-verity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verity: Option<VerityReport>,
    /// Files that fs-verity protects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fs_verity: Vec<ProtectedFile>,
}

/// A file that fs-verity protects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProtectedFile {
    /// Its path in the image; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Its bytes in hexadecimal, only if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Its digest, as `fsverity measure` prints it: the name of the hash, a colon, hexadecimal digits.
    pub digest: String,
}
