//! What to build, and what was built.

use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use ext4::mkfs::Tuning;
use serde::Serialize;
use source::correct::{CorrectionOptions, CorrectionReport};
use source::oci::{ImageOptions, Limits, Platform, Reference};
use vfs::Timestamp;

use super::details::LeftOut;
use super::image_file::ImageFile;
use crate::format::Format;
use crate::output::{OutputOptions, OutputReport};
use crate::text::shown;

/// The owner of everything in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A feature to turn on or off, in the format's own term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureChange {
    /// Its name.
    pub name: String,
    /// Whether it is turned on.
    pub is_on: bool,
}

impl FromStr for FeatureChange {
    type Err = String;

    /// `+name` or `name` turns it on, `-name` or `^name` off. Whether a format has it shows when an
    /// image is made.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, is_on) = match text.strip_prefix(['-', '^']) {
            Some(name) => (name, false),
            None => (text.strip_prefix('+').unwrap_or(text), true),
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || !name.chars().all(is_word) {
            return Err("write names of features, such as +large_dir or ^has_journal".into());
        }
        Ok(Self { name: name.into(), is_on })
    }
}

impl fmt::Display for FeatureChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_on { '+' } else { '^' }, self.name)
    }
}

/// Where the files of an image come from.
#[derive(Clone, Debug)]
pub enum BuildSource {
    /// Directory or archive; `-` is an archive on standard input.
    Files(PathBuf),
    /// A container image.
    Container(Container),
    /// The image of a file system.
    Image(ImageFile),
    /// A manifest of mtree(5), with contents from a directory.
    Manifest(ManifestFile),
    /// A prototype file of mkfs.xfs(8), with contents from files of the host.
    Protofile(ProtofileSource),
    /// Several, of which later ones are put over those before them.
    Several(Vec<PlacedSource>),
}

/// As it is named on the command line.
impl fmt::Display for BuildSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(path) if path.as_os_str() == "-" => f.write_str("standard input"),
            Self::Files(path) => shown(path).fmt(f),
            Self::Container(container) => container.reference.fmt(f),
            Self::Image(file) => {
                write!(f, "image:{}", shown(&file.path))?;
                file.partition.map_or(Ok(()), |number| write!(f, ":{number}"))
            }
            Self::Manifest(manifest) => {
                write!(f, "mtree:{}", shown(&manifest.file))?;
                manifest.root.as_ref().map_or(Ok(()), |root| write!(f, ":{}", shown(root)))
            }
            Self::Protofile(proto) => shown(&proto.file).fmt(f),
            Self::Several(sources) => {
                let names = sources.iter().map(|placed| placed.source.to_string());
                f.write_str(&names.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl From<PathBuf> for BuildSource {
    fn from(path: PathBuf) -> Self {
        Self::Files(path)
    }
}

impl From<&Path> for BuildSource {
    fn from(path: &Path) -> Self {
        Self::Files(path.to_owned())
    }
}

/// One of several sources.
#[derive(Clone, Debug)]
pub struct PlacedSource {
    /// What it is.
    pub source: BuildSource,
    /// The directory of the image that its root becomes: names with slashes between them, none at the ends.
    pub at: Vec<u8>,
}

/// A prototype file as a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtofileSource {
    /// The file.
    pub file: PathBuf,
    /// Slashes in names stand for spaces.
    pub slashes_are_spaces: bool,
}

/// A manifest as a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// The manifest.
    pub file: PathBuf,
    /// The directory with the contents; `None` is that of the manifest.
    pub root: Option<PathBuf>,
}

impl ManifestFile {
    /// What `mtree:FILE[:ROOTDIR]` names; `None` if the text begins otherwise.
    pub fn parse(text: &OsStr) -> Option<Self> {
        let rest = text.as_encoded_bytes().strip_prefix(b"mtree:")?;
        let path = |bytes| crate::host::path(bytes).ok().map(Path::to_owned);
        let whole = path(rest)?;
        // The colon of a drive.
        let first = if cfg!(windows) && rest.get(1) == Some(&b':') { 2 } else { 0 };
        let colon = rest.iter().skip(first).position(|&byte| byte == b':');
        // A file whose name has a colon is named by all of it.
        let colon = colon.map(|at| first + at).filter(|_| !whole.exists());
        Some(match colon {
            Some(at) => Self { file: path(&rest[..at])?, root: Some(path(&rest[at + 1..])?) },
            None => Self { file: whole, root: None },
        })
    }
}

/// A container image, and what of it is wanted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Container {
    /// Its name.
    pub reference: Reference,
    /// Which of an image for several platforms; `None` is the only one, or Linux on this processor.
    pub platform: Option<Platform>,
    /// Whether its layers stay apart, as overlayfs has its lower directories.
    pub is_overlay: bool,
    /// Bytes that a layer may have when it is decompressed; `None` goes by what it has when it is not.
    pub layer_bytes_max: Option<u64>,
    /// A file to write its configuration to.
    pub config: Option<PathBuf>,
}

