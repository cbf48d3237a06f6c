//! Errors of container images.

use crate::host::as_path;

/// A fault of a container image or of a request for one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerFault {
    /// Not an OCI image layout.
    #[error("this is not an OCI image layout: {0}")]
    NotLayout(String),
    /// Not an archive of `docker save`.
    #[error("this is not an archive of docker save: it holds no manifest.json")]
    NotDockerArchive,
    /// A referenced file is missing.
    #[error("it is missing, though {0} names it")]
    Missing(String),
    /// A referenced file is not a regular file.
    #[error("it is not a regular file")]
    NotRegular,
    /// A link inside an archive is dangling or cyclic.
    #[error("it is a link that leads to no file of the archive")]
    Link,
    /// The length of a blob differs from its descriptor.
    #[error("it has {found} bytes, its descriptor says {expected}")]
    Size {
        /// Length in the descriptor.
        expected: u64,
        /// Actual length.
        found: u64,
    },
    /// The contents of a blob do not match its digest.
    #[error("its digest is {found}, not {expected}")]
    Digest {
        /// Expected digest.
        expected: String,
        /// Digest of the contents.
        found: String,
    },
    /// A decompressed layer does not match the configuration.
    #[error("decompressed, its digest is {found}, and the configuration says {expected}")]
    DiffId {
        /// Digest in the configuration.
        expected: String,
        /// Digest of the contents.
        found: String,
    },
    /// An unsupported digest algorithm.
    #[error("digests of {0:?} are not supported: only sha256 and sha512")]
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
    #[error("its media type says {expected}, but it is {found}")]
    Compression {
        /// Compression in the media type.
        expected: &'static str,
        /// Compression according to the first bytes.
        found: &'static str,
    },
    /// A foreign layer, which the image does not contain.
    #[error("it is a foreign layer, to be fetched from {0}; save the image with all its layers")]
    Foreign(String),
    /// An encrypted layer.
    #[error("it is encrypted ({0}); decrypt the image first")]
    Encrypted(String),
    /// A registry returned an invalid response.
    #[error("its registry does not give it: {0}")]
    Registry(String),
    /// No image with the requested name or digest.
    #[error("it holds no {wanted}; it has {available}")]
    NoSuchImage {
        /// The requested name or digest.
        wanted: String,
        /// Available images.
        available: String,
    },
    /// Several images, and none was selected.
    #[error("it holds several images; name one of them: {0}")]
    Ambiguous(String),
    /// No image for the platform.
    #[error("it holds no image for {wanted}; choose with --platform from {available}")]
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
    #[error("indexes lie in indexes, more than {0} deep")]
    TooDeep(usize),
    /// The number of layers differs between manifest and configuration.
    #[error("the manifest has {layers} layers, the configuration {described}")]
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
        "its {stored} bytes become more than {limit} when they are decompressed; if it is to be trusted, \
         raise the limit with --layer-limit"
    )]
    Expands {
        /// Stored size in bytes.
        stored: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// An archive exceeds the size limit.
    #[error("it is larger than {limit} bytes, the most that is kept in a temporary file")]
    ArchiveSize {
        /// The limit in bytes.
        limit: u64,
    },
    /// The number of members of an archive exceeds the limit.
    #[error("the archive has more than {0} members")]
    TooManyMembers(usize),
    /// The memory of names and attributes exceeds the limit.
    #[error("the layers' names and attributes take more than {limit} bytes of memory")]
    Names {
        /// The limit in bytes.
        limit: u64,
    },
    /// A whiteout of an invalid name.
    #[error("it is a whiteout, but what follows \".wh.\" is no name")]
    WhiteoutName,
    /// An entry below a path named like a whiteout.
    #[error("it lies in a directory that is named like a whiteout")]
    BeneathWhiteout,
    /// A path or link target is too long.
    #[error("its path, or what it leads to, is longer than {0} bytes")]
    PathLength(usize),
    /// Cyclic symbolic links.
    #[error("too many symbolic links lead to its directory")]
    SymlinkLoop,
    /// A parent is not a directory.
    #[error("{} is in its path and no directory", shown(.0))]
    NotADirectory(Vec<u8>),
    /// The target of a hard link does not exist.
    #[error(
        "a hard link to {}, which neither a lower layer holds nor this one before it",
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
