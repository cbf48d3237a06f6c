//! What `diskwright extract` does: copies files out of an image, to a directory or a tar archive.
//!
//! Both give everything the image has, `lost+found` included, parents first and sorted by name.
//! What cannot be read from the image ends the work, unless it is told to keep going. What cannot
//! be given to the destination (a device node without the right to make one, an attribute that a
//! file system does not keep, a socket in an archive) is said, counted and left out.
//!
//! ```no_run
//! use diskwright::extract::{ExtractOptions, Observer, extract_to_directory};
//! use diskwright::{Image, OpenImage};
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
//! let image = Image::open("root.img".as_ref(), &OpenImage::default())?;
//! let what = ExtractOptions::default().path("/etc").keep_going(true);
//! let report = extract_to_directory(image.paths(), "etc".as_ref(), &what, &mut Quiet)?;
//! println!("{} files, {} could not be read", report.files, report.unreadable);
//! # Ok(()) }
//! ```

mod archive;
pub(crate) mod contents;
mod directory;
mod file;
#[cfg(target_os = "linux")]
mod host;
#[cfg(not(target_os = "linux"))]
#[path = "host_portable.rs"]
mod host;
pub(crate) mod names;
mod share;

use serde::Serialize;
use vfs::path::{LastLink, split_last};
use vfs::{FileSystem, FileType, Ino, Paths};

use crate::list::{absolute, join};
use crate::{Error, Outcome, Result};

pub use archive::extract_to_tar;
pub use directory::extract_to_directory;
pub use file::extract_to_tar_file;

/// What to extract, and how.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExtractOptions {
    /// The file or directory to extract; what is in a directory comes without its name.
    pub path: Vec<u8>,
    /// Go on after something in the image that cannot be read.
    pub keep_going: bool,
    /// Extract into a directory that is not empty, and replace files in it.
    pub force: bool,
    /// Give files nothing but their contents and permissions: no owners, times, attributes, and no
    /// set-user-id, set-group-id or sticky bits. For directories only.
    pub plain: bool,
    /// Follow a symbolic link at the end of `path`.
    pub follow: bool,
    /// The name of what is extracted, instead of its own, unless it is a directory.
    pub name: Option<Vec<u8>>,
    /// Give what has a name that Windows cannot have another one, which leads back to it. For directories only.
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

/// Hears how the work goes.
pub trait Observer {
    /// Another file is about to be extracted.
    fn file(&mut self, path: &[u8]);
    /// More bytes of contents have been copied.
    fn copied(&mut self, bytes: u64);
    /// Something was left out, or is not what it should be.
    fn warning(&mut self, message: &str);
    /// Something in the image cannot be read; the work continues. By default a warning.
    fn unreadable(&mut self, error: &Error) {
        self.warning(&error.to_string());
    }
    /// Whether the work is to go on; asked before each file. If not, it fails with [`Error::Stopped`].
    fn goes_on(&mut self) -> bool {
        true
    }
}

/// What was extracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExtractReport {
    /// Files of any type.
    pub files: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// Files in the image that could not be read, or not to their end.
    pub unreadable: u64,
    /// Failures of the device among them. They say nothing about the image.
    pub device_errors: u64,
    /// Files and attributes that the destination did not take.
    pub left_out: u64,
}

impl ExtractReport {
    /// How the command ends.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self { device_errors: 1.., .. } => Outcome::Io,
            Self { unreadable: 1.., .. } => Outcome::Image,
            Self { left_out: 1.., .. } => Outcome::No,
            _ => Outcome::Done,
        }
    }
}

/// What both kinds of extraction keep track of.
struct Job<'a> {
    paths: Paths<'a>,
    options: &'a ExtractOptions,
    observer: &'a mut dyn Observer,
    report: ExtractReport,
    /// Absolute path of what is extracted.
    top: Vec<u8>,
    top_ino: Ino,
    /// Name of what is extracted, unless it is a directory.
    top_name: Vec<u8>,
}

impl<'a> Job<'a> {
    fn new(
        paths: Paths<'a>,
        options: &'a ExtractOptions,
        observer: &'a mut dyn Observer,
    ) -> Result<Self> {
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
        Ok(Self { paths, options, observer, report, top, top_ino, top_name })
    }

    fn fs(&self) -> &'a dyn FileSystem {
        self.paths.file_system()
    }

    /// Tells that a file comes next, unless the work shall end.
    fn begin_file(&mut self, path: &[u8]) -> Result<()> {
        if !self.observer.goes_on() {
            return Err(Error::Stopped);
        }
        self.observer.file(path);
        Ok(())
    }

    /// Path in the image of what has `path` below the top.
    fn image_path(&self, path: &[u8]) -> Vec<u8> {
        join(&self.top, path)
    }

    /// Something in the image cannot be read: an error, or a warning if told to keep going.
    fn unreadable(&mut self, path: &[u8], error: vfs::Error) -> Result<()> {
        let is_device = matches!(error, vfs::Error::Device(_));
        let error = Error::file(&self.image_path(path), error);
        if !self.options.keep_going {
            return Err(error);
        }
        self.report.unreadable += 1;
        self.report.device_errors += u64::from(is_device);
        self.observer.unreadable(&error);
        Ok(())
    }

    /// The destination did not take something.
    fn left_out(&mut self, path: &[u8], what: &str) {
        self.report.left_out += 1;
        let path = self.image_path(path);
        self.observer.warning(&format!("{}: {what}", crate::text::escaped(&path)));
    }

    /// The extended attributes of a file, sorted by name; those that can be read, if told to keep
    /// going.
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

    /// The target of a symbolic link, or `None` if it cannot be read.
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