setters!(Container {
    platform: Platform = Some(platform),
    is_overlay: bool,
    layer_bytes_max: u64 = Some(layer_bytes_max),
    config: impl Into<PathBuf> = Some(config.into()),
});

impl Container {
    /// The image of that name, for Linux on this processor, as its files are when it runs.
    pub fn new(reference: Reference) -> Self {
        Self { reference, platform: None, is_overlay: false, layer_bytes_max: None, config: None }
    }
}

impl From<Container> for BuildSource {
    fn from(container: Container) -> Self {
        Self::Container(container)
    }
}

impl Container {
    /// How it is read: by so many threads, with temporary files without names in `beside`.
    pub(crate) fn options(&self, beside: &Path, threads: usize) -> ImageOptions {
        ImageOptions {
            platform: self.platform.clone(),
            is_overlay: self.is_overlay,
            beside: beside.to_owned(),
            threads: threads.max(1),
            limits: Limits { layer_bytes: self.layer_bytes_max, ..Limits::default() },
        }
    }
}

/// What shares blocks with others that have the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedupe {
    /// Files, as a whole.
    Files,
    /// Blocks, wherever they lie in files.
    Blocks,
}

/// What to build, and how.
///
/// ```no_run
/// use std::path::Path;
/// use diskwright::build::{BuildOptions, Format, Owner, Progress, build};
///
/// struct Quiet;
/// impl Progress for Quiet {
///     fn made(&self, _entries: u64, _bytes: u64) {}
/// }
///
/// # fn main() -> Result<(), diskwright::build::BuildError> {
/// let options = BuildOptions::new(Path::new("rootfs"), "root.img", Format::Ext4)
///     .label("root")
///     .free(64 << 20)
///     .owner(Owner { uid: 0, gid: 0 });
/// let report = build(&options, &Quiet)?;
/// println!("{} files", report.entries);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BuildOptions {
    /// What is to be in the image.
    pub source: BuildSource,
    /// The image to make.
    pub image: PathBuf,
    /// Its format.
    pub format: Format,
    /// Size in bytes; `None` is the smallest that holds the source.
    pub size: Option<u64>,
    /// Bytes that an image whose size is computed has at least.
    pub size_min: u64,
    /// Bytes left free in an image whose size is computed.
    pub free: u64,
    /// Label.
    pub label: Option<Vec<u8>>,
    /// The directory that it was last mounted on, as its superblock says (ext4).
    pub last_mounted: Option<Vec<u8>>,
    /// UUID; `None` derives one from the contents.
    pub uuid: Option<[u8; 16]>,
    /// Seed of directory hashes (ext4); `None` derives one from the options.
    pub hash_seed: Option<[u8; 16]>,
    /// Features, in order.
    pub features: Vec<FeatureChange>,
    /// Block size in bytes.
    pub block_size: Option<u32>,
    /// Inode size in bytes.
    pub inode_size: Option<u32>,
    /// Bytes of image per inode (ext4).
    pub bytes_per_inode: Option<u64>,
    /// Number of inodes (ext4).
    pub inodes: Option<u64>,
    /// Blocks kept for the privileged, in per cent of all: 0 to 50 (ext4).
    pub reserved_percent: Option<f64>,
    /// Size of the journal in bytes (ext4).
    pub journal_bytes: Option<u64>,
    /// Whether to leave the journal out (ext4).
    pub no_journal: bool,
    /// Size of a directory block in bytes (XFS).
    pub dir_block_size: Option<u32>,
    /// Number of allocation groups (XFS).
    pub ag_count: Option<u32>,
    /// Size of an allocation group in bytes (XFS).
    pub ag_bytes: Option<u64>,
    /// Size of the log in bytes (XFS).
    pub log_bytes: Option<u64>,
    /// Stripe unit of the log in bytes (XFS).
    pub log_stripe_bytes: Option<u32>,
    /// Size of a sector in bytes (XFS).
    pub sector_size: Option<u32>,
    /// Most space that inodes may take, in per cent; 0 is no limit (XFS). `None` follows from the size and the source.
    pub inodes_percent: Option<u8>,
    /// Whether an image may be smaller than mkfs.xfs makes them, which is 300 MiB (XFS).
    pub small: bool,
    /// What shares blocks with its like, if anything does (XFS).
    pub dedupe: Option<Dedupe>,
    /// Owner of everything, instead of the source's.
    pub owner: Option<Owner>,
    /// What is changed on the way from the source.
    pub corrections: CorrectionOptions,
    /// Files of a directory keep their times of last access. By default those are the times of last modification, so that
    /// reading a directory does not change the image made of it.
    pub access_times: bool,
    /// Threads; `None` takes as many as there are processors.
    pub threads: Option<usize>,
    /// Whether an existing image may be overwritten.
    pub force: bool,
    /// Writes an existing image in place, so that its inode, links, owner, mode and open descriptors stay. A
    /// failed build then leaves it without a valid superblock. Otherwise a new file replaces it when it is finished.
    pub in_place: bool,
    /// `SOURCE_DATE_EPOCH`: no time in the image is later, in seconds since 1970.
    pub source_date_epoch: Option<i64>,
    /// The time of the file system itself, in seconds since 1970; `None` is now, or [`Self::source_date_epoch`].
    pub time: Option<i64>,
    /// What is made of the finished file system.
    pub output: OutputOptions,
    /// Makes holes of blocks of zeros in files. Otherwise files have the holes of the source.
    pub sparse: bool,
    /// Leaves the extended attributes of the source out.
    pub no_xattrs: bool,
    /// First byte of the image in its file. What precedes it stays as it is.
    pub offset: u64,
    /// Settings that few file systems need (ext4).
    pub tuning: Tuning,
    /// Whether names in directories are those that [`ExtractOptions::map_names`](crate::extract::ExtractOptions) gave
    /// files, which get their own back.
    pub map_names: bool,
}

