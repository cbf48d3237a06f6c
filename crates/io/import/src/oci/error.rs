//! Errors of container images.

use crate::host::as_path;
use vfs::hint::Setting;

/// A fault of a container image or of a request for one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerFault {
    /// Not an OCI image layout.
    #[error("not an OCI image layout: {0}")]
    NotLayout(String),
    /// Not an archive of `docker save`.
    #[error("not an archive of docker save: manifest.json is missing")]
    NotDockerArchive,
    /// A referenced file is missing.
    #[error("it is missing, but {0} refers to it")]
    Missing(String),
    /// A referenced file is not a regular file.
    #[error("it is not a regular file")]
    NotRegular,
    /// A link inside an archive is dangling or cyclic.
    #[error("it is a link to a file that is not in the archive")]
    Link,
    /// The length of a blob differs from its descriptor.
    #[error("wrong size (expected {expected} bytes, found {found})")]
    Size {
        /// Length in the descriptor.
        expected: u64,
        /// Actual length.
        found: u64,
    },
    /// The contents of a blob do not match its digest.
    #[error("wrong digest (expected {expected}, found {found})")]
    Digest {
        /// Expected digest.
        expected: String,
        /// Digest of the contents.
        found: String,
    },
    /// A decompressed layer does not match the configuration.
    #[error("wrong digest of the decompressed layer (expected {expected}, found {found})")]
    DiffId {
        /// Digest in the configuration.
        expected: String,
        /// Digest of the contents.
        found: String,
    },
    /// An unsupported digest algorithm.
    #[error("{0:?} digests are not supported, only sha256 and sha512")]
    Algorithm(String),
    /// Malformed JSON.
    #[error("{what} is malformed: {reason}")]
    Json {
        /// The expected document.
        what: &'static str,
        /// The reason.
        reason: String,
    },
    /// A document exceeds the size limit.
    #[error("{what} has {found} bytes, more than the limit of {limit}")]
    DocumentSize {
        /// The expected document.
        what: &'static str,
        /// Its size in bytes.
        found: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// An unexpected media type.
    #[error("{what} of media type {found:?} is not supported")]
    MediaType {
        /// The expected document.
        what: &'static str,
        /// The actual media type.
        found: String,
    },
    /// The compression of a layer differs from its media type.
    #[error("its media type says {expected}, but its contents are {found}")]
    Compression {
        /// Compression in the media type.
        expected: &'static str,
        /// Compression according to the first bytes.
        found: &'static str,
    },
    /// A foreign layer, which the image does not contain.
    #[error("the layer is stored elsewhere, at {0}; save the image with all its layers")]
    Foreign(String),
    /// An encrypted layer.
    #[error("it is encrypted ({0}); decrypt the image first")]
    Encrypted(String),
    /// A registry returned an invalid response.
    #[error("the registry does not deliver it: {0}")]
    Registry(String),
    /// No image with the requested name or digest.
    #[error("it does not contain {wanted}; available: {available}")]
    NoSuchImage {
        /// The requested name or digest.
        wanted: String,
        /// Available images.
        available: String,
    },
    /// Several images, and none was selected.
    #[error("it contains several images; choose one of: {0}")]
    Ambiguous(String),
    /// No image for the platform.
    #[error(
        "it contains no image for {wanted}; choose one with {}: {available}",
        Setting::new("platform")
    )]
    NoPlatform {
        /// The requested platform.
        wanted: String,
        /// Available platforms.
        available: String,
    },
    /// The only image is for another platform.
    #[error("the image is for {found}, not for {wanted}")]
    OtherPlatform {
        /// The requested platform.
        wanted: String,
        /// The platform of the image.
        found: String,
    },
    /// The nesting of indexes exceeds the limit.
    #[error("indexes are nested more than {0} deep")]
    TooDeep(usize),
    /// The number of layers differs between manifest and configuration.
    #[error("the manifest has {layers} layers, but the configuration lists {described}")]
    LayerCount {
        /// Number of layers in the manifest.
        layers: usize,
        /// Number of layers in the configuration.
        described: usize,
    },
    /// The number of layers exceeds the limit.
    #[error("it has {found} layers, more than the limit of {limit}")]
    TooManyLayers {
        /// Number of layers of the image.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The decompressed size of a layer exceeds the limit.
    #[error(
        "its {stored} bytes decompress to more than {limit}; if you trust the image, raise the \
         limit with --layer-limit"
    )]
    Expands {
        /// Stored size in bytes.
        stored: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// An archive exceeds the size limit.
    #[error("it is larger than the limit of {limit} bytes for a temporary file")]
    ArchiveSize {
        /// The limit in bytes.
        limit: u64,
    },
    /// The number of members of an archive exceeds the limit.
    #[error("the archive has more than {0} members")]
    TooManyMembers(usize),
    /// The memory of names and attributes exceeds the limit.
    #[error("the names and attributes of the layers need more than {limit} bytes of memory")]
    Names {
        /// The limit in bytes.
        limit: u64,
    },
    /// A whiteout of an invalid name.
    #[error("it is a whiteout without a valid name after \".wh.\"")]
    WhiteoutName,
    /// An entry below a path named like a whiteout.
    #[error("it is in a directory with the name of a whiteout")]
    BeneathWhiteout,
    /// A path or link target is too long.
    #[error("its path or its target is longer than {0} bytes")]
    PathLength(usize),
    /// Cyclic symbolic links.
    #[error("too many symbolic links lead to its directory")]
    SymlinkLoop,
    /// A parent is not a directory.
    #[error("{} in its path is not a directory", shown(.0))]
    NotADirectory(Vec<u8>),
    /// The target of a hard link does not exist.
    #[error(
        "a hard link to {}, which is neither in a lower layer nor earlier in this one",
        shown(.0)
    )]
    LinkTarget(Vec<u8>),
    /// A hard link to a directory.
    #[error("a hard link to {}, which is a directory", shown(.0))]
    LinkToDirectory(Vec<u8>),
}

impl ContainerFault {
    /// Returns whether the image is valid, but does not match the request.
    pub fn is_choice(&self) -> bool {
        matches!(
            self,
            Self::NoSuchImage { .. }
                | Self::Ambiguous(_)
                | Self::NoPlatform { .. }
                | Self::OtherPlatform { .. }
        )
    }
}

/// Formats a path for errors.
fn shown(path: &[u8]) -> String {
    format!("{:?}", as_path(path))
}
