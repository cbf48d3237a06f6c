//! What can be wrong with a container image.

use crate::host::as_path;

/// What is wrong with a container image, or with what was asked of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerFault {
    /// Not a layout of the image specification.
    #[error("this is not an OCI image layout: {0}")]
    NotLayout(String),
    /// Not an archive as `docker save` writes it.
    #[error("this is not an archive of docker save: it holds no manifest.json")]
    NotDockerArchive,
    /// Something refers to what is not there.
    #[error("it is missing, though {0} names it")]
    Missing(String),
    /// Something is there that is no file.
    #[error("it is not a regular file")]
    NotRegular,
    /// A link inside an archive leads nowhere, or in a circle.
    #[error("it is a link that leads to no file of the archive")]
    Link,
    /// A blob has another length than its descriptor says.
    #[error("it has {found} bytes, its descriptor says {expected}")]
    Size {
        /// What the descriptor says.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// A blob's contents are not what its digest says.
    #[error("its digest is {found}, not {expected}")]
    Digest {
        /// What is said.
        expected: String,
        /// What the contents give.
        found: String,
    },
    /// A decompressed layer is not what the configuration says.
    #[error("decompressed, its digest is {found}, and the configuration says {expected}")]
    DiffId {
        /// What the configuration says.
        expected: String,
        /// What the contents give.
        found: String,
    },
    /// A digest of a kind that is not supported.
    #[error("digests of {0:?} are not supported: only sha256 and sha512")]
    Algorithm(String),
    /// Text that should be JSON of a certain form.
    #[error("{what} is malformed: {reason}")]
    Json {
        /// What it should be.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A document larger than any should be.
    #[error("{what} has {found} bytes, more than the limit of {limit}")]
    DocumentSize {
        /// What it should be.
        what: &'static str,
        /// Its size in bytes.
        found: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A media type of something else than what is read here.
    #[error("{what} of media type {found:?} is not supported")]
    MediaType {
        /// What was looked for.
        what: &'static str,
        /// The type it has.
        found: String,
    },
    /// A layer that is not compressed as its media type says.
    #[error("its media type says {expected}, but it is {found}")]
    Compression {
        /// What the media type says.
        expected: &'static str,
        /// What the first bytes say.
        found: &'static str,
    },
    /// A layer that is not part of the image.
    #[error("it is a foreign layer, to be fetched from {0}; save the image with all its layers")]
    Foreign(String),
    /// A layer that only holders of a key can read.
    #[error("it is encrypted ({0}); decrypt the image first")]
    Encrypted(String),
    /// A registry that does not give what it should.
    #[error("its registry does not give it: {0}")]
    Registry(String),
    /// No image of the name or digest asked for.
    #[error("it holds no {wanted}; it has {available}")]
    NoSuchImage {
        /// What was asked for.
        wanted: String,
        /// What there is.
        available: String,
    },
    /// Several images, and none was asked for.
    #[error("it holds several images; name one of them: {0}")]
    Ambiguous(String),
    /// No image for the platform.
    #[error("it holds no image for {wanted}; choose with --platform from {available}")]
    NoPlatform {
        /// What was asked for.
        wanted: String,
        /// What there is.
        available: String,
    },
    /// The only image is for another platform than the one asked for.
    #[error("the image is for {found}, not for {wanted}")]
    OtherPlatform {
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// Indexes in indexes without an end.
    #[error("indexes lie in indexes, more than {0} deep")]
    TooDeep(usize),
    /// The configuration describes another number of layers.
    #[error("the manifest has {layers} layers, the configuration {described}")]
    LayerCount {
        /// Layers of the manifest.
        layers: usize,
        /// Layers in the configuration.
        described: usize,
    },
    /// More layers than any image has.
    #[error("it has {found} layers, more than the limit of {limit}")]
    TooManyLayers {
        /// Layers of the image.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A layer that becomes larger than is accepted.
    #[error(
        "its {stored} bytes become more than {limit} when they are decompressed; if it is to be trusted, \
         raise the limit with --layer-limit"
    )]
    Expands {
        /// Bytes as stored.
        stored: u64,
        /// Bytes that are accepted.
        limit: u64,
    },
    /// An archive that is larger than is accepted.
    #[error("it is larger than {limit} bytes, the most that is kept in a temporary file")]
    ArchiveSize {
        /// The limit in bytes.
        limit: u64,
    },
    /// An archive with more members than any image has.
    #[error("the archive has more than {0} members")]
    TooManyMembers(usize),
    /// Names and attributes that take too much memory.
    #[error("the layers' names and attributes take more than {limit} bytes of memory")]
    Names {
        /// The limit in bytes.
        limit: u64,
    },
    /// A whiteout of nothing that can be a name.
    #[error("it is a whiteout, but what follows \".wh.\" is no name")]
    WhiteoutName,
    /// An entry whose parent is named like a whiteout.
    #[error("it lies in a directory that is named like a whiteout")]
    BeneathWhiteout,
    /// A path or what it leads to is too long.
    #[error("its path, or what it leads to, is longer than {0} bytes")]
    PathLength(usize),
    /// Symbolic links that lead in a circle.
    #[error("too many symbolic links lead to its directory")]
    SymlinkLoop,
    /// A parent that is no directory.
    #[error("{} is in its path and no directory", shown(.0))]
    NotADirectory(Vec<u8>),
    /// A hard link to what is not there.
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
    /// Whether the image is as good as others, but not what was asked for.
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

/// A path as errors show it.
fn shown(path: &[u8]) -> String {
    format!("{:?}", as_path(path))
}