setters!(BuildOptions {
    size: u64 = Some(size),
    size_min: u64,
    free: u64,
    label: impl Into<Vec<u8>> = Some(label.into()),
    last_mounted: impl Into<Vec<u8>> = Some(last_mounted.into()),
    uuid: [u8; 16] = Some(uuid),
    hash_seed: [u8; 16] = Some(hash_seed),
    features: Vec<FeatureChange>,
    block_size: u32 = Some(block_size),
    inode_size: u32 = Some(inode_size),
    bytes_per_inode: u64 = Some(bytes_per_inode),
    inodes: u64 = Some(inodes),
    reserved_percent: f64 = Some(reserved_percent),
    journal_bytes: u64 = Some(journal_bytes),
    no_journal: bool,
    dir_block_size: u32 = Some(dir_block_size),
    ag_count: u32 = Some(ag_count),
    ag_bytes: u64 = Some(ag_bytes),
    log_bytes: u64 = Some(log_bytes),
    log_stripe_bytes: u32 = Some(log_stripe_bytes),
    sector_size: u32 = Some(sector_size),
    inodes_percent: u8 = Some(inodes_percent),
    small: bool,
    dedupe: Dedupe = Some(dedupe),
    owner: Owner = Some(owner),
    corrections: CorrectionOptions,
    access_times: bool,
    threads: usize = Some(threads),
    force: bool,
    in_place: bool,
    source_date_epoch: i64 = Some(source_date_epoch),
    time: i64 = Some(time),
    output: OutputOptions,
    sparse: bool,
    no_xattrs: bool,
    offset: u64,
    tuning: Tuning,
    map_names: bool,
});

impl BuildOptions {
    /// The smallest image of that format that holds the source, which no file may have the name of yet.
    pub fn new(source: impl Into<BuildSource>, image: impl Into<PathBuf>, format: Format) -> Self {
        Self {
            source: source.into(),
            image: image.into(),
            format,
            size: None,
            size_min: 0,
            free: 0,
            label: None,
            last_mounted: None,
            uuid: None,
            hash_seed: None,
            features: Vec::new(),
            block_size: None,
            inode_size: None,
            bytes_per_inode: None,
            inodes: None,
            reserved_percent: None,
            journal_bytes: None,
            no_journal: false,
            dir_block_size: None,
            ag_count: None,
            ag_bytes: None,
            log_bytes: None,
            log_stripe_bytes: None,
            sector_size: None,
            inodes_percent: None,
            small: false,
            dedupe: None,
            owner: None,
            corrections: CorrectionOptions::default(),
            access_times: false,
            threads: None,
            force: false,
            in_place: false,
            source_date_epoch: None,
            time: None,
            output: OutputOptions::default(),
            sparse: false,
            no_xattrs: false,
            offset: 0,
            tuning: Tuning::default(),
            map_names: false,
        }
    }

    /// Threads to use.
    pub(super) fn thread_count(&self) -> usize {
        let processors = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.unwrap_or_else(processors)
    }

    /// The time of the file system itself.
    pub(super) fn image_time(&self) -> Timestamp {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let sec = self.time.or(self.source_date_epoch).unwrap_or_else(|| now().cast_signed());
        Timestamp { sec, nsec: 0 }
    }
}

/// What was built.
#[derive(Clone, Debug, Serialize)]
pub struct BuildReport {
    /// Size of the image in bytes.
    pub image_bytes: u64,
    /// Files of any type that were made.
    pub entries: u64,
    /// Bytes of file contents.
    pub data_bytes: u64,
    /// How many of them took no blocks, because other contents have the same bytes ([`BuildOptions::dedupe`]).
    pub shared_bytes: u64,
    /// What inodes of images had that the format does not keep, and how many files lost it.
    #[serde(skip_serializing_if = "LeftOut::is_empty")]
    pub left_out: LeftOut,
    /// What was corrected, if something was to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrections: Option<CorrectionReport>,
    /// What was made besides.
    #[serde(flatten)]
    pub output: OutputReport,
}
