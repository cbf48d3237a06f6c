//! What `diskwright cp` does: copies files into an image, out of one, and from image to image.
//!
//! Into an image, every file is whole or absent: its data goes into a file without a name, which
//! gets its name when the data is durable.
//!
//! ```no_run
//! use diskwright::copy::{CopyOptions, From, Observer, into_image};
//! use diskwright::edit::Policy;
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
//! let image = Image::edit("root.img".as_ref(), &OpenImage::default())?;
//! let how = CopyOptions::default().recursive(true).preserve(true);
//! let from = From::Host("rootfs/etc".as_ref());
//! let report = into_image(image.editor(Policy::now(None)), from, b"/etc", how, &mut Quiet)?;
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

/// How to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Directories with everything in them, links as links, and special files. Otherwise only
    /// regular files are copied, and links are followed.
    pub recursive: bool,
    /// Keep owners, all permission bits, times and extended attributes.
    pub preserve: bool,
    /// The destination must be a directory, as several files go there.
    pub into_directory: bool,
    /// Out of an image, give what has a name that Windows cannot have another one, which leads back to it. Into an
    /// image, give such files their names back.
    pub map_names: bool,
    /// Out of an image, continue after damage: files that cannot be read are left out or filled with zeros, and
    /// [`Observer::unreadable`] is called for each.
    pub keep_going: bool,
}

setters!(CopyOptions {
    recursive: bool,
    preserve: bool,
    into_directory: bool,
    map_names: bool,
    keep_going: bool,
});

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// Files of any type.
    pub files: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// Files and attributes that the destination did not take.
    pub left_out: u64,
}

impl std::ops::AddAssign for CopyReport {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.left_out += other.left_out;
    }
}

/// Where to copy from.
#[derive(Clone, Copy)]
pub enum From<'a> {
    /// A file or directory of the host.
    Host(&'a Path),
    /// A file or directory of an image.
    Image(Paths<'a>, &'a [u8]),
}

/// A source or destination as it is typed.
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
    /// Tells an image from a path on the host: in `IMAGE:PATH`, what is before the colon is a file
    /// that exists and no directory, or a place, behind which the path is absolute. A path on the host that would be taken for one can be written
    /// so that it is not, as an absolute path of a link to it, for example.
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

/// The name that a file of the host has in a directory it is copied to.
fn host_name(path: &Path) -> Result<Vec<u8>> {
    let name = match path.file_name() {
        Some(name) => Some(name.to_owned()),
        // A path that ends in "." or ".." has a name all the same.
        None => path.canonicalize().ok().and_then(|path| path.file_name().map(OsStr::to_owned)),
    };
    let problem = || Error::Usage(format!("{} has no name of its own", path.display()));
    name.map(|name| name.into_encoded_bytes()).ok_or_else(problem)
}
