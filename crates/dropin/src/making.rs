//! Making a file system in a file that may be there already.

use std::env;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use diskwright::build::{BuildError, BuildOptions, BuildSource, Format, Progress, build};
use diskwright::output::OutputFormat;
use diskwright::{Image, ImageInfo, OpenImage};

use crate::failure::{Failure, NO_BLOCKS, NO_INODES, Statuses};

/// Bytes of image per inode that both mke2fs and the engine have for a usual file system.
pub(crate) const INODE_RATIO_USUAL: u64 = 16384;

/// The time of everything that has no other, as tools of the ext family and reproducible builds are told it.
const FAKE_TIME: &str = "E2FSPROGS_FAKE_TIME";
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The file that a file system goes into.
pub(crate) struct File {
    path: PathBuf,
    /// How long it is; `None` if it is not there.
    pub(crate) bytes: Option<u64>,
    /// Sector sizes, if it is a block device.
    pub(crate) sectors: Option<Sectors>,
}

/// Sector sizes of a block device in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sectors {
    /// The smallest unit that the device reads and writes.
    pub(crate) logical: u32,
    /// The smallest unit that it writes without reading first.
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

impl File {
    /// Looks for it.
    pub(crate) fn look(path: &Path, statuses: Statuses) -> Result<Self, Failure> {
        let mut sectors = None;
        let bytes = match std::fs::File::open(path) {
            // The end of a block device is where its bytes end, too.
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

    /// Gives it back the length that it had, if the file system is shorter.
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

/// Nobody is told how it goes.
struct Silent;

impl Progress for Silent {
    fn made(&self, _: u64, _: u64) {}
}

/// Makes a file system and says what it is like.
pub(crate) fn make(
    options: &BuildOptions,
    file: &File,
    statuses: Statuses,
) -> Result<ImageInfo, Failure> {
    make_shipped(options, statuses)?;
    if options.output.format != OutputFormat::Raw {
        return Ok(ImageInfo::default());
    }
    let info = describe(&options.image, options.offset, statuses)?;
    file.keep_length(statuses)?;
    Ok(info)
}

/// Makes a file system in whatever format it is shipped in.
pub(crate) fn make_shipped(options: &BuildOptions, statuses: Statuses) -> Result<(), Failure> {
    diskwright::clean_up_on_signals().map_err(|e| statuses.failed(e))?;
    build(options, &Silent).map(drop).map_err(|e| statuses.failed(full(options.format, &e)))
}

/// Returns the words for a failed build. For a source that does not fit they begin with the phrase of the original.
fn full(format: Format, error: &BuildError) -> String {
    let BuildError::DoesNotFit { path, reason } = error else {
        return error.to_string();
    };
    let path = diskwright::text::escaped(path);
    match (format, reason) {
        (Format::Ext4, vfs::Error::NoSpace) => format!(
            "{NO_BLOCKS} while populating file system: {path}; give a larger size, or none to a file of the right size"
        ),
        (Format::Ext4, vfs::Error::NoInodes) => format!(
            "{NO_INODES} while populating file system: {path}; give more inodes (-N) or fewer bytes for each (-i)"
        ),
        (_, reason) => format!("{path}: {reason}; give a larger size (-d size=)"),
    }
}

/// Makes it in a file that goes away again, and empty.
pub(crate) fn try_out(mut options: BuildOptions, statuses: Statuses) -> Result<ImageInfo, Failure> {
    let at = |e: std::io::Error| statuses.failed(e);
    let directory = tempfile::tempdir().map_err(at)?;
    options.image = directory.path().join("image");
    options.source = BuildSource::Several(Vec::new());
    options.offset = 0;
    build(&options, &Silent).map_err(|e| statuses.failed(e))?;
    describe(&options.image, 0, statuses)
}

fn describe(image: &Path, offset: u64, statuses: Statuses) -> Result<ImageInfo, Failure> {
    let image = Image::open_rootless(image, &OpenImage::default().offset(offset));
    Ok(image.map_err(|e| statuses.of(&e))?.info().clone())
}

/// Takes the time that the environment says.
pub(crate) fn set_times(options: &mut BuildOptions, statuses: Statuses) -> Result<(), Failure> {
    let seconds = |name: &str| {
        let Some(value) = env::var_os(name) else { return Ok(None) };
        let seconds = value.to_str().and_then(|text| text.trim().parse::<i64>().ok());
        let wrong = || statuses.failed(format_args!("{name} is no number of seconds since 1970"));
        seconds.filter(|sec| *sec >= 0).map(Some).ok_or_else(wrong)
    };
    options.source_date_epoch = seconds(EPOCH)?;
    options.time = seconds(FAKE_TIME)?;
    Ok(())
}

/// Whether the same call is to make the same bytes.
pub(crate) fn is_reproducible(options: &BuildOptions) -> bool {
    options.source_date_epoch.is_some() || options.time.is_some()
}

/// A UUID that no other file system has.
pub(crate) fn random_uuid() -> [u8; 16] {
    uuid::Uuid::new_v4().into_bytes()
}
