//! Creation of a file system in a new or existing file.

use std::env;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use diskwright::build::{BuildError, BuildOptions, BuildSource, Format, Progress, build};
use diskwright::output::OutputFormat;
use diskwright::{ImageInfo, ImageOptions};

use crate::failure::{Failure, NO_BLOCKS, NO_INODES, Statuses};

/// Default bytes per inode of both mke2fs and the engine.
pub(crate) const INODE_RATIO_USUAL: u64 = 16384;

/// Environment variable with the default time, used by ext tools and reproducible builds.
const FAKE_TIME: &str = "E2FSPROGS_FAKE_TIME";
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Target file of a file system.
pub(crate) struct TargetFile {
    path: PathBuf,
    /// Size of the file; `None` if it does not exist.
    pub(crate) bytes: Option<u64>,
    /// Sector sizes, for block devices.
    pub(crate) sectors: Option<Sectors>,
}

/// Sector sizes of a block device in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sectors {
    /// Minimum size of reads and writes.
    pub(crate) logical: u32,
    /// Minimum size of writes without reading first.
    pub(crate) physical: u32,
}

impl Sectors {
    #[cfg(target_os = "linux")]
    fn of(file: &std::fs::File) -> Option<Self> {
        use std::os::unix::fs::FileTypeExt;
        if !file.metadata().ok()?.file_type().is_block_device() {
            return None;
        }
        let logical = rustix::fs::ioctl_blksszget(file).ok()?;
        let physical = rustix::fs::ioctl_blkpbszget(file).unwrap_or(logical);
        Some(Self { logical, physical: physical.max(logical) })
    }

    #[cfg(not(target_os = "linux"))]
    fn of(_: &std::fs::File) -> Option<Self> {
        None
    }
}

impl TargetFile {
    /// Reads the properties of the file.
    pub(crate) fn look(path: &Path, statuses: Statuses) -> Result<Self, Failure> {
        let mut sectors = None;
        let bytes = match std::fs::File::open(path) {
            // Seeking to the end also works for block devices.
            Ok(mut file) => {
                sectors = Sectors::of(&file);
                file.seek(SeekFrom::End(0)).map(Some)
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        };
        let bytes = bytes.map_err(|e| statuses.failed(format_args!("{}: {e}", path.display())))?;
        Ok(Self { path: path.to_owned(), bytes, sectors })
    }

    /// Restores the original length of the file if the file system is shorter.
    pub(crate) fn keep_length(&self, statuses: Statuses) -> Result<(), Failure> {
        let Some(bytes) = self.bytes else { return Ok(()) };
        let lengthen = || {
            let file = OpenOptions::new().write(true).open(&self.path)?;
            let metadata = file.metadata()?;
            if metadata.is_file() && metadata.len() < bytes { file.set_len(bytes) } else { Ok(()) }
        };
        lengthen().map_err(|e| statuses.failed(format_args!("{}: {e}", self.path.display())))
    }
}

/// Observer that reports nothing.
struct NoMkfsProgress;

impl Progress for NoMkfsProgress {
    fn made(&self, _: u64, _: u64) {}
}

/// Creates a file system and returns its properties, or `None` if the output format is not raw.
pub(crate) fn make(
    options: &BuildOptions,
    file: &TargetFile,
    statuses: Statuses,
) -> Result<Option<ImageInfo>, Failure> {
    make_shipped(options, statuses)?;
    if options.output.format != OutputFormat::Raw {
        return Ok(None);
    }
    let info = describe(options, statuses)?;
    file.keep_length(statuses)?;
    Ok(Some(info))
}

/// Creates a file system in the selected output format.
pub(crate) fn make_shipped(options: &BuildOptions, statuses: Statuses) -> Result<(), Failure> {
    diskwright::clean_up_on_signals().map_err(|e| statuses.failed(e))?;
    build(options, &NoMkfsProgress).map(drop).map_err(|e| statuses.failed(full(options.format, &e)))
}

/// Returns the message for a failed build. If the source does not fit, it starts with the original's message.
fn full(format: Format, error: &BuildError) -> String {
    let BuildError::DoesNotFit { path, reason } = error else {
        return error.to_string();
    };
    let path = diskwright::text::escaped(path);
    match (format, reason) {
        (Format::Ext4, vfs::Error::NoSpace) => format!(
            "{NO_BLOCKS} while populating file system: {path}; choose a larger size, or none for a \
             file of the right size"
        ),
        (Format::Ext4, vfs::Error::NoInodes) => format!(
            "{NO_INODES} while populating file system: {path}; use more inodes (-N) or fewer bytes \
             per inode (-i)"
        ),
        (_, reason) => format!("{path}: {reason}; choose a larger size (-d size=)"),
    }
}

/// Creates an empty file system in a temporary file.
pub(crate) fn try_out(mut options: BuildOptions, statuses: Statuses) -> Result<ImageInfo, Failure> {
    let at = |e: std::io::Error| statuses.failed(e);
    let directory = tempfile::tempdir().map_err(at)?;
    options.image = directory.path().join("image");
    options.source = BuildSource::Several(Vec::new());
    options.offset = 0;
    if let Some(device) = options.log_device.take() {
        // A trial does not write the device, but its length counts.
        let bytes = TargetFile::look(&device, statuses)?.bytes.unwrap_or(0);
        let path = directory.path().join("log");
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).map_err(at)?;
        options.log_device = Some(path);
        options.keeps_journal = false;
    }
    build(&options, &NoMkfsProgress).map_err(|e| statuses.failed(e))?;
    describe(&options, statuses)
}

fn describe(options: &BuildOptions, statuses: Statuses) -> Result<ImageInfo, Failure> {
    let mut open = ImageOptions::default().offset(options.offset);
    open.devices.log.clone_from(&options.log_device);
    open.devices.realtime.clone_from(&options.realtime_device);
    open.info(&options.image).map_err(|e| statuses.of(&e))
}

/// Sets the time from the environment.
pub(crate) fn set_times(options: &mut BuildOptions, statuses: Statuses) -> Result<(), Failure> {
    let seconds = |name: &str| {
        let Some(value) = env::var_os(name) else { return Ok(None) };
        let seconds = value.to_str().and_then(|text| text.trim().parse::<i64>().ok());
        let wrong =
            || statuses.failed(format_args!("{name} is not a number of seconds since 1970"));
        seconds.filter(|sec| *sec >= 0).map(Some).ok_or_else(wrong)
    };
    options.source_date_epoch = seconds(EPOCH)?;
    options.time = seconds(FAKE_TIME)?;
    Ok(())
}

/// Returns whether equal calls must give equal images.
pub(crate) fn is_reproducible(options: &BuildOptions) -> bool {
    options.source_date_epoch.is_some() || options.time.is_some()
}

/// Returns a random UUID.
pub(crate) fn random_uuid() -> [u8; 16] {
    uuid::Uuid::new_v4().into_bytes()
}
