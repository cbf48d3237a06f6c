//! Extraction of files from an image to a directory or tar archive (`diskwright extract`).
//!
//! Both outputs contain all files of the image, including `lost+found`, parents first and sorted by name. A read error
//! in the image ends the extraction, unless `keep_going` is set. Files and attributes that the destination does not
//! support are reported, counted and omitted. Examples are device nodes without the privilege, unsupported extended
//! attributes, and sockets in an archive.
//!
//! ```no_run
//! use diskwright::extract::{ExtractOptions, Observer, extract_to_directory};
//! use diskwright::Image;
//!
//! # struct Quiet;
//! # impl Observer for Quiet {
//! #     fn file(&mut self, _: &[u8]) {}
//! #     fn copied(&mut self, _: u64) {}
//! #     fn warning(&mut self, message: &str) {
//! #         eprintln!("{message}");
//! #     }
//! # }
//! # fn main() -> diskwright::Result<()> {
//! let image = Image::open("root.img")?;
//! let what = ExtractOptions::default().path("/etc").keep_going(true);
//! let report = extract_to_directory(image.file_system()?.paths(), "etc".as_ref(), &what, &mut Quiet)?;
//! println!("{} files, {} could not be read", report.files, report.unreadable);
//! # Ok(()) }
//! ```

mod archive;
pub(crate) mod contents;
#[cfg(feature = "build")]
mod directory;
#[cfg(feature = "build")]
mod file;
#[cfg(all(feature = "build", target_os = "linux"))]
mod host;
#[cfg(all(feature = "build", not(target_os = "linux")))]
#[path = "host_portable.rs"]
mod host;
#[cfg(feature = "build")]
pub(crate) mod names;
#[cfg(feature = "build")]
mod share;

use std::ops::Range;

use serde::Serialize;
use vfs::path::{LastLink, split_last};
use vfs::{FileSystem, FileType, Ino, Paths};

use crate::damaged::LostRanges;
use crate::fs::{absolute, join};
use crate::text::{lossy, not_utf8};
use crate::{Error, Outcome, Result};

pub use archive::{TarStream, extract_to_tar};
#[cfg(feature = "build")]
pub use directory::extract_to_directory;
#[cfg(feature = "build")]
pub use file::extract_to_tar_file;

/// Options of an extraction.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExtractOptions {
    /// File or directory to extract. For a directory, its contents are extracted without its own name.
    pub path: Vec<u8>,
    /// Continue after read errors in the image.
    pub keep_going: bool,
    /// Extract into a non-empty directory and replace files in it.
    pub force: bool,
    /// Restore contents and basic permissions only: no owners, times, attributes, set-user-ID, set-group-ID or sticky
    /// bits. For directories only.
    pub plain: bool,
    /// Follow a symbolic link at the end of `path`.
    pub follow: bool,
    /// New name of an extracted file that is not a directory.
    pub name: Option<Vec<u8>>,
    /// Map names that Windows does not support to reversible replacements. For directories only.
    pub map_names: bool,
}

setters!(ExtractOptions {
    path: impl Into<Vec<u8>> = path.into(),
    keep_going: bool,
    force: bool,
    plain: bool,
    follow: bool,
    name: impl Into<Vec<u8>> = Some(name.into()),
    map_names: bool,
});

/// Observer of an extraction.
pub trait Observer {
    /// Reports the next file.
    fn file(&mut self, path: &[u8]);
    /// Reports further content bytes.
    fn copied(&mut self, bytes: u64);
    /// Reports an omission or deviation.
    fn warning(&mut self, message: &str);
    /// Reports a read error in the image, after which the extraction continues. The default is a warning.
    fn unreadable(&mut self, error: &Error) {
        self.warning(&error.to_string());
    }
    /// Returns whether to continue; called before each file. If false, the extraction fails with [`Error::Stopped`].
    fn goes_on(&mut self) -> bool {
        true
    }
}

/// Maximum number of files in [`ExtractReport::lost`].
const LOST_FILES_MAX: usize = 10_000;

/// A file that was extracted with zeros for bytes that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostFile {
    /// Absolute path in the image, with invalid UTF-8 replaced.
    pub path: String,
    /// Bytes of the path in hexadecimal, only if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Ranges of zeros.
    #[serde(flatten)]
    pub ranges: LostRanges,
}

/// Result of an extraction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExtractReport {
    /// Number of files of any type.
    pub files: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// Number of files in the image that could not be read completely.
    pub unreadable: u64,
    /// Device errors among them, which do not indicate damage of the image.
    pub device_errors: u64,
    /// Number of files and attributes that the destination did not accept.
    pub left_out: u64,
    /// Files that lost contents, in the order of the extraction. At most 10000.
    pub lost: Vec<LostFile>,
    /// Number of further such files.
    pub lost_left_out: u64,
}

impl ExtractReport {
    /// Returns the exit status for this report.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self { device_errors: 1.., .. } => Outcome::Io,
            Self { unreadable: 1.., .. } => Outcome::Image,
            Self { left_out: 1.., .. } => Outcome::No,
            _ => Outcome::Done,
        }
    }
}

