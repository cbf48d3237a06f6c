//! Copying files into an image, out of an image and between images (`diskwright cp`).
//!
//! Within an image, each file is complete or absent: data is written to a file without a name, which is named when the
//! data is durable.
//!
//! ```no_run
//! use diskwright::copy::{CopyOptions, From, Observer, into_image};
//! use diskwright::edit::Policy;
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
//! let image = Image::open_writable("root.img")?;
//! let how = CopyOptions::default().recursive(true).preserve(true);
//! let from = From::Host("rootfs/etc".as_ref());
//! let report = into_image(image.file_system()?.editor(Policy::now(None)), from, b"/etc", how, &mut Quiet)?;
//! println!("{} files", report.files);
//! image.close()?;
//! # Ok(()) }
//! ```

pub(crate) mod contents;
mod import;
mod into;
mod out;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Serialize;
use vfs::Paths;

use crate::anywhere::words;
use crate::{Error, Result, host};

pub use crate::extract::Observer;
pub use crate::made_names::MadeNames;
pub use into::{into_image, into_image_after};
pub use out::out_of_image;

/// Options of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Copy directories recursively, with links and special files as such. Otherwise only regular files are copied, and
    /// links are followed.
    pub recursive: bool,
    /// Keep owners, all permission bits, times and extended attributes.
    pub preserve: bool,
    /// The destination must be a directory, because there are several sources.
    pub into_directory: bool,
    /// Out of an image, map names that Windows does not support to reversible replacements. Into an image, restore the
    /// original names.
    pub map_names: bool,
    /// Within an image, whether copies share blocks with their sources.
    pub reflink: Reflink,
    /// Out of an image, continue after damage. Unreadable files are omitted or filled with zeros, and
    /// [`Observer::unreadable`] is called for each.
    pub keep_going: bool,
}

setters!(CopyOptions {
    recursive: bool,
    preserve: bool,
    into_directory: bool,
    map_names: bool,
    reflink: Reflink,
    keep_going: bool,
});

/// Use of shared blocks in copies within an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reflink {
    /// Share blocks if the file system can, and copy the bytes otherwise.
    #[default]
    Auto,
    /// Share blocks, and fail if that is impossible.
    Always,
    /// Copy the bytes.
    Never,
}

/// Result of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// Number of files of any type.
    pub files: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// Bytes of them that share blocks with their source.
    pub shared: u64,
    /// Number of files and attributes that the destination did not accept.
    pub left_out: u64,
}

impl std::ops::AddAssign for CopyReport {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.shared += other.shared;
        self.left_out += other.left_out;
    }
}

/// Source of a copy.
#[derive(Clone, Copy)]
pub enum From<'a> {
    /// File or directory on the host.
    Host(&'a Path),
    /// File or directory in an image.
    Image(Paths<'a>, &'a [u8]),
}

/// Source or destination in command-line syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// A path on the host.
    Host(PathBuf),
    /// `IMAGE:PATH`.
    Image {
        /// The image file.
        image: PathBuf,
        /// The path in it.
        path: Vec<u8>,
    },
}

impl Side {
    /// Distinguishes image paths from host paths. In `IMAGE:PATH`, the part before the colon is an existing file that
    /// is not a directory, or a remote location, after which the path must be absolute. An ambiguous host path can be
    /// written in another form, for example as an absolute path of a link to it.
    pub fn parse(text: &OsStr) -> Self {
        let bytes = text.as_encoded_bytes();
        for (colon, _) in bytes.iter().enumerate().filter(|&(_, &byte)| byte == b':') {
            let Ok(image) = host::path(&bytes[..colon]) else { continue };
            if std::fs::metadata(image).is_ok_and(|found| !found.is_dir()) {
                return Self::Image { image: image.to_owned(), path: bytes[colon + 1..].to_vec() };
            }
        }
        if let Some((image, path)) = words::split_side(bytes) {
            return Self::Image { image: image.to_owned(), path: path.to_vec() };
        }
        Self::Host(PathBuf::from(text))
    }
}

/// Returns the name of a host file in its target directory.
fn host_name(path: &Path) -> Result<Vec<u8>> {
    let name = match path.file_name() {
        Some(name) => Some(name.to_owned()),
        // Resolve paths that end in "." or "..".
        None => path.canonicalize().ok().and_then(|path| path.file_name().map(OsStr::to_owned)),
    };
    let problem =
        || Error::Usage(format!("{} has no last component to name the copy", path.display()));
    name.map(|name| name.into_encoded_bytes()).ok_or_else(problem)
}
