//! Options and report of a build.

use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use ext4::mkfs::Tuning;
use import::correct::{CorrectionOptions, CorrectionReport};
use import::oci::{ImageOptions, Limits, Platform, Reference};
use serde::Serialize;
use vfs::Timestamp;
use xfs::mkfs::Inherited;

use super::details::LeftOut;
use super::image_file::ImageFile;
use crate::format::Format;
use crate::output::{OutputOptions, OutputReport};
use crate::text::shown;

/// Owner of all files of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
}

/// Feature to enable or disable, in the format's own terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureChange {
    /// Feature name.
    pub name: String,
    /// True if the feature is enabled.
    pub is_on: bool,
}

impl FromStr for FeatureChange {
    type Err = String;

    /// Parses `+name` or `name` (enable) and `-name` or `^name` (disable). The name is validated when the image is
    /// built.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, is_on) = match text.strip_prefix(['-', '^']) {
            Some(name) => (name, false),
            None => (text.strip_prefix('+').unwrap_or(text), true),
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || !name.chars().all(is_word) {
            return Err("write feature names such as +large_dir or ^has_journal".into());
        }
        Ok(Self { name: name.into(), is_on })
    }
}

impl fmt::Display for FeatureChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_on { '+' } else { '^' }, self.name)
    }
}

/// Source of the files of an image.
#[derive(Clone, Debug)]
pub enum BuildSource {
    /// Directory or archive; `-` is an archive on standard input.
    Files(PathBuf),
    /// A container image.
    Container(Container),
    /// File system image.
    Image(ImageFile),
    /// mtree(5) manifest, with contents from a directory.
    Manifest(ManifestFile),
    /// mkfs.xfs(8) prototype file, with contents from host files.
    Protofile(ProtofileSource),
    /// Several sources; later ones are merged over earlier ones.
    Several(Vec<PlacedSource>),
}

/// Formats the source in command-line syntax.
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
    /// The source.
    pub source: BuildSource,
    /// Target directory in the image: names separated by slashes, without leading or trailing slash.
    pub at: Vec<u8>,
}

/// A prototype file as a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtofileSource {
    /// The file.
    pub file: PathBuf,
    /// True if slashes in names represent spaces.
    pub slashes_are_spaces: bool,
}

/// A manifest as a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// Path of the manifest.
    pub file: PathBuf,
    /// Directory of the contents; `None` selects the directory of the manifest.
    pub root: Option<PathBuf>,
}

impl ManifestFile {
    /// Parses `mtree:FILE[:ROOTDIR]`. Returns `None` if the prefix is missing.
    pub fn parse(text: &OsStr) -> Option<Self> {
        let rest = text.as_encoded_bytes().strip_prefix(b"mtree:")?;
        let path = |bytes| crate::host::path(bytes).ok().map(Path::to_owned);
        let whole = path(rest)?;
        // Skip the colon after a drive letter.
        let first = if cfg!(windows) && rest.get(1) == Some(&b':') { 2 } else { 0 };
        let colon = rest.iter().skip(first).position(|&byte| byte == b':');
        // An existing file whose name contains the colon takes precedence.
        let colon = colon.map(|at| first + at).filter(|_| !whole.exists());
        Some(match colon {
            Some(at) => Self { file: path(&rest[..at])?, root: Some(path(&rest[at + 1..])?) },
            None => Self { file: whole, root: None },
        })
    }
}

/// Container image and options for reading it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Container {
    /// Reference of the image.
    pub reference: Reference,
    /// Platform of a multi-platform image; `None` selects the only one, or Linux on this processor.
    pub platform: Option<Platform>,
    /// True if layers are kept separate, in the format of overlayfs lower directories.
    pub is_overlay: bool,
    /// Maximum decompressed size of a layer in bytes; `None` derives it from the compressed size.
    pub layer_bytes_max: Option<u64>,
    /// Output file for the image configuration.
    pub config: Option<PathBuf>,
}

