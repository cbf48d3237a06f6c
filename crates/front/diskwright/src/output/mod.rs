//! Output steps of a finished image before it gets its name: a hash tree after it, and conversion to another format.
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
pub use disk::output::{Error as OutputError, OutputFormat};

pub(crate) use free::free_ranges;

/// Outputs generated from the finished file system.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OutputOptions {
    /// File format.
    pub format: OutputFormat,
    /// A hash tree for dm-verity.
    pub verity: Option<Verity>,
    /// Output file for the root hash of that tree, in hexadecimal.
    pub root_hash_file: Option<PathBuf>,
    /// Patterns of paths of regular files to protect with fs-verity (ext4).
    pub fs_verity: Vec<String>,
}

setters!(OutputOptions {
    format: OutputFormat,
    verity: Verity = Some(verity),
    root_hash_file: impl Into<PathBuf> = Some(root_hash_file.into()),
    fs_verity: Vec<String>,
});

impl OutputOptions {
    /// Returns whether the output is another file than the raw image.
    pub(crate) fn is_apart(&self) -> bool {
        self.format != OutputFormat::Raw
    }
}

/// Additional outputs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OutputReport {
    /// Name of the format, unless raw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<&'static str>,
    /// Size of the file in that format, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// The hash tree for dm-verity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verity: Option<VerityReport>,
    /// Files protected with fs-verity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fs_verity: Vec<ProtectedFile>,
}

/// File protected with fs-verity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProtectedFile {
    /// Path in the image, with invalid UTF-8 replaced.
    pub path: String,
    /// Bytes of the path in hexadecimal, only if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Digest in the format of `fsverity measure`: the name of the hash, a colon, hexadecimal digits.
    pub digest: String,
}