/// State of an extraction of either kind.
struct Extraction {
    options: ExtractOptions,
    report: ExtractReport,
    /// Absolute path of the extracted file or directory.
    top: Vec<u8>,
    top_ino: Ino,
    /// Name of the extracted file, unless it is a directory.
    top_name: Vec<u8>,
}

impl Extraction {
    fn new(paths: Paths<'_>, options: &ExtractOptions) -> Result<Self> {
        let fs = paths.file_system();
        let at = |source| Error::file(&options.path, source);
        let last = if options.follow { LastLink::Follow } else { LastLink::Keep };
        let top_ino = paths.resolve(&options.path, last).map_err(at)?;
        let is_directory = fs.attributes(top_ino).map_err(at)?.file_type == FileType::Directory;
        let top_name = match split_last(&options.path) {
            _ if is_directory => Vec::new(),
            _ if options.name.is_some() => options.name.clone().unwrap_or_default(),
            Some((_, name)) => name.to_vec(),
            None => return Err(at(vfs::Error::NotADirectory)),
        };
        let (top, report) = (absolute(&options.path), ExtractReport::default());
        Ok(Self { options: options.clone(), report, top, top_ino, top_name })
    }
}

/// An extraction with what its steps use.
struct Job<'a> {
    paths: Paths<'a>,
    observer: &'a mut dyn Observer,
    extraction: &'a mut Extraction,
}

impl<'a> Job<'a> {
    fn fs(&self) -> &'a dyn FileSystem {
        self.paths.file_system()
    }

    /// Reports the next file, or fails if the extraction was cancelled.
    fn begin_file(&mut self, path: &[u8]) -> Result<()> {
        if !self.observer.goes_on() {
            return Err(Error::Stopped);
        }
        self.observer.file(path);
        Ok(())
    }

    /// Returns the image path for a path below the top.
    fn image_path(&self, path: &[u8]) -> Vec<u8> {
        join(&self.extraction.top, path)
    }

    /// Handles a read error in the image: fails, or warns with `keep_going`.
    fn unreadable(&mut self, path: &[u8], error: vfs::Error) -> Result<()> {
        let is_device = matches!(error, vfs::Error::Device(_));
        let error = Error::file(&self.image_path(path), error);
        if !self.extraction.options.keep_going {
            return Err(error);
        }
        self.extraction.report.unreadable += 1;
        self.extraction.report.device_errors += u64::from(is_device);
        self.observer.unreadable(&error);
        Ok(())
    }

    /// Records bytes that were replaced by zeros.
    fn lost(&mut self, path: &[u8], range: Range<u64>) {
        let path = self.image_path(path);
        let report = &mut self.extraction.report;
        let (text, path_bytes) = (lossy(&path), not_utf8(&path));
        let has_room = report.lost.len() < LOST_FILES_MAX;
        match report.lost.last_mut() {
            Some(last) if last.path == text && last.path_bytes == path_bytes => {
                last.ranges.add(range);
            }
            _ if has_room => {
                let mut ranges = LostRanges::default();
                ranges.add(range);
                report.lost.push(LostFile { path: text, path_bytes, ranges });
            }
            _ => report.lost_left_out += 1,
        }
    }

    /// Records that the destination did not accept something.
    fn left_out(&mut self, path: &[u8], what: &str) {
        self.extraction.report.left_out += 1;
        let path = self.image_path(path);
        self.observer.warning(&format!("{}: {what}", crate::text::escaped(&path)));
    }

    /// Returns the extended attributes of a file, sorted by name. With `keep_going`, unreadable ones are omitted.
    fn xattrs(&mut self, path: &[u8], ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let fs = self.fs();
        let mut names = Vec::new();
        if let Err(e) = fs.list_xattrs(ino, &mut |name| names.push(name.to_vec())) {
            self.unreadable(path, e)?;
        }
        names.sort();
        names.dedup();
        let mut xattrs = Vec::with_capacity(names.len());
        for name in names {
            if name.is_empty() || name.contains(&0) {
                let problem = "attribute name is empty or contains a NUL byte";
                let damage = vfs::Corruption::new("extended attribute", problem).of_inode(ino.0);
                self.unreadable(path, damage.into())?;
                continue;
            }
            match fs.get_xattr(ino, &name) {
                Ok(value) => xattrs.push((name, value)),
                Err(e) => self.unreadable(path, e)?,
            }
        }
        Ok(xattrs)
    }

    /// Returns the target of a symbolic link, or `None` if it is unreadable.
    fn target(&mut self, path: &[u8], ino: Ino) -> Result<Option<Vec<u8>>> {
        let target = self.fs().readlink(ino).and_then(|target| {
            if target.is_empty() || target.contains(&0) {
                let problem = "target is empty or contains a NUL byte";
                return Err(vfs::Corruption::new("symbolic link", problem).of_inode(ino.0).into());
            }
            Ok(target)
        });
        match target {
            Ok(target) => Ok(Some(target)),
            Err(e) => self.unreadable(path, e).map(|()| None),
        }
    }
}