setters!(Container {
    platform: Platform = Some(platform),
    is_overlay: bool,
    layer_bytes_max: u64 = Some(layer_bytes_max),
    config: impl Into<PathBuf> = Some(config.into()),
});

impl Container {
    /// Selects the image for Linux on this processor, with its layers merged.
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
    /// Returns reading options: the number of threads, and `beside` for anonymous temporary files.
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

/// Unit of deduplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedupe {
    /// Whole files.
    Files,
    /// Blocks, at any block offset.
    Blocks,
}

/// Options of a build.
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
    /// Source of the files.
    pub source: BuildSource,
    /// Image to create.
    pub image: PathBuf,
    /// Format of the image.
    pub format: Format,
    /// Size in bytes; `None` selects the smallest that contains the source.
    pub size: Option<u64>,
    /// Minimum size in bytes if the size is computed.
    pub size_min: u64,
    /// Free space in bytes if the size is computed.
    pub free: u64,
    /// Label.
    pub label: Option<Vec<u8>>,
    /// Directory of the last mount for the superblock (ext4).
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
    /// Blocks reserved for privileged users, in percent: 0 to 50 (ext4).
    pub reserved_percent: Option<f64>,
    /// Size of the journal in bytes (ext4).
    pub journal_bytes: Option<u64>,
    /// True to omit the journal (ext4).
    pub no_journal: bool,
    /// Size of a directory block in bytes (XFS).
    pub dir_block_size: Option<u32>,
    /// Number of allocation groups (XFS).
    pub ag_count: Option<u32>,
    /// Size of an allocation group in bytes (XFS).
    pub ag_bytes: Option<u64>,
    /// Size of the log in bytes (XFS).
    pub log_bytes: Option<u64>,
    /// Allocation group that contains the log (XFS); by default the middle one.
    pub log_group: Option<u32>,
    /// File or block device for the log (XFS) or journal (ext4), which is overwritten. It takes the whole device unless
    /// `log_bytes` is set. By default the image contains its log.
    pub log_device: Option<PathBuf>,
    /// True to use the journal that `log_device` contains, and that no other image uses (ext4).
    pub keeps_journal: bool,
    /// Stripe unit of the log in bytes (XFS).
    pub log_stripe_bytes: Option<u32>,
    /// Stripes of the device (XFS). By default there are none.
    pub xfs_stripe: Option<xfs::mkfs::Stripe>,
    /// Size in bytes that atomic writes may have (XFS): groups are aligned to it, and the log has room for them.
    pub xfs_atomic_write_bytes: Option<u64>,
    /// True to refuse what mkfs.xfs refuses without `--unsupported` (XFS).
    pub xfs_only_supported: bool,
    /// Quotas that kernels account and enforce, as in `sb_qflags` (XFS). They need the feature `metadir`, and are counted at
    /// the first mount.
    pub xfs_quota_flags: u16,
    /// Preventive maintenance by `xfs_scrub_all`, an attribute of the root directory (XFS). By default it has none.
    pub xfs_autofsck: Option<xfs::mkfs::Autofsck>,
    /// File or block device for the data of realtime files (XFS). By default there is no realtime section.
    pub realtime_device: Option<PathBuf>,
    /// Size of the realtime section in bytes (XFS). By default it takes the whole device.
    pub realtime_bytes: Option<u64>,
    /// Size of a realtime extent in bytes (XFS).
    pub realtime_extent_bytes: Option<u32>,
    /// Size of a realtime group in bytes (XFS with metadir).
    pub realtime_group_bytes: Option<u64>,
    /// Number of realtime groups (XFS with metadir).
    pub realtime_group_count: Option<u32>,
    /// Attributes that new files inherit from the root directory (XFS).
    pub inherited: Inherited,
    /// Size of a sector in bytes (XFS).
    pub sector_size: Option<u32>,
    /// Maximum space for inodes in percent; 0 is unlimited (XFS). `None` derives it from the size and the source.
    pub inodes_percent: Option<u8>,
    /// True if images below the minimum of mkfs.xfs, 300 MiB, are allowed (XFS).
    pub small: bool,
    /// Unit of deduplication, if enabled (XFS).
    pub dedupe: Option<Dedupe>,
    /// Owner of all files, overriding the source.
    pub owner: Option<Owner>,
    /// Corrections of source entries.
    pub corrections: CorrectionOptions,
    /// Keep the access times of a source directory. By default they are set to the modification times, so that reading
    /// a directory does not change the image built from it.
    pub access_times: bool,
    /// Number of threads; `None` selects the number of processors.
    pub threads: Option<usize>,
    /// True if an existing image may be overwritten.
    pub force: bool,
    /// True to write an existing image in place. Its inode, links, owner, mode and open descriptors are then
    /// preserved, but a failed build leaves it without a valid superblock. Otherwise a new file replaces it on
    /// completion.
    pub in_place: bool,
    /// `SOURCE_DATE_EPOCH`: upper limit of all times in the image, in seconds since 1970.
    pub source_date_epoch: Option<i64>,
    /// Time of the file system itself, in seconds since 1970; `None` is [`Self::source_date_epoch`] or now.
    pub time: Option<i64>,
    /// Output formats of the finished file system.
    pub output: OutputOptions,
    /// True if blocks of zeros become holes. Otherwise files have the holes of the source.
    pub sparse: bool,
    /// True to omit the extended attributes of the source.
    pub no_xattrs: bool,
    /// Byte offset of the image in its file. Preceding bytes are preserved.
    pub offset: u64,
    /// Rarely used settings (ext4).
    pub tuning: Tuning,
    /// True to restore original names from those created by
    /// [`ExtractOptions::map_names`](crate::extract::ExtractOptions).
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
    log_group: u32 = Some(log_group),
    log_device: impl Into<PathBuf> = Some(log_device.into()),
    keeps_journal: bool = keeps_journal,
    realtime_device: impl Into<PathBuf> = Some(realtime_device.into()),
    realtime_bytes: u64 = Some(realtime_bytes),
    realtime_extent_bytes: u32 = Some(realtime_extent_bytes),
    realtime_group_bytes: u64 = Some(realtime_group_bytes),
    realtime_group_count: u32 = Some(realtime_group_count),
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
    /// Creates options for the smallest image of a format that contains the source. The image file must not exist.
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
            log_group: None,
            log_device: None,
            keeps_journal: false,
            log_stripe_bytes: None,
            xfs_quota_flags: 0,
            xfs_stripe: None,
            xfs_atomic_write_bytes: None,
            xfs_only_supported: false,
            xfs_autofsck: None,
            realtime_device: None,
            realtime_bytes: None,
            realtime_extent_bytes: None,
            realtime_group_bytes: None,
            realtime_group_count: None,
            inherited: Inherited::default(),
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

    /// Returns the number of threads to use.
    pub(super) fn thread_count(&self) -> usize {
        let processors = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.unwrap_or_else(processors)
    }

    /// Returns the time of the file system itself.
    pub(super) fn image_time(&self) -> Timestamp {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let sec = self.time.or(self.source_date_epoch).unwrap_or_else(|| now().cast_signed());
        Timestamp { sec, nsec: 0 }
    }
}

/// Result of a build.
#[derive(Clone, Debug, Serialize)]
pub struct BuildReport {
    /// Size of the image in bytes.
    pub image_bytes: u64,
    /// Number of created files of any type.
    pub entries: u64,
    /// Bytes of file contents.
    pub data_bytes: u64,
    /// Bytes of contents without blocks of their own because of deduplication ([`BuildOptions::dedupe`]).
    pub shared_bytes: u64,
    /// Inode properties of source images that the format does not store, with the number of affected files.
    #[serde(skip_serializing_if = "LeftOut::is_empty")]
    pub left_out: LeftOut,
    /// Applied corrections, if any were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrections: Option<CorrectionReport>,
    /// Additional output files.
    #[serde(flatten)]
    pub output: OutputReport,
}
